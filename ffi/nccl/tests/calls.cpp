// Every call of NVIDIA's nccl.h, on host buffers, against references: once as processes, once as ranks of one thread.
#include "everywhere.h"
#include "program.h"
#include "rccl.h"

#include <sys/socket.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace {

struct Type {
    ncclDataType_t type;
    std::size_t size;
    // Of floats, the bits of the fraction and the bias of the exponent; of integers, none.
    int fraction, bias;
};

const Type types[] = {
    {ncclInt8, 1, 0, 0},       {ncclUint8, 1, 0, 0},      {ncclInt32, 4, 0, 0},       {ncclUint32, 4, 0, 0},
    {ncclInt64, 8, 0, 0},      {ncclUint64, 8, 0, 0},     {ncclFloat16, 2, 10, 15},   {ncclFloat32, 4, 23, 127},
    {ncclFloat64, 8, 52, 1023}, {ncclBfloat16, 2, 7, 127}, {ncclFloat8e4m3, 1, 3, 7}, {ncclFloat8e5m2, 1, 2, 15},
};

// A small positive number, as an element of a type: exact for all that is used here.
std::uint64_t encoded(const Type& type, double value) {
    if (type.bias == 0) return static_cast<std::uint64_t>(value);
    const int exponent = std::ilogb(value);
    const double fraction = std::ldexp(value, -exponent) - 1;
    const auto bits = static_cast<std::uint64_t>(std::ldexp(fraction, type.fraction));
    return (static_cast<std::uint64_t>(exponent + type.bias) << type.fraction) | bits;
}

using Bytes = std::vector<unsigned char>;

void put(Bytes& bytes, const Type& type, std::size_t at, double value) {
    const std::uint64_t bits = encoded(type, value);
    std::memcpy(&bytes[at * type.size], &bits, type.size);
}

// What rank `rank` has at `index`: small, so that sums and products of four are exact in every type.
int value(int rank, std::size_t index) { return 1 + static_cast<int>((index * 5 + static_cast<std::size_t>(rank) * 3) / 2 % 2); }

Bytes filled(const Type& type, std::size_t count, int rank, std::size_t from = 0) {
    Bytes bytes(count * type.size);
    for (std::size_t i = 0; i < count; i++) put(bytes, type, i, value(rank, from + i));
    return bytes;
}

double reduced(ncclRedOp_t op, int world, std::size_t index, const Type& type) {
    double result = value(0, index);
    for (int rank = 1; rank < world; rank++) {
        const double other = value(rank, index);
        if (op == ncclProd) result *= other;
        else if (op == ncclMax) result = std::fmax(result, other);
        else if (op == ncclMin) result = std::fmin(result, other);
        else result += other;
    }
    if (op == ncclAvg) result = type.bias ? result / world : std::floor(result / world);
    return result;
}

Bytes reference(ncclRedOp_t op, int world, const Type& type, std::size_t count, std::size_t from = 0) {
    Bytes bytes(count * type.size);
    for (std::size_t i = 0; i < count; i++) put(bytes, type, i, reduced(op, world, from + i, type));
    return bytes;
}

unsigned char* at(Bytes& bytes, std::size_t offset) { return bytes.data() + offset; }

