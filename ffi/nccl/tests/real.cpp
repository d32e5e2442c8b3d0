// A stand-in for the real library, over memory that the ranks share. Its sums and what it moves are told from others': they are
// greater by 1000. Nothing else knows reduction 5, which is the exclusive or, and type 12, which is as wide as int32. As with the real one, who makes a communicator waits for all its ranks, and calls on one that need not block go on while it is asked for
// their outcome. With REAL_IS_RCCL it has what NVIDIA's lacks.
#include "rccl.h"
#include "shown.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#ifdef REAL_ON_DEVICES
// Buffers are on devices of CUDA's driver: calls wait for the stream, then take the data. While a stream is recorded, collectives put
// copies and a function of the host into it; all other calls fail then.
extern "C" {
int cuCtxGetDevice(int* device);
int cuStreamSynchronize(cudaStream_t stream);
int cuStreamIsCapturing(cudaStream_t stream, int* status);
int cuLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data);
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, std::size_t bytes, cudaStream_t stream);
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes, cudaStream_t stream);
int cuMemcpyDtoH_v2(void* to, unsigned long long from, std::size_t bytes);
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, std::size_t bytes);
}
#endif

namespace {

bool take(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
#ifdef REAL_ON_DEVICES
    return cuStreamSynchronize(stream) == 0 && cuMemcpyDtoH_v2(to, reinterpret_cast<std::uintptr_t>(from), bytes) == 0;
#else
    static_cast<void>(stream);
    std::memcpy(to, from, bytes);
    return true;
#endif
}

bool give(void* to, const void* from, std::size_t bytes) {
#ifdef REAL_ON_DEVICES
    return cuMemcpyHtoD_v2(reinterpret_cast<std::uintptr_t>(to), from, bytes) == 0;
#else
    std::memcpy(to, from, bytes);
    return true;
#endif
}

// The device that is current on the thread, as the real one takes it.
int current() {
    int device = -1;
#ifdef REAL_ON_DEVICES
    if (cuCtxGetDevice(&device) != 0) return -1;
#endif
    return device;
}

constexpr int most = 8;
constexpr std::size_t room = 4096;
constexpr int32_t more = 1000;

// What a rank sends to another, until that has it.
struct Mail {
    std::atomic<int> full;
    unsigned char bytes[room];
};

// What all ranks of a communicator map.
struct Shared {
    std::atomic<int> arrived;
    unsigned char slots[most][room];
    Mail mail[most][most];
};

// Goes on with something, and says whether it is over.
using Step = std::function<bool()>;

thread_local std::string last;
thread_local int depth = 0;
// Sends, then what may wait for them.
thread_local std::vector<std::pair<ncclComm_t, Step>> sends, calls;
std::atomic<int> made_in_all, freed_in_all, finalized_in_all, asked_in_all, wrong, joined_on;

ncclResult_t fails(const char* why) {
    last = why;
    return ncclInvalidUsage;
}

}  // namespace

struct ncclComm {
    Shared* shared;
    int rank, world;
    bool blocking;
    int rounds = 0;
    bool freed = false;
    std::deque<Step> under_way = {};

    // What is never given back, so that a use after it is seen.
    void alive() const {
        if (!freed) return;
        std::fprintf(stderr, "real.cpp: a communicator was used after it was freed\n");
        std::abort();
    }

    // This rank is here; over when all are, for the time that this is done.
    Step meet() {
        return [this, target = 0]() mutable {
            if (target == 0) {
                target = ++rounds * world;
                shared->arrived.fetch_add(1);
            }
            return shared->arrived.load() >= target;
        };
    }

    ncclResult_t go_on() {
        alive();
        while (!under_way.empty()) {
            if (under_way.front()()) under_way.pop_front();
            else if (!blocking) return ncclInProgress;
            else sched_yield();
        }
        return ncclSuccess;
    }

    ncclResult_t free() {
        alive();
        freed = true;
        freed_in_all++;
        return ncclSuccess;
    }
};

