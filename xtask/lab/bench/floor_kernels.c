/* The inner loops of the floor, in AVX-512, AVX2 and plain C; the widest the machine has is picked once. */
#include "floor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef void sum_fn(float *const *, int, float *const *, int, size_t);
typedef void copy_fn(float *const *, int, const float *, size_t);
typedef void swap_fn(float *, float *, size_t);

/* The loop shapes are the same for every width; only the vector type and its three operations differ. */
#define KERNELS(NAME, TARGET, VECTOR, WIDTH, LOAD, STORE, ADD)                                                  \
    TARGET static void sum_##NAME(float *const *dst, int dsts, float *const *src, int srcs, size_t n) {         \
        size_t i = 0;                                                                                           \
        if (srcs == 2 && dsts <= 2) {                                                                           \
            const float *a = src[0], *b = src[1];                                                               \
            float *x = dst[0], *y = dst[dsts - 1];                                                              \
            for (; i + 4 * WIDTH <= n; i += 4 * WIDTH) {                                                        \
                VECTOR v0 = ADD(LOAD(a + i), LOAD(b + i));                                                      \
                VECTOR v1 = ADD(LOAD(a + i + WIDTH), LOAD(b + i + WIDTH));                                      \
                VECTOR v2 = ADD(LOAD(a + i + 2 * WIDTH), LOAD(b + i + 2 * WIDTH));                              \
                VECTOR v3 = ADD(LOAD(a + i + 3 * WIDTH), LOAD(b + i + 3 * WIDTH));                              \
                STORE(x + i, v0);                                                                               \
                STORE(x + i + WIDTH, v1);                                                                       \
                STORE(x + i + 2 * WIDTH, v2);                                                                   \
                STORE(x + i + 3 * WIDTH, v3);                                                                   \
                if (dsts == 1) continue;                                                                        \
                STORE(y + i, v0);                                                                               \
                STORE(y + i + WIDTH, v1);                                                                       \
                STORE(y + i + 2 * WIDTH, v2);                                                                   \
                STORE(y + i + 3 * WIDTH, v3);                                                                   \
            }                                                                                                   \
        }                                                                                                       \
        for (; i + WIDTH <= n; i += WIDTH) {                                                                    \
            VECTOR v = LOAD(src[0] + i);                                                                        \
            for (int s = 1; s < srcs; s++) v = ADD(v, LOAD(src[s] + i));                                        \
            for (int d = 0; d < dsts; d++) STORE(dst[d] + i, v);                                                \
        }                                                                                                       \
        for (; i < n; i++) {                                                                                    \
            float v = src[0][i];                                                                                \
            for (int s = 1; s < srcs; s++) v += src[s][i];                                                      \
            for (int d = 0; d < dsts; d++) dst[d][i] = v;                                                       \
        }                                                                                                       \
    }                                                                                                           \
    TARGET static void copy_##NAME(float *const *dst, int dsts, const float *src, size_t n) {                   \
        size_t i = 0;                                                                                           \
        for (; i + 4 * WIDTH <= n; i += 4 * WIDTH) {                                                            \
            VECTOR v0 = LOAD(src + i), v1 = LOAD(src + i + WIDTH);                                              \
            VECTOR v2 = LOAD(src + i + 2 * WIDTH), v3 = LOAD(src + i + 3 * WIDTH);                              \
            for (int d = 0; d < dsts; d++) {                                                                    \
                STORE(dst[d] + i, v0);                                                                          \
                STORE(dst[d] + i + WIDTH, v1);                                                                  \
                STORE(dst[d] + i + 2 * WIDTH, v2);                                                              \
                STORE(dst[d] + i + 3 * WIDTH, v3);                                                              \
            }                                                                                                   \
        }                                                                                                       \
        for (; i < n; i++)                                                                                      \
            for (int d = 0; d < dsts; d++) dst[d][i] = src[i];                                                  \
    }                                                                                                           \
    TARGET static void swap_##NAME(float *a, float *b, size_t n) {                                              \
        size_t i = 0;                                                                                           \
        for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {                                                            \
            VECTOR a0 = LOAD(a + i), a1 = LOAD(a + i + WIDTH);                                                  \
            VECTOR b0 = LOAD(b + i), b1 = LOAD(b + i + WIDTH);                                                  \
            STORE(a + i, b0);                                                                                   \
            STORE(a + i + WIDTH, b1);                                                                           \
            STORE(b + i, a0);                                                                                   \
            STORE(b + i + WIDTH, a1);                                                                           \
        }                                                                                                       \
        for (; i < n; i++) {                                                                                    \
            float t = a[i];                                                                                     \
            a[i] = b[i];                                                                                        \
            b[i] = t;                                                                                           \
        }                                                                                                       \
    }

#define PLAIN_LOAD(p) (*(p))
#define PLAIN_STORE(p, v) (*(p) = (v))
#define PLAIN_ADD(a, b) ((a) + (b))
KERNELS(plain, , float, 1, PLAIN_LOAD, PLAIN_STORE, PLAIN_ADD)

#if defined(__x86_64__)
KERNELS(avx2, __attribute__((target("avx2"))), __m256, 8, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_add_ps)
KERNELS(avx512, __attribute__((target("avx512f"))), __m512, 16, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_add_ps)
#endif

static sum_fn *sum = sum_plain;
static copy_fn *copy = copy_plain;
static swap_fn *swap = swap_plain;

void floor_pick_kernels(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        sum = sum_avx512;
        copy = copy_avx512;
        swap = swap_avx512;
    } else if (__builtin_cpu_supports("avx2")) {
        sum = sum_avx2;
        copy = copy_avx2;
        swap = swap_avx2;
    }
#endif
}

void floor_sum(float *const *dst, int dsts, float *const *src, int srcs, size_t n) { sum(dst, dsts, src, srcs, n); }

void floor_copy(float *const *dst, int dsts, const float *src, size_t n) { copy(dst, dsts, src, n); }

void floor_swap(float *a, float *b, size_t n) { swap(a, b, n); }
