//! The default plans as files: the built-in algorithms, for whoever runs plans from files or wants one to begin with. They
//! serve no call by themselves: the built-in algorithms do that.

use super::InstallError;
use crate::error::ExecutorError;
use crate::selection::{Selected, Spread, Wish, candidates};
use antiphon_plan::algorithms::{Algorithm, Rooted};
use antiphon_plan::model::{Collective, Plan};
use antiphon_plan::{Style, write};
use std::path::{Path, PathBuf};

/// The most ranks that default plans are written for: if all ranks talk to each other, a plan grows with the square of their
/// number, and for many more it would take gigabytes.
const MOST_RANKS: u32 = 1024;

/// What the default plans for some ranks are made from: every built-in algorithm of the host, with rank 0 as the root where there
/// is one.
///
/// # Errors
/// For too many ranks, and for ranks that are not spread evenly over their nodes.
fn algorithms(spread: Spread) -> Result<Vec<Selected>, ExecutorError> {
    if spread.ranks > MOST_RANKS {
        const { assert!(MOST_RANKS == 1024, "the text below says so") };
        return Err(ExecutorError::Argument {
            what: "write default plans",
            saw: format!("{} ranks", spread.ranks),
            allowed: "up to 1024",
        });
    }
    let mut collectives: Vec<Collective> = Vec::new();
    let sized = Algorithm::ALL.into_iter().map(Algorithm::collective);
    let rooted = Rooted::ALL.into_iter().map(Rooted::collective);
    // Over several nodes, transfers serve calls of these.
    let near = [Collective::AllToAllV, Collective::AllGatherV];
    let near = near.into_iter().filter(|_| spread.nodes == 1);
    for collective in sized.chain(rooted).chain(near) {
        if !collectives.contains(&collective) {
            collectives.push(collective);
        }
    }
    // Some algorithms serve several collectives.
    let mut known: Vec<Selected> = Vec::new();
    for collective in &collectives {
        for in_place in [false, true] {
            let wish = Wish { collective, bytes: 0, in_place, root: 0 };
            for selected in candidates(spread, wish)? {
                // Most are right both in place and out of place, and the same for both.
                if !known.contains(&selected) {
                    known.push(selected);
                }
            }
        }
    }
    Ok(known)
}

/// The default plan that an algorithm gives.
///
/// # Errors
/// What keeps the plan from being made.
fn plan(selected: Selected, spread: Spread) -> Result<Plan, ExecutorError> {
    let plan = selected.plan()?;
    let name = name(selected.name(), spread, plan.in_place);
    Ok(Plan { name, ..plan })
}

/// The algorithm, and what its plan is written for.
fn name(algorithm: &str, spread: Spread, in_place: bool) -> String {
    let Spread { ranks, nodes, crowded, .. } = spread;
    let mut name = format!("{algorithm}_{ranks}ranks");
    if nodes > 1 {
        name.push_str(&format!("_{nodes}nodes"));
    }
    if crowded {
        name.push_str("_shared_cores");
    }
    if in_place {
        name.push_str("_in_place");
    }
    name
}

/// Writes the default plans for some ranks into a folder, each into a file of its name, replacing what is there. Returns the
/// files, in order.
///
/// # Errors
/// As [`algorithms`]; and for a file that cannot be written, after those before it were.
pub(super) fn install(folder: &Path, spread: Spread) -> Result<Vec<PathBuf>, InstallError> {
    let mut written = Vec::new();
    for selected in algorithms(spread)? {
        // Plans are made one at a time: together, those for many ranks would take gigabytes.
        let plan = plan(selected, spread)?;
        let mut bytes = Vec::new();
        write(&plan, Style::Compact, &mut bytes).expect("writing to memory does not fail");
        let path = folder.join(format!("{}.json", plan.name));
        match antiphon_hal::replace_file(&path, &bytes) {
            Ok(()) => written.push(path),
            Err(source) => return Err(InstallError::File { path, source }),
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::Devices;
    use antiphon_plan::algorithms::SumOrder;
    use std::collections::BTreeSet;

    #[test]
    fn every_built_in_algorithm_of_the_host_is_a_default_plan_of_its_own_name() {
        for (ranks, nodes, crowded) in [(1, 1, false), (2, 1, false), (4, 1, true), (4, 2, false)] {
            let spread = Spread { ranks, nodes, crowded, devices: Devices::Host };
            let algorithms = algorithms(spread).unwrap().into_iter();
            let plans: Vec<Plan> = algorithms.map(|one| plan(one, spread).unwrap()).collect();
            let names: BTreeSet<&str> = plans.iter().map(|plan| plan.name.as_str()).collect();
            assert_eq!(names.len(), plans.len());
            for algorithm in Algorithm::ALL {
                // A switch is for devices.
                let host = algorithm.sum_order() != SumOrder::Hardware;
                if algorithm.is_hierarchical() != (nodes > 1) || !host {
                    continue;
                }
                let begins = format!("{}_{ranks}ranks", algorithm.name());
                assert!(names.iter().any(|name| name.starts_with(&begins)), "{begins}: {names:?}");
            }
            for near in ["alltoallv_zero_copy", "gather_packets_", "scatter_zero_copy_"] {
                let there = names.iter().any(|name| name.starts_with(near));
                assert_eq!(there, nodes == 1, "{near}: {names:?}");
            }
            for one in Rooted::ALL.into_iter().filter(|one| one.is_hierarchical()) {
                let there = names.iter().any(|name| name.starts_with(one.name()));
                assert_eq!(there, nodes > 1, "{one}: {names:?}");
            }
            for plan in &plans {
                antiphon_plan::check(plan).unwrap();
                assert_eq!(plan.gpus.len(), ranks as usize, "{}", plan.name);
            }
        }
        let spread = Spread { ranks: 3, nodes: 2, crowded: false, devices: Devices::Host };
        assert!(algorithms(spread).is_err());
    }

    #[test]
    fn more_ranks_than_plans_are_written_for_are_refused_at_once() {
        for ranks in [MOST_RANKS + 1, u32::MAX] {
            let spread = Spread { ranks, nodes: 1, crowded: true, devices: Devices::Host };
            let text = algorithms(spread).unwrap_err().to_string();
            assert!(text.contains(&ranks.to_string()) && text.contains("1024"), "{text}");
        }
    }
}
