//! `cargo xtask ci`: every step a change must pass, in the order in which they fail fastest.
//!
//! `.ci/run` is a thin caller of this. One target folder serves all steps; only the command itself is built for release.

use std::process::Command;
use std::time::Instant;

use crate::{Result, repo};

struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// What the step needs beside the toolchain that runs this task.
    needs: Option<Tool>,
}

/// A tool that some machines lack.
#[derive(Clone, Copy, Debug)]
struct Tool {
    name: &'static str,
    /// Installs it; succeeds where it is there already.
    install: &'static [&'static str],
    /// Succeeds where it is there.
    probe: &'static [&'static str],
}

const NIGHTLY: Tool = Tool {
    name: "a nightly toolchain",
    install: &["rustup", "toolchain", "install", "nightly", "--profile", "minimal"],
    probe: &["cargo", "+nightly", "--version"],
};

const MIRI: Tool = Tool {
    name: "Miri",
    install: &["rustup", "component", "add", "miri", "rust-src", "--toolchain", "nightly"],
    probe: &["cargo", "+nightly", "miri", "--version"],
};

/// Among them the README's own two commands: what a newcomer types must work.
const STEPS: &[Step] = &[
    Step {
        name: "check the format",
        arguments: &["fmt", "--all", "--", "--check"],
        environment: &[],
        needs: None,
    },
    Step {
        name: "lint",
        arguments: &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
        environment: &[],
        needs: None,
    },
    Step {
        name: "build the documentation",
        arguments: &["doc", "--workspace", "--no-deps"],
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
        needs: None,
    },
    Step {
        name: "pass the tests",
        arguments: &["test", "--workspace"],
        environment: &[("INSTA_UPDATE", "no")],
        needs: None,
    },
    Step {
        name: "run the example plan",
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
        name: "check the fuzz targets",
        arguments: &["check", "--manifest-path", "plan/fuzz/Cargo.toml"],
        environment: &[("CARGO_TARGET_DIR", "target/fuzz")],
        needs: None,
    },
    Step {
        name: "explore the lock-free protocols",
        arguments: &["test", "-p", "antiphon-executor", "--test", "loom_protocols", "--release"],
        environment: &[("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", "target/loom")],
        needs: None,
    },
    Step {
        name: "interpret shared memory's layout with Miri",
        arguments: &["+nightly", "miri", "test", "-p", "antiphon-executor", "--lib", "shared::"],
        environment: &[("CARGO_TARGET_DIR", "target/miri")],
        needs: Some(MIRI),
    },
    Step {
        name: "run with the address sanitizer",
        arguments: &[
            "+nightly",
            "test",
            "--target",
            "x86_64-unknown-linux-gnu",
            "-p",
            "antiphon-hal",
            "-p",
            "antiphon-bootstrap",
            "-p",
            "antiphon-memory",
            "-p",
            "antiphon-executor",
            "-p",
            "antiphon-tests",
        ],
        environment: &[
            ("RUSTFLAGS", "-Zsanitizer=address"),
            ("CARGO_TARGET_DIR", "target/asan"),
            ("INSTA_UPDATE", "no"),
        ],
        needs: Some(NIGHTLY),
    },
];

/// Runs all steps with their own output; stops at the first that fails and names it.
pub fn run() -> Result<()> {
    for step in STEPS {
        if let Some(tool) = step.needs
            && let Err(why) = provide(tool)
        {
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

/// Sees to it that a tool is there, or says why it cannot be.
fn provide(tool: Tool) -> Result<()> {
    let run = |words: &[&str]| {
        let (program, arguments) = words.split_first().unwrap_or((&"true", &[]));
        repo::capture(tool.name, repo::outside(program).args(arguments)).map(drop)
    };
    run(tool.probe).or_else(|_| run(tool.install).and_then(|()| run(tool.probe)))
}

fn command(step: &Step) -> Command {
    // `cargo +toolchain` is understood by the launcher of toolchains, not by a toolchain's own cargo.
    let launcher = step.arguments.first().is_some_and(|first| first.starts_with('+'));
    let mut command = if launcher { repo::outside("cargo") } else { repo::cargo() };
    command.args(step.arguments).envs(step.environment.iter().copied());
    command
}
