// What CUDA says in its own way: types, memory order, threads. No header of the toolkit is read, for its run-time
// compiler comes without them.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;

#define AP_INLINE static __device__ __forceinline__
// Functions that are called rather than inlined, so that long programs compile in short time.
#ifdef AP_INLINED
#define AP_DEVICE AP_INLINE
#else
#define AP_DEVICE static __device__ __noinline__
#endif
// One block on a multiprocessor is enough: without that word, registers spill to make room for more.
#define AP_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
// A parameter that is a struct.
#define AP_PARAMETER const __grid_constant__
// One thing for each block, and the function that finds it.
#define AP_SHARED(type, name)            \
    static __shared__ type name##_shared; \
    AP_INLINE type &name() { return name##_shared; }
#define AP_SYNC() __syncthreads()
#define AP_BLOCK() (blockIdx.x)
#define AP_BLOCKS() (gridDim.x)
#define AP_THREAD() (threadIdx.x)
#define AP_THREADS() (blockDim.x)
// Threads of a block that may keep each other from going on while one of them waits.
#define AP_IN_STEP() 1u

struct alignas(16) Vector {
    u32 word[4];
};

// Two units of packets.
struct alignas(16) Pair {
    u64 first, second;
};

AP_INLINE void pause_briefly() {
#if __CUDA_ARCH__ >= 700
    __nanosleep(20);
#endif
}

// 16 bytes that nobody writes meanwhile.
AP_INLINE Vector load_vector(const void *from) {
    Vector v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3]) : "l"(from) : "memory");
    return v;
}

AP_INLINE void store_vector(void *to, const Vector &v) {
    asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};"
                 :: "l"(to), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3]) : "memory");
}

// What lies in raw areas, where not by vectors.
template <class T> AP_INLINE T load_plain(const void *from) { return *(const T *)from; }
template <class T> AP_INLINE void store_plain(void *to, T value) { *(T *)to = value; }

// Two units of packets. Each appears whole, in no order.
AP_INLINE Pair load_pair(const void *from) {
    Pair pair;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1}, [%2];"
                 : "=l"(pair.first), "=l"(pair.second) : "l"(from) : "memory");
    return pair;
}

AP_INLINE void store_pair(void *to, const Pair &pair) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1,%2};" :: "l"(to), "l"(pair.first), "l"(pair.second) : "memory");
}

