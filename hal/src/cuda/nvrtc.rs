//! The run-time compiler (NVRTC) of CUDA 12 or 13: found, loaded, and its results kept on disk. It needs no GPU.

use crate::cuda::cache::{Cache, Key};
use crate::cuda::search::{Found, Search, function};
use crate::cuda::{lock, places};
use crate::driver::Backend;
use crate::error::HalError;
use libloading::os::unix::Library;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::Mutex;

/// The variable that names another compiler library, the only one then.
const VARIABLE: &str = "ANTIPHON_NVRTC_LIB";
/// The first CUDA whose driver loads what the newer of the two compilers makes.
const CUDA_13: u32 = 13_000;

type Program = *mut c_void;

/// The compiler's functions.
struct Functions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    error_name: unsafe extern "C" fn(c_int) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    code_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    code: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
}

impl Functions {
    /// All of them, or the name of the first that is missing.
    fn load(library: &Library) -> Result<Self, &'static str> {
        // SAFETY: the declarations are those of the compiler's header for the same symbols; whoever loads them never
        // closes the library.
        unsafe {
            Ok(Functions {
                version: function(library, "nvrtcVersion").ok_or("nvrtcVersion")?,
                error_name: function(library, "nvrtcGetErrorString")
                    .ok_or("nvrtcGetErrorString")?,
                create: function(library, "nvrtcCreateProgram").ok_or("nvrtcCreateProgram")?,
                destroy: function(library, "nvrtcDestroyProgram").ok_or("nvrtcDestroyProgram")?,
                compile: function(library, "nvrtcCompileProgram").ok_or("nvrtcCompileProgram")?,
                log_size: function(library, "nvrtcGetProgramLogSize")
                    .ok_or("nvrtcGetProgramLogSize")?,
                log: function(library, "nvrtcGetProgramLog").ok_or("nvrtcGetProgramLog")?,
                code_size: function(library, "nvrtcGetCUBINSize").ok_or("nvrtcGetCUBINSize")?,
                code: function(library, "nvrtcGetCUBIN").ok_or("nvrtcGetCUBIN")?,
            })
        }
    }
}

/// A run-time compiler.
pub struct Compiler {
    functions: Functions,
    version: (u32, u32),
    name: String,
    cache: Cache,
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiler")
            .field("version", &self.version)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

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
        self.version
    }

    /// The name by which its library was loaded.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Machine code for `architecture` (e.g. `sm_90`), from the cache or compiled with `options`. A source that does
    /// not compile is [`HalError::Vendor`] with the compiler's log.
    pub fn compile(
        &self,
        source: &str,
        architecture: &str,
        options: &[&str],
    ) -> Result<Vec<u8>, HalError> {
        let (major, minor) = self.version;
        let compiler = format!("nvrtc {major}.{minor} {}", self.name);
        let head = ["kernel", compiler.as_str(), architecture, source];
        let key = Key::new(head.iter().chain(options).map(|part| part.as_bytes()));
        self.cache.get_or(&key, || self.compile_now(source, architecture, options))
    }

    fn compile_now(
        &self,
        source: &str,
        architecture: &str,
        options: &[&str],
    ) -> Result<Vec<u8>, HalError> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| HalError::Invalid {
                what: "compile a kernel",
                saw: "a zero byte in the source or an option".to_owned(),
                allowed: "text without one".to_owned(),
                cure: "pass plain text",
            })
        };
        let source = text(source)?;
        let architecture = format!("--gpu-architecture={architecture}");
        let all = [architecture.as_str()].into_iter().chain(options.iter().copied());
        let all = all.map(text).collect::<Result<Vec<_>, _>>()?;
        let pointers: Vec<_> = all.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
        let unit = Unit::new(self, &source)?;
        // SAFETY: the program lives as long as `unit`; `count` pointers to strings that outlive the call.
        let code = unsafe { (self.functions.compile)(unit.program, count, pointers.as_ptr()) };
        if code != 0 {
            let log = unit.text(self.functions.log_size, self.functions.log).unwrap_or_default();
            return Err(self.error("compile a kernel", code, log));
        }
        let bytes = unit.text(self.functions.code_size, self.functions.code);
        let bytes = bytes.map_err(|code| self.error("fetch compiled code", code, Vec::new()))?;
        if bytes.is_empty() {
            return Err(HalError::Invalid {
                what: "compile a kernel",
                saw: format!("{architecture}, for which the compiler makes no machine code"),
                allowed: "a real architecture, e.g. sm_90".to_owned(),
                cure: "name the device's own architecture",
            });
        }
        Ok(bytes)
    }

    fn error(&self, what: &str, code: c_int, log: Vec<u8>) -> HalError {
        // SAFETY: any code may be asked for; the answer is a constant of the library.
        let name = unsafe { (self.functions.error_name)(code) };
        let name = if name.is_null() {
            "an unknown error".to_owned()
        } else {
            // SAFETY: the library answers a string that ends with a zero byte.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        let log = String::from_utf8_lossy(&log);
        let log = log.trim_end_matches('\0').trim();
        HalError::Vendor {
            what: format!("{what} by {}", self.name),
            backend: Backend::Cuda,
            code: i64::from(code),
            name,
            text: if log.is_empty() { "it gives no log".to_owned() } else { log.to_owned() },
        }
    }
}