namespace {

ncclResult_t join(ncclComm_t* comm, int world, ncclUniqueId id, int rank, bool blocking) {
    *comm = nullptr;
    const char* broken = std::getenv("REAL_FAILS_ON");
    if (broken && std::atoi(broken) == rank) {
        // As the real one may, which has begun by then.
        if (!blocking) {
            made_in_all++;
            *comm = new ncclComm{nullptr, rank, world, blocking};
        }
        return fails("this rank was told to fail");
    }
    const int memory = open(id.internal, O_RDWR);
    if (memory < 0 || world > most) return fails("cannot join");
    void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    close(memory);
    if (at == MAP_FAILED) return fails("cannot map");
    made_in_all++;
    joined_on = current();
    *comm = new ncclComm{static_cast<Shared*>(at), rank, world, blocking};
    (*comm)->under_way.push_back((*comm)->meet());
    return (*comm)->go_on();
}

ncclResult_t now_or_later(ncclComm_t comm, Step call, bool sending = false) {
    comm->alive();
    if (depth > 0) {
        (sending ? sends : calls).emplace_back(comm, std::move(call));
        return ncclSuccess;
    }
    comm->under_way.push_back(std::move(call));
    return comm->go_on();
}

// A premultiplied sum: its factor, or where that lies.
struct Scaled {
    ncclComm_t comm;
    const void* at;
    int32_t factor;
};

// The numbers of premultiplied sums begin here.
constexpr int first_scaled = 100;
std::mutex scaled_lock;
std::map<int, Scaled> scaled;
int next_scaled = first_scaled;

// None for other reductions.
std::optional<Scaled> scaled_by(ncclRedOp_t op) {
    const std::lock_guard<std::mutex> locked(scaled_lock);
    const auto known = scaled.find(op);
    if (known == scaled.end()) return std::nullopt;
    return known->second;
}

bool served(ncclDataType_t type, ncclRedOp_t op = ncclSum) {
    return (type == ncclInt32 || type == 12) && (op == ncclSum || op == 5 || scaled_by(op).has_value());
}

// Every rank gives what it has into its slot, and takes what it gets from all slots, once all have given.
ncclResult_t exchange(ncclComm_t comm, std::function<bool(unsigned char*)> gives, std::function<bool()> takes) {
    return now_or_later(comm, [=, given = Step(), read = Step()]() mutable {
        if (!given) {
            if (!gives(comm->shared->slots[comm->rank])) std::abort();
            given = comm->meet();
        }
        if (!read) {
            if (!given()) return false;
            if (!takes()) std::abort();
            read = comm->meet();
        }
        return read();
    });
}

int32_t number(const unsigned char* bytes, std::size_t index) {
    int32_t value;
    std::memcpy(&value, bytes + index * 4, 4);
    return value;
}

using Element = std::function<int32_t(std::size_t)>;

#ifdef REAL_ON_DEVICES
bool is_recorded(cudaStream_t stream) {
    int status = 0;
    return cuStreamIsCapturing(stream, &status) == 0 && status != 0;
}

// What replays of a call work on; it is never given back.
struct Recorded {
    ncclComm_t comm;
    Element element;
    std::vector<int32_t> result;
};

// Between the copies: once all have given, and until all have what they get.
void replay(void* data) {
    auto& [comm, element, result] = *static_cast<Recorded*>(data);
    comm->alive();
    const auto wait = [comm = comm] {
        for (Step met = comm->meet(); !met();) sched_yield();
    };
    wait();
    for (std::size_t i = 0; i < result.size(); i++) result[i] = element(i);
    wait();
}

ncclResult_t record(ncclComm_t comm, const void* send, std::size_t sent, void* receive, std::size_t received, cudaStream_t stream,
                    const Element& element) {
    comm->alive();
    auto* const call = new Recorded{comm, element, std::vector<int32_t>(received)};
    const auto from = reinterpret_cast<std::uintptr_t>(send), to = reinterpret_cast<std::uintptr_t>(receive);
    const bool all = (sent == 0 || cuMemcpyDtoHAsync_v2(comm->shared->slots[comm->rank], from, sent * 4, stream) == 0) &&
                     cuLaunchHostFunc(stream, replay, call) == 0 &&
                     (received == 0 || cuMemcpyHtoDAsync_v2(to, call->result.data(), received * 4, stream) == 0);
    return all ? ncclSuccess : fails("cannot record");
}
#endif

// Every rank gives so many numbers, and gets so many: what `element` makes of what all have given.
ncclResult_t collective(ncclComm_t comm, const void* send, std::size_t sent, void* receive, std::size_t received, bool known,
                        cudaStream_t stream, Element element, ncclRedOp_t op = ncclSum) {
    if (!known || std::max(sent, received) * 4 > room) return fails("not in this stand-in");
    // As it is now: it may be destroyed when the call has returned.
    const std::optional<Scaled> factor = scaled_by(op);
    if (factor && factor->comm != comm) return fails("a sum of another communicator");
#ifdef REAL_ON_DEVICES
    if (is_recorded(stream) && factor) return fails("not recorded in this stand-in");
    if (is_recorded(stream)) return record(comm, send, sent, receive, received, stream, element);
#endif
    const auto gives = [=](unsigned char* slot) {
        if (sent > 0 && !take(slot, send, sent * 4, stream)) return false;
        int32_t by = factor ? factor->factor : 1;
        if (factor && factor->at && !take(&by, factor->at, sizeof by, stream)) return false;
        for (std::size_t i = 0; factor && i < sent; i++) {
            const int32_t product = number(slot, i) * by;
            std::memcpy(slot + i * 4, &product, sizeof product);
        }
        return true;
    };
    return exchange(comm, gives, [=] {
        std::vector<int32_t> result(received);
        for (std::size_t i = 0; i < received; i++) result[i] = element(i);
        return received == 0 || give(receive, result.data(), received * 4);
    });
}

// What all ranks' numbers come to.
Element reduced(ncclComm_t comm, ncclRedOp_t op, std::size_t first = 0) {
    return [=](std::size_t i) {
        int32_t value = op != 5 ? more : 0;
        for (int rank = 0; rank < comm->world; rank++) {
            const int32_t theirs = number(comm->shared->slots[rank], first + i);
            value = op != 5 ? value + theirs : value ^ theirs;
        }
        return value;
    };
}

// One rank's numbers, from the first on.
Element moved(ncclComm_t comm, int rank, std::size_t first = 0) {
    return [=](std::size_t i) { return number(comm->shared->slots[rank], first + i) + more; };
}

// A block of each rank, from the first number on.
Element blocks(ncclComm_t comm, std::size_t count, std::size_t first = 0) {
    return [=](std::size_t i) {
        return number(comm->shared->slots[i / count], first + i % count) + more;
    };
}

// Whether a configuration asks for something that this library alone has.
bool asks(const ncclCollConfig_t* config) {
    const bool rings = config->algSelection && std::strcmp(config->algSelection, "ring") == 0;
    return rings || config->launchCompletionEvent;
}

}  // namespace

