#pragma once

// Every call that may go to the library that is named beside Antiphon: of a reduction, a type or an algorithm that nothing here has. The
// stand-in (real.cpp) has the exclusive or as reduction 5, numbers as wide as int32 as type 12, and "ring"; what it sums and moves
// comes greater by 1000.
#include "program.h"
#include "rccl.h"

// `own` is one of two ranks, with numbers that are `value` of its rank and their index in front of it, and room for as many.
template <class Rank>
void forwarded(const Rank& own, int32_t (*value)(int rank, std::size_t index)) {
    constexpr std::size_t ranks = 2, count = 20;
    constexpr int32_t theirs = 1000;
    const auto kind = static_cast<ncclDataType_t>(12);
    const auto exclusive = static_cast<ncclRedOp_t>(5);
    ncclCollConfig_t rings = NCCL_COLLCONFIG_INITIALIZER;
    rings.algSelection = "ring";
    const auto me = static_cast<std::size_t>(own.rank);
    const ncclComm_t comm = own.comm;
    const cudaStream_t stream = own.stream;
    const void* const from = own.send();
    void* const to = own.receive();
    const auto mixed = [=](std::size_t i) { return value(0, i) ^ value(1, i); };
    const auto summed = [=](std::size_t i) { return value(0, i) + value(1, i) + theirs; };
    const auto block = [=](std::size_t i) { return mixed(me * count + i); };
    const auto summed_block = [=](std::size_t i) { return summed(me * count + i); };
    const auto of = [=](int rank) { return [=](std::size_t i) { return value(rank, i) + theirs; }; };
    const auto all = [=](std::size_t i) { return value(static_cast<int>(i / count), i % count) + theirs; };
    const auto crossed = [=](std::size_t i) { return value(static_cast<int>(i / count), me * count + i % count) + theirs; };
    const auto scattered = [=](int root) {
        return [=](std::size_t i) { return value(root, me * count + i) + theirs; };
    };

    OK(ncclAllReduce(from, to, count, ncclInt32, exclusive, comm, stream));
    own.expect(__LINE__, count, mixed);
    OK(ncclReduce(from, to, count, ncclInt32, exclusive, 1, comm, stream));
    if (me == 1) own.expect(__LINE__, count, mixed);
    OK(ncclReduceScatter(from, to, count, ncclInt32, exclusive, comm, stream));
    own.expect(__LINE__, count, block);
    OK(ncclAllGather(from, to, count, kind, comm, stream));
    own.expect(__LINE__, ranks * count, all);
    OK(ncclAlltoAll(from, to, count, kind, comm, stream));
    own.expect(__LINE__, ranks * count, crossed);
    OK(ncclAllToAll(from, to, count, kind, comm, stream));
    own.expect(__LINE__, ranks * count, crossed);
    OK(ncclGather(from, to, count, kind, 1, comm, stream));
    if (me == 1) own.expect(__LINE__, ranks * count, all);
    OK(ncclScatter(from, to, count, kind, 0, comm, stream));
    own.expect(__LINE__, count, scattered(0));
    OK(ncclBroadcast(from, to, count, kind, 1, comm, stream));
    own.expect(__LINE__, count, of(1));
    // Once more.
    OK(ncclBcast(to, count, kind, 0, comm, stream));
    own.expect(__LINE__, count, [=](std::size_t i) { return value(1, i) + 2 * theirs; });
    OK(ncclGroupStart());
    OK(ncclRecv(to, count, kind, 1 - own.rank, comm, stream));
    OK(ncclSend(from, count, kind, 1 - own.rank, comm, stream));
    OK(ncclGroupEnd());
    own.expect(__LINE__, count, of(1 - own.rank));
    // To each rank as many as its number and one.
    const std::size_t sent[ranks] = {1, 2}, at[ranks] = {5, 0}, got = me + 1;
    const std::size_t received[ranks] = {got, got}, places[ranks] = {0, got};
    OK(ncclAllToAllv(from, sent, at, to, received, places, kind, comm, stream));
    own.expect(__LINE__, ranks * got,
               [&](std::size_t i) { return value(static_cast<int>(i / got), at[me] + i % got) + theirs; });

    OK(ncclAllReduceConfig(from, to, count, ncclInt32, ncclSum, comm, stream, &rings));
    own.expect(__LINE__, count, summed);
    OK(ncclReduceConfig(from, to, count, ncclInt32, ncclSum, 0, comm, stream, &rings));
    if (me == 0) own.expect(__LINE__, count, summed);
    OK(ncclReduceScatterConfig(from, to, count, ncclInt32, ncclSum, comm, stream, &rings));
    own.expect(__LINE__, count, summed_block);
    OK(ncclAllGatherConfig(from, to, count, ncclInt32, comm, stream, &rings));
    own.expect(__LINE__, ranks * count, all);
    OK(ncclAlltoAllConfig(from, to, count, ncclInt32, comm, stream, &rings));
    own.expect(__LINE__, ranks * count, crossed);
    OK(ncclBroadcastConfig(from, to, count, ncclInt32, 0, comm, stream, &rings));
    own.expect(__LINE__, count, of(0));
    OK(ncclGatherConfig(from, to, count, ncclInt32, 0, comm, stream, &rings));
    if (me == 0) own.expect(__LINE__, ranks * count, all);
    OK(ncclScatterConfig(from, to, count, ncclInt32, 1, comm, stream, &rings));
    own.expect(__LINE__, count, scattered(1));
}
