// The prelude of the simulated compiler: a test fixture that makes device source C++ for a host.
//
// A thread is a fiber, so whatever waits must give way: poll only through the functions below, or with a
// `__nanosleep` or a fence in the loop. Shared memory is declared only through ANTIPHON_SHARED,
// ANTIPHON_SHARED_ARRAY and ANTIPHON_SHARED_DYNAMIC. Inline assembly belongs behind `#ifndef ANTIPHON_GPUSIM`.
// Nothing large: every kernel of every test begins with it, and <cmath> alone is twice all the rest.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <type_traits>
#include <utility>

#define ANTIPHON_GPUSIM 1
#ifndef __HIPCC__
#define __CUDACC__ 1
#endif
#define __global__ [[antiphon::kernel]]
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct dim3 { unsigned x, y, z; };
struct uint3 { unsigned x, y, z; };
#define ANTIPHON_SIM_VECTOR(type, name, wide)                                             \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                              \
    struct alignas(wide) name##4 { type x, y, z, w; };                                    \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                      \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
ANTIPHON_SIM_VECTOR(int, int, 16)
ANTIPHON_SIM_VECTOR(unsigned, uint, 16)
ANTIPHON_SIM_VECTOR(float, float, 16)
ANTIPHON_SIM_VECTOR(unsigned short, ushort, 8)
ANTIPHON_SIM_VECTOR(unsigned char, uchar, 4)
ANTIPHON_SIM_VECTOR(double, double, 16)
ANTIPHON_SIM_VECTOR(long long, longlong, 16)
ANTIPHON_SIM_VECTOR(unsigned long long, ulonglong, 16)

namespace antiphon_sim {

struct Thread {
    uint3 thread, block, block_size, grid_size;
    unsigned lane, warp;
};

// The same as the driver's table, which loading the module puts here.
struct Runtime {
    unsigned version;
    const Thread *(*thread)();
    void (*give_way)();
    unsigned (*meet)(unsigned barrier, unsigned wanted, unsigned predicate);
    void (*meet_warp)(unsigned mask);
    unsigned long (*(*slots)())[2];
    void *(*shared)(const void *tag, size_t bytes);
    void (*trap)(const char *reason);
    size_t (*members)(unsigned long address, unsigned long *out, size_t room);
    void (*load)(const void *from, void *to, size_t bytes);
    void (*store)(void *to, const void *from, size_t bytes);
    void (*release)();
    void (*add)(unsigned long long *to, unsigned long long value);
};

} // namespace antiphon_sim

extern "C" __attribute__((visibility("default"))) const antiphon_sim::Runtime *antiphon_gpusim_runtime = nullptr;

namespace antiphon_sim {

inline const Runtime *runtime() { return antiphon_gpusim_runtime; }
inline const Thread *self() { return runtime()->thread(); }
inline void give_way() { runtime()->give_way(); }

// Gives way now and then: a look that succeeds should not cost a round of all threads every time.
inline void look() {
    static unsigned looks = 0;
    if (__atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED) % 4 == 0) give_way();
}

// Loads that may be polled, and stores, of 1 to 8 bytes.
template <class T> inline T load(const T *at, int order) {
    look();
    T value;
    __atomic_load(const_cast<T *>(at), &value, order);
    return value;
}
template <class T> inline T load_relaxed(const T *at) { return load(at, __ATOMIC_RELAXED); }
template <class T> inline T load_acquire(const T *at) { return load(at, __ATOMIC_ACQUIRE); }
template <class T> inline void store_relaxed(T *at, T value) { __atomic_store(at, &value, __ATOMIC_RELAXED); }

