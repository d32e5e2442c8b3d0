/* A process for each rank: sums a vector over all of them, and computes something else meanwhile. */
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
    enum { ELEMENTS = 1 << 16, STEPS = 1 << 18 };
    antiphon_communicator *communicator = NULL;
    antiphon_stream *stream = NULL;
    float *sums = malloc(ELEMENTS * sizeof *sums);
    double other = 0;
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
    check(antiphon_stream_create(communicator, &stream));
    /* Returns at once. Until the stream is synchronized, `sums` belongs to the call. */
    check(antiphon_all_reduce(communicator, sums, sums, ELEMENTS, ANTIPHON_DTYPE_F32, ANTIPHON_OP_SUM, stream));
    for (i = 0; i < STEPS; i++) {
        other += 1.0 / ((double)i * i + 1.0);
    }
    check(antiphon_stream_synchronize(stream));
    for (i = 0; i < ELEMENTS; i++) {
        if (sums[i] != (float)(world * (world + 1) / 2)) {
            fprintf(stderr, "rank %u: element %d is %g\n", (unsigned)rank, i, (double)sums[i]);
            return EXIT_FAILURE;
        }
    }
    printf("rank %u of %u: every element is %g, and %.3f meanwhile\n", (unsigned)rank, (unsigned)world, (double)sums[0], other);
    free(sums);
    check(antiphon_stream_destroy(stream));
    check(antiphon_communicator_destroy(communicator));
    return EXIT_SUCCESS;
}
