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