AP_INLINE u64 load_relaxed(const u64 *from) {
    u64 value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

AP_INLINE u64 load_acquire(const u64 *from) {
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

AP_INLINE u32 load_word(const u32 *from) {
    u32 value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

AP_INLINE void store_word(u32 *to, u32 value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" :: "l"(to), "r"(value) : "memory");
}

AP_INLINE void store_relaxed(u64 *to, u64 value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" :: "l"(to), "l"(value) : "memory");
}

AP_INLINE void store_release(u64 *to, u64 value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" :: "l"(to), "l"(value) : "memory");
}

// What this thread has written and seen is there for whoever sees what it stores behind this.
AP_INLINE void fence_release() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// Adds where other devices look.
AP_INLINE void add_release(u64 *to, u64 value) {
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" :: "l"(to), "l"(value) : "memory");
}

AP_INLINE void add_relaxed(u64 *to, u64 value) {
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" :: "l"(to), "l"(value) : "memory");
}

AP_INLINE void raise_release(u64 *to, u64 value) {
    asm volatile("red.release.sys.global.max.u64 [%0], %1;" :: "l"(to), "l"(value) : "memory");
}

// Claims of a queue that the host reads; what was there before.
AP_INLINE u64 claim(u64 *to, u64 value) {
    u64 before;
    asm volatile("atom.relaxed.sys.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(to), "l"(value) : "memory");
    return before;
}

// Adds where only this device looks; what was there before.
AP_INLINE u64 fetch_add(u64 *to, u64 value) {
    u64 before;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(to), "l"(value) : "memory");
    return before;
}

AP_INLINE u64 fetch_add_relaxed(u64 *to, u64 value) {
    u64 before;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(to), "l"(value) : "memory");
    return before;
}

AP_INLINE u32 fetch_add_word(u32 *to, u32 value) {
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(value) : "memory");
    return before;
}

// Words of the block's shared memory that its threads change at any time.
AP_INLINE u32 load_shared(const u32 *from) {
    u32 value;
    asm volatile("ld.relaxed.cta.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

AP_INLINE void store_shared(u32 *to, u32 value) {
    asm volatile("st.relaxed.cta.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}

AP_INLINE u32 add_shared(u32 *to, u32 value) {
    u32 before;
    asm volatile("atom.relaxed.cta.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(value) : "memory");
    return before;
}

// Two 16-bit floats are a word, the first of them its lower half.
AP_INLINE void f16x2_to_f32(u32 word, float &low, float &high) {
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(low), "=f"(high) : "r"(word));
}

AP_INLINE u32 mul_f16x2(u32 a, u32 b) {
    u32 word;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));
    return word;
}

AP_INLINE u16 f32_to_f16(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

AP_INLINE float as_float(u32 bits) { return __uint_as_float(bits); }
AP_INLINE u32 as_bits(float value) { return __float_as_uint(value); }

#if __CUDA_ARCH__ >= 800
// What is no number wins, and -0.0 is below +0.0.
#define AP_MIN_F32 1
AP_INLINE float f32_min(float a, float b) {
    float value;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
    return value;
}
AP_INLINE float f32_max(float a, float b) {
    float value;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
    return value;
}
#endif

#if __CUDA_ARCH__ >= 800
// Arithmetic of two 16-bit floats at once, subnormal ones too. What is no number becomes 0x7fff.
#define AP_X2 1
#define AP_TWO(name, what)                                                    \
    AP_INLINE u32 name(u32 a, u32 b) {                                        \
        u32 word;                                                             \
        asm(what " %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));               \
        return word;                                                          \
    }
AP_TWO(add_f16x2, "add.rn.f16x2")
AP_TWO(min_f16x2, "min.NaN.f16x2")
AP_TWO(max_f16x2, "max.NaN.f16x2")
AP_TWO(min_bf16x2, "min.NaN.bf16x2")
AP_TWO(max_bf16x2, "max.NaN.bf16x2")

// Sums are products with 1.0 before.
AP_INLINE u32 add_bf16x2(u32 a, u32 b) {
    u32 word;
    asm("fma.rn.bf16x2 %0, %1, %3, %2;" : "=r"(word) : "r"(a), "r"(b), "r"(0x3f803f80u));
    return word;
}

AP_INLINE u32 round_f16x2(float low, float high) {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(low), "f"(high));
    return word;
}
AP_INLINE u32 round_bf16x2(float low, float high) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(low), "f"(high));
    return word;
}

// With 0x7fff replaced: as signed integers, halves above that of the host are no numbers.
#if __CUDA_ARCH__ >= 900
AP_TWO(min_s16x2, "min.s16x2")
AP_INLINE u32 canonical_f16x2(u32 word) { return min_s16x2(word, 0x7e007e00u); }
AP_INLINE u32 canonical_bf16x2(u32 word) { return min_s16x2(word, 0x7fc07fc0u); }
#else
// The lesser of a number and infinity is the number, and of no number and infinity infinity.
AP_TWO(number_f16x2, "min.f16x2")
AP_TWO(number_bf16x2, "min.bf16x2")
AP_INLINE u32 canonical_f16x2(u32 word) { return word ^ ((word ^ number_f16x2(word, 0x7c007c00u)) & 0x01ff01ffu); }
AP_INLINE u32 canonical_bf16x2(u32 word) { return word ^ ((word ^ number_bf16x2(word, 0x7f807f80u)) & 0x003f003fu); }
#endif
#endif

#if __CUDA_ARCH__ >= 900 || (__CUDA_ARCH__ == 890 && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1201)
// Conversions of four 8-bit floats; `low` has the first two. Narrowed, what is too large becomes the largest number, and what
// is none 0x7f.
#define AP_F8 1
#define AP_F8_OF(name)                                                                                                      \
    AP_INLINE void f8##name##_to_f16(u32 word, u32 &low, u32 &high) {                                                       \
        asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2." #name "x2 %0, l; cvt.rn.f16x2." #name "x2 %1, h;}"         \
            : "=r"(low), "=r"(high) : "r"(word));                                                                           \
    }                                                                                                                       \
    AP_INLINE u32 f16_to_f8##name(u32 low, u32 high) {                                                                      \
        u32 word;                                                                                                           \
        asm("{.reg .b16 l, h; cvt.rn.satfinite." #name "x2.f16x2 l, %1; cvt.rn.satfinite." #name "x2.f16x2 h, %2; mov.b32 %0, {l, h};}" \
            : "=r"(word) : "r"(low), "r"(high));                                                                            \
        return word;                                                                                                        \
    }                                                                                                                       \
    AP_INLINE u32 f32_to_f8##name(const float *from) {                                                                      \
        u32 word;                                                                                                           \
        asm("{.reg .b16 l, h; cvt.rn.satfinite." #name "x2.f32 l, %2, %1; cvt.rn.satfinite." #name "x2.f32 h, %4, %3; mov.b32 %0, {l, h};}" \
            : "=r"(word) : "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]));                                         \
        return word;                                                                                                        \
    }
