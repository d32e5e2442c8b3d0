//! The number formats, decoded from their definitions.
//!
//! Elements travel as the low bits of a `u64`; [`decode`] turns them into a value. Every format of at most 64
//! bits decodes exactly: floats into `f64`, integers into `i128`.

use antiphon_types::DataType;
use std::fmt;

/// The layout of a floating-point format: one sign bit, then the exponent, then the mantissa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    /// Bits of the exponent field.
    pub exponent_bits: u32,
    /// Bits of the stored mantissa, without the implicit one.
    pub mantissa_bits: u32,
    /// Whether the top exponent holds ordinary numbers, its last code alone being NaN (OCP E4M3), instead of
    /// infinities and NaNs.
    pub finite_only: bool,
}

impl FloatFormat {
    /// The format of a floating-point data type; `None` for integers.
    pub const fn of(dtype: DataType) -> Option<Self> {
        let (exponent_bits, mantissa_bits, finite_only) = match dtype {
            DataType::F16 => (5, 10, false),
            DataType::Bf16 => (8, 7, false),
            DataType::F32 => (8, 23, false),
            DataType::F64 => (11, 52, false),
            DataType::F8E4m3 => (4, 3, true),
            DataType::F8E5m2 => (5, 2, false),
            DataType::I8
            | DataType::U8
            | DataType::I32
            | DataType::U32
            | DataType::I64
            | DataType::U64 => return None,
        };
        Some(FloatFormat { exponent_bits, mantissa_bits, finite_only })
    }

    /// The exponent field of numbers in [1, 2).
    pub const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// Half the distance from 1 to the next number: the largest relative error of one rounding.
    pub fn unit_roundoff(self) -> f64 {
        power_of_two(-(self.mantissa_bits as i32) - 1)
    }

    /// The smallest positive number.
    pub fn smallest_subnormal(self) -> f64 {
        power_of_two(1 - self.bias() - self.mantissa_bits as i32)
    }

    /// The largest finite number.
    pub fn largest(self) -> f64 {
        let top = (1u64 << self.exponent_bits) - 1;
        let ones = (1u64 << self.mantissa_bits) - 1;
        let code = if self.finite_only {
            (top << self.mantissa_bits) | (ones - 1)
        } else {
            ((top - 1) << self.mantissa_bits) | ones
        };
        self.decode(code)
    }

    /// The value of a code, exactly.
    pub fn decode(self, code: u64) -> f64 {
        let FloatFormat { exponent_bits, mantissa_bits, finite_only } = self;
        let mantissa = code & ((1 << mantissa_bits) - 1);
        let top = (1u64 << exponent_bits) - 1;
        let exponent = (code >> mantissa_bits) & top;
        let magnitude = if exponent == top && !finite_only {
            if mantissa == 0 { f64::INFINITY } else { f64::NAN }
        } else if exponent == top && mantissa == (1 << mantissa_bits) - 1 {
            f64::NAN
        } else if exponent == 0 {
            mantissa as f64 * self.smallest_subnormal()
        } else {
            let significand = mantissa | (1 << mantissa_bits);
            significand as f64 * power_of_two(exponent as i32 - self.bias() - mantissa_bits as i32)
        };
        if code >> (exponent_bits + mantissa_bits) & 1 == 1 { -magnitude } else { magnitude }
    }
}

/// 2 to the `exponent`, which must be in the range of `f64`'s numbers, subnormal ones included.
fn power_of_two(exponent: i32) -> f64 {
    if exponent >= -1022 {
        f64::from_bits(((exponent + 1023) as u64) << 52)
    } else {
        f64::from_bits(1 << (exponent + 1074))
    }
}

/// A decoded element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A float of any width.
    Float(f64),
    /// An integer of any width and signedness.
    Integer(i128),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Float(value) => write!(f, "{value}"),
            Value::Integer(value) => write!(f, "{value}"),
        }
    }
}

/// The value of an element's bits; bits above the type's width are ignored.
pub fn decode(dtype: DataType, bits: u64) -> Value {
    match dtype {
        DataType::F32 => Value::Float(f64::from(f32::from_bits(bits as u32))),
        DataType::F64 => Value::Float(f64::from_bits(bits)),
        DataType::F16 | DataType::Bf16 | DataType::F8E4m3 | DataType::F8E5m2 => {
            let format = FloatFormat::of(dtype);
            Value::Float(format.map_or(f64::NAN, |format| format.decode(bits)))
        }
        _ => Value::Integer(wrap(dtype, i128::from(bits))),
    }
}

