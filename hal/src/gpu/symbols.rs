//! Tables of the functions of a driver library, loaded one by one.

/// What a function of a table returns: the driver's code, but where the table says otherwise.
macro_rules! answer {
    ($code:ty) => {
        $code
    };
    ($code:ty; $other:ty) => {
        $other
    };
}

/// Declares the table `Symbols`: the field's name, the symbol, the types of its parameters, and what it returns where
/// that is not the code named at the top.
macro_rules! symbols {
    (
        code $code:ty;
        required { $($name:ident = $symbol:literal ($($argument:ty),* $(,)?) $(-> $result:ty)?;)* }
        optional { $($maybe:ident = $wanted:literal ($($parameter:ty),* $(,)?);)* }
    ) => {
        /// The functions of the driver library.
        pub(super) struct Symbols {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $crate::gpu::symbols::answer!($code $(; $result)?),)*
            $(pub(super) $maybe: Option<unsafe extern "C" fn($($parameter),*) -> $code>,)*
        }

        impl Symbols {
            const REQUIRED: &[&str] = &[$($symbol),*];
            const OPTIONAL: &[&str] = &[$($wanted),*];

            /// All of them, or the name of the first that is required and missing.
            fn load(library: &libloading::os::unix::Library) -> Result<Self, &'static str> {
                use $crate::gpu::search::function;
                Ok(Symbols {
                    $(
                        // SAFETY: the declaration is that of the driver's header for the same symbol; whoever
                        // makes the table never closes the library.
                        $name: unsafe { function(library, $symbol) }.ok_or($symbol)?,
                    )*
                    $(
                        // SAFETY: as above.
                        $maybe: unsafe { function(library, $wanted) },
                    )*
                })
            }
        }
    };
}

pub(crate) use {answer, symbols};
