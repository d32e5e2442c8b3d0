/* A process for each rank, which a launcher or a shell started: sums a vector over all of them. */
#include <antiphon.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int32_t result)
{
    if (result != ANTIPHON_RESULT_SUCCESS) {
        fprintf(stderr, "%s\n", antiphon_last_error());
        exit(EXIT_FAILURE);
    }
}

int main(void)
{
    enum { ELEMENTS = 1 << 20 };
    antiphon_communicator *communicator = NULL;
    float *sums = malloc(ELEMENTS * sizeof *sums);
    uint32_t rank, world;
    int i;

    check(antiphon_communicator_create_from_environment(NULL, &communicator));
    check(antiphon_communicator_rank(communicator, &rank));
    check(antiphon_communicator_world(communicator, &world));
    if (!sums) {
        return EXIT_FAILURE;
    }
    for (i = 0; i < ELEMENTS; i++) {
        sums[i] = (float)(rank + 1);
    }
    check(antiphon_all_reduce(communicator, sums, sums, ELEMENTS, ANTIPHON_DTYPE_F32, ANTIPHON_OP_SUM, NULL));
    for (i = 0; i < ELEMENTS; i++) {
        if (sums[i] != (float)(world * (world + 1) / 2)) {
            fprintf(stderr, "rank %u: element %d is %g\n", (unsigned)rank, i, (double)sums[i]);
            return EXIT_FAILURE;
        }
    }
    printf("rank %u of %u: every element is %g\n", (unsigned)rank, (unsigned)world, (double)sums[0]);
    free(sums);
    check(antiphon_communicator_destroy(communicator));
    return EXIT_SUCCESS;
}
