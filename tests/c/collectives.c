/* Every function that does something, over threads of this process. With a path: that of a plan for four ranks. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { WORLD = 4, COUNT = 1000 };

static const char *plan_path;

/* A number that is different everywhere. */
static int32_t value(uint32_t rank, uint32_t index)
{
    return (int32_t)(rank * 7 + index * 3) % 101 + 1;
}

static int32_t sum(uint32_t index)
{
    int32_t total = 0;
    uint32_t rank;
    for (rank = 0; rank < WORLD; rank++) {
        total += value(rank, index);
    }
    return total;
}

static void fill(int32_t *buffer, uint32_t rank, uint32_t len)
{
    uint32_t i;
    for (i = 0; i < len; i++) {
        buffer[i] = value(rank, i);
    }
}

static void collectives(antiphon_communicator *c, uint32_t me, antiphon_stream *stream)
{
    static const int32_t I32 = ANTIPHON_DTYPE_I32, SUM = ANTIPHON_OP_SUM;
    int32_t *in = (int32_t *)calloc(WORLD * COUNT, sizeof *in);
    int32_t *out = (int32_t *)calloc(WORLD * COUNT, sizeof *out);
    uint32_t i, rank, root;
    CHECK(in && out);
#define DONE()                                   \
    do {                                         \
        if (stream) {                            \
            OK(antiphon_stream_synchronize(stream)); \
        }                                        \
    } while (0)

    fill(in, me, COUNT);
    OK(antiphon_all_reduce(c, in, out, COUNT, I32, SUM, stream));
    DONE();
    for (i = 0; i < COUNT; i++) {
        CHECK(out[i] == sum(i));
    }
    OK(antiphon_all_reduce(c, in, in, COUNT, I32, ANTIPHON_OP_MAX, stream));
    DONE();
    for (i = 0; i < COUNT; i++) {
        CHECK(in[i] >= value(me, i));
    }

    fill(in, me, COUNT);
    OK(antiphon_all_gather(c, in, out, COUNT, I32, stream));
    DONE();
    for (rank = 0; rank < WORLD; rank++) {
        for (i = 0; i < COUNT; i++) {
            CHECK(out[rank * COUNT + i] == value(rank, i));
        }
    }

    fill(in, me, WORLD * COUNT);
    OK(antiphon_reduce_scatter(c, in, out, COUNT, I32, SUM, stream));
    DONE();
    for (i = 0; i < COUNT; i++) {
        CHECK(out[i] == sum(me * COUNT + i));
    }

    OK(antiphon_all_to_all(c, in, out, COUNT, I32, stream));
    DONE();
    for (rank = 0; rank < WORLD; rank++) {
        for (i = 0; i < COUNT; i++) {
            CHECK(out[rank * COUNT + i] == value(rank, me * COUNT + i));
        }
    }

    for (root = 0; root < WORLD; root++) {
        memset(out, 0, WORLD * COUNT * sizeof *out);
        OK(antiphon_broadcast(c, me == root ? in : NULL, out, COUNT, I32, root, stream));
        DONE();
        for (i = 0; i < COUNT; i++) {
            CHECK(out[i] == value(root, i));
        }
        OK(antiphon_reduce(c, in, me == root ? out : NULL, COUNT, I32, SUM, root, stream));
        DONE();
        for (i = 0; me == root && i < COUNT; i++) {
            CHECK(out[i] == sum(i));
        }
        OK(antiphon_gather(c, in, me == root ? out : NULL, COUNT, I32, root, stream));
        DONE();
        for (i = 0; me == root && i < WORLD * COUNT; i++) {
            CHECK(out[i] == value(i / COUNT, i % COUNT));
        }
        OK(antiphon_scatter(c, me == root ? in : NULL, out, COUNT, I32, root, stream));
        DONE();
        for (i = 0; i < COUNT; i++) {
            CHECK(out[i] == value(root, me * COUNT + i));
        }
        /* In place where that concerns the root alone. */
        fill(out, me, WORLD * COUNT);
        OK(antiphon_gather(c, me == root ? out + me * COUNT : in, out, COUNT, I32, root, stream));
        DONE();
        for (rank = 0; me == root && rank < WORLD; rank++) {
            CHECK(out[rank * COUNT] == value(rank, rank == root ? rank * COUNT : 0));
        }
    }

    {
        /* Rank r sends r + s + 1 elements to rank s, from the end of its buffer to the beginning. */
        uint64_t send_counts[WORLD], send_offsets[WORLD], counts[WORLD], offsets[WORLD], at = 0;
        for (rank = 0; rank < WORLD; rank++) {
            send_counts[rank] = counts[rank] = me + rank + 1;
            send_offsets[rank] = (uint64_t)(WORLD - rank) * 10;
            offsets[rank] = at;
            at += counts[rank];
        }
        OK(antiphon_all_to_all_v(c, in, send_counts, send_offsets, out, counts, offsets, I32, stream));
        DONE();
        for (rank = 0; rank < WORLD; rank++) {
            for (i = 0; i < counts[rank]; i++) {
                CHECK(out[offsets[rank] + i] == value(rank, (WORLD - me) * 10 + i));
            }
        }
        /* Nobody sends to rank 0, so that it does not count where that would lie. */
        send_counts[0] = 0;
        send_offsets[0] = UINT64_MAX;
        for (rank = 0; me == 0 && rank < WORLD; rank++) {
            counts[rank] = 0;
            offsets[rank] = UINT64_MAX;
        }
        OK(antiphon_all_to_all_v(c, in, send_counts, send_offsets, out, counts, offsets, I32, stream));
        DONE();
        for (rank = 0; me != 0 && rank < WORLD; rank++) {
            CHECK(out[offsets[rank]] == value(rank, (WORLD - me) * 10));
        }
    }

    {
        /* Rank r gives 2 r + 1 elements, with one between the blocks; in place on odd ranks. */
        uint64_t counts[WORLD], offsets[WORLD], at = 0;
        for (rank = 0; rank < WORLD; rank++) {
            counts[rank] = 2 * rank + 1;
            offsets[rank] = at;
            at += counts[rank] + 1;
        }
        fill(out, me, at);
        for (i = 0; i < counts[me]; i++) {
            out[offsets[me] + i] = value(me, i);
        }
        OK(antiphon_all_gather_v(c, me % 2 ? out + offsets[me] : in, counts[me], out, counts, offsets, I32, stream));
        DONE();
        for (rank = 0; rank < WORLD; rank++) {
            for (i = 0; i < counts[rank]; i++) {
                CHECK(out[offsets[rank] + i] == value(rank, i));
            }
            CHECK(out[offsets[rank] + counts[rank]] == value(me, offsets[rank] + counts[rank]));
        }
    }

    /* Round the ring. */
    if (me == 0) {
        OK(antiphon_send(c, in, COUNT, I32, 1, stream));
    }
    OK(antiphon_receive(c, out, COUNT, I32, (me + WORLD - 1) % WORLD, stream));
    if (me > 0) {
        OK(antiphon_send(c, in, COUNT, I32, (me + 1) % WORLD, stream));
    }
    DONE();
    for (i = 0; i < COUNT; i++) {
        CHECK(out[i] == value((me + WORLD - 1) % WORLD, i));
    }
    OK(antiphon_all_reduce(c, NULL, NULL, 0, I32, SUM, stream));
    DONE();
    OK(antiphon_barrier(c));
    free(in);
    free(out);
}

