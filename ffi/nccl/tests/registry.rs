//! What a program registers through `antiphon.h` serves its calls of NCCL.

mod tools;

use std::fs;
use std::path::Path;
use std::process::Command;
use tools::{header, libraries, on_host, package, run};

#[test]
fn plans_and_code_of_the_program_serve_its_nccl_calls() {
    let Some(header) = header() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("registry");
    fs::create_dir_all(&folder).expect("a folder");
    let links = [
        ("libnccl.so", "libantiphon_nccl.so"),
        ("libnccl.so.2", "libantiphon_nccl.so"),
        ("libantiphon.so", "libantiphon_c.so"),
        ("libantiphon.so.1", "libantiphon_c.so"),
    ];
    for (name, target) in links {
        let link = folder.join(name);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(libraries().join(target), link).expect("a link");
    }
    let program = folder.join("nccl-registry");
    let mut build = Command::new("g++");
    build.args(["-std=c++17", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-isystem"]);
    build.arg(header).arg("-isystem").arg(package().join("tests/cuda"));
    build.arg("-I").arg(package().join("../include"));
    build.arg(package().join("tests/registry.cpp")).arg("-o").arg(&program);
    build.arg("-L").arg(&folder).args(["-lnccl", "-lantiphon"]);
    run(&mut build);
    let out = run(on_host(&program).env("LD_LIBRARY_PATH", &folder));
    assert!(out.contains("registry: ok"), "{out}");
}
