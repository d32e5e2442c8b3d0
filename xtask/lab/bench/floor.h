/* The floor: the fastest we know how to run a collective between processes whose buffers all lie in one
 * shared mapping, written by hand and free of every generality. It is the yardstick, not a product.
 *
 * Two protocols. Up to FLOOR_SLOT_BYTES a rank copies its data and a sequence number into a slot of each
 * peer and reads its own slots. Above, ranks say "ready" (my input is written, my output may be
 * overwritten), work directly on each other's buffers, and say "done" (I touch nothing of yours any more).
 */
#ifndef ANTIPHON_BENCH_FLOOR_H
#define ANTIPHON_BENCH_FLOOR_H

#include "harness.h"

#include <sched.h>
#include <stdatomic.h>

enum { FLOOR_SLOT_BYTES = 256 };

/* One message of the small protocol: the number in the first line, so that 56 bytes need one line only. */
struct slot {
    _Alignas(64) _Atomic uint64_t sequence;
    char data[FLOOR_SLOT_BYTES];
};

struct flag {
    _Alignas(64) _Atomic uint64_t sequence;
};

/* What others write for one rank to read. Two slots a peer: a peer can be one collective ahead of a reader, never two. */
struct mailbox {
    struct slot slots[2][BENCH_MAX_RANKS];
    struct flag ready[BENCH_MAX_RANKS];
    struct flag done[BENCH_MAX_RANKS];
};

struct floor {
    int rank, ranks, yields;
    uint64_t sequence;
    struct mailbox *mailboxes;
    float *in[BENCH_MAX_RANKS];
    float *out[BENCH_MAX_RANKS];
};

extern struct floor floor_state;

void floor_allreduce(const struct job *job);
void floor_allgather(const struct job *job);
void floor_alltoall(const struct job *job);
void floor_reducescatter(const struct job *job);

/* dst[0..dsts][i] = src[0][i] + src[1][i] + ... in this order; a dst may be one of the srcs. */
void floor_sum(float *const *dst, int dsts, float *const *src, int srcs, size_t n);
/* dst[0..dsts][i] = src[i]; a dst equal to src is left alone by the caller. */
void floor_copy(float *const *dst, int dsts, const float *src, size_t n);
/* Exchanges two ranges. */
void floor_swap(float *a, float *b, size_t n);
/* Picks the widest kernels this machine has. */
void floor_pick_kernels(void);

static inline void floor_await(_Atomic uint64_t *at, uint64_t sequence) {
    while (atomic_load_explicit(at, memory_order_acquire) < sequence) {
        if (floor_state.yields) sched_yield();
        else harness_pause();
    }
}

/* Tells every peer that its turn has come, then waits to hear the same from every peer. */
static inline void floor_ready(void) {
    struct floor *f = &floor_state;
    for (int r = 0; r < f->ranks; r++)
        if (r != f->rank)
            atomic_store_explicit(&f->mailboxes[r].ready[f->rank].sequence, f->sequence, memory_order_release);
    for (int r = 0; r < f->ranks; r++)
        if (r != f->rank) floor_await(&f->mailboxes[f->rank].ready[r].sequence, f->sequence);
}

static inline void floor_done(void) {
    struct floor *f = &floor_state;
    for (int r = 0; r < f->ranks; r++)
        if (r != f->rank)
            atomic_store_explicit(&f->mailboxes[r].done[f->rank].sequence, f->sequence, memory_order_release);
    for (int r = 0; r < f->ranks; r++)
        if (r != f->rank) floor_await(&f->mailboxes[f->rank].done[r].sequence, f->sequence);
}

static inline struct slot *floor_slot(int to, int from) {
    return &floor_state.mailboxes[to].slots[floor_state.sequence & 1][from];
}

/* Puts `bytes` and the number into the slot that `to` keeps for this rank. */
static inline void floor_post(int to, const void *data, size_t bytes) {
    struct slot *slot = floor_slot(to, floor_state.rank);
    __builtin_memcpy(slot->data, data, bytes);
    atomic_store_explicit(&slot->sequence, floor_state.sequence, memory_order_release);
}

/* What `from` put into this rank's slot for this collective. */
static inline const void *floor_take(int from) {
    struct slot *slot = floor_slot(floor_state.rank, from);
    floor_await(&slot->sequence, floor_state.sequence);
    return slot->data;
}

#endif
