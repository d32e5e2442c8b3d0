//! Vectors of binary32 on x86-64: 8 lanes with AVX2 and F16C, 16 with AVX-512.

use std::arch::x86_64::*;

use super::vector::Vector;

/// Implements the methods that are one intrinsic each.
macro_rules! intrinsics {
    ($($name:ident($($arg:ident),*) = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: Self),*) -> Self {
            // SAFETY: the caller has the instructions.
            unsafe { $body }
        }
    )*};
}

/// An intrinsic of numbers on vectors of bits.
macro_rules! floats {
    ($op:ident, $a:expr, $b:expr) => {
        _mm256_castps_si256($op(_mm256_castsi256_ps($a), _mm256_castsi256_ps($b)))
    };
}
macro_rules! floats512 {
    ($op:ident, $a:expr, $b:expr) => {
        _mm512_castps_si512($op(_mm512_castsi512_ps($a), _mm512_castsi512_ps($b)))
    };
}

/// Eight lanes.
pub(super) type Avx2 = __m256i;

/// Copies up to 16 bytes into the front of 16 zeros, or back: AVX2 has no masks for lanes of 16 and 8 bits.
#[inline(always)]
unsafe fn part(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: passed on to the caller, who gives at most 16 bytes.
    unsafe { super::copy::short(dst, src, bytes) }
}

// SAFETY: loads and stores touch the first `n` elements only; where `n` is less than `LANES`, by way of a local buffer.
unsafe impl Vector for __m256i {
    const LANES: usize = 8;
    type Half = __m128i;

    #[inline(always)]
    unsafe fn load16(src: *const u8, n: usize) -> __m128i {
        // SAFETY: see the implementation.
        unsafe {
            if n == Self::LANES {
                return _mm_loadu_si128(src.cast());
            }
            let mut buffer = [0u8; 16];
            part(buffer.as_mut_ptr(), src, 2 * n);
            _mm_loadu_si128(buffer.as_ptr().cast())
        }
    }
    #[inline(always)]
    unsafe fn load8(src: *const u8, n: usize) -> __m128i {
        // SAFETY: see the implementation.
        unsafe {
            if n == Self::LANES {
                return _mm_cvtepu8_epi16(_mm_loadl_epi64(src.cast()));
            }
            let mut buffer = [0u8; 8];
            part(buffer.as_mut_ptr(), src, n);
            _mm_cvtepu8_epi16(_mm_loadl_epi64(buffer.as_ptr().cast()))
        }
    }
    #[inline(always)]
    unsafe fn store16(dst: *mut u8, x: __m128i, n: usize) {
        // SAFETY: see the implementation.
        unsafe {
            if n == Self::LANES {
                return _mm_storeu_si128(dst.cast(), x);
            }
            let mut buffer = [0u8; 16];
            _mm_storeu_si128(buffer.as_mut_ptr().cast(), x);
            part(dst, buffer.as_ptr(), 2 * n);
        }
    }
    #[inline(always)]
    unsafe fn store8(dst: *mut u8, x: __m256i, n: usize) {
        // SAFETY: see the implementation.
        unsafe {
            let words =
                _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
            let bytes = _mm_packus_epi16(words, words);
            if n == Self::LANES {
                return _mm_storel_epi64(dst.cast(), bytes);
            }
            let mut buffer = [0u8; 8];
            _mm_storel_epi64(buffer.as_mut_ptr().cast(), bytes);
            part(dst, buffer.as_ptr(), n);
        }
    }
    #[inline(always)]
    unsafe fn e4m3_as_f16(x: __m128i) -> __m128i {
        // SAFETY: the caller has the instructions. The arithmetic shift repeats the sign; the mask drops it.
        unsafe {
            let shifted = _mm_srai_epi16::<1>(_mm_slli_epi16::<8>(x));
            _mm_and_si128(shifted, _mm_set1_epi16(0xBF80_u16 as i16))
        }
    }
    #[inline(always)]
    unsafe fn e5m2_as_f16(x: __m128i) -> __m128i {
        // SAFETY: the caller has the instructions.
        unsafe { _mm_slli_epi16::<8>(x) }
    }
    #[inline(always)]
    unsafe fn from_f16(x: __m128i) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe { _mm256_castps_si256(_mm256_cvtph_ps(x)) }
    }
    #[inline(always)]
    unsafe fn to_f16(self) -> __m128i {
        // SAFETY: the caller has the instructions.
        unsafe { _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_castsi256_ps(self)) }
    }
    #[inline(always)]
    unsafe fn from_upper(x: __m128i) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe { _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(x)) }
    }
    #[inline(always)]
    unsafe fn to_upper(self) -> __m128i {
        // SAFETY: the caller has the instructions.
        unsafe {
            let x = _mm256_srli_epi32::<16>(self);
            _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x))
        }
    }
    #[inline(always)]
    unsafe fn splat(bits: u32) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe { _mm256_set1_epi32(bits as i32) }
    }
    #[inline(always)]
    unsafe fn shift_right<const N: u32>(self) -> Self {
        // SAFETY: the caller has the instructions. The count is a constant by the time this is compiled.
        unsafe { _mm256_srl_epi32(self, _mm_cvtsi32_si128(N as i32)) }
    }
    #[inline(always)]
    unsafe fn if_above(self, limit: Self, yes: Self, no: Self) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe { _mm256_blendv_epi8(no, yes, _mm256_cmpgt_epi32(self, limit)) }
    }
    #[inline(always)]
    unsafe fn if_nan(self, yes: Self, no: Self) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe {
            let x = _mm256_castsi256_ps(self);
            let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
            _mm256_blendv_epi8(no, yes, nan)
        }
    }
    intrinsics! {
        and(self, other) = _mm256_and_si256(self, other);
        or(self, other) = _mm256_or_si256(self, other);
        xor(self, other) = _mm256_xor_si256(self, other);
        plus(self, other) = _mm256_add_epi32(self, other);
        minus(self, other) = _mm256_sub_epi32(self, other);
        least(self, other) = _mm256_min_epu32(self, other);
        sum(self, other) = floats!(_mm256_add_ps, self, other);
        prod(self, other) = floats!(_mm256_mul_ps, self, other);
        over(self, other) = floats!(_mm256_div_ps, self, other);
        lesser(self, other) = floats!(_mm256_min_ps, self, other);
    }
}