// Stores that nobody polls for: others may see them late, but not later than what the thread releases next.
inline void load_plain(const void *from, void *to, size_t bytes) { runtime()->load(from, to, bytes); }
template <class T> inline T load_plain(const void *from) {
    T value;
    load_plain(from, &value, sizeof(T));
    return value;
}
template <class T> inline void store_plain(void *to, const T &value) { runtime()->store(to, &value, sizeof(T)); }
// What the thread has stored, and what it has met others behind, all see from here on.
inline void release() {
    runtime()->release();
    __atomic_thread_fence(__ATOMIC_RELEASE);
}
template <class T> inline void store_release(T *at, T value) {
    release();
    __atomic_store(at, &value, __ATOMIC_RELEASE);
}
// Adds where other devices look, in one step unless it is another device's memory on which there are no such steps.
inline void add(unsigned long long *to, unsigned long long value) { runtime()->add(to, value); }

// Packets of 8 bytes, and of 16 as two halves: each half has a flag of its own.
inline void store_packet(void *at, uint2 value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    __atomic_store_n(static_cast<uint64_t *>(at), bits, __ATOMIC_RELAXED);
}
inline uint2 load_packet8(const void *at) {
    uint64_t bits = load_relaxed(static_cast<const uint64_t *>(at));
    uint2 value;
    memcpy(&value, &bits, 8);
    return value;
}
inline void store_packet(void *at, uint4 value) {
    store_packet(at, uint2{value.x, value.y});
    store_packet(static_cast<char *>(at) + 8, uint2{value.z, value.w});
}
inline uint4 load_packet16(const void *at) {
    uint2 low = load_packet8(at), high = load_packet8(static_cast<const char *>(at) + 8);
    return uint4{low.x, low.y, high.x, high.y};
}

// The memories behind a multicast address; how many there are.
inline size_t members(const void *address, void **out, size_t room) {
    return runtime()->members(reinterpret_cast<unsigned long>(address), reinterpret_cast<unsigned long *>(out), room);
}

inline uint64_t clock_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
}

// How the driver calls a kernel.
template <class... P, size_t... I> inline void call(void (*kernel)(P...), void **arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cv_t<P> *>(arguments[I])...);
}
template <class... P> inline void enter(void (*kernel)(P...), void **arguments) {
    call(kernel, arguments, std::index_sequence_for<P...>());
}
template <class... P> inline unsigned describe(void (*)(P...), unsigned long *sizes) {
    unsigned long all[] = {sizeof(P)..., 0};
    if (sizes) memcpy(sizes, all, sizeof...(P) * sizeof(all[0]));
    return sizeof...(P);
}

} // namespace antiphon_sim

#define threadIdx (antiphon_sim::self()->thread)
#define blockIdx (antiphon_sim::self()->block)
#define blockDim (antiphon_sim::self()->block_size)
#define gridDim (antiphon_sim::self()->grid_size)
static const int warpSize = 32;

