// What a program registers through antiphon.h serves its NCCL calls.
#include <antiphon.h>
#include <nccl.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
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

// An "allreduce" `keep` in which no rank has another's numbers, made by the operation: a plan that is refuted when it is first loaded.
std::string keep(const std::string& operation) {
    const std::string block = R"("threadblocks":[{"id":0,"ops":[{)" + operation + R"(,"dst_buff":[{"type":"o","index":0,"size":1}]}],)"
                              R"("channels":[],"remote_buffer_refs":[]}],"channels":[],"remote_buffers":[],"semaphores":[])";
    const auto rank = [&block](const std::string& id) {
        return R"({"id":)" + id + R"(,"input_chunks":1,"output_chunks":1,"scratch_chunks":0,)" + block + '}';
    };
    return R"({"name":"keep","collective":"allreduce","protocol":"Simple","inplace":false,"reuse_resources":false,"gpus":[)" +
           rank("0") + ',' + rank("1") +
           R"(],"num_threads_per_block":1024,"use_double_scratch_buffer":false,"buffer_alignment":16,)"
           R"("min_message_size":0,"max_message_size":1048576})";
}

// Of no reduction, so that it takes any, and of sums alone.
const std::string KEEP = keep(R"("name":"copy","src_buff":[{"type":"i","index":0,"size":1}])");
const std::string KEEP_SUM =
    keep(R"("name":"re","src_buff":[{"type":"i","index":0,"size":1},{"type":"i","index":0,"size":1}],"reduce_op":"sum")");

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

// What every rank's ncclAllReduce of 2 and 3 gives, or the reason for which it fails.
template <class Number>
struct Answer {
    ncclResult_t result;
    Number reduced;
    std::string why;
};

template <class Number>
void all_reduce(ncclDataType_t type, ncclRedOp_t op, Answer<Number>* answers) {
    ncclUniqueId id;
    CHECK(ncclGetUniqueId(&id) == ncclSuccess);
    std::thread ranks[WORLD];
    for (int rank = 0; rank < WORLD; rank++) {
        ranks[rank] = std::thread([=] {
            ncclComm_t comm = nullptr;
            CHECK(ncclCommInitRank(&comm, WORLD, id, rank) == ncclSuccess);
            const auto value = static_cast<Number>(rank + 2);
            Answer<Number>& answer = answers[rank];
            answer.result = ncclAllReduce(&value, &answer.reduced, 1, type, op, comm, nullptr);
            answer.why = ncclGetLastError(comm);
            CHECK(ncclCommDestroy(comm) == ncclSuccess);
        });
    }
    for (std::thread& rank : ranks) rank.join();
}

// Whether the plan `keep` is chosen for a call, which fails then; else the call gives this.
template <class Number>
bool chosen(ncclDataType_t type, ncclRedOp_t op, double expected) {
    Answer<Number> answers[WORLD] = {};
    all_reduce(type, op, answers);
    const bool failed = answers[0].result != ncclSuccess;
    for (const Answer<Number>& answer : answers) {
        CHECK((answer.result != ncclSuccess) == failed);
        if (failed) CHECK(answer.why.find("`keep`") != std::string::npos);
        else CHECK(answer.reduced == static_cast<Number>(expected));
    }
    return failed;
}

// Every reduction, as it is called and as it is registered, and what it makes of 2 and 3.
constexpr struct {
    ncclRedOp_t op;
    std::int32_t registered;
    double expected;
} REDUCTIONS[] = {
    {ncclSum, ANTIPHON_OP_SUM, 5}, {ncclProd, ANTIPHON_OP_PROD, 6}, {ncclMax, ANTIPHON_OP_MAX, 3},
    {ncclMin, ANTIPHON_OP_MIN, 2}, {ncclAvg, ANTIPHON_OP_AVG, 2.5},
};

// A float narrower than C++ has, of small numbers that it has exactly.
template <class Bits, int fraction, int bias>
struct Narrow {
    Bits bits = 0;

    Narrow() = default;
    explicit Narrow(double value) {
        const int exponent = std::ilogb(value);
        const auto low = static_cast<int>(std::ldexp(std::ldexp(value, -exponent) - 1, fraction));
        bits = static_cast<Bits>((exponent + bias) << fraction | low);
    }
    bool operator==(const Narrow& other) const { return bits == other.bits; }
};

