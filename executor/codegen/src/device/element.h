// Elements, and how they are combined: floating point of 16 bits or less in 32 bits, rounded once.

AP_INLINE u16 f32_to_bf16(float value) {
    const u32 bits = as_bits(value);
    return (bits & 0x7fffffffu) > 0x7f800000u ? (u16)0x7fc0u : (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// 8-bit floats whose exponent is biased by `bias`, and whose codes above `largest` are not finite.
template <int mantissa, int bias, u32 largest> AP_INLINE float f8_to_f32(u8 code) {
    const u32 sign = (u32)(code & 0x80u) << 24, magnitude = code & 0x7fu;
    const u32 normal = (magnitude << (23 - mantissa)) + ((127u - bias) << 23);
    const u32 subnormal = as_bits((float)(i32)magnitude * as_float((u32)(127 + 1 - bias - mantissa) << 23));
    const u32 finite = magnitude < (1u << mantissa) ? subnormal : normal;
    const u32 other = mantissa == 2 && magnitude == 0x7cu ? 0x7f800000u : 0x7fc00000u;
    return as_float(sign | (magnitude > largest ? other : finite));
}

// To the nearest, ties to even; what is too large, infinity too, becomes the largest.
template <int mantissa, int bias, u32 largest> AP_INLINE u8 f32_to_f8(float value) {
    const u32 sign = as_bits(value) >> 24 & 0x80u, magnitude = as_bits(value) & 0x7fffffffu;
    const u32 nearly = (1u << (22 - mantissa)) - 1;
    const u32 rounded = (magnitude + nearly + (magnitude >> (23 - mantissa) & 1u)) >> (23 - mantissa);
    const u32 shifted = rounded - ((127u - bias) << mantissa), normal = shifted < largest ? shifted : largest;
    // At this power of two, 32-bit floats count in steps of the smallest 8-bit one: the adder rounds.
    const float step = as_float((u32)(127 + 1 - bias - mantissa + 23) << 23);
    const u32 subnormal = as_bits(as_float(magnitude) + step) - as_bits(step);
    const u32 finite = magnitude < (127u - bias + 1) << 23 ? subnormal : normal;
    return (u8)(magnitude > 0x7f800000u ? 0x7fu : sign | finite);
}

struct element_f16 {
    typedef u16 Stored;
    typedef float Wide;
    static __device__ float widen(u16 v) { return f16_to_f32(v); }
    static __device__ u16 narrow(float v) { return v != v ? (u16)0x7e00u : f32_to_f16(v); }
};
struct element_bf16 {
    typedef u16 Stored;
    typedef float Wide;
    static __device__ float widen(u16 v) { return as_float((u32)v << 16); }
    static __device__ u16 narrow(float v) { return f32_to_bf16(v); }
};
struct element_f8e4m3 {
    typedef u8 Stored;
    typedef float Wide;
    static __device__ float widen(u8 v) { return f8_to_f32<3, 7, 0x7e>(v); }
    static __device__ u8 narrow(float v) { return f32_to_f8<3, 7, 0x7e>(v); }
};
struct element_f8e5m2 {
    typedef u8 Stored;
    typedef float Wide;
    static __device__ float widen(u8 v) { return f8_to_f32<2, 15, 0x7b>(v); }
    static __device__ u8 narrow(float v) { return f32_to_f8<2, 15, 0x7b>(v); }
};
#define AP_PLAIN(name, type)                                   \
    struct name {                                              \
        typedef type Stored;                                   \
        typedef type Wide;                                     \
        static __device__ type widen(type v) { return v; }     \
        static __device__ type narrow(type v) { return v; }    \
    }
AP_PLAIN(element_f32, float);
AP_PLAIN(element_f64, double);
AP_PLAIN(element_i8, i8);
AP_PLAIN(element_u8, u8);
AP_PLAIN(element_i32, i32);
AP_PLAIN(element_u32, u32);
AP_PLAIN(element_i64, i64);
AP_PLAIN(element_u64, u64);

// Integers wrap around.
template <class T> AP_INLINE T sum_of(T a, T b) { return (T)((u64)a + (u64)b); }
template <class T> AP_INLINE T product_of(T a, T b) { return (T)((u64)a * (u64)b); }
template <class T> AP_INLINE T lesser_of(T a, T b) { return a < b ? a : b; }
template <class T> AP_INLINE T greater_of(T a, T b) { return a > b ? a : b; }
template <class T> AP_INLINE T divided(T value, u32 by) { return (T)(value / (T)by); }
AP_INLINE i8 divided(i8 value, u32 by) { return (i8)((i64)value / (i64)by); }
AP_INLINE u8 divided(u8 value, u32 by) { return (u8)((u32)value / by); }
AP_INLINE i32 divided(i32 value, u32 by) { return (i32)((i64)value / (i64)by); }

// Of floats, what is no number wins, and -0.0 is below +0.0.
template <class T> AP_INLINE T lesser_float(T a, T b) {
    if (a == b) return a == (T)0 ? -(-a + -b) : a;
    return a != a || a < b ? a : b;
}
template <class T> AP_INLINE T greater_float(T a, T b) {
    if (a == b) return a == (T)0 ? a + b : a;
    return a != a || a > b ? a : b;
}
#ifndef AP_MIN_F32
AP_INLINE float f32_min(float a, float b) { return lesser_float(a, b); }
AP_INLINE float f32_max(float a, float b) { return greater_float(a, b); }
#endif
AP_INLINE float sum_of(float a, float b) { return a + b; }
AP_INLINE float product_of(float a, float b) { return a * b; }
AP_INLINE float lesser_of(float a, float b) { return f32_min(a, b); }
AP_INLINE float greater_of(float a, float b) { return f32_max(a, b); }
AP_INLINE double sum_of(double a, double b) { return a + b; }
AP_INLINE double product_of(double a, double b) { return a * b; }
AP_INLINE double lesser_of(double a, double b) { return lesser_float(a, b); }
AP_INLINE double greater_of(double a, double b) { return greater_float(a, b); }

struct Sum {
    template <class T> static __device__ T apply(T a, T b) { return sum_of(a, b); }
};
struct Prod {
    template <class T> static __device__ T apply(T a, T b) { return product_of(a, b); }
};
struct Min {
    template <class T> static __device__ T apply(T a, T b) { return lesser_of(a, b); }
};
struct Max {
    template <class T> static __device__ T apply(T a, T b) { return greater_of(a, b); }
};

typedef AP_ELEMENT Element;
typedef Element::Stored Stored;
typedef Element::Wide Wide;
#define PER_VECTOR (16 / (int)sizeof(Stored))

union Elements {
    Vector vector;
    Stored element[PER_VECTOR];
};

// Some elements, being combined.
struct Sums {
    Wide value[PER_VECTOR];
};

AP_INLINE void take(Sums &sums, const Vector &v) {
    Elements e;
    e.vector = v;
#pragma unroll
    for (int i = 0; i < PER_VECTOR; ++i) sums.value[i] = Element::widen(e.element[i]);
}

template <class Op> AP_INLINE void combine(Sums &sums, const Vector &v) {
    Elements e;
    e.vector = v;
#pragma unroll
    for (int i = 0; i < PER_VECTOR; ++i) {
        sums.value[i] = Op::template apply<Wide>(sums.value[i], Element::widen(e.element[i]));
    }
}

AP_INLINE Vector result(const Sums &sums) {
    Elements e;
#pragma unroll
    for (int i = 0; i < PER_VECTOR; ++i) e.element[i] = Element::narrow(sums.value[i]);
    return e.vector;
}

