//! The names and texts of HIP's errors, and a thread's last one.

use super::LAST;
use crate::abi::{In, Out};
use crate::status::cuGetErrorString;
use std::ffi::{CStr, c_char};

/// The errors that the simulated devices answer.
const NAMES: &[(i32, &CStr)] = &[
    (0, c"hipSuccess"),
    (1, c"hipErrorInvalidValue"),
    (2, c"hipErrorOutOfMemory"),
    (3, c"hipErrorNotInitialized"),
    (101, c"hipErrorInvalidDevice"),
    (200, c"hipErrorInvalidImage"),
    (201, c"hipErrorInvalidContext"),
    (208, c"hipErrorAlreadyMapped"),
    (209, c"hipErrorNoBinaryForGpu"),
    (303, c"hipErrorSharedObjectInitFailed"),
    (304, c"hipErrorOperatingSystem"),
    (400, c"hipErrorInvalidHandle"),
    (401, c"hipErrorIllegalState"),
    (500, c"hipErrorNotFound"),
    (600, c"hipErrorNotReady"),
    (701, c"hipErrorLaunchOutOfResources"),
    (704, c"hipErrorPeerAccessAlreadyEnabled"),
    (705, c"hipErrorPeerAccessNotEnabled"),
    (712, c"hipErrorHostMemoryAlreadyRegistered"),
    (713, c"hipErrorHostMemoryNotRegistered"),
    (719, c"hipErrorLaunchFailure"),
    (720, c"hipErrorCooperativeLaunchTooLarge"),
    (801, c"hipErrorNotSupported"),
    (900, c"hipErrorStreamCaptureUnsupported"),
    (901, c"hipErrorStreamCaptureInvalidated"),
    (902, c"hipErrorStreamCaptureMerge"),
    (903, c"hipErrorStreamCaptureUnmatched"),
    (904, c"hipErrorStreamCaptureUnjoined"),
    (905, c"hipErrorStreamCaptureIsolation"),
    (906, c"hipErrorStreamCaptureImplicit"),
    (907, c"hipErrorCapturedEvent"),
    (999, c"hipErrorUnknown"),
];

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn hipGetErrorName(code: i32) -> In<c_char> {
    let row = NAMES.iter().find(|row| row.0 == code);
    In::of(row.map_or(c"hipErrorUnknown", |row| row.1))
}

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn hipGetErrorString(code: i32) -> In<c_char> {
    let mut text = In::of(c"unknown error (simulated driver)");
    let _ = cuGetErrorString(code, Out::to(&mut text));
    text
}

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn hipGetLastError() -> i32 {
    LAST.replace(0)
}

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn hipPeekAtLastError() -> i32 {
    LAST.get()
}
