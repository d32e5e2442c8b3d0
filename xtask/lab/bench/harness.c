/* The measuring loop; harness.h says what it measures. */
#define _GNU_SOURCE
#include "harness.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The control block: a file that the driver made and every rank maps. src/bench/control.rs has the same
 * layout; a change here is a change of CONTROL_VERSION in both. */
#define CONTROL_MAGIC 0x424e4341u
#define CONTROL_VERSION 1u
#define CONTROL_SAMPLES 4096

struct control {
    _Alignas(64) uint32_t magic;
    uint32_t version;
    uint32_t participants;
    uint32_t capacity; /* samples a participant can store per series */
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t generation;
    _Atomic uint32_t failed;
    _Alignas(64) _Atomic uint32_t iterations;
};

struct harness {
    int argc;
    char **argv;
    int rank, ranks, yields;
    struct control *control;
};

static void die(struct harness *h, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "rank %d: ", h->rank);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    if (h->control) atomic_store(&h->control->failed, 1);
    _exit(1);
}

const char *harness_option(const struct harness *h, const char *name) {
    for (int i = 1; i + 1 < h->argc; i++)
        if (!strncmp(h->argv[i], "--", 2) && !strcmp(h->argv[i] + 2, name)) return h->argv[i + 1];
    return NULL;
}

int harness_yields(const struct harness *h) { return h->yields; }

static const char *required(struct harness *h, const char *name) {
    const char *value = harness_option(h, name);
    if (!value) die(h, "cannot start: option --%s is missing", name);
    return value;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Rank r runs on the r-th core of those allowed, modulo their number. */
static void pin(struct harness *h) {
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) die(h, "cannot read the affinity");
    int target = h->rank % CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || target-- > 0) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one)) die(h, "cannot pin to core %d", cpu);
        return;
    }
}

static void map_control(struct harness *h) {
    const char *path = required(h, "control");
    int fd = open(path, O_RDWR);
    struct stat info;
    if (fd < 0 || fstat(fd, &info)) die(h, "cannot open the control block %s", path);
    h->control = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (h->control == MAP_FAILED) {
        h->control = NULL;
        die(h, "cannot map the control block %s", path);
    }
    close(fd);
    if (h->control->magic != CONTROL_MAGIC || h->control->version != CONTROL_VERSION)
        die(h, "cannot use the control block: saw magic %x version %u, allowed %x version %u",
            h->control->magic, h->control->version, CONTROL_MAGIC, CONTROL_VERSION);
    if (h->control->participants != (uint32_t)h->ranks)
        die(h, "cannot use the control block: it is for %u ranks, saw %d", h->control->participants,
            h->ranks);
}

static void futex(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *limit) {
    syscall(SYS_futex, word, operation, value, limit, NULL, 0);
}

/* `block`: sleep in the kernel instead of spinning. */
static void barrier_of(struct harness *h, int block) {
    struct control *c = h->control;
    uint32_t generation = atomic_load_explicit(&c->generation, memory_order_acquire);
    if (atomic_fetch_add_explicit(&c->arrived, 1, memory_order_acq_rel) + 1 == c->participants) {
        atomic_store_explicit(&c->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&c->generation, generation + 1, memory_order_release);
        if (block) futex(&c->generation, FUTEX_WAKE, INT_MAX, NULL);
        return;
    }
    while (atomic_load_explicit(&c->generation, memory_order_acquire) == generation) {
        if (atomic_load_explicit(&c->failed, memory_order_relaxed)) _exit(1);
        if (block) futex(&c->generation, FUTEX_WAIT, generation, &(struct timespec){.tv_sec = 1});
        else if (h->yields) sched_yield();
        else harness_pause();
    }
}

static void barrier(struct harness *h) { barrier_of(h, 0); }

static uint64_t *samples(struct harness *h, int series, int rank) {
    struct control *c = h->control;
    uint64_t *base = (uint64_t *)((char *)c + CONTROL_SAMPLES);
    return base + ((size_t)series * c->participants + (size_t)rank) * c->capacity;
}

/* Every value is a small integer, so sums are exact in f32 in any order. `block` tells a block of
 * one peer from another's, `iteration` a fresh result from a stale one. */
