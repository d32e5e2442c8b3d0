// Communicators that are made behind the program's back, since they need not block (`blocking` is 0): all ranks by one thread, which
// asks for one after the other.
#include "program.h"

#include <thread>

namespace {

constexpr int world = 3;
using Ranks = std::array<ncclComm_t, world>;

ncclConfig_t unblocked() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return config;
}

ncclResult_t asks(ncclComm_t* comm, const ncclUniqueId& id, int rank) {
    ncclConfig_t config = unblocked();
    return ncclCommInitRankConfig(comm, world, id, rank, &config);
}

bool is_under_way(ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    OK(ncclCommGetAsyncError(comm, &state));
    return state == ncclInProgress;
}

void sums(const Ranks& comms) {
    const int32_t own = 1;
    std::array<int32_t, world> sum = {};
    OK(ncclGroupStart());
    for (std::size_t rank = 0; rank < world; rank++)
        OK(ncclAllReduce(&own, &sum[rank], 1, ncclInt32, ncclSum, comms[rank], nullptr));
    OK(ncclGroupEnd());
    for (const int32_t one : sum) CHECK(one == world);
}

void all_are_made(const Ranks& comms) {
    for (std::size_t rank = 0; rank < world; rank++) {
        int number = -1;
        CHECK(outcome(comms[rank]) == ncclSuccess);
        OK(ncclCommUserRank(comms[rank], &number));
        CHECK(number == static_cast<int>(rank));
    }
    sums(comms);
}

// All but rank 0, for a group.
void others_block(Ranks& comms, const ncclUniqueId& id) {
    for (int rank = 1; rank < world; rank++) OK(ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], world, id, rank));
}

void destroy(const Ranks& comms) {
    for (const ncclComm_t comm : comms) OK(ncclCommDestroy(comm));
}

Ranks joined() {
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    Ranks comms = {};
    for (int rank = 0; rank < world; rank++) {
        const ncclResult_t result = asks(&comms[static_cast<std::size_t>(rank)], id, rank);
        CHECK(result == ncclInProgress);
    }
    all_are_made(comms);
    return comms;
}

// What is used before it is made is refused, and made all the same.
void waited_for() {
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    Ranks comms = {};
    CHECK(asks(&comms[0], id, 0) == ncclInProgress && comms[0] != nullptr && is_under_way(comms[0]));
    const int32_t own = 1;
    int32_t sum = 0;
    int number = 0;
    const char* why = "is being made";
    FAILS(ncclInvalidArgument, why, ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comms[0], nullptr));
    FAILS(ncclInvalidArgument, why, ncclCommUserRank(comms[0], &number));
    FAILS(ncclInvalidArgument, why, ncclCommFinalize(comms[0]));
    FAILS(ncclInvalidArgument, why, ncclCommDestroy(comms[0]));
    CHECK(is_under_way(comms[0]));
    // The others block, together.
    OK(ncclGroupStart());
    others_block(comms, id);
    OK(ncclGroupEnd());
    all_are_made(comms);
    destroy(comms);
}

// One that blocks, and one of the same communicator that need not, in a group.
void mixed() {
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    Ranks comms = {};
    OK(ncclGroupStart());
    CHECK(asks(&comms[0], id, 0) == ncclInProgress);
    others_block(comms, id);
    CHECK(ncclGroupEnd() == ncclInProgress);
    all_are_made(comms);
    destroy(comms);
}

// Those of a group begin with its end.
void grouped() {
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    Ranks comms = {};
    OK(ncclGroupStart());
    for (int rank = 0; rank < world; rank++) {
        const auto at = static_cast<std::size_t>(rank);
        CHECK(asks(&comms[at], id, rank) == ncclInProgress && is_under_way(comms[at]));
    }
    CHECK(ncclGroupEnd() == ncclInProgress);
    all_are_made(comms);
    destroy(comms);
}

