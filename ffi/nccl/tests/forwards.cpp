// Calls that Antiphon does not serve, in a process for each rank: `forwards WAY`, with the real library beside (`beside`), also
// where ranks are spread unevenly over nodes (`scattered`) or a call is aborted in it (`aborted`), one that does not come to be on
// rank 1 (`broken`), none that can be loaded (`missing`), or in the place of Antiphon (`instead`).
#include <nccl.h>

#include <dlfcn.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

[[noreturn]] void fail(int line, const char* what, const std::string& saw) {
    std::fprintf(stderr, "forwards.cpp:%d: %s: %s\n", line, what, saw.c_str());
    std::_Exit(EXIT_FAILURE);
}

std::string said(ncclResult_t result) { return std::to_string(result) + ": " + ncclGetLastError(nullptr); }

#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition)) fail(__LINE__, #condition, "is not so");    \
    } while (0)
#define OK(call)                                                            \
    do {                                                                    \
        const ncclResult_t result_ = (call);                                \
        if (result_ != ncclSuccess) fail(__LINE__, #call, said(result_));   \
    } while (0)
#define FAILS(part, call)                                                                       \
    do {                                                                                        \
        const ncclResult_t result_ = (call);                                                    \
        if (result_ == ncclSuccess || !std::strstr(ncclGetLastError(nullptr), part))            \
            fail(__LINE__, #call, said(result_));                                               \
    } while (0)

int world = 2;
// Nothing here has it; the stand-in has, and knows its own sums by what is added.
const auto exclusive = static_cast<ncclRedOp_t>(5);
constexpr int32_t theirs = 1000;

void beside(ncclComm_t comm, int rank) {
    const int32_t own = rank ? 6 : 3;
    int32_t sum = 0, mixed = 0;
    ncclCollConfig_t rings = NCCL_COLLCONFIG_INITIALIZER;
    rings.algSelection = "ring";
    // What is served here stays here.
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    CHECK(sum == 9);
    OK(ncclAllReduce(&own, &mixed, 1, ncclInt32, exclusive, comm, nullptr));
    CHECK(mixed == 5);
    OK(pncclAllReduce(&own, &mixed, 1, ncclInt32, exclusive, comm, nullptr));
    CHECK(mixed == 5);
    OK(ncclAllReduceConfig(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr, &rings));
    CHECK(sum == 9 + theirs);
    // What neither has is told of by both.
    FAILS("allowed 0 to 4", ncclAllReduce(&own, &sum, 1, ncclFloat32, exclusive, comm, nullptr));
    FAILS("not in this stand-in", ncclAllReduce(&own, &sum, 1, ncclFloat32, exclusive, comm, nullptr));
    FAILS("ncclReduce", ncclReduce(&own, &sum, 1, ncclInt32, exclusive, 0, comm, nullptr));

    // A group goes whole, whatever is in front.
    OK(ncclGroupStart());
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    OK(ncclAllReduce(&own, &mixed, 1, ncclInt32, exclusive, comm, nullptr));
    sum = mixed = 0;
    OK(ncclGroupEnd());
    CHECK(sum == 9 + theirs && mixed == 5);
    OK(ncclGroupStart());
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    OK(ncclGroupEnd());
    CHECK(sum == 9);
    // Or not at all: the stand-in has no such sum, or the call cannot be put off.
    sum = mixed = 0;
    OK(ncclGroupStart());
    FAILS("ncclBroadcast", ncclBroadcast(&own, &sum, 1, static_cast<ncclDataType_t>(99), 0, comm, nullptr));
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    FAILS("ncclBroadcast", ncclGroupEnd());
    OK(ncclGroupStart());
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    FAILS("may be gone", ncclAllReduceConfig(&own, &mixed, 1, ncclInt32, ncclSum, comm, nullptr, &rings));
    FAILS("may be gone", ncclGroupEnd());
    CHECK(sum == 0 && mixed == 0);

    // Communicators that are made of others have their counterparts.
    ncclComm_t other = nullptr;
    OK(ncclCommSplit(comm, 0, -rank, &other, nullptr));
    OK(ncclAllReduce(&own, &mixed, 1, ncclInt32, exclusive, other, nullptr));
    CHECK(mixed == 5);
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, other, nullptr));
    CHECK(sum == 9);
    OK(ncclCommDestroy(other));
    ncclComm_t alone[1] = {};
    OK(ncclCommInitAll(alone, 1, nullptr));
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, alone[0], nullptr));
    CHECK(sum == own);
    FAILS("one process has one rank", ncclAllReduce(&own, &mixed, 1, ncclInt32, exclusive, alone[0], nullptr));
    OK(ncclCommAbort(alone[0]));

    // What goes wrong there is asked for, too.
    void* real = dlopen(std::getenv("ANTIPHON_NCCL_LIB_PATH"), RTLD_NOW | RTLD_NOLOAD);
    CHECK(real != nullptr);
    const auto goes_wrong = reinterpret_cast<void (*)(int)>(dlsym(real, "real_goes_wrong"));
    for (const ncclResult_t result : {ncclSuccess, ncclRemoteError, ncclSuccess}) {
        goes_wrong(result);
        ncclResult_t error = ncclInternalError;
        OK(ncclCommGetAsyncError(comm, &error));
        CHECK(error == result);
        if (result != ncclSuccess) CHECK(std::strstr(ncclGetLastError(comm), "result 6"));
    }
}