static inline float value(size_t i, int block, int rank, int iteration) {
    return (float)((int)(i & 511) + 512 * (block + 16 * rank) + (iteration & 15));
}

static int blocks(const struct harness *h, enum collective c) {
    return c == ALLTOALL || c == REDUCESCATTER ? h->ranks : 1;
}

static void fill(const struct harness *h, const struct job *job, int iteration) {
    for (int b = 0; b < blocks(h, job->collective); b++) {
        float *to = job->in + (size_t)b * job->count;
        for (size_t i = 0; i < job->count; i++) to[i] = value(i, b, h->rank, iteration);
    }
}

static float expected(const struct harness *h, const struct job *job, size_t at, int iteration) {
    size_t i = at % job->count;
    int block = (int)(at / job->count);
    float sum = 0;
    switch (job->collective) {
    case ALLGATHER: return value(i, 0, block, iteration);
    case ALLTOALL: return value(i, h->rank, block, iteration);
    case ALLREDUCE:
    case REDUCESCATTER:
        block = job->collective == ALLREDUCE ? 0 : h->rank;
        for (int r = 0; r < h->ranks; r++) sum += value(i, block, r, iteration);
    }
    return sum;
}

static void verify(struct harness *h, const struct job *job, int iteration) {
    for (size_t i = 0; i < job->out_count; i++) {
        float want = expected(h, job, i, iteration);
        if (job->out[i] != want)
            die(h, "wrong result: element %zu of %zu is %g, expected %g (iteration %d, in place %d)", i,
                job->out_count, (double)job->out[i], (double)want, iteration, job->in_place);
    }
}

static volatile uint32_t sink;

static void read_all(const struct job *job) {
    const uint32_t *words = (const uint32_t *)job->out;
    uint32_t x = 0;
    for (size_t i = 0; i < job->out_count; i++) x ^= words[i];
    sink = x;
}

