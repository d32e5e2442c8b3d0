//! The example of a program written for NCCL, as its page has it built and run.

use crate::tools::{NEEDS, gpu, libraries, link, on_host, package, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder with the library by NCCL's names, and the program `program`; `None` where it cannot be built.
fn built(test: &str) -> Option<PathBuf> {
    if !Command::new("gcc").arg("--version").output().is_ok_and(|found| found.status.success()) {
        assert!(std::env::var_os(NEEDS).is_none(), "no gcc, and {NEEDS} is set");
        println!("SKIP: no gcc");
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("example").join(test);
    std::fs::create_dir_all(&folder).expect("a folder");
    link(&folder, &["libnccl.so", "libnccl.so.2"], "libantiphon_nccl.so");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    gcc.arg(package().join("../../examples/nccl/all_reduce.c"));
    run(gcc.arg("-o").arg(folder.join("program")).arg("-L").arg(&folder).arg("-lnccl"));
    Some(folder)
}

/// Runs the program, with the library where a variable says.
fn reduces(command: &mut Command, name: &str, value: &Path) {
    let out = run(command.env_remove("LD_LIBRARY_PATH").env(name, value));
    for rank in 0..2 {
        let line = format!("rank {rank} of 2: every element is 3");
        assert!(out.contains(&line), "{name}: {out}");
    }
}

#[test]
fn a_program_for_nccl_reduces_over_two_processes_in_both_ways() {
    let Some(folder) = built("host") else { return };
    let place = ("LD_LIBRARY_PATH", folder.clone());
    let before = ("LD_PRELOAD", libraries().join("libantiphon_nccl.so"));
    for (name, value) in [place, before] {
        reduces(&mut on_host(folder.join("program")), name, &value);
    }
}

#[test]
fn without_a_gpu_buffers_are_on_the_host() {
    if let Some(gpu) = gpu() {
        println!("SKIP: {gpu} is there, so that buffers are taken to be on that GPU");
        return;
    }
    let Some(folder) = built("unsaid") else { return };
    let mut command = on_host(folder.join("program"));
    for variable in ["ANTIPHON_DEVICE", "ANTIPHON_NCCL_LIB_PATH", "MSCCLPP_NCCL_LIB_PATH"] {
        command.env_remove(variable);
    }
    reduces(&mut command, "LD_LIBRARY_PATH", &folder);
}