void reductions(ncclComm_t comm, int rank, int world, const Type& type, std::size_t count) {
    const std::size_t n = static_cast<std::size_t>(world), own = static_cast<std::size_t>(rank) * count * type.size;
    const ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
        const Bytes input = filled(type, count, rank), sum = reference(op, world, type, count);
        Bytes output(input.size()), both = input;
        OK(ncclAllReduce(input.data(), output.data(), count, type.type, op, comm, nullptr));
        CHECK(output == sum);
        OK(ncclAllReduceConfig(both.data(), both.data(), count, type.type, op, comm, nullptr, &config));
        CHECK(both == sum);

        // Every other rank in place.
        both = input;
        unsigned char* to = rank % 2 ? output.data() : both.data();
        OK(ncclAllReduce(rank % 2 ? input.data() : to, to, count, type.type, op, comm, nullptr));
        CHECK(count == 0 || std::memcmp(to, sum.data(), sum.size()) == 0);

        const int root = world - 1;
        output.assign(input.size(), 0x55);
        OK(ncclReduce(input.data(), rank == root ? output.data() : nullptr, count, type.type, op, root, comm, nullptr));
        CHECK(output == (rank == root ? sum : Bytes(input.size(), 0x55)));
        both = input;
        OK(ncclReduceConfig(both.data(), both.data(), count, type.type, op, 0, comm, nullptr, nullptr));
        CHECK(both == (rank == 0 ? sum : input));

        Bytes whole = filled(type, count * n, rank);
        const Bytes block = reference(op, world, type, count, static_cast<std::size_t>(rank) * count);
        OK(ncclReduceScatter(whole.data(), output.data(), count, type.type, op, comm, nullptr));
        CHECK(output == block);
        OK(ncclReduceScatterConfig(whole.data(), at(whole, own), count, type.type, op, comm, nullptr, &config));
        CHECK(count == 0 || std::memcmp(at(whole, own), block.data(), block.size()) == 0);
        whole = filled(type, count * n, rank);
        to = rank % 2 ? output.data() : at(whole, own);
        OK(ncclReduceScatter(whole.data(), to, count, type.type, op, comm, nullptr));
        CHECK(count == 0 || std::memcmp(to, block.data(), block.size()) == 0);
    }
    // Each rank's elements times two, and times one.
    std::uint64_t factor = encoded(type, rank % 2 ? 1 : 2);
    // One that is read at once may lie anywhere.
    unsigned char odd[2 * sizeof factor];
    std::memcpy(odd + 1, &factor, sizeof factor);
    for (const auto residence : {ncclScalarHostImmediate, ncclScalarDevice}) {
        ncclRedOp_t op;
        void* const scalar = residence == ncclScalarDevice ? static_cast<void*>(&factor) : odd + 1;
        OK(ncclRedOpCreatePreMulSum(&op, scalar, type.type, residence, comm));
        const auto scaled = [&](std::size_t from) {
            Bytes sum(count * type.size);
            for (std::size_t i = 0; i < count; i++) {
                double total = 0;
                for (int other = 0; other < world; other++) total += value(other, from + i) * (other % 2 ? 1 : 2);
                put(sum, type, i, total);
            }
            return sum;
        };
        const Bytes input = filled(type, count, rank), sum = scaled(0);
        Bytes output(input.size());
        OK(ncclAllReduce(input.data(), output.data(), count, type.type, op, comm, nullptr));
        CHECK(output == sum);
        output.assign(input.size(), 0x55);
        OK(ncclReduce(input.data(), rank == 0 ? output.data() : nullptr, count, type.type, op, 0, comm, nullptr));
        CHECK(output == (rank == 0 ? sum : Bytes(input.size(), 0x55)));
        const Bytes whole = filled(type, count * n, rank);
        OK(ncclReduceScatter(whole.data(), output.data(), count, type.type, op, comm, nullptr));
        CHECK(output == scaled(static_cast<std::size_t>(rank) * count));
        OK(ncclRedOpDestroy(op, comm));
        CHECK(ncclAllReduce(input.data(), output.data(), count, type.type, op, comm, nullptr) == ncclInvalidArgument);
    }
}

