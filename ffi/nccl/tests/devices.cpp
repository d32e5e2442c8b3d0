// NCCL's calls on devices: `devices WAY`, in two processes with a device each (`processes`), also with the real library, a stand-in,
// for what is not served here (`beside`), or as one thread that drives both ranks (`together`).
#include "everywhere.h"
// Behind the one above, which says how NCCL's header is read.
#include "devices.h"
#include "forwarded.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>

#include <atomic>

namespace {

// How far the processes have come, in memory of both.
std::atomic<int>* met = nullptr;

void collectives(const Rank& own) {
    const auto [rank, comm, stream, in, out] = own;
    const int me = rank;
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    own.expect(__LINE__, count, sum);
    OK(ncclAllGather(own.send(), own.receive(), count, ncclInt32, comm, stream));
    const auto all = [](std::size_t i) { return value(static_cast<int>(i / count), i % count); };
    own.expect(__LINE__, world * count, all);
    OK(ncclReduceScatter(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    own.expect(__LINE__, count, [me](std::size_t i) { return sum(me * count + i); });
    OK(ncclAlltoAll(own.send(), own.receive(), count, ncclInt32, comm, stream));
    own.expect(__LINE__, world * count,
               [me](std::size_t i) { return value(static_cast<int>(i / count), me * count + i % count); });
    OK(ncclBroadcast(own.send(), own.receive(), count, ncclInt32, 1, comm, stream));
    own.expect(__LINE__, count, [](std::size_t i) { return value(1, i); });
    OK(ncclReduce(own.send(), own.receive(), count, ncclInt32, ncclMax, 0, comm, stream));
    if (me == 0) own.expect(__LINE__, count, [](std::size_t i) { return std::max(value(0, i), value(1, i)); });
    OK(ncclGather(own.send(), own.receive(), count, ncclInt32, 1, comm, stream));
    if (me == 1) own.expect(__LINE__, world * count, all);
    OK(ncclScatter(own.send(), own.receive(), count, ncclInt32, 0, comm, stream));
    own.expect(__LINE__, count, [me](std::size_t i) { return value(0, me * count + i); });

    // Of no elements, in place, and on the default stream.
    OK(ncclAllReduce(nullptr, nullptr, 0, ncclFloat, ncclSum, comm, stream));
    CUDA(cuMemcpyAsync(out, in, count * sizeof(int32_t), stream));
    OK(ncclAllReduce(own.receive(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    own.expect(__LINE__, count, sum);
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclMin, comm, nullptr));
    CUDA(cuStreamSynchronize(nullptr));
    own.expect(__LINE__, count, [](std::size_t i) { return std::min(value(0, i), value(1, i)); });

    // Several collectives of a group come in order.
    OK(ncclGroupStart());
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    OK(ncclAllReduce(own.receive(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    OK(ncclGroupEnd());
    own.expect(__LINE__, count, [](std::size_t i) { return world * sum(i); });

    // Both ranks receive first.
    OK(ncclGroupStart());
    OK(ncclRecv(own.receive(), count, ncclInt32, 1 - me, comm, stream));
    OK(ncclSend(own.send(), count, ncclInt32, 1 - me, comm, stream));
    OK(ncclGroupEnd());
    own.expect(__LINE__, count, [me](std::size_t i) { return value(1 - me, i); });

    // Recorded, and played with other data.
    CUgraph graph;
    CUgraphExec executable;
    CUDA(cuStreamBeginCapture_v2(stream, own_thread));
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    OK(ncclGroupStart());
    OK(ncclSend(own.receive(), count, ncclInt32, 1 - me, comm, stream));
    OK(ncclRecv(const_cast<void*>(own.send()), count, ncclInt32, 1 - me, comm, stream));
    OK(ncclGroupEnd());
    CUDA(cuStreamEndCapture(stream, &graph));
    CUDA(cuGraphInstantiateWithFlags(&executable, graph, 0));
    for (int32_t more = 1; more <= 3; more++) {
        own.fill(more);
        CUDA(cuGraphLaunch(executable, stream));
        own.expect(__LINE__, count, [more](std::size_t i) { return sum(i) + world * more; });
    }
    CUDA(cuMemcpyAsync(out, in, count * sizeof(int32_t), stream));
    own.expect(__LINE__, count, [](std::size_t i) { return sum(i) + world * 3; });
    CUDA(cuGraphExecDestroy(executable));
    CUDA(cuGraphDestroy(graph));
    own.fill(0);
}

// Sums of products with a scalar of each rank's: one that is read at once, and one on the device that calls read in their turn.
void premultiplied(const Rank& own) {
    const auto [rank, comm, stream, in, out] = own;
    const int me = rank;
    int32_t factor = rank + 2;
    const auto products = [](std::size_t i) { return 2 * value(0, i) + 3 * value(1, i); };
    ncclRedOp_t scaled, read;
    OK(ncclRedOpCreatePreMulSum(&scaled, &factor, ncclInt32, ncclScalarHostImmediate, comm));
    factor = 0;
    FAILS(ncclInvalidArgument, "it was made for", ncclAllReduce(own.send(), own.receive(), count, ncclFloat, scaled, comm, stream));
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, scaled, comm, stream));
    own.expect(__LINE__, count, products);
    OK(ncclReduceScatter(own.send(), own.receive(), count, ncclInt32, scaled, comm, stream));
    own.expect(__LINE__, count, [me, products](std::size_t i) { return products(me * count + i); });
    CUdeviceptr place;
    CUDA(cuMemAlloc_v2(&place, sizeof factor));
    void* at = reinterpret_cast<void*>(static_cast<std::uintptr_t>(place));
    OK(ncclRedOpCreatePreMulSum(&read, at, ncclInt32, ncclScalarDevice, comm));
    for (factor = 4; factor > 0; factor -= 3) {
        const int32_t given = factor * (rank + 1);
        CUDA(cuMemcpyHtoD_v2(place, &given, sizeof given));
        OK(ncclGroupStart());
        OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, read, comm, stream));
        OK(ncclReduce(own.receive(), own.receive(), count, ncclInt32, scaled, 1, comm, stream));
        OK(ncclGroupEnd());
        const int32_t times = 5 * factor;
        if (me == 1) own.expect(__LINE__, count, [times](std::size_t i) { return times * (value(0, i) + 2 * value(1, i)); });
        CUDA(cuStreamSynchronize(stream));
    }
    OK(ncclRedOpDestroy(read, comm));
    OK(ncclRedOpDestroy(scaled, comm));
    CUDA(cuMemFree_v2(place));
}

// The collectives by their other names.
void spelled(const Rank& own) {
    const auto [rank, comm, stream, in, out] = own;
    const int me = rank;
    const ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    const auto all = [](std::size_t i) { return value(static_cast<int>(i / count), i % count); };
    const auto crossed = [me](std::size_t i) { return value(static_cast<int>(i / count), me * count + i % count); };
    OK(ncclAllReduceConfig(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, stream, &config));
    own.expect(__LINE__, count, sum);
    OK(ncclAllGatherConfig(own.send(), own.receive(), count, ncclInt32, comm, stream, nullptr));
    own.expect(__LINE__, world * count, all);
    OK(ncclReduceScatterConfig(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, stream, &config));
    own.expect(__LINE__, count, [me](std::size_t i) { return sum(me * count + i); });
    OK(ncclAlltoAllConfig(own.send(), own.receive(), count, ncclInt32, comm, stream, nullptr));
    own.expect(__LINE__, world * count, crossed);
    OK(ncclReduceConfig(own.send(), own.receive(), count, ncclInt32, ncclSum, 1, comm, stream, &config));
    if (me == 1) own.expect(__LINE__, count, sum);
    OK(ncclGatherConfig(own.send(), own.receive(), count, ncclInt32, 0, comm, stream, nullptr));
    if (me == 0) own.expect(__LINE__, world * count, all);
    OK(ncclBroadcastConfig(own.send(), own.receive(), count, ncclInt32, 0, comm, stream, nullptr));
    own.expect(__LINE__, count, [](std::size_t i) { return value(0, i); });
    OK(ncclScatterConfig(own.send(), own.receive(), count, ncclInt32, 1, comm, stream, nullptr));
    own.expect(__LINE__, count, [me](std::size_t i) { return value(1, me * count + i); });
    CUDA(cuMemcpyAsync(out, in, count * sizeof(int32_t), stream));
    OK(ncclBcast(own.receive(), count, ncclInt32, 1, comm, stream));
    own.expect(__LINE__, count, [](std::size_t i) { return value(1, i); });
    OK(ncclAllToAll(own.send(), own.receive(), count, ncclInt32, comm, stream));
    own.expect(__LINE__, world * count, crossed);
    // To each rank as many as its number and one.
    const std::size_t sent[world] = {1, 2}, from[world] = {5, 0}, got = static_cast<std::size_t>(me) + 1;
    const std::size_t received[world] = {got, got}, to[world] = {0, got};
    OK(ncclAllToAllv(own.send(), sent, from, own.receive(), received, to, ncclInt32, comm, stream));
    own.expect(__LINE__, world * got, [&](std::size_t i) { return value(static_cast<int>(i / got), from[me] + i % got); });
}

// Each rank chooses its streams for itself, and changes them as it likes: a call sees what the one before has left on whatever stream.
void streams(const Rank& own) {
    const auto [rank, comm, stream, in, out] = own;
    const int me = rank;
    cudaStream_t others[2];
    for (cudaStream_t& other : others) CUDA(cuStreamCreate(&other, 1));
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    int32_t times = 1;
    for (int call = 0; call < 50; call++) {
        // As a program that makes a call now in this stream and now in that, on one rank alone.
        const cudaStream_t chosen = me == 0 ? others[call % 2] : call % 3 == 0 ? nullptr : stream;
        if (call % 5 < 2) {
            OK(ncclAllReduce(own.receive(), own.receive(), count, ncclInt32, ncclSum, comm, chosen));
            times *= world;
        } else if (call % 5 < 4) {
            OK(ncclBroadcast(own.receive(), own.receive(), count, ncclInt32, call % world, comm, chosen));
        } else {
            // In a stream that is gone before the next call.
            cudaStream_t goes;
            CUDA(cuStreamCreate(&goes, 1));
            OK(ncclAllReduce(own.receive(), own.receive(), count, ncclInt32, ncclMax, comm, me == 0 ? stream : goes));
            CUDA(cuStreamDestroy_v2(goes));
        }
    }
    OK(ncclAllReduce(own.receive(), own.receive(), count, ncclInt32, ncclMin, comm, stream));
    own.expect(__LINE__, count, [times](std::size_t i) { return times * sum(i); });

    // Several streams of a group, and others on the other rank.
    OK(ncclGroupStart());
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, others[me]));
    OK(ncclAllReduce(own.receive(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    OK(ncclGroupEnd());
    own.expect(__LINE__, count, [](std::size_t i) { return world * sum(i); });

    // Recorded: the first call in a stream of its own on rank 0 alone.
    CUgraph graph;
    CUgraphExec executable;
    CUevent forked, joined;
    CUDA(cuEventCreate(&forked, 2));
    CUDA(cuEventCreate(&joined, 2));
    CUDA(cuStreamBeginCapture_v2(stream, own_thread));
    CUDA(cuEventRecord(forked, stream));
    CUDA(cuStreamWaitEvent(others[0], forked, 0));
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, me == 0 ? others[0] : stream));
    OK(ncclAllReduce(own.receive(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    CUDA(cuEventRecord(joined, others[0]));
    CUDA(cuStreamWaitEvent(stream, joined, 0));
    CUDA(cuStreamEndCapture(stream, &graph));
    CUDA(cuGraphInstantiateWithFlags(&executable, graph, 0));
    for (int32_t more = 1; more <= 3; more++) {
        own.fill(more);
        CUDA(cuGraphLaunch(executable, stream));
        own.expect(__LINE__, count, [more](std::size_t i) { return world * (sum(i) + world * more); });
    }
    CUDA(cuGraphExecDestroy(executable));
    CUDA(cuGraphDestroy(graph));
    CUDA(cuEventDestroy_v2(forked));
    CUDA(cuEventDestroy_v2(joined));
    own.fill(0);
    for (const cudaStream_t other : others) CUDA(cuStreamDestroy_v2(other));
}

// What programs register.
void registered(const Rank& own) {
    const auto [rank, comm, stream, in, out] = own;
    void *handle = nullptr, *address = nullptr;
    ncclWindow_t window = nullptr;
    OK(ncclCommRegister(comm, own.receive(), count * sizeof(int32_t), &handle));
    OK(ncclCommWindowRegister(comm, own.receive(), count * sizeof(int32_t), &window, NCCL_WIN_COLL_SYMMETRIC));
    OK(ncclWinGetUserPtr(comm, window, &address));
    CHECK(address == own.receive());
    OK(ncclAllReduce(own.send(), address, count, ncclInt32, ncclSum, comm, stream));
    own.expect(__LINE__, count, sum);
    OK(ncclCommWindowDeregister(comm, window));
    OK(ncclCommDeregister(comm, handle));
}

// A communicator of this rank alone, which is given up.
void shrunk(const Rank& own) {
    const auto [rank, comm, stream, in, out] = own;
    const int me = rank;
    int peer = 1 - rank, number = 0;
    ncclComm_t alone = nullptr;
    OK(ncclCommShrink(comm, &peer, 1, &alone, nullptr, NCCL_SHRINK_DEFAULT));
    OK(ncclCommCount(alone, &number));
    CHECK(number == 1);
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, alone, stream));
    own.expect(__LINE__, count, [me](std::size_t i) { return value(me, i); });
    OK(ncclCommRevoke(alone, NCCL_REVOKE_DEFAULT));
    CHECK(outcome(alone) == ncclSuccess);
    FAILS(ncclInvalidUsage, "it is revoked",
          ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, alone, stream));
    OK(ncclCommAbort(alone));
    // Rank 0 is through and gives one up that rank 1 has still.
    ncclComm_t whole = nullptr;
    OK(ncclCommSplit(comm, 0, rank, &whole, nullptr));
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, whole, stream));
    own.expect(__LINE__, count, sum);
    if (rank == 0) {
        OK(ncclCommFinalize(whole));
        OK(ncclCommAbort(whole));
    }
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    own.expect(__LINE__, count, sum);
    if (rank == 1) {
        ncclResult_t state = ncclInternalError;
        OK(ncclCommGetAsyncError(whole, &state));
        CHECK(state == ncclSuccess);
        OK(ncclCommDestroy(whole));
    }
    uint64_t bytes = 7;
    FAILS(ncclInvalidUsage, "not counted", ncclCommMemStats(comm, ncclStatGpuMemTotal, &bytes));
    CHECK(bytes == 7);
}

