// Waits that end before what they wait for comes: `endings WAY`, where a rank gives a communicator up by ncclCommAbort
// (`aborted`) or ncclCommRevoke (`revoked`), or the others shrink it (`shrunk`) or have to, since a rank dies (`died`); and an end that
// waits for what comes (`destroyed`), or for what does not (`stuck`), but not for who shrinks it (`left`); what a time limit ends (`late`)
// and what ends since ranks call different things (`differ`); an ncclCommAbort that ends nothing, since its rank is through
// (`through`); and one inside a group, which has calls of the communicator (`gathered`).
#include "program.h"

#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <thread>

namespace {

constexpr int world = 3;

int32_t sum_of(ncclComm_t comm) {
    const int32_t own = 1;
    int32_t sum = 0;
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    return sum;
}

// How often ranks have met, in memory of all: what they meet in has no part in what is tested.
std::atomic<int>* met = nullptr;
// How many ranks found that they call different things, likewise.
std::atomic<int>* found = nullptr;

void meet() {
    const int turn = met->fetch_add(1) / world + 1;
    while (met->load() < turn * world) sched_yield();
}

// A communicator that nobody is in a call of any more.
ncclComm_t join(const ncclUniqueId& id, int rank) {
    ncclComm_t comm = nullptr;
    OK(ncclCommInitRank(&comm, world, id, rank));
    CHECK(sum_of(comm) == world);
    meet();
    return comm;
}

// A sum that not all ranks come to, and a message that nobody sends.
void sums_in_vain(ncclComm_t comm, const char* why) {
    const int32_t own = 1;
    int32_t sum = 0;
    FAILS(ncclRemoteError, why, ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    CHECK(sum == 0);
}

void receives_in_vain(ncclComm_t comm, int peer, const char* why) {
    int32_t received = 0;
    FAILS(ncclRemoteError, why, ncclRecv(&received, 1, ncclInt32, peer, comm, nullptr));
    CHECK(received == 0);
}

// A transfer may have ended a moment before its communicator is told.
void is_broken(ncclComm_t comm, const char* why) {
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) {
        OK(ncclCommGetAsyncError(comm, &state));
        sched_yield();
    }
    if (state != ncclRemoteError || !std::strstr(ncclGetLastError(comm), why)) fail(__FILE__, __LINE__, why, said(state));
}

// Those who are left go on, in a communicator of their own.
void go_on(ncclComm_t comm, int gone, int flags = NCCL_SHRINK_ABORT) {
    ncclComm_t rest = nullptr;
    OK(ncclCommShrink(comm, &gone, 1, &rest, nullptr, flags));
    int count = 0;
    OK(ncclCommCount(rest, &count));
    CHECK(count == world - 1 && sum_of(rest) == world - 1);
    OK(ncclCommDestroy(rest));
}

// Who has revoked it uses it no more, which is the program's mistake, and nobody else's; outside groups, and in them.
void is_revoked(ncclComm_t comm) {
    const int32_t own = 1;
    int32_t sum = 0;
    const char* why = "revoked; shrink or destroy it";
    ncclRedOp_t scaled;
    ncclComm_t other = comm;
    FAILS(ncclInvalidUsage, why, ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    FAILS(ncclInvalidUsage, why, ncclSend(&own, 1, ncclInt32, 1, comm, nullptr));
    FAILS(ncclInvalidUsage, why, ncclRedOpCreatePreMulSum(&scaled, const_cast<int32_t*>(&own), ncclInt32, ncclScalarHostImmediate, comm));
    FAILS(ncclInvalidUsage, why, ncclCommSplit(comm, 0, 0, &other, nullptr));
    CHECK(other == nullptr);
    OK(ncclGroupStart());
    FAILS(ncclInvalidUsage, why, ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    FAILS(ncclInvalidUsage, why, ncclGroupEnd());
    CHECK(sum == 0 && outcome(comm) == ncclSuccess);
}

// What broke one that this rank has shrunk is of no interest any more, and it makes no calls.
void is_settled(ncclComm_t comm) {
    ncclResult_t state = ncclInternalError;
    OK(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclSuccess);
    sums_in_vain(comm, "");
    OK(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclSuccess);
}

// Two threads of rank 0 wait, one for a message of rank 2's and one for a sum's other ranks. What they send in the same groups
// says that they do: rank 1 tells rank 0 when it has it. Then rank 0 gives both communicators up; one that is revoked is shrunk.
void given_up(const ncclUniqueId& id, int rank, bool abort) {
    const ncclComm_t comm = join(id, rank);
    ncclComm_t other = nullptr;
    OK(ncclCommSplit(comm, 0, rank, &other, nullptr));
    meet();
    const char* why = abort ? "ncclCommAbort" : "ncclCommRevoke";
    const int32_t sent = 7;
    if (rank != 0) {
        for (const ncclComm_t from : {comm, other}) {
            int32_t received = 0;
            if (rank == 1) OK(ncclRecv(&received, 1, ncclInt32, 0, from, nullptr));
            CHECK(rank != 1 || received == sent);
        }
        meet();
        // These wait, too, and nobody of their process ends it.
        receives_in_vain(comm, 0, why);
        is_broken(comm, why);
        rank == 1 ? sums_in_vain(other, why) : receives_in_vain(other, 0, why);
        is_broken(other, why);
        // Nobody leaves before all have heard.
        meet();
        if (!abort && rank == 1) {
            go_on(comm, 2, NCCL_SHRINK_DEFAULT);
            is_settled(comm);
        }
        OK(ncclCommAbort(comm));
        OK(ncclCommDestroy(other));
        return;
    }
    int32_t received = 0, sum = 0;
    const auto waits = [&](ncclComm_t in, const std::function<ncclResult_t()>& call) {
        OK(ncclGroupStart());
        OK(ncclSend(&sent, 1, ncclInt32, 1, in, nullptr));
        OK(call());
        FAILS(ncclRemoteError, why, ncclGroupEnd());
    };
    std::thread receiver(waits, comm, [&] { return ncclRecv(&received, 1, ncclInt32, 2, comm, nullptr); });
    std::thread summer(waits, other, [&] { return ncclAllReduce(&sent, &sum, 1, ncclInt32, ncclSum, other, nullptr); });
    meet();
    for (const ncclComm_t in : {comm, other}) OK(abort ? ncclCommAbort(in) : ncclCommRevoke(in, NCCL_REVOKE_DEFAULT));
    receiver.join();
    summer.join();
    CHECK(received == 0 && sum == 0);
    meet();
    for (const ncclComm_t in : {comm, other}) {
        if (abort) {
            ncclResult_t state = ncclSuccess;
            FAILS(ncclInvalidArgument, "destroyed", ncclCommGetAsyncError(in, &state));
        } else {
            // The loop of NCCL's page.
            CHECK(outcome(in) == ncclSuccess);
            is_revoked(in);
            if (in == comm) {
                go_on(comm, 2, NCCL_SHRINK_DEFAULT);
                is_revoked(in);
            }
            OK(ncclCommDestroy(in));
        }
    }
}

// A thread of rank 0 waits for a message, which is sent when another has begun to destroy the communicator.
void destroyed(const ncclUniqueId& id, int rank) {
    const ncclComm_t comm = join(id, rank);
    const int32_t sent = 7;
    int32_t received = 0;
    if (rank != 0) {
        // Who sent this waits in the same group.
        if (rank == 1) OK(ncclRecv(&received, 1, ncclInt32, 0, comm, nullptr));
        meet();
        meet();
        if (rank == 1) OK(ncclSend(&sent, 1, ncclInt32, 0, comm, nullptr));
        OK(ncclCommDestroy(comm));
        return;
    }
    std::thread receiver([&] {
        OK(ncclGroupStart());
        OK(ncclSend(&sent, 1, ncclInt32, 1, comm, nullptr));
        OK(ncclRecv(&received, 1, ncclInt32, 1, comm, nullptr));
        OK(ncclGroupEnd());
    });
    meet();
    std::thread watcher([&] {
        ncclResult_t state = ncclSuccess;
        while (ncclCommGetAsyncError(comm, &state) == ncclSuccess) sched_yield();
        meet();
    });
    OK(ncclCommDestroy(comm));
    CHECK(received == sent);
    watcher.join();
    receiver.join();
}

// A thread of rank 0 waits for a message that nobody sends, and another, which destroys the communicator, for that one: a third gives
// it up.
void stuck(const ncclUniqueId& id, int rank) {
    const ncclComm_t comm = join(id, rank);
    const char* why = "ncclCommAbort";
    const int32_t sent = 7;
    int32_t received = 0;
    if (rank != 0) {
        // Who sent this waits in the same group.
        if (rank == 1) OK(ncclRecv(&received, 1, ncclInt32, 0, comm, nullptr));
        meet();
        receives_in_vain(comm, 0, why);
        meet();
        OK(ncclCommAbort(comm));
        return;
    }
    std::thread receiver([&] {
        OK(ncclGroupStart());
        OK(ncclSend(&sent, 1, ncclInt32, 1, comm, nullptr));
        OK(ncclRecv(&received, 1, ncclInt32, 1, comm, nullptr));
        FAILS(ncclRemoteError, why, ncclGroupEnd());
    });
    meet();
    std::thread destroyer([&] { OK(ncclCommDestroy(comm)); });
    ncclResult_t state = ncclSuccess;
    while (ncclCommGetAsyncError(comm, &state) == ncclSuccess) sched_yield();
    OK(ncclCommAbort(comm));
    receiver.join();
    destroyer.join();
    meet();
}

// Rank 0 waits for a second message, which nobody sends, but no longer than the program's limit.
void late(const ncclUniqueId& id, int rank) {
    if (rank == 0) CHECK(setenv("ANTIPHON_TIMEOUT", "3s", 1) == 0);
    const ncclComm_t comm = join(id, rank);
    const int32_t sent = 7;
    int32_t received = 0;
    if (rank == 1) OK(ncclSend(&sent, 1, ncclInt32, 0, comm, nullptr));
    if (rank == 0) {
        OK(ncclRecv(&received, 1, ncclInt32, 1, comm, nullptr));
        CHECK(received == sent);
        FAILS(ncclTimeout, "rank 1", ncclRecv(&received, 1, ncclInt32, 1, comm, nullptr));
    }
    meet();
    OK(ncclCommAbort(comm));
}

// Each rank has its own idea of how many numbers there are; or rank 0 of what they are, of which there are as many bytes.
void differ(const ncclUniqueId& id, int rank, bool moves) {
    const ncclComm_t comm = join(id, rank);
    const int32_t own[world] = {1, 1, 1};
    int32_t sums[world] = {};
    const auto count = static_cast<std::size_t>(rank) + 1;
    const char* why = "differs between ranks";
    // Who does not find it is told by who did.
    const ncclResult_t result = moves ? ncclAllGather(own, sums, rank ? 1 : 4, rank ? ncclInt32 : ncclInt8, comm, nullptr)
                                      : ncclAllReduce(own, sums, count, ncclInt32, ncclSum, comm, nullptr);
    if (result == ncclInvalidUsage) found->fetch_add(1);
    const bool told = (result == ncclInvalidUsage || result == ncclRemoteError) && std::strstr(ncclGetLastError(comm), why);
    if (!told) fail(__FILE__, __LINE__, why, said(result));
    CHECK(sums[0] == 0);
    ncclResult_t state = ncclSuccess;
    OK(ncclCommGetAsyncError(comm, &state));
    CHECK(state != ncclSuccess && std::strstr(ncclGetLastError(comm), why));
    meet();
    CHECK(found->load() > 0);
    OK(ncclCommDestroy(comm));
}

// Rank 0 is through and gives the communicator up, while rank 2 waits for a message that rank 1 sends after that.
void through(const ncclUniqueId& id, int rank) {
    const ncclComm_t comm = join(id, rank);
    const int32_t sent = 7;
    int32_t received = 0;
    const auto waits = [&] {
        OK(ncclGroupStart());
        OK(ncclSend(&sent, 1, ncclInt32, 1, comm, nullptr));
        OK(ncclRecv(&received, 1, ncclInt32, 1, comm, nullptr));
        OK(ncclGroupEnd());
    };
    std::thread receiver;
    if (rank == 2) receiver = std::thread(waits);
    // Who sent this waits in the same group.
    if (rank == 1) OK(ncclRecv(&received, 1, ncclInt32, 2, comm, nullptr));
    meet();
    if (rank == 0) OK(ncclCommAbort(comm));
    meet();
    if (rank == 1) OK(ncclSend(&sent, 1, ncclInt32, 2, comm, nullptr));
    if (rank == 2) receiver.join();
    CHECK(rank == 0 || received == sent);
    // Nobody dies before the others are through.
    meet();
    if (rank != 0) OK(ncclCommDestroy(comm));
}

// Rank 0 gives communicators up that its group has calls of, on the group's thread or on another: the end of the group waits for nobody.
void gathered(const ncclUniqueId& id, int rank) {
    const ncclComm_t parent = join(id, rank);
    const char* why = "ncclCommAbort";
    for (const bool sends : {false, true}) {
        for (const bool elsewhere : {false, true}) {
            ncclComm_t comm = nullptr;
            OK(ncclCommSplit(parent, 0, rank, &comm, nullptr));
            if (rank != 0) {
                sends ? receives_in_vain(comm, 0, why) : sums_in_vain(comm, why);
                meet();
                OK(ncclCommDestroy(comm));
                continue;
            }
            const int32_t own = 7;
            int32_t sum = 0;
            OK(ncclGroupStart());
            if (sends) OK(ncclSend(&own, 1, ncclInt32, 1, comm, nullptr));
            else OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
            if (elsewhere) std::thread([comm] { OK(ncclCommAbort(comm)); }).join();
            else OK(ncclCommAbort(comm));
            FAILS(ncclRemoteError, why, ncclGroupEnd());
            CHECK(sum == 0);
            meet();
        }
    }
    OK(ncclCommDestroy(parent));
}

// Rank 2 is stuck, and the others shrink without it.
void shrunk(const ncclUniqueId& id, int rank) {
    const ncclComm_t comm = join(id, rank);
    if (rank < 2) {
        go_on(comm, 2);
        is_settled(comm);
        meet();
        OK(ncclCommFinalize(comm));
        OK(ncclCommDestroy(comm));
        return;
    }
    receives_in_vain(comm, 0, "shrunk");
    is_broken(comm, "shrunk");
    meet();
    OK(ncclCommAbort(comm));
}

// A thread of rank 0 shrinks the communicator, which another destroys before rank 1 shrinks it.
void left(const ncclUniqueId& id, int rank) {
    const ncclComm_t comm = join(id, rank);
    if (rank == 0) {
        std::thread shrinker([comm] { go_on(comm, 2); });
        // Who shrinks has told of it, and waits for rank 1.
        is_broken(comm, "shrunk");
        OK(ncclCommDestroy(comm));
        meet();
        shrinker.join();
        return;
    }
    if (rank == 2) receives_in_vain(comm, 0, "shrunk");
    meet();
    if (rank == 1) go_on(comm, 2);
    OK(ncclCommDestroy(comm));
}

// A rank is gone, while the others wait for it.
void died(const ncclUniqueId& id, int rank, int dead, int flags) {
    const ncclComm_t comm = join(id, rank);
    if (rank == dead) {
        met->fetch_add(1);
        _exit(EXIT_SUCCESS);
    }
    const std::string why = "rank " + std::to_string(dead);
    if (rank == 1) receives_in_vain(comm, dead, why.c_str());
    else sums_in_vain(comm, why.c_str());
    is_broken(comm, why.c_str());
    // Who shrinks tells the others of that, and not of the death.
    meet();
    go_on(comm, dead, flags);
    is_settled(comm);
    OK(ncclCommDestroy(comm));
}

}  // namespace

int main(int count, char** arguments) {
    CHECK(count == 2);
    const std::string way = arguments[1];
    alarm(120);
    void* shared = mmap(nullptr, 2 * sizeof *met, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    met = new (shared) std::atomic<int>(0);
    found = new (met + 1) std::atomic<int>(0);
    if (way == "aborted" || way == "revoked") {
        processes(world, [&](const ncclUniqueId& id, int rank) { given_up(id, rank, way == "aborted"); });
    } else if (way == "destroyed") {
        processes(world, destroyed);
    } else if (way == "stuck") {
        processes(world, stuck);
    } else if (way == "late") {
        processes(world, late);
    } else if (way == "differ") {
        for (const bool moves : {false, true}) {
            found->store(0);
            processes(world, [moves](const ncclUniqueId& id, int rank) { differ(id, rank, moves); });
        }
    } else if (way == "through") {
        processes(world, through);
    } else if (way == "gathered") {
        processes(world, gathered);
    } else if (way == "shrunk") {
        processes(world, shrunk);
    } else if (way == "left") {
        processes(world, left);
    } else {
        CHECK(way == "died");
        for (const int dead : {0, 2}) {
            const int flags = dead == 0 ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT;
            processes(world, [=](const ncclUniqueId& id, int rank) { died(id, rank, dead, flags); });
        }
    }
    std::printf("endings: ok\n");
    return EXIT_SUCCESS;
}
