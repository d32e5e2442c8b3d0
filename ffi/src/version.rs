//! The version of the interface, and of the library.

use crate::entry::entry_or;
use std::ffi::{CStr, c_char};

/// The major number of the binary interface: raised when something of it changes or goes; from the first release on also when
/// functions do something else that a compiled program may notice. docs/c.md, "Versions", has the policy.
pub const ANTIPHON_ABI_MAJOR: u32 = 1;
/// The minor number of the binary interface: raised by every addition.
pub const ANTIPHON_ABI_MINOR: u32 = 16;

/// The version of the library, which is independent of the interface's numbers.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"unknown",
    };

/// The binary interface of the library that is loaded: the major number in the upper 16 bits, the minor one in the
/// lower. A program works with the major number it was compiled with, and with that minor number or a later one.
///
/// Any thread may call it at any time.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_abi_version() -> u32 {
    ANTIPHON_ABI_MAJOR << 16 | ANTIPHON_ABI_MINOR
}

/// The version of the library, e.g. "0.1.0"; a text that lives as long as the library.
///
/// Any thread may call it at any time.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_version() -> *const c_char {
    entry_or(c"".as_ptr(), || VERSION.as_ptr())
}
