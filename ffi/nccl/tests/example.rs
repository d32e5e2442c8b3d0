//! The example of a program written for NCCL, as its page has it built and run.

mod tools;

use std::path::Path;
use std::process::Command;
use tools::{NEEDS, libraries, link, on_host, package, run};

#[test]
fn a_program_for_nccl_reduces_over_two_processes_in_both_ways() {
    if !Command::new("gcc").arg("--version").output().is_ok_and(|found| found.status.success()) {
        assert!(std::env::var_os(NEEDS).is_none(), "no gcc, and {NEEDS} is set");
        println!("SKIP: no gcc");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("example");
    std::fs::create_dir_all(&folder).expect("a folder");
    link(&folder, &["libnccl.so", "libnccl.so.2"], "libantiphon_nccl.so");
    let program = folder.join("program");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    gcc.arg(package().join("../../examples/nccl/all_reduce.c")).arg("-o").arg(&program);
    run(gcc.arg("-L").arg(&folder).arg("-lnccl"));
    let place = ("LD_LIBRARY_PATH", folder.clone());
    let before = ("LD_PRELOAD", libraries().join("libantiphon_nccl.so"));
    for (name, value) in [place, before] {
        let mut command = on_host(&program);
        let out = run(command.env_remove("LD_LIBRARY_PATH").env(name, value));
        for rank in 0..2 {
            let line = format!("rank {rank} of 2: every element is 3");
            assert!(out.contains(&line), "{name}: {out}");
        }
    }
}