void movements(ncclComm_t comm, int rank, int world, const Type& type, std::size_t count) {
    const std::size_t n = static_cast<std::size_t>(world), block = count * type.size;
    const std::size_t own = static_cast<std::size_t>(rank) * block;
    const Bytes input = filled(type, count, rank);
    Bytes all, crossed(n * block), whole = filled(type, count * n, rank);
    for (int other = 0; other < world; other++) {
        const Bytes theirs = filled(type, count, other);
        all.insert(all.end(), theirs.begin(), theirs.end());
        const Bytes sent = filled(type, count, other, static_cast<std::size_t>(rank) * count);
        if (block) std::memcpy(&crossed[static_cast<std::size_t>(other) * block], sent.data(), block);
    }
    Bytes output(n * block);
    OK(ncclAllGather(input.data(), output.data(), count, type.type, comm, nullptr));
    CHECK(output == all);
    output.assign(n * block, 0);
    if (block) std::memcpy(&output[own], input.data(), block);
    OK(ncclAllGatherConfig(output.data() + own, output.data(), count, type.type, comm, nullptr, nullptr));
    CHECK(output == all);
    output.assign(n * block, 0);
    if (block) std::memcpy(&output[own], input.data(), block);
    const unsigned char* from_here = rank % 2 ? input.data() : output.data() + own;
    OK(ncclAllGather(from_here, output.data(), count, type.type, comm, nullptr));
    CHECK(output == all);
    OK(ncclAlltoAll(whole.data(), output.data(), count, type.type, comm, nullptr));
    CHECK(output == crossed);
    output.assign(n * block, 0);
    OK(ncclAlltoAllConfig(whole.data(), output.data(), count, type.type, comm, nullptr, nullptr));
    CHECK(output == crossed);
    output.assign(n * block, 0);
    OK(ncclAllToAll(whole.data(), output.data(), count, type.type, comm, nullptr));
    CHECK(output == crossed);
    output = whole;
    OK(ncclAlltoAll(output.data(), output.data(), count, type.type, comm, nullptr));
    CHECK(output == crossed);

    // To each peer as many as its number and one, kept apart by a gap; those for the first rank come last.
    std::vector<std::size_t> sent(n), received_from(n), from(n), to(n);
    std::size_t length = 0, room = 0;
    for (std::size_t peer = n; peer-- > 0;) {
        sent[peer] = count ? peer + 1 : 0;
        received_from[peer] = count ? static_cast<std::size_t>(rank) + 1 : 0;
        from[peer] = length, to[peer] = room;
        length += sent[peer] + 2, room += received_from[peer] + 1;
    }
    Bytes parts(length * type.size), landed(room * type.size, 0x55), expected = landed;
    for (std::size_t peer = 0; peer < n; peer++) {
        for (std::size_t i = 0; i < sent[peer]; i++) put(parts, type, from[peer] + i, value(rank, peer + i));
        for (std::size_t i = 0; i < received_from[peer]; i++) {
            put(expected, type, to[peer] + i, value(static_cast<int>(peer), static_cast<std::size_t>(rank) + i));
        }
    }
    OK(ncclAllToAllv(parts.data(), sent.data(), from.data(), landed.data(), received_from.data(), to.data(), type.type,
                     comm, nullptr));
    CHECK(landed == expected);

    for (const int root : {0, world - 1}) {
        const Bytes theirs = filled(type, count, root);
        Bytes one(block), buffer = input;
        OK(ncclBroadcast(rank == root ? input.data() : nullptr, one.data(), count, type.type, root, comm, nullptr));
        CHECK(one == theirs);
        OK(ncclBroadcastConfig(buffer.data(), buffer.data(), count, type.type, root, comm, nullptr, nullptr));
        CHECK(buffer == theirs);
        buffer = input;
        OK(ncclBcast(buffer.data(), count, type.type, root, comm, nullptr));
        CHECK(buffer == theirs);
        output.assign(n * block, 0);
        OK(ncclGather(input.data(), rank == root ? output.data() : nullptr, count, type.type, root, comm, nullptr));
        CHECK(output == (rank == root ? all : Bytes(n * block)));
        output.assign(n * block, 0);
        OK(ncclGatherConfig(input.data(), output.data(), count, type.type, root, comm, nullptr, nullptr));
        CHECK(output == (rank == root ? all : Bytes(n * block)));
        // In place at the root.
        if (block) std::memcpy(output.data() + own, input.data(), block);
        const unsigned char* const gives = rank == root ? output.data() + own : input.data();
        OK(ncclGather(gives, output.data(), count, type.type, root, comm, nullptr));
        if (rank == root) CHECK(output == all);
        const Bytes scattered = filled(type, count, root, static_cast<std::size_t>(rank) * count);
        OK(ncclScatter(rank == root ? whole.data() : nullptr, one.data(), count, type.type, root, comm, nullptr));
        CHECK(one == scattered);
        one.assign(block, 0);
        OK(ncclScatterConfig(whole.data(), one.data(), count, type.type, root, comm, nullptr, nullptr));
        CHECK(one == scattered);
        output = whole;
        OK(ncclScatter(output.data(), rank == root ? output.data() + own : one.data(), count, type.type, root, comm, nullptr));
        CHECK(rank == root ? output == whole : one == scattered);
    }

    // Everybody sends before anybody receives, to itself as well, twice.
    Bytes received(2 * n * block);
    OK(ncclGroupStart());
    for (int round = 0; round < 2; round++) {
        for (std::size_t peer = 0; peer < n; peer++) {
            OK(ncclSend(whole.data() + peer * block, count, type.type, static_cast<int>(peer), comm, nullptr));
        }
        for (std::size_t peer = n; peer-- > 0;) {
            unsigned char* to = received.data() + (static_cast<std::size_t>(round) * n + peer) * block;
            OK(ncclRecv(to, count, type.type, static_cast<int>(peer), comm, nullptr));
        }
    }
    OK(ncclGroupEnd());
    CHECK(Bytes(received.begin(), received.begin() + static_cast<std::ptrdiff_t>(n * block)) == crossed);
    CHECK(Bytes(received.begin() + static_cast<std::ptrdiff_t>(n * block), received.end()) == crossed);
    // One after the other, without a group.
    if (world > 1 && rank < 2) {
        Bytes got(block);
        if (rank == 0) OK(ncclSend(input.data(), count, type.type, 1, comm, nullptr));
        OK(ncclRecv(got.data(), count, type.type, 1 - rank, comm, nullptr));
        if (rank == 1) OK(ncclSend(input.data(), count, type.type, 0, comm, nullptr));
        CHECK(got == filled(type, count, 1 - rank));
    }
}