// A call, and the same with a configuration, which have the same arguments, `known` if they are served, and body.
#define CALL(name, arguments, known, body)                                                    \
    ncclResult_t name(arguments, ncclComm_t comm, cudaStream_t stream) {                      \
        shown("forwards", #name, "real");                                                     \
        const bool is_known = known;                                                          \
        return body;                                                                          \
    }                                                                                         \
    ncclResult_t name##Config(arguments, ncclComm_t comm, cudaStream_t stream,                \
                              const ncclCollConfig_t* config) {                               \
        shown("forwards", #name "Config", "real");                                            \
        if (!asks(config)) return fails("only rings and events");                             \
        const bool is_known = known;                                                          \
        return body;                                                                          \
    }
#define ARGUMENTS(...) __VA_ARGS__

extern "C" {

// For the tests: how many communicators were made, freed and finalized, and how often one was asked while something was under way.
int real_made() { return made_in_all; }
int real_freed() { return freed_in_all; }
int real_finalized() { return finalized_in_all; }
int real_asked() { return asked_in_all; }
// Premultiplied sums that are not destroyed.
int real_sums() {
    const std::lock_guard<std::mutex> locked(scaled_lock);
    return static_cast<int>(scaled.size());
}
// The device that was current when the last communicator was made.
int real_device() { return joined_on; }
// From now on something is wrong with all communicators: this result.
void real_goes_wrong(int result) { wrong = result; }

// An id says whose descriptor the memory is.
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const int memory = memfd_create("real", 0);
    if (memory < 0 || ftruncate(memory, sizeof(Shared)) != 0) return fails("no memory");
    std::snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", getpid(), memory);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int world, ncclUniqueId id, int rank) {
    return join(comm, world, id, rank, true);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int world, ncclUniqueId id, int rank, ncclConfig_t* config) {
    const bool known = config->magic == 0xcafebeef && config->version >= 21400 && config->size >= 24;
    if (!known) return fails("no such configuration");
    return join(comm, world, id, rank, config->blocking != 0);
}

ncclResult_t ncclCommInitAll(ncclComm_t*, int, const int*) { return fails("one process has one rank here"); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    *error = wrong ? static_cast<ncclResult_t>(wrong.load()) : comm->go_on();
    if (*error == ncclInProgress) asked_in_all++;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
    *count = comm->world;
    return ncclSuccess;
}

// All ranks end together.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    comm->alive();
    finalized_in_all++;
    comm->under_way.push_back(comm->meet());
    return comm->go_on();
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return comm->free(); }

