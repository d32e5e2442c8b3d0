/* Allreduce. Small: everyone sends all to everyone and sums in rank order. Larger: rank r sums the r-th part of
 * all inputs and stores it straight into every output, so each byte crosses between caches once. */
#include "floor.h"

static void small(const struct job *job) {
    struct floor *f = &floor_state;
    float *parts[BENCH_MAX_RANKS];
    float mine[FLOOR_SLOT_BYTES / sizeof(float)];
    __builtin_memcpy(mine, job->in, job->count * sizeof(float));
    for (int r = 0; r < f->ranks; r++)
        if (r != f->rank) floor_post(r, mine, job->count * sizeof(float));
    for (int r = 0; r < f->ranks; r++) parts[r] = r == f->rank ? mine : (float *)floor_take(r);
    floor_sum(&job->out, 1, parts, f->ranks, job->count);
}

void floor_allreduce(const struct job *job) {
    struct floor *f = &floor_state;
    if (job->count * sizeof(float) <= FLOOR_SLOT_BYTES) {
        small(job);
        return;
    }
    size_t line = 16, lines = (job->count + line - 1) / line;
    size_t from = lines * (size_t)f->rank / (size_t)f->ranks * line;
    size_t to = lines * (size_t)(f->rank + 1) / (size_t)f->ranks * line;
    if (to > job->count) to = job->count;
    float *src[BENCH_MAX_RANKS], *dst[BENCH_MAX_RANKS];
    for (int r = 0; r < f->ranks; r++) {
        src[r] = f->in[r] + from;
        dst[r] = f->out[r] + from;
    }
    floor_ready();
    floor_sum(dst, f->ranks, src, f->ranks, to - from);
    floor_done();
}
