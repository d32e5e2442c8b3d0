//! The 16- and 8-bit floats in explicit vectors of binary32.
//!
//! Widening, operator and narrowing of these types together are too much for the compiler to vectorise well, and it
//! does not know the CPU's binary16 instructions. So an instruction set may offer its vectors here ([`Vector`]) and the
//! formats are written once on top. They mirror the scalar conversions of `half` and `float8`, bit for bit.

use super::element::{Bf16, Element, F8E4m3, F8E5m2, F16, Op};
use super::half::CANONICAL_NAN;
use super::reduce;

/// A vector of binary32 lanes, seen as numbers or as bits.
///
/// # Safety
/// Loads and stores touch [`Vector::LANES`] elements, or as many of them as `n` says; `n` is at most `LANES`.
///
/// Every method needs a CPU that has the instructions, and the loads and stores valid pointers, of any alignment.
pub(super) unsafe trait Vector: Copy {
    /// Lanes of the vector.
    const LANES: usize;
    /// As many 16-bit lanes.
    type Half: Copy;

    unsafe fn load16(src: *const u8, n: usize) -> Self::Half;
    /// Fills the upper halves of the lanes with zeros.
    unsafe fn load8(src: *const u8, n: usize) -> Self::Half;
    unsafe fn store16(dst: *mut u8, x: Self::Half, n: usize);
    /// Stores the lower bytes of the lanes.
    unsafe fn store8(dst: *mut u8, x: Self, n: usize);

    /// Moves an 8-bit code to where the sign, exponent and mantissa of binary16 are.
    unsafe fn e4m3_as_f16(x: Self::Half) -> Self::Half;
    unsafe fn e5m2_as_f16(x: Self::Half) -> Self::Half;
    /// From binary16.
    unsafe fn from_f16(x: Self::Half) -> Self;
    /// To binary16, to the nearest (ties to even).
    unsafe fn to_f16(self) -> Self::Half;
    /// The 16-bit lanes as the upper halves.
    unsafe fn from_upper(x: Self::Half) -> Self;
    /// The upper halves.
    unsafe fn to_upper(self) -> Self::Half;

    unsafe fn splat(bits: u32) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn or(self, other: Self) -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn shift_right<const N: u32>(self) -> Self;
    /// Integer addition, wrapping.
    unsafe fn plus(self, other: Self) -> Self;
    /// Integer subtraction, wrapping.
    unsafe fn minus(self, other: Self) -> Self;
    /// The lesser as unsigned integers.
    unsafe fn least(self, other: Self) -> Self;
    /// `yes` where `self`, as a signed integer, is greater than `limit`, else `no`.
    unsafe fn if_above(self, limit: Self, yes: Self, no: Self) -> Self;
    /// `yes` where `self` is NaN, else `no`.
    unsafe fn if_nan(self, yes: Self, no: Self) -> Self;

    unsafe fn sum(self, other: Self) -> Self;
    unsafe fn prod(self, other: Self) -> Self;
    unsafe fn over(self, other: Self) -> Self;
    /// As the x86 instruction does: `other` if the two are equal or either is NaN.
    unsafe fn lesser(self, other: Self) -> Self;

    /// The minimum; NaN if either is NaN; -0.0 below +0.0.
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // SAFETY: passed on to the caller. Unequal numbers give the lesser twice, zeros the set sign bit; a NaN
        // fills the exponent and keeps some mantissa bit.
        unsafe { self.lesser(other).or(other.lesser(self)) }
    }
    /// The maximum; NaN if either is NaN; +0.0 above -0.0.
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: passed on to the caller.
        unsafe {
            let sign = Self::splat(0x8000_0000);
            self.xor(sign).min(other.xor(sign)).xor(sign)
        }
    }
}

/// A type accumulated in vectors of binary32.
pub(super) trait Narrow: Element<Acc = f32> {
    /// The codes of a vector's elements, before they are stored.
    type Codes<V: Vector>: Copy;

    /// Loads `n` elements.
    ///
    /// # Safety
    /// As [`Vector`] says.
    unsafe fn load<V: Vector>(src: *const u8, n: usize) -> V;