/// The integer of this type that is congruent to `value`; `value` itself for floats.
pub fn wrap(dtype: DataType, value: i128) -> i128 {
    match dtype {
        DataType::I8 => i128::from(value as i8),
        DataType::U8 => i128::from(value as u8),
        DataType::I32 => i128::from(value as i32),
        DataType::U32 => i128::from(value as u32),
        DataType::I64 => i128::from(value as i64),
        DataType::U64 => i128::from(value as u64),
        _ => value,
    }
}

/// The bits of the element at the start of `bytes`, which hold at least one element.
pub fn load(dtype: DataType, bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..dtype.size()].copy_from_slice(&bytes[..dtype.size()]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(dtype: DataType, bits: u64) -> f64 {
        match decode(dtype, bits) {
            Value::Float(value) => value,
            Value::Integer(value) => panic!("{dtype} decoded to the integer {value}"),
        }
    }

    #[test]
    fn codes_decode_to_the_values_of_the_standards() {
        let cases: &[(DataType, u64, f64)] = &[
            (DataType::F16, 0x3c00, 1.0),
            (DataType::F16, 0xc000, -2.0),
            (DataType::F16, 0x7bff, 65504.0),
            (DataType::F16, 0x0001, 5.960464477539063e-8),
            (DataType::F16, 0x0400, 6.103515625e-5),
            (DataType::F16, 0x7c00, f64::INFINITY),
            (DataType::Bf16, 0x3f80, 1.0),
            (DataType::Bf16, 0x4049, 3.140625),
            (DataType::Bf16, 0xff80, f64::NEG_INFINITY),
            (DataType::F32, 0x40490fdb, 3.1415927410125732),
            (DataType::F64, 0x400921fb54442d18, std::f64::consts::PI),
            (DataType::F8E4m3, 0x38, 1.0),
            (DataType::F8E4m3, 0x7e, 448.0),
            (DataType::F8E4m3, 0xfe, -448.0),
            (DataType::F8E4m3, 0x01, 0.001953125),
            (DataType::F8E4m3, 0x78, 256.0),
            (DataType::F8E5m2, 0x3c, 1.0),
            (DataType::F8E5m2, 0x7b, 57344.0),
            (DataType::F8E5m2, 0x01, 1.52587890625e-5),
            (DataType::F8E5m2, 0x7c, f64::INFINITY),
        ];
        for &(dtype, bits, value) in cases {
            assert_eq!(float(dtype, bits), value, "{dtype} {bits:#x}");
        }
        for (dtype, bits) in [
            (DataType::F16, 0x7e00),
            (DataType::Bf16, 0x7fc0),
            (DataType::F8E4m3, 0x7f),
            (DataType::F8E4m3, 0xff),
            (DataType::F8E5m2, 0x7d),
        ] {
            assert!(float(dtype, bits).is_nan(), "{dtype} {bits:#x}");
        }
    }

    #[test]
    fn the_general_decoder_agrees_with_the_machine_on_f32_and_f64() {
        let f32_format = FloatFormat::of(DataType::F32).unwrap();
        let f64_format = FloatFormat::of(DataType::F64).unwrap();
        for i in 0..200_000u64 {
            let bits = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let narrow = f32::from_bits(bits as u32);
            let decoded = f32_format.decode(u64::from(bits as u32));
            assert!(decoded == f64::from(narrow) || decoded.is_nan() && narrow.is_nan());
            let wide = f64::from_bits(bits);
            let decoded = f64_format.decode(bits);
            assert!(decoded == wide || decoded.is_nan() && wide.is_nan(), "{bits:#x}");
        }
        assert_eq!(f64_format.decode(1), 5e-324);
        assert_eq!(f64_format.largest(), f64::MAX);
        assert_eq!(f32_format.largest(), f64::from(f32::MAX));
    }

    #[test]
    fn integers_sign_extend_and_wrap() {
        assert_eq!(decode(DataType::I8, 0xff), Value::Integer(-1));
        assert_eq!(decode(DataType::U8, 0xff), Value::Integer(255));
        assert_eq!(decode(DataType::I64, u64::MAX), Value::Integer(-1));
        assert_eq!(decode(DataType::U64, u64::MAX), Value::Integer(u64::MAX.into()));
        assert_eq!(wrap(DataType::I8, 200), -56);
        assert_eq!(wrap(DataType::U32, -1), i128::from(u32::MAX));
    }
}