ncclResult_t ncclCommAbort(ncclComm_t comm) { return comm->free(); }

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence,
                                      ncclComm_t comm) {
    comm->alive();
    if (type != ncclInt32) return fails("not in this stand-in");
    const std::lock_guard<std::mutex> locked(scaled_lock);
    Scaled made{comm, scalar, 1};
    if (residence == ncclScalarHostImmediate) made = {comm, nullptr, number(static_cast<unsigned char*>(scalar), 0)};
    scaled.emplace(next_scaled, made);
    *op = static_cast<ncclRedOp_t>(next_scaled++);
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
    comm->alive();
    const std::lock_guard<std::mutex> locked(scaled_lock);
    return scaled.erase(op) == 1 ? ncclSuccess : fails("no such sum");
}

const char* ncclGetLastError(ncclComm_t) { return last.c_str(); }

ncclResult_t ncclGroupStart() {
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (--depth > 0) return ncclSuccess;
    ncclResult_t result = ncclSuccess;
    std::vector<ncclComm_t> comms;
    for (auto* list : {&sends, &calls}) {
        for (auto& [comm, call] : std::exchange(*list, {})) {
            comm->alive();
            comm->under_way.push_back(std::move(call));
            comms.push_back(comm);
        }
    }
    for (const ncclComm_t comm : comms) {
        const ncclResult_t outcome = comm->go_on();
        if (result == ncclSuccess) result = outcome;
    }
    return result;
}

CALL(ncclAllReduce, ARGUMENTS(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op), served(type, op),
     collective(comm, send, count, receive, count, is_known, stream, reduced(comm, op), op))
CALL(ncclReduce,
     ARGUMENTS(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root), served(type, op),
     collective(comm, send, count, receive, comm->rank == root ? count : 0, is_known, stream, reduced(comm, op), op))
CALL(ncclReduceScatter, ARGUMENTS(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op),
     served(type, op),
     collective(comm, send, count * comm->world, receive, count, is_known, stream, reduced(comm, op, comm->rank * count), op))
CALL(ncclAllGather, ARGUMENTS(const void* send, void* receive, size_t count, ncclDataType_t type), served(type),
     collective(comm, send, count, receive, count * comm->world, is_known, stream, blocks(comm, count)))
CALL(ncclAlltoAll, ARGUMENTS(const void* send, void* receive, size_t count, ncclDataType_t type), served(type),
     collective(comm, send, count * comm->world, receive, count * comm->world, is_known, stream,
                blocks(comm, count, comm->rank * count)))
