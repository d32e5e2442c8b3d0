//! From device source to a shared object, by the C++ compiler, cached by content.
//!
//! The source is preprocessed first, so that kernels can be found by the mark that `__global__` leaves; then an entry
//! for each is added, and the whole compiled without optimisation. A file comes into the cache whole or not at all.

use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

const PRELUDE: &str = include_str!("prelude.h");
/// What `__global__` becomes.
const MARK: &str = "[[antiphon::kernel]]";

/// Compiles; an error is the log.
pub fn build(
    name: &str,
    source: &str,
    headers: &[(String, String)],
    options: &[String],
) -> Result<Vec<u8>, String> {
    let definitions = definitions(options)?;
    let compiler = std::env::var_os("ANTIPHON_GPUSIM_CXX").unwrap_or_else(|| "g++".into());
    let key = key(&compiler, source, headers, &definitions);
    let folder = folder()?;
    let kept = folder.join(format!("{key}.so"));
    if let Ok(code) = fs::read(&kept) {
        return Ok(code);
    }
    let work = Work::new(&folder, &key)?;
    for (name, text) in headers {
        let path = work.0.join(name);
        if let Some(parent) = path.parent().filter(|parent| parent.starts_with(&work.0)) {
            fs::create_dir_all(parent).map_err(|e| wrong("make a folder for a header", &e))?;
        }
        fs::write(path, text).map_err(|e| wrong("write a header", &e))?;
    }
    let whole = format!("{PRELUDE}\n#line 1 {name:?}\n{source}\n");
    let mut preprocess = Command::new(&compiler);
    preprocess
        .args(["-x", "c++", "-std=c++17", "-E", "-w", "-I"])
        .arg(&work.0)
        .args(&definitions)
        .arg("-");
    let mut text = String::from_utf8_lossy(&run(preprocess, whole.as_bytes())?).into_owned();
    for kernel in kernels(&text) {
        text.push_str(&entry(&kernel));
    }
    let object = work.0.join("kernel.so");
    let mut compile = Command::new(&compiler);
    compile.args([
        "-x",
        "c++",
        "-fpreprocessed",
        "-std=c++17",
        "-O0",
        "-w",
        "-fPIC",
        "-shared",
        "-fno-exceptions",
    ]);
    compile
        .args(["-fno-strict-aliasing", "-fvisibility=hidden", "-Wl,-z,now", "-o"])
        .arg(&object)
        .arg("-");
    run(compile, text.as_bytes())?;
    let code = fs::read(&object).map_err(|e| wrong("read the shared object", &e))?;
    fs::rename(&object, &kept).map_err(|e| wrong("keep the shared object", &e))?;
    Ok(code)
}

fn wrong(what: &str, error: &dyn std::error::Error) -> String {
    format!("antiphon-gpusim: cannot {what}: {error}")
}

/// A folder of this compilation's own, gone when it is done.
struct Work(PathBuf);

impl Work {
    fn new(folder: &Path, key: &str) -> Result<Self, String> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{key}.{}.{number}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| wrong("make a folder to compile in", &e))?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What cannot be removed is only space in a temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn folder() -> Result<PathBuf, String> {
    let folder =
        std::env::var_os("ANTIPHON_GPUSIM_CACHE").map(PathBuf::from).unwrap_or_else(|| {
            // SAFETY: reads a number of the process.
            let user = unsafe { libc::getuid() };
            std::env::temp_dir().join(format!("antiphon-gpusim-{user}"))
        });
    fs::create_dir_all(&folder).map_err(|e| wrong("make the folder for compiled kernels", &e))?;
    Ok(folder)
}

/// What the options define, in the C++ compiler's spelling; the rest has no meaning here.
fn definitions(options: &[String]) -> Result<Vec<String>, String> {
    let mut definitions = Vec::new();
    let mut architecture = 900;
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let of = |names: &[&str]| names.iter().find_map(|name| option.strip_prefix(name));
        if let Some(value) = of(&["--gpu-architecture=", "-arch="]) {
            // Up to what HIP names behind it: features that are on or off.
            let name = value.split(':').next().unwrap_or(value);
            let digits: String = name.chars().filter(char::is_ascii_digit).collect();
            let number: u32 =
                digits.parse().map_err(|_| format!("unknown architecture {value}"))?;
            architecture = number * 10;
        } else if let Some(value) = of(&["--define-macro=", "-D"]) {
            let value =
                if value.is_empty() { options.next().map_or("", String::as_str) } else { value };
            definitions.push(format!("-D{}", value.trim()));
        }
    }
    // HIP's compiler says so itself.
    if !definitions.iter().any(|definition| definition.starts_with("-D__HIPCC__")) {
        definitions.push(format!("-D__CUDA_ARCH__={architecture}"));
    }
    Ok(definitions)
}

fn key(
    compiler: &OsString,
    source: &str,
    headers: &[(String, String)],
    definitions: &[String],
) -> String {
    let mut hash = Sha256::new();
    let mut add = |part: &str| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    add(env!("CARGO_PKG_VERSION"));
    add(PRELUDE);
    add(&compiler.to_string_lossy());
    add(source);
    headers.iter().for_each(|(name, text)| {
        add(name);
        add(text);
    });
    definitions.iter().for_each(|definition| add(definition));
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Runs the compiler with `input`; gives what it wrote, or what it said when it failed.
fn run(mut command: Command, input: &[u8]) -> Result<Vec<u8>, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| {
        format!(
            "{}; install g++, or name a C++ compiler in ANTIPHON_GPUSIM_CXX",
            wrong("run the C++ compiler", &e)
        )
    })?;
    let mut stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A compiler that stops reading says why itself.
            let _ = stdin.as_mut().map(|stdin| stdin.write_all(input));
        });
        child.wait_with_output()
    });
    let output = output.map_err(|e| wrong("wait for the C++ compiler", &e))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The names of the kernels in preprocessed text: after each mark, the last word before the parameters.
fn kernels(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for after in text.split(MARK).skip(1) {
        let Some(head) = after.split('(').next() else { continue };
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = head.trim_end().rsplit(|c| !word(c)).next().unwrap_or_default();
        if !name.is_empty() && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn entry(kernel: &str) -> String {
    format!(
        "extern \"C\" __attribute__((visibility(\"default\"))) void antiphon_kernel_{kernel}(void **arguments) \
         {{ antiphon_sim::enter({kernel}, arguments); }}\n\
         extern \"C\" __attribute__((visibility(\"default\"))) unsigned antiphon_params_{kernel}(unsigned long *sizes) \
         {{ return antiphon_sim::describe({kernel}, sizes); }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_their_mark() {
        let text = format!(
            "void a(int); extern \"C\" {MARK} void b (int x) {{}} {MARK} void c(); {MARK} void c() {{}}"
        );
        assert_eq!(kernels(&text), ["b", "c"]);
    }

    #[test]
    fn options_become_definitions() {
        let options =
            ["--gpu-architecture=sm_90a", "-DX=1", "-D", "Y", "--std=c++17"].map(str::to_owned);
        assert_eq!(
            definitions(&options),
            Ok(vec!["-DX=1".into(), "-DY".into(), "-D__CUDA_ARCH__=900".into()])
        );
    }
}