/* Runs a plan in memory that peers map. */
static void run_plan(antiphon_communicator *c, antiphon_executor *executor, antiphon_plan *plan, uint32_t me)
{
    antiphon_memory *memory = NULL;
    void *address = NULL;
    float *in, *out;
    uint32_t i;
    OK(antiphon_memory_allocate(c, 2 * COUNT * sizeof(float), &memory));
    OK(antiphon_memory_address(memory, &address));
    in = (float *)address;
    out = in + COUNT;
    for (i = 0; i < COUNT; i++) {
        in[i] = (float)(me + i);
    }
    OK(antiphon_execute(executor, plan, in, COUNT * sizeof(float), out, COUNT * sizeof(float), ANTIPHON_DTYPE_F32,
                        ANTIPHON_OP_OF_PLAN, NULL));
    for (i = 0; i < COUNT; i++) {
        CHECK(out[i] == (float)(6 + 4 * i));
    }
    OK(antiphon_barrier(c));
    OK(antiphon_memory_free(memory));
}

static void plans(antiphon_communicator *c, uint32_t me)
{
    antiphon_executor *executor = NULL;
    antiphon_plan *plan = NULL;
    antiphon_verdict verdict = ANTIPHON_VERDICT_NOT_VERIFIED;
    uint64_t bytes = 0;
    char *report;
    OK(antiphon_executor_create(c, &executor));
    OK(antiphon_plan_load_name(executor, "allreduce_ring", 0, 0, &plan));
    OK(antiphon_plan_verdict(plan, &verdict));
    CHECK(verdict == ANTIPHON_VERDICT_PROVEN);
    OK(antiphon_plan_report(plan, NULL, 0, &bytes));
    report = (char *)malloc(bytes);
    CHECK(report && bytes > 1);
    FAILS(ANTIPHON_RESULT_BUFFER_TOO_SMALL, "needed", antiphon_plan_report(plan, report, bytes - 1, &bytes));
    OK(antiphon_plan_report(plan, report, bytes, &bytes));
    CHECK(strlen(report) + 1 == bytes && strstr(report, "proven") != NULL);
    free(report);
    run_plan(c, executor, plan, me);
    OK(antiphon_plan_destroy(plan));
    if (plan_path) {
        FILE *file = fopen(plan_path, "rb");
        char *text = (char *)malloc(1 << 20);
        size_t size;
        CHECK(file && text);
        size = fread(text, 1, 1 << 20, file);
        fclose(file);
        OK(antiphon_plan_load_file(executor, plan_path, &plan));
        run_plan(c, executor, plan, me);
        OK(antiphon_plan_destroy(plan));
        OK(antiphon_plan_load_bytes(executor, text, size, &plan));
        free(text);
        run_plan(c, executor, plan, me);
        OK(antiphon_plan_destroy(plan));
    }
    OK(antiphon_executor_destroy(executor));
}