// Types that numbers come in, likewise, and whether the plan is chosen for their sums.
constexpr struct {
    std::int32_t registered;
    bool (*chosen)(ncclDataType_t type, ncclRedOp_t op, double expected);
    ncclDataType_t type;
} TYPES[] = {
    {ANTIPHON_DTYPE_I8, chosen<std::int8_t>, ncclInt8},     {ANTIPHON_DTYPE_U8, chosen<std::uint8_t>, ncclUint8},
    {ANTIPHON_DTYPE_I32, chosen<std::int32_t>, ncclInt32},  {ANTIPHON_DTYPE_U32, chosen<std::uint32_t>, ncclUint32},
    {ANTIPHON_DTYPE_I64, chosen<std::int64_t>, ncclInt64},  {ANTIPHON_DTYPE_U64, chosen<std::uint64_t>, ncclUint64},
    {ANTIPHON_DTYPE_F32, chosen<float>, ncclFloat32},       {ANTIPHON_DTYPE_F64, chosen<double>, ncclFloat64},
    {ANTIPHON_DTYPE_F16, chosen<Narrow<std::uint16_t, 10, 15>>, ncclFloat16},
    {ANTIPHON_DTYPE_BF16, chosen<Narrow<std::uint16_t, 7, 127>>, ncclBfloat16},
    {ANTIPHON_DTYPE_F8E4M3, chosen<Narrow<std::uint8_t, 3, 7>>, ncclFloat8e4m3},
    {ANTIPHON_DTYPE_F8E5M2, chosen<Narrow<std::uint8_t, 2, 15>>, ncclFloat8e5m2},
};

void with(const std::string& plan, const antiphon_terms& terms, const std::function<void()>& calls) {
    CHECK(antiphon_registry_register_bytes(plan.data(), plan.size(), &terms) == ANTIPHON_RESULT_SUCCESS);
    calls();
    CHECK(antiphon_registry_unregister("keep") == ANTIPHON_RESULT_SUCCESS);
}

// A plan serves the reduction and the type that it says, or its terms list, and calls of others go past it.
void narrow() {
    const auto reduces_only = [](std::int32_t registered) {
        for (const auto& called : REDUCTIONS)
            CHECK(chosen<float>(ncclFloat32, called.op, called.expected) == (called.registered == registered));
    };
    with(KEEP_SUM, ANTIPHON_TERMS_INIT, [&] { reduces_only(ANTIPHON_OP_SUM); });
    for (const auto& listed : REDUCTIONS) {
        antiphon_terms terms = ANTIPHON_TERMS_INIT;
        terms.ops = &listed.registered;
        terms.op_count = 1;
        with(KEEP, terms, [&] { reduces_only(listed.registered); });
    }
    for (const auto& listed : TYPES) {
        antiphon_terms terms = ANTIPHON_TERMS_INIT;
        terms.dtypes = &listed.registered;
        terms.dtype_count = 1;
        with(KEEP, terms, [&] {
            for (const auto& called : TYPES) CHECK(called.chosen(called.type, ncclSum, 5) == (&called == &listed));
        });
    }
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
    CHECK(!chosen<float>(ncclFloat32, ncclSum, 5 + extra));
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
    with(KEEP, ANTIPHON_TERMS_INIT, [] { CHECK(chosen<float>(ncclFloat32, ncclSum, 0)); });
    serves(10);
    CHECK(antiphon_registry_unregister("adding") == ANTIPHON_RESULT_SUCCESS);
    serves(0);
    narrow();

    // Where the environment asks for tags, what lacks them serves nothing.
    CHECK(setenv("ANTIPHON_TAGS", "mine", 1) == 0);
    CHECK(antiphon_registry_register_code(&code, nullptr) == ANTIPHON_RESULT_SUCCESS);
    serves(0);
    CHECK(antiphon_registry_unregister("adding") == ANTIPHON_RESULT_SUCCESS);
    const char* const mine[] = {"mine"};
    antiphon_terms terms = ANTIPHON_TERMS_INIT;
    terms.tags = mine;
    terms.tag_count = 1;
    CHECK(antiphon_registry_register_code(&code, &terms) == ANTIPHON_RESULT_SUCCESS);
    serves(10);
    CHECK(setenv("ANTIPHON_TAGS", "mine,another", 1) == 0);
    serves(0);
    CHECK(antiphon_registry_unregister("adding") == ANTIPHON_RESULT_SUCCESS);
    std::puts("registry: ok");
    return EXIT_SUCCESS;
}
