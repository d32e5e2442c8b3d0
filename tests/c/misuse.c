/* What is wrong gives an error, and never more than that. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENT ANTIPHON_RESULT_INVALID_ARGUMENT
#define HANDLE ANTIPHON_RESULT_INVALID_HANDLE

static void nulls(antiphon_communicator *c)
{
    const antiphon_communicator *none = NULL;
    antiphon_unique_id id;
    antiphon_communicator *communicator = NULL;
    antiphon_executor *executor = NULL;
    antiphon_stream *stream = NULL;
    antiphon_memory *memory = NULL;
    antiphon_plan *plan = NULL;
    antiphon_result result = ANTIPHON_RESULT_SUCCESS;
    antiphon_verdict verdict = ANTIPHON_VERDICT_PROVEN;
    uint32_t number = 7;
    uint64_t bytes = 7;
    int32_t x = 1, done = 7;
    void *address = NULL;
    memset(&id, 0, sizeof id);

    FAILS(ARGUMENT, "out_rank", antiphon_local_rank(NULL));
    FAILS(ARGUMENT, "out_id", antiphon_unique_id_create(NULL));
    FAILS(ARGUMENT, "`id`", antiphon_unique_id_retire(NULL));
    FAILS(ARGUMENT, "unique id", antiphon_unique_id_retire(&id));
    FAILS(ARGUMENT, "`id`", antiphon_communicator_create(NULL, 0, 1, NULL, &communicator));
    FAILS(ARGUMENT, "unique id", antiphon_communicator_create(&id, 0, 1, NULL, &communicator));
    FAILS(ARGUMENT, "out_communicator", antiphon_communicator_create(&id, 0, 1, NULL, NULL));
    FAILS(ARGUMENT, "out_communicator", antiphon_communicator_create_from_environment(NULL, NULL));
    FAILS(ARGUMENT, "`place`", antiphon_communicator_create_at(NULL, 0, 1, NULL, &communicator));
    FAILS(ARGUMENT, "out_communicator", antiphon_communicator_create_at("host:1", 0, 1, NULL, NULL));
    FAILS(ARGUMENT, "\"nowhere\"", antiphon_communicator_create_at("nowhere", 0, 1, NULL, &communicator));
    FAILS(ARGUMENT, "rank 2 of 2", antiphon_communicator_create_at("file:/x", 2, 2, NULL, &communicator));
    /* Not where the environment says. */
    CHECK(!setenv("MSCCLPP_COMM_ID", "antiphon-00112233445566778899aabbccddeeff", 1));
    FAILS(ARGUMENT, "blank", antiphon_communicator_create_at(" ", 0, 1, NULL, &communicator));
    CHECK(!unsetenv("MSCCLPP_COMM_ID"));
    FAILS(ARGUMENT, "out_communicators", antiphon_communicator_create_in_process(1, NULL, NULL));
    CHECK(antiphon_communicator_create_in_process(0, NULL, &communicator) != ANTIPHON_RESULT_SUCCESS);
    FAILS(HANDLE, "null", antiphon_communicator_split(none, 0, 0, &communicator));
    FAILS(ARGUMENT, "out_communicator", antiphon_communicator_split(c, 0, 0, NULL));
    FAILS(HANDLE, "null", antiphon_communicator_split_as(none, 0, 0, "x", &communicator));
    FAILS(ARGUMENT, "out_communicator", antiphon_communicator_split_as(c, 0, 0, "x", NULL));
    FAILS(HANDLE, "null", antiphon_communicator_subset_as(none, &number, 1, "x", &communicator));
    FAILS(ARGUMENT, "out_communicator", antiphon_communicator_subset_as(c, &number, 1, "x", NULL));
    FAILS(HANDLE, "a communicator", antiphon_communicator_name(none, NULL, 0, &bytes));
    FAILS(ARGUMENT, "out_bytes", antiphon_communicator_name(c, NULL, 0, NULL));
    FAILS(ARGUMENT, "`buffer`", antiphon_communicator_name(c, NULL, 9, &bytes));
    FAILS(HANDLE, "a communicator", antiphon_communicator_rank(none, &number));
    FAILS(ARGUMENT, "out_rank", antiphon_communicator_rank(c, NULL));
    FAILS(HANDLE, "null", antiphon_communicator_world(none, &number));
    FAILS(ARGUMENT, "out_world", antiphon_communicator_world(c, NULL));
    FAILS(ARGUMENT, "out_node", antiphon_communicator_node(c, 0, NULL));
    FAILS(ARGUMENT, "rank 1000", antiphon_communicator_node(c, 1000, &number));
    FAILS(HANDLE, "null", antiphon_communicator_exchange(none, &number, sizeof number, &number));
    FAILS(ARGUMENT, "`own`", antiphon_communicator_exchange(c, NULL, 1, &number));
    FAILS(ARGUMENT, "`out_all`", antiphon_communicator_exchange(c, &number, 1, NULL));
    FAILS(ARGUMENT, "allowed 65536", antiphon_communicator_exchange(c, &number, 65537, &number));
    FAILS(HANDLE, "null", antiphon_communicator_make_current(none));
    FAILS(HANDLE, "null", antiphon_communicator_abort(none, "x"));
    FAILS(HANDLE, "null", antiphon_communicator_async_error(none, &result));
    FAILS(ARGUMENT, "out_result", antiphon_communicator_async_error(c, NULL));
    FAILS(HANDLE, "null", antiphon_communicator_destroy(NULL));
    FAILS(ARGUMENT, "out_queue", antiphon_log_queue_create(1, NULL));
    FAILS(HANDLE, "a queue of the log", antiphon_log_queue_take(NULL, NULL, 0, &x, &bytes));
    FAILS(HANDLE, "a queue of the log", antiphon_log_queue_destroy(NULL));
    FAILS(HANDLE, "null", antiphon_memory_allocate(none, 1, &memory));
    FAILS(ARGUMENT, "out_memory", antiphon_memory_allocate(c, 1, NULL));
    FAILS(HANDLE, "memory", antiphon_memory_address(NULL, &address));
    FAILS(HANDLE, "memory", antiphon_memory_free(NULL));
    FAILS(HANDLE, "null", antiphon_stream_create(none, &stream));
    FAILS(ARGUMENT, "out_stream", antiphon_stream_create(c, NULL));
    FAILS(HANDLE, "null", antiphon_stream_adopt(none, NULL, &stream));
    FAILS(ARGUMENT, "out_stream", antiphon_stream_adopt(c, NULL, NULL));
    FAILS(ANTIPHON_RESULT_UNSUPPORTED, "adopt", antiphon_stream_adopt(c, NULL, &stream));
    FAILS(ARGUMENT, "`device`", antiphon_memory_allocate_on(NULL, 1, &memory));
    FAILS(ARGUMENT, "gpu", antiphon_memory_allocate_on("gpu", 1, &memory));
    FAILS(ARGUMENT, "out_memory", antiphon_memory_allocate_on("host", 1, NULL));
    FAILS(ARGUMENT, "`name`", antiphon_backend_is_built(NULL, &x));
    FAILS(ARGUMENT, "gpu", antiphon_device_current("gpu", &number));
    FAILS(ARGUMENT, "out_index", antiphon_device_current("host", NULL));
    FAILS(HANDLE, "a stream", antiphon_stream_synchronize(NULL));
    FAILS(HANDLE, "a stream", antiphon_stream_query(NULL, &done));
    FAILS(HANDLE, "null", antiphon_communicator_query(none, &done));
    FAILS(ARGUMENT, "out_done", antiphon_communicator_query(c, NULL));
    FAILS(HANDLE, "null", antiphon_communicator_register(none, &x, sizeof x, &done));
    FAILS(ARGUMENT, "out_mapped", antiphon_communicator_register(c, &x, sizeof x, NULL));
    FAILS(HANDLE, "a stream", antiphon_stream_destroy(NULL));
    FAILS(HANDLE, "null", antiphon_executor_create(none, &executor));
    FAILS(ARGUMENT, "out_executor", antiphon_executor_create(c, NULL));
    FAILS(HANDLE, "an executor", antiphon_executor_abort(NULL, "x"));
    FAILS(HANDLE, "an executor", antiphon_executor_destroy(NULL));
    FAILS(HANDLE, "an executor", antiphon_plan_load_file(NULL, "x", &plan));
    FAILS(HANDLE, "an executor", antiphon_plan_load_bytes(NULL, "x", 1, &plan));
    FAILS(HANDLE, "an executor", antiphon_plan_load_name(NULL, "x", 0, 0, &plan));
    FAILS(HANDLE, "a plan", antiphon_plan_verdict(NULL, &verdict));
    FAILS(HANDLE, "a plan", antiphon_plan_report(NULL, NULL, 0, &bytes));
    FAILS(HANDLE, "a plan", antiphon_plan_destroy(NULL));
    FAILS(HANDLE, "an executor", antiphon_execute(NULL, NULL, &x, 4, &x, 4, ANTIPHON_DTYPE_I32, 0, NULL));
    FAILS(HANDLE, "null", antiphon_barrier(none));
    FAILS(HANDLE, "null", antiphon_all_reduce(none, &x, &x, 1, ANTIPHON_DTYPE_I32, 0, NULL));
    FAILS(HANDLE, "null", antiphon_all_gather(none, &x, &x, 1, ANTIPHON_DTYPE_I32, NULL));
    FAILS(HANDLE, "null", antiphon_reduce_scatter(none, &x, &x, 1, ANTIPHON_DTYPE_I32, 0, NULL));
    FAILS(HANDLE, "null", antiphon_all_to_all(none, &x, &x, 1, ANTIPHON_DTYPE_I32, NULL));
    FAILS(HANDLE, "null", antiphon_all_to_all_v(none, &x, &bytes, &bytes, &x, &bytes, &bytes, ANTIPHON_DTYPE_I32, NULL));
    FAILS(HANDLE, "null", antiphon_all_gather_v(none, &x, 1, &x, &bytes, &bytes, ANTIPHON_DTYPE_I32, NULL));
    FAILS(HANDLE, "null", antiphon_broadcast(none, &x, &x, 1, ANTIPHON_DTYPE_I32, 0, NULL));
    FAILS(HANDLE, "null", antiphon_reduce(none, &x, &x, 1, ANTIPHON_DTYPE_I32, 0, 0, NULL));
    FAILS(HANDLE, "null", antiphon_gather(none, &x, &x, 1, ANTIPHON_DTYPE_I32, 0, NULL));
    FAILS(HANDLE, "null", antiphon_scatter(none, &x, &x, 1, ANTIPHON_DTYPE_I32, 0, NULL));
    FAILS(HANDLE, "null", antiphon_send(none, &x, 1, ANTIPHON_DTYPE_I32, 0, NULL));
    FAILS(HANDLE, "null", antiphon_receive(none, &x, 1, ANTIPHON_DTYPE_I32, 0, NULL));
    /* Nothing was written. */
    CHECK(!communicator && !executor && !stream && !memory && !plan && !address);
    CHECK(number == 7 && bytes == 7 && done == 7 && x == 1);
}

