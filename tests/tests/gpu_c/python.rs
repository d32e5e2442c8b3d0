//! A program in Python.

use super::tools::{NEEDS, libraries, python, run};
use super::{Machine, repository};

#[test]
fn arrays_on_devices_are_served() {
    let (Some(machine), Some(python)) = (Machine::of("python"), python("ctypes")) else {
        assert!(std::env::var_os(NEEDS).is_none(), "no Python or no simulator, and {NEEDS} is set");
        println!("SKIP: no Python in VIRTUAL_ENV, or no simulator");
        return;
    };
    let mut command = machine.command(&python);
    command.arg(repository().join("tests/tests/gpu_c/device.py"));
    command.env("PLAN", repository().join("examples/plans/allreduce_zero_copy_4.json"));
    command.env("PYTHONPATH", repository().join("ffi/python")).env("PYTHONDONTWRITEBYTECODE", "1");
    let out = run(command.env("ANTIPHON_LIB_PATH", libraries().join("libantiphon_c.so")));
    assert!(out.contains("device: ok"), "{out}");
}
