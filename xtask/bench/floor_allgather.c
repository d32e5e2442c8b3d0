/* Allgather: every rank stores its contribution into every output. */
#include "floor.h"

void floor_allgather(const struct job *job) {
    struct floor *f = &floor_state;
    size_t bytes = job->count * sizeof(float), own = (size_t)f->rank * job->count;
    if (bytes <= FLOOR_SLOT_BYTES) {
        for (int r = 0; r < f->ranks; r++)
            if (r != f->rank) floor_post(r, job->in, bytes);
        if (!job->in_place) __builtin_memcpy(job->out + own, job->in, bytes);
        for (int r = 0; r < f->ranks; r++)
            if (r != f->rank) __builtin_memcpy(job->out + (size_t)r * job->count, floor_take(r), bytes);
        return;
    }
    float *dst[BENCH_MAX_RANKS];
    int n = 0;
    for (int r = 0; r < f->ranks; r++)
        if (r != f->rank || !job->in_place) dst[n++] = f->out[r] + own;
    floor_ready();
    floor_copy(dst, n, job->in, job->count);
    floor_done();
}
