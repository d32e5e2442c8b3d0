//! What tests of the built library share: where it is, and what of NVIDIA's this machine has.

// Each test takes what it needs.
#![allow(dead_code)]

mod header;
pub mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set where NVIDIA's packages and a compiler must be there.
pub const NEEDS: &str = "ANTIPHON_NEEDS_NCCL_HEADER";

/// What the library takes for a GPU of this machine (`src/way.rs`), if it has one.
pub fn gpu() -> Option<&'static str> {
    ["/dev/nvidiactl", "/dev/dxg", "/dev/kfd"].into_iter().find(|path| Path::new(path).exists())
}

/// The folder of this package.
pub fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder where cargo puts the libraries for the tests of this package.
pub fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    test.parent().expect("its folder").to_path_buf()
}

/// The folder of the header, if this machine has it.
pub fn header() -> Option<PathBuf> {
    let found = header::find();
    assert!(found.is_some() || std::env::var_os(NEEDS).is_none(), "no nccl.h, and {NEEDS} is set");
    if found.is_none() {
        println!(
            "SKIP: no nccl.h; {} names its folder, and pip has it in nvidia-nccl-cu12",
            header::HEADER
        );
    }
    found
}

/// NVIDIA's library beside its header, if this machine has it.
pub fn library(header: &Path) -> Option<PathBuf> {
    let library = header.join("../lib/libnccl.so.2");
    let found = library.exists();
    assert!(
        found || std::env::var_os(NEEDS).is_none(),
        "no {}, and {NEEDS} is set",
        library.display()
    );
    if !found {
        println!("SKIP: no {}, whose symbols would be compared", library.display());
    }
    found.then_some(library)
}

/// Links names in a folder to a built library; the path of the last.
pub fn link(folder: &Path, names: &[&str], library: &str) -> PathBuf {
    let mut at = folder.to_path_buf();
    for name in names {
        at = folder.join(name);
        let _ = fs::remove_file(&at);
        std::os::unix::fs::symlink(libraries().join(library), &at).expect("a link");
    }
    at
}

/// Runs a command that must succeed; what it printed.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out
}

/// A command that builds a program of this folder over the header.
pub fn build(header: &Path, source: &str, output: &Path) -> Command {
    let mut build = Command::new("g++");
    build.args(["-std=c++17", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-isystem"]);
    build.arg(header).arg("-isystem").arg(package().join("tests/cuda"));
    build.arg(package().join("tests").join(source)).arg("-o").arg(output);
    build
}

/// A program of this folder that finds the built library as NCCL in the folder where it is, and that folder; none without the header.
pub fn program(name: &str) -> Option<(PathBuf, PathBuf)> {
    let header = header()?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a folder");
    let program = folder.join("program");
    let library = link(&folder, &["libnccl.so.2"], "libantiphon_nccl.so");
    run(build(&header, &format!("{name}.cpp"), &program).arg(library));
    Some((program, folder))
}

/// Builds the stand-in for the real library into a folder.
pub fn stand_in(header: &Path, folder: &Path) -> PathBuf {
    let real = folder.join("libreal.so");
    run(build(header, "real.cpp", &real).args(["-shared", "-fPIC"]));
    real
}

/// The Python where the packages are, if this machine has it.
pub fn python(modules: &str) -> Option<PathBuf> {
    let python = PathBuf::from(std::env::var_os("VIRTUAL_ENV")?).join("bin/python");
    has(&python, modules).then_some(python)
}

/// Whether a Python is there and has some modules.
pub fn has(python: &Path, modules: &str) -> bool {
    let probe = Command::new(python).arg("-c").arg(format!("import {modules}")).output();
    probe.is_ok_and(|probe| probe.status.success())
}

/// A command whose calls of NCCL go to the built library, on host buffers.
pub fn on_host(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("ANTIPHON_DEVICE", "host").env("ANTIPHON_TIMEOUT", "60");
    command.env("ANTIPHON_LIB_PATH", libraries().join("libantiphon_c.so"));
    command
}
