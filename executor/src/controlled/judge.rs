//! Whether a counterexample shows its fault, and whether any of many schedules shows one.

use super::expect::expected;
use super::machine::Machine;
use super::order::Way;
use super::{LANES, Played};
use antiphon_plan::LowerError;
use antiphon_plan::program::{Access, Layout};
use antiphon_plan::schedule::{Actor, Hold, Schedule, Touch};
use antiphon_plan::verify::{Fault, Refutation};
use std::ops::Range;

/// How a fault showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Some block waits for ever.
    Blocked,
    /// A user read something else than the collective promises.
    WrongOutput,
    /// Users read other things in one order than in the other.
    OtherOutput,
    /// The two touches read other bytes, or left others behind, in one order than in the other.
    OtherBytes,
    /// Both orders can happen, and make no difference to any byte.
    NoDifference,
}

/// What all runs on a machine are compared with.
struct Standard {
    values: Vec<u8>,
    /// Whether a byte counts.
    counts: Vec<bool>,
}

impl Standard {
    /// The collective's promise; for collectives without one, what the machine's last run gave.
    fn new(machine: &Machine<'_>) -> Self {
        let (values, counts) = expected(machine)
            .unwrap_or_else(|| (machine.outputs.clone(), vec![true; machine.outputs.len()]));
        Standard { values, counts }
    }

    fn met(&self, machine: &Machine<'_>) -> bool {
        let both = machine.outputs.iter().zip(&self.values).zip(&self.counts);
        both.into_iter().all(|((found, expected), &counts)| found == expected || !counts)
    }
}

/// The first of `count` schedules, drawn from `seed`, in which a launch cannot end or a user reads something else than
/// the collective promises (where it promises nothing: than in the default order). The default order itself is tried
/// before them.
pub fn search(machine: &mut Machine<'_>, count: u32, seed: u64) -> Option<Schedule> {
    let default = Schedule::Held(Vec::new());
    let ended = machine.run(&default, &[], Way::default(), 0);
    machine.usual = machine.steps.max(1);
    let standard = Standard::new(machine);
    if ended.endless || !machine.ended() || !standard.met(machine) {
        return Some(default);
    }
    for number in 0..u64::from(count) {
        let seed = seed.wrapping_add(number);
        let schedule = match number % 2 {
            0 => Schedule::Random(seed),
            _ => Schedule::Adversarial { seed, changes: (number / 2 % 6) as u32 },
        };
        let ended = machine.run(&schedule, &[], Way::default(), 0);
        if ended.endless || !machine.ended() || !standard.met(machine) {
            return Some(schedule);
        }
    }
    None
}

/// Plays a refutation: how its fault shows, or `None` if it does not.
///
/// Holds are tried in every [`Way`] and with every rotation of the work among lanes, since a counterexample says nothing
/// about lanes. A race shows if its two orders differ in anything.
///
/// # Errors
/// As [`Machine::new`].
pub fn shows(layout: &Layout, refutation: &Refutation) -> Result<Option<Shown>, LowerError> {
    let mut machine = Machine::new(layout, refutation.case, LANES)?;
    let machine = &mut machine;
    let schedule = &refutation.schedule;
    Ok(match &refutation.fault {
        Fault::Deadlock { .. } => every_way(machine.width, |way, rotate| {
            machine.run(schedule, &[], way, rotate);
            (!machine.ended()).then_some(Shown::Blocked)
        }),
        // Where reductions of one collective are not alike, which of them is the odd one is anybody's guess.
        Fault::Wrong { .. } => {
            machine.run(&Schedule::Held(Vec::new()), &[], Way::default(), 0);
            let standard = Standard::new(machine);
            every_way(machine.width, |way, rotate| {
                machine.run(schedule, &[], way, rotate);
                (!standard.met(machine)).then_some(Shown::WrongOutput)
            })
        }
        Fault::Race { first, second } => {
            machine.tracker.focus = both_touch(machine, first, second);
            race(machine, schedule, [first.actor, second.actor])
        }
    })
}

/// Every way to hold, with every rotation, until one shows something.
fn every_way(width: u32, mut show: impl FnMut(Way, u32) -> Option<Shown>) -> Option<Shown> {
    let ways = [Way::Unseen, Way::Stopped].into_iter().chain((0..width).map(Way::OneLane));
    for way in ways {
        for rotate in 0..width {
            if let Some(shown) = show(way, rotate) {
                return Some(shown);
            }
        }
    }
    None
}

/// The addresses that two touches have in common.
fn both_touch(machine: &Machine<'_>, first: &Touch, second: &Touch) -> Option<Range<usize>> {
    let range = |touch: &Touch| {
        let access = Access { rank: touch.owner, area: touch.area };
        let launch = match touch.actor {
            Actor::Threads(moment) | Actor::Proxy(moment) => moment.launch,
            Actor::User { launch, .. } => launch,
        };
        let start = machine.code.address(access, touch.bytes.start, launch)?;
        let end = machine.code.address(access, touch.bytes.end, launch)?;
        Some(start..end)
    };
    let (a, b) = (range(first)?, range(second)?);
    let both = a.start.max(b.start)..a.end.min(b.end);
    (both.start < both.end && both.end <= machine.memory.len()).then_some(both)
}

fn race(machine: &mut Machine<'_>, schedule: &Schedule, touches: [Actor; 2]) -> Option<Shown> {
    let [first, second] = touches;
    let default = Schedule::Held(Vec::new());
    let orders = [(first, second), (second, first)]
        .map(|(held, until)| Schedule::Held(vec![Hold { held, until }]));
    let baseline = machine.play(&default, &touches, Way::default(), 0);
    let standard = Standard::new(machine);
    let mut no_difference = false;
    let found = every_way(machine.width, |way, rotate| {
        let mut compare = |schedule: &Schedule, other: &Played| {
            let played = machine.play(schedule, &touches, way, rotate);
            let shown = difference(&played, other)
                .or_else(|| (!standard.met(machine)).then_some(Shown::WrongOutput));
            (played, shown)
        };
        let (given, shown) = compare(schedule, &baseline);
        if shown.is_some() {
            return shown;
        }
        let (one, shown) = compare(&orders[0], &given);
        if shown.is_some() {
            return shown;
        }
        let (other, shown) = compare(&orders[1], &one);
        no_difference |= !one.released && !other.released;
        shown
    });
    found.or(no_difference.then_some(Shown::NoDifference))
}

/// What tells two runs apart.
fn difference(a: &Played, b: &Played) -> Option<Shown> {
    if !a.blocked.is_empty() || !b.blocked.is_empty() {
        return Some(Shown::Blocked);
    }
    if a.outputs != b.outputs {
        return Some(Shown::OtherOutput);
    }
    let all = a.seen.iter().zip(&b.seen);
    let bytes = all.into_iter().any(|(a, b)| {
        a.read != b.read || !a.left.is_empty() && !b.left.is_empty() && a.left != b.left
    });
    bytes.then_some(Shown::OtherBytes)
}
