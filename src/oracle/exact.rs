//! Sums and products with about twice the precision of `f64`.

/// The unevaluated sum of a number and the error of its roundings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exact {
    high: f64,
    low: f64,
}

impl Exact {
    /// This number, exactly.
    pub const fn new(value: f64) -> Self {
        Exact { high: value, low: 0.0 }
    }

    /// Adds `x`: the rounding error of the addition is kept (Knuth's two-sum).
    #[must_use]
    pub fn plus(self, x: f64) -> Self {
        let high = self.high + x;
        let part = high - self.high;
        let error = (self.high - (high - part)) + (x - part);
        Exact { high, low: self.low + error }
    }

    /// Multiplies by `x`: the rounding error of the product comes out of a fused multiply-add.
    #[must_use]
    pub fn times(self, x: f64) -> Self {
        let high = self.high * x;
        let error = self.high.mul_add(x, -high);
        Exact { high, low: self.low.mul_add(x, error) }
    }

    /// The nearest `f64`. Where the sum overflowed, the overflow.
    pub fn value(self) -> f64 {
        if self.high.is_finite() { self.high + self.low } else { self.high }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_keeps_what_f64_drops() {
        let plain = 1e16 + 1.0 - 1e16;
        assert_eq!(plain, 0.0);
        assert_eq!(Exact::new(1e16).plus(1.0).plus(-1e16).value(), 1.0);
    }

    #[test]
    fn a_product_keeps_what_f64_drops() {
        let x = 1.0 + f64::EPSILON;
        // (1+e)^2 - 1 - 2e = e^2, which a plain product loses.
        let square = Exact::new(x).times(x).plus(-1.0).plus(-2.0 * f64::EPSILON);
        assert_eq!(square.value(), f64::EPSILON * f64::EPSILON);
    }
}
