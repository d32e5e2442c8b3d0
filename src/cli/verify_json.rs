//! What `plan verify --json` prints. The names are part of the command's interface: docs/cli.md lists them.

use super::verify::Outcome;
use antiphon::plan::schedule::{self, Moment};
use antiphon::plan::verify::{self, Refutation, Verdict};
use antiphon::plan::{Place, Site};
use serde::Serialize;
use std::ops::Range;

/// Everything.
#[derive(Serialize)]
pub struct Document {
    /// The exit status.
    pub status: u8,
    /// The files, in the order given.
    pub plans: Vec<Entry>,
}

/// One file.
#[derive(Serialize)]
pub struct Entry {
    file: String,
    status: u8,
    verdict: &'static str,
    name: Option<String>,
    collective: Option<String>,
    ranks: Option<usize>,
    same_bits: Option<bool>,
    sum_order: Option<&'static str>,
    sum_tree: Option<String>,
    faults: Vec<Fault>,
    reasons: Vec<String>,
    notes: Vec<Note>,
    cases: usize,
    error: Option<String>,
}

#[derive(Serialize)]
struct Note {
    about: &'static str,
    text: String,
}

#[derive(Serialize)]
struct Fault {
    #[serde(flatten)]
    what: What,
    text: String,
    case: Case,
    schedule: Schedule,
    steps: Vec<String>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum What {
    Deadlock { launch: u32, blocked: Vec<Blocked>, cycle: Vec<usize> },
    Race { touches: [Touch; 2] },
    Wrong { rank: u32, launch: u32, bytes: [u64; 2], expected: String, found: String },
}

#[derive(Serialize)]
struct Blocked {
    #[serde(flatten)]
    at: At,
    waits_for: String,
    could_end: Vec<Block>,
}

#[derive(Serialize)]
struct Block {
    rank: u32,
    threadblock: u32,
}

/// An operation of the plan.
#[derive(Serialize)]
struct At {
    place: String,
    op: String,
}

#[derive(Serialize)]
struct Touch {
    #[serde(flatten)]
    at: Option<At>,
    actor: Actor,
    write: bool,
    owner: u32,
    area: &'static str,
    bytes: [u64; 2],
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Actor {
    Threads(Step),
    Proxy(Step),
    User { rank: u32, launch: u32 },
}

/// One execution of an instruction of the lowered plan.
#[derive(Serialize)]
struct Step {
    rank: u32,
    threadblock: u32,
    launch: u32,
    instruction: u32,
    iteration: u64,
}

#[derive(Serialize)]
struct Case {
    input_bytes: u64,
    output_bytes: u64,
    element_bytes: u64,
    in_place: bool,
    launches: u32,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Schedule {
    Held { holds: Vec<Hold> },
    Random { seed: u64 },
    Adversarial { seed: u64, changes: u32 },
}

#[derive(Serialize)]
struct Hold {
    held: Actor,
    until: Actor,
}

impl Entry {
    /// What came of `file`.
    pub fn new(file: String, outcome: &Outcome) -> Entry {
        let mut entry = Entry {
            file,
            status: outcome.status(),
            verdict: "unreadable",
            name: None,
            collective: None,
            ranks: None,
            same_bits: None,
            sum_order: None,
            sum_tree: None,
            faults: Vec::new(),
            reasons: Vec::new(),
            notes: Vec::new(),
            cases: 0,
            error: None,
        };
        let (plan, report) = match outcome {
            Outcome::Verified(verified) => &**verified,
            Outcome::Unreadable(error) => {
                entry.error = Some(error.clone());
                return entry;
            }
        };
        match &report.verdict {
            Verdict::Proven => entry.verdict = "proven",
            Verdict::Refuted(refutations) => {
                entry.verdict = "refuted";
                entry.faults = refutations.iter().map(fault).collect();
            }
            Verdict::NotProven(reasons) => {
                entry.verdict = "not_proven";
                entry.reasons = reasons.clone();
            }
        }
        let note = |note: &verify::Note| Note { about: note.about.name(), text: note.text.clone() };
        entry.name = Some(plan.name.clone());
        entry.collective = Some(plan.collective.to_string());
        entry.ranks = Some(plan.gpus.len());
        entry.same_bits = report.same_bits;
        entry.sum_order = report.order.as_ref().map(verify::SumOrder::name);
        if let Some(verify::SumOrder::Fixed(tree)) = &report.order {
            entry.sum_tree = Some(tree.clone());
        }
        entry.notes = report.notes.iter().map(note).collect();
        entry.cases = report.cases.len();
        entry
    }
}

fn fault(refutation: &Refutation) -> Fault {
    let Refutation { fault, case, schedule, steps } = refutation;
    let what = match fault {
        verify::Fault::Deadlock { launch, blocked, cycle } => What::Deadlock {
            launch: *launch,
            blocked: blocked.iter().map(waiter).collect(),
            cycle: cycle.clone(),
        },
        verify::Fault::Race { first, second } => {
            What::Race { touches: [touch(first), touch(second)] }
        }
        verify::Fault::Wrong { rank, launch, bytes, expected, found } => What::Wrong {
            rank: *rank,
            launch: *launch,
            bytes: ends(bytes),
            expected: expected.clone(),
            found: found.clone(),
        },
    };
    let schedule::Case { sizes, in_place, launches } = *case;
    let case = Case {
        input_bytes: sizes.input,
        output_bytes: sizes.output,
        element_bytes: sizes.element,
        in_place,
        launches,
    };
    let schedule = match schedule {
        schedule::Schedule::Held(holds) => {
            let hold =
                |hold: &schedule::Hold| Hold { held: actor(hold.held), until: actor(hold.until) };
            Schedule::Held { holds: holds.iter().map(hold).collect() }
        }
        schedule::Schedule::Random(seed) => Schedule::Random { seed: *seed },
        schedule::Schedule::Adversarial { seed, changes } => {
            Schedule::Adversarial { seed: *seed, changes: *changes }
        }
    };
    Fault { what, text: fault.to_string(), case, schedule, steps: steps.clone() }
}

fn waiter(waiter: &verify::Waiter) -> Blocked {
    let block = |&(rank, threadblock): &(u32, u32)| Block { rank, threadblock };
    Blocked {
        at: at(&waiter.site),
        waits_for: waiter.on.to_string(),
        could_end: waiter.for_whom.iter().map(block).collect(),
    }
}

fn touch(touch: &schedule::Touch) -> Touch {
    Touch {
        at: touch.site.as_ref().map(at),
        actor: actor(touch.actor),
        write: touch.write,
        owner: touch.owner,
        area: touch.area.name(),
        bytes: ends(&touch.bytes),
    }
}

fn at(site: &Site) -> At {
    let Site { rank, tb, op, inner, kind } = *site;
    let block = Place::top().at("gpus", rank as usize).at("threadblocks", tb as usize);
    let place = block.at("ops", op as usize);
    let place = match inner {
        Some(inner) => place.at("ops", inner as usize),
        None => place,
    };
    At { place: place.to_string(), op: kind.to_string() }
}

fn actor(actor: schedule::Actor) -> Actor {
    let step = |moment: Moment| Step {
        rank: moment.rank,
        threadblock: moment.block,
        launch: moment.launch,
        instruction: moment.at,
        iteration: moment.iteration,
    };
    match actor {
        schedule::Actor::Threads(moment) => Actor::Threads(step(moment)),
        schedule::Actor::Proxy(moment) => Actor::Proxy(step(moment)),
        schedule::Actor::User { rank, launch } => Actor::User { rank, launch },
    }
}

fn ends(bytes: &Range<u64>) -> [u64; 2] {
    [bytes.start, bytes.end]
}

#[cfg(test)]
mod tests;