// Memory of NCCL's, communicators of communicators, errors.
void rest(const Rank& own, int device) {
    const auto [rank, comm, stream, in, out] = own;
    int number = -1;
    OK(ncclCommCuDevice(comm, &number));
    CHECK(number == device);
    void* memory = nullptr;
    OK(ncclMemAlloc(&memory, count * sizeof(int32_t)));
    OK(ncclAllReduce(own.send(), memory, count, ncclInt32, ncclSum, comm, stream));
    CUDA(cuMemcpyAsync(out, static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory)), count * sizeof(int32_t), stream));
    own.expect(__LINE__, count, sum);
    OK(ncclMemFree(memory));
    ncclComm_t other = nullptr;
    OK(ncclCommSplit(comm, 0, -rank, &other, nullptr));
    OK(ncclCommUserRank(other, &number));
    CHECK(number == world - 1 - rank);
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclProd, other, stream));
    own.expect(__LINE__, count, [](std::size_t i) { return value(0, i) * value(1, i); });
    OK(ncclCommDestroy(other));
    premultiplied(own);
    ncclResult_t state = ncclInternalError;
    OK(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclSuccess);
}

// A call of rank 0 stays under way until rank 1 makes it, and so does what ends its communicator.
void finalized(const Rank& own) {
    const auto [rank, comm, stream, in, out] = own;
    const Numbers nothing(count);
    int turn = 0;
    enum Way { waits, asks, asks_in_group };
    for (const Way way : {asks, asks_in_group, waits}) {
        const int blocking = way == waits;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = blocking;
        ncclComm_t last = nullptr;
        ncclResult_t state = ncclSuccess;
        OK(ncclCommSplit(comm, 0, rank, &last, &config));
        OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, last, stream));
        own.expect(__LINE__, count, sum);
        CUDA(cuMemcpyHtoD_v2(out, nothing.data(), count * sizeof nothing[0]));
        turn++;
        while (rank == 1 && met->load() < turn) sched_yield();
        OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, last, stream));
        if (rank == 0 && blocking) met->store(turn);
        if (way == asks_in_group) OK(ncclGroupStart());
        const ncclResult_t begun = ncclCommFinalize(last);
        const ncclResult_t ended = way == asks_in_group ? ncclGroupEnd() : begun;
        CHECK(way == asks || begun == ncclSuccess);
        // Rank 1 may be through by now.
        if (blocking || rank == 0) CHECK(ended == (blocking ? ncclSuccess : ncclInProgress));
        else CHECK(ended == ncclSuccess || ended == ncclInProgress);
        shown("works", "ncclCommFinalize()", __func__);
        if (!blocking) {
            if (rank == 0) {
                OK(ncclCommGetAsyncError(last, &state));
                CHECK(state == ncclInProgress);
                met->store(turn);
            }
            do OK(ncclCommGetAsyncError(last, &state));
            while (state == ncclInProgress);
        }
        CHECK(state == ncclSuccess);
        own.has(__LINE__, count, sum);
        FAILS(ncclInvalidUsage, "finalized",
              ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, last, stream));
        FAILS(ncclInvalidArgument, "finalized", ncclCommFinalize(last));
        OK(ncclCommDestroy(last));
    }
}

