//! The plans that are mutated: right ones, as small as they can be while they use everything the format has.
//!
//! - `builtin`: the built-in algorithms and the example programs;
//! - `staged`: exchanges through scratch of which two halves take turns;
//! - `blocks`: thread blocks that work together by barriers, semaphores and pipelines;
//! - `ports` and `switches`: transfers by a proxy, and multicast;
//! - `relays`: packets that are handed on, and packets that several ranks write;
//! - `files`: plans of the repository, and those of another implementation where they are present.

mod blocks;
mod builtin;
mod files;
mod ports;
mod relays;
mod staged;
mod switches;

use super::edit::operations;
use crate::{Error, Result};
use antiphon::plan::builder::{Block, Channel, ProgramBuilder};
use antiphon::plan::model::Plan;

/// A plan to mutate.
#[derive(Clone, Debug)]
pub struct Base {
    /// Where it comes from, for people; unique.
    pub name: String,
    /// The plan.
    pub plan: Plan,
}

/// Most operations of a plan that is mutated: all schedules of all its mutants are run.
const MOST_OPERATIONS: usize = 260;

/// Largest window of a pipeline, in bytes: calls have to be long enough for several of them.
const LARGEST_WINDOW: u64 = 256;

/// Every plan whose name contains one of `names` (all, if there is none), in the same order on every machine that has the
/// same files. A note says which plans are too large to be run so often.
///
/// # Errors
/// A program or file of the repository that is no plan.
pub fn all(names: &[String], note: &mut impl FnMut(String)) -> Result<Vec<Base>> {
    let mut plans = Vec::new();
    let families = [
        builtin::plans,
        staged::plans,
        blocks::plans,
        ports::plans,
        switches::plans,
        relays::plans,
    ];
    for family in families {
        plans.extend(family().map_err(|error| Error::message(error.to_string()))?);
    }
    plans.extend(files::plans(note)?);
    plans.retain(|base| names.is_empty() || names.iter().any(|name| base.name.contains(name)));
    plans.retain(|base| {
        let found = operations(&base.plan);
        let window = found.iter().filter_map(|(_, op)| op.pipeline.as_ref());
        let window = window.map(|pipeline| pipeline.unit_size).max().unwrap_or(0);
        let small = found.len() <= MOST_OPERATIONS && window <= LARGEST_WINDOW;
        if !small {
            let count = found.len();
            note(format!("{}: left out, {count} operations, windows of {window} bytes", base.name));
        }
        small
    });
    Ok(plans)
}

/// A channel between every two ranks: by lower rank, then higher rank.
struct Mesh(Vec<Vec<Channel>>);

impl Mesh {
    fn new(p: &ProgramBuilder) -> Self {
        let above = |low| (low + 1..p.ranks()).map(|high| p.channel(low, high)).collect();
        Mesh((0..p.ranks()).map(above).collect())
    }

    /// The channels of a rank, by ascending peer.
    fn of(&self, me: usize) -> Vec<Channel> {
        let peers = (0..self.0.len()).filter(|&peer| peer != me);
        peers.map(|peer| self.0[me.min(peer)][me.abs_diff(peer) - 1]).collect()
    }
}

/// The ranks of `channels` tell each other that they have begun: their inputs and outputs may be touched.
fn ready(tb: &Block<'_>, channels: &[Channel]) {
    tb.signal_relaxed(channels);
    tb.wait_relaxed(channels);
}

/// The ranks of `channels` tell each other that they are through with each other's memory.
fn done(tb: &Block<'_>, channels: &[Channel]) {
    tb.signal(channels);
    tb.wait(channels);
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::plan::program::Layout;
    use std::collections::BTreeSet;

    #[test]
    fn every_plan_is_checked_lowers_and_has_a_name_of_its_own() {
        let plans = all(&[], &mut |note| println!("{note}")).unwrap();
        let names: BTreeSet<_> = plans.iter().map(|base| &base.name).collect();
        assert_eq!(names.len(), plans.len(), "{names:?}");
        for Base { name, plan } in &plans {
            antiphon::plan::check(plan).unwrap_or_else(|faults| panic!("{name}: {faults}"));
            Layout::new(plan).unwrap_or_else(|error| panic!("{name}: {error}"));
            let unpaired = antiphon::plan::pairing(plan);
            assert!(unpaired.is_empty(), "{name}: {unpaired:?}");
        }
    }
}
