//! `cargo xtask ci`: every step a change must pass, in the order in which they fail fastest.
//!
//! `.ci/run` is a thin caller of this. One target folder serves all steps; only what is installed and this task are built for release.
//! Tests that run once more are asked for as tests of the workspace, so that nothing is built again with fewer features.

mod tools;

use std::process::Command;
use std::time::Instant;

use crate::{Error, Result, repo};
use tools::*;

struct Step {
    name: &'static str,
    program: Program,
    /// [Filled](filled) when the step is run, as is the environment.
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// What the step needs beside the toolchain that runs this task.
    needs: Option<Tool>,
}

impl Step {
    /// Whether it runs a test program of the workspace. What it picks of the program's tests is taken to be right.
    fn runs(&self, program: &str) -> bool {
        let words = self.arguments;
        let picks = words.iter().any(|word| word.starts_with("--test") || *word == "--lib");
        let named = words.windows(2).any(|pair| pair == ["--test", program])
            || words.iter().any(|word| word.strip_prefix("--test=") == Some(program));
        words.starts_with(&["test", "--workspace"]) && (named || !picks)
    }
}

/// What a step starts.
#[derive(Clone, Copy, Debug)]
enum Program {
    Cargo,
    /// A program of the Python that [`PYTHON`] provides.
    Python(&'static str),
}

/// Tests at a time, of a program: many of them wait for time limits and processes, and leave the cores to others.
const SIDE_BY_SIDE: (&str, &str) = ("RUST_TEST_THREADS", "4");

/// Among them the README's own commands: what a newcomer types must work.
const STEPS: &[Step] = &[
    Step {
        name: "check the format",
        program: Program::Cargo,
        arguments: &["fmt", "--all", "--", "--check"],
        environment: &[],
        needs: None,
    },
    Step {
        name: "lint",
        program: Program::Cargo,
        arguments: &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
        environment: &[],
        needs: None,
    },
    Step {
        name: "build the documentation",
        program: Program::Cargo,
        arguments: &["doc", "--workspace", "--no-deps"],
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
        needs: None,
    },
    Step {
        name: "build the pages of the crate as docs.rs does",
        program: Program::Cargo,
        // The features are those that its manifest names for that.
        arguments: &["doc", "--package", "antiphon", "--no-deps", "--features", "cuda,half"],
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
        needs: None,
    },
    Step {
        name: "pass the tests",
        program: Program::Cargo,
        arguments: &["test", "--workspace"],
        environment: &[("INSTA_UPDATE", "no"), ("ANTIPHON_NEEDS_SIMULATOR", "1"), SIDE_BY_SIDE],
        needs: Some(CXX),
    },
    // Once more by itself: the step before it skips what needs a browser where there is none.
    Step {
        name: "click through pages of plans",
        program: Program::Cargo,
        arguments: &["test", "--workspace", "--test", "pictures"],
        environment: &[("ANTIPHON_NEEDS_BROWSER", "1")],
        needs: Some(BROWSER),
    },
    // Once more by itself, as above.
    Step {
        name: "start ranks by torchrun",
        program: Program::Cargo,
        arguments: &["test", "--workspace", "--test", "launchers", "torchrun"],
        environment: &[("ANTIPHON_NEEDS_TORCHRUN", "1")],
        needs: Some(TORCHRUN),
    },
    // Once more by itself, as above.
    Step {
        name: "use the library from C and C++",
        program: Program::Cargo,
        arguments: &["test", "--workspace", "--test", "programs", "--test", "installed"],
        environment: &[("ANTIPHON_NEEDS_C_TOOLS", "1")],
        needs: Some(C_TOOLS),
    },
    // Once more by itself: it builds the library as packages that depend on it do.
    Step {
        name: "start from an empty project",
        program: Program::Cargo,
        arguments: &["test", "--workspace", "--test", "newcomer"],
        environment: &[("ANTIPHON_NEEDS_NEWCOMER", "1")],
        needs: None,
    },
    // The steps that take the whole workspace do it with the CUDA backend, which the tests ask for.
    Step {
        name: "lint without the CUDA backend",
        program: Program::Cargo,
        arguments: &["clippy", "-p", "antiphon", "-p", "antiphon-ffi", "--", "-D", "warnings"],
        environment: &[],
        needs: None,
    },
    // Once more by itself, as above.
    Step {
        name: "use the library as NCCL",
        program: Program::Cargo,
        arguments: &[
            "test",
            "--workspace",
            "--test=calls",
            "--test=endings",
            "--test=example",
            "--test=foreign",
            "--test=forwards",
            "--test=meeting",
            "--test=names",
            "--test=registry",
            "--test=registered",
            "--test=unblocked",
            "--test=gpu_c",
        ],
        environment: &[
            ("ANTIPHON_NEEDS_NCCL_HEADER", "1"),
            ("ANTIPHON_NEEDS_SIMULATOR", "1"),
            ("VIRTUAL_ENV", "{nvrtc}"),
        ],
        needs: Some(NCCL_HEADER),
    },
    // Of what the tests have built: those that skipped for want of the compiler.
    Step {
        name: "compile for NVIDIA GPUs",
        program: Program::Cargo,
        arguments: &["test", "--workspace", "--lib", "--test", "hal_cuda", "nvrtc"],
        environment: &[("ANTIPHON_NEEDS_NVRTC", "1"), ("VIRTUAL_ENV", "{nvrtc}")],
        needs: Some(NVRTC),
    },
    // Both vendors at once. Needs no GPU: HIP is there for its headers and its run-time compiler.
    Step {
        name: "lint the ROCm backend",
        program: Program::Cargo,
        arguments: &[
            "clippy",
            "-p",
            "antiphon-hal",
            "-p",
            "antiphon",
            "-p",
            "antiphon-tests",
            "--features",
            "antiphon/rocm,antiphon/cuda,antiphon-tests/rocm",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        environment: &[],
        needs: Some(HIP),
    },
    Step {
        name: "test the ROCm backend",
        program: Program::Cargo,
        arguments: &["test", "-p", "antiphon-hal", "--features", "rocm", "--lib"],
        environment: &[("ANTIPHON_NEEDS_HIPRTC", "1")],
        needs: Some(HIP),
    },
    Step {
        name: "run the device suite and plans on the ROCm backend",
        program: Program::Cargo,
        arguments: &["test", "-pantiphon-tests", "-Frocm", "--test=hal_rocm", "--test=gpu_engine"],
        environment: &[
            ("ANTIPHON_NEEDS_SIMULATOR", "1"),
            ("ANTIPHON_TEST_BACKEND", "rocm"),
            SIDE_BY_SIDE,
        ],
        needs: Some(HIP),
    },
    // With the library of the step before. NumPy came with what stands beside NCCL's header.
    Step {
        name: "check and time plans from Python on the ROCm backend",
        program: Program::Cargo,
        arguments: &["test", "-pantiphon-tests", "-Frocm", "--test=gpu_c", "python::plans"],
        environment: &[
            ("ANTIPHON_NEEDS_SIMULATOR", "1"),
            ("ANTIPHON_NEEDS_TORCH", "1"),
            ("VIRTUAL_ENV", "{nvrtc}"),
        ],
        needs: Some(HIP),
    },
    // By the vendors' own compilers, which need no GPU.
    Step {
        name: "compile kernels",
        program: Program::Cargo,
        arguments: &["run", "--release", "-p", "xtask", "--", "gpu-compile"],
        environment: &[],
        needs: None,
    },
    // The step that lints everything does it without the library, which not every machine has.
    Step {
        name: "lint the RDMA wire",
        program: Program::Cargo,
        arguments: &[
            "clippy",
            "-p",
            "antiphon-wire-rdma",
            "-p",
            "antiphon-executor",
            "-p",
            "antiphon",
            "--features",
            "antiphon/rdma",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        environment: &[],
        needs: Some(VERBS),
    },
    Step {
        name: "test the RDMA wire",
        program: Program::Cargo,
        arguments: &["test", "-p", "antiphon-wire-rdma", "--features", "rdma"],
        environment: &[],
        needs: Some(VERBS),
    },
    // As the feature of that name of the facade has it.
    Step {
        name: "build the RDMA wire in",
        program: Program::Cargo,
        arguments: &[
            "test",
            "-p",
            "antiphon-executor",
            "--features",
            "rdma",
            "--lib",
            "ports::wires",
        ],
        environment: &[],
        needs: Some(VERBS),
    },
    Step {
        name: "build the RDMA plugin",
        program: Program::Cargo,
        arguments: &["build", "-p", "antiphon-wire-rdma", "--features", "rdma"],
        environment: &[],
        needs: Some(VERBS),
    },
    Step {
        name: "move bytes by RDMA in a virtual machine",
        program: Program::Cargo,
        arguments: &["test", "--workspace", "--test", "rdma_vm", "--test", "rdma_collectives"],
        environment: &[
            ("ANTIPHON_NEEDS_VM", "1"),
            ("ANTIPHON_VM_KERNEL", "{target}/vm"),
            ("ANTIPHON_RDMA_PLUGIN", "{target}/debug/libantiphon_wire_rdma.so"),
        ],
        needs: Some(MACHINE),
    },
    Step {
        name: "run the example plan",
        program: Program::Cargo,
        arguments: &[
            "run",
            "--release",
            "--",
            "run",
            "examples/plans/allreduce_zero_copy_4.json",
            "--size",
            "1M",
        ],
        environment: &[],
        needs: None,
    },
    Step {
        name: "break plans and see that the verifier notices",
        program: Program::Cargo,
        arguments: &["run", "--release", "-p", "xtask", "--", "mutate"],
        environment: &[],
        needs: None,
    },
    Step {
        name: "prove the example plan",
        program: Program::Cargo,
        arguments: &[
            "run",
            "--release",
            "--",
            "plan",
            "verify",
            "examples/plans/allreduce_zero_copy_4.json",
        ],
        environment: &[],
        needs: None,
    },
    Step {
        name: "simulate the example plan",
        program: Program::Cargo,
        arguments: &[
            "run",
            "--release",
            "--",
            "plan",
            "simulate",
            "examples/plans/allreduce_zero_copy_4.json",
            "-t",
            "h100x8",
        ],
        environment: &[],
        needs: None,
    },
    Step {
        name: "run the example in Rust",
        program: Program::Cargo,
        arguments: &["run", "--release", "--example", "ring_allreduce"],
        environment: &[],
        needs: None,
    },
    Step {
        name: "reduce over processes from Rust",
        program: Program::Cargo,
        arguments: &["run", "--release", "--example", "all_reduce"],
        environment: &[],
        needs: None,
    },
    Step {
        name: "serve calls by a plan and by code of one's own",
        program: Program::Cargo,
        arguments: &["run", "--release", "--example", "registry"],
        environment: &[],
        needs: None,
    },
    Step {
        name: "check the format of the Python package",
        program: Program::Cargo,
        arguments: &["fmt", "--manifest-path", "ffi/python/Cargo.toml", "--", "--check"],
        environment: &[],
        needs: None,
    },
    Step {
        name: "lint the Python package",
        program: Program::Cargo,
        arguments: &[
            "clippy",
            "--manifest-path",
            "ffi/python/Cargo.toml",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        environment: &[("CARGO_TARGET_DIR", "{target}/python-package")],
        needs: Some(PYTHON),
    },
    // By way of a wheel, as everywhere; but with the tools that are there, so that it needs no network. The library that the
    // package carries is built of what the command was.
    Step {
        name: "install the Python package",
        program: Program::Python("pip"),
        arguments: &["install", "-q", "--no-build-isolation", "--no-deps", "./ffi/python"],
        environment: &[("CARGO_TARGET_DIR", "{target}"), ("PATH", "{venv}/bin:{path}")],
        needs: Some(PYTHON),
    },
    // Once more, by the README's own command in an empty environment: pip fetches what it builds with, and NumPy.
    Step {
        name: "install the Python package as the README says",
        program: Program::Python("pytest"),
        arguments: &["-q", "ffi/python/tests/test_install.py"],
        environment: &[("CARGO_TARGET_DIR", "{target}"), ("ANTIPHON_NEEDS_INSTALL", "1")],
        needs: Some(PYTHON),
    },
    Step {
        name: "check the types of the Python package",
        program: Program::Python("mypy"),
        arguments: &["--config-file", "ffi/python/pyproject.toml", "--cache-dir", "{target}/mypy"],
        environment: &[("MYPYPATH", "ffi/python")],
        needs: Some(PYTHON),
    },
    // Of the installed package.
    Step {
        name: "hold the Python stubs against the compiled half",
        program: Program::Python("stubtest"),
        arguments: &[
            "antiphon._native",
            "--mypy-config-file",
            "ffi/python/pyproject.toml",
            "--allowlist",
            "ffi/python/stubtest.txt",
            "--concise",
        ],
        environment: &[],
        needs: Some(PYTHON),
    },
    Step {
        name: "pass the tests of the Python package",
        program: Program::Python("pytest"),
        arguments: &["-q", "-rs", "ffi/python/tests", "--ignore=ffi/python/tests/test_torch.py"],
        environment: &[
            ("ANTIPHON_COMMAND", "{target}/release/antiphon"),
            ("ANTIPHON_NEEDS_C_TOOLS", "1"),
        ],
        needs: Some(PYTHON),
    },
    Step {
        name: "hold the table of presets against the simulator",
        program: Program::Cargo,
        arguments: &["run", "--release", "-p", "xtask", "--", "defaults", "--presets", "--check"],
        environment: &[("ANTIPHON_PYTHON", "{venv}/bin/python")],
        needs: Some(PYTHON),
    },
    Step {
        name: "train over processes by torch",
        program: Program::Python("pytest"),
        arguments: &["-q", "ffi/python/tests/test_torch.py"],
        environment: &[("ANTIPHON_NEEDS_TORCH", "1")],
        // Debian's torch comes with it.
        needs: Some(TORCHRUN),
    },
    Step {
        name: "train over processes by PyTorch 2",
        program: Program::Python("pytest"),
        arguments: &["-q", "ffi/python/tests/test_torch.py"],
        environment: &[("ANTIPHON_NEEDS_TORCH", "1"), ("ANTIPHON_TORCH_PYTHON", "{torch}/python")],
        needs: Some(TORCH),
    },
    Step {
        name: "use simulated GPUs from Python, and by torch",
        program: Program::Cargo,
        arguments: &["test", "--workspace", "--test", "gpu_c", "python::"],
        environment: &[("ANTIPHON_NEEDS_TORCH", "1"), ("ANTIPHON_NEEDS_SIMULATOR", "1")],
        needs: Some(TORCHRUN),
    },
    Step {
        name: "run the example in Python",
        program: Program::Cargo,
        arguments: &[
            "run",
            "--release",
            "--",
            "run",
            "examples/dsl/ring_allreduce.py",
            "--size",
            "1M",
        ],
        environment: &[("ANTIPHON_PYTHON", "{venv}/bin/python")],
        needs: Some(PYTHON),
    },
    Step {
        name: "feed the parsers what they do not expect",
        program: Program::Cargo,
        arguments: &["run", "--release", "-p", "xtask", "--", "fuzz"],
        environment: &[],
        needs: Some(CXX),
    },
    Step {
        name: "explore the lock-free protocols",
        program: Program::Cargo,
        arguments: &[
            "test",
            "-p",
            "antiphon-executor",
            "-p",
            "antiphon-port",
            "--test",
            "loom_protocols",
            "--release",
        ],
        environment: &[("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", "target/loom")],
        needs: None,
    },
    Step {
        name: "interpret shared memory's layout with Miri",
        program: Program::Cargo,
        arguments: &["+nightly", "miri", "test", "-p", "antiphon-executor", "--lib", "shared::"],
        environment: &[("CARGO_TARGET_DIR", "target/miri")],
        needs: Some(MIRI),
    },
    Step {
        name: "run with the address sanitizer",
        program: Program::Cargo,
        arguments: &[
            "+nightly",
            "test",
            // Examples in documentation would have to be linked by other means.
            "--lib",
            "--tests",
            "--target",
            "x86_64-unknown-linux-gnu",
            "-p",
            "antiphon-hal",
            "-p",
            "antiphon-bootstrap",
            "-p",
            "antiphon-memory",
            "-p",
            "antiphon-port",
            "-p",
            "antiphon-executor",
            "-p",
            "antiphon-tests",
        ],
        environment: &[
            ("RUSTFLAGS", "-Zsanitizer=address"),
            ("CARGO_TARGET_DIR", "target/asan"),
            ("INSTA_UPDATE", "no"),
            SIDE_BY_SIDE,
            // Whose kernels' threads have stacks of their own, which the sanitizer does not follow.
            ("ANTIPHON_TEST_WITHOUT_SIMULATOR", "the address sanitizer"),
        ],
        needs: Some(NIGHTLY),
    },
];

/// Runs all steps, or those whose name has the text `only`, with their own output; stops at the first that fails and
/// names it.
///
/// # Errors
/// A step that failed, and a text that no step's name has.
pub fn run(only: Option<&str>) -> Result<()> {
    let only = only.unwrap_or_default();
    let steps: Vec<_> = STEPS.iter().filter(|step| step.name.contains(only)).collect();
    if steps.is_empty() {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        return Err(Error::message(format!(
            "cannot run steps named `{only}`: there are {}",
            names.join(", ")
        )));
    }
    for step in steps {
        if let Some(tool) = step.needs
            && let Err(why) = provide(tool)
        {
            if tool.installable {
                return Err(why);
            }
            println!("==> {}: SKIP, {} is not to be had here: {why}", step.name, tool.name);
            continue;
        }
        let started = Instant::now();
        let mut command = command(step);
        println!("==> {}: {}", step.name, repo::line(&command));
        repo::stream(step.name, &mut command)?;
        println!("==> {}: ok, {:.0} s", step.name, started.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Whether a step runs a test program with a variable set, which has the program fail where it would skip.
pub(crate) fn insists(program: &str, variable: &str) -> bool {
    let sets = |step: &Step| step.environment.iter().any(|(name, _)| *name == variable);
    STEPS.iter().any(|step| step.runs(program) && sets(step))
}

/// Sees to it that a tool is there, or says why it cannot be.
fn provide(tool: Tool) -> Result<()> {
    let run = |words: &[&str]| {
        let (program, arguments) = words.split_first().unwrap_or((&"true", &[]));
        let arguments = arguments.iter().map(|word| filled(word));
        repo::capture(tool.name, repo::outside(&filled(program)).args(arguments)).map(drop)
    };
    run(tool.probe).or_else(|_| run(tool.install).and_then(|()| run(tool.probe)))
}

fn command(step: &Step) -> Command {
    // `cargo +toolchain` is understood by the launcher of toolchains, not by a toolchain's own cargo.
    let launcher = step.arguments.first().is_some_and(|first| first.starts_with('+'));
    let mut command = match step.program {
        Program::Cargo if launcher => repo::outside("cargo"),
        Program::Cargo => repo::cargo(),
        Program::Python(name) => repo::outside(&filled(&format!("{{venv}}/bin/{name}"))),
    };
    let environment = step.environment.iter().map(|(name, value)| (name, filled(value)));
    command.args(step.arguments.iter().map(|word| filled(word))).envs(environment);
    command
}

/// A word of a command line: `{target}` is where cargo builds, `{venv}` the Python of [`PYTHON`], `{nvrtc}` that of
/// [`NVRTC`], `{torch}` where [`TORCH`] is, `{path}` where programs are looked for.
fn filled(word: &str) -> String {
    let target = repo::target_dir().to_string_lossy().into_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    word.replace("{venv}", "{target}/python")
        .replace("{nvrtc}", "{target}/nvrtc")
        .replace("{torch}", "{target}/torch")
        .replace("{target}", &target)
        .replace("{path}", &path)
}