// The stand-in's sums are greater by 1000, and it alone has reduction 5, the exclusive or.
void beside(const Rank& own, int device) {
    const auto [rank, comm, stream, in, out] = own;
    const auto exclusive = static_cast<ncclRedOp_t>(5);
    const auto mixed = [](std::size_t i) { return value(0, i) ^ value(1, i); };
    forwarded(own, value);
    void* real = dlopen(std::getenv("ANTIPHON_NCCL_LIB_PATH"), RTLD_NOW | RTLD_NOLOAD);
    CHECK(real != nullptr);
    const auto number = [real](const char* name) { return reinterpret_cast<int (*)()>(dlsym(real, name))(); };
    // Whichever thread made it.
    CHECK(number("real_device") == device);
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    own.expect(__LINE__, count, sum);
    // In the order of the stream, between calls that are served here.
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, exclusive, comm, stream));
    OK(ncclAllReduce(own.receive(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    own.expect(__LINE__, count, [mixed](std::size_t i) { return world * mixed(i); });
    OK(ncclAllReduce(own.receive(), own.receive(), count, ncclInt32, exclusive, comm, stream));
    own.expect(__LINE__, count, [](std::size_t) { return 0; });
    FAILS(ncclInvalidUsage, "not in this stand-in", ncclAllReduce(own.send(), own.receive(), count, ncclFloat, exclusive, comm, stream));
    // A group goes there whole.
    OK(ncclGroupStart());
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    OK(ncclAllReduce(own.send(), static_cast<int32_t*>(own.receive()) + count, count, ncclInt32, exclusive, comm, stream));
    OK(ncclGroupEnd());
    own.expect(__LINE__, world * count, [mixed](std::size_t i) { return i < count ? sum(i) + 1000 : mixed(i - count); });
    // What is served here is recorded here, and the rest there, where no communicator is made for it then.
    CUgraph graph;
    CUgraphExec executable;
    CUDA(cuStreamBeginCapture_v2(stream, own_thread));
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    CUDA(cuStreamEndCapture(stream, &graph));
    CUDA(cuGraphInstantiateWithFlags(&executable, graph, 0));
    CUDA(cuGraphLaunch(executable, stream));
    own.expect(__LINE__, count, sum);
    CUDA(cuGraphExecDestroy(executable));
    CUDA(cuGraphDestroy(graph));
    const int made = number("real_made");
    CUDA(cuStreamBeginCapture_v2(stream, own_thread));
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, exclusive, comm, stream));
    OK(ncclAllReduce(own.receive(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    CUDA(cuStreamEndCapture(stream, &graph));
    CHECK(number("real_made") == made);
    CUDA(cuGraphInstantiateWithFlags(&executable, graph, 0));
    for (int32_t more = 1; more <= 2; more++) {
        own.fill(more);
        CUDA(cuGraphLaunch(executable, stream));
        own.expect(__LINE__, count, [more](std::size_t i) { return world * ((value(0, i) + more) ^ (value(1, i) + more)); });
    }
    CHECK(number("real_made") == made);
    CUDA(cuGraphExecDestroy(executable));
    CUDA(cuGraphDestroy(graph));
    own.fill(0);
    ncclComm_t other = nullptr;
    OK(ncclCommSplit(comm, 0, -rank, &other, nullptr));
    CHECK(number("real_made") == made + 1);
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, exclusive, other, stream));
    own.expect(__LINE__, count, mixed);
    OK(ncclCommDestroy(other));
}

void run(const std::string& way, const ncclUniqueId& id, int rank) {
    CUDA(cuInit(0));
    use(rank + 1);
    ncclComm_t comm = nullptr;
    if (rank == 0) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        OK(ncclCommInitRankConfig(&comm, world, id, rank, &config));
    } else {
        ncclUniqueId ids[1] = {id};
        OK(ncclGroupStart());
        OK(ncclCommInitRankScalable(&comm, world, rank, 1, ids, nullptr));
        OK(ncclGroupEnd());
    }
    const Rank own(rank, comm);
    if (way == "beside") {
        beside(own, on(rank + 1));
    } else {
        collectives(own);
        streams(own);
        spelled(own);
        registered(own);
        shrunk(own);
        everywhere(comm, rank, world);
        rest(own, on(rank + 1));
        finalized(own);
    }
    own.close();
}

