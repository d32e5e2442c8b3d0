//! What the verifier says of a plan.

use super::order::SumOrder;
use crate::interpret::BlockedOn;
use crate::lower::Site;
use crate::schedule::{Actor, Case, Schedule, Touch};
use antiphon_types::ReduceOp;
use std::fmt;

/// What was found about a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Proven, refuted or neither.
    pub verdict: Verdict,
    /// Whether every rank computes the same bits where all must have the same result; `None` where the collective has no
    /// such result, or the plan is not proven.
    pub same_bits: Option<bool>,
    /// In which order the collective's reductions combine the inputs, for every size; `None` where nothing is reduced, or
    /// the plan is not proven.
    pub order: Option<SumOrder>,
    /// Some output is a minimum or maximum that takes an input more than once: with another operator in place of the plan's own
    /// it would be wrong. See [`allows`](Self::allows).
    pub repeats: bool,
    /// Whether the plan also keeps its promise where input and output are one memory and it is written for two, or the other way
    /// round; `None` where that was not found out.
    pub elsewhere: Option<bool>,
    /// The root, for collectives that have one: the rank that broadcasts, scatters or receives. A plan does not say which
    /// it is. `None` where the plan is refuted, or no call was found right with any.
    pub root: Option<u32>,
    /// What is worth knowing and refutes nothing, in the order found.
    pub notes: Vec<Note>,
    /// The cases that the proof was made of.
    pub cases: Vec<Case>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No schedule of any valid size deadlocks, races or computes something else.
    Proven,
    /// It can go wrong, and this is how. Never empty.
    Refuted(Vec<Refutation>),
    /// Neither was shown, for these reasons. Never empty.
    NotProven(Vec<String>),
}

/// One way for a plan to go wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refutation {
    /// What goes wrong.
    pub fault: Fault,
    /// In which calls.
    pub case: Case,
    /// In which order. A controlled engine that plays it shows the fault.
    pub schedule: Schedule,
    /// How far every block is when it shows, for people: what must have happened, one step a line.
    pub steps: Vec<String>,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Blocks wait for ever.
    Deadlock {
        /// The launch, from 1.
        launch: u32,
        /// Every blocked block.
        blocked: Vec<Waiter>,
        /// Positions in `blocked` that wait for each other in a circle, the last for the first; or the one block that
        /// waits for what nobody will ever do.
        cycle: Vec<usize>,
    },
    /// Two touches of the same bytes, one of them a write, in no order.
    Race {
        /// The touch that the plan's author would expect first.
        first: Touch,
        /// The other.
        second: Touch,
    },
    /// An output that is not what the collective promises.
    Wrong {
        /// The rank.
        rank: u32,
        /// The launch, from 1.
        launch: u32,
        /// The bytes of its output.
        bytes: std::ops::Range<u64>,
        /// What should be there, in words.
        expected: String,
        /// What is there, in words.
        found: String,
    },
}

/// A block that waits for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Where it waits.
    pub site: Site,
    /// What it waits for.
    pub on: BlockedOn,
    /// The blocks (rank and number) that could end the wait; empty if none ever will.
    pub for_whom: Vec<(u32, u32)>,
}

/// Something worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it is about.
    pub about: About,
    /// The text.
    pub text: String,
}

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum About {
    /// A relaxed operation that lowering had to order.
    Order,
    /// A limit of the format's own runtime that the plan exceeds.
    Portability,
    /// What a user has to do, or may not do, between launches.
    Reuse,
    /// The order in which values are combined.
    Bits,
    /// What a plan without a promise of its own computes.
    Result,
    /// What the proof takes for granted.
    Assumption,
}

impl Report {
    /// Whether what was found also holds of calls that have this operator in place of the plan's own.
    pub fn allows(&self, op: ReduceOp) -> bool {
        !self.repeats || op.is_idempotent()
    }

    /// Exit status of `plan verify`: 0 proven, 1 refuted, 2 not proven.
    pub fn status(&self) -> u8 {
        match self.verdict {
            Verdict::Proven => 0,
            Verdict::Refuted(_) => 1,
            Verdict::NotProven(_) => 2,
        }
    }
}

impl About {
    /// The word that notes are printed under.
    pub const fn name(self) -> &'static str {
        match self {
            About::Order => "order",
            About::Portability => "portability",
            About::Reuse => "reuse",
            About::Bits => "bits",
            About::Result => "result",
            About::Assumption => "assumption",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.about.name(), self.text)
    }
}

/// The operation of a touch, or the user, with launch and bytes.
pub(crate) fn describe(touch: &Touch) -> String {
    let verb = if touch.write { "writes" } else { "reads" };
    let who = match (&touch.site, touch.actor) {
        (Some(site), Actor::Threads(at)) => {
            format!("{site} in launch {}{}", at.launch, turn(at.iteration))
        }
        (Some(site), Actor::Proxy(at)) => {
            format!("the proxy, for {site} in launch {}{},", at.launch, turn(at.iteration))
        }
        (_, actor) => actor.to_string(),
    };
    let (area, owner) = (touch.area, touch.owner);
    format!(
        "{who} {verb} bytes {}..{} of the {area} of rank {owner}",
        touch.bytes.start, touch.bytes.end
    )
}

fn turn(iteration: u64) -> String {
    if iteration == 0 { String::new() } else { format!(", iteration {iteration}") }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Deadlock { launch, blocked, cycle } => {
                write!(
                    f,
                    "deadlock: launch {launch} cannot end, {} blocks wait for ever",
                    blocked.len()
                )?;
                for &at in cycle {
                    let Some(Waiter { site, on, for_whom }) = blocked.get(at) else { continue };
                    write!(f, "\n  {site} waits for {on}; ")?;
                    match &for_whom[..] {
                        [] => write!(f, "nobody will ever do that")?,
                        [(rank, tb), ..] => write!(f, "that is for rank {rank} tb {tb} to do")?,
                    }
                }
                Ok(())
            }
            Fault::Race { first, second } => write!(
                f,
                "race: nothing orders two touches of the same bytes\n  {}\n  {}",
                describe(first),
                describe(second)
            ),
            Fault::Wrong { rank, launch, bytes, expected, found } => write!(
                f,
                "wrong result: after launch {launch}, bytes {}..{} of the output of rank {rank} hold {found}, should \
                 hold {expected}",
                bytes.start, bytes.end
            ),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Proven => match self.same_bits {
                Some(true) => f.write_str("proven, the same bits on every rank")?,
                Some(false) => f.write_str("proven, but not the same bits on every rank")?,
                None => f.write_str("proven")?,
            },
            Verdict::Refuted(refutations) => {
                f.write_str("refuted")?;
                for Refutation { fault, case, steps, .. } in refutations {
                    let sizes = case.sizes;
                    let place = if case.in_place { ", in place" } else { "" };
                    write!(
                        f,
                        "\n{fault}\n  with {} bytes in, {} out{place}",
                        sizes.input, sizes.output
                    )?;
                    if !steps.is_empty() {
                        write!(f, "; it shows in this order:")?;
                    }
                    for (number, step) in (1..).zip(steps) {
                        write!(f, "\n    {number}. {step}")?;
                    }
                }
            }
            Verdict::NotProven(reasons) => {
                f.write_str("not proven")?;
                for reason in reasons {
                    write!(f, "\n  {reason}")?;
                }
            }
        }
        if let Some(order) = &self.order {
            write!(f, "\n{order}")?;
        }
        for note in &self.notes {
            write!(f, "\nnote: {note}")?;
        }
        Ok(())
    }
}
