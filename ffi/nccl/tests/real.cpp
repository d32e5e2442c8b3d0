// A stand-in for the real library, over memory that the ranks share. Its sums are told from others': they are greater by 1000.
// What number 5 reduces by nothing else knows: it is the exclusive or. As with the real one, who makes a communicator waits for
// all its ranks, and calls on one that need not block go on while it is asked for their outcome.
#include <nccl.h>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#ifdef REAL_ON_DEVICES
// Buffers are on devices of CUDA's driver: calls wait for the stream, then take the data, so that no graph can have them.
extern "C" {
int cuCtxGetDevice(int* device);
int cuStreamSynchronize(cudaStream_t stream);
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

// What all ranks of a communicator map.
struct Shared {
    std::atomic<int> arrived;
    unsigned char slots[most][room];
};

// Goes on with something, and says whether it is over.
using Step = std::function<bool()>;

thread_local std::string last;
thread_local int depth = 0;
thread_local std::vector<std::pair<ncclComm_t, Step>> calls;
std::atomic<int> made_in_all, freed_in_all, asked_in_all, wrong, joined_on;

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
    if (broken && std::atoi(broken) == rank) return fails("this rank was told to fail");
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

ncclResult_t now_or_later(ncclComm_t comm, Step call) {
    comm->alive();
    if (depth > 0) {
        calls.emplace_back(comm, std::move(call));
        return ncclSuccess;
    }
    comm->under_way.push_back(std::move(call));
    return comm->go_on();
}

}  // namespace

extern "C" {

// For the tests: how many communicators were made and freed, and how often one was asked while something was under way.
int real_made() { return made_in_all; }
int real_freed() { return freed_in_all; }
int real_asked() { return asked_in_all; }
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

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return comm->free(); }

ncclResult_t ncclCommAbort(ncclComm_t comm) { return comm->free(); }

const char* ncclGetLastError(ncclComm_t) { return last.c_str(); }

ncclResult_t ncclGroupStart() {
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (--depth > 0) return ncclSuccess;
    ncclResult_t result = ncclSuccess;
    std::vector<ncclComm_t> comms;
    for (auto& [comm, call] : std::exchange(calls, {})) {
        comm->alive();
        comm->under_way.push_back(std::move(call));
        comms.push_back(comm);
    }
    for (const ncclComm_t comm : comms) {
        const ncclResult_t outcome = comm->go_on();
        if (result == ncclSuccess) result = outcome;
    }
    return result;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    if (type != ncclInt32 || (op != ncclSum && op != 5) || count * 4 > room) return fails("not in this stand-in");
    return now_or_later(comm, [=, given = Step(), read = Step()]() mutable {
        if (!given) {
            if (!take(comm->shared->slots[comm->rank], send, count * 4, stream)) std::abort();
            given = comm->meet();
        }
        if (!read) {
            if (!given()) return false;
            std::vector<int32_t> result(count);
            for (std::size_t i = 0; i < count; i++) {
                int32_t value = op == ncclSum ? 1000 : 0;
                for (int rank = 0; rank < comm->world; rank++) {
                    int32_t theirs;
                    std::memcpy(&theirs, comm->shared->slots[rank] + i * 4, 4);
                    value = op == ncclSum ? value + theirs : value ^ theirs;
                }
                result[i] = value;
            }
            if (!give(receive, result.data(), count * 4)) std::abort();
            read = comm->meet();
        }
        return read();
    });
}

ncclResult_t ncclAllReduceConfig(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
    if (!config->algSelection || std::strcmp(config->algSelection, "ring") != 0) return fails("only rings");
    return ncclAllReduce(send, receive, count, type, op, comm, stream);
}
}