// One thread drives both ranks, whose devices these are.
void together(const int (&devices)[world]) {
    ncclComm_t comms[world];
    std::vector<Rank> ranks;
    if (devices[0] == devices[1]) {
        OK(ncclCommInitAll(comms, world, devices));
    } else {
        ncclUniqueId id;
        OK(ncclGetUniqueId(&id));
        OK(ncclGroupStart());
        for (int rank = 0; rank < world; rank++) {
            use(devices[rank]);
            OK(ncclCommInitRank(&comms[rank], world, id, rank));
        }
        OK(ncclGroupEnd());
    }
    for (int rank = 0; rank < world; rank++) {
        int device = -1;
        OK(ncclCommCuDevice(comms[rank], &device));
        CHECK(device == devices[rank]);
        use(device);
        ranks.emplace_back(rank, comms[rank]);
    }
    for (int round = 0; round < 2; round++) {
        OK(ncclGroupStart());
        for (const Rank& own : ranks) {
            OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, own.comm, own.stream));
            OK(ncclAllReduce(own.receive(), own.receive(), count, ncclInt32, ncclSum, own.comm, own.stream));
        }
        OK(ncclGroupEnd());
        for (const Rank& own : ranks) own.expect(__LINE__, count, [](std::size_t i) { return world * sum(i); });
        // To every rank, itself too, in any order.
        OK(ncclGroupStart());
        for (const Rank& own : ranks) {
            auto* blocks = static_cast<int32_t*>(own.receive());
            for (int peer = 0; peer < world; peer++) {
                OK(ncclRecv(blocks + peer * count, count, ncclInt32, peer, own.comm, own.stream));
                OK(ncclSend(own.send(), count, ncclInt32, peer, own.comm, own.stream));
            }
        }
        OK(ncclGroupEnd());
        for (const Rank& own : ranks)
            own.expect(__LINE__, world * count, [](std::size_t i) { return value(static_cast<int>(i / count), i % count); });
    }
    // Each rank changes its stream in its own way, and nobody waits between the calls.
    cudaStream_t others[world];
    for (const Rank& own : ranks) {
        use(devices[own.rank]);
        CUDA(cuStreamCreate(&others[own.rank], 1));
    }
    for (int turn = 0; turn < 6; turn++) {
        OK(ncclGroupStart());
        for (const Rank& own : ranks) {
            const void* from = turn == 0 ? own.send() : own.receive();
            const cudaStream_t chosen = turn % (own.rank + 2) == 0 ? others[own.rank] : own.stream;
            OK(ncclAllReduce(from, own.receive(), count, ncclInt32, ncclSum, own.comm, chosen));
        }
        OK(ncclGroupEnd());
    }
    for (const Rank& own : ranks) {
        own.expect(__LINE__, count, [](std::size_t i) { return 32 * sum(i); });
        use(devices[own.rank]);
        CUDA(cuStreamDestroy_v2(others[own.rank]));
    }
    // Who finalizes in a group waits for what it launches.
    OK(ncclGroupStart());
    for (const Rank& own : ranks) {
        OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, own.comm, own.stream));
        OK(ncclSend(own.send(), count, ncclInt32, own.rank, own.comm, own.stream));
        OK(ncclRecv(static_cast<int32_t*>(own.receive()) + count, count, ncclInt32, own.rank, own.comm, own.stream));
        OK(ncclCommFinalize(own.comm));
    }
    OK(ncclGroupEnd());
    for (const Rank& own : ranks) {
        const auto both = [&own](std::size_t i) { return i < count ? sum(i) : value(own.rank, i - count); };
        own.has(__LINE__, world * count, both);
        own.close();
    }
}

}  // namespace

int main(int arguments, char** texts) {
    CHECK(arguments == 2);
    const std::string way = texts[1];
    alarm(280);
    void* shared = mmap(nullptr, sizeof *met, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    met = new (shared) std::atomic<int>(0);
    if (way == "together") {
        CUDA(cuInit(0));
        together({0, 0});
        together({0, on(1)});
        std::printf("devices: ok\n");
        return EXIT_SUCCESS;
    }
    int ends[2];
    ncclUniqueId id;
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(280);
        close(ends[1]);
        CHECK(read(ends[0], &id, sizeof id) == static_cast<ssize_t>(sizeof id));
        run(way, id, 1);
        std::exit(EXIT_SUCCESS);
    }
    OK(ncclGetUniqueId(&id));
    CHECK(write(ends[1], &id, sizeof id) == static_cast<ssize_t>(sizeof id));
    run(way, id, 0);
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    std::printf("devices: ok\n");
    return EXIT_SUCCESS;
}