/// A program in the compiler, destroyed when dropped.
struct Unit<'a> {
    program: Program,
    compiler: &'a Compiler,
}

impl<'a> Unit<'a> {
    fn new(compiler: &'a Compiler, source: &CStr) -> Result<Self, HalError> {
        let mut program = ptr::null_mut();
        // SAFETY: `program` is a place for the answer; the source and the name end with a zero byte and are copied;
        // there are no headers.
        let code = unsafe {
            (compiler.functions.create)(
                &raw mut program,
                source.as_ptr(),
                c"antiphon.cu".as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        if code == 0 {
            Ok(Unit { program, compiler })
        } else {
            Err(compiler.error("begin to compile a kernel", code, Vec::new()))
        }
    }

    /// Bytes that come by a function for their number and one for themselves.
    fn text(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        fetch: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, c_int> {
        let mut length = 0;
        // SAFETY: the program lives as long as this object; `length` is a place for the answer.
        let code = unsafe { size(self.program, &raw mut length) };
        if code != 0 {
            return Err(code);
        }
        let mut bytes = vec![0u8; length];
        if length > 0 {
            // SAFETY: as above; the place is as long as the compiler asked for.
            let code = unsafe { fetch(self.program, bytes.as_mut_ptr().cast()) };
            if code != 0 {
                return Err(code);
            }
        }
        Ok(bytes)
    }
}

impl Drop for Unit<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `new` and destroyed here alone.
        let _ = unsafe { (self.compiler.functions.destroy)(&raw mut self.program) };
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
    let unavailable = |why: String, cure: &str| HalError::Unavailable {
        what: "CUDA's run-time compiler".to_owned(),
        why,
        cure: cure.to_owned(),
    };
    let Found { library, name } = search.open().map_err(|why| {
        let cure = "install CUDA (CUDA_HOME says where it is) or the Python package nvidia-cuda-nvrtc, or name the \
                    library by ANTIPHON_NVRTC_LIB";
        unavailable(why, cure)
    })?;
    // Never closed: the compiler keeps state of the process.
    let library: &'static Library = Box::leak(Box::new(library));
    let functions = Functions::load(library).map_err(|symbol| {
        unavailable(format!("{name} has no {symbol}"), "install that of CUDA 12 or 13")
    })?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are valid places for the answers.
    let code = unsafe { (functions.version)(&raw mut major, &raw mut minor) };
    let part = |number: c_int| u32::try_from(number).unwrap_or(0);
    let version = if code == 0 { (part(major), part(minor)) } else { (0, 0) };
    Ok(Compiler { functions, version, name, cache })
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
