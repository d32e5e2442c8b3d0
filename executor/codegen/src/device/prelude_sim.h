// The same in the words of the simulated compiler, a test fixture: what runs so never ran on a GPU.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;

#define AP_INLINE static __device__ __forceinline__
#define AP_DEVICE static __device__ __noinline__
#define AP_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
// A parameter that is a struct.
#define AP_PARAMETER const
// One thing for each block, and the function that finds it.
#define AP_SHARED(type, name)            \
    AP_INLINE type &name() {             \
        ANTIPHON_SHARED(type, of_block); \
        return of_block;                 \
    }
#define AP_SYNC() __syncthreads()
#define AP_BLOCK() (blockIdx.x)
#define AP_BLOCKS() (gridDim.x)
#define AP_THREAD() (threadIdx.x)
#define AP_THREADS() (blockDim.x)

struct alignas(16) Vector {
    u32 word[4];
};

// Two units of packets.
struct alignas(16) Pair {
    u64 first, second;
};

AP_INLINE void pause_briefly() { __nanosleep(20); }

AP_INLINE Vector load_vector(const void *from) { return *(const Vector *)from; }
AP_INLINE void store_vector(void *to, const Vector &v) { *(Vector *)to = v; }

AP_INLINE Pair load_pair(const void *from) {
    const u64 *units = (const u64 *)from;
    Pair pair;
    pair.first = antiphon_sim::load_relaxed(units);
    pair.second = antiphon_sim::load_relaxed(units + 1);
    return pair;
}
AP_INLINE void store_pair(void *to, const Pair &pair) {
    antiphon_sim::store_relaxed((u64 *)to, pair.first);
    antiphon_sim::store_relaxed((u64 *)to + 1, pair.second);
}

AP_INLINE u64 load_relaxed(const u64 *from) { return antiphon_sim::load_relaxed(from); }
AP_INLINE u64 load_acquire(const u64 *from) { return antiphon_sim::load_acquire(from); }
AP_INLINE u32 load_word(const u32 *from) { return antiphon_sim::load_relaxed(from); }
AP_INLINE void store_word(u32 *to, u32 value) { antiphon_sim::store_relaxed(to, value); }
AP_INLINE void store_relaxed(u64 *to, u64 value) { antiphon_sim::store_relaxed(to, value); }
AP_INLINE void store_release(u64 *to, u64 value) { antiphon_sim::store_release(to, value); }
AP_INLINE void add_release(u64 *to, u64 value) { __atomic_fetch_add(to, value, __ATOMIC_RELEASE); }
AP_INLINE void add_relaxed(u64 *to, u64 value) { __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
AP_INLINE void raise_release(u64 *to, u64 value) { atomicMax_system(to, value); }
AP_INLINE u64 claim(u64 *to, u64 value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
AP_INLINE u64 fetch_add(u64 *to, u64 value) { return __atomic_fetch_add(to, value, __ATOMIC_ACQ_REL); }
AP_INLINE u64 fetch_add_relaxed(u64 *to, u64 value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
AP_INLINE u32 fetch_add_word(u32 *to, u32 value) { return __atomic_fetch_add(to, value, __ATOMIC_ACQ_REL); }

AP_INLINE float as_float(u32 bits) { return __uint_as_float(bits); }
AP_INLINE u32 as_bits(float value) { return __float_as_uint(value); }

AP_INLINE float f16_to_f32(u16 bits) {
    const u32 sign = (u32)(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude > 0x7c00u) return as_float(sign | 0x7fc00000u);
    if (magnitude == 0x7c00u) return as_float(sign | 0x7f800000u);
    if (magnitude >= 0x400u) return as_float(sign | ((magnitude << 13) + (112u << 23)));
    return as_float(sign | as_bits((float)magnitude * as_float((127u - 24u) << 23)));
}

AP_INLINE u16 f32_to_f16(float value) {
    const u32 sign = as_bits(value) >> 16 & 0x8000u, magnitude = as_bits(value) & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fffu;
    // Between 2^-1 and 1 binary32 counts in steps of 2^-24, binary16's subnormal step.
    if (magnitude < 113u << 23) return (u16)(sign | (as_bits(as_float(magnitude) + 0.5f) - as_bits(0.5f)));
    const u32 rounded = (magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    const u32 finite = rounded - (112u << 10);
    return (u16)(sign | (finite > 0x7c00u ? 0x7c00u : finite));
}

#if __CUDA_ARCH__ >= 900
#define AP_MULTICAST 1
AP_INLINE void fence_alias() {}

template <class T, class F> static inline Vector multicast_load(const void *from, F combine) {
    void *members[64];
    const size_t count = antiphon_sim::members(from, members, 64);
    T sums[16 / sizeof(T)], more[16 / sizeof(T)];
    for (size_t k = 0; k < count; ++k) {
        memcpy(k ? more : sums, members[k], 16);
        for (size_t i = 0; k && i < 16 / sizeof(T); ++i) sums[i] = combine(sums[i], more[i]);
    }
    Vector v;
    memcpy(&v, sums, 16);
    return v;
}

AP_INLINE u16 sum_of_bf16(u16 a, u16 b) {
    const u32 bits = as_bits(as_float((u32)a << 16) + as_float((u32)b << 16));
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#define AP_MULTICAST_LOAD(name, type, what) \
    AP_INLINE Vector name(const void *from) { return multicast_load<type>(from, [](type a, type b) -> type { return what; }); }
AP_MULTICAST_LOAD(multicast_sum_f32, float, a + b)
AP_MULTICAST_LOAD(multicast_sum_f16, u16, f32_to_f16(f16_to_f32(a) + f16_to_f32(b)))
AP_MULTICAST_LOAD(multicast_sum_bf16, u16, sum_of_bf16(a, b))
AP_MULTICAST_LOAD(multicast_sum_u32, u32, a + b)
AP_MULTICAST_LOAD(multicast_min_u32, u32, a < b ? a : b)
AP_MULTICAST_LOAD(multicast_max_u32, u32, a > b ? a : b)
AP_MULTICAST_LOAD(multicast_min_i32, i32, a < b ? a : b)
AP_MULTICAST_LOAD(multicast_max_i32, i32, a > b ? a : b)

AP_INLINE void multicast_store(void *to, const Vector &v) {
    void *members[64];
    const size_t count = antiphon_sim::members(to, members, 64);
    for (size_t k = 0; k < count; ++k) memcpy(members[k], &v, 16);
}
#endif
