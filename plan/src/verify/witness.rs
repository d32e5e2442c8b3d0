//! Counterexamples: what a run found, in the plan's terms, with an order in which it shows.

use super::clock::{Clock, Epoch};
use super::report::{Fault, Refutation};
use super::shadow::StepTouch;
use super::state::{CellAt, Event, Found, Mismatch, Object};
use super::walk::Walk;
use crate::schedule::{Actor, Case, Hold, Moment, Schedule, Touch};
use std::collections::BTreeMap;

/// Different races that are told.
const TOLD: usize = 8;

impl Walk<'_> {
    /// The races that a run with a log found, each pair of operations once.
    pub(super) fn races(&self, contended: &[(u32, Object)]) -> Vec<Refutation> {
        let mut told: Vec<(Refutation, Epoch, Epoch)> = Vec::new();
        for (found, clock) in self.found.iter().zip(&self.found_clocks) {
            let Found { earlier, later, place } = *found;
            let CellAt { owner, area, cell } = place;
            let bytes = self.space.bytes(cell..cell + 1);
            let touch = |StepTouch { step, wrote: write }| {
                let actor = self.actor(step);
                Touch {
                    actor,
                    site: self.actor_site(actor),
                    write,
                    owner,
                    area,
                    bytes: bytes.clone(),
                }
            };
            let (first, second) = (touch(earlier), touch(later));
            // The bytes of one pair of touches are told together.
            let known = told.iter_mut().find_map(|(refutation, from, to)| {
                let Fault::Race { first: a, second: b } = &mut refutation.fault else {
                    return None;
                };
                let same = (*from, *to) == (earlier.step, later.step)
                    && (a.owner, a.area) == (owner, area);
                let adjacent = b.bytes.end == bytes.start;
                (same && adjacent).then_some((a, b))
            });
            if let Some((a, b)) = known {
                (a.bytes.end, b.bytes.end) = (bytes.end, bytes.end);
                continue;
            }
            let alike = |(refutation, ..): &(Refutation, _, _)| match &refutation.fault {
                Fault::Race { first: a, second: b } => {
                    (a.site, b.site) == (first.site, second.site)
                }
                _ => false,
            };
            if told.len() >= TOLD || told.iter().any(alike) {
                continue;
            }
            let mut holds = self.contended_order(contended);
            holds.push(Hold { held: first.actor, until: second.actor });
            let steps = self.steps(clock, &first, &second);
            let refutation = Refutation {
                fault: Fault::Race { first, second },
                case: self.setting.case,
                schedule: Schedule::Held(holds),
                steps,
            };
            told.push((refutation, earlier.step, later.step));
        }
        told.into_iter().map(|(refutation, ..)| refutation).collect()
    }

    /// An output that is not what it should be.
    pub(super) fn wrong(&self, mismatch: &Mismatch, contended: &[(u32, Object)]) -> Refutation {
        let &Mismatch { rank, launch, cell, value } = mismatch;
        let fault = Fault::Wrong {
            rank,
            launch,
            bytes: self.space.bytes(cell..cell + 1),
            expected: self.expected(mismatch),
            found: self.value_text(value, launch),
        };
        self.in_any_order(fault, contended)
    }

    /// A deadlock, which every order ends in.
    pub(super) fn stuck(&self, contended: &[(u32, Object)]) -> Option<Refutation> {
        Some(self.in_any_order(self.deadlock()?, contended))
    }

    fn in_any_order(&self, fault: Fault, contended: &[(u32, Object)]) -> Refutation {
        let holds = self.contended_order(contended);
        let case: Case = self.setting.case;
        Refutation { fault, case, schedule: Schedule::Held(holds), steps: Vec::new() }
    }

    /// Holds that bring blocks to what they contend for in the order of this run.
    fn contended_order(&self, order: &[(u32, Object)]) -> Vec<Hold> {
        let mut last: BTreeMap<Object, Actor> = BTreeMap::new();
        let mut holds = Vec::new();
        for (&(_, object), &(_, moment)) in order.iter().zip(&self.contended) {
            let actor = Actor::Threads(moment);
            if let Some(until) = last.insert(object, actor).filter(|&until| until != actor) {
                holds.push(Hold { held: actor, until });
            }
        }
        holds
    }

    /// Who made a step.
    fn actor(&self, step: Epoch) -> Actor {
        let event = self.log[step.actor as usize].get(step.count as usize - 1);
        let rank = self.rank_of(step.actor);
        match event.copied() {
            Some(Event::Ran { launch, at, iteration }) => {
                let block = self.blocks[step.actor as usize].number;
                Actor::Threads(Moment { rank, block, launch, at, iteration })
            }
            Some(Event::Posted { block, launch, at, iteration }) => {
                Actor::Proxy(Moment { rank, block, launch, at, iteration })
            }
            Some(Event::Begin { launch }) => Actor::User { rank, launch: launch.saturating_sub(1) },
            // The user comes before the launch that is about to begin.
            None => Actor::User { rank, launch: self.setting.case.launches },
        }
    }

    fn actor_site(&self, actor: Actor) -> Option<crate::lower::Site> {
        match actor {
            Actor::Threads(at) | Actor::Proxy(at) => Some(self.site_at(at.rank, at.block, at.at)),
            Actor::User { .. } => None,
        }
    }

    /// How far every block has come when the later of two touches is made, and the touches.
    fn steps(&self, clock: &Clock, first: &Touch, second: &Touch) -> Vec<String> {
        let mut steps = Vec::new();
        for (rank, &first_block) in (0u32..).zip(&self.first_block) {
            let blocks = self.setting.layout.ranks[rank as usize].blocks.len() as u32;
            let mut places = Vec::new();
            for number in 0..blocks {
                let actor = first_block + number;
                let count = clock.count(actor);
                let event =
                    count.checked_sub(1).and_then(|at| self.log[actor as usize].get(at as usize));
                if let Some(&Event::Ran { launch, at, .. }) = event {
                    let site = self.site_at(rank, number, at);
                    places.push(format!("tb {number} up to op {} of launch {launch}", site.op));
                }
            }
            if !places.is_empty() {
                steps.push(format!("rank {rank} runs: {}", places.join(", ")));
            }
        }
        let name = |touch: &Touch| match touch.site {
            Some(site) => site.to_string(),
            None => touch.actor.to_string(),
        };
        let done = |touch: &Touch| if touch.write { "written" } else { "read" };
        steps.push(format!(
            "{} has not {} these bytes yet, or nobody can see it",
            name(first),
            done(first)
        ));
        let verb = if second.write { "writes" } else { "reads" };
        steps.push(format!("{} {verb} them", name(second)));
        steps
    }
}
