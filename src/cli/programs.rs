//! Programs in Python: compiled by the package `antiphon`, which must be installed for the interpreter.

use super::CliError;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Chooses the interpreter; `python3` of the path where it is not set.
const INTERPRETER: &str = "ANTIPHON_PYTHON";

/// Whether a file is a program, by its name.
pub fn is_program(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "py")
}

/// The plan that a program writes, as JSON.
pub fn compile(program: &Path) -> Result<Vec<u8>, CliError> {
    let failed = |message: String| CliError::Compile { path: program.to_owned(), message };
    let output = Scratch::new().map_err(|error| failed(error.to_string()))?;
    let named = std::env::var_os(INTERPRETER).filter(|program| !program.is_empty());
    let interpreter = named.unwrap_or_else(|| "python3".into());
    let mut command = Command::new(&interpreter);
    command.args(["-m", "antiphon", "compile", "--compact", "-o"]).arg(&output.0).arg(program);
    // What the program prints is not the plan.
    command.stdout(std::io::stderr());
    let interpreter = interpreter.to_string_lossy();
    let status = command.status().map_err(|error| {
        failed(format!(
            "cannot start `{interpreter}`: {error}; install Python, or set {INTERPRETER}"
        ))
    })?;
    if !status.success() {
        return Err(failed(format!(
            "`{interpreter} -m antiphon compile` failed ({status}); what it said is above. If it lacks the package, \
             `pip install ./ffi/python` installs it"
        )));
    }
    fs::read(&output.0).map_err(|error| failed(error.to_string()))
}

/// A file that goes with its name.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("antiphon-{}.json", std::process::id()));
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing can be done about a file that cannot be removed.
        let _ = fs::remove_file(&self.0);
    }
}
