/* Groups, transfers, reductions that a program makes, and communicators of some ranks: one thread drives all ranks. */
#include "check.h"

enum { WORLD = 3, COUNT = 1000, MESSAGES = 2 };

static void everyone(antiphon_communicator **ends)
{
    static float sent[WORLD][COUNT], sums[WORLD][COUNT];
    static int32_t out[WORLD][WORLD][MESSAGES], in[WORLD][WORLD][MESSAGES];
    int rank, peer, number, i;

    memset(sums, 0, sizeof sums);
    OK(antiphon_group_begin());
    for (rank = 0; rank < WORLD; rank++) {
        for (i = 0; i < COUNT; i++) {
            sent[rank][i] = (float)(rank + i);
        }
        OK(antiphon_all_reduce(ends[rank], sent[rank], sums[rank], COUNT, ANTIPHON_DTYPE_F32,
                               ANTIPHON_OP_SUM, NULL));
    }
    /* A group in a group, and every rank sends before it receives, itself included. */
    OK(antiphon_group_begin());
    for (rank = 0; rank < WORLD; rank++) {
        for (peer = 0; peer < WORLD; peer++) {
            for (number = 0; number < MESSAGES; number++) {
                out[rank][peer][number] = 100 * rank + 10 * peer + number;
                OK(antiphon_send(ends[rank], &out[rank][peer][number], 1, ANTIPHON_DTYPE_I32,
                                 (uint32_t)peer, NULL));
            }
            for (number = 0; number < MESSAGES; number++) {
                OK(antiphon_receive(ends[rank], &in[rank][peer][number], 1, ANTIPHON_DTYPE_I32,
                                    (uint32_t)peer, NULL));
            }
        }
    }
    OK(antiphon_group_end());
    CHECK(sums[0][1] == 0.0f);
    OK(antiphon_group_end());
    for (rank = 0; rank < WORLD; rank++) {
        for (i = 0; i < COUNT; i++) {
            CHECK(sums[rank][i] == (float)(3 * i + 3));
        }
        for (peer = 0; peer < WORLD; peer++) {
            for (number = 0; number < MESSAGES; number++) {
                CHECK(in[rank][peer][number] == 100 * peer + 10 * rank + number);
            }
        }
    }
}

static void products(antiphon_communicator **ends)
{
    double factors[WORLD], value[WORLD], sum[WORLD];
    int32_t ops[WORLD], other = 0;
    int rank, deferred;

    for (deferred = 0; deferred < 2; deferred++) {
        for (rank = 0; rank < WORLD; rank++) {
            factors[rank] = rank + 1;
            value[rank] = 10;
            OK(antiphon_op_create_scaled_sum(ends[rank], &factors[rank], ANTIPHON_DTYPE_F64,
                                             deferred ? ANTIPHON_SWITCH_ON : ANTIPHON_SWITCH_DEFAULT,
                                             &ops[rank]));
            factors[rank] *= 2;
        }
        OK(antiphon_group_begin());
        for (rank = 0; rank < WORLD; rank++) {
            OK(antiphon_all_reduce(ends[rank], &value[rank], &sum[rank], 1, ANTIPHON_DTYPE_F64, ops[rank],
                                   NULL));
        }
        OK(antiphon_group_end());
        for (rank = 0; rank < WORLD; rank++) {
            CHECK(sum[rank] == (deferred ? 120 : 60));
        }
        FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "made for f64",
              antiphon_reduce(ends[0], value, sum, 1, ANTIPHON_DTYPE_F32, ops[0], 0, NULL));
        FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "for this communicator",
              antiphon_reduce(ends[1], value, sum, 1, ANTIPHON_DTYPE_F64, ops[0], 0, NULL));
        FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "for this communicator", antiphon_op_destroy(ends[1], ops[0]));
        for (rank = 0; rank < WORLD; rank++) {
            OK(antiphon_op_destroy(ends[rank], ops[rank]));
        }
        FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "destroy", antiphon_op_destroy(ends[0], ops[0]));
    }
    FAILS(ANTIPHON_RESULT_INVALID_HANDLE, "null",
          antiphon_op_create_scaled_sum(NULL, factors, ANTIPHON_DTYPE_F64, 0, &other));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`factor`",
          antiphon_op_create_scaled_sum(ends[0], NULL, ANTIPHON_DTYPE_F64, 0, &other));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "out_op",
          antiphon_op_create_scaled_sum(ends[0], factors, ANTIPHON_DTYPE_F64, 0, NULL));
}

