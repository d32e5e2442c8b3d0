//! `plan verify`: proofs and counterexamples for people, and as JSON for programs.

use super::error::{list, print_line};
use super::verify_json::{Document, Entry};
use super::{CliError, plans};
use antiphon::plan::model::Plan;
use antiphon::plan::program::Layout;
use antiphon::plan::verify::{Options, Report, verify as prove};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit status where there is no verdict: the file is not there, is no plan, or is one that nothing could run.
pub const UNREADABLE: u8 = 3;

/// What came of a file.
pub enum Outcome {
    /// A verdict on its plan.
    Verified(Box<(Plan, Report)>),
    /// Why there is none.
    Unreadable(String),
}

/// Verifies plans, one after the other, and exits with the worst status.
pub fn verify(files: &[PathBuf], json: bool, results: bool) -> Result<ExitCode, CliError> {
    let mut worst = 0;
    let mut entries = Vec::new();
    for path in files {
        let file = path.display().to_string();
        let outcome = outcome(path, Options { results, ..Options::default() });
        worst = worse(worst, outcome.status());
        match &outcome {
            _ if json => entries.push(Entry::new(file, &outcome)),
            Outcome::Verified(verified) => print_line(&format!("{file}: {}", verified.1))?,
            Outcome::Unreadable(error) => eprintln!("error: {error}"),
        }
    }
    if json {
        let text = serde_json::to_string(&Document { status: worst, plans: entries })
            .map_err(|error| CliError::Executor(format!("cannot write JSON: {error}")))?;
        print_line(&text)?;
    }
    Ok(ExitCode::from(worst))
}

impl Outcome {
    /// The exit status for a file alone.
    pub fn status(&self) -> u8 {
        match self {
            Outcome::Verified(verified) => verified.1.status(),
            Outcome::Unreadable(_) => UNREADABLE,
        }
    }
}

fn outcome(path: &Path, options: Options) -> Outcome {
    let cannot =
        |why: &str| Outcome::Unreadable(format!("cannot verify {}: {why}", path.display()));
    let plan = match plans::load(path) {
        Ok(read) => read.plan,
        Err(error) => return Outcome::Unreadable(error.to_string()),
    };
    let faults = plans::faults(&plan);
    if !faults.is_empty() {
        return cannot(&format!("it has {}", list(&faults)));
    }
    match Layout::new(&plan) {
        Ok(layout) => {
            let report = prove(&plan, &layout, options);
            Outcome::Verified(Box::new((plan, report)))
        }
        Err(error) => cannot(&error.to_string()),
    }
}

/// The worse of two statuses: nothing is known, then refuted, then not proven, then proven.
fn worse(one: u8, other: u8) -> u8 {
    let rank = |status| [0, 2, 1, UNREADABLE].iter().position(|&known| known == status);
    if rank(one) >= rank(other) { one } else { other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refutation_is_worse_than_a_missing_proof_and_no_verdict_is_worst() {
        for (one, other, expected) in
            [(0, 0, 0), (0, 2, 2), (2, 1, 1), (1, 3, 3), (2, 3, 3), (0, 1, 1)]
        {
            assert_eq!((worse(one, other), worse(other, one)), (expected, expected));
        }
    }
}
