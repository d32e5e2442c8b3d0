//! The 8-bit floats: E4M3 and E5M2 to binary32 and back.
//!
//! Narrowing rounds to nearest, ties to even, and saturates as the GPUs' `satfinite` conversions do: what is too
//! large, infinity included, becomes the largest finite value; every NaN becomes 0x7F. Written without branches,
//! so that the loops that use these vectorise.

use super::half::CANONICAL_NAN;

/// E4M3 to binary32, exactly: 0x7F and 0xFF are NaN, there is no infinity.
#[inline(always)]
pub(super) fn e4m3_to_f32(x: u8) -> f32 {
    let sign = u32::from(x & 0x80) << 24;
    let magnitude = u32::from(x & 0x7F);
    let normal = (magnitude << 20) + (120 << 23);
    let subnormal = (magnitude as i32 as f32 * f32::from_bits((127 - 9) << 23)).to_bits();
    let finite = if magnitude < 0x08 { subnormal } else { normal };
    f32::from_bits(sign | if magnitude == 0x7F { CANONICAL_NAN.to_bits() } else { finite })
}

/// binary32 to E4M3.
#[inline(always)]
pub(super) fn f32_to_e4m3(x: f32) -> u8 {
    let sign = ((x.to_bits() >> 24) & 0x80) as u8;
    let magnitude = x.to_bits() & 0x7FFF_FFFF;
    let rounded = magnitude.wrapping_add(0x7_FFFF + ((magnitude >> 20) & 1)) >> 20;
    let normal = rounded.wrapping_sub(120 << 3).min(0x7E);
    // Between 2^14 and 2^15 binary32 counts in steps of 2^-9, E4M3's subnormal step: the adder rounds for us.
    let subnormal =
        (f32::from_bits(magnitude) + 16384.0).to_bits().wrapping_sub(16384f32.to_bits());
    let finite = if magnitude < (121 << 23) { subnormal } else { normal };
    if magnitude > 0x7F80_0000 { 0x7F } else { sign | finite as u8 }
}

/// E5M2 to binary32, exactly: 0x7C is infinity, codes above it are NaN.
#[inline(always)]
pub(super) fn e5m2_to_f32(x: u8) -> f32 {
    let sign = u32::from(x & 0x80) << 24;
    let magnitude = u32::from(x & 0x7F);
    let normal = (magnitude << 21) + (112 << 23);
    let subnormal = (magnitude as i32 as f32 * f32::from_bits((127 - 16) << 23)).to_bits();
    let finite = if magnitude < 0x04 { subnormal } else { normal };
    let special = if magnitude == 0x7C { f32::INFINITY.to_bits() } else { CANONICAL_NAN.to_bits() };
    f32::from_bits(sign | if magnitude >= 0x7C { special } else { finite })
}

/// binary32 to E5M2.
#[inline(always)]
pub(super) fn f32_to_e5m2(x: f32) -> u8 {
    let sign = ((x.to_bits() >> 24) & 0x80) as u8;
    let magnitude = x.to_bits() & 0x7FFF_FFFF;
    let rounded = magnitude.wrapping_add(0xF_FFFF + ((magnitude >> 21) & 1)) >> 21;
    let normal = rounded.wrapping_sub(112 << 2).min(0x7B);
    // Between 2^7 and 2^8 binary32 counts in steps of 2^-16, E5M2's subnormal step.
    let subnormal = (f32::from_bits(magnitude) + 128.0).to_bits().wrapping_sub(128f32.to_bits());
    let finite = if magnitude < (113 << 23) { subnormal } else { normal };
    if magnitude > 0x7F80_0000 { 0x7F } else { sign | finite as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A format by its definition: mantissa bits, exponent bias, the code of its largest finite value.
    struct Format {
        mantissa: i32,
        bias: i32,
        largest: u8,
        decode: fn(u8) -> f32,
        encode: fn(f32) -> u8,
    }

    const FORMATS: [Format; 2] = [
        Format { mantissa: 3, bias: 7, largest: 0x7E, decode: e4m3_to_f32, encode: f32_to_e4m3 },
        Format { mantissa: 2, bias: 15, largest: 0x7B, decode: e5m2_to_f32, encode: f32_to_e5m2 },
    ];

    impl Format {
        /// The magnitude of a finite code, exact in binary64.
        fn magnitude(&self, code: u8) -> f64 {
            let steps = 1 << self.mantissa;
            let (exponent, fraction) = (i32::from(code) / steps, i32::from(code) % steps);
            let (significand, exponent) =
                if exponent == 0 { (fraction, 1) } else { (steps + fraction, exponent) };
            f64::from(significand) * 2f64.powi(exponent - self.bias - self.mantissa)
        }

        /// The nearest code to a number, by comparing it with all; the even one of two as near.
        fn nearest(&self, x: f32) -> u8 {
            let distance = |code| (self.magnitude(code) - f64::from(x.abs())).abs();
            let mut best = 0;
            for code in 1..=self.largest {
                let closer = distance(code).partial_cmp(&distance(best)).unwrap();
                if closer.is_lt() || closer.is_eq() && code % 2 == 0 {
                    best = code;
                }
            }
            if x.is_infinite() { self.largest } else { best }
        }
    }

    #[test]
    fn all_codes_have_the_value_of_their_definition() {
        for format in &FORMATS {
            for code in 0..=0x7F {
                let (positive, negative) = ((format.decode)(code), (format.decode)(code | 0x80));
                if code <= format.largest {
                    assert_eq!(f64::from(positive), format.magnitude(code), "{code:#x}");
                    assert_eq!(negative.to_bits(), positive.to_bits() | 0x8000_0000, "{code:#x}");
                    assert_eq!((format.encode)(positive), code);
                    assert_eq!((format.encode)(negative), code | 0x80);
                } else if format.largest == 0x7B && code == 0x7C {
                    assert_eq!((positive, negative), (f32::INFINITY, f32::NEG_INFINITY));
                } else {
                    assert!(positive.is_nan() && negative.is_nan(), "{code:#x}");
                }
            }
        }
        assert_eq!([0x01, 0x08, 0x38, 0x7E].map(e4m3_to_f32), [0.001953125, 0.015625, 1.0, 448.0]);
        assert_eq!(
            [0x01, 0x04, 0x3C, 0x7B].map(e5m2_to_f32),
            [2f32.powi(-16), 2f32.powi(-14), 1.0, 57344.0]
        );
    }

    #[test]
    fn narrowing_finds_the_nearest_code() {
        for format in &FORMATS {
            // Every upper half of a binary32 with lower halves that make, just miss and just pass a tie.
            for high in 0..=0x7FFF_u32 {
                for low in [0, 1, 0x7FFF, 0x8000, 0xFFFF] {
                    let x = f32::from_bits(high << 16 | low);
                    if x.is_nan() {
                        assert_eq!([(format.encode)(x), (format.encode)(-x)], [0x7F; 2]);
                    } else if x < 1e-6 {
                        assert_eq!([(format.encode)(x), (format.encode)(-x)], [0, 0x80]);
                    } else if x > 1e6 {
                        assert_eq!((format.encode)(x), format.largest);
                    } else {
                        assert_eq!((format.encode)(x), format.nearest(x), "{x:e}");
                        assert_eq!((format.encode)(-x), format.nearest(x) | 0x80, "-{x:e}");
                    }
                }
            }
        }
    }
}
