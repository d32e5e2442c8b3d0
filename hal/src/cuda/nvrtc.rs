//! The run-time compiler (NVRTC) of CUDA 12 or 13: found, loaded, and its results kept on disk. It needs no GPU.

use crate::cuda::{lock, places};
use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::cache::Cache;
use crate::gpu::compiler::{Dialect, RuntimeCompiler};
use crate::gpu::search::Search;
use std::collections::HashMap;
use std::sync::Mutex;

/// The variable that names another compiler library, the only one then.
const VARIABLE: &str = "ANTIPHON_NVRTC_LIB";
/// The first CUDA whose driver loads what the newer of the two compilers makes.
const CUDA_13: u32 = 13_000;

const NVRTC: Dialect = Dialect {
    backend: Backend::Cuda,
    what: "CUDA's run-time compiler",
    cure: "install CUDA (CUDA_HOME says where it is) or the Python package nvidia-cuda-nvrtc, or name the library by \
           ANTIPHON_NVRTC_LIB",
    newer: "install that of CUDA 12 or 13",
    prefix: "nvrtc",
    code: ("GetCUBINSize", "GetCUBIN"),
    source: c"antiphon.cu",
    example: "sm_90",
};

/// A run-time compiler.
#[derive(Debug)]
pub struct Compiler(RuntimeCompiler);

impl Compiler {
    /// The compiler for a driver that supports CUDA up to `driver_version` (1000 times the major version, plus 10
    /// times the minor), or for none: that of CUDA 13, then that of CUDA 12; the other way about for a driver that
    /// does not load what the newer one makes. Looked for in the process, the system's library path, `CUDA_HOME`,
    /// the folders of Python packages and `/usr/local/cuda`. [`HalError::Unavailable`] with those places where there
    /// is none; the next call looks again.
    pub fn find(driver_version: Option<u32>) -> Result<&'static Self, HalError> {
        static FOUND: Mutex<Option<HashMap<bool, &'static Compiler>>> = Mutex::new(None);
        let newest = driver_version.is_none_or(|version| version >= CUDA_13);
        let mut found = lock(&FOUND);
        let found = found.get_or_insert_default();
        if let Some(compiler) = found.get(&newest) {
            return Ok(compiler);
        }
        let compiler: &'static Compiler =
            Box::leak(Box::new(load(&search(newest), Cache::of_user())?));
        found.insert(newest, compiler);
        Ok(compiler)
    }

    /// Its version, e.g. `(12, 9)`.
    pub fn version(&self) -> (u32, u32) {
        self.0.version()
    }

    /// The name by which its library was loaded.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Machine code for `architecture` (e.g. `sm_90`), from the cache or compiled with `options`. A source that does
    /// not compile is [`HalError::Vendor`] with the compiler's log.
    pub fn compile(
        &self,
        source: &str,
        architecture: &str,
        options: &[&str],
    ) -> Result<Vec<u8>, HalError> {
        self.0.compile(source, architecture, options)
    }
}

/// Where the compiler may be.
fn search(newest: bool) -> Search {
    Search {
        named: std::env::var_os(VARIABLE).filter(|path| !path.is_empty()),
        names: if newest {
            &["libnvrtc.so.13", "libnvrtc.so.12"]
        } else {
            &["libnvrtc.so.12", "libnvrtc.so.13"]
        },
        folders: places::folders(|name| std::env::var_os(name)),
    }
}

/// Loads the library that `search` finds.
fn load(search: &Search, cache: Cache) -> Result<Compiler, HalError> {
    Ok(Compiler(RuntimeCompiler::load(&NVRTC, search, cache)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::PathBuf;

    const SOURCE: &str =
        "extern \"C\" __global__ void twice(float* data, unsigned long long count) {
        unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
        if (at < count) data[at] *= FACTOR;
    }";

    /// A compiler with a cache of its own, or `None` and a line that says why.
    fn compiler(test: &str) -> Option<(Compiler, PathBuf)> {
        let folder =
            std::env::temp_dir().join(format!("antiphon-nvrtc-{test}-{}", std::process::id()));
        match load(&search(true), Cache::at(folder.clone())) {
            Ok(compiler) => Some((compiler, folder)),
            Err(error @ HalError::Unavailable { .. }) => {
                assert!(std::env::var_os("ANTIPHON_NEEDS_NVRTC").is_none(), "{error}");
                // Written past the harness's capture, which hides what the print macros print.
                let _ = writeln!(std::io::stderr(), "SKIP cuda::nvrtc::{test}: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn without_a_compiler_the_answer_names_the_places_and_the_cure() {
        let nowhere = Search {
            named: None,
            names: &["libnvrtc-of-nobody.so.13"],
            folders: vec![PathBuf::from("/nowhere/lib64")],
        };
        let text = load(&nowhere, Cache::of_user()).unwrap_err().to_string();
        for part in ["libnvrtc-of-nobody.so.13", "/nowhere/lib64", VARIABLE, "nvidia-cuda-nvrtc"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_source_becomes_machine_code_once() {
        let Some((compiler, folder)) = compiler("machine_code") else { return };
        let options = ["-DFACTOR=2.0f"];
        let first = compiler.compile(SOURCE, "sm_90", &options).unwrap();
        assert!(first.starts_with(b"\x7fELF"), "no machine code");
        assert!(crate::cuda::image::checked(&first).is_ok());
        assert!(crate::cuda::image::checked(&first[..first.len() - 1]).is_err());
        assert_eq!(compiler.compile(SOURCE, "sm_90", &options).unwrap(), first);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        let other = compiler.compile(SOURCE, "sm_90", &["-DFACTOR=3.0f"]).unwrap();
        assert_ne!(other, first);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_source_with_a_fault_is_an_error_with_the_log() {
        let Some((compiler, folder)) = compiler("fault") else { return };
        match compiler.compile(SOURCE, "sm_90", &[]) {
            Err(error @ HalError::Vendor { .. }) => {
                let text = error.to_string();
                assert!(text.contains("FACTOR") && text.contains("antiphon.cu"), "{text}");
            }
            other => panic!("{other:?}"),
        }
        let _ = std::fs::remove_dir_all(&folder);
    }
}
