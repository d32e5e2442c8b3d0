//! The reduction loops.
//!
//! A destination may be one of the sources, which decides their form: compilers vectorise a loop over raw pointers
//! behind run-time checks for overlap, and those fail exactly for a reduction in place. So two sources have a loop for each
//! case, and more of them go through a tile on the stack: a tile is folded from all sources before any of it is stored,
//! and the compiler knows that a local array overlaps nothing. Further destinations are copied from the first, tile by
//! tile, while it is in the cache.

use std::mem::MaybeUninit;

use super::copy;
use super::element::{Element, Op};

/// Bytes of accumulators in a tile: well within the first-level cache.
const TILE: usize = 8192;

/// Bytes up to which the elements are folded in short blocks, without the preparations of a long loop.
const SHORT: usize = 64;

/// Vectors at this alignment never straddle cache lines.
#[repr(C, align(64))]
struct Tile(MaybeUninit<[u8; TILE]>);

/// Folds `srcs` in order and stores the result to all `dsts`.
///
/// # Safety
/// Every source is readable and every destination writable for `count` elements; a destination equals a source or
/// does not overlap it; there are at least two sources and a destination.
#[inline(always)]
pub(super) unsafe fn reduce<E: Element, O: Op, const S: usize>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    count: usize,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        if count <= SHORT / size_of::<E::Stored>() {
            match (srcs, dsts) {
                (&[a, b], &[d]) => blocks::<E, O, S>(&[d], &[a, b], 0, count),
                _ => blocks::<E, O, S>(dsts, srcs, 0, count),
            }
        } else if let (&[a, b], &[d]) = (srcs, dsts) {
            pair::<E, O>(d.cast(), a.cast(), b.cast(), count);
        } else if let (&[a, b], &[d, ref rest @ ..]) = (srcs, dsts) {
            let mut at = 0;
            while at < count {
                let n = (TILE / size_of::<E::Acc>()).min(count - at);
                let first = d.cast::<E::Stored>().add(at);
                pair::<E, O>(
                    first,
                    a.cast::<E::Stored>().add(at),
                    b.cast::<E::Stored>().add(at),
                    n,
                );
                repeat::<E>(rest, first, at, n);
                at += n;
            }
        } else {
            tiles::<E, O>(dsts, srcs, count);
        }
    }
}

/// Loads and widens one element.
#[inline(always)]
unsafe fn load<E: Element>(src: *const E::Stored, i: usize) -> E::Acc {
    // SAFETY: the caller keeps `i` within the source; the read assumes no alignment.
    E::widen(unsafe { src.add(i).read_unaligned() })
}

/// Stores the narrowed accumulator.
#[inline(always)]
unsafe fn store<E: Element>(dst: *mut E::Stored, i: usize, x: E::Acc) {
    // SAFETY: the caller keeps `i` within the destination; the write assumes no alignment.
    unsafe { dst.add(i).write_unaligned(E::narrow(x)) }
}

/// Copies the `n` elements at `first`, which begin `at` elements into their buffer, to the other destinations.
#[inline(always)]
unsafe fn repeat<E: Element>(rest: &[*mut u8], first: *const E::Stored, at: usize, n: usize) {
    for &dst in rest {
        // SAFETY: the caller vouches for `at + n` elements of every destination, none of which overlap.
        unsafe {
            let dst = dst.cast::<E::Stored>().add(at);
            copy::copy(dst.cast(), first.cast(), n * size_of::<E::Stored>());
        }
    }
}

/// Two sources into one destination, which may be either of them.
#[inline(always)]
unsafe fn pair<E: Element, O: Op>(
    dst: *mut E::Stored,
    a: *const E::Stored,
    b: *const E::Stored,
    count: usize,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        // All operators commute.
        if std::ptr::eq(dst, a) {
            in_place::<E, O>(dst, b, count);
        } else if std::ptr::eq(dst, b) {
            in_place::<E, O>(dst, a, count);
        } else {
            apart::<E, O>(dst, a, b, count);
        }
    }
}