static void *rank_main(void *argument)
{
    antiphon_communicator *c = (antiphon_communicator *)argument, *half = NULL;
    antiphon_stream *stream = NULL;
    antiphon_result error = ANTIPHON_RESULT_INTERNAL;
    uint32_t me = 99, world = 0, rank = 99, node = 99, last = 98;
    int32_t done = 0;
    OK(antiphon_communicator_rank(c, &me));
    OK(antiphon_communicator_world(c, &world));
    CHECK(me < WORLD && world == WORLD);
    uint32_t all[WORLD] = {0}, own = me * 7 + 1;
    OK(antiphon_communicator_exchange(c, &own, sizeof own, all));
    for (uint32_t rank = 0; rank < WORLD; rank++) CHECK(all[rank] == rank * 7 + 1);
    OK(antiphon_communicator_exchange(c, NULL, 0, NULL));
    /* Ranks that give other lengths are told which. */
    char few[2 * WORLD];
    antiphon_result unequal = antiphon_communicator_exchange(c, "ab", me == 1 ? 2 : 1, few);
    CHECK(unequal == ANTIPHON_RESULT_MISMATCH);
    CHECK(strstr(antiphon_last_error(), me == 1 ? "rank 0 gave 1" : "rank 1 gave 2"));
    OK(antiphon_communicator_make_current(c));
    OK(antiphon_communicator_node(c, me, &node));
    OK(antiphon_communicator_node(c, WORLD - 1, &last));
    CHECK(node == last);

    collectives(c, me, NULL);
    OK(antiphon_stream_create(c, &stream));
    collectives(c, me, stream);
    OK(antiphon_stream_query(stream, &done));
    CHECK(done == 1);
    OK(antiphon_stream_destroy(stream));
    plans(c, me);

    /* The first two, in the other order; the others are in no group. */
    OK(antiphon_communicator_split(c, me < 2 ? 5 : -1, 0u - me, &half));
    CHECK((half == NULL) == (me >= 2));
    if (half) {
        int32_t one = 1;
        OK(antiphon_communicator_rank(half, &rank));
        CHECK(rank == 1 - me);
        OK(antiphon_all_reduce(half, &one, &one, 1, ANTIPHON_DTYPE_I32, ANTIPHON_OP_SUM, NULL));
        CHECK(one == 2);
        OK(antiphon_communicator_destroy(half));
    }
    OK(antiphon_communicator_async_error(c, &error));
    CHECK(error == ANTIPHON_RESULT_SUCCESS);
    OK(antiphon_barrier(c));
    return NULL;
}

