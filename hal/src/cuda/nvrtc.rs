//! The run-time compiler (NVRTC) of CUDA 12 or 13: where it is found. It needs no GPU.

use crate::cuda::places;
use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::compiler::{Dialect, RuntimeCompiler};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The first CUDA whose driver loads what the newer of the two compilers makes.
const CUDA_13: u32 = 13_000;

pub(super) static NVRTC: Dialect = Dialect {
    backend: Backend::Cuda,
    what: "CUDA's run-time compiler",
    cure: "install CUDA (CUDA_HOME says where it is) or the Python package nvidia-cuda-nvrtc, or name the library by \
           ANTIPHON_NVRTC_LIB",
    newer: "install that of CUDA 12 or 13",
    prefix: "nvrtc",
    code: ("GetCUBINSize", "GetCUBIN"),
    source: c"antiphon.cu",
    example: "sm_90",
    variable: "ANTIPHON_NVRTC_LIB",
    names: &[&["libnvrtc.so.13", "libnvrtc.so.12"], &["libnvrtc.so.12"]],
    folders: |variable| places::folders(variable),
    turn: None,
    found: Mutex::new(BTreeMap::new()),
};

/// The compiler for a driver that supports CUDA up to `driver_version` (1000 times the major version, plus 10 times the
/// minor), or for none: that of CUDA 13, then that of CUDA 12; this one alone for a driver that does not load what the
/// newer one makes. Looked for in the process, the system's library path, `CUDA_HOME`, the folders of Python packages
/// and `/usr/local/cuda`. [`HalError::Unavailable`] with those places where there is none; the next call looks again.
pub fn compiler(driver_version: Option<u32>) -> Result<&'static RuntimeCompiler, HalError> {
    NVRTC.find(row(driver_version))
}

/// Which row of names is for a driver.
pub(super) fn row(driver_version: Option<u32>) -> usize {
    usize::from(driver_version.is_some_and(|version| version < CUDA_13))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::image;
    use crate::gpu::compiler::tests::{check_compiling, check_missing};

    #[test]
    fn without_a_compiler_the_answer_names_the_places_and_the_cure() {
        check_missing(&NVRTC, "nvidia-cuda-nvrtc");
    }

    #[test]
    fn a_source_becomes_machine_code_once() {
        let whole = |code: &[u8]| code.starts_with(b"\x7fELF") && image::checked(code).is_ok();
        check_compiling(&NVRTC, "ANTIPHON_NEEDS_NVRTC", whole, "antiphon.cu");
    }
}