// What a configuration calls a communicator, its errors call it, and a split of it without a name.
void are_named(ncclComm_t comm) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t named = nullptr, part = nullptr;
    float one = 1;
    config.commName = "tensor\nparallel";
    OK(ncclCommSplit(comm, 0, 0, &named, &config));
    FAILS(ncclInvalidArgument, "communicator `tensor?parallel` rank ", ncclBroadcast(&one, &one, 1, ncclFloat, 99, named, nullptr));
    OK(ncclCommSplit(named, 3, 0, &part, nullptr));
    FAILS(ncclInvalidArgument, "communicator `tensor?parallel/3` rank ", ncclBroadcast(&one, &one, 1, ncclFloat, 99, part, nullptr));
    OK(ncclCommDestroy(part));
    OK(ncclCommDestroy(named));
    // Those that nobody named.
    FAILS(ncclInvalidArgument, "cannot use a root", ncclBroadcast(&one, &one, 1, ncclFloat, 99, comm, nullptr));
    CHECK(!std::strstr(ncclGetLastError(nullptr), "communicator `"));
}

void communicators(ncclComm_t comm, int rank, int world) {
    int number = -1;
    OK(ncclCommCount(comm, &number));
    CHECK(number == world);
    OK(ncclCommUserRank(comm, &number));
    CHECK(number == rank);
    OK(ncclCommCuDevice(comm, &number));
    CHECK(number == 0);
    ncclResult_t state = ncclInternalError;
    OK(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclSuccess);

    // Odd and even ranks, in reverse.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t half = nullptr, rest = nullptr, none = comm, again = nullptr;
    OK(ncclCommSplit(comm, rank % 2, -rank, &half, &config));
    // Only what is made of one that need not block need not, either.
    COMPLETES(again, ncclCommSplit(half, 0, 0, &again, nullptr));
    OK(ncclCommDestroy(again));
    OK(ncclCommUserRank(half, &number));
    CHECK(number == (world - 1 - rank) / 2);
    int64_t one = 1, total = 0;
    OK(ncclAllReduce(&one, &total, 1, ncclInt64, ncclSum, half, nullptr));
    CHECK(total == world / 2);
    OK(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &none, nullptr));
    CHECK(none == nullptr);
    // Who has none ends it like the others.
    OK(ncclCommFinalize(none));
    OK(ncclCommRevoke(none, NCCL_REVOKE_DEFAULT));
    OK(ncclCommAbort(none));
    OK(ncclCommDestroy(none));
    OK(ncclGroupStart());
    OK(ncclCommFinalize(none));
    OK(ncclGroupEnd());
    // Two at once, of the same ranks.
    ncclComm_t pair = nullptr, whole = nullptr;
    OK(ncclGroupStart());
    OK(ncclCommSplit(comm, rank / 2, rank, &pair, nullptr));
    OK(ncclCommSplit(comm, 0, -rank, &whole, nullptr));
    OK(ncclGroupEnd());
    OK(ncclCommUserRank(pair, &number));
    CHECK(number == rank % 2);
    OK(ncclCommUserRank(whole, &number));
    CHECK(number == world - 1 - rank);
    OK(ncclCommDestroy(pair));
    OK(ncclCommDestroy(whole));
    are_named(comm);
    ncclRedOp_t scaled;
    OK(ncclRedOpCreatePreMulSum(&scaled, &one, ncclInt64, ncclScalarHostImmediate, half));
    OK(ncclCommFinalize(half));
    FAILS(ncclInvalidArgument, "finalized", ncclCommFinalize(half));
    OK(ncclRedOpDestroy(scaled, half));
    FAILS(ncclInvalidUsage, "finalized", ncclAllReduce(&one, &total, 1, ncclInt64, ncclSum, half, nullptr));
    FAILS(ncclInvalidArgument, "finalized", ncclCommRevoke(half, NCCL_REVOKE_DEFAULT));
    OK(ncclCommDestroy(half));

    int last = world - 1;
    if (rank != last) {
        OK(ncclCommShrink(comm, &last, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
        OK(ncclAllReduce(&one, &total, 1, ncclInt64, ncclSum, rest, nullptr));
        CHECK(total == world - 1);
    }
    // Nobody gives the smaller one up while others are still in its sum.
    OK(ncclAllReduce(&one, &total, 1, ncclInt64, ncclSum, comm, nullptr));
    CHECK(total == world);
    if (rank != last) {
        OK(ncclCommRevoke(rest, NCCL_REVOKE_DEFAULT));
        CHECK(outcome(rest) == ncclSuccess);
        FAILS(ncclInvalidUsage, "it is revoked", ncclAllReduce(&one, &total, 1, ncclInt64, ncclSum, rest, nullptr));
        FAILS(ncclInvalidArgument, "twice", ncclCommRevoke(rest, NCCL_REVOKE_DEFAULT));
        FAILS(ncclInvalidArgument, "revoked", ncclCommFinalize(rest));
        OK(ncclCommAbort(rest));
    }
}

void memories(ncclComm_t comm, int world) {
    void *buffer = nullptr, *handle = nullptr, *address = nullptr;
    ncclWindow_t window = nullptr;
    OK(ncclMemAlloc(&buffer, 4096));
    auto* numbers = static_cast<int32_t*>(buffer);
    CHECK(numbers[0] == 0);
    OK(ncclCommRegister(comm, buffer, 4096, &handle));
    OK(ncclCommWindowRegister(comm, buffer, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    OK(ncclWinGetUserPtr(comm, window, &address));
    CHECK(address == buffer);
    numbers[0] = 3;
    OK(ncclAllReduce(numbers, numbers + 1, 1, ncclInt32, ncclSum, comm, nullptr));
    CHECK(numbers[1] == 3 * world);
    OK(ncclCommWindowDeregister(comm, window));
    OK(ncclCommDeregister(comm, handle));
    FAILS(ncclInvalidUsage, "registered", ncclCommDeregister(comm, handle));
    OK(ncclCommDeregister(comm, nullptr));
    OK(ncclCommWindowDeregister(comm, nullptr));
    FAILS(ncclInvalidArgument, "registered", ncclWinGetUserPtr(comm, window, &address));
    OK(ncclMemFree(buffer));
    FAILS(ncclInvalidArgument, "ncclMemAlloc", ncclMemFree(buffer));
    OK(ncclMemFree(nullptr));
    uint64_t bytes = 7;
    OK(ncclCommMemStats(comm, ncclStatGpuMemTotal, &bytes));
    CHECK(bytes == 0);
}

// A call that is refused takes its group with it.
void takes_group(ncclComm_t comm, const char* part, const std::function<ncclResult_t()>& refused) {
    float x = 1, y = 2;
    OK(ncclGroupStart());
    OK(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, comm, nullptr));
    const ncclResult_t why = refused();
    CHECK(why != ncclSuccess);
    FAILS(why, part, ncclGroupEnd());
    CHECK(y == 2);
}

// So do those that make, divide or end communicators, whose handles are null then.
void takes_group_and_makes_none(ncclComm_t comm) {
    ncclUniqueId id{};
    int nobody = 99;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.magic = 1;
    ncclComm_t other = nullptr;
    const auto makes_none = [&](const char* part, const std::function<ncclResult_t()>& refused) {
        other = comm;
        takes_group(comm, part, refused);
        CHECK(other == nullptr);
    };
    makes_none("rank 3", [&] { return ncclCommInitRank(&other, 2, id, 3); });
    makes_none("initializer", [&] { return ncclCommInitRankConfig(&other, 1, id, 0, &config); });
    makes_none("ids", [&] { return ncclCommInitRankScalable(&other, 1, 0, 0, &id, nullptr); });
    makes_none("color", [&] { return ncclCommSplit(comm, -2, 0, &other, nullptr); });
    makes_none("exclude", [&] { return ncclCommShrink(comm, &nobody, 1, &other, nullptr, 0); });
    takes_group(comm, "saw 0", [&] { return ncclCommInitAll(&other, 0, nullptr); });
    makes_none("grow", [&] { return ncclCommGrow(comm, 9, nullptr, -1, &other, nullptr); });
    takes_group(comm, "ncclSend", [&] { return ncclSignal(0, 0, 0, 0, comm, nullptr); });
    // What is finalized in such a group goes on.
    takes_group(comm, "finalized", [&] {
        OK(ncclCommFinalize(comm));
        return ncclCommFinalize(comm);
    });
    int32_t own = 1, most = 0;
    OK(ncclAllReduce(&own, &most, 1, ncclInt32, ncclMax, comm, nullptr));
    CHECK(most == own);
}

// What is wrong gives an error with its reason.
void mistakes(ncclComm_t comm, int world) {
    float x = 1, y = 2;
    int nobody = 99;
    ncclUniqueId id{};
    ncclComm_t other = nullptr;
    ncclSimInfo_t simulation = NCCL_SIM_INFO_INITIALIZER;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclCollConfig_t tuned = NCCL_COLLCONFIG_INITIALIZER;
    FAILS(ncclInvalidArgument, "version", ncclGetVersion(nullptr));
    FAILS(ncclInvalidArgument, "communicator", ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, nullptr, nullptr));
    FAILS(ncclInvalidArgument, "data type",
          ncclAllReduce(&x, &y, 1, static_cast<ncclDataType_t>(12), ncclSum, comm, nullptr));
    FAILS(ncclInvalidArgument, "reduction",
          ncclAllReduce(&x, &y, 1, ncclFloat, static_cast<ncclRedOp_t>(5), comm, nullptr));
    FAILS(ncclInvalidArgument, "null", ncclAllReduce(nullptr, &y, 1, ncclFloat, ncclSum, comm, nullptr));
    float shared[3] = {};
    FAILS(ncclInvalidArgument, "share no byte", ncclAllReduce(shared, shared + 1, 2, ncclFloat, ncclSum, comm, nullptr));
    FAILS(ncclInvalidArgument, "root", ncclBroadcast(&x, &y, 1, ncclFloat, world, comm, nullptr));
    FAILS(ncclInvalidArgument, "root", ncclReduce(&x, &y, 1, ncclFloat, ncclSum, -1, comm, nullptr));
    const std::size_t none[8] = {};
    FAILS(ncclInvalidArgument, "data type",
          ncclAllToAllv(&x, none, none, &y, none, none, static_cast<ncclDataType_t>(12), comm, nullptr));
    FAILS(ncclInvalidArgument, "send_counts", ncclAllToAllv(&x, nullptr, none, &y, none, none, ncclFloat, comm, nullptr));
    FAILS(ncclInvalidArgument, "unique id", ncclCommInitRank(&other, 1, id, 0));
    FAILS(ncclInvalidArgument, "rank 3", ncclCommInitRank(&other, 2, id, 3));
    config.magic = 1;
    FAILS(ncclInvalidArgument, "initializer", ncclCommInitRankConfig(&other, 1, id, 0, &config));
    FAILS(ncclInvalidArgument, "ids", ncclCommInitRankScalable(&other, 1, 0, 0, &id, nullptr));
    FAILS(ncclInvalidArgument, "exclude", ncclCommShrink(comm, &nobody, 1, &other, nullptr, 0));
    // What begins where no such array does.
    int room[2] = {};
    const auto odd = reinterpret_cast<std::uintptr_t>(room) + 1;
    FAILS(ncclInvalidArgument, "their address", ncclCommShrink(comm, reinterpret_cast<int*>(odd), 1, &other, nullptr, 0));
    FAILS(ncclInvalidArgument, "their address", ncclCommInitAll(&other, 1, reinterpret_cast<int*>(odd)));
    const auto counts = reinterpret_cast<std::size_t*>(reinterpret_cast<std::uintptr_t>(none) + 1);
    FAILS(ncclInvalidArgument, "send_counts", ncclAllToAllv(&x, counts, none, &y, none, none, ncclFloat, comm, nullptr));
    FAILS(ncclInvalidArgument, "color", ncclCommSplit(comm, -2, 0, &other, nullptr));
    tuned.algSelection = "ring";
    FAILS(ncclInvalidUsage, "algSelection",
          ncclAllReduceConfig(&x, &y, 1, ncclFloat, ncclSum, comm, nullptr, &tuned));
    tuned = NCCL_COLLCONFIG_INITIALIZER;
    tuned.launchCompletionEvent = reinterpret_cast<cudaEvent_t>(&nobody);
    FAILS(ncclInvalidUsage, "launchCompletionEvent",
          ncclAllReduceConfig(&x, &y, 1, ncclFloat, ncclSum, comm, nullptr, &tuned));
    // A program of a header without the event has none.
    tuned.size = offsetof(ncclCollConfig_t, launchCompletionEvent);
    OK(ncclAllReduceConfig(&x, &x, 1, ncclFloat, ncclMax, comm, nullptr, &tuned));
    CHECK(x == 1);
    tuned.size = offsetof(ncclCollConfig_t, forceAlgSelection);
    FAILS(ncclInvalidArgument, "initializer",
          ncclAllReduceConfig(&x, &y, 1, ncclFloat, ncclSum, comm, nullptr, &tuned));
    FAILS(ncclInvalidUsage, "group", ncclGroupEnd());
    takes_group(comm, "data type", [&] { return ncclSend(&x, 1, static_cast<ncclDataType_t>(99), 0, comm, nullptr); });
    takes_group_and_makes_none(comm);
    OK(ncclGroupStart());
    OK(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, comm, nullptr));
    FAILS(ncclInvalidUsage, "simulate", ncclGroupSimulateEnd(&simulation));
    FAILS(ncclInvalidUsage, "group", ncclGroupEnd());
    CHECK(y == 2);
}

