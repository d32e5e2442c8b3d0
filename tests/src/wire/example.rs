//! The wire in C of `examples/wire`, compiled for a test.

use crate::Folder;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options that make a plugin.
pub const SHARED: [&str; 3] = ["-fPIC", "-shared", "-fvisibility=hidden"];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the repository")
}

/// Calls the C compiler on sources that include the header of plugins; `None`, and a line that says so, where there is none.
///
/// # Panics
/// If it does not take them.
pub fn compile(arguments: &[&str], sources: &[PathBuf], output: &Path) -> Option<()> {
    let include = repository().join("transports/port/include");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-I"]).arg(include);
    let result = match compiler.args(arguments).args(sources).arg("-o").arg(output).output() {
        Ok(result) => result,
        Err(error) => {
            // Written past the harness's capture, which hides what the print macros print in tests that pass.
            let _ = writeln!(std::io::stderr(), "SKIP a plugin in C: cannot run cc: {error}");
            return None;
        }
    };
    assert!(result.status.success(), "cc: {}", String::from_utf8_lossy(&result.stderr));
    Some(())
}

/// Compiles the example into a folder; the plugin.
///
/// # Panics
/// If its sources cannot be found or compiled.
pub fn example(folder: &Folder) -> Option<PathBuf> {
    let sources = fs::read_dir(repository().join("examples/wire")).expect("the example's folder");
    let files = sources.map(|entry| entry.expect("a file of the example").path());
    let sources: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "c")).collect();
    let library = folder.join("libantiphon_wire_unix.so");
    compile(&SHARED, &sources, &library)?;
    Some(library)
}