    /// Rounds to this type.
    ///
    /// # Safety
    /// As [`Vector`] says.
    unsafe fn round<V: Vector>(x: V) -> Self::Codes<V>;

    /// Stores `n` elements.
    ///
    /// # Safety
    /// As [`Vector`] says.
    unsafe fn store<V: Vector>(dst: *mut u8, codes: Self::Codes<V>, n: usize);
}

macro_rules! narrow {
    ($name:ident, $codes:ty, $store:ident, $load:expr, $round:expr) => {
        impl Narrow for $name {
            type Codes<V: Vector> = $codes;

            #[inline(always)]
            unsafe fn load<V: Vector>(src: *const u8, n: usize) -> V {
                // SAFETY: passed on to the caller.
                unsafe { $load(src, n) }
            }
            #[inline(always)]
            unsafe fn round<V: Vector>(x: V) -> $codes {
                // SAFETY: passed on to the caller.
                unsafe { $round(x) }
            }
            #[inline(always)]
            unsafe fn store<V: Vector>(dst: *mut u8, codes: $codes, n: usize) {
                // SAFETY: passed on to the caller.
                unsafe { V::$store(dst, codes, n) }
            }
        }
    };
}
narrow!(F16, V::Half, store16, |src, n| V::from_f16(V::load16(src, n)), |x: V| canonical(x)
    .to_f16());
narrow!(Bf16, V::Half, store16, |src, n| V::from_upper(V::load16(src, n)), to_bf16);
narrow!(F8E4m3, V, store8, from_e4m3, |x| to_float8::<V, 20, 120, 0x7E>(x, 16384.0));
// E5M2 is the upper half of binary16.
narrow!(
    F8E5m2,
    V,
    store8,
    |src, n| V::from_f16(V::e5m2_as_f16(V::load8(src, n))),
    |x| to_float8::<V, 21, 112, 0x7B>(x, 128.0)
);

/// Canonical NaN where `x` is NaN.
#[inline(always)]
unsafe fn canonical<V: Vector>(x: V) -> V {
    // SAFETY: passed on to the caller.
    unsafe { x.if_nan(V::splat(CANONICAL_NAN.to_bits()), x) }
}

#[inline(always)]
unsafe fn to_bf16<V: Vector>(x: V) -> V::Half {
    // SAFETY: passed on to the caller.
    unsafe {
        let odd = x.shift_right::<16>().and(V::splat(1));
        let rounded = x.plus(V::splat(0x7FFF)).plus(odd);
        x.if_nan(V::splat(CANONICAL_NAN.to_bits()), rounded).to_upper()
    }
}

#[inline(always)]
unsafe fn from_e4m3<V: Vector>(src: *const u8, n: usize) -> V {
    // SAFETY: passed on to the caller. The exponents' biases differ by 8; the NaN code reads as 480.
    unsafe {
        let x = V::from_f16(V::e4m3_as_f16(V::load8(src, n))).prod(V::splat(256f32.to_bits()));
        let magnitude = x.and(V::splat(0x7FFF_FFFF));
        magnitude.if_above(V::splat(448f32.to_bits()), V::splat(CANONICAL_NAN.to_bits()), x)
    }
}

/// The codes of an 8-bit float: `DROP` fewer mantissa bits, exponents biased by `BIAS` less, at most `LARGEST`;
/// `counter` is a number whose neighbours lie one subnormal step apart.
#[inline(always)]
unsafe fn to_float8<V: Vector, const DROP: u32, const BIAS: u32, const LARGEST: u32>(
    x: V,
    counter: f32,
) -> V {
    // SAFETY: passed on to the caller.
    unsafe {
        let magnitude = x.and(V::splat(0x7FFF_FFFF));
        let odd = magnitude.shift_right::<DROP>().and(V::splat(1));
        let rebased = magnitude.plus(V::splat((1 << (DROP - 1)) - 1).plus(odd));
        let normal = rebased.shift_right::<DROP>().minus(V::splat(BIAS << (23 - DROP)));
        let counter = V::splat(counter.to_bits());
        let subnormal = magnitude.sum(counter).minus(counter);
        let least_normal = V::splat(((BIAS + 1) << 23) - 1);
        let finite = magnitude.if_above(least_normal, normal.least(V::splat(LARGEST)), subnormal);
        let signed = finite.or(x.shift_right::<24>().and(V::splat(0x80)));
        x.if_nan(V::splat(0x7F), signed)
    }
}