#[inline(always)]
unsafe fn apart<E: Element, O: Op>(
    dst: *mut E::Stored,
    a: *const E::Stored,
    b: *const E::Stored,
    count: usize,
) {
    for i in 0..count {
        // SAFETY: the caller vouches for `count` elements.
        unsafe { store::<E>(dst, i, O::apply(load::<E>(a, i), load::<E>(b, i))) }
    }
}

#[inline(always)]
unsafe fn in_place<E: Element, O: Op>(dst: *mut E::Stored, src: *const E::Stored, count: usize) {
    for i in 0..count {
        // SAFETY: the caller vouches for `count` elements.
        unsafe { store::<E>(dst, i, O::apply(load::<E>(dst, i), load::<E>(src, i))) }
    }
}

/// Three sources or more into any number of destinations, tile by tile.
#[inline(always)]
unsafe fn tiles<E: Element, O: Op>(dsts: &[*mut u8], srcs: &[*const u8], count: usize) {
    let mut tile = Tile(MaybeUninit::uninit());
    let acc = tile.0.as_mut_ptr().cast::<E::Acc>();
    let mut at = 0;
    while at < count {
        let n = (TILE / size_of::<E::Acc>()).min(count - at);
        // SAFETY: the caller vouches for `count` elements of every buffer, and `at + n` never exceeds it; what is
        // read of the tile has been written by the loop over the first sources.
        unsafe {
            let src = |i: usize| srcs[i].cast::<E::Stored>().add(at);
            let mut done = match srcs.len() {
                3 => {
                    let (a, b, c) = (src(0), src(1), src(2));
                    for i in 0..n {
                        let ab = O::apply(load::<E>(a, i), load::<E>(b, i));
                        acc.add(i).write(O::apply(ab, load::<E>(c, i)));
                    }
                    3
                }
                _ => {
                    let (a, b, c, d) = (src(0), src(1), src(2), src(3));
                    for i in 0..n {
                        let ab = O::apply(load::<E>(a, i), load::<E>(b, i));
                        let abc = O::apply(ab, load::<E>(c, i));
                        acc.add(i).write(O::apply(abc, load::<E>(d, i)));
                    }
                    4
                }
            };
            while done + 4 <= srcs.len() {
                let (a, b, c, d) = (src(done), src(done + 1), src(done + 2), src(done + 3));
                for i in 0..n {
                    let xa = O::apply(acc.add(i).read(), load::<E>(a, i));
                    let xab = O::apply(xa, load::<E>(b, i));
                    let xabc = O::apply(xab, load::<E>(c, i));
                    acc.add(i).write(O::apply(xabc, load::<E>(d, i)));
                }
                done += 4;
            }
            while done < srcs.len() {
                let a = src(done);
                for i in 0..n {
                    acc.add(i).write(O::apply(acc.add(i).read(), load::<E>(a, i)));
                }
                done += 1;
            }
            let (first, rest) = (dsts[0].cast::<E::Stored>().add(at), &dsts[1..]);
            for i in 0..n {
                store::<E>(first, i, acc.add(i).read());
            }
            repeat::<E>(rest, first, at, n);
        }
        at += n;
    }
}

/// Elements `at..end` in blocks held in registers, then one by one.
#[inline(always)]
unsafe fn blocks<E: Element, O: Op, const L: usize>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    mut at: usize,
    end: usize,
) {
    // SAFETY: `at` plus the block length stays within `end`, for which the caller vouches.
    unsafe {
        while end - at >= L {
            block::<E, O, L>(dsts, srcs, at);
            at += L;
        }
        while at < end {
            single::<E, O>(dsts, srcs, at);
            at += 1;
        }
    }
}

#[inline(always)]
unsafe fn block<E: Element, O: Op, const L: usize>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    at: usize,
) {
    // SAFETY: the caller keeps `at..at + L` within every buffer; reads and writes assume no alignment.
    unsafe {
        let load = |src: *const u8| src.cast::<E::Stored>().add(at).cast::<[E::Stored; L]>();
        let mut acc = load(srcs[0]).read_unaligned().map(E::widen);
        for &src in &srcs[1..] {
            let x = load(src).read_unaligned();
            for i in 0..L {
                acc[i] = O::apply(acc[i], E::widen(x[i]));
            }
        }
        let out = acc.map(E::narrow);
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
