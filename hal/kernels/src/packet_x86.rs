//! Packets in vectors of four (AVX2) and eight (AVX-512) units.

use super::packet::{Plain, Units};
use std::arch::asm;
use std::arch::x86_64::*;

/// Four units to a vector.
pub(super) struct Avx2;

/// Eight units to a vector.
pub(super) struct Avx512;

// SAFETY: `ready` is true only if all four flags compare equal; each access is one instruction of 32 (packets) or
// 16 (payload) bytes.
unsafe impl Units for Avx2 {
    const GROUP: usize = 4;
    type Rest = Plain;
    type Group = __m256i;

    #[inline(always)]
    unsafe fn make(src: *const u8, flag: u32) -> __m256i {
        #[target_feature(enable = "avx2")]
        #[inline]
        unsafe fn make(src: *const u8, flag: u32) -> __m256i {
            // SAFETY: the caller passes 16 readable bytes.
            let data = _mm256_cvtepu32_epi64(unsafe { _mm_loadu_si128(src.cast()) });
            _mm256_or_si256(data, _mm256_set1_epi64x((u64::from(flag) << 32) as i64))
        }
        // SAFETY: passed on to the caller.
        unsafe { make(src, flag) }
    }
    #[inline(always)]
    unsafe fn load(src: *const u8) -> __m256i {
        #[target_feature(enable = "avx2")]
        #[inline]
        unsafe fn load(src: *const u8) -> __m256i {
            let group;
            // SAFETY: reads the 32 bytes that the caller passes; no other effect.
            unsafe {
                asm!("vmovdqu {}, [{}]", out(ymm_reg) group, in(reg) src,
                     options(nostack, preserves_flags, readonly));
            }
            group
        }
        // SAFETY: passed on to the caller.
        unsafe { load(src) }
    }
    #[inline(always)]
    unsafe fn store(dst: *mut u8, group: __m256i) {
        #[target_feature(enable = "avx2")]
        #[inline]
        unsafe fn store(dst: *mut u8, group: __m256i) {
            // SAFETY: writes the 32 bytes that the caller passes; no other effect.
            unsafe {
                asm!("vmovdqu [{}], {}", in(reg) dst, in(ymm_reg) group,
                     options(nostack, preserves_flags));
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { store(dst, group) }
    }
    #[inline(always)]
    unsafe fn ready(group: __m256i, flag: u32) -> bool {
        #[target_feature(enable = "avx2")]
        #[inline]
        unsafe fn ready(group: __m256i, flag: u32) -> bool {
            let equal = _mm256_cmpeq_epi32(group, _mm256_set1_epi32(flag as i32));
            const FLAGS: i32 = 0b1010_1010;
            _mm256_movemask_ps(_mm256_castsi256_ps(equal)) & FLAGS == FLAGS
        }
        // SAFETY: passed on to the caller.
        unsafe { ready(group, flag) }
    }
    #[inline(always)]
    unsafe fn payload(dst: *mut u8, group: __m256i) {
        #[target_feature(enable = "avx2")]
        #[inline]
        unsafe fn payload(dst: *mut u8, group: __m256i) {
            let data = _mm256_setr_epi32(0, 2, 4, 6, 0, 0, 0, 0);
            let words = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(group, data));
            // SAFETY: the caller passes 16 writable bytes.
            unsafe { _mm_storeu_si128(dst.cast(), words) }
        }
        // SAFETY: passed on to the caller.
        unsafe { payload(dst, group) }
    }
}

// SAFETY: `ready` is true only if all eight flags compare equal; each access is one instruction of 64 (packets) or
// 32 (payload) bytes.
unsafe impl Units for Avx512 {
    const GROUP: usize = 8;
    type Rest = Avx2;
    type Group = __m512i;

    #[inline(always)]
    unsafe fn make(src: *const u8, flag: u32) -> __m512i {
        #[target_feature(enable = "avx512f")]
        #[inline]
        unsafe fn make(src: *const u8, flag: u32) -> __m512i {
            // SAFETY: the caller passes 32 readable bytes.
            let data = _mm512_cvtepu32_epi64(unsafe { _mm256_loadu_si256(src.cast()) });
            _mm512_or_si512(data, _mm512_set1_epi64((u64::from(flag) << 32) as i64))
        }
        // SAFETY: passed on to the caller.
        unsafe { make(src, flag) }
    }
    #[inline(always)]
    unsafe fn load(src: *const u8) -> __m512i {
        #[target_feature(enable = "avx512f")]
        #[inline]
        unsafe fn load(src: *const u8) -> __m512i {
            let group;
            // SAFETY: reads the 64 bytes that the caller passes; no other effect.
            unsafe {
                asm!("vmovdqu64 {}, [{}]", out(zmm_reg) group, in(reg) src,
                     options(nostack, preserves_flags, readonly));
            }
            group
        }
        // SAFETY: passed on to the caller.
        unsafe { load(src) }
    }
    #[inline(always)]
    unsafe fn store(dst: *mut u8, group: __m512i) {
        #[target_feature(enable = "avx512f")]
        #[inline]
        unsafe fn store(dst: *mut u8, group: __m512i) {
            // SAFETY: writes the 64 bytes that the caller passes; no other effect.
            unsafe {
                asm!("vmovdqu64 [{}], {}", in(reg) dst, in(zmm_reg) group,
                     options(nostack, preserves_flags));
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { store(dst, group) }
    }
    #[inline(always)]
    unsafe fn ready(group: __m512i, flag: u32) -> bool {
        #[target_feature(enable = "avx512f")]
        #[inline]
        unsafe fn ready(group: __m512i, flag: u32) -> bool {
            const FLAGS: u16 = 0xAAAA;
            _mm512_mask_cmpneq_epi32_mask(FLAGS, group, _mm512_set1_epi32(flag as i32)) == 0
        }
        // SAFETY: passed on to the caller.
        unsafe { ready(group, flag) }
    }
    #[inline(always)]
    unsafe fn payload(dst: *mut u8, group: __m512i) {
        #[target_feature(enable = "avx512f")]
        #[inline]
        unsafe fn payload(dst: *mut u8, group: __m512i) {
            // SAFETY: the caller passes 32 writable bytes.
            unsafe { _mm256_storeu_si256(dst.cast(), _mm512_cvtepi64_epi32(group)) }
        }
        // SAFETY: passed on to the caller.
        unsafe { payload(dst, group) }
    }
}
