//! The 16-bit floats: binary16 and bfloat16 to binary32 and back.
//!
//! Branches are written as selections between cheap values, so that the loops that use these vectorise.
//! Conversions round to nearest, ties to even; overflow gives infinity; every NaN becomes the canonical quiet
//! one (0x7E00, 0x7FC0); subnormals are exact.

/// The quiet NaN with an empty payload, which all NaNs are turned into before they are narrowed.
pub(super) const CANONICAL_NAN: f32 = f32::from_bits(0x7FC0_0000);

/// binary16 to binary32, exactly. A signalling NaN stays signalling.
#[inline(always)]
pub(super) fn f16_to_f32(x: u16) -> f32 {
    let sign = u32::from(x & 0x8000) << 16;
    let magnitude = u32::from(x & 0x7FFF);
    let normal = (magnitude << 13) + (112 << 23);
    // Subnormals count in steps of 2^-24: as an integer they convert without a denormal operand, which is slow.
    let subnormal = (magnitude as i32 as f32 * f32::from_bits((127 - 24) << 23)).to_bits();
    let special = (magnitude << 13) | 0x7F80_0000;
    let finite = if magnitude < 0x0400 { subnormal } else { normal };
    f32::from_bits(sign | if magnitude >= 0x7C00 { special } else { finite })
}

/// binary32 to binary16.
#[inline(always)]
pub(super) fn f32_to_f16(x: f32) -> u16 {
    let sign = ((x.to_bits() >> 16) & 0x8000) as u16;
    let magnitude = x.to_bits() & 0x7FFF_FFFF;
    let rounded = magnitude.wrapping_add(0x0FFF + ((magnitude >> 13) & 1)) >> 13;
    let normal = rounded.wrapping_sub(112 << 10).min(0x7C00);
    // Just below 1.0 binary32 counts in steps of 2^-24, binary16's subnormal step: the adder rounds for us.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if magnitude < (113 << 23) { subnormal } else { normal };
    if magnitude > 0x7F80_0000 { 0x7E00 } else { sign | finite as u16 }
}

/// bfloat16 to binary32, exactly.
#[inline(always)]
pub(super) fn bf16_to_f32(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// binary32 to bfloat16.
#[inline(always)]
pub(super) fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
    if bits & 0x7FFF_FFFF > 0x7F80_0000 { 0x7FC0 } else { rounded as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// binary32 samples dense where rounding decides: every upper half, with the lower halves around each tie.
    fn samples() -> impl Iterator<Item = f32> {
        const LOW: [u32; 14] = [
            0, 1, 0x0FFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xF000,
            0xFFFE, 0xFFFF,
        ];
        (0..=u16::MAX).flat_map(|high| LOW.map(|low| f32::from_bits(u32::from(high) << 16 | low)))
    }

    #[test]
    fn every_16_bit_code_widens_as_the_half_crate_does() {
        for code in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(code), ::half::f16::from_bits(code).to_f32());
            assert!(
                ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()),
                "{code:#x}"
            );
            let (ours, theirs) = (bf16_to_f32(code), ::half::bf16::from_bits(code).to_f32());
            assert!(
                ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()),
                "{code:#x}"
            );
        }
    }

    #[test]
    fn narrowing_rounds_as_the_half_crate_does_and_nan_is_canonical() {
        for x in samples() {
            if x.is_nan() {
                assert_eq!((f32_to_f16(x), f32_to_bf16(x)), (0x7E00, 0x7FC0));
            } else {
                assert_eq!(f32_to_f16(x), ::half::f16::from_f32(x).to_bits(), "{x:e}");
                assert_eq!(f32_to_bf16(x), ::half::bf16::from_f32(x).to_bits(), "{x:e}");
            }
        }
    }
}