/* A place of this host that nobody else has. */
static char place[64];

/* Joins the others at the place, as the rank whose number this is. */
static void *join_at_place(void *argument)
{
    uint32_t me = *(const uint32_t *)argument, rank = 99, world = 0;
    antiphon_config config = ANTIPHON_CONFIG_INIT;
    antiphon_communicator *c = NULL;
    int32_t number = value(me, 0);
    config.timeout_ms = 120000;
    OK(antiphon_communicator_create_at(place, me, WORLD, &config, &c));
    OK(antiphon_communicator_rank(c, &rank));
    OK(antiphon_communicator_world(c, &world));
    CHECK(rank == me && world == WORLD);
    OK(antiphon_all_reduce(c, &number, &number, 1, ANTIPHON_DTYPE_I32, ANTIPHON_OP_SUM, NULL));
    CHECK(number == sum(0));
    OK(antiphon_communicator_destroy(c));
    return NULL;
}

static void meet_at_place(void)
{
    uint32_t numbers[WORLD], rank;
    pthread_t threads[WORLD];
    snprintf(place, sizeof place, "antiphon-%016llx%016llx", (unsigned long long)time(NULL), (unsigned long long)getpid());
    for (rank = 0; rank < WORLD; rank++) {
        numbers[rank] = rank;
        CHECK(pthread_create(&threads[rank], NULL, join_at_place, &numbers[rank]) == 0);
    }
    for (rank = 0; rank < WORLD; rank++) {
        CHECK(pthread_join(threads[rank], NULL) == 0);
    }
}

int main(int argc, char **argv)
{
    antiphon_communicator *ranks[WORLD];
    antiphon_config config = ANTIPHON_CONFIG_INIT;
    pthread_t threads[WORLD];
    uint32_t local = 0;
    int i;
    plan_path = argc > 1 ? argv[1] : NULL;
    CHECK(antiphon_abi_version() >> 16 == ANTIPHON_ABI_MAJOR);
    CHECK(strlen(antiphon_version()) > 0);
    CHECK(!setenv("ANTIPHON_LOCAL_RANK", "3", 1));
    OK(antiphon_local_rank(&local));
    CHECK(local == 3 && !unsetenv("ANTIPHON_LOCAL_RANK"));
    config.timeout_ms = 120000;
    OK(antiphon_communicator_create_in_process(WORLD, &config, ranks));
    for (i = 0; i < WORLD; i++) {
        CHECK(pthread_create(&threads[i], NULL, rank_main, ranks[i]) == 0);
    }
    for (i = 0; i < WORLD; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    for (i = 0; i < WORLD; i++) {
        OK(antiphon_communicator_destroy(ranks[i]));
    }
    meet_at_place();
    puts("collectives: ok");
    return EXIT_SUCCESS;
}
