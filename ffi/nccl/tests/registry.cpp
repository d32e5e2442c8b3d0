// What a program registers through antiphon.h serves its NCCL calls.
#include <antiphon.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

constexpr int WORLD = 2;

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            std::fprintf(stderr, "%s:%d: not so: %s: %s\n", __FILE__, __LINE__, #condition, \
                         ncclGetLastError(nullptr));                                         \
            std::_Exit(EXIT_FAILURE);                                                        \
        }                                                                                    \
    } while (0)

// An "allreduce" in which every rank keeps what it has: a plan that is refuted when it is first loaded.
const std::string KEEP =
    R"({"name":"keep","collective":"allreduce","protocol":"Simple","inplace":false,"reuse_resources":false,"gpus":[)"
    R"({"id":0,"input_chunks":1,"output_chunks":1,"scratch_chunks":0,"threadblocks":[{"id":0,"ops":[)"
    R"({"name":"copy","src_buff":[{"type":"i","index":0,"size":1}],"dst_buff":[{"type":"o","index":0,"size":1}]}],)"
    R"("channels":[],"remote_buffer_refs":[]}],"channels":[],"remote_buffers":[],"semaphores":[]},)"
    R"({"id":1,"input_chunks":1,"output_chunks":1,"scratch_chunks":0,"threadblocks":[{"id":0,"ops":[)"
    R"({"name":"copy","src_buff":[{"type":"i","index":0,"size":1}],"dst_buff":[{"type":"o","index":0,"size":1}]}],)"
    R"("channels":[],"remote_buffer_refs":[]}],"channels":[],"remote_buffers":[],"semaphores":[]}],)"
    R"("num_threads_per_block":1024,"use_double_scratch_buffer":false,"buffer_alignment":16,)"
    R"("min_message_size":0,"max_message_size":1048576})";

// Sums by the plan of a built-in algorithm, and adds what only it would add.
std::int32_t run(void*, const antiphon_code_call* call) {
    // What no call of this program is: nobody else calls by the program's code.
    if (call->dtype != ANTIPHON_DTYPE_F32) return ANTIPHON_RESULT_UNSUPPORTED;
    antiphon_plan* plan = nullptr;
    std::int32_t result =
        antiphon_plan_load_name(call->executor, "allreduce_hub", call->in_place, 0, &plan);
    if (result != ANTIPHON_RESULT_SUCCESS) return result;
    result = antiphon_execute(call->executor, plan, call->send_buffer, call->send_bytes,
                              call->receive_buffer, call->receive_bytes, call->dtype, call->op,
                              call->stream);
    if (call->stream != nullptr) CHECK(antiphon_stream_synchronize(call->stream) == ANTIPHON_RESULT_SUCCESS);
    antiphon_plan_destroy(plan);
    auto* sums = static_cast<float*>(call->receive_buffer);
    for (std::uint64_t i = 0; i < call->receive_bytes / sizeof *sums; i++) sums[i] += 10;
    return result;
}

// What every rank's ncclAllReduce of 1 and 2 gives, or the reason for which it fails.
struct Answer {
    ncclResult_t result;
    float sum;
    std::string why;
};

void all_reduce(Answer* answers) {
    ncclUniqueId id;
    CHECK(ncclGetUniqueId(&id) == ncclSuccess);
    std::thread ranks[WORLD];
    for (int rank = 0; rank < WORLD; rank++) {
        ranks[rank] = std::thread([=] {
            ncclComm_t comm = nullptr;
            CHECK(ncclCommInitRank(&comm, WORLD, id, rank) == ncclSuccess);
            const float value = static_cast<float>(rank + 1);
            Answer& answer = answers[rank];
            answer.result = ncclAllReduce(&value, &answer.sum, 1, ncclFloat32, ncclSum, comm, nullptr);
            answer.why = ncclGetLastError(comm);
            CHECK(ncclCommDestroy(comm) == ncclSuccess);
        });
    }
    for (std::thread& rank : ranks) rank.join();
}

// One thread drives all ranks: sums, the sums of these, and what each rank sends to the next meanwhile.
void group(float extra) {
    ncclComm_t comms[WORLD];
    CHECK(ncclCommInitAll(comms, WORLD, nullptr) == ncclSuccess);
    const float values[WORLD] = {1, 2};
    float sums[WORLD] = {}, all[WORLD][WORLD] = {}, again[WORLD] = {}, passed[WORLD] = {};
    CHECK(ncclGroupStart() == ncclSuccess);
    for (int rank = 0; rank < WORLD; rank++) {
        ncclComm_t comm = comms[rank];
        CHECK(ncclSend(&values[rank], 1, ncclFloat32, (rank + 1) % WORLD, comm, nullptr) == ncclSuccess);
        CHECK(ncclAllReduce(&values[rank], &sums[rank], 1, ncclFloat32, ncclSum, comm, nullptr) == ncclSuccess);
        CHECK(ncclAllGather(&sums[rank], all[rank], 1, ncclFloat32, comm, nullptr) == ncclSuccess);
        CHECK(ncclAllReduce(&all[rank][0], &again[rank], 1, ncclFloat32, ncclSum, comm, nullptr) == ncclSuccess);
        CHECK(ncclRecv(&passed[rank], 1, ncclFloat32, (rank + 1) % WORLD, comm, nullptr) == ncclSuccess);
    }
    CHECK(ncclGroupEnd() == ncclSuccess);
    const float sum = 3 + extra;
    for (int rank = 0; rank < WORLD; rank++) {
        CHECK(sums[rank] == sum && all[rank][0] == sum && all[rank][1] == sum);
        CHECK(again[rank] == 2 * sum + extra);
        CHECK(passed[rank] == values[(rank + 1) % WORLD]);
        CHECK(ncclCommDestroy(comms[rank]) == ncclSuccess);
    }
}

// What every call gives, by itself and in a group, where what serves them adds something.
void serves(float extra) {
    Answer answers[WORLD] = {};
    all_reduce(answers);
    for (const Answer& answer : answers) {
        CHECK(answer.result == ncclSuccess);
        CHECK(answer.sum == 3 + extra);
    }
    group(extra);
}

}  // namespace

int main() {
    serves(0);
    antiphon_code code = ANTIPHON_CODE_INIT;
    code.name = "adding";
    code.collective = "allreduce";
    code.run = run;
    CHECK(antiphon_registry_register_code(&code, nullptr) == ANTIPHON_RESULT_SUCCESS);
    serves(10);
    // A plan goes before code; this one is refused when a call of NCCL's comes to it.
    CHECK(antiphon_registry_register_bytes(KEEP.data(), KEEP.size(), nullptr) == ANTIPHON_RESULT_SUCCESS);
    Answer answers[WORLD] = {};
    all_reduce(answers);
    for (const Answer& answer : answers) {
        CHECK(answer.result != ncclSuccess);
        CHECK(answer.why.find("`keep`") != std::string::npos);
    }
    CHECK(antiphon_registry_unregister("keep") == ANTIPHON_RESULT_SUCCESS);
    serves(10);
    CHECK(antiphon_registry_unregister("adding") == ANTIPHON_RESULT_SUCCESS);
    serves(0);
    std::puts("registry: ok");
    return EXIT_SUCCESS;
}
