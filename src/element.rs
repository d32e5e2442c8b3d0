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
    #[cfg(feature = "half")]
    half::f16 = F16;
    #[cfg(feature = "half")]
    half::bf16 = Bf16;
}