/* On one of one rank, calls need nobody else. */
static void arguments(antiphon_communicator *c)
{
    int32_t x = 1, y = 0;
    antiphon_communicator *other = NULL;
    antiphon_stream *stream = NULL;
    antiphon_executor *executor = NULL;
    antiphon_plan *plan = NULL;
    antiphon_config config = ANTIPHON_CONFIG_INIT;
    int32_t words[2] = {0, 0}, op = 0;
    unsigned char *bytes = (unsigned char *)words;
    uint64_t counts[1] = {1}, offsets[1] = {UINT64_MAX}, room[2] = {0, 0};
    /* Cast by way of a number: compilers warn of an address that no such array has. */
    const uint64_t *odd = (const uint64_t *)((uintptr_t)room + 1);
    const int32_t I32 = ANTIPHON_DTYPE_I32;

    FAILS(ARGUMENT, "element type", antiphon_all_reduce(c, &x, &y, 1, 12, 0, NULL));
    FAILS(ARGUMENT, "reduction", antiphon_all_reduce(c, &x, &y, 1, I32, 5, NULL));
    FAILS(ARGUMENT, "reduction", antiphon_all_reduce(c, &x, &y, 1, I32, ANTIPHON_OP_OF_PLAN, NULL));
    FAILS(ARGUMENT, "null", antiphon_all_reduce(c, NULL, &y, 1, I32, 0, NULL));
    FAILS(ARGUMENT, "null", antiphon_all_reduce(c, &x, NULL, 1, I32, 0, NULL));
    FAILS(ARGUMENT, "address space", antiphon_all_reduce(c, &x, &y, UINT64_MAX, I32, 0, NULL));
    FAILS(ARGUMENT, "multiples", antiphon_all_reduce(c, (char *)&x + 1, &y, 1, I32, 0, NULL));
    FAILS(ARGUMENT, "rank 1", antiphon_broadcast(c, &x, &y, 1, I32, 1, NULL));
    FAILS(ARGUMENT, "rank 1", antiphon_gather(c, &x, &y, 1, I32, 1, NULL));
    FAILS(ARGUMENT, "rank 0", antiphon_send(c, &x, 1, I32, 0, NULL));
    FAILS(ARGUMENT, "beyond", antiphon_all_to_all_v(c, &x, counts, offsets, &y, counts, offsets, I32, NULL));
    FAILS(ARGUMENT, "beyond", antiphon_all_gather_v(c, &x, 1, &y, counts, offsets, I32, NULL));
    FAILS(ARGUMENT, "`receive_counts`", antiphon_all_gather_v(c, &x, 1, &y, NULL, offsets, I32, NULL));
    FAILS(ARGUMENT, "`send_counts`", antiphon_all_to_all_v(c, &x, NULL, offsets, &y, counts, offsets, I32, NULL));
    FAILS(ARGUMENT, "`send_offsets`", antiphon_all_to_all_v(c, &x, counts, odd, &y, counts, offsets, I32, NULL));
    FAILS(ARGUMENT, "`receive_counts`", antiphon_all_gather_v(c, &x, 1, &y, odd, offsets, I32, NULL));

    /* A factor that a call reads is an element; one that is read at once may lie anywhere. */
    memcpy(bytes + 1, &x, sizeof x);
    FAILS(ARGUMENT, "`factor`", antiphon_op_create_scaled_sum(c, bytes + 1, I32, ANTIPHON_SWITCH_ON, &op));
    OK(antiphon_op_create_scaled_sum(c, bytes + 1, I32, ANTIPHON_SWITCH_DEFAULT, &op));
    OK(antiphon_all_reduce(c, &x, &y, 1, I32, op, NULL));
    CHECK(y == 1);
    OK(antiphon_op_destroy(c, op));

    config.struct_size = 8;
    FAILS(ARGUMENT, "struct_size", antiphon_communicator_create_in_process(1, &config, &other));
    config.struct_size = sizeof config;
    config.verification = 9;
    FAILS(ARGUMENT, "switch", antiphon_communicator_create_in_process(1, &config, &other));
    config.verification = 0;
    config.device = "gpu";
    FAILS(ARGUMENT, "config.device", antiphon_communicator_create_in_process(1, &config, &other));
    config.device = "host,host";
    FAILS(ARGUMENT, "2 devices", antiphon_communicator_create_in_process(1, &config, &other));
    /* A driver that is not there, or a backend that was not built in. */
    config.device = "cuda:0";
    FAILS(ANTIPHON_RESULT_SYSTEM, "", antiphon_communicator_create_in_process(1, &config, &other));
    config.device = NULL;

    OK(antiphon_executor_create(c, &executor));
    FAILS(ANTIPHON_RESULT_FILE, "no/such", antiphon_plan_load_file(executor, "no/such", &plan));
    FAILS(ARGUMENT, "null", antiphon_plan_load_file(executor, NULL, &plan));
    FAILS(ANTIPHON_RESULT_INVALID_PLAN, "memory", antiphon_plan_load_bytes(executor, "[]", 2, &plan));
    FAILS(ARGUMENT, "bytes", antiphon_plan_load_bytes(executor, NULL, 2, &plan));
    FAILS(ARGUMENT, "allreduce_ring", antiphon_plan_load_name(executor, "bubble_sort", 0, 0, &plan));
    FAILS(ARGUMENT, "in_place", antiphon_plan_load_name(executor, "allreduce_ring", 2, 0, &plan));
    OK(antiphon_plan_load_name(executor, "allreduce_ring", 0, 0, &plan));
    FAILS(ARGUMENT, "send_buffer", antiphon_execute(executor, plan, NULL, 4, &y, 4, I32, 0, NULL));
    CHECK(antiphon_execute(executor, plan, &x, 3, &y, 3, I32, 0, NULL) != ANTIPHON_RESULT_SUCCESS);

    /* A handle of another kind, and one that is destroyed. */
    FAILS(HANDLE, "another kind", antiphon_barrier((antiphon_communicator *)executor));
    FAILS(HANDLE, "another kind", antiphon_executor_destroy((antiphon_executor *)plan));
    FAILS(HANDLE, "another kind", antiphon_all_reduce(c, &x, &y, 1, I32, 0, (antiphon_stream *)plan));
    OK(antiphon_plan_destroy(plan));
    FAILS(HANDLE, "destroyed", antiphon_plan_destroy(plan));
    FAILS(HANDLE, "destroyed", antiphon_execute(executor, plan, &x, 4, &y, 4, I32, 0, NULL));
    OK(antiphon_stream_create(c, &stream));
    OK(antiphon_stream_destroy(stream));
    FAILS(HANDLE, "destroyed", antiphon_all_reduce(c, &x, &y, 1, I32, 0, stream));
    OK(antiphon_executor_destroy(executor));

    /* After all that, the communicator still works. */
    OK(antiphon_all_reduce(c, &x, &y, 1, I32, 0, NULL));
    CHECK(y == 1);
}

