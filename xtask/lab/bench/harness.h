/* The one measuring loop that every subject of `cargo xtask bench-peers` runs.
 *
 * A subject (an MPI library, Gloo, the hand-written floor) fills in a `struct subject`; harness.c owns the
 * loop: fill the input, two barriers, time one collective, read the output. The barrier, the clock and the
 * place where the times are kept are the harness's own and the same for all subjects, so that what differs between
 * two rows is the collective alone. The Rust twin of this loop is src/bench/antiphon.rs; both map the same
 * control block.
 *
 * What a size means (bytes, f32): allreduce: the whole buffer; allgather: what one rank contributes;
 * alltoall: the block for one peer; reducescatter: what one rank receives.
 */
#ifndef ANTIPHON_BENCH_HARNESS_H
#define ANTIPHON_BENCH_HARNESS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BENCH_MAX_RANKS = 16 };

enum collective { ALLREDUCE, ALLGATHER, ALLTOALL, REDUCESCATTER };

/* One row of the table: what is run over which buffers. */
struct job {
    enum collective collective;
    int in_place;
    size_t count;     /* f32 elements of the row's size */
    size_t in_count;  /* f32 elements behind `in` */
    size_t out_count; /* f32 elements behind `out` */
    float *in;
    float *out;
};

struct harness;

/* What a subject gives. Every function returns 0 for "done" unless it says otherwise. */
struct subject {
    const char *name;
    /* Joins the group and fills in rank and ranks. Runs before the harness pins the rank. */
    int (*init)(struct harness *h, int *rank, int *ranks);
    /* Memory for `bytes`, page-aligned; all ranks ask for the same sizes in the same order. */
    void *(*alloc)(size_t bytes);
    void (*release)(void *memory, size_t bytes);
    /* Gets ready for one row. Nonzero: this subject has no such operation; the row is skipped. */
    int (*prepare)(const struct job *job);
    /* One collective, complete when it returns: `out` is whole and `in` may be written again. */
    int (*run)(const struct job *job);
    void (*finish)(void);
    /* Where an in-place reducescatter leaves its result: 1 at the front of the buffer (MPI), 0 at
     * the rank's own block (NCCL). */
    int reducescatter_at_front;
    /* 1: a thread beside the caller's does part of the work. Such ranks are not pinned, and wait in the
     * first of the two barriers asleep, because a rank that spins there would keep a core from the thread
     * that its peer waits for. */
    int helper_threads;
};

/* Parses the command line, runs every row, prints one RESULT line a row from rank 0. */
int harness_main(struct subject *subject, int argc, char **argv);

/* The value of option `--name` or null. */
const char *harness_option(const struct harness *h, const char *name);
/* 1 where ranks outnumber cores, so that waiting must give the core away. */
int harness_yields(const struct harness *h);

static inline void harness_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#ifdef __cplusplus
}
#endif
#endif