// Of two that are asked for in a group, of a parent that need not block; a rank of no color gets none.
void divided(const Ranks& comms) {
    Ranks reversed = {}, again = {};
    int32_t own = 1;
    int32_t sum = 0;
    ncclRedOp_t scaled;
    OK(ncclRedOpCreatePreMulSum(&scaled, &own, ncclInt32, ncclScalarHostImmediate, comms[0]));
    for (std::size_t rank = 0; rank < world; rank++) {
        const int key = -static_cast<int>(rank);
        OK(ncclGroupStart());
        CHECK(ncclCommSplit(comms[rank], 0, key, &reversed[world - 1 - rank], nullptr) == ncclInProgress);
        CHECK(ncclCommSplit(comms[rank], 0, -key, &again[rank], nullptr) == ncclInProgress);
        CHECK(ncclGroupEnd() == ncclInProgress);
        if (rank > 0) continue;
        CHECK(is_under_way(comms[0]) && is_under_way(reversed[world - 1]));
        ncclComm_t other = comms[0];
        const char* why = "others are being made of it";
        FAILS(ncclInvalidArgument, why, ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comms[0], nullptr));
        FAILS(ncclInvalidArgument, why, ncclCommSplit(comms[0], 0, 0, &other, nullptr));
        CHECK(other == nullptr);
        FAILS(ncclInvalidArgument, why, ncclCommFinalize(comms[0]));
        OK(ncclRedOpDestroy(scaled, comms[0]));
    }
    all_are_made(reversed);
    all_are_made(again);
    // Who sees that these are made may use those.
    sums(comms);
    for (const Ranks& ranks : {reversed, again})
        for (const ncclComm_t comm : ranks) OK(ncclCommDestroy(comm));

    Ranks pair = {};
    for (std::size_t rank = 0; rank < world; rank++) {
        pair[rank] = comms[rank];
        CHECK(ncclCommSplit(comms[rank], rank < 2 ? 0 : NCCL_SPLIT_NOCOLOR, 0, &pair[rank], nullptr) == ncclInProgress);
    }
    CHECK(pair[2] == nullptr);
    for (const ncclComm_t comm : comms) CHECK(outcome(comm) == ncclSuccess);
    for (const std::size_t rank : {0, 1}) {
        int count = 0;
        CHECK(outcome(pair[rank]) == ncclSuccess);
        OK(ncclCommCount(pair[rank], &count));
        CHECK(count == 2);
        OK(ncclCommDestroy(pair[rank]));
    }
}

// Who sees that nothing is made of a communicator any more has what was made of it. Many at once are made known one after the other.
void known_by_then() {
    ncclUniqueId id;
    ncclConfig_t config = unblocked();
    ncclComm_t parent = nullptr;
    OK(ncclGetUniqueId(&id));
    COMPLETES(parent, ncclCommInitRankConfig(&parent, 1, id, 0, &config));
    for (int turn = 0; turn < 20; turn++) {
        std::array<ncclComm_t, 50> made = {};
        OK(ncclGroupStart());
        for (ncclComm_t& one : made) CHECK(ncclCommSplit(parent, 0, 0, &one, nullptr) == ncclInProgress);
        CHECK(ncclGroupEnd() == ncclInProgress);
        while (is_under_way(parent)) {}
        // The last one last of all.
        CHECK(!is_under_way(made.back()));
        for (const ncclComm_t one : made) OK(ncclCommDestroy(one));
    }
    OK(ncclCommDestroy(parent));
}

// One that blocks is made of those that need not, as they are made; what is made of it, it waits for.
void blocking_again(const Ranks& comms) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    Ranks blocking = {}, last = {};
    for (std::size_t rank = 0; rank < world; rank++)
        CHECK(ncclCommSplit(comms[rank], 0, 0, &blocking[rank], &config) == ncclInProgress);
    all_are_made(blocking);
    OK(ncclGroupStart());
    for (std::size_t rank = 0; rank < world; rank++) {
        config.blocking = 0;
        OK(ncclCommSplit(blocking[rank], 0, 0, &last[rank], &config));
        CHECK(last[rank] == nullptr);
    }
    OK(ncclGroupEnd());
    sums(last);
    destroy(last);
    destroy(blocking);
}

