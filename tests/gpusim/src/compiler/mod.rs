//! The simulated NVRTC: programs of device source, compiled by a C++ compiler against a prelude of this crate.

pub mod build;

use crate::abi::{Answer, In, Out};
use crate::status::Status;
use crate::table::{Table, lock};
use std::ffi::c_char;
use std::sync::{Arc, Mutex};

/// The statuses of NVRTC that are answered here, and their names.
const SUCCESS: i32 = 0;
const INVALID_INPUT: i32 = 3;
const INVALID_PROGRAM: i32 = 4;
const INVALID_OPTION: i32 = 5;
const COMPILATION: i32 = 6;
pub const NAMES: &[(i32, &std::ffi::CStr)] = &[
    (SUCCESS, c"NVRTC_SUCCESS"),
    (1, c"NVRTC_ERROR_OUT_OF_MEMORY"),
    (2, c"NVRTC_ERROR_PROGRAM_CREATION_FAILURE"),
    (INVALID_INPUT, c"NVRTC_ERROR_INVALID_INPUT"),
    (INVALID_PROGRAM, c"NVRTC_ERROR_INVALID_PROGRAM"),
    (INVALID_OPTION, c"NVRTC_ERROR_INVALID_OPTION"),
    (COMPILATION, c"NVRTC_ERROR_COMPILATION"),
    (11, c"NVRTC_ERROR_INTERNAL_ERROR"),
];

/// A program.
struct Program {
    name: String,
    source: String,
    /// Headers it brings along: name and text.
    headers: Vec<(String, String)>,
    made: Mutex<Made>,
}

/// What compiling a program left.
#[derive(Clone, Default)]
struct Made {
    code: Option<Vec<u8>>,
    log: String,
}

static PROGRAMS: Table<Program> = Table::new();

/// As `abi::answer`, in NVRTC's own numbers.
fn answer(name: &str, body: impl FnOnce() -> Result<(), i32>) -> i32 {
    let mut code = SUCCESS;
    let status = crate::abi::answer(name, || {
        code = body().err().unwrap_or(SUCCESS);
        if code == SUCCESS { Ok(()) } else { Err(Status::INVALID_VALUE) }
    });
    // A panic is an internal error.
    if status == Status::UNKNOWN.0 { 11 } else { code }
}

fn input<T>(result: Result<T, Status>) -> Result<T, i32> {
    result.map_err(|_| INVALID_INPUT)
}

fn texts(list: In<In<c_char>>, count: usize) -> Result<Vec<String>, Status> {
    list.list(count)?.into_iter().map(In::text).collect()
}

fn program(handle: u64) -> Result<Arc<Program>, i32> {
    PROGRAMS.get(handle).map_err(|_| INVALID_PROGRAM)
}

/// Whether the architecture is one that the compilers are to know nothing of.
fn unknown(options: &[String]) -> bool {
    let listed = std::env::var("ANTIPHON_GPUSIM_UNKNOWN").unwrap_or_default();
    let mut named = options.iter().filter_map(|option| option.strip_prefix("--gpu-architecture="));
    named.any(|architecture| listed.split(',').any(|one| one == architecture))
}

/// Compiles a program, with further options.
fn compiled(handle: u64, count: i32, options: In<In<c_char>>, further: &[&str]) -> Result<(), i32> {
    let program = program(handle)?;
    let count = usize::try_from(count).map_err(|_| INVALID_INPUT)?;
    let mut options = input(texts(options, count))?;
    options.extend(further.iter().map(|option| (*option).to_owned()));
    if unknown(&options) {
        let log = "error: invalid value for --gpu-architecture (simulated compiler)".to_owned();
        *lock(&program.made) = Made { code: None, log };
        return Err(INVALID_OPTION);
    }
    let made = match build::build(&program.name, &program.source, &program.headers, &options) {
        Ok(code) => Made { code: Some(code), log: String::new() },
        Err(log) => Made { code: None, log },
    };
    let failed = made.code.is_none();
    *lock(&program.made) = made;
    if failed { Err(COMPILATION) } else { Ok(()) }
}

/// As [`nvrtcCompileProgram`], for another compiler of that kind, which tells options that it does not take from faults of the
/// source by its log alone.
pub fn compile(
    name: &str,
    handle: u64,
    count: i32,
    options: In<In<c_char>>,
    further: &[&str],
) -> i32 {
    let plain = |code| if code == INVALID_OPTION { COMPILATION } else { code };
    answer(name, move || compiled(handle, count, options, further).map_err(plain))
}

macro_rules! compiler_calls {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub extern "C" fn $name($($argument: $kind),*) -> i32 {
                answer(stringify!($name), move || $body)
            }
        )*
    };
}

compiler_calls! {
    fn nvrtcVersion(major: Out<i32>, minor: Out<i32>) {
        input(major.set(12))?;
        input(minor.set(8))
    }

    fn nvrtcCreateProgram(
        out: Out<u64>,
        source: In<c_char>,
        name: In<c_char>,
        count: i32,
        headers: In<In<c_char>>,
        names: In<In<c_char>>,
    ) {
        let count = usize::try_from(count).map_err(|_| INVALID_INPUT)?;
        let headers =
            input(texts(names, count))?.into_iter().zip(input(texts(headers, count))?).collect();
        let name = if name.is_null() { "default_program".to_owned() } else { input(name.text())? };
        let source = input(source.text())?;
        input(out.set(PROGRAMS.add(Arc::new(Program {
            name,
            source,
            headers,
            made: Mutex::default(),
        }))))
    }

    fn nvrtcDestroyProgram(handle: Out<u64>) {
        PROGRAMS.take(input(handle.get())?).map_err(|_| INVALID_PROGRAM)?;
        input(handle.set(0))
    }

    fn nvrtcCompileProgram(handle: u64, count: i32, options: In<In<c_char>>) {
        compiled(handle, count, options, &[])
    }
    fn nvrtcGetProgramLogSize(handle: u64, out: Out<usize>) {
        input(out.set(lock(&program(handle)?.made).log.len() + 1))
    }

    fn nvrtcGetProgramLog(handle: u64, out: Out<u8>) {
        let mut log = lock(&program(handle)?.made).log.clone().into_bytes();
        log.push(0);
        input(write(out, &log))
    }

    fn nvrtcGetCUBINSize(handle: u64, out: Out<usize>) {
        input(out.set(code(handle)?.len()))
    }

    fn nvrtcGetCUBIN(handle: u64, out: Out<u8>) {
        input(write(out, &code(handle)?))
    }
}

fn code(handle: u64) -> Result<Vec<u8>, i32> {
    lock(&program(handle)?.made).code.clone().ok_or(INVALID_PROGRAM)
}

/// Writes bytes to a place for which the application has asked the size.
fn write(out: Out<u8>, bytes: &[u8]) -> Answer {
    bytes.iter().enumerate().try_for_each(|(k, byte)| out.offset(k).set(*byte))
}

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn nvrtcGetErrorString(code: i32) -> In<c_char> {
    let row = NAMES.iter().find(|row| row.0 == code);
    In::of(row.map_or(c"NVRTC_ERROR unknown", |row| row.1))
}
