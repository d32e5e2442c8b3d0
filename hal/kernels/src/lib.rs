//! What the host's CPU does to data: copies, reductions and packets, over raw pointers.
//!
//! Every kernel is compiled for each instruction set ([`Isa`]) and the widest one of the machine is chosen once, at
//! the first call; all give the same bits. The pointers are raw because the memory is shared: other threads and other
//! processes write it, ordered by the channels' signals or by the packets' flags and not by anything Rust sees.
//!
//! Whoever has `antiphon-hal` has this crate as `antiphon_hal::kernels`. It knows nothing of devices.
//!
//! Numerics, in short (`docs/numerics.md` has the table): sources are folded in the order given; 16- and 8-bit floats
//! are accumulated in binary32 over all sources and rounded once; integers wrap; minimum and maximum propagate NaN.

mod copy;
mod divide;
mod element;
mod float8;
mod half;
mod isa;
mod packet;
#[cfg(target_arch = "x86_64")]
mod packet_x86;
mod reduce;
mod scale;
mod table;
mod vector;
#[cfg(target_arch = "x86_64")]
mod vector_x86;

pub use isa::Isa;
pub use table::Kernels;

use antiphon_types::{DataType, ReduceOp};

/// Copies `bytes` from `src` to `dst`.
///
/// # Safety
/// `src` is readable and `dst` writable for `bytes`; the two are equal or do not overlap; nobody else writes the
/// source or accesses the destination meanwhile.
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: passed on to the caller.
    unsafe { copy::copy(dst, src, bytes) }
}

/// Copies `bytes` from `src` to every destination, reading the source from memory once.
///
/// # Safety
/// As [`copy()`], for every destination; destinations do not overlap each other.
#[inline]
pub unsafe fn copy_to(dsts: &[*mut u8], src: *const u8, bytes: usize) {
    // SAFETY: passed on to the caller.
    unsafe { copy::copy_to(dsts, src, bytes) }
}

/// Folds the sources element by element, in list order, and stores the result to every destination.
///
/// [`ReduceOp::Avg`] sums; [`divide()`] is its last step. One source is copied as it is; none leaves the destinations
/// alone. A rest of `bytes` smaller than an element is not touched.
///
/// # Safety
/// Every source is readable and every destination writable for `bytes`; a destination equals a source or does not
/// overlap it, and destinations do not overlap each other; nobody else writes the sources or accesses the
/// destinations meanwhile. No alignment is needed.
#[inline]
pub unsafe fn reduce(
    dtype: DataType,
    op: ReduceOp,
    dsts: &[*mut u8],
    srcs: &[*const u8],
    bytes: usize,
) {
    // SAFETY: passed on to the caller.
    unsafe { Kernels::active().reduce(dtype, op, dsts, srcs, bytes) }
}

/// Divides every element by `n`, in place: the last step of [`ReduceOp::Avg`] over `n` ranks.
///
/// Floats are divided in binary32 (binary64 for `f64`) and rounded; integers truncate towards zero. An `n` of 0
/// counts as 1.
///
/// # Safety
/// `dst` is readable and writable for `bytes`, and nobody else accesses it meanwhile. No alignment is needed.
#[inline]
pub unsafe fn divide(dtype: DataType, dst: *mut u8, bytes: usize, n: u32) {
    // SAFETY: passed on to the caller.
    unsafe { Kernels::active().divide(dtype, dst, bytes, n) }
}

/// Multiplies every element by one factor, the element in the first bytes of `factor`: the first step of a premultiplied
/// sum. The numerics are those of [`ReduceOp::Prod`] over two sources. A rest of `bytes` smaller than an element is not
/// touched.
///
/// # Safety
/// `src` is readable and `dst` writable for `bytes`; the two are equal or do not overlap; nobody else writes the source or
/// accesses the destination meanwhile. No alignment is needed.
pub unsafe fn scale(dtype: DataType, dst: *mut u8, src: *const u8, bytes: usize, factor: [u8; 8]) {
    // SAFETY: passed on to the caller.
    unsafe { scale::scale(Kernels::active(), dtype, dst, src, bytes, factor) }
}

/// Writes `len` bytes of payload, and zeros up to `padded`, as packets bearing `flag`: `2 * padded` bytes at `dst`.
///
/// # Safety
/// `len <= padded`, and `padded` is a multiple of 4; `src` is readable for `len` bytes; `dst` is 8-aligned and
/// writable for `2 * padded` bytes, which do not overlap the source. Others may read the packets meanwhile, in
/// accesses of whole units, but not write them.
#[inline]
pub unsafe fn pack(dst: *mut u8, src: *const u8, len: usize, padded: usize, flag: u32) {
    // SAFETY: passed on to the caller.
    unsafe { Kernels::active().pack_to(&[dst], src, len, padded, flag) }
}

/// [`pack`] to every destination.
///
/// # Safety
/// As [`pack`], for every destination.
#[inline]
pub unsafe fn pack_to(dsts: &[*mut u8], src: *const u8, len: usize, padded: usize, flag: u32) {
    // SAFETY: passed on to the caller.
    unsafe { Kernels::active().pack_to(dsts, src, len, padded, flag) }
}

/// Copies the payload of the packets that bear `flag` to `dst`, up to the first one that does not.
///
/// Returns how many bytes of payload were ready from the front: a multiple of 4, and `padded` when all were. Payload
/// from `len` on is padding, which must be ready but is not stored. To go on where it stopped, call it again with
/// `dst` advanced by the result, `src` by twice the result, and `len` and `padded` less by it.
///
/// # Safety
/// `padded` is a multiple of 4; `src` is 8-aligned and readable for `2 * padded` bytes; `dst` is writable for
/// `len.min(padded)` bytes, which do not overlap the source and nobody else accesses. Others may write the packets
/// meanwhile, in accesses of whole units.
#[inline]
pub unsafe fn unpack(dst: *mut u8, src: *const u8, len: usize, padded: usize, flag: u32) -> usize {
    // SAFETY: passed on to the caller.
    unsafe { Kernels::active().unpack(dst, src, len, padded, flag) }
}

/// Passes the packets that bear `flag` on, as packets, to every destination, up to the first one that does not.
///
/// Returns how many bytes of payload were passed on, as [`unpack`] does, and is resumed in the same way.
///
/// # Safety
/// `padded` is a multiple of 4; `src` and all destinations are 8-aligned and valid for `2 * padded` bytes, and the
/// source overlaps no destination. Others may write the source and read the destinations meanwhile, in accesses of
/// whole units.
#[inline]
pub unsafe fn forward(dsts: &[*mut u8], src: *const u8, padded: usize, flag: u32) -> usize {
    // SAFETY: passed on to the caller.
    unsafe { Kernels::active().forward(dsts, src, padded, flag) }
}
