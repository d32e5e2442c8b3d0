//! What the elements of a message may be, in Rust.

use crate::DataType;

/// An element of a message: a number that collectives move and reduce.
///
/// Sealed: these types have no padding, every bit pattern of them is a value, and the engines know how to add them up. With the feature `half`
/// also `half::f16` and `half::bf16`.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The name of the type among all data types.
    const DATA_TYPE: DataType;
}

/// The bits of an 8-bit float with 4 bits of exponent and 3 of mantissa, without infinities: up to 448, and one NaN
/// of each sign ([`DataType::F8E4m3`]). Two are equal if their bits are.
///
/// ```
/// use antiphon::{Communicator, F8E4m3, Op};
///
/// # fn main() -> antiphon::Result<()> {
/// let alone = &Communicator::in_process(1)?[0];
/// let mut sums = [F8E4m3(0x38); 100]; // 1.0
/// alone.all_reduce(&mut sums, Op::Sum)?;
/// assert_eq!(sums, [F8E4m3(0x38); 100]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct F8E4m3(pub u8);

/// The bits of an 8-bit float with 5 bits of exponent and 2 of mantissa: up to 57344, with infinities
/// ([`DataType::F8E5m2`]). Two are equal if their bits are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct F8E5m2(pub u8);

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($(#[$gate:meta])* $element:ty = $name:ident;)*) => {
        $(
            $(#[$gate])*
            impl sealed::Sealed for $element {}
            $(#[$gate])*
            impl Element for $element {
                const DATA_TYPE: DataType = DataType::$name;
            }
        )*

        #[cfg(test)]
        mod tests {
            use super::*;

            #[test]
            fn elements_are_as_large_as_their_data_types() {
                $(
                    $(#[$gate])*
                    assert_eq!(size_of::<$element>(), <$element as Element>::DATA_TYPE.size());
                )*
            }
        }
    };
}

elements! {
    f32 = F32;
    f64 = F64;
    i8 = I8;
    u8 = U8;
    i32 = I32;
    u32 = U32;
    i64 = I64;
    u64 = U64;
    F8E4m3 = F8E4m3;
    F8E5m2 = F8E5m2;
    #[cfg(feature = "half")]
    half::f16 = F16;
    #[cfg(feature = "half")]
    half::bf16 = Bf16;
}
