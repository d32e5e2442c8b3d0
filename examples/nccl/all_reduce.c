/* A program written for NCCL, on buffers of the host: two processes sum a vector. It declares what it calls, so that it is built
   without NVIDIA's header. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct ncclComm *ncclComm_t;
enum { NCCL_FLOAT = 7, NCCL_SUM = 0, RANKS = 2, ELEMENTS = 1 << 20 };
int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
int ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, ncclComm_t comm, void *stream);
int ncclCommDestroy(ncclComm_t comm);
const char *ncclGetLastError(ncclComm_t comm);

static void check(int result)
{
    if (result != 0) {
        fprintf(stderr, "%s\n", ncclGetLastError(NULL));
        exit(EXIT_FAILURE);
    }
}

static void work(ncclUniqueId id, int rank)
{
    ncclComm_t comm = NULL;
    float *sums = malloc(ELEMENTS * sizeof *sums);
    int i;

    if (!sums) {
        exit(EXIT_FAILURE);
    }
    for (i = 0; i < ELEMENTS; i++) {
        sums[i] = (float)(rank + 1);
    }
    check(ncclCommInitRank(&comm, RANKS, id, rank));
    check(ncclAllReduce(sums, sums, ELEMENTS, NCCL_FLOAT, NCCL_SUM, comm, NULL));
    for (i = 0; i < ELEMENTS; i++) {
        if (sums[i] != 3) {
            fprintf(stderr, "rank %d: element %d is %g\n", rank, i, (double)sums[i]);
            exit(EXIT_FAILURE);
        }
    }
    printf("rank %d of %d: every element is %g\n", rank, RANKS, (double)sums[0]);
    fflush(stdout);
    check(ncclCommDestroy(comm));
    free(sums);
}

int main(void)
{
    ncclUniqueId id;
    int ends[2], status = 0;
    pid_t child;

    /* Before the first call: who calls the library forks no more. */
    if (pipe(ends) != 0 || (child = fork()) < 0) {
        return EXIT_FAILURE;
    }
    if (child == 0) {
        close(ends[1]);
        if (read(ends[0], &id, sizeof id) != (ssize_t)sizeof id) {
            return EXIT_FAILURE;
        }
        work(id, 1);
        return EXIT_SUCCESS;
    }
    check(ncclGetUniqueId(&id));
    if (write(ends[1], &id, sizeof id) != (ssize_t)sizeof id) {
        return EXIT_FAILURE;
    }
    work(id, 0);
    return waitpid(child, &status, 0) == child && status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
