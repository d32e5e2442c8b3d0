//! The run-time compiler (hipRTC): found, loaded, and its results kept on disk. It needs no GPU.

use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::cache::Cache;
use crate::gpu::compiler::{Dialect, RuntimeCompiler};
use crate::gpu::search::Search;
use crate::rocm::{conv, lock, places};
use std::collections::HashMap;
use std::sync::Mutex;

/// The variable that names another compiler library, the only one then.
const VARIABLE: &str = "ANTIPHON_HIPRTC_LIB";

const HIPRTC: Dialect = Dialect {
    backend: Backend::Rocm,
    what: "ROCm's run-time compiler",
    cure: "install ROCm (ROCM_PATH says where it is) or Debian's libamdhip64-5, or name the library by \
           ANTIPHON_HIPRTC_LIB",
    newer: "install that of ROCm 5.2 or newer",
    prefix: "hiprtc",
    code: ("GetCodeSize", "GetCode"),
    source: c"antiphon.hip",
    example: "gfx90a",
};

/// The names of the compiler's library, the newest first. In ROCm 5 it may be in the driver's.
const NAMES: [&[&str]; 3] = [
    &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so", "libhiprtc.so.5", "libamdhip64.so.5"],
    &["libhiprtc.so.6", "libhiprtc.so.7", "libhiprtc.so", "libhiprtc.so.5", "libamdhip64.so.5"],
    &["libhiprtc.so.5", "libamdhip64.so.5", "libhiprtc.so.6", "libhiprtc.so.7", "libhiprtc.so"],
];

/// A run-time compiler.
#[derive(Debug)]
pub struct Compiler(RuntimeCompiler);

impl Compiler {
    /// The compiler for a driver of release `driver_version` (ten million times the major version, plus a hundred
    /// thousand times the minor), or for none: that of the same major version, then others. Looked for in the process,
    /// the system's library path, `ROCM_PATH`, `HIP_PATH`, the folders of Python packages and `/opt/rocm`.
    /// [`HalError::Unavailable`] with those places where there is none; the next call looks again.
    pub fn find(driver_version: Option<u32>) -> Result<&'static Self, HalError> {
        static FOUND: Mutex<Option<HashMap<usize, &'static Compiler>>> = Mutex::new(None);
        let row = row(driver_version);
        let mut found = lock(&FOUND);
        let found = found.get_or_insert_default();
        if let Some(compiler) = found.get(&row) {
            return Ok(compiler);
        }
        let compiler: &'static Compiler =
            Box::leak(Box::new(load(&search(row), Cache::of_user())?));
        found.insert(row, compiler);
        Ok(compiler)
    }

    /// Its version, as it tells it itself.
    pub fn version(&self) -> (u32, u32) {
        self.0.version()
    }

    /// The name by which its library was loaded.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Machine code for `architecture` (e.g. `gfx90a`), from the cache or compiled with `options`. A source that does
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

/// Which row of names is for a driver.
fn row(driver_version: Option<u32>) -> usize {
    match driver_version {
        Some(version) if version < conv::release(6, 0) => 2,
        Some(version) if version < conv::release(7, 0) => 1,
        _ => 0,
    }
}

/// Where the compiler may be.
fn search(row: usize) -> Search {
    Search {
        named: std::env::var_os(VARIABLE).filter(|path| !path.is_empty()),
        names: NAMES[row],
        folders: places::folders(|name| std::env::var_os(name)),
    }
}

/// Loads the library that `search` finds.
fn load(search: &Search, cache: Cache) -> Result<Compiler, HalError> {
    Ok(Compiler(RuntimeCompiler::load(&HIPRTC, search, cache)?))
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
            std::env::temp_dir().join(format!("antiphon-hiprtc-{test}-{}", std::process::id()));
        match load(&search(0), Cache::at(folder.clone())) {
            Ok(compiler) => Some((compiler, folder)),
            Err(error @ HalError::Unavailable { .. })
                if std::env::var_os("ANTIPHON_NEEDS_HIPRTC").is_none() =>
            {
                // Written past the harness's capture, which hides what the print macros print.
                let _ = writeln!(std::io::stderr(), "SKIP rocm::hiprtc::{test}: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn without_a_compiler_the_answer_names_the_places_and_the_cure() {
        let nowhere = Search {
            named: None,
            names: &["libhiprtc-of-nobody.so.7"],
            folders: vec![PathBuf::from("/nowhere/lib")],
        };
        let text = load(&nowhere, Cache::of_user()).unwrap_err().to_string();
        for part in ["libhiprtc-of-nobody.so.7", "/nowhere/lib", VARIABLE, "libamdhip64-5"] {
            assert!(text.contains(part), "{text}");
        }
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
        let Some((compiler, folder)) = compiler("machine_code") else { return };
        let options = ["-DFACTOR=2.0f"];
        let first = compiler.compile(SOURCE, "gfx90a", &options).unwrap();
        crate::rocm::image::check(&first).unwrap();
        assert!(crate::rocm::image::check(&first[..first.len() - 1]).is_err());
        assert_eq!(compiler.compile(SOURCE, "gfx90a", &options).unwrap(), first);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        let other = compiler.compile(SOURCE, "gfx90a", &["-DFACTOR=3.0f"]).unwrap();
        assert_ne!(other, first);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_source_with_a_fault_is_an_error_with_the_log() {
        let Some((compiler, folder)) = compiler("fault") else { return };
        match compiler.compile(SOURCE, "gfx90a", &[]) {
            Err(error @ HalError::Vendor { .. }) => {
                let text = error.to_string();
                assert!(text.contains("FACTOR") && text.contains("HIPRTC_ERROR"), "{text}");
            }
            other => panic!("{other:?}"),
        }
        let _ = std::fs::remove_dir_all(&folder);
    }
}
