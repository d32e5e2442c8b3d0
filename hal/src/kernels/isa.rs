//! Which vector instructions the CPU has, and the conversions that need an instruction of their own.
//!
//! The loops of this module are ordinary Rust, compiled once per instruction set: the compiler vectorises
//! them well. Only the binary16 conversions do not vectorise to the single instruction the CPU has for them,
//! so [`Lanes`] lets an instruction set replace these two.

use super::half;

/// A set of vector instructions the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// What every CPU of the architecture has (x86-64: SSE2).
    Baseline,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
    /// aarch64, whose baseline has NEON.
    Neon,
}

impl Isa {
    /// Every instruction set, on whatever machine.
    pub const ALL: [Isa; 4] = [Isa::Baseline, Isa::Avx2, Isa::Avx512, Isa::Neon];

    /// The widest instruction set of this CPU.
    pub fn detected() -> Isa {
        #[cfg(target_arch = "aarch64")]
        return Isa::Neon;
        #[cfg(not(target_arch = "aarch64"))]
        [Isa::Avx512, Isa::Avx2].into_iter().find(|isa| isa.is_available()).unwrap_or(Isa::Baseline)
    }

    /// Whether this CPU runs code compiled for the instruction set.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Baseline => cfg!(not(target_arch = "aarch64")),
            Isa::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => false,
        }
    }

    /// The name used in reports, e.g. `avx512`.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Baseline => "baseline",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
        }
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The binary16 conversions of one instruction set; the provided ones are plain Rust and run anywhere.
///
/// # Safety
/// Callers run the methods only on a CPU that has the instruction set of the implementing type.
pub(super) trait Lanes {
    /// Whether the conversions are instructions rather than the provided loops.
    const CONVERTS_F16: bool = false;

    /// Converts binary16 to binary32, exactly.
    ///
    /// # Safety
    /// See the trait.
    #[inline(always)]
    unsafe fn widen_f16<const L: usize>(x: &[u16; L]) -> [f32; L] {
        let mut out = [0.0; L];
        for i in 0..L {
            out[i] = half::f16_to_f32(x[i]);
        }
        out
    }

    /// Converts binary32 to binary16, to the nearest (ties to even), NaN to 0x7E00.
    ///
    /// # Safety
    /// See the trait.
    #[inline(always)]
    unsafe fn narrow_f16<const L: usize>(x: &[f32; L]) -> [u16; L] {
        let mut out = [0; L];
        for i in 0..L {
            out[i] = half::f32_to_f16(x[i]);
        }
        out
    }
}

/// Plain Rust: [`Isa::Baseline`] and [`Isa::Neon`].
pub(super) struct Plain;
impl Lanes for Plain {}

/// [`Isa::Avx2`].
#[cfg(target_arch = "x86_64")]
pub(super) struct Avx2;

/// [`Isa::Avx512`].
#[cfg(target_arch = "x86_64")]
pub(super) struct Avx512;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Avx2, Avx512, Lanes, half};
    use std::arch::x86_64::*;

    impl Lanes for Avx2 {
        const CONVERTS_F16: bool = true;

        #[inline(always)]
        unsafe fn widen_f16<const L: usize>(x: &[u16; L]) -> [f32; L] {
            let mut out = [0.0; L];
            for i in (0..L).step_by(8) {
                // SAFETY: every block length is a multiple of 8, so 8 lanes lie within; the caller has F16C.
                unsafe { widen8(x.as_ptr().add(i), out.as_mut_ptr().add(i)) }
            }
            out
        }

        #[inline(always)]
        unsafe fn narrow_f16<const L: usize>(x: &[f32; L]) -> [u16; L] {
            let mut out = [0; L];
            for i in (0..L).step_by(8) {
                // SAFETY: as above.
                unsafe { narrow8(x.as_ptr().add(i), out.as_mut_ptr().add(i)) }
            }
            out
        }
    }

    impl Lanes for Avx512 {
        const CONVERTS_F16: bool = true;

        #[inline(always)]
        unsafe fn widen_f16<const L: usize>(x: &[u16; L]) -> [f32; L] {
            if L % 16 != 0 {
                // SAFETY: AVX-512 is only chosen where F16C is, too.
                return unsafe { Avx2::widen_f16(x) };
            }
            let mut out = [0.0; L];
            for i in (0..L).step_by(16) {
                // SAFETY: the length is a multiple of 16, so 16 lanes lie within; the caller has AVX-512.
                unsafe { widen16(x.as_ptr().add(i), out.as_mut_ptr().add(i)) }
            }
            out
        }

        #[inline(always)]
        unsafe fn narrow_f16<const L: usize>(x: &[f32; L]) -> [u16; L] {
            if L % 16 != 0 {
                // SAFETY: AVX-512 is only chosen where F16C is, too.
                return unsafe { Avx2::narrow_f16(x) };
            }
            let mut out = [0; L];
            for i in (0..L).step_by(16) {
                // SAFETY: as above.
                unsafe { narrow16(x.as_ptr().add(i), out.as_mut_ptr().add(i)) }
            }
            out
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn widen8(x: *const u16, out: *mut f32) {
        // SAFETY: the caller passes 8 readable and 8 writable lanes.
        unsafe { _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(x.cast()))) }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn narrow8(x: *const f32, out: *mut u16) {
        // SAFETY: the caller passes 8 readable and 8 writable lanes.
        unsafe {
            let x = _mm256_loadu_ps(x);
            let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x);
            let x = _mm256_blendv_ps(x, _mm256_set1_ps(half::CANONICAL_NAN), nan);
            _mm_storeu_si128(out.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x));
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn widen16(x: *const u16, out: *mut f32) {
        // SAFETY: the caller passes 16 readable and 16 writable lanes.
        unsafe { _mm512_storeu_ps(out, _mm512_cvtph_ps(_mm256_loadu_si256(x.cast()))) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn narrow16(x: *const f32, out: *mut u16) {
        // SAFETY: the caller passes 16 readable and 16 writable lanes.
        unsafe {
            let x = _mm512_loadu_ps(x);
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
            let x = _mm512_mask_blend_ps(nan, x, _mm512_set1_ps(half::CANONICAL_NAN));
            _mm256_storeu_si256(out.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x));
        }
    }
}
