//! The numbers of element types, reductions and switches. A number once given never changes; additions get new numbers.

use crate::entry::entry_or;
use crate::result::{Failure, antiphon_result};
use antiphon_executor::{DataType, ReduceOp};

/// Types of elements. Functions take them as numbers.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum antiphon_dtype {
    /// IEEE binary16.
    F16 = 0,
    /// bfloat16.
    Bf16 = 1,
    /// float.
    F32 = 2,
    /// double.
    F64 = 3,
    /// int8_t.
    I8 = 4,
    /// uint8_t.
    U8 = 5,
    /// int32_t.
    I32 = 6,
    /// uint32_t.
    U32 = 7,
    /// int64_t.
    I64 = 8,
    /// uint64_t.
    U64 = 9,
    /// 8-bit float with 4 exponent bits, finite only (OCP E4M3).
    F8e4m3 = 10,
    /// 8-bit float with 5 exponent bits (OCP E5M2).
    F8e5m2 = 11,
}

/// Reductions. Functions take them as numbers.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum antiphon_op {
    /// The reduction that the plan names; for `antiphon_execute` only.
    OfPlan = -1,
    /// The sum.
    Sum = 0,
    /// The product.
    Prod = 1,
    /// The least.
    Min = 2,
    /// The greatest.
    Max = 3,
    /// The sum divided by the number of ranks.
    Avg = 4,
}

/// Something that is on or off, or left at its default.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum antiphon_switch {
    /// Left at its default.
    Default = 0,
    /// On.
    On = 1,
    /// Off.
    Off = 2,
}

/// Bytes of an element of a type (an antiphon_dtype); 0 for a number that stands for no type.
///
/// Any thread may call it at any time.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_dtype_size(dtype: i32) -> usize {
    entry_or(0, || data_type(dtype).map_or(0, DataType::size))
}

#[cold]
fn unknown(what: &str, saw: i32, allowed: &str) -> Failure {
    let text = format!("cannot use {what}: saw {saw}, allowed {allowed}");
    Failure::new(antiphon_result::InvalidArgument, text)
}

/// Whether each entry of a table is at the index of its number, so that it can be looked up without a search.
macro_rules! in_order {
    ($table:ident) => {{
        let mut number = 0;
        while number < $table.len() && $table[number].0 as usize == number {
            number += 1;
        }
        number == $table.len()
    }};
}

/// The element type that a caller means.
#[inline]
pub(crate) fn data_type(dtype: i32) -> Result<DataType, Failure> {
    use antiphon_dtype as C;
    const ALL: [(C, DataType); 12] = [
        (C::F16, DataType::F16),
        (C::Bf16, DataType::Bf16),
        (C::F32, DataType::F32),
        (C::F64, DataType::F64),
        (C::I8, DataType::I8),
        (C::U8, DataType::U8),
        (C::I32, DataType::I32),
        (C::U32, DataType::U32),
        (C::I64, DataType::I64),
        (C::U64, DataType::U64),
        (C::F8e4m3, DataType::F8E4m3),
        (C::F8e5m2, DataType::F8E5m2),
    ];
    const { assert!(in_order!(ALL)) };
    let found = usize::try_from(dtype).ok().and_then(|number| ALL.get(number));
    let found = found.map(|&(_, own)| own);
    found.ok_or_else(|| unknown("an element type", dtype, "the numbers of antiphon_dtype"))
}

/// The reduction that a caller means.
#[inline]
pub(crate) fn reduce_op(op: i32) -> Result<ReduceOp, Failure> {
    use antiphon_op as C;
    const ALL: [(C, ReduceOp); 5] = [
        (C::Sum, ReduceOp::Sum),
        (C::Prod, ReduceOp::Prod),
        (C::Min, ReduceOp::Min),
        (C::Max, ReduceOp::Max),
        (C::Avg, ReduceOp::Avg),
    ];
    const { assert!(in_order!(ALL)) };
    let found = usize::try_from(op).ok().and_then(|number| ALL.get(number)).map(|&(_, own)| own);
    found.ok_or_else(|| unknown("a reduction", op, "the numbers of antiphon_op"))
}

/// Whether a caller wants something on or off; `None` if it leaves it at the default.
pub(crate) fn switch(value: i32) -> Result<Option<bool>, Failure> {
    use antiphon_switch as C;
    const ALL: [(C, Option<bool>); 3] =
        [(C::Default, None), (C::On, Some(true)), (C::Off, Some(false))];
    let found = ALL.into_iter().find(|(known, _)| *known as i32 == value).map(|(_, wanted)| wanted);
    found.ok_or_else(|| unknown("a switch", value, "the numbers of antiphon_switch"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_and_reduction_has_a_number() {
        for own in DataType::ALL {
            let number = own as i32;
            assert_eq!(data_type(number).ok(), Some(own), "{own}");
            assert_eq!(antiphon_dtype_size(number), own.size(), "{own}");
        }
        for own in ReduceOp::ALL {
            assert_eq!(reduce_op(own as i32).ok(), Some(own), "{own}");
        }
        for wrong in [-1, 12, i32::MAX] {
            assert!(data_type(wrong).is_err() && reduce_op(wrong).is_err());
            assert_eq!(antiphon_dtype_size(wrong), 0);
        }
    }

    #[test]
    fn switches_are_on_off_or_as_they_are() {
        let values = [antiphon_switch::Default, antiphon_switch::On, antiphon_switch::Off];
        let read = values.map(|value| switch(value as i32).ok());
        assert_eq!(read, [Some(None), Some(Some(true)), Some(Some(false))]);
        assert!(switch(3).is_err());
    }
}