static void *other_thread(void *argument)
{
    (void)argument;
    CHECK(strlen(antiphon_last_error()) == 0);
    return NULL;
}

/* What breaks a communicator is told by every later call, and by the one that asks. */
static void aborted(void)
{
    antiphon_communicator *ranks[2];
    antiphon_result result = ANTIPHON_RESULT_SUCCESS;
    int32_t x = 1;
    OK(antiphon_communicator_create_in_process(2, NULL, ranks));
    /* Of what is no UTF-8 the rest is told. */
    OK(antiphon_communicator_abort(ranks[0], "\xff: enough of it"));
    FAILS(ANTIPHON_RESULT_ABORTED, "enough of it",
          antiphon_all_reduce(ranks[0], &x, &x, 1, ANTIPHON_DTYPE_I32, 0, NULL));
    FAILS(ANTIPHON_RESULT_ABORTED, "enough of it",
          antiphon_all_reduce(ranks[1], &x, &x, 1, ANTIPHON_DTYPE_I32, 0, NULL));
    OK(antiphon_communicator_async_error(ranks[1], &result));
    CHECK(result == ANTIPHON_RESULT_ABORTED);
    OK(antiphon_communicator_destroy(ranks[0]));
    OK(antiphon_communicator_destroy(ranks[1]));

    /* The same by an executor, which code has of its call. */
    antiphon_executor *executor = NULL;
    OK(antiphon_communicator_create_in_process(2, NULL, ranks));
    OK(antiphon_executor_create(ranks[0], &executor));
    OK(antiphon_executor_abort(executor, "enough of that"));
    FAILS(ANTIPHON_RESULT_ABORTED, "enough of that", antiphon_barrier(ranks[1]));
    OK(antiphon_executor_destroy(executor));
    OK(antiphon_communicator_destroy(ranks[0]));
    OK(antiphon_communicator_destroy(ranks[1]));
}

