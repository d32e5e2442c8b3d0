//! The built library: its symbols, and a program against NVIDIA's header that makes every call.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the folder of NVIDIA's `nccl.h`.
const HEADER: &str = "ANTIPHON_NCCL_INCLUDE";
/// Set where header and compiler must be there.
const NEEDS: &str = "ANTIPHON_NEEDS_NCCL_HEADER";
/// Where NVIDIA's package is in a Python environment.
const IN_PACKAGE: &str = "site-packages/nvidia/nccl/include";

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder where cargo puts the libraries for the tests of this package.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    test.parent().expect("its folder").to_path_buf()
}

/// The folder of the header, if this machine has it.
fn header() -> Option<PathBuf> {
    let named = std::env::var_os(HEADER).map(PathBuf::from);
    let installed = || {
        let environment = PathBuf::from(std::env::var_os("VIRTUAL_ENV")?).join("lib");
        let pythons = fs::read_dir(environment).ok()?.flatten();
        pythons.map(|python| python.path().join(IN_PACKAGE)).find(|folder| folder.exists())
    };
    let found = named.or_else(installed).filter(|folder| folder.join("nccl.h").exists());
    assert!(found.is_some() || std::env::var_os(NEEDS).is_none(), "no nccl.h, and {NEEDS} is set");
    if found.is_none() {
        println!("SKIP: no nccl.h; {HEADER} names its folder, and pip has it in nvidia-nccl-cu12");
    }
    found
}

/// Runs a command that must succeed; what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out
}

/// Names of functions in a text, that begin like one of NCCL's and have `after` behind them.
fn functions(text: &str, after: char) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = text.match_indices("nccl").map(|(at, _)| &text[at..]);
    let names = starts.map(|rest| rest.split_at(rest.find(|c| !word(c)).unwrap_or(rest.len())));
    let called = names.filter(|(_, rest)| rest.starts_with(after));
    called.map(|(name, _)| name.to_owned()).collect()
}

/// The symbols of the built library.
fn exported() -> BTreeSet<String> {
    let library = libraries().join("libantiphon_nccl.so");
    let listed =
        run(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library));
    listed.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_page_lists_every_symbol_and_no_other() {
    let page = fs::read_to_string(package().join("../../docs/nccl.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| `nccl"));
    let listed: BTreeSet<String> = rows
        .map(|row| row.trim_start_matches("| `").split('`').next().unwrap_or_default().to_owned())
        .collect();
    let both: BTreeSet<String> =
        listed.iter().flat_map(|name| [name.clone(), format!("p{name}")]).collect();
    assert_eq!(exported(), both);
    let Some(folder) = header() else { return };
    let text = fs::read_to_string(folder.join("nccl.h")).expect("the header");
    let code: String = {
        let mut parts = text.split("/*");
        let first = parts.next().unwrap_or_default().to_owned();
        first
            + &parts
                .filter_map(|part| part.split_once("*/").map(|(_, code)| code))
                .collect::<String>()
    };
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let lines = lines.filter(|line| !line.trim_start().starts_with('#'));
    let declared = functions(&lines.collect::<Vec<_>>().join("\n"), '(');
    let missing: Vec<_> = declared.difference(&listed).collect();
    assert!(missing.is_empty() && declared.len() > 70, "{missing:?} of {}", declared.len());
    // What the page says works or is refused, the program calls.
    let program = fs::read_to_string(package().join("tests/calls.cpp")).expect("the program");
    let called = functions(&program, '(');
    let waiting: Vec<_> = declared.difference(&called).collect();
    assert!(waiting.is_empty(), "the program does not call {waiting:?}");
}

#[test]
fn every_call_of_the_header_does_what_it_should() {
    let Some(header) = header() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for name in ["libnccl.so", "libnccl.so.2"] {
        let link = folder.join(name);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(libraries().join("libantiphon_nccl.so"), link).expect("a link");
    }
    let program = folder.join("nccl-calls");
    let mut build = Command::new("g++");
    build.args(["-std=c++17", "-g", "-Wall", "-Wextra", "-Werror", "-isystem"]).arg(header);
    build.arg("-isystem").arg(package().join("tests/cuda"));
    build.arg(package().join("tests/calls.cpp")).arg("-o").arg(&program);
    build.arg("-L").arg(folder).arg("-lnccl");
    run(&mut build);
    let own = libraries().join("libantiphon_nccl.so");
    for world in ["0", "2", "4"] {
        // In the place of NCCL, and before it.
        for preloaded in [false, true] {
            if preloaded && world == "4" {
                continue;
            }
            let mut command = Command::new(&program);
            command.arg(world).env("ANTIPHON_DEVICE", "host").env("ANTIPHON_TIMEOUT", "60");
            command.env("ANTIPHON_LIB_PATH", libraries().join("libantiphon_c.so"));
            command.env("LD_LIBRARY_PATH", if preloaded { Path::new("/") } else { folder });
            if preloaded {
                command.env("LD_PRELOAD", &own);
            }
            let out = run(&mut command);
            assert!(out.contains("calls: ok"), "{out}");
        }
    }
}