static void refusals(antiphon_communicator **ends)
{
    float x = 1, y = 0;
    const uint32_t twice[2] = {0, 0};
    antiphon_communicator *some = NULL;
    antiphon_memory *memory = NULL;

    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "end a group", antiphon_group_end());
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "other ranks",
          antiphon_send(ends[0], &x, 1, ANTIPHON_DTYPE_F32, 0, NULL));
    /* A call that is refused takes the whole group with it. */
    OK(antiphon_group_begin());
    OK(antiphon_send(ends[0], &x, 1, ANTIPHON_DTYPE_F32, 0, NULL));
    OK(antiphon_receive(ends[0], &y, 1, ANTIPHON_DTYPE_F32, 0, NULL));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "rank 9", antiphon_send(ends[0], &x, 1, ANTIPHON_DTYPE_F32, 9, NULL));
    FAILS(ANTIPHON_RESULT_UNSUPPORTED, "inside a group", antiphon_barrier(ends[0]));
    FAILS(ANTIPHON_RESULT_UNSUPPORTED, "inside a group",
          antiphon_execute(NULL, NULL, &x, 4, &y, 4, ANTIPHON_DTYPE_F32, ANTIPHON_OP_SUM, NULL));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "rank 9", antiphon_group_end());
    CHECK(y == 0);
    OK(antiphon_group_begin());
    OK(antiphon_all_reduce(ends[0], &x, &y, 1, ANTIPHON_DTYPE_F32, ANTIPHON_OP_SUM, NULL));
    OK(antiphon_group_cancel());
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "end a group", antiphon_group_end());

    FAILS(ANTIPHON_RESULT_INVALID_HANDLE, "null", antiphon_communicator_subset(NULL, twice, 1, &some));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`ranks`", antiphon_communicator_subset(ends[0], NULL, 1, &some));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "twice", antiphon_communicator_subset(ends[0], twice, 2, &some));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "out_communicator",
          antiphon_communicator_subset(ends[0], twice, 1, NULL));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "out_memory", antiphon_memory_allocate_host(1, NULL));
    CHECK(antiphon_memory_allocate_host(UINT64_MAX, &memory) != ANTIPHON_RESULT_SUCCESS);
}

/* One rank by itself, in memory of the host, when all else is over. */
static void some(antiphon_communicator **ends)
{
    const uint32_t alone = 1;
    antiphon_communicator *end = NULL;
    antiphon_memory *memory = NULL;
    void *address = NULL;
    int32_t *numbers;
    uint32_t world = 0;

    OK(antiphon_communicator_abort(ends[0], "over"));
    OK(antiphon_communicator_subset(ends[1], &alone, 1, &end));
    OK(antiphon_communicator_world(end, &world));
    CHECK(world == 1);
    OK(antiphon_memory_allocate_host(2 * sizeof *numbers, &memory));
    OK(antiphon_memory_address(memory, &address));
    numbers = (int32_t *)address;
    CHECK(numbers[0] == 0 && numbers[1] == 0);
    numbers[0] = 7;
    OK(antiphon_all_reduce(end, &numbers[0], &numbers[1], 1, ANTIPHON_DTYPE_I32, ANTIPHON_OP_MAX, NULL));
    CHECK(numbers[1] == 7);
    OK(antiphon_communicator_destroy(end));
    OK(antiphon_memory_free(memory));
}

int main(void)
{
    antiphon_communicator *ends[WORLD];
    int rank;

    OK(antiphon_communicator_create_in_process(WORLD, NULL, ends));
    everyone(ends);
    everyone(ends);
    products(ends);
    refusals(ends);
    some(ends);
    for (rank = 0; rank < WORLD; rank++) {
        OK(antiphon_communicator_destroy(ends[rank]));
    }
    printf("groups: ok\n");
    return EXIT_SUCCESS;
}
