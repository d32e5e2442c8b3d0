//! Programs in Python.

use super::tools::{NEEDS, has, libraries, python, run};
use super::{Machine, repository};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set where a Python with PyTorch must be there.
const NEEDS_TORCH: &str = "ANTIPHON_NEEDS_TORCH";
/// Names a Python with PyTorch, as it does for the package's own tests.
const TORCH_PYTHON: &str = "ANTIPHON_TORCH_PYTHON";

/// The backends that the library was built with.
const DEVICES: &[&str] = if cfg!(feature = "rocm") { &["cuda", "rocm"] } else { &["cuda"] };

/// A program of this folder, over the package of this repository and the built library.
fn program(machine: &Machine, python: &Path, name: &str) -> Command {
    let mut command = machine.command(python);
    command.arg(repository().join("tests/tests/gpu_c").join(name));
    over_the_repository(&mut command);
    command
}

/// Has a Python find the package of this repository, and the built library.
fn over_the_repository(command: &mut Command) {
    command.env("PYTHONPATH", repository().join("ffi/python")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("ANTIPHON_LIB_PATH", libraries().join("libantiphon_c.so"));
}

/// Has a program of this folder run to its end, in a Python that needs nothing but itself.
fn passes(name: &str) {
    let (Some(machine), Some(python)) = (Machine::of(name), python("ctypes")) else {
        assert!(std::env::var_os(NEEDS).is_none(), "no Python or no simulator, and {NEEDS} is set");
        println!("SKIP: no Python in VIRTUAL_ENV, or no simulator");
        return;
    };
    let mut command = program(&machine, &python, &format!("{name}.py"));
    let plan = repository().join("examples/plans/allreduce_zero_copy_4.json");
    let out = run(command.env("PLAN", plan));
    assert!(out.contains(&format!("{name}: ok")), "{out}");
}

#[test]
fn arrays_on_devices_are_served() {
    passes("device");
}

#[test]
fn the_programs_of_the_manual_work_on_devices() {
    passes("page");
}

/// A Python with a module: that of `VIRTUAL_ENV`, else the first of the path.
fn with(module: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = || std::env::split_paths(&path).map(|folder| folder.join("python3"));
    python(module).or_else(|| all().find(|python| has(python, module)))
}

/// A Python with PyTorch: the one that is named, which must have it, else as [`with`].
fn with_torch() -> Option<PathBuf> {
    let module = "torch.distributed";
    let Some(named) = std::env::var_os(TORCH_PYTHON).filter(|named| !named.is_empty()) else {
        return with(module);
    };
    let named = PathBuf::from(named);
    assert!(
        has(&named, module),
        "{}, which {TORCH_PYTHON} names, has no {module}",
        named.display()
    );
    Some(named)
}

#[test]
fn tensors_on_devices_are_served() {
    let (Some(machine), Some(python)) = (Machine::of("torch"), with_torch()) else {
        let needed = std::env::var_os(NEEDS_TORCH).is_some();
        assert!(!needed, "no Python has torch, or no simulator, and {NEEDS_TORCH} is set");
        println!("SKIP: no Python with torch ({TORCH_PYTHON} names one), or no simulator");
        return;
    };
    let out = run(&mut program(&machine, &python, "tensors.py"));
    assert!(out.contains("tensors: ok"), "{out}");
}

#[test]
fn plans_are_checked_and_timed_on_devices() {
    let (Some(machine), Some(python)) = (Machine::of("executor-test"), with("numpy")) else {
        let needed = std::env::var_os(NEEDS_TORCH).is_some();
        assert!(!needed, "no Python has NumPy, or no simulator, and {NEEDS_TORCH} is set");
        println!("SKIP: no Python with NumPy, or no simulator");
        return;
    };
    let wrong = machine.folder.join("wrong.json");
    let sendrecv = repository().join("examples/plans/sendrecv_zero_copy_2.json");
    let text = fs::read_to_string(&sendrecv).expect("a plan");
    fs::write(&wrong, text.replace("\"sendrecv\"", "\"allreduce\"")).expect("a file");
    let cases = [
        ("allreduce_two_shot_packets_4", &["--size", "4K", "--dtype", "float32"][..], 4),
        ("sendrecv_zero_copy_2", &["--size", "1K", "--dtype", "bfloat16"], 2),
        ("reducescatter_packets_4", &["--size", "4K", "--dtype", "int32", "--in_place"], 4),
        ("wrong", &["--size", "1K"], 0),
    ];
    for (device, (plan, options, ranks)) in
        DEVICES.iter().flat_map(|device| cases.map(|case| (device, case)))
    {
        let file = repository().join("examples/plans").join(plan).with_extension("json");
        let file = if ranks == 0 { wrong.clone() } else { file };
        let mut command = machine.command(&python);
        command.args(["-m", "antiphon.executor_test", "--device", device, "-path"]).arg(file);
        command.args(options).args(["--n_iters", "5", "--n_graph_iters", "2"]);
        over_the_repository(&mut command);
        let output = command.output().expect("a Python");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let times = said.lines().filter(|line| line.contains("Execution time")).count();
        assert_eq!(
            (output.status.success(), times),
            (ranks > 0, ranks),
            "{plan} on {device}: {output:?}"
        );
    }
}
