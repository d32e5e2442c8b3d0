//! The choice of mutants: distinct ones, of every kind, from all plans alike.

use super::cases::{self, Call};
use super::kinds::KINDS;
use super::plans::Base;
use super::random::Random;
use antiphon::plan::model::Plan;
use antiphon::plan::program::Layout;
use std::collections::{HashSet, VecDeque};

/// A changed plan that can be run.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// Position in [`KINDS`].
    pub kind: usize,
    /// Its number among the chosen mutants of its kind, from 0.
    pub number: usize,
    /// The name of the plan that was changed.
    pub base: String,
    /// The change.
    pub what: String,
    /// The changed plan.
    pub plan: Plan,
}

/// What was chosen.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The mutants, kind by kind.
    pub mutants: Vec<Mutant>,
    /// By kind, how many changed plans were refused before they could run: by the checks, by lowering, or because no call
    /// of theirs fits.
    pub refused: Vec<usize>,
}

/// Chooses up to `per_kind` mutants of every kind. The plans take turns, in an order that the seed decides, so that large
/// ones, which can be changed in more places, do not crowd out small ones. No two mutants are equal, and none equals a plan.
pub fn choose(plans: &[Base], per_kind: usize, seed: u64) -> Choice {
    let mut known: HashSet<Plan> = plans.iter().map(|base| nameless(&base.plan)).collect();
    let calls: Vec<_> = plans.iter().map(|base| cases::calls(&base.plan)).collect();
    let mut choice = Choice::default();
    for (number, kind) in KINDS.iter().enumerate() {
        let mut queues: VecDeque<_> = plans
            .iter()
            .zip(&calls)
            .map(|(base, calls)| {
                let mut edits = (kind.edits)(&base.plan);
                Random::new(seed, &[kind.name, &base.name]).shuffle(&mut edits);
                (base, calls, edits)
            })
            .filter(|(_, _, edits)| !edits.is_empty())
            .collect();
        Random::new(seed, &[kind.name]).shuffle(queues.make_contiguous());
        let (mut found, mut refused) = (0, 0);
        while found < per_kind
            && let Some((base, calls, mut edits)) = queues.pop_front()
        {
            // A plan's turn ends with a mutant, or when it has no more.
            while let Some(edit) = edits.pop() {
                let Some(plan) = edit.apply(&base.plan) else { continue };
                if known.contains(&nameless(&plan)) {
                    continue;
                }
                if !runs(&plan, calls) {
                    refused += 1;
                    continue;
                }
                known.insert(nameless(&plan));
                let what = edit.what;
                choice.mutants.push(Mutant {
                    kind: number,
                    number: found,
                    base: base.name.clone(),
                    what,
                    plan,
                });
                found += 1;
                queues.push_back((base, calls, edits));
                break;
            }
        }
        choice.refused.push(refused);
    }
    choice
}

/// The plan without its name, which is no part of what it does.
fn nameless(plan: &Plan) -> Plan {
    Plan { name: String::new(), ..plan.clone() }
}

/// Whether a plan passes the checks and lowers, and can be called as one of `calls`.
fn runs(plan: &Plan, calls: &[Call]) -> bool {
    antiphon::plan::check(plan).is_ok()
        && Layout::new(plan).is_ok_and(|layout| calls.iter().any(|call| call.fits(&layout)))
}

#[cfg(test)]
mod tests {
    use super::super::plans;
    use super::*;

    #[test]
    fn there_are_enough_mutants_of_every_kind() {
        let mut plans = plans::all(&[], &mut |_| {}).unwrap();
        // Those of another implementation are not everywhere.
        let foreign = |name: &str| name.ends_with(".json") && !name.starts_with("examples/");
        plans.retain(|base| !foreign(&base.name));
        let Choice { mutants, refused } = choose(&plans, 50, 1);
        let mut counts = vec![0; KINDS.len()];
        mutants.iter().for_each(|mutant| counts[mutant.kind] += 1);
        for ((kind, count), refused) in KINDS.iter().zip(&counts).zip(&refused) {
            println!("{:>20} {count} and {refused} refused", kind.name);
        }
        assert!(counts.iter().all(|&count| count == 50), "{counts:?}");
        let distinct: HashSet<_> = mutants.iter().map(|mutant| nameless(&mutant.plan)).collect();
        assert_eq!(distinct.len(), mutants.len());
    }

    #[test]
    fn the_same_seed_chooses_the_same() {
        let plans = plans::all(&["staged Put of 2".to_owned()], &mut |_| {}).unwrap();
        let what = |seed| {
            let mutants = choose(&plans, 5, seed).mutants;
            mutants.into_iter().map(|mutant| mutant.what).collect::<Vec<_>>()
        };
        assert_eq!(what(7), what(7));
        assert_ne!(what(7), what(8));
    }
}
