// Code that the program registers through antiphon.h serves its NCCL calls on devices.
#include "devices.h"

#include <antiphon.h>

#include <atomic>
#include <thread>

namespace {

#define ANTIPHON(call) CHECK((call) == ANTIPHON_RESULT_SUCCESS)

// What the code has seen. Each rank has its own device and its own stream.
struct Seen {
    std::array<cudaStream_t, world> streams{};
    std::array<std::atomic<int>, world> calls{};
};

// Sums what is sent, and then the sums: what nothing else would answer, a multiple of the sum.
std::int32_t sum_twice(void* context, const antiphon_code_call* call) {
    auto& seen = *static_cast<Seen*>(context);
    CHECK(call->world == world && call->device == on(static_cast<int>(call->rank)));
    CHECK(call->stream != nullptr && call->native_stream == seen.streams[call->rank]);
    const void* from = call->send_buffer;
    for (const bool again : {false, true}) {
        antiphon_plan* plan = nullptr;
        ANTIPHON(antiphon_plan_load_name(call->executor, "allreduce_hub", again || call->in_place, 0, &plan));
        ANTIPHON(antiphon_execute(call->executor, plan, from, call->send_bytes, call->receive_buffer, call->receive_bytes, call->dtype,
                                  call->op, call->stream));
        ANTIPHON(antiphon_plan_destroy(plan));
        from = call->receive_buffer;
    }
    seen.calls[call->rank]++;
    return ANTIPHON_RESULT_SUCCESS;
}

// One call by itself, and two in a group, of which the second is in place; each gives so many times the sum of its inputs.
void calls(const Rank& own, int32_t times) {
    const auto [rank, comm, stream, in, out] = own;
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    own.expect(__LINE__, count, [=](std::size_t i) { return times * sum(i); });
    OK(ncclGroupStart());
    OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    OK(ncclAllReduce(own.receive(), own.receive(), count, ncclInt32, ncclSum, comm, stream));
    OK(ncclGroupEnd());
    own.expect(__LINE__, count, [=](std::size_t i) { return times * world * times * sum(i); });
}

// Each rank on a thread of its own, which makes it, and whose device it has.
void threads(Seen& seen, int32_t times) {
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < world; rank++)
        ranks.emplace_back([=, &seen] {
            use(rank);
            ncclComm_t comm = nullptr;
            OK(ncclCommInitRank(&comm, world, id, rank));
            const Rank own(rank, comm);
            seen.streams[static_cast<std::size_t>(rank)] = own.stream;
            calls(own, times);
            own.close();
        });
    for (std::thread& rank : ranks) rank.join();
}

// One thread for all ranks, in a group, with what each rank sends to the next beside it.
void together(Seen& seen, int32_t times) {
    ncclComm_t comms[world];
    const int devices[world] = {0, on(1)};
    OK(ncclCommInitAll(comms, world, devices));
    std::vector<Rank> ranks;
    for (int rank = 0; rank < world; rank++) {
        use(rank);
        ranks.emplace_back(rank, comms[rank]);
        seen.streams[static_cast<std::size_t>(rank)] = ranks.back().stream;
    }
    OK(ncclGroupStart());
    for (const Rank& own : ranks) {
        auto* passed = static_cast<int32_t*>(own.receive()) + count;
        OK(ncclSend(own.send(), count, ncclInt32, 1 - own.rank, own.comm, own.stream));
        OK(ncclAllReduce(own.send(), own.receive(), count, ncclInt32, ncclSum, own.comm, own.stream));
        OK(ncclRecv(passed, count, ncclInt32, 1 - own.rank, own.comm, own.stream));
    }
    OK(ncclGroupEnd());
    for (const Rank& own : ranks) {
        const int peer = 1 - own.rank;
        own.expect(__LINE__, world * count,
                   [=](std::size_t i) { return i < count ? times * sum(i) : value(peer, i - count); });
    }
    for (const Rank& own : ranks) own.close();
}

// Every call, where what serves them gives so many times the sum, and the code is called for so many of each rank's.
void serves(Seen& seen, int32_t times, int more) {
    const int before = seen.calls[0];
    threads(seen, times);
    together(seen, times);
    for (const auto& called : seen.calls) CHECK(called == before + more);
}

}  // namespace

int main() {
    alarm(280);
    CUDA(cuInit(0));
    Seen seen;
    antiphon_code code = ANTIPHON_CODE_INIT;
    code.name = "twice";
    code.collective = "allreduce";
    code.run = sum_twice;
    code.context = &seen;
    serves(seen, 1, 0);
    // Code that says nothing of devices is not asked.
    ANTIPHON(antiphon_registry_register_code(&code, nullptr));
    serves(seen, 1, 0);
    ANTIPHON(antiphon_registry_unregister(code.name));
    code.serves_devices = 1;
    ANTIPHON(antiphon_registry_register_code(&code, nullptr));
    serves(seen, world, 4);
    ANTIPHON(antiphon_registry_unregister(code.name));
    serves(seen, 1, 0);
    std::printf("coded: ok\n");
    return EXIT_SUCCESS;
}