void rank_of(const ncclUniqueId& id, int rank, int world) {
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    OK(ncclCommInitRankConfig(&comm, world, id, rank, &config));
    for (const Type& type : types) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{37}, std::size_t{3000}}) {
            reductions(comm, rank, world, type, count);
            movements(comm, rank, world, type, count);
        }
    }
    communicators(comm, rank, world);
    memories(comm, world);
    mistakes(comm, world);
    everywhere(comm, rank, world);
    OK(ncclCommFinalize(comm));
    OK(ncclCommDestroy(comm));
    FAILS(ncclInvalidArgument, "destroyed", ncclCommDestroy(comm));
}

// At how many sockets this process listens.
int listening() {
    int count = 0;
    for (int file = 0; file < 1024; file++) {
        int listens = 0;
        socklen_t length = sizeof listens;
        count += getsockopt(file, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens;
    }
    return count;
}

// What a communicator met by is closed a moment after that.
bool comes_to_listen(int count) {
    for (int turn = 0; turn < 1000 && listening() != count; turn++) usleep(5000);
    return listening() == count;
}

// Of several ids the first is enough. Nobody listens at the others any more, also where no communicator comes to be.
void several_ids() {
    ncclUniqueId ids[3];
    for (ncclUniqueId& id : ids) OK(ncclGetUniqueId(&id));
    CHECK(listening() == 3);
    ncclComm_t comm = nullptr;
    OK(ncclCommInitRankScalable(&comm, 1, 0, 3, ids, nullptr));
    OK(ncclCommDestroy(comm));
    CHECK(comes_to_listen(0));
    for (ncclUniqueId& id : ids) OK(ncclGetUniqueId(&id));
    FAILS(ncclInvalidArgument, "rank 1", ncclCommInitRankScalable(&comm, 1, 1, 3, ids, nullptr));
    CHECK(comes_to_listen(1));
    OK(ncclCommInitRank(&comm, 1, ids[0], 0));
    OK(ncclCommDestroy(comm));
    CHECK(comes_to_listen(0));
}

// One thread drives all ranks, of two communicators at once.
void one_thread() {
    constexpr int world = 3;
    const int devices[world] = {4, 2, 0};
    ncclComm_t first[world] = {}, second[world] = {};
    float sums[2][world] = {}, ones[world] = {1, 1, 1};
    OK(ncclCommInitAll(first, world, devices));
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart());
    for (int rank = 1; rank < world; rank++) OK(ncclCommInitRank(&second[rank], world, id, rank));
    OK(ncclCommInitRankScalable(&second[0], world, 0, 1, &id, nullptr));
    CHECK(second[0] == nullptr);
    OK(ncclGroupEnd());
    OK(ncclGroupStart());
    for (int rank = world; rank-- > 0;) {
        int device = -1;
        OK(ncclCommCuDevice(first[rank], &device));
        CHECK(device == devices[rank]);
        OK(ncclGroupStart());
        OK(ncclAllReduce(&ones[rank], &sums[0][rank], 1, ncclFloat, ncclSum, first[rank], nullptr));
        OK(pncclAllReduce(&ones[rank], &sums[1][rank], 1, ncclFloat, ncclSum, second[rank], nullptr));
        OK(ncclGroupEnd());
    }
    OK(ncclGroupEnd());
    for (int rank = 0; rank < world; rank++) {
        CHECK(sums[0][rank] == world && sums[1][rank] == world);
        OK(ncclCommDestroy(first[rank]));
        OK(pncclCommDestroy(second[rank]));
    }
}

}  // namespace

int main(int count, char** arguments) {
    CHECK(count == 2);
    alarm(120);
    const int world = std::atoi(arguments[1]);
    if (world == 0) several_ids(), one_thread();
    else processes(world, [world](const ncclUniqueId& id, int rank) { rank_of(id, rank, world); });
    std::printf("calls: ok\n");
    return EXIT_SUCCESS;
}