AP_F8_OF(e4m3)
AP_F8_OF(e5m2)
#endif

#if __CUDA_ARCH__ >= 900
// Loads that combine what all members of a multicast have, and stores that all of them get.
#define AP_MULTICAST 1
AP_INLINE void fence_alias() { asm volatile("fence.proxy.alias;" ::: "memory"); }

#define AP_MULTICAST_LOAD(name, what)                                                                       \
    AP_INLINE Vector name(const void *from) {                                                               \
        Vector v;                                                                                           \
        asm volatile("multimem.ld_reduce.relaxed.sys.global." what " {%0,%1,%2,%3}, [%4];"                  \
                     : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3]) : "l"(from) : "memory"); \
        return v;                                                                                           \
    }
AP_MULTICAST_LOAD(multicast_sum_f16, "add.acc::f32.v4.f16x2")
AP_MULTICAST_LOAD(multicast_sum_bf16, "add.acc::f32.v4.bf16x2")

AP_INLINE Vector multicast_sum_f32(const void *from) {
    float a, b, c, d;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(from) : "memory");
    return Vector{{as_bits(a), as_bits(b), as_bits(c), as_bits(d)}};
}

#define AP_MULTICAST_WORDS(name, what)                                                            \
    AP_INLINE Vector name(const void *from) {                                                     \
        Vector v;                                                                                 \
        for (int i = 0; i < 4; ++i) {                                                             \
            asm volatile("multimem.ld_reduce.relaxed.sys.global." what " %0, [%1];"               \
                         : "=r"(v.word[i]) : "l"((const u32 *)from + i) : "memory");              \
        }                                                                                         \
        return v;                                                                                 \
    }
AP_MULTICAST_WORDS(multicast_sum_u32, "add.u32")
AP_MULTICAST_WORDS(multicast_min_u32, "min.u32")
AP_MULTICAST_WORDS(multicast_max_u32, "max.u32")
AP_MULTICAST_WORDS(multicast_min_i32, "min.s32")
AP_MULTICAST_WORDS(multicast_max_i32, "max.s32")

AP_INLINE void multicast_store(void *to, const Vector &v) {
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1,%2,%3,%4};"
                 :: "l"(to), "f"(as_float(v.word[0])), "f"(as_float(v.word[1])), "f"(as_float(v.word[2])),
                    "f"(as_float(v.word[3])) : "memory");
}
#endif
