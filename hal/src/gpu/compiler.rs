//! Run-time compilers: NVRTC and its likes, which have the same calls under other names. Their results are kept on
//! disk. None needs a GPU.

use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::cache::{Cache, Key};
use crate::gpu::lock;
use crate::gpu::search::{Found, Search, function};
use libloading::os::unix::Library;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::ptr;
use std::slice;
use std::sync::Mutex;

type Program = *mut c_void;

/// What every compiler makes something of, for architectures that it knows.
const NOTHING: &CStr = c"extern \"C\" __global__ void nothing() {}";

/// What tells one vendor's compiler from another's.
#[derive(Debug)]
pub(crate) struct Dialect {
    pub(crate) backend: Backend,
    /// What it is, for people.
    pub(crate) what: &'static str,
    /// What helps where there is none.
    pub(crate) cure: &'static str,
    /// What helps where it is too old.
    pub(crate) newer: &'static str,
    /// How the names of its functions begin.
    pub(crate) prefix: &'static str,
    /// How the names of those end that tell the length of the machine code, and fetch it.
    pub(crate) code: (&'static str, &'static str),
    /// What sources are called in its messages.
    pub(crate) source: &'static CStr,
    /// An architecture that it compiles for.
    pub(crate) example: &'static str,
    /// The variable that names another library, the only one then.
    pub(crate) variable: &'static str,
    /// Names of its library, the preferred first: a row for each age of the driver.
    pub(crate) names: &'static [Names],
    /// Folders that may hold the library, given what reads the environment.
    pub(crate) folders: fn(Environment) -> Vec<PathBuf>,
    /// Held while it compiles, where it cannot compile several sources at once.
    pub(crate) turn: Option<Mutex<()>>,
    /// Those that were found, by the names that were looked for.
    pub(crate) found: Mutex<BTreeMap<Names, &'static RuntimeCompiler>>,
}

/// Names of a library, the preferred first.
type Names = &'static [&'static str];

/// What reads a variable of the environment.
pub(crate) type Environment = fn(&str) -> Option<OsString>;

