// Elements, and how they are combined: floating point of 16 bits or less in 32 bits, rounded once.

// Elements are widened and narrowed a unit at a time, of one or several of them.
struct element_f16 {
    typedef u16 Stored;
    typedef float Wide;
    typedef u32 Unit;
    static __device__ void widen(u32 word, float *to) { f16x2_to_f32(word, to[0], to[1]); }
    static __device__ u32 narrow(const float *from) { return f32_to_f16x2(from[0], from[1]); }
};
struct element_bf16 {
    typedef u16 Stored;
    typedef float Wide;
    typedef u32 Unit;
    static __device__ void widen(u32 word, float *to) {
        to[0] = as_float(word << 16);
        to[1] = as_float(word & 0xffff0000u);
    }
    static __device__ u32 narrow(const float *from) { return f32_to_bf16x2(from[0], from[1]); }
};
struct element_f8e4m3 {
    typedef u8 Stored;
    typedef float Wide;
    typedef u32 Unit;
    static __device__ void widen(u32 word, float *to) { f8e4m3_to_f32(word, to); }
    static __device__ u32 narrow(const float *from) { return f32_to_f8e4m3(from); }
};
struct element_f8e5m2 {
    typedef u8 Stored;
    typedef float Wide;
    typedef u32 Unit;
    static __device__ void widen(u32 word, float *to) { f8e5m2_to_f32(word, to); }
    static __device__ u32 narrow(const float *from) { return f32_to_f8e5m2(from); }
};
#define AP_PLAIN(name, type)                                   \
    struct name {                                              \
        typedef type Stored;                                   \
        typedef type Wide;                                     \
        typedef type Unit;                                     \
        static __device__ void widen(type v, type *to) { *to = v; } \
        static __device__ type narrow(const type *from) { return *from; } \
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
typedef Element::Unit Unit;
#define PER_UNIT ((int)(sizeof(Unit) / sizeof(Stored)))

// One element.
AP_INLINE Wide widened(Stored value) {
    Wide all[PER_UNIT];
    Element::widen((Unit)value, all);
    return all[0];
}
AP_INLINE Stored narrowed(Wide value) {
    Wide all[PER_UNIT];
#pragma unroll
    for (int i = 0; i < PER_UNIT; ++i) all[i] = value;
    return (Stored)Element::narrow(all);
}

// Elements side by side: a vector, or 8 bytes.
template <class Raw> union Units {
    Raw raw;
    Unit unit[sizeof(Raw) / sizeof(Unit)];
};

// Such elements, being combined.
template <class Raw> struct Sums {
    Wide value[sizeof(Raw) / sizeof(Stored)];

    __device__ void take(const Raw &raw) {
        Units<Raw> units;
        units.raw = raw;
#pragma unroll
        for (int i = 0; i < (int)(sizeof(Raw) / sizeof(Unit)); ++i) Element::widen(units.unit[i], value + i * PER_UNIT);
    }

    template <class Op> __device__ void combine(const Raw &raw) {
        Sums more;
        more.take(raw);
#pragma unroll
        for (int i = 0; i < (int)(sizeof(Raw) / sizeof(Stored)); ++i) value[i] = Op::template apply<Wide>(value[i], more.value[i]);
    }

    __device__ Raw result() const {
        Units<Raw> units;
#pragma unroll
        for (int i = 0; i < (int)(sizeof(Raw) / sizeof(Unit)); ++i) units.unit[i] = Element::narrow(value + i * PER_UNIT);
        return units.raw;
    }
};

// The same as 16-bit floats, two to a word. `most` sources at most: each result is rounded once, so its bits are those that
// come of 32 bits.
template <class E, class Op> struct Pairs {
    static const int most = 0;
};

// Sources that nobody counts before.
#define MANY 1024

#ifdef AP_X2

struct F16x2 {
    static __device__ u32 apply(Sum, u32 a, u32 b) { return add_f16x2(a, b); }
    static __device__ u32 apply(Min, u32 a, u32 b) { return min_f16x2(a, b); }
    static __device__ u32 apply(Max, u32 a, u32 b) { return max_f16x2(a, b); }
};
struct Bf16x2 {
    static __device__ u32 apply(Sum, u32 a, u32 b) { return add_bf16x2(a, b); }
    static __device__ u32 apply(Min, u32 a, u32 b) { return min_bf16x2(a, b); }
    static __device__ u32 apply(Max, u32 a, u32 b) { return max_bf16x2(a, b); }
};

// How words of elements become such pairs, and pairs words.
struct AsF16 : F16x2 {
    static const int per_word = 1;
    static __device__ void pairs(u32 word, u32 *to) { *to = word; }
    static __device__ u32 word(const u32 *from) { return canonical_f16x2(*from); }
};
struct AsBf16 : Bf16x2 {
    static const int per_word = 1;
    static __device__ void pairs(u32 word, u32 *to) { *to = word; }
    static __device__ u32 word(const u32 *from) { return canonical_bf16x2(*from); }
};
// A sum of two 16-bit floats that is rounded to 16 bits and then to 8 is the sum rounded to 8 (more than twice the bits, and
// one), and so is one in 32 bits rounded to 16.
#define AP_PAIRS(element, as)                                        \
    template <> struct Pairs<element, Sum> : as {                    \
        static const int most = 2;                                   \
    };                                                               \
    template <> struct Pairs<element, Min> : as {                    \
        static const int most = MANY;                                \
    };                                                               \
    template <> struct Pairs<element, Max> : as {                    \
        static const int most = MANY;                                \
    }
AP_PAIRS(element_f16, AsF16);
AP_PAIRS(element_bf16, AsBf16);

#ifdef AP_F8
struct AsF8e4m3 : F16x2 {
    static const int per_word = 2;
    static __device__ void pairs(u32 word, u32 *to) { f8e4m3_to_f16(word, to[0], to[1]); }
    static __device__ u32 word(const u32 *from) { return f16_to_f8e4m3(from[0], from[1]); }
};
struct AsF8e5m2 : F16x2 {
    static const int per_word = 2;
    static __device__ void pairs(u32 word, u32 *to) { f8e5m2_to_f16(word, to[0], to[1]); }
    static __device__ u32 word(const u32 *from) { return f16_to_f8e5m2(from[0], from[1]); }
};
AP_PAIRS(element_f8e4m3, AsF8e4m3);
AP_PAIRS(element_f8e5m2, AsF8e5m2);
#endif

#endif

// As `Sums`.
template <class Raw, class Floats> struct PairSums {
    u32 pair[sizeof(Raw) / 4 * Floats::per_word];

    __device__ void take(const Raw &raw) {
        Units<Raw> units;
        units.raw = raw;
#pragma unroll
        for (int i = 0; i < (int)sizeof(Raw) / 4; ++i) Floats::pairs(units.unit[i], pair + i * Floats::per_word);
    }

    template <class Op> __device__ void combine(const Raw &raw) {
        PairSums more;
        more.take(raw);
#pragma unroll
        for (int i = 0; i < (int)sizeof(Raw) / 4 * Floats::per_word; ++i) pair[i] = Floats::apply(Op(), pair[i], more.pair[i]);
    }

    __device__ Raw result() const {
        Units<Raw> units;
#pragma unroll
        for (int i = 0; i < (int)sizeof(Raw) / 4; ++i) units.unit[i] = Floats::word(pair + i * Floats::per_word);
        return units.raw;
    }
};

// What combines so many sources.
template <class Op, int reads, class Raw, bool paired = (reads <= Pairs<Element, Op>::most)> struct Accumulator {
    typedef Sums<Raw> Type;
};
template <class Op, int reads, class Raw> struct Accumulator<Op, reads, Raw, true> {
    typedef PairSums<Raw, Pairs<Element, Op> > Type;
};
