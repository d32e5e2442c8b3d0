//! Right plans, run as one rank: what is wrong with them.

use super::case::{Case, Outcome};
use super::plans::{Entry, INDIVISIBLE, TINY, Verdict, entries, whole_chunks};
use antiphon::executor::{Communicator, ExecutorError};
use antiphon::plan::model::{Collective, Plan};

/// The plans that must give the right result.
pub fn right() -> impl Iterator<Item = Entry> {
    let right = |entry: &Entry| matches!(entry.verdict, Verdict::Ok | Verdict::Unknown);
    entries().into_iter().filter(right)
}

/// Runs cases as this rank by `run`, each with what is special about its size; what is wrong. A size that the plan may refuse
/// runs with [`whole_chunks`].
pub fn run_cases<'a>(
    rank: u32,
    cases: impl IntoIterator<Item = (&'static str, Case<'a>)>,
    run: impl Fn(&Case<'a>) -> Result<Outcome, ExecutorError>,
) -> Vec<String> {
    let mut failures = Vec::new();
    for (what, case) in cases {
        let mut outcome = run(&case);
        if outcome.as_ref().is_err_and(|error| may_refuse(case.plan, what, error)) {
            let size = case.dtype.size() as u64;
            let elements = case.buffers.input.max(case.buffers.output) / size;
            outcome = run(&Case { buffers: whole_chunks(case.plan, elements, size), ..case });
        }
        match outcome {
            Ok(outcome) => failures.extend(outcome.wrong.map(|text| format!("{text} ({what})"))),
            Err(error) => {
                failures.push(format!("rank {rank}: {error}; {case} ({what})"));
                // The communicator is of no more use.
                break;
            }
        }
    }
    failures
}

/// Whether a plan may refuse a size: one that combines chunks with each other, where they would differ in length. Plans with
/// a post-condition never do.
fn may_refuse(plan: &Plan, what: &str, error: &ExecutorError) -> bool {
    plan.collective == Collective::Test
        && [INDIVISIBLE, TINY].contains(&what)
        && matches!(error, ExecutorError::Lower { .. })
        && error.to_string().contains("use sizes that divide evenly")
}

/// Runs those of the plans that are for as many ranks as `all` has, as one of them: each by `run`, which says what is wrong,
/// over a communicator of its own, so that a plan that breaks it does not keep the others from running.
///
/// # Panics
/// With what is wrong.
pub fn run_plans(
    all: &Communicator,
    plans: impl Iterator<Item = Entry>,
    mut run: impl FnMut(&Communicator, &Entry) -> Vec<String>,
) {
    let mut failures = Vec::new();
    for entry in plans.filter(|entry| entry.ranks() == all.world()) {
        let own = all.split(Some(0), all.rank()).unwrap().expect("a rank of the group");
        failures.extend(run(&own, &entry));
    }
    report(&failures);
}

/// Fails with what is wrong, if anything is.
///
/// # Panics
/// Then.
pub fn report(failures: &[String]) {
    let shown: Vec<&str> = failures.iter().map(String::as_str).take(40).collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), shown.join("\n"));
}
