//! Comparing found with expected elements: how far they may differ, and what is reported.

use super::number::{FloatFormat, Value, decode};
use antiphon_types::DataType;
use std::fmt;

/// How far a found value may be from the expected one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Not at all (as values: zeros of either sign are equal).
    Exact,
    /// Floats may differ by what `roundings` roundings of a value of `magnitude` can amount to.
    Roundings {
        /// Number of roundings on the way to the result.
        roundings: u32,
        /// The sum of the magnitudes of what was added, or the magnitude of a product.
        magnitude: f64,
        /// Whether a step may also have rounded in the subnormal range, as products and quotients do.
        subnormal: bool,
    },
}

impl Tolerance {
    /// The largest allowed difference for a float of this format.
    pub fn bound(self, format: FloatFormat) -> f64 {
        match self {
            Tolerance::Exact => 0.0,
            Tolerance::Roundings { roundings, magnitude, subnormal } => {
                let k = f64::from(roundings);
                let steps = if subnormal { k * format.smallest_subnormal() } else { 0.0 };
                (k * format.unit_roundoff().ln_1p()).exp_m1() * magnitude + steps
            }
        }
    }

    /// Whether a float of this format may differ by so much. NaN never may.
    #[inline]
    fn allows(self, difference: f64, format: FloatFormat) -> bool {
        if let Tolerance::Roundings { roundings, magnitude, .. } = self {
            // The first-order bound is below the whole one and spares most elements its transcendental functions.
            if difference <= f64::from(roundings) * format.unit_roundoff() * magnitude {
                return true;
            }
        }
        difference <= self.bound(format)
    }
}

/// The first element that was wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// The rank whose buffer it is in.
    pub rank: u32,
    /// Which buffer: `output` or `input`.
    pub buffer: &'static str,
    /// Position in that buffer, in elements.
    pub element: u64,
    /// What should be there.
    pub expected: Value,
    /// The largest allowed difference.
    pub within: f64,
    /// What is there.
    pub found: Value,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { rank, buffer, element, expected, .. } = self;
        write!(f, "rank {rank}, {buffer} element {element}: expected {expected}")?;
        if self.within > 0.0 {
            write!(f, " (within {:.3e})", self.within)?;
        }
        write!(f, ", found {}", self.found)
    }
}

/// The outcome of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Number of wrong elements.
    pub wrong: u64,
    /// The first of them.
    pub first: Option<Mismatch>,
    /// Number of elements that were not compared, because the plan leaves them to chance.
    pub chance: u64,
}

impl Verdict {
    /// Adds another comparison's outcome; the first mismatch of `self` stays the first.
    pub fn merge(&mut self, other: Verdict) {
        self.wrong += other.wrong;
        self.chance += other.chance;
        if self.first.is_none() {
            self.first = other.first;
        }
    }

    /// Compares one element and records a mismatch.
    #[inline]
    pub(super) fn element(
        &mut self,
        dtype: DataType,
        place: (u32, u64),
        expected: Value,
        tolerance: Tolerance,
        bits: u64,
    ) {
        let found = decode(dtype, bits);
        let within = match (expected, found) {
            (Value::Integer(a), Value::Integer(b)) => {
                if a == b {
                    return;
                }
                0.0
            }
            (Value::Float(a), Value::Float(b)) => {
                if a == b {
                    return;
                }
                let Some(format) = FloatFormat::of(dtype) else { return };
                let largest = format.largest();
                // Both are clamped, so that an infinity passes exactly where overflow was due.
                let difference = (a.clamp(-largest, largest) - b.clamp(-largest, largest)).abs();
                if tolerance.allows(difference, format) {
                    return;
                }
                tolerance.bound(format)
            }
            _ => 0.0,
        };
        self.wrong += 1;
        if self.first.is_none() {
            let (rank, element) = place;
            let buffer = "output";
            self.first = Some(Mismatch { rank, buffer, element, expected, within, found });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(found: &[f32], expected: &[f64], tolerance: Tolerance) -> Verdict {
        let mut verdict = Verdict::default();
        for (element, (found, &expected)) in (0..).zip(found.iter().zip(expected)) {
            let bits = found.to_bits().into();
            verdict.element(DataType::F32, (3, element), Value::Float(expected), tolerance, bits);
        }
        verdict
    }

    #[test]
    fn roundings_bound_to_first_order_and_beyond() {
        let f32_format = FloatFormat::of(DataType::F32).unwrap();
        let four = Tolerance::Roundings { roundings: 4, magnitude: 10.0, subnormal: false };
        let first_order = 4.0 * 2f64.powi(-24) * 10.0;
        assert!((four.bound(f32_format) / first_order - 1.0).abs() < 1e-6);
        let e5m2 = FloatFormat::of(DataType::F8E5m2).unwrap();
        assert!((four.bound(e5m2) - (1.125f64.powi(4) - 1.0) * 10.0).abs() < 1e-12);
        assert_eq!(Tolerance::Exact.bound(e5m2), 0.0);
    }

    #[test]
    fn the_first_mismatch_is_described_and_all_are_counted() {
        let found = [1.0, 2.5, f32::NAN, 4.0];
        let verdict = compare(&found, &[1.0, 2.0, 3.0, 4.0], Tolerance::Exact);
        assert_eq!(verdict.wrong, 2);
        let text = verdict.first.unwrap().to_string();
        assert_eq!(text, "rank 3, output element 1: expected 2, found 2.5");
    }

    #[test]
    fn tolerance_lets_roundings_pass_and_nothing_else() {
        let near = 1.0 + f32::EPSILON;
        let found = [near, 1.0 + 8.0 * f32::EPSILON, f32::INFINITY, f32::NAN];
        let four = Tolerance::Roundings { roundings: 4, magnitude: 1.0, subnormal: false };
        let verdict = compare(&found, &[1.0; 4], four);
        assert_eq!(verdict.wrong, 3);
        assert_eq!(verdict.first.unwrap().element, 1);
    }

    #[test]
    fn overflow_equals_infinity_only_where_it_is_due() {
        let mut verdict = Verdict::default();
        let infinity = 0x7c00;
        let beyond = Value::Float(70_000.0);
        verdict.element(DataType::F16, (0, 0), beyond, Tolerance::Exact, infinity);
        assert_eq!(verdict.wrong, 0);
        verdict.element(DataType::F16, (0, 1), Value::Float(3.0), Tolerance::Exact, infinity);
        assert_eq!(verdict.wrong, 1);
    }
}
