/* The floor as a subject: forks its ranks over one anonymous shared mapping. */
#define _GNU_SOURCE
#include "floor.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct floor floor_state;

/* Address space set aside for every rank's buffers; pages come with the first touch. */
#define ARENA_BYTES ((size_t)4 << 30)

static char *arenas;
static size_t taken;

static int init(struct harness *h, int *rank, int *ranks) {
    struct floor *f = &floor_state;
    const char *wanted = harness_option(h, "ranks");
    f->ranks = wanted ? atoi(wanted) : 0;
    if (f->ranks < 1 || f->ranks > BENCH_MAX_RANKS) return 1;
    f->yields = harness_yields(h);
    floor_pick_kernels();
    size_t mailboxes = sizeof(struct mailbox) * (size_t)f->ranks;
    int protection = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    f->mailboxes = mmap(NULL, mailboxes, protection, flags, -1, 0);
    arenas = mmap(NULL, ARENA_BYTES * (size_t)f->ranks, protection, flags, -1, 0);
    if (f->mailboxes == MAP_FAILED || arenas == MAP_FAILED) return 1;
    for (int r = 1; r < f->ranks; r++) {
        pid_t child = fork();
        if (child < 0) return 1;
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            f->rank = r;
            break;
        }
    }
    *rank = f->rank;
    *ranks = f->ranks;
    return 0;
}

/* All ranks allocate alike, so a buffer's offset is the same in every rank's arena. */
static void *allocate(size_t bytes) {
    if (taken + bytes > ARENA_BYTES) return NULL;
    char *memory = arenas + ARENA_BYTES * (size_t)floor_state.rank + taken;
    taken += (bytes + 4095) & ~(size_t)4095;
    return memory;
}

static void release(void *memory, size_t bytes) {
    madvise(memory, bytes, MADV_REMOVE);
    taken -= (bytes + 4095) & ~(size_t)4095;
}

/* A peer's buffer lies where mine does in its arena; parts that depend on the rank (an in-place allgather's
 * input) are found from there. */
static int prepare(const struct job *job) {
    struct floor *f = &floor_state;
    int shifts_in = job->in_place && job->collective == ALLGATHER;
    int shifts_out = job->in_place && job->collective == REDUCESCATTER;
    for (int r = 0; r < f->ranks; r++) {
        ptrdiff_t arena = ((ptrdiff_t)r - f->rank) * (ptrdiff_t)(ARENA_BYTES / sizeof(float));
        ptrdiff_t block = ((ptrdiff_t)r - f->rank) * (ptrdiff_t)job->count;
        f->in[r] = job->in + arena + (shifts_in ? block : 0);
        f->out[r] = job->out + arena + (shifts_out ? block : 0);
    }
    return 0;
}

static int run(const struct job *job) {
    floor_state.sequence++;
    switch (job->collective) {
    case ALLREDUCE: floor_allreduce(job); return 0;
    case ALLGATHER: floor_allgather(job); return 0;
    case ALLTOALL: floor_alltoall(job); return 0;
    case REDUCESCATTER: floor_reducescatter(job); return 0;
    }
    return 1;
}

static void finish(void) {
    if (floor_state.rank != 0) return;
    while (wait(NULL) > 0) continue;
}

int main(int argc, char **argv) {
    struct subject subject = {"floor", init, allocate, release, prepare, run, finish, 0, 0};
    return harness_main(&subject, argc, argv);
}
