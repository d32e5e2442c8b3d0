/* The MPI subject: one source for Open MPI, MPICH and (through MPICH's ABI) Intel MPI. */
#include "harness.h"

#include <mpi.h>
#include <stdlib.h>

static int init(struct harness *h, int *rank, int *ranks) {
    (void)h;
    if (MPI_Init(NULL, NULL)) return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, ranks);
    return 0;
}

static void *allocate(size_t bytes) {
    void *memory = NULL;
    return posix_memalign(&memory, 4096, bytes) ? NULL : memory;
}

static void release(void *memory, size_t bytes) {
    (void)bytes;
    free(memory);
}

static int prepare(const struct job *job) {
    (void)job;
    return 0;
}

static int run(const struct job *job) {
    const void *in = job->in_place ? MPI_IN_PLACE : job->in;
    int n = (int)job->count;
    switch (job->collective) {
    case ALLREDUCE: return MPI_Allreduce(in, job->out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    case ALLGATHER: return MPI_Allgather(in, n, MPI_FLOAT, job->out, n, MPI_FLOAT, MPI_COMM_WORLD);
    case ALLTOALL: return MPI_Alltoall(in, n, MPI_FLOAT, job->out, n, MPI_FLOAT, MPI_COMM_WORLD);
    case REDUCESCATTER: return MPI_Reduce_scatter_block(in, job->out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    return 1;
}

static void finish(void) { MPI_Finalize(); }

int main(int argc, char **argv) {
    struct subject subject = {"mpi", init, allocate, release, prepare, run, finish, 1, 0};
    return harness_main(&subject, argc, argv);
}
