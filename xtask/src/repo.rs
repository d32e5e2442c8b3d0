//! Where the repository is, which files it has, and how tasks start other programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use crate::{Error, Result};

/// The texts of the licences, in the workspace root.
pub const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// The workspace root.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Where cargo puts what it builds: `CARGO_TARGET_DIR`, or `target` in the workspace root.
pub fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// All files below `top`, sorted, as paths relative to it. Build output, what belongs to git, hidden folders other than `.ci`, `.cargo`
/// and `.config`, and nested checkouts are left out.
pub fn files(top: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![top.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let reading = || format!("list {}", folder.display());
        for entry in fs::read_dir(&folder).map_err(Error::io(reading()))? {
            let entry = entry.map_err(Error::io(reading()))?;
            let kind = entry.file_type().map_err(Error::io(reading()))?;
            let name = entry.file_name();
            let path = entry.path();
            if kind.is_file() && name != ".git" {
                found.extend(path.strip_prefix(top).map(Path::to_path_buf));
            } else if kind.is_dir()
                && enters(&name.to_string_lossy())
                && !path.join(".git").exists()
            {
                folders.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn enters(folder: &str) -> bool {
    let known_hidden = matches!(folder, ".ci" | ".cargo" | ".config");
    (known_hidden || !folder.starts_with('.')) && !matches!(folder, "target" | "node_modules")
}

/// The cargo that runs this task, started in the workspace root.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// A program started in the workspace root without what the running toolchain tells its own children.
pub fn outside(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("RUSTUP_TOOLCHAIN") || text == "CARGO" || text.starts_with("CARGO_PKG")
        {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs `command` with its output captured; stdout on success, an error with the end of stderr otherwise.
pub fn capture(what: &str, command: &mut Command) -> Result<String> {
    let output = command.output().map_err(Error::io(format!("{what} with {}", line(command))))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = stderr.lines().rev().filter(|l| !l.trim().is_empty()).take(4).collect();
    let detail: String = last.iter().rev().map(|l| format!("\n    {l}")).collect();
    Err(Error::Command {
        what: what.into(),
        command: line(command),
        status: output.status.to_string(),
        detail,
    })
}

/// Runs `command` with the terminal's own output.
pub fn stream(what: &str, command: &mut Command) -> Result<()> {
    command.stdout(Stdio::inherit());
    stdout(what, command).map(drop)
}

/// Runs `command` with the terminal's own stderr; stdout on success.
pub fn stdout(what: &str, command: &mut Command) -> Result<String> {
    command.stdin(Stdio::inherit()).stderr(Stdio::inherit());
    let output = command.output().map_err(Error::io(format!("{what} with {}", line(command))))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Command {
        what: what.into(),
        command: line(command),
        status: output.status.to_string(),
        detail: String::new(),
    })
}

/// The command line as a person would type it.
pub fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    let words = command.get_args().map(|a| a.to_string_lossy());
    std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}
