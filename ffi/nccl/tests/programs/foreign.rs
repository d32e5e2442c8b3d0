//! A client that others wrote: NVIDIA's bindings for Python, preloaded with the built library.

use crate::tools::{NEEDS, libraries, on_host, package, python, run};

#[test]
fn the_bindings_of_nvidia_for_python_are_served() {
    let Some(python) = python("nccl.bindings.nccl, numpy") else {
        assert!(std::env::var_os(NEEDS).is_none(), "no nccl4py, and {NEEDS} is set");
        println!("SKIP: no nccl4py and NumPy in VIRTUAL_ENV; pip has them");
        return;
    };
    let own = libraries().join("libantiphon_nccl.so");
    for world in ["2", "4"] {
        let mut command = on_host(&python);
        command.arg(package().join("tests/foreign.py")).arg(&own).arg(world);
        let out = run(command.env("LD_PRELOAD", &own));
        assert!(out.contains("foreign: ok by nccl.bindings.nccl"), "{out}");
    }
}
