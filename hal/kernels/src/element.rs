//! What the reduction loops need to know of an element type: how it is stored, what it is summed in, and the four
//! operators.

use super::vector::Vector;
use super::{float8, half};

/// An element type: its stored form and the type it is accumulated in.
pub(super) trait Element {
    /// As it lies in memory.
    type Stored: Copy + Default;
    /// As it is accumulated: binary32 for the 16- and 8-bit floats, else the type itself.
    type Acc: Number;

    fn widen(x: Self::Stored) -> Self::Acc;
    fn narrow(x: Self::Acc) -> Self::Stored;
}

/// Arithmetic of an accumulator. Integers wrap; minimum and maximum of floats give NaN if any operand is NaN,
/// and order -0.0 below +0.0.
pub(super) trait Number: Copy + Default {
    fn sum(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    /// Divides by the number of ranks: floats round to nearest, integers truncate towards zero.
    fn over(self, n: u32) -> Self;
}

/// A reduction operator, as a type, so that each loop is compiled for its operator.
pub(super) trait Op {
    fn apply<N: Number>(a: N, b: N) -> N;

    /// The same on vectors.
    ///
    /// # Safety
    /// The CPU has the vectors' instructions.
    unsafe fn apply_all<V: Vector>(a: V, b: V) -> V;
}

macro_rules! op {
    ($name:ident, $method:ident) => {
        pub(super) struct $name;
        impl Op for $name {
            #[inline(always)]
            fn apply<N: Number>(a: N, b: N) -> N {
                a.$method(b)
            }
            #[inline(always)]
            unsafe fn apply_all<V: Vector>(a: V, b: V) -> V {
                // SAFETY: passed on to the caller.
                unsafe { a.$method(b) }
            }
        }
    };
}
op!(Sum, sum);
op!(Prod, prod);
op!(Min, min);
op!(Max, max);

macro_rules! float {
    ($t:ty) => {
        impl Number for $t {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                let lesser = if self < other { self } else { other };
                // Equal operands differ in bits only as zeros do, where the set sign bit is the lesser.
                let either = <$t>::from_bits(self.to_bits() | other.to_bits());
                let ordered = if self == other { either } else { lesser };
                if self.is_nan() { self } else { ordered }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                let greater = if self > other { self } else { other };
                let both = <$t>::from_bits(self.to_bits() & other.to_bits());
                let ordered = if self == other { both } else { greater };
                if self.is_nan() { self } else { ordered }
            }
            #[inline(always)]
            fn over(self, n: u32) -> Self {
                self / n as $t
            }
        }
    };
}
float!(f32);
float!(f64);

macro_rules! integer {
    ($t:ty, $quotient:expr) => {
        impl Number for $t {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                if self < other { self } else { other }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                if self > other { self } else { other }
            }
            #[inline(always)]
            fn over(self, n: u32) -> Self {
                let quotient: fn($t, u32) -> $t = $quotient;
                quotient(self, n)
            }
        }
    };
}
// CPUs have no vector division of integers. A quotient of integers is at least 1/dividend (relatively) away from the
// next integer, far more than the rounding of a float with more bits than the dividend, so truncation is exact; a
// divisor that such a float cannot hold is larger than any dividend, which gives 0 either way.
integer!(i8, |x, n| (f32::from(x) / n as f32) as i8);
integer!(u8, |x, n| (f32::from(x) / n as f32) as u8);
integer!(i32, |x, n| (f64::from(x) / f64::from(n)) as i32);
integer!(u32, |x, n| (f64::from(x) / f64::from(n)) as u32);
integer!(i64, |x, n| x / i64::from(n));
integer!(u64, |x, n| x / u64::from(n));

macro_rules! plain {
    ($($t:ty)*) => {$(
        impl Element for $t {
            type Stored = $t;
            type Acc = $t;
            #[inline(always)]
            fn widen(x: $t) -> $t {
                x
            }
            #[inline(always)]
            fn narrow(x: $t) -> $t {
                x
            }
        }
    )*};
}
plain!(f32 f64 i8 u8 i32 u32 i64 u64);

macro_rules! narrow_float {
    ($name:ident, $stored:ty, $widen:path, $narrow:path) => {
        pub(super) struct $name;
        impl Element for $name {
            type Stored = $stored;
            type Acc = f32;
            #[inline(always)]
            fn widen(x: $stored) -> f32 {
                $widen(x)
            }
            #[inline(always)]
            fn narrow(x: f32) -> $stored {
                $narrow(x)
            }
        }
    };
}
narrow_float!(F16, u16, half::f16_to_f32, half::f32_to_f16);
narrow_float!(Bf16, u16, half::bf16_to_f32, half::f32_to_bf16);
narrow_float!(F8E4m3, u8, float8::e4m3_to_f32, float8::f32_to_e4m3);
narrow_float!(F8E5m2, u8, float8::e5m2_to_f32, float8::f32_to_e5m2);