/// Sixteen lanes.
pub(super) type Avx512 = __m512i;

// SAFETY: loads and stores are masked to the first `n` elements.
unsafe impl Vector for __m512i {
    const LANES: usize = 16;
    type Half = __m256i;

    #[inline(always)]
    unsafe fn load16(src: *const u8, n: usize) -> __m256i {
        // SAFETY: see the implementation.
        unsafe {
            match n {
                16 => _mm256_loadu_si256(src.cast()),
                _ => _mm256_maskz_loadu_epi16(mask(n), src.cast()),
            }
        }
    }
    #[inline(always)]
    unsafe fn load8(src: *const u8, n: usize) -> __m256i {
        // SAFETY: see the implementation.
        unsafe {
            _mm256_cvtepu8_epi16(match n {
                16 => _mm_loadu_si128(src.cast()),
                _ => _mm_maskz_loadu_epi8(mask(n), src.cast()),
            })
        }
    }
    #[inline(always)]
    unsafe fn store16(dst: *mut u8, x: __m256i, n: usize) {
        // SAFETY: see the implementation.
        unsafe {
            match n {
                16 => _mm256_storeu_si256(dst.cast(), x),
                _ => _mm256_mask_storeu_epi16(dst.cast(), mask(n), x),
            }
        }
    }
    #[inline(always)]
    unsafe fn store8(dst: *mut u8, x: __m512i, n: usize) {
        // SAFETY: see the implementation.
        unsafe {
            let bytes = _mm512_cvtepi32_epi8(x);
            match n {
                16 => _mm_storeu_si128(dst.cast(), bytes),
                _ => _mm_mask_storeu_epi8(dst.cast(), mask(n), bytes),
            }
        }
    }
    #[inline(always)]
    unsafe fn e4m3_as_f16(x: __m256i) -> __m256i {
        // SAFETY: the caller has the instructions. The arithmetic shift repeats the sign; the mask drops it.
        unsafe {
            let shifted = _mm256_srai_epi16::<1>(_mm256_slli_epi16::<8>(x));
            _mm256_and_si256(shifted, _mm256_set1_epi16(0xBF80_u16 as i16))
        }
    }
    #[inline(always)]
    unsafe fn e5m2_as_f16(x: __m256i) -> __m256i {
        // SAFETY: the caller has the instructions.
        unsafe { _mm256_slli_epi16::<8>(x) }
    }
    #[inline(always)]
    unsafe fn from_f16(x: __m256i) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe { _mm512_castps_si512(_mm512_cvtph_ps(x)) }
    }
    #[inline(always)]
    unsafe fn to_f16(self) -> __m256i {
        // SAFETY: the caller has the instructions.
        unsafe { _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_castsi512_ps(self)) }
    }
    #[inline(always)]
    unsafe fn from_upper(x: __m256i) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe { _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(x)) }
    }
    #[inline(always)]
    unsafe fn to_upper(self) -> __m256i {
        // SAFETY: the caller has the instructions.
        unsafe { _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(self)) }
    }
    #[inline(always)]
    unsafe fn splat(bits: u32) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe { _mm512_set1_epi32(bits as i32) }
    }
    #[inline(always)]
    unsafe fn shift_right<const N: u32>(self) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe { _mm512_srli_epi32::<N>(self) }
    }
    #[inline(always)]
    unsafe fn if_above(self, limit: Self, yes: Self, no: Self) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe { _mm512_mask_mov_epi32(no, _mm512_cmpgt_epi32_mask(self, limit), yes) }
    }
    #[inline(always)]
    unsafe fn if_nan(self, yes: Self, no: Self) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe {
            let x = _mm512_castsi512_ps(self);
            _mm512_mask_mov_epi32(no, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x), yes)
        }
    }
    intrinsics! {
        and(self, other) = _mm512_and_si512(self, other);
        or(self, other) = _mm512_or_si512(self, other);
        xor(self, other) = _mm512_xor_si512(self, other);
        plus(self, other) = _mm512_add_epi32(self, other);
        minus(self, other) = _mm512_sub_epi32(self, other);
        least(self, other) = _mm512_min_epu32(self, other);
        sum(self, other) = floats512!(_mm512_add_ps, self, other);
        prod(self, other) = floats512!(_mm512_mul_ps, self, other);
        over(self, other) = floats512!(_mm512_div_ps, self, other);
        lesser(self, other) = floats512!(_mm512_min_ps, self, other);
    }
}

/// The first `n` of up to 16 lanes.
#[inline(always)]
fn mask(n: usize) -> u16 {
    ((1u32 << n) - 1) as u16
}
