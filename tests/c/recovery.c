/* Three ranks, each a process, of which the last one dies: the others find out which, and go on without it. */
#define _POSIX_C_SOURCE 200809L

#include "check.h"
#include <signal.h>

#define WORLD 3
#define COUNT 1000

static antiphon_result sum(antiphon_communicator *communicator, uint32_t expected)
{
    int32_t numbers[COUNT];
    antiphon_result result;
    int i;

    for (i = 0; i < COUNT; i++) {
        numbers[i] = 1;
    }
    result = antiphon_all_reduce(communicator, numbers, numbers, COUNT, ANTIPHON_DTYPE_I32, ANTIPHON_OP_SUM, NULL);
    for (i = 0; i < COUNT && result == ANTIPHON_RESULT_SUCCESS; i++) {
        CHECK(numbers[i] == (int32_t)expected);
    }
    return result;
}

static int is_of_a_loss(antiphon_result result)
{
    return result == ANTIPHON_RESULT_PEER_LOST || result == ANTIPHON_RESULT_ABORTED;
}

/* As docs/recovery.md has it. */
static antiphon_communicator *without_the_lost(antiphon_communicator *whole)
{
    uint32_t lost[WORLD], left[WORLD], lost_count, left_count, rank, i;
    antiphon_communicator *rest = NULL;
    antiphon_result result;

    OK(antiphon_communicator_abort(whole, "a rank is lost"));
    do {
        OK(antiphon_communicator_lost(whole, lost, WORLD, &lost_count));
        left_count = 0;
        for (rank = 0; rank < WORLD; rank++) {
            for (i = 0; i < lost_count && lost[i] != rank; i++) {
            }
            if (i == lost_count) {
                left[left_count++] = rank;
            }
        }
        result = antiphon_communicator_subset(whole, left, left_count, &rest);
    } while (is_of_a_loss(result));
    OK(result);
    return rest;
}

int main(void)
{
    antiphon_communicator *whole, *rest;
    antiphon_result result, broken;
    uint32_t rank, world, count, lost[1] = {WORLD};

    OK(antiphon_communicator_create_from_environment(NULL, &whole));
    OK(antiphon_communicator_rank(whole, &rank));
    OK(antiphon_communicator_lost(whole, NULL, 0, &count));
    CHECK(count == 0);
    CHECK(antiphon_last_error_peer() == -1);
    OK(sum(whole, WORLD));
    if (rank == WORLD - 1) {
        raise(SIGKILL);
    }
    do {
        result = sum(whole, WORLD);
    } while (result == ANTIPHON_RESULT_SUCCESS);
    CHECK(is_of_a_loss(result));
    CHECK(antiphon_last_error_peer() == (result == ANTIPHON_RESULT_ABORTED ? (int32_t)(1 - rank) : WORLD - 1));
    OK(antiphon_communicator_async_error(whole, &broken));
    CHECK(is_of_a_loss(broken));

    rest = without_the_lost(whole);
    OK(antiphon_communicator_world(rest, &world));
    CHECK(world == WORLD - 1);
    OK(sum(rest, WORLD - 1));
    OK(antiphon_communicator_lost(whole, NULL, 0, &count));
    CHECK(count == 1 && lost[0] == WORLD);
    OK(antiphon_communicator_lost(whole, lost, 1, &count));
    CHECK(count == 1 && lost[0] == WORLD - 1);
    FAILS(ANTIPHON_RESULT_BUFFER_TOO_SMALL, "needed 1", antiphon_communicator_lost(whole, &rank, 0, &count));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "out_ranks", antiphon_communicator_lost(whole, NULL, 1, &count));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "out_count", antiphon_communicator_lost(whole, lost, 1, NULL));
    FAILS(ANTIPHON_RESULT_INVALID_HANDLE, "null", antiphon_communicator_lost(NULL, lost, 1, &count));
    OK(antiphon_barrier(rest));
    OK(antiphon_communicator_destroy(rest));
    OK(antiphon_communicator_destroy(whole));
    printf("recovery: ok, %u of %u\n", rank, world);
    return EXIT_SUCCESS;
}
