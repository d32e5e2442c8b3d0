//! The simulated hipRTC: the simulated NVRTC under other names, with HIP's marks in the place of CUDA's.

use crate::abi::{In, Out};
use crate::compiler::{
    NAMES, compile, nvrtcCreateProgram, nvrtcDestroyProgram, nvrtcGetCUBIN, nvrtcGetCUBINSize,
    nvrtcGetProgramLog, nvrtcGetProgramLogSize,
};
use std::ffi::{CString, c_char};
use std::sync::OnceLock;

/// What the compiler of HIP defines.
pub const DEFINITIONS: &[&str] =
    &["-D__HIPCC__=1", "-D__HIP_PLATFORM_AMD__=1", "-D__HIP_DEVICE_COMPILE__=1"];

macro_rules! compiler_calls {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub extern "C" fn $name($($argument: $kind),*) -> i32 $body
        )*
    };
}

compiler_calls! {
    fn hiprtcVersion(major: Out<i32>, minor: Out<i32>) {
        let written = major.set(9).and_then(|()| minor.set(0));
        if written.is_ok() { 0 } else { 3 }
    }

    fn hiprtcCreateProgram(
        out: Out<u64>,
        source: In<c_char>,
        name: In<c_char>,
        count: i32,
        headers: In<In<c_char>>,
        names: In<In<c_char>>,
    ) {
        nvrtcCreateProgram(out, source, name, count, headers, names)
    }

    fn hiprtcDestroyProgram(handle: Out<u64>) {
        nvrtcDestroyProgram(handle)
    }

    fn hiprtcCompileProgram(handle: u64, count: i32, options: In<In<c_char>>) {
        compile("hiprtcCompileProgram", handle, count, options, DEFINITIONS)
    }

    fn hiprtcGetProgramLogSize(handle: u64, out: Out<usize>) {
        nvrtcGetProgramLogSize(handle, out)
    }

    fn hiprtcGetProgramLog(handle: u64, out: Out<u8>) {
        nvrtcGetProgramLog(handle, out)
    }

    fn hiprtcGetCodeSize(handle: u64, out: Out<usize>) {
        nvrtcGetCUBINSize(handle, out)
    }

    fn hiprtcGetCode(handle: u64, out: Out<u8>) {
        nvrtcGetCUBIN(handle, out)
    }
}

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn hiprtcGetErrorString(code: i32) -> In<c_char> {
    static TEXTS: OnceLock<Vec<(i32, CString)>> = OnceLock::new();
    // The same errors, but for the first letters.
    let texts = TEXTS.get_or_init(|| {
        let renamed = |name: &std::ffi::CStr| {
            let name = name.to_string_lossy();
            CString::new(name.replacen("NVRTC", "HIPRTC", 1)).unwrap_or_default()
        };
        NAMES.iter().map(|(code, name)| (*code, renamed(name))).collect()
    });
    let row = texts.iter().find(|row| row.0 == code);
    In::of(row.map_or(c"HIPRTC_ERROR unknown", |row| row.1.as_c_str()))
}
