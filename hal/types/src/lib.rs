//! Data types and reduction operators: the plain types every layer of Antiphon shares.
//!
//! This crate depends on nothing, so that `plan` (which must not know devices) and `hal` (which must not know
//! plans) can speak of the same element types.
#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;

/// The type of one element of a message.
///
/// `F8E4m3` is the OCP "FN" variant (no infinity, one NaN pattern, largest finite value 448); `F8E5m2` has
/// infinities and a largest finite value of 57344.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DataType {
    /// IEEE binary16.
    F16 = 0,
    /// bfloat16: the upper half of a binary32.
    Bf16 = 1,
    /// IEEE binary32.
    F32 = 2,
    /// IEEE binary64.
    F64 = 3,
    /// Signed 8-bit integer.
    I8 = 4,
    /// Unsigned 8-bit integer.
    U8 = 5,
    /// Signed 32-bit integer.
    I32 = 6,
    /// Unsigned 32-bit integer.
    U32 = 7,
    /// Signed 64-bit integer.
    I64 = 8,
    /// Unsigned 64-bit integer.
    U64 = 9,
    /// 8-bit float, 4 exponent and 3 mantissa bits, finite only (OCP FP8 E4M3).
    F8E4m3 = 10,
    /// 8-bit float, 5 exponent and 2 mantissa bits (OCP FP8 E5M2).
    F8E5m2 = 11,
}

impl DataType {
    /// Every data type, in the order of their codes.
    pub const ALL: [DataType; 12] = [
        DataType::F16,
        DataType::Bf16,
        DataType::F32,
        DataType::F64,
        DataType::I8,
        DataType::U8,
        DataType::I32,
        DataType::U32,
        DataType::I64,
        DataType::U64,
        DataType::F8E4m3,
        DataType::F8E5m2,
    ];

    /// Bytes of one element: 1, 2, 4 or 8.
    pub const fn size(self) -> usize {
        match self {
            DataType::I8 | DataType::U8 | DataType::F8E4m3 | DataType::F8E5m2 => 1,
            DataType::F16 | DataType::Bf16 => 2,
            DataType::F32 | DataType::I32 | DataType::U32 => 4,
            DataType::F64 | DataType::I64 | DataType::U64 => 8,
        }
    }

    /// Whether the type is a floating-point type (of any width).
    pub const fn is_float(self) -> bool {
        matches!(
            self,
            DataType::F16
                | DataType::Bf16
                | DataType::F32
                | DataType::F64
                | DataType::F8E4m3
                | DataType::F8E5m2
        )
    }

    /// The name used on the command line and in messages, e.g. `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            DataType::F16 => "f16",
            DataType::Bf16 => "bf16",
            DataType::F32 => "f32",
            DataType::F64 => "f64",
            DataType::I8 => "i8",
            DataType::U8 => "u8",
            DataType::I32 => "i32",
            DataType::U32 => "u32",
            DataType::I64 => "i64",
            DataType::U64 => "u64",
            DataType::F8E4m3 => "f8e4m3",
            DataType::F8E5m2 => "f8e5m2",
        }
    }
}

/// How the elements of several buffers are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ReduceOp {
    /// Sum.
    Sum = 0,
    /// Product.
    Prod = 1,
    /// Minimum; NaN if any operand is NaN.
    Min = 2,
    /// Maximum; NaN if any operand is NaN.
    Max = 3,
    /// Sum divided by the number of ranks. Integers divide towards zero, as NCCL's average does.
    Avg = 4,
}

impl ReduceOp {
    /// Every reduction operator, in the order of their codes.
    pub const ALL: [ReduceOp; 5] =
        [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];

    /// The name used in plans, on the command line and in messages, e.g. `sum`.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Avg => "avg",
        }
    }

    /// Whether an operand may be taken more than once without another result: of minima and maxima.
    pub const fn is_idempotent(self) -> bool {
        matches!(self, ReduceOp::Min | ReduceOp::Max)
    }
}

/// A name that is not one of the allowed ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    what: &'static str,
    found: String,
    allowed: String,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read {}: saw `{}`, allowed {}", self.what, self.found, self.allowed)
    }
}

impl std::error::Error for UnknownName {}

fn by_name<T: Copy>(
    what: &'static str,
    all: &[T],
    name: fn(T) -> &'static str,
    text: &str,
) -> Result<T, UnknownName> {
    all.iter().copied().find(|&t| name(t) == text).ok_or_else(|| UnknownName {
        what,
        found: text.to_owned(),
        allowed: all.iter().map(|&t| name(t)).collect::<Vec<_>>().join(", "),
    })
}

impl FromStr for DataType {
    type Err = UnknownName;
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        by_name("a data type", &Self::ALL, Self::name, text)
    }
}

impl FromStr for ReduceOp {
    type Err = UnknownName;
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        by_name("a reduction", &Self::ALL, Self::name, text)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_codes_are_positions() {
        for (code, dtype) in DataType::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, code);
            assert_eq!(dtype.name().parse(), Ok(dtype));
        }
        for (code, op) in ReduceOp::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, code);
            assert_eq!(op.name().parse(), Ok(op));
        }
    }

    #[test]
    fn an_unknown_name_lists_the_allowed_ones() {
        let message = "float32".parse::<DataType>().unwrap_err().to_string();
        assert!(message.contains("`float32`") && message.contains("f32, f64"), "{message}");
    }
}
