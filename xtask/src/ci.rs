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
}

/// The last two are the README's own commands: what a newcomer types must work.
const STEPS: &[Step] = &[
    Step {
        name: "check the format",
        arguments: &["fmt", "--all", "--", "--check"],
        environment: &[],
    },
    Step {
        name: "lint",
        arguments: &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
        environment: &[],
    },
    Step {
        name: "build the documentation",
        arguments: &["doc", "--workspace", "--no-deps"],
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
    },
    Step {
        name: "pass the tests",
        arguments: &["test", "--workspace"],
        environment: &[("INSTA_UPDATE", "no")],
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
    },
];

/// Runs all steps with their own output; stops at the first that fails and names it.
pub fn run() -> Result<()> {
    for step in STEPS {
        let started = Instant::now();
        let mut command = command(step);
        println!("==> {}: {}", step.name, repo::line(&command));
        repo::stream(step.name, &mut command)?;
        println!("==> {}: ok, {:.0} s", step.name, started.elapsed().as_secs_f64());
    }
    Ok(())
}

fn command(step: &Step) -> Command {
    let mut command = repo::cargo();
    command.args(step.arguments).envs(step.environment.iter().copied());
    command
}
