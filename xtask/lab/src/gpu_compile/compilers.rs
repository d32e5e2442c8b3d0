//! The run-time compilers of both vendors, by the little that is needed of them here.
//!
//! NVRTC comes from its Python package, in a folder of its own; hipRTC is part of the distribution's HIP library. Neither
//! needs a GPU.

use crate::{Error, Result, repo};
use antiphon_codegen::Target;
use libloading::os::unix::Library;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

type Program = *mut c_void;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Fetch = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;

/// A loaded compiler.
pub struct Compiler {
    target: Target,
    name: String,
    create: Create,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    log: (Size, Fetch),
    code: (Size, Fetch),
    /// Never closed: the functions are its.
    _library: &'static Library,
}

/// What is asked of a compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Machine code, by the newest compiler.
    Machine,
    /// Machine code, by NVIDIA's oldest compiler that is served.
    MachineOfOldest,
    /// NVIDIA's text for drivers, by a compiler of which drivers of 2023 and later take it.
    Ptx,
}

/// What a compiler made.
pub struct Compiled {
    /// The machine code, or the log.
    pub code: Result<Vec<u8>, String>,
    /// The log.
    pub log: String,
    /// How long it took.
    pub took: Duration,
}

impl Compiled {
    /// The most registers of a function, and the bytes of them that all functions store elsewhere.
    pub fn resources(&self) -> (u32, u32) {
        let before = |line: &str, what: &str| -> u32 {
            let head = line.split(what).next().unwrap_or_default();
            let number = head.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next();
            number.and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        let lines = |what: &'static str| {
            self.log
                .lines()
                .filter(move |line| line.contains(what))
                .map(move |line| before(line, what))
        };
        (lines(" registers").max().unwrap_or(0), lines(" bytes spill stores").sum())
    }
}

impl Compiler {
    /// Finds a compiler, or installs it.
    pub fn open(target: Target, code: Code) -> Result<Self> {
        match (target, code) {
            (Target::Cuda, Code::Machine) => Self::load(target, "nvrtc", "CUBIN", &nvrtc(NEWEST)?),
            (Target::Cuda, Code::MachineOfOldest) => {
                Self::load(target, "nvrtc", "CUBIN", &nvrtc(OLDEST)?)
            }
            (Target::Cuda, Code::Ptx) => Self::load(target, "nvrtc", "PTX", &nvrtc(OLDEST)?),
            (Target::Hip, _) => Self::load(target, "hiprtc", "Code", &hiprtc()?),
        }
    }

    fn load(target: Target, prefix: &str, code: &str, path: &Path) -> Result<Self> {
        let missing = |error: libloading::Error| {
            Error::message(format!("cannot load {}: {error}", path.display()))
        };
        // SAFETY: the vendors' compilers may be loaded at any time.
        let library: &'static Library =
            Box::leak(Box::new(unsafe { Library::new(path) }.map_err(missing)?));
        // SAFETY: the types are those of both vendors' headers for these names, which differ in the prefix alone.
        unsafe {
            let get = |name: &str| format!("{prefix}{name}");
            Ok(Compiler {
                target,
                name: path.display().to_string(),
                create: *library.get::<Create>(get("CreateProgram").as_bytes()).map_err(missing)?,
                destroy: *library.get(get("DestroyProgram").as_bytes()).map_err(missing)?,
                compile: *library.get(get("CompileProgram").as_bytes()).map_err(missing)?,
                log: (
                    *library.get(get("GetProgramLogSize").as_bytes()).map_err(missing)?,
                    *library.get(get("GetProgramLog").as_bytes()).map_err(missing)?,
                ),
                code: (
                    *library.get(get(&format!("Get{code}Size")).as_bytes()).map_err(missing)?,
                    *library.get(get(&format!("Get{code}")).as_bytes()).map_err(missing)?,
                ),
                _library: library,
            })
        }
    }

    /// How many texts it compiles at once: as many as there are cores, as each takes one, or one text where two have ended the
    /// process, without a word, or never come back (ROCm 5.2's).
    pub fn at_once(&self) -> usize {
        match self.target {
            Target::Cuda => thread::available_parallelism().map_or(1, usize::from),
            Target::Hip => 1,
        }
    }

    /// Its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Compiles a text; with everything inlined, if it is `inlined`.
    pub fn compile(&self, text: &str, architecture: &str, inlined: bool) -> Result<Compiled> {
        let mut options = vec![format!("--gpu-architecture={architecture}")];
        if self.target == Target::Cuda {
            options.push("--ptxas-options=-v".to_owned());
            options.push("--diag-suppress=177".to_owned());
        }
        options.extend(inlined.then(|| "-DAP_INLINED".to_owned()));
        let zero = |_| Error::message("cannot compile a text with a zero byte".to_owned());
        let options: Vec<CString> =
            options.into_iter().map(CString::new).collect::<Result<_, _>>().map_err(zero)?;
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let text = CString::new(text).map_err(zero)?;
        let started = Instant::now();
        let mut program = ptr::null_mut();
        // SAFETY: all strings end with a zero byte and outlive the calls; there are no headers; what is asked for has room.
        let (made, log, code) = unsafe {
            let none = ptr::null();
            if (self.create)(&raw mut program, text.as_ptr(), c"kernel".as_ptr(), 0, none, none)
                != 0
            {
                return Err(Error::message(format!("cannot create a program of {}", self.name)));
            }
            let made = (self.compile)(program, options.len() as c_int, options.as_ptr());
            let log = fetch(program, self.log);
            let code = if made == 0 { fetch(program, self.code) } else { Vec::new() };
            (self.destroy)(&raw mut program);
            (made, log, code)
        };
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
        let failed = made != 0 || code.is_empty();
        let code = if failed { Err(format!("{log}\n(status {made})")) } else { Ok(code) };
        Ok(Compiled { code, log, took: started.elapsed() })
    }
}