impl Dialect {
    /// The compiler that the names of `row` are for. Where there is none, the next call looks again.
    pub(crate) fn find(&'static self, row: usize) -> Result<&'static RuntimeCompiler, HalError> {
        self.find_named(self.names[row])
    }

    fn find_named(&'static self, names: Names) -> Result<&'static RuntimeCompiler, HalError> {
        let mut found = lock(&self.found);
        if let Some(compiler) = found.get(names) {
            return Ok(compiler);
        }
        let compiler = RuntimeCompiler::load(self, &self.search(names), Cache::of_user())?;
        let compiler: &'static RuntimeCompiler = Box::leak(Box::new(compiler));
        found.insert(names, compiler);
        Ok(compiler)
    }

    /// Machine code by the compiler that the names of `row` are for, or by another one of that row where that one makes none for
    /// the architecture. [`HalError::Unavailable`] where none does.
    pub(crate) fn compile(
        &'static self,
        row: usize,
        source: &str,
        architecture: &str,
        options: &[&str],
    ) -> Result<Vec<u8>, HalError> {
        let first = self.find(row)?;
        let unknown = match first.compile(source, architecture, options) {
            Err(unknown @ HalError::Unavailable { .. }) if self.named().is_none() => unknown,
            compiled => return compiled,
        };
        for name in self.names[row].iter().filter(|name| !first.name.ends_with(**name)) {
            let other = self.find_named(slice::from_ref(name));
            match other.and_then(|other| other.compile(source, architecture, options)) {
                Err(HalError::Unavailable { .. }) => {}
                compiled => return compiled,
            }
        }
        Err(unknown)
    }

    /// The only library to try, where the user named one.
    fn named(&self) -> Option<OsString> {
        std::env::var_os(self.variable).filter(|path| !path.is_empty())
    }

    /// Where the compiler may be.
    fn search(&self, names: Names) -> Search {
        let folders = (self.folders)(|name| std::env::var_os(name));
        Search { named: self.named(), names, folders }
    }
}

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
    fn load(library: &Library, dialect: &Dialect) -> Result<Self, String> {
        /// # Safety
        ///
        /// As for [`function`].
        unsafe fn find<F: Copy>(library: &Library, prefix: &str, name: &str) -> Result<F, String> {
            let name = format!("{prefix}{name}");
            // SAFETY: the caller vouches for the type.
            unsafe { function(library, &name) }.ok_or(name)
        }
        let (prefix, (code_size, code)) = (dialect.prefix, dialect.code);
        // SAFETY: the declarations are those of the vendors' headers for the same symbols; whoever loads them never
        // closes the library.
        unsafe {
            Ok(Functions {
                version: find(library, prefix, "Version")?,
                error_name: find(library, prefix, "GetErrorString")?,
                create: find(library, prefix, "CreateProgram")?,
                destroy: find(library, prefix, "DestroyProgram")?,
                compile: find(library, prefix, "CompileProgram")?,
                log_size: find(library, prefix, "GetProgramLogSize")?,
                log: find(library, prefix, "GetProgramLog")?,
                code_size: find(library, prefix, code_size)?,
                code: find(library, prefix, code)?,
            })
        }
    }
}

/// A run-time compiler that was found.
pub struct RuntimeCompiler {
    dialect: &'static Dialect,
    functions: Functions,
    version: (u32, u32),
    name: String,
    cache: Cache,
}

impl fmt::Debug for RuntimeCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeCompiler")
            .field("version", &self.version)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl RuntimeCompiler {
    /// Loads the library that `search` finds.
    pub(crate) fn load(
        dialect: &'static Dialect,
        search: &Search,
        cache: Cache,
    ) -> Result<Self, HalError> {
        let unavailable = |why: String, cure: &str| HalError::Unavailable {
            what: dialect.what.to_owned(),
            why,
            cure: cure.to_owned(),
        };
        let Found { library, name } =
            search.open().map_err(|why| unavailable(why, dialect.cure))?;
        // Never closed: the compiler keeps state of the process.
        let library = ManuallyDrop::new(library);
        let functions = Functions::load(&library, dialect)
            .map_err(|symbol| unavailable(format!("{name} has no {symbol}"), dialect.newer))?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both are valid places for the answers.
        let code = unsafe { (functions.version)(&raw mut major, &raw mut minor) };
        let part = |number: c_int| u32::try_from(number).unwrap_or(0);
        let version = if code == 0 { (part(major), part(minor)) } else { (0, 0) };
        Ok(RuntimeCompiler { dialect, functions, version, name, cache })
    }

    /// Its version, e.g. `(12, 9)`.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The name by which its library was loaded.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Machine code for `architecture`, from the cache or compiled with `options`. A source that does not compile is
    /// [`HalError::Vendor`] with the compiler's log, an architecture that the compiler makes nothing for
    /// [`HalError::Unavailable`].
    pub fn compile(
        &self,
        source: &str,
        architecture: &str,
        options: &[&str],
    ) -> Result<Vec<u8>, HalError> {
        let (major, minor) = self.version;
        let compiler = format!("{} {major}.{minor} {}", self.dialect.prefix, self.name);
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
        let option = format!("--gpu-architecture={architecture}");
        let all = [option.as_str()].into_iter().chain(options.iter().copied());
        let all = all.map(text).collect::<Result<Vec<_>, _>>()?;
        let _turn = self.dialect.turn.as_ref().map(lock);
        let unit = self.attempt(&source, &all).map_err(|refused| {
            // Compilers have no answer of their own for this.
            match self.attempt(NOTHING, &all[..1]) {
                Ok(_) => refused,
                Err(why) => self.unknown(architecture, &why),
            }
        })?;
        let bytes = unit.text(self.functions.code_size, self.functions.code);
        let bytes = bytes.map_err(|code| self.error("fetch compiled code", code, Vec::new()))?;
        if bytes.is_empty() {
            return Err(HalError::Invalid {
                what: "compile a kernel",
                saw: format!("{architecture}, for which the compiler makes no machine code"),
                allowed: format!("a real architecture, e.g. {}", self.dialect.example),
                cure: "name the device's own architecture",
            });
        }
        Ok(bytes)
    }

    /// A source that compiles.
    fn attempt(&self, source: &CStr, options: &[CString]) -> Result<Unit<'_>, HalError> {
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
        let unit = Unit::new(self, source)?;
        // SAFETY: the program lives as long as `unit`; `count` pointers to strings that outlive the call.
        let code = unsafe { (self.functions.compile)(unit.program, count, pointers.as_ptr()) };
        if code == 0 {
            return Ok(unit);
        }
        let log = unit.text(self.functions.log_size, self.functions.log).unwrap_or_default();
        Err(self.error("compile a kernel", code, log))
    }

