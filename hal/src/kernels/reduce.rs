//! The reduction loop: one block of elements at a time, all sources folded in registers, then stored everywhere.
//!
//! A block is loaded from every source before any of it is stored, so a destination may be one of the sources, and
//! the compiler needs no overlap checks to vectorise.

use super::element::{Element, Op};
use super::isa::Lanes;

/// Folds `srcs` in order and stores the result to all `dsts`: blocks of `L` elements, then of `S`, then single ones.
///
/// # Safety
/// Every source is readable and every destination writable for `count` elements; a destination equals a source or
/// does not overlap it; there is at least one source; the CPU has the instructions of `I`.
#[inline(always)]
pub(super) unsafe fn reduce<E: Element, O: Op, I: Lanes, const L: usize, const S: usize>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    count: usize,
) {
    // SAFETY: passed on to the caller. The constant lengths only unroll the loops over the lists.
    unsafe {
        match (srcs, dsts) {
            (&[a, b], &[d]) => run::<E, O, I, L, S>(&[d], &[a, b], count),
            _ => run::<E, O, I, L, S>(dsts, srcs, count),
        }
    }
}

#[inline(always)]
unsafe fn run<E: Element, O: Op, I: Lanes, const L: usize, const S: usize>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    count: usize,
) {
    let mut at = 0;
    // SAFETY: `at` plus the block length stays within `count`, for which the caller vouches.
    unsafe {
        while count - at >= L {
            block::<E, O, I, L>(dsts, srcs, at);
            at += L;
        }
        while count - at >= S {
            block::<E, O, I, S>(dsts, srcs, at);
            at += S;
        }
        while at < count {
            single::<E, O>(dsts, srcs, at);
            at += 1;
        }
    }
}

#[inline(always)]
unsafe fn block<E: Element, O: Op, I: Lanes, const L: usize>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    at: usize,
) {
    // SAFETY: the caller keeps `at..at + L` within every buffer; reads and writes assume no alignment.
    unsafe {
        let load = |src: *const u8| src.cast::<E::Stored>().add(at).cast::<[E::Stored; L]>();
        let mut acc = E::widen_all::<I, L>(&load(srcs[0]).read_unaligned());
        for &src in &srcs[1..] {
            let x = E::widen_all::<I, L>(&load(src).read_unaligned());
            for i in 0..L {
                acc[i] = O::apply(acc[i], x[i]);
            }
        }
        let out = E::narrow_all::<I, L>(&acc);
        for &dst in dsts {
            dst.cast::<E::Stored>().add(at).cast::<[E::Stored; L]>().write_unaligned(out);
        }
    }
}

#[inline(always)]
unsafe fn single<E: Element, O: Op>(dsts: &[*mut u8], srcs: &[*const u8], at: usize) {
    // SAFETY: the caller keeps `at` within every buffer; reads and writes assume no alignment.
    unsafe {
        let load = |src: *const u8| E::widen(src.cast::<E::Stored>().add(at).read_unaligned());
        let mut acc = load(srcs[0]);
        for &src in &srcs[1..] {
            acc = O::apply(acc, load(src));
        }
        let out = E::narrow(acc);
        for &dst in dsts {
            dst.cast::<E::Stored>().add(at).write_unaligned(out);
        }
    }
}
