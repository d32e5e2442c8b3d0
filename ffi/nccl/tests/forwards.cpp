// Calls that Antiphon does not serve, in a process for each rank: `forwards WAY`, with the real library beside: every call that may go
// there (`all`), what does and what stays (`beside`), also where ranks are spread unevenly over nodes (`scattered`) or a call is aborted
// in it (`aborted`), one that does not come to be on rank 1 (`broken`) or that rank 1 does not name (`uneven`), none that can be loaded (`missing`), or in the
// place of Antiphon (`instead`).
#include "forwarded.h"

#include <dlfcn.h>
#include <sched.h>

#include <thread>

namespace {

#define REFUSED(part, call)                                                              \
    do {                                                                                 \
        const ncclResult_t result_ = (call);                                             \
        if (result_ == ncclSuccess || !std::strstr(ncclGetLastError(nullptr), part))     \
            fail(__FILE__, __LINE__, #call, said(result_));                              \
    } while (0)

int world = 2;
// Nothing here has it; the stand-in has, and knows its own sums by what is added.
const auto exclusive = static_cast<ncclRedOp_t>(5);
constexpr int32_t theirs = 1000;

// A rank with its numbers on the host.
struct Numbers {
    int rank;
    ncclComm_t comm;
    cudaStream_t stream = nullptr;
    std::vector<int32_t> in;
    mutable std::vector<int32_t> out;

    static int32_t value(int rank, std::size_t index) { return static_cast<int32_t>(rank * 7 + index * 3) % 101 + 1; }

    Numbers(int rank, ncclComm_t comm) : rank(rank), comm(comm), in(64), out(64) {
        for (std::size_t i = 0; i < in.size(); i++) in[i] = value(rank, i);
    }

    const void* send() const { return in.data(); }
    void* receive() const { return out.data(); }

    void expect(int line, std::size_t count, const std::function<int32_t(std::size_t)>& expected) const {
        for (std::size_t i = 0; i < count; i++)
            if (out[i] != expected(i)) fail(__FILE__, line, "element ", std::to_string(i) + " is " + std::to_string(out[i]));
    }
};

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
    ncclCollConfig_t launched = NCCL_COLLCONFIG_INITIALIZER;
    launched.launchCompletionEvent = reinterpret_cast<cudaEvent_t>(&launched);
    OK(ncclAllReduceConfig(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr, &launched));
    CHECK(sum == 9 + theirs);
    // What neither has is told of by both.
    REFUSED("allowed 0 to 4", ncclAllReduce(&own, &sum, 1, ncclFloat32, exclusive, comm, nullptr));
    REFUSED("not in this stand-in", ncclAllReduce(&own, &sum, 1, ncclFloat32, exclusive, comm, nullptr));
    const int32_t numbers[2] = {own, own};
    int32_t crossed[2] = {};
    const auto kind = static_cast<ncclDataType_t>(99);
    REFUSED("ncclAllToAll", ncclAllToAll(numbers, crossed, 1, kind, comm, nullptr));

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
    // Or not at all: the stand-in has no such call, or the call cannot be put off.
    sum = mixed = 0;
    OK(ncclGroupStart());
    REFUSED("ncclAllToAll", ncclAllToAll(numbers, crossed, 1, kind, comm, nullptr));
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    REFUSED("ncclAllToAll", ncclGroupEnd());
    OK(ncclGroupStart());
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    REFUSED("may be gone", ncclAllReduceConfig(&own, &mixed, 1, ncclInt32, ncclSum, comm, nullptr, &rings));
    REFUSED("may be gone", ncclGroupEnd());
    CHECK(sum == 0 && mixed == 0);

    // A premultiplied sum goes with its group, also one that is destroyed before this ends, and one whose factor is read then.
    void* const library = dlopen(std::getenv("ANTIPHON_NCCL_LIB_PATH"), RTLD_NOW | RTLD_NOLOAD);
    CHECK(library != nullptr);
    const auto kept = reinterpret_cast<int (*)()>(dlsym(library, "real_sums"));
    for (const ncclScalarResidence_t residence : {ncclScalarHostImmediate, ncclScalarDevice}) {
        ncclRedOp_t scaled;
        int32_t factor = rank + 1;
        OK(ncclRedOpCreatePreMulSum(&scaled, &factor, ncclInt32, residence, comm));
        OK(ncclAllReduce(&own, &sum, 1, ncclInt32, scaled, comm, nullptr));
        CHECK(sum == 3 + 2 * 6);
        OK(ncclAllReduceConfig(&own, &sum, 1, ncclInt32, scaled, comm, nullptr, &rings));
        CHECK(sum == 3 + 2 * 6 + theirs);
        OK(ncclGroupStart());
        OK(ncclAllReduce(&own, &sum, 1, ncclInt32, scaled, comm, nullptr));
        OK(ncclAllReduce(&own, &mixed, 1, ncclInt32, exclusive, comm, nullptr));
        OK(ncclRedOpDestroy(scaled, comm));
        factor += 2;
        sum = mixed = 0;
        OK(ncclGroupEnd());
        CHECK(sum == (residence == ncclScalarDevice ? 3 * 3 + 4 * 6 : 3 + 2 * 6) + theirs && mixed == 5);
        CHECK(kept() == 0);
    }
    sum = mixed = 0;
    // One that the library cannot make has its group refused, also what comes before it.
    float half = 0.5f, product = 0;
    const float one = 1;
    ncclRedOp_t halved;
    OK(ncclRedOpCreatePreMulSum(&halved, &half, ncclFloat32, ncclScalarHostImmediate, comm));
    for (const bool first : {true, false}) {
        const auto scales = [&] { OK(ncclAllReduce(&one, &product, 1, ncclFloat32, halved, comm, nullptr)); };
        OK(ncclGroupStart());
        if (first) scales();
        OK(ncclAllReduce(&own, &mixed, 1, ncclInt32, exclusive, comm, nullptr));
        if (!first) scales();
        REFUSED("not in this stand-in", ncclGroupEnd());
        CHECK(kept() == 0 && product == 0 && mixed == 0);
    }
    OK(ncclRedOpDestroy(halved, comm));

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
    REFUSED("one process has one rank", ncclAllReduce(&own, &mixed, 1, ncclInt32, exclusive, alone[0], nullptr));
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

    // Its calls come to their ends there, too: who need not block asks whether they have.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t last = nullptr;
    ncclResult_t state = ncclSuccess;
    OK(ncclCommSplit(comm, 0, rank, &last, &config));
    OK(ncclAllReduce(&own, &mixed, 1, ncclInt32, exclusive, last, nullptr));
    if (rank == 0) {
        CHECK(ncclCommFinalize(last) == ncclInProgress);
        OK(ncclCommGetAsyncError(last, &state));
        CHECK(state == ncclInProgress);
    }
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    if (rank == 1) OK(ncclCommFinalize(last));
    do OK(ncclCommGetAsyncError(last, &state));
    while (state == ncclInProgress);
    CHECK(state == ncclSuccess);
    REFUSED("finalized", ncclAllReduce(&own, &mixed, 1, ncclInt32, exclusive, last, nullptr));
    OK(ncclCommDestroy(last));
    OK(ncclCommFinalize(comm));
    CHECK(reinterpret_cast<int (*)()>(dlsym(real, "real_finalized"))() == 2);
}

// Three ranks on two nodes: all that is served elsewhere is served here, and nothing goes to the library.
void scattered(ncclComm_t comm, int rank) {
    const int32_t own = 1 << rank;
    int32_t sum = 0, theirs_of = 0;
    const int next = (rank + 1) % world, previous = (rank + 2) % world;
    const int32_t numbers[3] = {own, own, own};
    int32_t crossed[3] = {};
    OK(ncclGroupStart());
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    OK(ncclSend(&own, 1, ncclInt32, next, comm, nullptr));
    OK(ncclRecv(&theirs_of, 1, ncclInt32, previous, comm, nullptr));
    OK(ncclAllToAll(numbers, crossed, 1, ncclInt32, comm, nullptr));
    OK(ncclGroupEnd());
    std::vector<int32_t> many(1 << 18, own), sums(many.size());
    OK(ncclAllReduce(many.data(), sums.data(), many.size(), ncclInt32, ncclSum, comm, nullptr));
    CHECK(sums == std::vector<int32_t>(many.size(), 7));
    CHECK(sum == 7);
    CHECK(theirs_of == 1 << previous);
    CHECK(crossed[0] == 1 && crossed[1] == 2 && crossed[2] == 4);
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
        REFUSED("aborted", ncclAllReduce(&own, &sum, 1, ncclInt32, exclusive, comm, nullptr));
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
    REFUSED(why, ncclAllReduce(&own, &sum, 1, ncclInt32, exclusive, comm, nullptr));
    OK(ncclGroupStart());
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    REFUSED(why, ncclAllReduce(&own, &sum, 1, ncclInt32, exclusive, comm, nullptr));
    REFUSED(why, ncclGroupEnd());
    CHECK(sum == 0);
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    CHECK(sum == 9);
}

void broken(ncclComm_t comm, int rank) {
    refused(comm, rank, rank ? "told to fail" : "on rank 1");
    void* real = dlopen(std::getenv("MSCCLPP_NCCL_LIB_PATH"), RTLD_NOW | RTLD_NOLOAD);
    CHECK(real != nullptr);
    const auto number = [real](const char* name) { return reinterpret_cast<int (*)()>(dlsym(real, name))(); };
    CHECK(number("real_made") == 1 && number("real_freed") == 1);
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
    REFUSED("cannot call ncclAllToAll", ncclAllToAll(&own, &sum, 1, ncclInt32, comm, nullptr));
    REFUSED("not in this stand-in", ncclAllReduce(&own, &sum, 1, ncclFloat32, ncclSum, comm, nullptr));
    REFUSED("cannot call ncclAllToAll", pncclAllToAll(&own, &sum, 1, ncclInt32, comm, nullptr));
}

void run(const std::string& way, const ncclUniqueId& id, int rank) {
    ncclComm_t comm = nullptr;
    OK(ncclCommInitRank(&comm, world, id, rank));
    if (way == "all") forwarded(Numbers(rank, comm), Numbers::value);
    else if (way == "beside") beside(comm, rank);
    else if (way == "scattered") scattered(comm, rank);
    else if (way == "aborted") aborted(comm, rank);
    else if (way == "broken") broken(comm, rank);
    else if (way == "uneven") refused(comm, rank, rank ? "allowed 0 to 4" : "rank 0 names one, and rank 1 none");
    else if (way == "missing") refused(comm, rank, "cannot load");
    else if (way == "instead") instead(comm, rank);
    else fail(__FILE__, __LINE__, "the way", way);
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
            if (way == "uneven") unsetenv("ANTIPHON_NCCL_LIB_PATH");
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