/// The loops for the narrow floats, of one instruction set.
///
/// # Safety
/// Implementations keep to the buffers; callers pass what [`reduce::reduce`] and [`super::divide::divide`] ask for.
pub(super) unsafe trait Loops {
    unsafe fn reduce<E: Narrow, O: Op>(dsts: &[*mut u8], srcs: &[*const u8], count: usize);
    unsafe fn divide<E: Narrow>(dst: *mut u8, count: usize, n: u32);
}

/// No vectors: the loops of every other type.
pub(super) struct Plain;

// SAFETY: the loops keep to the buffers.
unsafe impl Loops for Plain {
    #[inline(always)]
    unsafe fn reduce<E: Narrow, O: Op>(dsts: &[*mut u8], srcs: &[*const u8], count: usize) {
        // SAFETY: passed on to the caller.
        unsafe { reduce::reduce::<E, O, 8>(dsts, srcs, count) }
    }
    #[inline(always)]
    unsafe fn divide<E: Narrow>(dst: *mut u8, count: usize, n: u32) {
        // SAFETY: passed on to the caller.
        unsafe { super::divide::divide::<E>(dst, count, n) }
    }
}

// SAFETY: every load and store begins at an element before `count` and reaches at most to it.
unsafe impl<V: Vector> Loops for V {
    #[inline(always)]
    unsafe fn reduce<E: Narrow, O: Op>(dsts: &[*mut u8], srcs: &[*const u8], count: usize) {
        // SAFETY: passed on to the caller. The constant lengths only unroll the loops over the lists.
        unsafe {
            match (srcs, dsts) {
                (&[a, b], &[d]) => fold::<V, E, O>(&[d], &[a, b], count),
                _ => fold::<V, E, O>(dsts, srcs, count),
            }
        }
    }

    #[inline(always)]
    unsafe fn divide<E: Narrow>(dst: *mut u8, count: usize, n: u32) {
        let mut at = 0;
        while at < count {
            let lanes = V::LANES.min(count - at);
            // SAFETY: the caller vouches for `count` elements.
            unsafe {
                let dst = dst.cast::<E::Stored>().add(at).cast();
                let quotient = E::load::<V>(dst, lanes).over(V::splat((n as f32).to_bits()));
                E::store::<V>(dst, E::round(quotient), lanes);
            }
            at += lanes;
        }
    }
}

#[inline(always)]
unsafe fn fold<V: Vector, E: Narrow, O: Op>(dsts: &[*mut u8], srcs: &[*const u8], count: usize) {
    let mut at = 0;
    // SAFETY: the caller vouches for `count` elements of every buffer.
    unsafe {
        // Two vectors are not folded together but side by side: one waits while the other computes.
        while count - at >= 2 * V::LANES {
            step::<V, E, O>(dsts, srcs, at, V::LANES);
            step::<V, E, O>(dsts, srcs, at + V::LANES, V::LANES);
            at += 2 * V::LANES;
        }
        if count - at >= V::LANES {
            step::<V, E, O>(dsts, srcs, at, V::LANES);
            at += V::LANES;
        }
        if at < count {
            step::<V, E, O>(dsts, srcs, at, count - at);
        }
    }
}

/// Folds `lanes` elements from `at` on.
#[inline(always)]
unsafe fn step<V: Vector, E: Narrow, O: Op>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    at: usize,
    lanes: usize,
) {
    // SAFETY: the caller keeps `at + lanes` within every buffer.
    unsafe {
        let load = |src: *const u8| E::load::<V>(src.add(at * size_of::<E::Stored>()), lanes);
        let mut acc = load(srcs[0]);
        for &src in &srcs[1..] {
            acc = O::apply_all(acc, load(src));
        }
        let codes = E::round(acc);
        for &dst in dsts {
            E::store::<V>(dst.add(at * size_of::<E::Stored>()), codes, lanes);
        }
    }
}
