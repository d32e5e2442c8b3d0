/* Reducescatter: every rank reads its own block of all inputs and writes the sum to its own output. */
#include "floor.h"

void floor_reducescatter(const struct job *job) {
    struct floor *f = &floor_state;
    size_t bytes = job->count * sizeof(float), own = (size_t)f->rank * job->count;
    float *src[BENCH_MAX_RANKS];
    if (bytes <= FLOOR_SLOT_BYTES) {
        for (int r = 0; r < f->ranks; r++)
            if (r != f->rank) floor_post(r, job->in + (size_t)r * job->count, bytes);
        for (int r = 0; r < f->ranks; r++) src[r] = r == f->rank ? job->in + own : (float *)floor_take(r);
        floor_sum(&job->out, 1, src, f->ranks, job->count);
        return;
    }
    for (int r = 0; r < f->ranks; r++) src[r] = f->in[r] + own;
    floor_ready();
    floor_sum(&job->out, 1, src, f->ranks, job->count);
    floor_done();
}
