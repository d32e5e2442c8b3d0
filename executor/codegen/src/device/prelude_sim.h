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
#ifdef __HIPCC__
#define AP_IN_STEP() ((u32)warpSize)
#else
#define AP_IN_STEP() 1u
#endif

struct alignas(16) Vector {
    u32 word[4];
};

// Two units of packets.
struct alignas(16) Pair {
    u64 first, second;
};

AP_INLINE void pause_briefly() { __nanosleep(20); }

// What lies in raw areas. Stores of it may be late, until a release.
template <class T> AP_INLINE T load_plain(const void *from) { return antiphon_sim::load_plain<T>(from); }
template <class T> AP_INLINE void store_plain(void *to, T value) { antiphon_sim::store_plain(to, value); }
AP_INLINE Vector load_vector(const void *from) { return load_plain<Vector>(from); }
AP_INLINE void store_vector(void *to, const Vector &v) { store_plain(to, v); }

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
AP_INLINE void fence_release() { antiphon_sim::release(); }
AP_INLINE void add_release(u64 *to, u64 value) {
    antiphon_sim::release();
    antiphon_sim::add(to, value);
}
AP_INLINE void add_relaxed(u64 *to, u64 value) { antiphon_sim::add(to, value); }
AP_INLINE void raise_release(u64 *to, u64 value) {
    antiphon_sim::release();
    atomicMax_system(to, value);
}
AP_INLINE u64 claim(u64 *to, u64 value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
AP_INLINE u64 fetch_add(u64 *to, u64 value) {
    antiphon_sim::release();
    return __atomic_fetch_add(to, value, __ATOMIC_ACQ_REL);
}
AP_INLINE u64 fetch_add_relaxed(u64 *to, u64 value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
AP_INLINE u32 fetch_add_word(u32 *to, u32 value) {
    antiphon_sim::release();
    return __atomic_fetch_add(to, value, __ATOMIC_ACQ_REL);
}

// Words of the block's shared memory that its threads change at any time: all threads of a block are of one thread of the system.
AP_INLINE u32 load_shared(const u32 *from) { return *(const volatile u32 *)from; }
AP_INLINE void store_shared(u32 *to, u32 value) { *(volatile u32 *)to = value; }
AP_INLINE u32 add_shared(u32 *to, u32 value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }

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

AP_INLINE void f16x2_to_f32(u32 word, float &low, float &high) {
    low = f16_to_f32((u16)word);
    high = f16_to_f32((u16)(word >> 16));
}

template <class F> static inline u32 of_halves(u32 a, u32 b, F of) {
    return (u32)(u16)of((u16)a, (u16)b) | (u32)(u16)of((u16)(a >> 16), (u16)(b >> 16)) << 16;
}

AP_INLINE u32 mul_f16x2(u32 a, u32 b) {
    return of_halves(a, b, [](u16 x, u16 y) { return f32_to_f16(f16_to_f32(x) * f16_to_f32(y)); });
}

AP_INLINE u16 sum_of_bf16(u16 a, u16 b) {
    const float sum = as_float((u32)a << 16) + as_float((u32)b << 16);
    const u32 bits = as_bits(sum);
    return sum != sum ? (u16)0x7fffu : (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#if __CUDA_ARCH__ >= 800
// What the instructions for two floats of 16 bits do. What is no number becomes 0x7fff.
#define AP_X2 1
// Of codes of sign and magnitude; those above `infinity` are no numbers.
AP_INLINE u16 chosen(u16 a, u16 b, u32 infinity, bool lesser) {
    if ((a & 0x7fffu) > infinity || (b & 0x7fffu) > infinity) return 0x7fffu;
    const i32 left = a & 0x8000u ? -1 - (i32)(a & 0x7fffu) : (i32)a;
    const i32 right = b & 0x8000u ? -1 - (i32)(b & 0x7fffu) : (i32)b;
    return (left < right) == lesser ? a : b;
}
AP_INLINE u32 add_f16x2(u32 a, u32 b) {
    return of_halves(a, b, [](u16 x, u16 y) { return f32_to_f16(f16_to_f32(x) + f16_to_f32(y)); });
}
AP_INLINE u32 add_bf16x2(u32 a, u32 b) { return of_halves(a, b, sum_of_bf16); }
AP_INLINE u32 min_f16x2(u32 a, u32 b) { return of_halves(a, b, [](u16 x, u16 y) { return chosen(x, y, 0x7c00u, true); }); }
AP_INLINE u32 max_f16x2(u32 a, u32 b) { return of_halves(a, b, [](u16 x, u16 y) { return chosen(x, y, 0x7c00u, false); }); }
AP_INLINE u32 min_bf16x2(u32 a, u32 b) { return of_halves(a, b, [](u16 x, u16 y) { return chosen(x, y, 0x7f80u, true); }); }
AP_INLINE u32 max_bf16x2(u32 a, u32 b) { return of_halves(a, b, [](u16 x, u16 y) { return chosen(x, y, 0x7f80u, false); }); }
AP_INLINE u32 round_f16x2(float low, float high) { return f32_to_f16(low) | (u32)f32_to_f16(high) << 16; }
AP_INLINE u32 round_bf16x2(float low, float high) {
    u32 words[2] = {as_bits(low), as_bits(high)};
    for (u32 &bits : words) bits = (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return words[0] | words[1] << 16;
}
AP_INLINE u32 canonical_f16x2(u32 word) {
    return of_halves(word, 0, [](u16 x, u16) { return x == 0x7fffu ? (u16)0x7e00u : x; });
}
AP_INLINE u32 canonical_bf16x2(u32 word) {
    return of_halves(word, 0, [](u16 x, u16) { return x == 0x7fffu ? (u16)0x7fc0u : x; });
}
#endif

#if __CUDA_ARCH__ >= 890
// What the conversions of 8-bit floats do: `largest` is the code of the largest number, exponents are biased by `bias`.
#define AP_F8 1
template <int mantissa, int bias, u32 largest> static inline u32 f8_to_f16(u8 code) {
    const u32 magnitude = code & 0x7fu;
    if (magnitude > largest) return mantissa == 2 && magnitude == 0x7cu ? (code & 0x80u) << 8 | 0x7c00u : 0x7fffu;
    const u32 steps = magnitude >> mantissa ? (magnitude & ((1u << mantissa) - 1)) | 1u << mantissa : magnitude;
    const int power = (magnitude >> mantissa ? (int)(magnitude >> mantissa) : 1) - bias - mantissa;
    return f32_to_f16((code & 0x80u ? -1.0f : 1.0f) * (float)(i32)steps * as_float((u32)(127 + power) << 23));
}
template <int mantissa, int bias, u32 largest> static inline u32 f8_of_f32(float value) {
    const u32 sign = as_bits(value) >> 24 & 0x80u, magnitude = as_bits(value) & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fu;
    if (magnitude < (127u - bias + 1) << 23) {
        const float step = as_float((u32)(127 + 1 - bias - mantissa + 23) << 23);
        return sign | (as_bits(as_float(magnitude) + step) - as_bits(step));
    }
    const u32 nearly = (1u << (22 - mantissa)) - 1;
    const u32 rounded = (magnitude + nearly + (magnitude >> (23 - mantissa) & 1u)) >> (23 - mantissa);
    const u32 code = rounded - ((127u - bias) << mantissa);
    return sign | (code < largest ? code : largest);
}
#define AP_F8_OF(name, mantissa, bias, largest)                                                               \
    AP_INLINE void f8##name##_to_f16(u32 word, u32 &low, u32 &high) {                                         \
        u32 wide[4];                                                                                          \
        for (int i = 0; i < 4; ++i) wide[i] = f8_to_f16<mantissa, bias, largest>((u8)(word >> 8 * i));        \
        low = wide[0] | wide[1] << 16;                                                                        \
        high = wide[2] | wide[3] << 16;                                                                       \
    }                                                                                                         \
    AP_INLINE u32 f32_to_f8##name(const float *from) {                                                        \
        u32 word = 0;                                                                                         \
        for (int i = 0; i < 4; ++i) word |= f8_of_f32<mantissa, bias, largest>(from[i]) << 8 * i;             \
        return word;                                                                                          \
    }                                                                                                         \
    AP_INLINE u32 f16_to_f8##name(u32 low, u32 high) {                                                        \
        float wide[4];                                                                                        \
        f16x2_to_f32(low, wide[0], wide[1]);                                                                  \
        f16x2_to_f32(high, wide[2], wide[3]);                                                                 \
        return f32_to_f8##name(wide);                                                                         \
    }
AP_F8_OF(e4m3, 3, 7, 0x7e)
AP_F8_OF(e5m2, 2, 15, 0x7b)
#endif

#if __CUDA_ARCH__ >= 900
#define AP_MULTICAST 1
AP_INLINE void fence_alias() {}

template <class T, class F> static inline Vector multicast_load(const void *from, F combine) {
    void *members[64];
    const size_t count = antiphon_sim::members(from, members, 64);
    T sums[16 / sizeof(T)], more[16 / sizeof(T)];
    for (size_t k = 0; k < count; ++k) {
        antiphon_sim::load_plain(members[k], k ? more : sums, 16);
        for (size_t i = 0; k && i < 16 / sizeof(T); ++i) sums[i] = combine(sums[i], more[i]);
    }
    Vector v;
    memcpy(&v, sums, 16);
    return v;
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
    for (size_t k = 0; k < count; ++k) store_vector(members[k], v);
}
#endif
