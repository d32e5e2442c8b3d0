//! What Python registers serves calls of NCCL's interface in the same process.

use crate::tools::{NEEDS, libraries, on_host, package, python, run};
use std::path::Path;

/// Runs the program, preloaded or not; `first` is a library that the process has before all others.
fn registered(preloaded: bool, first: Option<&Path>) {
    let Some(python) = python("ctypes") else {
        assert!(std::env::var_os(NEEDS).is_none(), "no Python, and {NEEDS} is set");
        println!("SKIP: no Python in VIRTUAL_ENV");
        return;
    };
    let own = libraries().join("libantiphon_nccl.so");
    let mut command = on_host(&python);
    command.arg(package().join("tests/registered.py"));
    // What is preloaded must be found without its name, where a program that links NCCL finds it.
    command.arg(if preloaded { Path::new("") } else { &own });
    command.arg(package().join("../../examples/plans/allreduce_ring_4.json")).args(first);
    command.env("PYTHONPATH", package().join("../python")).env("PYTHONDONTWRITEBYTECODE", "1");
    if preloaded {
        command.env("LD_PRELOAD", &own);
    }
    let out = run(&mut command);
    assert!(out.contains("registered: ok"), "{out}");
}

#[test]
fn plans_code_and_a_selector_of_python_serve_calls_of_the_same_process() {
    registered(false, None);
    registered(true, None);
}

#[test]
fn a_process_has_one_library_whoever_loaded_it() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("first");
    std::fs::create_dir_all(&folder).expect("a folder");
    // As a file of its own: by another name the loader would know the same one.
    let first = folder.join("libantiphon.so.1");
    let _ = std::fs::remove_file(&first);
    std::fs::copy(libraries().join("libantiphon_c.so"), &first).expect("a copy");
    registered(true, Some(&first));
}