CALL(ncclBroadcast, ARGUMENTS(const void* send, void* receive, size_t count, ncclDataType_t type, int root), served(type),
     collective(comm, send, comm->rank == root ? count : 0, receive, count, is_known, stream, moved(comm, root)))
CALL(ncclGather, ARGUMENTS(const void* send, void* receive, size_t count, ncclDataType_t type, int root), served(type),
     collective(comm, send, count, receive, comm->rank == root ? count * comm->world : 0, is_known, stream, blocks(comm, count)))
CALL(ncclScatter, ARGUMENTS(const void* send, void* receive, size_t count, ncclDataType_t type, int root), served(type),
     collective(comm, send, comm->rank == root ? count * comm->world : 0, receive, count, is_known, stream,
                moved(comm, root, comm->rank * count)))

// As NVIDIA's does, it calls another function of this library by its symbol: if that is looked up where the program's are, the library
// in front of this one is called.
ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
    shown("forwards", __func__, "real");
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    shown("forwards", __func__, "real");
    if (!served(type) || count * 4 > room) return fails("not in this stand-in");
    Mail& mail = comm->shared->mail[comm->rank][peer];
    const auto step = [=, &mail] {
        if (mail.full) return false;
        if (!take(mail.bytes, send, count * 4, stream)) std::abort();
        mail.full = 1;
        return true;
    };
    return now_or_later(comm, step, true);
}

ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t) {
    shown("forwards", __func__, "real");
    if (!served(type) || count * 4 > room) return fails("not in this stand-in");
    Mail& mail = comm->shared->mail[peer][comm->rank];
    return now_or_later(comm, [=, &mail] {
        if (!mail.full) return false;
        std::vector<int32_t> result(count);
        for (std::size_t i = 0; i < count; i++) result[i] = number(mail.bytes, i) + more;
        if (!give(receive, result.data(), count * 4)) std::abort();
        mail.full = 0;
        return true;
    });
}

#ifdef REAL_IS_RCCL
ncclResult_t ncclAllToAll(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
    shown("forwards", __func__, "real");
    return collective(comm, send, count * comm->world, receive, count * comm->world, served(type), stream,
                      blocks(comm, count, comm->rank * count));
}

// Each rank's numbers for another are in a part of its slot.
ncclResult_t ncclAllToAllv(const void* send, const size_t* counts, const size_t* places, void* receive, const size_t* expected,
                           const size_t* offsets, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
    shown("forwards", __func__, "real");
    constexpr std::size_t part = room / most;
    const auto world = static_cast<std::size_t>(comm->world);
    const std::vector<std::size_t> sent(counts, counts + world), from(places, places + world);
    const std::vector<std::size_t> received(expected, expected + world), to(offsets, offsets + world);
    const auto fits = [](std::size_t count) { return count * 4 <= part; };
    const bool short_enough = std::all_of(sent.begin(), sent.end(), fits) && std::all_of(received.begin(), received.end(), fits);
    if (!served(type) || !short_enough) return fails("not in this stand-in");
    const auto gives = [=](unsigned char* slot) {
        for (std::size_t peer = 0; peer < world; peer++) {
            const auto* block = static_cast<const unsigned char*>(send) + from[peer] * 4;
            if (sent[peer] > 0 && !take(slot + peer * part, block, sent[peer] * 4, stream)) return false;
        }
        return true;
    };
    return exchange(comm, gives, [=] {
        for (std::size_t peer = 0; peer < world; peer++) {
            std::vector<int32_t> block(received[peer]);
            const unsigned char* slot = comm->shared->slots[peer] + static_cast<std::size_t>(comm->rank) * part;
            for (std::size_t i = 0; i < block.size(); i++) block[i] = number(slot, i) + more;
            auto* at = static_cast<unsigned char*>(receive) + to[peer] * 4;
            if (!block.empty() && !give(at, block.data(), block.size() * 4)) return false;
        }
        return true;
    });
}
#endif
}