    /// That it makes nothing for an architecture.
    fn unknown(&self, architecture: &str, why: &HalError) -> HalError {
        let ((major, minor), variable) = (self.version, self.dialect.variable);
        HalError::Unavailable {
            what: self.dialect.what.to_owned(),
            why: format!(
                "{} ({major}.{minor}) compiles nothing for {architecture} ({why})",
                self.name
            ),
            cure: format!("install one that knows {architecture}, or name it by {variable}"),
        }
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
            backend: self.dialect.backend,
            code: i64::from(code),
            name,
            text: if log.is_empty() { "it gives no log".to_owned() } else { log.to_owned() },
        }
    }
}

/// A program in the compiler, destroyed when dropped.
struct Unit<'a> {
    program: Program,
    compiler: &'a RuntimeCompiler,
}

impl<'a> Unit<'a> {
    fn new(compiler: &'a RuntimeCompiler, source: &CStr) -> Result<Self, HalError> {
        let mut program = ptr::null_mut();
        // SAFETY: `program` is a place for the answer; the source and the name end with a zero byte and are copied;
        // there are no headers.
        let code = unsafe {
            (compiler.functions.create)(
                &raw mut program,
                source.as_ptr(),
                compiler.dialect.source.as_ptr(),
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::Write;

    const SOURCE: &str =
        "extern \"C\" __global__ void twice(float* data, unsigned long long count) {
        unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
        if (at < count) data[at] *= FACTOR;
    }";

    /// That a missing compiler is told with the places, the variable and the cure, which names `package`.
    pub(crate) fn check_missing(dialect: &'static Dialect, package: &str) {
        let (names, folders): (&'static [_], _) = (&["lib-of-nobody.so.13"], "/nowhere/lib64");
        let nowhere = Search { named: None, names, folders: vec![PathBuf::from(folders)] };
        let text = RuntimeCompiler::load(dialect, &nowhere, Cache::of_user()).unwrap_err();
        for part in ["lib-of-nobody.so.13", "/nowhere/lib64", dialect.variable, package] {
            assert!(text.to_string().contains(part), "{text}");
        }
    }

    /// That a source becomes machine code, which `check` looks at, once, and that one with a fault is told with what
    /// `parts` of the compiler's log say. Skipped without a compiler, but where `needed` is in the environment.
    pub(crate) fn check_compiling(
        dialect: &'static Dialect,
        needed: &str,
        check: impl Fn(&[u8]) -> bool,
        part: &str,
    ) {
        let prefix = dialect.prefix;
        let folder = std::env::temp_dir().join(format!("antiphon-{prefix}-{}", std::process::id()));
        let cache = Cache::at(folder.clone());
        let search = dialect.search(dialect.names[0]);
        let compiler = match RuntimeCompiler::load(dialect, &search, cache) {
            Ok(compiler) => compiler,
            Err(error) => {
                assert!(matches!(error, HalError::Unavailable { .. }), "{error}");
                assert!(std::env::var_os(needed).is_none(), "{error}");
                // Written past the harness's capture, which hides what the print macros print.
                let line = format!("SKIP gpu::compiler::{prefix}: {error}\n");
                let _ = std::io::stderr().write_all(line.as_bytes());
                return;
            }
        };
        let example = dialect.example;
        let options = ["-DFACTOR=2.0f"];
        let first = compiler.compile(SOURCE, example, &options).unwrap();
        assert!(check(&first), "no machine code");
        assert!(!check(&first[..first.len() - 1]));
        assert_eq!(compiler.compile(SOURCE, example, &options).unwrap(), first);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        let other = compiler.compile(SOURCE, example, &["-DFACTOR=3.0f"]).unwrap();
        assert_ne!(other, first);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
        match compiler.compile(SOURCE, example, &[]) {
            Err(error @ HalError::Vendor { .. }) => {
                let text = error.to_string();
                assert!(text.contains("FACTOR") && text.contains(part), "{text}");
            }
            other => panic!("{other:?}"),
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
