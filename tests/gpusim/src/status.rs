//! Status codes of the driver API, their names and texts.

use crate::abi::{In, Out, answer};
use std::ffi::{CStr, c_char};

/// A status code (`CUresult`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub i32);

macro_rules! statuses {
    ($($name:ident = $code:literal $text:literal;)*) => {
        impl Status {
            $(pub const $name: Status = Status($code);)*
        }

        const TABLE: &[(i32, &str, &CStr, &CStr)] = &[
            $((
                $code,
                stringify!($name),
                match CStr::from_bytes_with_nul(concat!("CUDA_ERROR_", stringify!($name), "\0").as_bytes()) {
                    Ok(text) => text,
                    Err(_) => panic!(),
                },
                match CStr::from_bytes_with_nul(concat!($text, " (simulated driver)\0").as_bytes()) {
                    Ok(text) => text,
                    Err(_) => panic!(),
                },
            ),)*
        ];
    };
}

statuses! {
    SUCCESS = 0 "no error";
    INVALID_VALUE = 1 "invalid argument";
    OUT_OF_MEMORY = 2 "out of memory";
    NOT_INITIALIZED = 3 "cuInit has not been called";
    INVALID_DEVICE = 101 "no such device";
    INVALID_IMAGE = 200 "not machine code of the simulated driver";
    INVALID_CONTEXT = 201 "no context is current, or not one that allows this";
    ALREADY_MAPPED = 208 "mapped already";
    NO_BINARY_FOR_GPU = 209 "machine code for another device; the simulated driver loads what its own compiler made";
    PEER_ACCESS_UNSUPPORTED = 217 "the devices do not reach each other's memory";
    SHARED_OBJECT_INIT_FAILED = 303 "cannot load the shared object";
    OPERATING_SYSTEM = 304 "a system call failed";
    INVALID_HANDLE = 400 "no such handle";
    ILLEGAL_STATE = 401 "not in a state that allows this";
    NOT_FOUND = 500 "named symbol not found";
    NOT_READY = 600 "not done yet";
    ILLEGAL_ADDRESS = 700 "a kernel used an address that is not mapped";
    LAUNCH_OUT_OF_RESOURCES = 701 "a block needs more than the device has";
    PEER_ACCESS_ALREADY_ENABLED = 704 "peer access is enabled already";
    HOST_MEMORY_ALREADY_REGISTERED = 712 "registered already";
    HOST_MEMORY_NOT_REGISTERED = 713 "not registered";
    LAUNCH_FAILED = 719 "a kernel trapped";
    COOPERATIVE_LAUNCH_TOO_LARGE = 720 "more blocks than can be resident at the same time";
    NOT_SUPPORTED = 801 "not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900 "not allowed while a stream is captured";
    STREAM_CAPTURE_INVALIDATED = 901 "the capture was invalidated by an earlier call";
    STREAM_CAPTURE_MERGE = 902 "would merge two captures";
    STREAM_CAPTURE_UNMATCHED = 903 "the capture was begun on another stream";
    STREAM_CAPTURE_UNJOINED = 904 "a captured stream has not joined the stream the capture began on";
    STREAM_CAPTURE_ISOLATION = 905 "would make captured work depend on work that is not";
    STREAM_CAPTURE_IMPLICIT = 906 "the legacy stream cannot take part in a capture";
    CAPTURED_EVENT = 907 "the event was last recorded in a capture";
    UNKNOWN = 999 "unknown error";
}

impl Status {
    /// The name without the vendor's prefix.
    pub fn name(self) -> &'static str {
        TABLE.iter().find(|row| row.0 == self.0).map_or("?", |row| row.1)
    }
}

/// The status as C sees it, with no call to `cuInit` needed.
fn look_up(
    code: i32,
    out: Out<In<c_char>>,
    pick: fn(&(i32, &str, &'static CStr, &'static CStr)) -> &'static CStr,
) -> i32 {
    answer("cuGetError", || {
        let row = TABLE.iter().find(|row| row.0 == code).ok_or(Status::INVALID_VALUE)?;
        out.set(In::of(pick(row)))
    })
}

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn cuGetErrorName(code: i32, out: Out<In<c_char>>) -> i32 {
    look_up(code, out, |row| if row.0 == 0 { c"CUDA_SUCCESS" } else { row.2 })
}

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn cuGetErrorString(code: i32, out: Out<In<c_char>>) -> i32 {
    look_up(code, out, |row| row.3)
}
