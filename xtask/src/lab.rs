//! Tasks that have the library: they are another package's, which is built when one of them is asked for.

use std::ffi::OsString;

use crate::{Error, Result, repo};

/// Hands a task on, with its options.
///
/// # Errors
/// What cargo says, or that the task failed, which it has said itself.
pub fn run(words: &[OsString]) -> Result<()> {
    let mut command = repo::cargo();
    // Where the caller is: files are named from there.
    let here = std::env::current_dir().map_err(Error::io("find the current folder"))?;
    command
        .current_dir(here)
        .arg("run")
        .arg("--manifest-path")
        .arg(repo::root().join("Cargo.toml"));
    command.args(["--quiet", "--package", "antiphon-lab", "--bin", "antiphon-lab"]);
    // As this task was built, so that who runs many builds once.
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    repo::stream("run the task", command.arg("--").args(words))
}
