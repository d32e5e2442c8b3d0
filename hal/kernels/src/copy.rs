//! Copies between raw pointers.
//!
//! Short copies, which are most of a latency-bound plan, are two overlapping loads and stores without a call. Above
//! that libc's `memcpy` was as fast as loops of wide loads and stores at every size measured, or faster, and it
//! chooses its instructions by the CPU, too.

/// Bytes up to which [`short`] copies: few enough to be worth inlining into the caller.
pub(super) const INLINE: usize = 64;

/// Bytes copied to all destinations before the next: the source tile stays in the first-level cache.
const TILE: usize = 16 * 1024;

/// Copies `bytes` from `src` to `dst`.
///
/// # Safety
/// `src` is readable and `dst` writable for `bytes`; the two are equal or do not overlap.
#[inline(always)]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        match bytes {
            0..=INLINE => short(dst, src, bytes),
            _ if std::ptr::eq(dst, src) => {}
            _ => std::ptr::copy_nonoverlapping(src, dst, bytes),
        }
    }
}

/// Copies up to [`INLINE`] bytes without a call.
///
/// # Safety
/// As [`copy()`], and `bytes <= INLINE`.
#[inline(always)]
pub(super) unsafe fn short(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller vouches for `bytes`; each arm stays within, its ends overlapping where they must.
    unsafe {
        match bytes {
            33.. => ends::<[u64; 4]>(dst, src, bytes),
            17.. => ends::<[u64; 2]>(dst, src, bytes),
            8.. => ends::<u64>(dst, src, bytes),
            4.. => ends::<u32>(dst, src, bytes),
            2.. => ends::<u16>(dst, src, bytes),
            1 => ends::<u8>(dst, src, bytes),
            0 => {}
        }
    }
}

/// Copies `bytes` from `src` to every destination, tile by tile.
///
/// # Safety
/// As [`copy()`], for every destination; destinations do not overlap each other.
#[inline(always)]
pub(super) unsafe fn copy_to(dsts: &[*mut u8], src: *const u8, bytes: usize) {
    // SAFETY: the caller vouches for `bytes` of every buffer, and `at + tile` never exceeds it.
    unsafe {
        if let &[dst] = dsts {
            return copy(dst, src, bytes);
        }
        let mut at = 0;
        while at < bytes {
            let tile = TILE.min(bytes - at);
            for &dst in dsts {
                copy(dst.add(at), src.add(at), tile);
            }
            at += tile;
        }
    }
}

/// Copies the first and the last `size_of::<T>()` bytes, reading both before writing either.
#[inline(always)]
unsafe fn ends<T: Copy>(dst: *mut u8, src: *const u8, bytes: usize) {
    let last = bytes - size_of::<T>();
    // SAFETY: the caller passes `size_of::<T>() <= bytes`; reads and writes assume no alignment.
    unsafe {
        let head = src.cast::<T>().read_unaligned();
        let tail = src.add(last).cast::<T>().read_unaligned();
        dst.cast::<T>().write_unaligned(head);
        dst.add(last).cast::<T>().write_unaligned(tail);
    }
}