static void one(struct harness *h, const struct subject *s, const struct job *job, int iteration,
                uint64_t *took, uint64_t *took_with_read) {
    fill(h, job, iteration);
    barrier_of(h, s->helper_threads);
    barrier(h);
    uint64_t start = now_ns();
    int error = s->run(job);
    uint64_t end = now_ns();
    read_all(job);
    uint64_t read = now_ns();
    if (error) die(h, "the collective failed with %d", error);
    *took = end - start;
    *took_with_read = read - start;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Leaves the per-iteration maxima over ranks, sorted, in rank 0's row of the series. */
static uint64_t *maxima(struct harness *h, int series, uint32_t n) {
    uint64_t *mine = samples(h, series, 0);
    for (int r = 1; r < h->ranks; r++) {
        const uint64_t *other = samples(h, series, r);
        for (uint32_t i = 0; i < n; i++)
            if (other[i] > mine[i]) mine[i] = other[i];
    }
    qsort(mine, n, sizeof *mine, by_value);
    return mine;
}

static uint64_t percentile(const uint64_t *sorted, uint32_t n, uint32_t percent) {
    uint32_t at = (uint32_t)(((uint64_t)n * percent + 99) / 100);
    return sorted[at ? at - 1 : 0];
}

static void describe(struct harness *h, struct job *job, size_t bytes) {
    size_t n = bytes / sizeof(float), all = n * (size_t)h->ranks;
    job->count = n;
    job->in_count = job->collective == ALLTOALL || job->collective == REDUCESCATTER ? all : n;
    job->out_count = job->collective == ALLTOALL || job->collective == ALLGATHER ? all : n;
}

static void row(struct harness *h, struct subject *s, struct job *job, size_t bytes, const char *name) {
    struct control *c = h->control;
    describe(h, job, bytes);
    size_t in_bytes = job->in_count * sizeof(float), out_bytes = job->out_count * sizeof(float);
    size_t larger = in_bytes > out_bytes ? in_bytes : out_bytes;
    size_t own = (size_t)h->rank * job->count;
    float *first = s->alloc(job->in_place ? larger : in_bytes);
    float *second = job->in_place ? NULL : s->alloc(out_bytes);
    if (!first || (!second && !job->in_place)) die(h, "cannot allocate %zu bytes", larger);
    job->in = first;
    job->out = second;
    if (job->in_place) {
        job->out = first;
        if (job->collective == ALLGATHER) job->in = first + own;
        if (job->collective == REDUCESCATTER && !s->reducescatter_at_front) job->out = first + own;
    } else {
        memset(second, 0xff, out_bytes);
    }
    if (s->prepare(job)) {
        if (h->rank == 0)
            printf("ROWSKIP collective=%s place=%s bytes=%zu ranks=%d\n", name, job->in_place ? "in" : "out", bytes,
                   h->ranks);
    } else {
        // LARGE, WARMUP and WARMUP_LARGE come from the driver, job.rs.
        int large = bytes > LARGE, warmup = large ? WARMUP_LARGE : WARMUP, iteration = 0;
        uint32_t n = (uint32_t)atoi(required(h, large ? "iters-large" : "iters"));
        uint64_t budget = strtoull(required(h, "budget-ms"), NULL, 10) * 1000000u, ignored, ignored_read;
        one(h, s, job, iteration, &ignored, &ignored_read);
        verify(h, job, iteration++);
        barrier(h);
        uint64_t started = now_ns();
        for (int i = 0; i < warmup; i++) one(h, s, job, iteration++, &ignored, &ignored_read);
        if (h->rank == 0) {
            uint64_t each = (now_ns() - started) / (uint64_t)warmup + 1, fit = budget / each;
            if (n > c->capacity) n = c->capacity;
            if (fit < n) n = fit < 20 ? 20 : (uint32_t)fit;
            atomic_store(&c->iterations, n);
        }
        barrier(h);
        n = atomic_load(&c->iterations);
        uint64_t *took = samples(h, 0, h->rank), *with_read = samples(h, 1, h->rank);
        for (uint32_t i = 0; i < n; i++) one(h, s, job, iteration++, &took[i], &with_read[i]);
        verify(h, job, iteration - 1);
        barrier(h);
        if (h->rank == 0) {
            uint64_t *a = maxima(h, 0, n), *b = maxima(h, 1, n);
            printf("RESULT collective=%s place=%s bytes=%zu ranks=%d iters=%u p50_ns=%llu p99_ns=%llu "
                   "read_p50_ns=%llu read_p99_ns=%llu\n",
                   name, job->in_place ? "in" : "out", bytes, h->ranks, n,
                   (unsigned long long)percentile(a, n, 50), (unsigned long long)percentile(a, n, 99),
                   (unsigned long long)percentile(b, n, 50), (unsigned long long)percentile(b, n, 99));
        }
    }
    fflush(stdout);
    barrier(h);
    s->release(first, job->in_place ? larger : in_bytes);
    if (second) s->release(second, out_bytes);
}

static const char *const NAMES[] = {"allreduce", "allgather", "alltoall", "reducescatter"};

int harness_main(struct subject *s, int argc, char **argv) {
    struct harness h = {.argc = argc, .argv = argv, .ranks = 1};
    h.yields = atoi(required(&h, "yield"));
    if (s->init(&h, &h.rank, &h.ranks)) die(&h, "%s cannot start", s->name);
    if (h.ranks > BENCH_MAX_RANKS) die(&h, "saw %d ranks, allowed %d", h.ranks, BENCH_MAX_RANKS);
    if (!s->helper_threads) pin(&h);
    map_control(&h);
    const char *wanted = required(&h, "collective"), *places = required(&h, "places");
    struct job job = {0};
    int known = 0;
    for (int c = 0; c < 4; c++)
        if (!strcmp(NAMES[c], wanted)) job.collective = (enum collective)c, known = 1;
    if (!known) die(&h, "unknown collective %s", wanted);
    for (const char *size = required(&h, "sizes"); *size; size += strspn(size, ",")) {
        char *end;
        size_t bytes = strtoull(size, &end, 10);
        if (end == size || bytes == 0 || bytes % sizeof(float)) die(&h, "cannot use size %s: allowed multiples of 4", size);
        size = end;
        for (job.in_place = 0; job.in_place < 2; job.in_place++)
            if (strstr(places, job.in_place ? "in" : "out")) row(&h, s, &job, bytes, wanted);
    }
    s->finish();
    return 0;
}