/// # Safety
/// The program lives, and the functions are its compiler's.
unsafe fn fetch(program: Program, (size, fetch): (Size, Fetch)) -> Vec<u8> {
    let mut bytes = 0;
    // SAFETY: passed on to the caller; there is room for as many bytes as the compiler says.
    unsafe {
        if size(program, &raw mut bytes) != 0 {
            return Vec::new();
        }
        let mut text = vec![0_u8; bytes];
        if fetch(program, text.as_mut_ptr().cast()) == 0 { text } else { Vec::new() }
    }
}

/// The folder of a Python environment, and the package in it.
pub type Package = (&'static str, &'static str);
/// The newest.
pub const NEWEST: Package = ("gpu-compilers", "nvidia-cuda-nvrtc>=13,<14");
/// The oldest that knows all instructions of the device library. Drivers of 2023 and later take what it makes.
pub const OLDEST: Package = ("gpu-compilers-12", "nvidia-cuda-nvrtc-cu12>=12.2,<12.3");

/// NVRTC's library, of a Python environment in the target folder; made where it is missing.
pub fn nvrtc((folder, package): Package) -> Result<PathBuf> {
    let folder = repo::target_dir().join(folder);
    let find = || {
        let script = "import glob, sys; print(next(iter(glob.glob(sys.argv[1] + '/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.*')), ''))";
        let output = Command::new("python3").args(["-c", script]).arg(&folder).output();
        let path = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        path.ok().filter(|path| !path.is_empty()).map(PathBuf::from)
    };
    if let Some(found) = find() {
        return Ok(found);
    }
    let install = "python3 -c 'import ensurepip' 2>/dev/null || \
                   (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv) >&2
                   python3 -m venv --clear \"$0\"
                   \"$0\"/bin/pip install -q \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-ec", install]).arg(&folder).arg(package);
    repo::capture("install NVRTC", &mut command)?;
    find().ok_or_else(|| {
        Error::message("cannot find NVRTC in the package that was installed".to_owned())
    })
}

/// NVIDIA's disassembler.
const DISASSEMBLER: &str = "nvidia-cuda-nvdisasm>=13,<14";

/// Machine code as text: labels, and a line for each instruction. The disassembler is installed beside NVRTC where it is
/// missing.
pub fn disassemble(code: &[u8]) -> Result<String> {
    nvrtc(NEWEST)?;
    let folder = repo::target_dir().join(NEWEST.0);
    let find = || {
        let script = "import glob, sys; print(next(iter(glob.glob(sys.argv[1] + '/lib/python3*/site-packages/nvidia/*/bin/nvdisasm')), ''))";
        let output = Command::new("python3").args(["-c", script]).arg(&folder).output();
        let path = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        path.ok().filter(|path| !path.is_empty()).map(PathBuf::from)
    };
    let program = match find() {
        Some(found) => found,
        None => {
            let mut pip = Command::new(folder.join("bin/pip"));
            pip.args(["install", "-q", DISASSEMBLER]);
            repo::capture("install nvdisasm", &mut pip)?;
            find().ok_or_else(|| {
                Error::message("cannot find nvdisasm in the package that was installed")
            })?
        }
    };
    let image = folder.join(format!("loop-{}.cubin", std::process::id()));
    std::fs::write(&image, code).map_err(Error::io(format!("write {}", image.display())))?;
    let listed = repo::capture("disassemble", Command::new(program).arg("-c").arg(&image));
    let _ = std::fs::remove_file(&image);
    listed
}

/// hipRTC, of the system.
fn hiprtc() -> Result<PathBuf> {
    const NAMES: [&str; 3] = ["libhiprtc.so.7", "libhiprtc.so.6", "libamdhip64.so.5"];
    // SAFETY: the vendor's compiler may be loaded at any time.
    let find =
        || NAMES.iter().find(|name| unsafe { Library::new(**name) }.is_ok()).map(PathBuf::from);
    if let Some(found) = find() {
        return Ok(found);
    }
    let install = "(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
                   libamdhip64-5) >&2";
    repo::capture("install hipRTC", Command::new("sh").args(["-ec", install]))?;
    find().ok_or_else(|| {
        Error::message("cannot find hipRTC in the package that was installed".to_owned())
    })
}
