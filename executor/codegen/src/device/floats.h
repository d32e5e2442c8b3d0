// Floating point of 16 bits or less, by words of 32 bits with the first element in the lowest bits: widened to 32 bits, and
// rounded from there once. What is no number has the host's bits.

#ifdef AP_X2

AP_INLINE u32 f32_to_f16x2(float low, float high) { return canonical_f16x2(round_f16x2(low, high)); }
AP_INLINE u32 f32_to_bf16x2(float low, float high) { return canonical_bf16x2(round_bf16x2(low, high)); }

#else

AP_INLINE u32 f32_to_f16x2(float low, float high) {
    const u32 first = low != low ? 0x7e00u : (u32)f32_to_f16(low);
    return first | (high != high ? 0x7e00u : (u32)f32_to_f16(high)) << 16;
}

// The upper half is the number; what is added rounds, to the even one of two as near.
AP_INLINE u32 rounded_bf16(float value) {
    const u32 bits = as_bits(value);
    return value != value ? 0x7fc00000u : bits + 0x7fffu + (bits >> 16 & 1u);
}

AP_INLINE u32 f32_to_bf16x2(float low, float high) { return rounded_bf16(low) >> 16 | (rounded_bf16(high) & 0xffff0000u); }

#endif

#ifdef AP_F8

AP_INLINE void f8e4m3_to_f32(u32 word, float *to) {
    u32 low, high;
    f8e4m3_to_f16(word, low, high);
    f16x2_to_f32(low, to[0], to[1]);
    f16x2_to_f32(high, to[2], to[3]);
}

AP_INLINE void f8e5m2_to_f32(u32 word, float *to) {
    u32 low, high;
    f8e5m2_to_f16(word, low, high);
    f16x2_to_f32(low, to[0], to[1]);
    f16x2_to_f32(high, to[2], to[3]);
}

#else

// Codes of e4m3 in the upper bytes of both halves, as 16-bit floats. Moved by one bit they are those floats less 2^8, and so
// are the subnormal ones; only the code of no number carries into the exponent's highest bit.
AP_INLINE u32 f8e4m3x2_to_f16x2(u32 codes) {
    const u32 magnitude = codes >> 1 & 0x3f803f80u;
    const u32 nan = magnitude + 0x00800080u;
    return mul_f16x2(magnitude | (nan & 0x40004000u) | (codes & 0x80008000u), 0x5c005c00u);
}

AP_INLINE void f8e4m3_to_f32(u32 word, float *to) {
    f16x2_to_f32(f8e4m3x2_to_f16x2(word << 8), to[0], to[2]);
    f16x2_to_f32(f8e4m3x2_to_f16x2(word), to[1], to[3]);
}

// Codes of e5m2 are the upper bytes of 16-bit floats.
AP_INLINE void f8e5m2_to_f32(u32 word, float *to) {
    f16x2_to_f32(word << 8 & 0xff00ff00u, to[0], to[2]);
    f16x2_to_f32(word & 0xff00ff00u, to[1], to[3]);
}

// To the nearest, ties to even; what is too large, infinity too, becomes `largest`. Exponents are biased by `bias`.
template <int mantissa, int bias, u32 largest> AP_INLINE u32 f32_to_f8(float value) {
    const u32 magnitude = as_bits(value) & 0x7fffffffu;
    const u32 most = (largest << (23 - mantissa)) + ((127u - bias) << 23), least = (127u - bias + 1) << 23;
    const u32 finite = magnitude < most ? magnitude : most;
    // The power of two below, or that of the smallest normal code: beside it moved up, 32-bit floats count in steps of the
    // code's, and the adder rounds.
    const u32 exponent = finite & 0x7f800000u, power = exponent > least ? exponent : least;
    const u32 beside = power + ((u32)(23 - mantissa) << 23);
    const u32 steps = as_bits(as_float(finite) + as_float(beside)) - beside;
    const u32 code = steps + (power >> (23 - mantissa)) - (least >> (23 - mantissa));
    return value != value ? 0x7fu : code | (as_bits(value) >> 24 & 0x80u);
}

template <int mantissa, int bias, u32 largest> AP_INLINE u32 f32_to_f8x4(const float *from) {
    const u32 low = f32_to_f8<mantissa, bias, largest>(from[0]) | f32_to_f8<mantissa, bias, largest>(from[1]) << 8;
    const u32 high = f32_to_f8<mantissa, bias, largest>(from[2]) | f32_to_f8<mantissa, bias, largest>(from[3]) << 8;
    return low | high << 16;
}

AP_INLINE u32 f32_to_f8e4m3(const float *from) { return f32_to_f8x4<3, 7, 0x7e>(from); }
AP_INLINE u32 f32_to_f8e5m2(const float *from) { return f32_to_f8x4<2, 15, 0x7b>(from); }

#endif