#define ANTIPHON_SHARED(type, name)   \
    static char antiphon_tag_##name;  \
    type &name = *static_cast<type *>(antiphon_sim::runtime()->shared(&antiphon_tag_##name, sizeof(type)))
#define ANTIPHON_SHARED_ARRAY(type, name, count) \
    static char antiphon_tag_##name;             \
    type *name = static_cast<type *>(antiphon_sim::runtime()->shared(&antiphon_tag_##name, sizeof(type) * (count)))
#define ANTIPHON_SHARED_DYNAMIC(type, name) \
    type *name = static_cast<type *>(antiphon_sim::runtime()->shared(nullptr, 0))

inline void __syncthreads() { antiphon_sim::runtime()->meet(0, 0, 0); }
inline int __syncthreads_count(int p) { return int(antiphon_sim::runtime()->meet(0, 0, p != 0)); }
inline int __syncthreads_or(int p) { return __syncthreads_count(p) != 0; }
inline int __syncthreads_and(int p) { return __syncthreads_count(!p) == 0; }
// What `barrier.sync id, threads` does.
inline void antiphon_sim_barrier(unsigned id, unsigned threads) { antiphon_sim::runtime()->meet(id, threads, 0); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { antiphon_sim::runtime()->meet_warp(mask); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence() { antiphon_sim::release(); __atomic_thread_fence(__ATOMIC_SEQ_CST); antiphon_sim::look(); }
inline void __threadfence_system() { __threadfence(); }
inline void __nanosleep(unsigned) { antiphon_sim::give_way(); }
inline void __trap() { antiphon_sim::runtime()->trap("__trap"); }

namespace antiphon_sim {
// The value of another lane; `pick` says which one, given this lane's number in its group of `width`.
template <class T, class F> inline T exchange(unsigned mask, T value, int width, F pick) {
    static_assert(sizeof(T) <= 16, "a lane shows at most 16 bytes");
    unsigned lane = self()->lane, base = lane / unsigned(width) * unsigned(width);
    memcpy(runtime()->slots()[lane], &value, sizeof(T));
    __syncwarp(mask);
    int from = pick(int(lane - base));
    if (from >= 0 && from < width) memcpy(&value, runtime()->slots()[base + unsigned(from)], sizeof(T));
    __syncwarp(mask);
    return value;
}
} // namespace antiphon_sim

template <class T> inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
    return antiphon_sim::exchange(mask, value, width, [=](int) { return lane & (width - 1); });
}
template <class T> inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
    return antiphon_sim::exchange(mask, value, width, [=](int lane) { return lane - int(by); });
}
template <class T> inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
    return antiphon_sim::exchange(mask, value, width, [=](int lane) { return lane + int(by); });
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    return antiphon_sim::exchange(mask, value, width, [=](int lane) { return lane ^ bits; });
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    unsigned lane = antiphon_sim::self()->lane, all = 0;
    antiphon_sim::runtime()->slots()[lane][0] = predicate != 0;
    __syncwarp(mask);
    for (unsigned k = 0; k < 32; ++k)
        if (mask >> k & 1) all |= unsigned(antiphon_sim::runtime()->slots()[k][0]) << k;
    __syncwarp(mask);
    return all;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

namespace antiphon_sim {
// Replaces what is there by what `next` makes of it, at once; gives what was there.
template <class T, class F> inline T change(T *at, F next) {
    look();
    T seen, value;
    __atomic_load(at, &seen, __ATOMIC_SEQ_CST);
    do value = next(seen);
    while (!__atomic_compare_exchange(at, &seen, &value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return seen;
}
} // namespace antiphon_sim

#define ANTIPHON_SIM_CHANGE(name, next)                                                     \
    template <class T> inline T name(T *at, std::common_type_t<T> by) {                     \
        return antiphon_sim::change(at, [=](T seen) { return T(next); });                   \
    }
#define ANTIPHON_SIM_ATOMIC(suffix)                                                         \
    ANTIPHON_SIM_CHANGE(atomicAdd##suffix, seen + by)                                       \
    ANTIPHON_SIM_CHANGE(atomicSub##suffix, seen - by)                                       \
    ANTIPHON_SIM_CHANGE(atomicMax##suffix, seen < by ? by : seen)                           \
    ANTIPHON_SIM_CHANGE(atomicMin##suffix, by < seen ? by : seen)                           \
    ANTIPHON_SIM_CHANGE(atomicExch##suffix, by)                                             \
    ANTIPHON_SIM_CHANGE(atomicOr##suffix, seen | by)                                        \
    ANTIPHON_SIM_CHANGE(atomicAnd##suffix, seen & by)                                       \
    template <class T>                                                                      \
    inline T atomicCAS##suffix(T *at, std::common_type_t<T> expected, std::common_type_t<T> value) { \
        return antiphon_sim::change(at, [=](T seen) { return seen == expected ? value : seen; }); \
    }
ANTIPHON_SIM_ATOMIC()
ANTIPHON_SIM_ATOMIC(_block)
ANTIPHON_SIM_ATOMIC(_system)

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
inline int __float_as_int(float x) { return int(__float_as_uint(x)); }
inline float __int_as_float(int x) { return __uint_as_float(unsigned(x)); }
inline long long clock64() { return (long long)antiphon_sim::clock_ns(); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
