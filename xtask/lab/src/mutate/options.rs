//! The command line of the measurement.

use super::kinds::{KINDS, kind};
use clap::Args;
use std::path::PathBuf;

/// What is mutated, and how much is run.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// What all choices are drawn from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Kinds of mutation, see --list [default: all]
    #[arg(long, value_delimiter = ',', value_parser = parse_kind)]
    pub kinds: Vec<usize>,
    /// Mutate the plans whose names have one of these texts [default: all]
    #[arg(long, value_name = "TEXT")]
    pub plans: Vec<String>,
    /// Mutants of each kind
    #[arg(long, default_value_t = 100)]
    pub per_kind: usize,
    /// Schedules that each mutant is run with
    #[arg(long, default_value_t = 200)]
    pub schedules: u32,
    /// Threads
    #[arg(long, default_value_t = 2)]
    pub jobs: usize,
    /// Write the result as JSON to the standard output
    #[arg(long)]
    pub json: bool,
    /// Write the table into the marked section of this document, relative to the repository
    #[arg(long, value_name = "PATH")]
    pub write: Option<PathBuf>,
    /// Print one mutant: its plan, and what the judges say. With --plans, numbers are other ones
    #[arg(long, value_name = "KIND:N", value_parser = parse_mutant)]
    pub show: Option<(usize, usize)>,
    /// List the kinds
    #[arg(long)]
    pub list: bool,
}

fn parse_kind(text: &str) -> Result<usize, String> {
    kind(text).ok_or_else(|| {
        let names: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        format!("cannot mutate by `{text}`: allowed {}", names.join(", "))
    })
}

fn parse_mutant(text: &str) -> Result<(usize, usize), String> {
    let (name, number) =
        text.split_once(':').ok_or("allowed a kind and a number, as drop-nop:3")?;
    let number =
        number.parse().map_err(|error| format!("cannot read number `{number}`: {error}"))?;
    Ok((parse_kind(name)?, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutants_are_named_by_kind_and_number() {
        assert_eq!(parse_mutant("drop-wait:7"), Ok((kind("drop-wait").unwrap(), 7)));
        for text in ["drop-wait", "drop-wait:x", "drop-everything:1", ":1"] {
            assert!(parse_mutant(text).is_err(), "{text}");
        }
    }
}