// Three ranks on two nodes: nothing here serves a collective. The library does, and transfers are served here.
void scattered(ncclComm_t comm, int rank) {
    const int32_t own = 1 << rank;
    int32_t sum = 0, theirs_of = 0;
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    CHECK(sum == 7 + theirs);
    const int next = (rank + 1) % world, previous = (rank + 2) % world;
    const auto ring = [&] {
        OK(ncclSend(&own, 1, ncclInt32, next, comm, nullptr));
        OK(ncclRecv(&theirs_of, 1, ncclInt32, previous, comm, nullptr));
    };
    OK(ncclGroupStart());
    ring();
    OK(ncclGroupEnd());
    CHECK(theirs_of == 1 << previous);
    // A call that neither serves takes its group with it.
    theirs_of = 0;
    OK(ncclGroupStart());
    FAILS("ncclBroadcast", ncclBroadcast(&own, &sum, 1, ncclInt32, 0, comm, nullptr));
    ring();
    FAILS("ncclBroadcast", ncclGroupEnd());
    CHECK(theirs_of == 0);
}

// Rank 0 aborts while a call of it is under way in the library; nobody else makes that call.
void aborted(ncclComm_t comm, int rank) {
    if (rank != 0) return;
    void* real = dlopen(std::getenv("ANTIPHON_NCCL_LIB_PATH"), RTLD_NOW | RTLD_NOLOAD);
    CHECK(real != nullptr);
    const auto number = [real](const char* name) { return reinterpret_cast<int (*)()>(dlsym(real, name))(); };
    const int asked = number("real_asked");
    std::thread caller([comm] {
        const int32_t own = 1;
        int32_t sum = 0;
        FAILS("aborted", ncclAllReduce(&own, &sum, 1, ncclInt32, exclusive, comm, nullptr));
    });
    while (number("real_asked") == asked) sched_yield();
    OK(ncclCommAbort(comm));
    caller.join();
    CHECK(number("real_made") == 1 && number("real_freed") == 1);
}

// The real library is of no use, for this reason: what is served here is served, and the rest refused by all.
void refused(ncclComm_t comm, int rank, const char* why) {
    const int32_t own = rank ? 6 : 3;
    int32_t sum = 0;
    FAILS(why, ncclAllReduce(&own, &sum, 1, ncclInt32, exclusive, comm, nullptr));
    OK(ncclGroupStart());
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    FAILS(why, ncclAllReduce(&own, &sum, 1, ncclInt32, exclusive, comm, nullptr));
    FAILS(why, ncclGroupEnd());
    CHECK(sum == 0);
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    CHECK(sum == 9);
}

void instead(ncclComm_t comm, int rank) {
    const int32_t own = rank ? 6 : 3;
    int32_t sum = 0, count = 0;
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    CHECK(sum == 9 + theirs);
    OK(ncclCommCount(comm, &count));
    CHECK(count == world);
    OK(ncclGroupStart());
    OK(pncclAllReduce(&own, &sum, 1, ncclInt32, exclusive, comm, nullptr));
    OK(ncclGroupEnd());
    CHECK(sum == 5);
    // What it lacks is refused by this library, which says why; of what the other refuses, the other does.
    FAILS("cannot call ncclReduce", ncclReduce(&own, &sum, 1, ncclInt32, ncclSum, 0, comm, nullptr));
    FAILS("not in this stand-in", ncclAllReduce(&own, &sum, 1, ncclFloat32, ncclSum, comm, nullptr));
    FAILS("cannot call ncclReduce", pncclReduce(&own, &sum, 1, ncclInt32, ncclSum, 0, comm, nullptr));
}

void run(const std::string& way, const ncclUniqueId& id, int rank) {
    ncclComm_t comm = nullptr;
    OK(ncclCommInitRank(&comm, world, id, rank));
    if (way == "beside") beside(comm, rank);
    else if (way == "scattered") scattered(comm, rank);
    else if (way == "aborted") aborted(comm, rank);
    else if (way == "broken") refused(comm, rank, rank ? "told to fail" : "on rank 1");
    else if (way == "missing") refused(comm, rank, "cannot load");
    else if (way == "instead") instead(comm, rank);
    else fail(__LINE__, "the way", way);
    if (way != "aborted" || rank != 0) OK(ncclCommDestroy(comm));
}

}  // namespace

int main(int count, char** arguments) {
    CHECK(count == 2);
    const std::string way = arguments[1];
    if (way == "scattered") world = 3;
    alarm(60);
    std::vector<pid_t> children;
    std::vector<int> doors;
    ncclUniqueId id;
    for (int rank = 1; rank < world; rank++) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            close(ends[1]);
            if (way == "scattered" && rank == 2) setenv("ANTIPHON_HOSTID", "another", 1);
            CHECK(read(ends[0], &id, sizeof id) == static_cast<ssize_t>(sizeof id));
            run(way, id, rank);
            std::_Exit(EXIT_SUCCESS);
        }
        close(ends[0]);
        children.push_back(child);
        doors.push_back(ends[1]);
    }
    OK(ncclGetUniqueId(&id));
    for (const int door : doors) CHECK(write(door, &id, sizeof id) == static_cast<ssize_t>(sizeof id));
    run(way, id, 0);
    for (const pid_t child : children) {
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    std::printf("forwards: ok\n");
    return EXIT_SUCCESS;
}
