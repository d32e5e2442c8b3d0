//! `cargo xtask mutate`: how good the verifier is, measured with plans that were broken on purpose.
//!
//! Right plans ([`plans`]) are changed a little in every place where a kind of mutation ([`kinds`]) applies; some of the
//! mutants are chosen ([`choose`]) and put before the judges ([`mod@judge`]): the controlled engine runs each with many
//! schedules, the verifier proves it or gives counterexamples, and the engine plays those. Where the engine shows a fault,
//! the verifier must find one; where it refutes a plan, its counterexample must show.
//!
//! Everything is drawn from one seed, so that a mutant is found again by its kind and number.

pub mod cases;
pub mod choose;
pub mod edit;
pub mod judge;
pub mod kinds;
pub mod measure;
pub mod options;
pub mod plans;
pub mod random;
pub mod report;
pub mod show;

use crate::{Error, Result, section};
use choose::{Choice, Mutant};
use judge::{Judgement, Said};
use kinds::KINDS;
use measure::Effort;
use options::Options;
use plans::Base;
use report::Summary;
use std::time::{Duration, Instant};

/// Fewest mutants of a kind, and of all kinds, for a measurement that counts.
const LEAST: (usize, usize) = (50, 2000);

/// Runs the measurement.
///
/// # Errors
/// Plans that cannot be read, a report that cannot be written; and a full measurement in which the verifier misses a fault,
/// gives a false alarm or more than one in a hundred counterexamples that show nothing, or that has too few mutants.
pub fn run(options: &Options) -> Result<()> {
    if options.list {
        KINDS.iter().for_each(|kind| println!("{:>20}  {}", kind.name, kind.what));
        return Ok(());
    }
    let start = Instant::now();
    let effort = Effort { schedules: options.schedules, seed: options.seed, jobs: options.jobs };
    let note = &mut |text: String| eprintln!("{text}");
    note(format!("seed {}", options.seed));
    let plans = right(plans::all(&options.plans, note)?, effort, note)?;
    let Choice { mut mutants, refused } = choose::choose(&plans, options.per_kind, options.seed);
    let kinds = match &options.kinds[..] {
        [] => (0..KINDS.len()).collect(),
        chosen => chosen.to_vec(),
    };
    match options.show {
        Some(wanted) => mutants.retain(|mutant| (mutant.kind, mutant.number) == wanted),
        None => mutants.retain(|mutant| kinds.contains(&mutant.kind)),
    }
    note(format!("{} mutants of {} plans", mutants.len(), plans.len()));
    let progress = |done: usize| {
        if done.is_multiple_of(100) {
            eprintln!("{done} of {} mutants, {:.0?}", mutants.len(), start.elapsed());
        }
    };
    let judgements = measure::mutants(&mutants, &plans, effort, &progress);
    if options.show.is_some() {
        let (Some(mutant), Some(judgement)) = (mutants.first(), judgements.first()) else {
            return Err(Error::message(
                "cannot show the mutant: there are not so many of its kind",
            ));
        };
        println!("{}", show::show(mutant, judgement)?);
        return Ok(());
    }
    let summary = Summary {
        mutants: &mutants,
        judgements: &judgements,
        refused: &refused,
        kinds,
        seed: options.seed,
        schedules: options.schedules,
        plans: plans.len(),
    };
    if options.json {
        println!("{:#}", summary.json());
    } else {
        println!("{}", summary.table());
        summary.oddities().iter().for_each(|odd| println!("{odd}"));
    }
    note(summary.unconfirmed());
    note(slowest(&mutants, &judgements));
    note(format!("all in {:.0?}", start.elapsed()));
    if let Some(path) = &options.write {
        section::write(path, "mutate", &summary.table())?;
    }
    verdict(options, &summary)
}

/// The plans that no judge finds a fault in; the others are named and left out.
fn right(plans: Vec<Base>, effort: Effort, note: &mut impl FnMut(String)) -> Result<Vec<Base>> {
    let judgements = measure::bases(&plans, effort, &|_| {});
    let mut right = Vec::new();
    for (base, judgement) in plans.into_iter().zip(judgements) {
        let name = &base.name;
        if let Some((case, schedule)) = &judgement.shown {
            note(format!("{name}: left out, {schedule:?} of {case:?} shows a fault"));
        }
        match &judgement.said {
            Said::Refuted(all) => {
                let first = all.first().map(|(of, replay)| format!("{} ({replay:?})", of.fault));
                let count = all.len();
                note(format!(
                    "{name}: left out, {count} refutations: {}",
                    first.unwrap_or_default()
                ));
            }
            Said::NotProven(reasons) => note(format!("{name}: not proven: {}", reasons.join("; "))),
            Said::Proven(_) => {}
        }
        judgement.broken.iter().for_each(|broken| note(format!("{name}: {broken}")));
        let flagged = matches!(judgement.said, Said::Refuted(_));
        if judgement.shown.is_none() && !flagged && judgement.broken.is_empty() {
            right.push(base);
        }
    }
    if right.is_empty() {
        return Err(Error::message("cannot mutate anything: no plan is right, see above"));
    }
    Ok(right)
}

/// The longest that the verifier took.
fn slowest(mutants: &[Mutant], judgements: &[Judgement]) -> String {
    let all = mutants.iter().zip(judgements).max_by_key(|(_, judgement)| judgement.time);
    let total: Duration = judgements.iter().map(|judgement| judgement.time).sum();
    match all {
        None => "no mutants".to_owned(),
        Some((mutant, judgement)) => format!(
            "the verifier took {total:.1?}, of which {:.1?} for {}:{} of {}",
            judgement.time, KINDS[mutant.kind].name, mutant.number, mutant.base
        ),
    }
}

/// Whether the verifier is good enough, as far as was measured.
fn verdict(options: &Options, summary: &Summary<'_>) -> Result<()> {
    let mut faults = summary.total().faults();
    let full = options.kinds.is_empty() && options.plans.is_empty();
    let (least, all) = LEAST;
    if full && summary.mutants.len() < all {
        faults.push(format!("there are {} mutants, allowed {all} or more", summary.mutants.len()));
    }
    for (kind, row) in summary.rows().into_iter().filter(|(_, row)| full && row.mutants < least) {
        let (name, count) = (KINDS[kind].name, row.mutants);
        faults.push(format!("there are {count} mutants of kind {name}, allowed {least} or more"));
    }
    match &faults[..] {
        [] => Ok(()),
        faults => {
            Err(Error::message(format!("cannot call the verifier good: {}", faults.join("; "))))
        }
    }
}
