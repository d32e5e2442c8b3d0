//! Tasks that have the library: they are another package's, which is built when one of them is asked for.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::{Error, Result, repo};

/// The tasks, and what they do; a test of that package holds it against them.
pub const TASKS: [(&str, &str); 10] = [
    (
        "bench-calls",
        "Measure what a call costs from Rust, C, NCCL's interface and Python, beside the Executor's own",
    ),
    (
        "bench-hosts",
        "Measure allreduce over two hosts (network namespaces) beside Open MPI, and the wire below it",
    ),
    ("bench-peers", "Measure collectives beside MPI libraries, Gloo and a hand-written floor"),
    (
        "check-simulator",
        "Hold predictions for this machine against the clock: are algorithms in the right order?",
    ),
    ("defaults", "Write the tables of which built-in algorithm serves which sizes into the manual"),
    ("gpu-bench", "Measure plans on one GPU, beside what the GPU itself can do"),
    ("gpu-compile", "Compile generated kernels by the vendors' compilers, without a GPU"),
    ("gpu-pack", "Pack a folder that checks and measures a machine with a GPU"),
    (
        "gpu-prebuilt",
        "Compile the interpreting kernel for machines without a compiler, into the repository",
    ),
    ("mutate", "Break plans on purpose and measure whether the verifier notices"),
];

/// The tasks as lines of a help text.
pub fn help() -> String {
    let mut text = "Tasks that have the library, which they build first:\n".to_owned();
    for (name, what) in TASKS {
        text.push_str(&format!("  {name:<16} {what}\n"));
    }
    text
}

/// Hands a task on, with its options, and returns how it ended; it says why itself.
///
/// # Errors
/// A name that no task has, and what the system says.
pub fn run(words: &[OsString]) -> Result<ExitCode> {
    let name = words.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    if !TASKS.iter().any(|(task, _)| *task == name) {
        return Err(Error::message(format!(
            "cannot run the task `{name}`: there is none; `cargo xtask --help` lists all"
        )));
    }
    let mut command = repo::cargo();
    // Where the caller is: files are named from there.
    let here = std::env::current_dir().map_err(Error::io("find the current folder"))?;
    let manifest = repo::root().join("Cargo.toml");
    command.current_dir(here).arg("run").arg("--manifest-path").arg(manifest);
    command.args(["--quiet", "--package", "antiphon-lab", "--bin", "antiphon-lab"]);
    // As this task was built, so that who runs many builds once.
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let status = command.arg("--").args(words).status();
    let status = status.map_err(Error::io("start cargo".to_owned()))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