/* A call that the other rank never makes ends. */
static void timed_out(void)
{
    antiphon_communicator *ranks[2];
    antiphon_config config = ANTIPHON_CONFIG_INIT;
    int32_t x = 1;
    config.timeout_ms = 5000;
    OK(antiphon_communicator_create_in_process(2, &config, ranks));
    FAILS(ANTIPHON_RESULT_TIMEOUT, "no progress",
          antiphon_all_reduce(ranks[0], &x, &x, 1, ANTIPHON_DTYPE_I32, 0, NULL));
    OK(antiphon_communicator_destroy(ranks[0]));
    OK(antiphon_communicator_destroy(ranks[1]));
}

/* What a forked child does to the communicators of its parent leaves them as they are. */
static void forked(void)
{
    antiphon_communicator *ends[2];
    float in[2] = {1, 2}, out[2] = {0, 0};
    pid_t child;
    int status, rank;
    OK(antiphon_communicator_create_in_process(2, NULL, ends));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "fork", antiphon_communicator_abort(ends[0], "enough"));
        OK(antiphon_communicator_destroy(ends[0]));
        execl("/bin/true", "true", (char *)NULL);
        _exit(EXIT_FAILURE);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
    OK(antiphon_group_begin());
    for (rank = 0; rank < 2; rank++) {
        OK(antiphon_all_reduce(ends[rank], &in[rank], &out[rank], 1, ANTIPHON_DTYPE_F32, ANTIPHON_OP_SUM, NULL));
    }
    OK(antiphon_group_end());
    CHECK(out[0] == 3 && out[1] == 3);
    OK(antiphon_communicator_destroy(ends[0]));
    OK(antiphon_communicator_destroy(ends[1]));
}

int main(void)
{
    antiphon_communicator *c = NULL;
    pthread_t thread;
    CHECK(strlen(antiphon_last_error()) == 0);
    CHECK(strcmp(antiphon_result_text(ANTIPHON_RESULT_ABORTED), "aborted") == 0);
    CHECK(strcmp(antiphon_result_text(-5), "unknown result") == 0);
    CHECK(antiphon_dtype_size(ANTIPHON_DTYPE_BF16) == 2 && antiphon_dtype_size(99) == 0);
    OK(antiphon_communicator_create_in_process(1, NULL, &c));
    nulls(c);
    arguments(c);
    CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(antiphon_communicator_destroy(c));
    FAILS(HANDLE, "destroyed", antiphon_communicator_destroy(c));
    aborted();
    timed_out();
    forked();
    puts("misuse: ok");
    return EXIT_SUCCESS;
}
