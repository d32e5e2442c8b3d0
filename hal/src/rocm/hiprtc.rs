//! The run-time compiler (hipRTC): where it is found. It needs no GPU.

use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::compiler::{Dialect, RuntimeCompiler};
use crate::rocm::{conv, places};
use std::collections::BTreeMap;
use std::sync::Mutex;

pub(super) static HIPRTC: Dialect = Dialect {
    backend: Backend::Rocm,
    what: "ROCm's run-time compiler",
    cure: "install ROCm (ROCM_PATH says where it is) or Debian's libamdhip64-5, or name the library by \
           ANTIPHON_HIPRTC_LIB",
    newer: "install that of ROCm 5.2 or newer",
    prefix: "hiprtc",
    code: ("GetCodeSize", "GetCode"),
    source: c"antiphon.hip",
    example: "gfx90a",
    variable: "ANTIPHON_HIPRTC_LIB",
    names: &NAMES,
    folders: |variable| places::folders(variable),
    // Two at once, at the first use of ROCm 5.2's, have ended the process: each set up what both share.
    turn: Some(Mutex::new(())),
    found: Mutex::new(BTreeMap::new()),
};

/// The names of the compiler's library, the newest first. In ROCm 5 it may be in the driver's.
const NAMES: [&[&str]; 3] = [
    &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so", "libhiprtc.so.5", "libamdhip64.so.5"],
    &["libhiprtc.so.6", "libhiprtc.so.7", "libhiprtc.so", "libhiprtc.so.5", "libamdhip64.so.5"],
    &["libhiprtc.so.5", "libamdhip64.so.5", "libhiprtc.so.6", "libhiprtc.so.7", "libhiprtc.so"],
];

/// The compiler for a driver of release `driver_version` (ten million times the major version, plus a hundred thousand
/// times the minor), or for none: that of the same major version, then others. Looked for in the process, the system's
/// library path, `ROCM_PATH`, `HIP_PATH`, the folders of Python packages and `/opt/rocm`. [`HalError::Unavailable`] with
/// those places where there is none; the next call looks again.
pub fn compiler(driver_version: Option<u32>) -> Result<&'static RuntimeCompiler, HalError> {
    HIPRTC.find(row(driver_version))
}

/// Which row of names is for a driver.
pub(super) fn row(driver_version: Option<u32>) -> usize {
    match driver_version {
        Some(version) if version < conv::release(6, 0) => 2,
        Some(version) if version < conv::release(7, 0) => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::compiler::tests::{check_compiling, check_missing};
    use crate::rocm::image;

    #[test]
    fn without_a_compiler_the_answer_names_the_places_and_the_cure() {
        check_missing(&HIPRTC, "libamdhip64-5");
    }

    #[test]
    fn a_driver_gets_the_compiler_of_its_own_release_first() {
        for (version, first) in [
            (Some(50_221_153), "libhiprtc.so.5"),
            (Some(60_342_133), "libhiprtc.so.6"),
            (Some(70_200_000), "libhiprtc.so.7"),
            (None, "libhiprtc.so.7"),
        ] {
            assert_eq!(NAMES[row(version)][0], first, "{version:?}");
        }
    }

    #[test]
    fn a_source_becomes_machine_code_once() {
        let whole = |code: &[u8]| image::check(code).is_ok();
        check_compiling(&HIPRTC, "ANTIPHON_NEEDS_HIPRTC", whole, "HIPRTC_ERROR");
    }
}
