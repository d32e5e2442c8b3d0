// Calls that Antiphon does not serve, in two processes: `forwards WAY`, with the real library beside (`beside`), one that does not
// come to be on rank 1 (`broken`), none that can be loaded (`missing`), or in the place of Antiphon (`instead`).
#include <nccl.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

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

constexpr int world = 2;
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
    // What it lacks is refused; no text of it says why.
    CHECK(ncclReduce(&own, &sum, 1, ncclInt32, ncclSum, 0, comm, nullptr) == ncclInvalidUsage);
}

void run(const std::string& way, const ncclUniqueId& id, int rank) {
    ncclComm_t comm = nullptr;
    OK(ncclCommInitRank(&comm, world, id, rank));
    if (way == "beside") beside(comm, rank);
    else if (way == "broken") refused(comm, rank, rank ? "told to fail" : "another rank");
    else if (way == "missing") refused(comm, rank, "cannot load");
    else if (way == "instead") instead(comm, rank);
    else fail(__LINE__, "the way", way);
    OK(ncclCommDestroy(comm));
}

}  // namespace

int main(int count, char** arguments) {
    CHECK(count == 2);
    alarm(60);
    int ends[2];
    ncclUniqueId id;
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        close(ends[1]);
        CHECK(read(ends[0], &id, sizeof id) == static_cast<ssize_t>(sizeof id));
        run(arguments[1], id, 1);
        std::_Exit(EXIT_SUCCESS);
    }
    OK(ncclGetUniqueId(&id));
    CHECK(write(ends[1], &id, sizeof id) == static_cast<ssize_t>(sizeof id));
    run(arguments[1], id, 0);
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    std::printf("forwards: ok\n");
    return EXIT_SUCCESS;
}