// What breaks a communicator that is shrunk is of no interest to who shrinks it: neither meanwhile nor after that. One that nothing
// has broken goes on, and tells what breaks it then.
void shrunk(int flags) {
    const Ranks comms = joined();
    int gone = 2;
    Ranks pair = {};
    for (const std::size_t rank : {0, 1}) {
        CHECK(ncclCommShrink(comms[rank], &gone, 1, &pair[rank], nullptr, flags) == ncclInProgress);
        if (rank == 0) CHECK(is_under_way(comms[0]) && is_under_way(pair[0]));
    }
    const int32_t own = 1;
    std::array<int32_t, 2> sum = {};
    for (const std::size_t rank : {0, 1}) CHECK(outcome(comms[rank]) == ncclSuccess && outcome(pair[rank]) == ncclSuccess);
    OK(ncclGroupStart());
    for (const std::size_t rank : {0, 1}) OK(ncclAllReduce(&own, &sum[rank], 1, ncclInt32, ncclSum, pair[rank], nullptr));
    OK(ncclGroupEnd());
    CHECK(sum[0] == 2 && sum[1] == 2);
    if (flags == NCCL_SHRINK_ABORT) {
        FAILS(ncclRemoteError, "shrunk", ncclAllReduce(&own, &sum[0], 1, ncclInt32, ncclSum, comms[0], nullptr));
        CHECK(outcome(comms[0]) == ncclSuccess);
        OK(ncclCommFinalize(comms[0]));
        CHECK(outcome(comms[0]) == ncclSuccess);
    } else {
        sums(comms);
        OK(ncclCommRevoke(comms[2], NCCL_REVOKE_DEFAULT));
        ncclResult_t state = ncclSuccess;
        while ((state = outcome(comms[0])) == ncclSuccess) sched_yield();
        CHECK(state == ncclRemoteError && std::strstr(ncclGetLastError(comms[0]), "ncclCommRevoke"));
    }
    for (const std::size_t rank : {0, 1}) OK(ncclCommDestroy(pair[rank]));
    for (const ncclComm_t comm : comms) OK(ncclCommAbort(comm));
}

void failed() {
    const ncclUniqueId nonsense = {};
    ncclComm_t comm = nullptr;
    CHECK(asks(&comm, nonsense, 1) == ncclInProgress);
    CHECK(outcome(comm) == ncclInvalidArgument && std::strstr(ncclGetLastError(comm), "unique id"));
    int number = 0;
    FAILS(ncclInvalidArgument, "unique id", ncclCommUserRank(comm, &number));
    OK(ncclCommDestroy(comm));
    FAILS(ncclInvalidArgument, "destroyed", ncclCommDestroy(comm));

    // What its group has against it, its handle tells, too.
    ncclUniqueId id;
    ncclComm_t other = nullptr;
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart());
    CHECK(asks(&comm, id, 0) == ncclInProgress);
    FAILS(ncclInvalidArgument, "null", ncclCommSplit(nullptr, 0, 0, &other, nullptr));
    FAILS(ncclInvalidArgument, "null", ncclGroupEnd());
    CHECK(outcome(comm) == ncclInvalidArgument && std::strstr(ncclGetLastError(comm), "null"));
    OK(ncclCommAbort(comm));

    // A group that its thread leaves open is given up.
    std::thread([&] {
        OK(ncclGroupStart());
        CHECK(asks(&comm, id, 0) == ncclInProgress);
    }).join();
    CHECK(outcome(comm) == ncclSystemError);
    OK(ncclCommDestroy(comm));
}

// Rank 0 is given up while it is made. Its peers have it all the same, or not, and are told.
void given_up() {
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    Ranks comms = {};
    CHECK(asks(&comms[0], id, 0) == ncclInProgress);
    OK(ncclCommAbort(comms[0]));
    ncclResult_t state = ncclSuccess;
    FAILS(ncclInvalidArgument, "destroyed", ncclCommGetAsyncError(comms[0], &state));
    for (int rank = 1; rank < world; rank++) CHECK(asks(&comms[static_cast<std::size_t>(rank)], id, rank) == ncclInProgress);
    for (const std::size_t rank : {1, 2}) {
        while ((state = outcome(comms[rank])) == ncclSuccess) sched_yield();
        CHECK(state == ncclRemoteError && std::strstr(ncclGetLastError(comms[rank]), "while it was made"));
        OK(ncclCommAbort(comms[rank]));
    }
}

}  // namespace

int main() {
    alarm(120);
    const Ranks comms = joined();
    divided(comms);
    known_by_then();
    blocking_again(comms);
    sums(comms);
    destroy(comms);
    waited_for();
    mixed();
    grouped();
    for (const int flags : {NCCL_SHRINK_ABORT, NCCL_SHRINK_DEFAULT}) shrunk(flags);
    failed();
    given_up();
    std::printf("unblocked: ok\n");
    return EXIT_SUCCESS;
}
