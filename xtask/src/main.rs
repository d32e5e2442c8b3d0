//! The command line of the developer tasks.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{Error, Result, ci, first_steps, fuzz, install, lab, repo, tidy};

/// Developer tasks of the workspace
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    after_help = lab::help()
)]
struct Line {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run everything that a change must pass
    Ci {
        /// Run only the steps whose name has this text
        only: Option<String>,
    },
    /// Check the rules of the repository that no compiler checks
    Tidy,
    /// Feed the parsers of plans and of the network what they do not expect
    Fuzz(fuzz::Options),
    /// Build and install the C library, its header, and the command
    Install(install::Options),
    /// Measure how long the README's ways in take from an empty clone
    FirstSteps(first_steps::Options),
    /// One of the tasks that have the library
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

fn run(task: &Task) -> Result<ExitCode> {
    let done = match task {
        Task::Ci { only } => ci::run(only.as_deref()),
        Task::Tidy => {
            let faults = tidy::check(&repo::root())?;
            faults.iter().for_each(|fault| println!("{fault}"));
            match faults.len() {
                0 => Ok(()),
                n => Err(Error::message(format!(
                    "the repository is not tidy: {n} faults, listed above"
                ))),
            }
        }
        Task::Fuzz(options) => fuzz::run(options),
        Task::Install(options) => install::run(options),
        Task::FirstSteps(options) => first_steps::run(options),
        Task::Other(words) => return lab::run(words),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    match run(&Line::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
