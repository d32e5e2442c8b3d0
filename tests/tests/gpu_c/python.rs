//! Programs in Python.

use super::tools::{NEEDS, libraries, python, run};
use super::{Machine, repository};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set where a Python with PyTorch must be there.
const NEEDS_TORCH: &str = "ANTIPHON_NEEDS_TORCH";

/// A program of this folder, over the package of this repository and the built library.
fn program(machine: &Machine, python: &Path, name: &str) -> Command {
    let mut command = machine.command(python);
    command.arg(repository().join("tests/tests/gpu_c").join(name));
    command.env("PYTHONPATH", repository().join("ffi/python")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("ANTIPHON_LIB_PATH", libraries().join("libantiphon_c.so"));
    command
}

#[test]
fn arrays_on_devices_are_served() {
    let (Some(machine), Some(python)) = (Machine::of("python"), python("ctypes")) else {
        assert!(std::env::var_os(NEEDS).is_none(), "no Python or no simulator, and {NEEDS} is set");
        println!("SKIP: no Python in VIRTUAL_ENV, or no simulator");
        return;
    };
    let mut command = program(&machine, &python, "device.py");
    let plan = repository().join("examples/plans/allreduce_zero_copy_4.json");
    let out = run(command.env("PLAN", plan));
    assert!(out.contains("device: ok"), "{out}");
}

/// A Python with PyTorch: that of `VIRTUAL_ENV`, else the system's.
fn torch() -> Option<PathBuf> {
    let module = "torch.distributed";
    let has = |python: &PathBuf| {
        let import = Command::new(python).arg("-c").arg(format!("import {module}")).output();
        import.is_ok_and(|import| import.status.success())
    };
    python(module).or_else(|| Some(PathBuf::from("/usr/bin/python3")).filter(has))
}

#[test]
fn tensors_on_devices_are_served() {
    let (Some(machine), Some(python)) = (Machine::of("torch"), torch()) else {
        let needed = std::env::var_os(NEEDS_TORCH).is_some();
        assert!(!needed, "no Python has torch, or no simulator, and {NEEDS_TORCH} is set");
        println!("SKIP: no Python with torch, or no simulator");
        return;
    };
    let out = run(&mut program(&machine, &python, "tensors.py"));
    assert!(out.contains("tensors: ok"), "{out}");
}
