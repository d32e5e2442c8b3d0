//! The host engine under a controlled schedule: a machine on which missing synchronisation shows on a CPU.
//!
//! One thread runs all ranks of a plan, launch after launch, and decides who goes next: in turn but for what a
//! counterexample holds back, at random from a seed, or by random priorities. The same schedule always gives the same run.
//!
//! - A block is several lanes. They share the units (16 raw bytes, or 8 of packets) of a data operation, dealt anew for
//!   each; one lane signals, waits, posts or takes a semaphore, and the others go past. They meet at `nop` and `barrier`
//!   only.
//! - Raw units happen late: when a release of their block, or the launch's end, covers them, or at a step of the
//!   schedule before. Packets happen at once, flag and payload together.
//! - The user of a rank reads the output after each launch and writes over it, then rewrites the input with other numbers.
//! - Proxies of port channels work in order, piece by piece, whenever the schedule says so. One thread does all that one
//!   operation of a port channel asks for: it posts, signals after it, and flushes.
//!
//! What it has not got: loads that happen before an earlier wait of their own lane. So a wait that should acquire and is
//! relaxed does not show; lowering leaves none.
//!
//! ```
//! use antiphon_executor::controlled::{Machine, search};
//! use antiphon_plan::algorithms::{Algorithm, Shape};
//! use antiphon_plan::program::{CallSizes, Layout};
//! use antiphon_plan::schedule::Case;
//!
//! let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(2))?;
//! let layout = Layout::new(&plan)?;
//! let sizes = CallSizes { input: 64, output: 64, element: 4, strict: false };
//! let case = Case { sizes, in_place: false, launches: 2 };
//! let mut machine = Machine::new(&layout, case, 3)?;
//! assert_eq!(search(&mut machine, 20, 1), None, "no schedule of these shows a fault");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod code;
mod expect;
mod judge;
mod lanes;
mod machine;
mod order;
mod outside;
mod stores;
#[cfg(test)]
mod tests;
mod translate;
mod values;
mod watch;

pub use judge::{Shown, search, shows};
pub use machine::Machine;
pub use order::Way;
pub use watch::Seen;

use antiphon_plan::interpret::BlockedOn;
use antiphon_plan::program::Layout;
use antiphon_plan::schedule::{Actor, Case, Schedule};
use antiphon_plan::{LowerError, Site};
use code::Kind;
use machine::Keys;
use std::fmt;

/// Lanes to a block, where nobody says otherwise: one that signals, one whose data is late, one that goes on.
pub const LANES: u32 = 3;

/// How a run went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Blocks that wait for ever; empty if all launches ended on all ranks.
    pub blocked: Vec<Stuck>,
    /// What each rank's user read, by launch (the first is number 0) and rank. Zeros where a launch did not end.
    pub outputs: Vec<Vec<Vec<u8>>>,
    /// What the watched actors saw, in the order given.
    pub seen: Vec<Seen>,
    /// Whether holds had to be taken off because nobody else could go on: then the order was not the one asked for.
    pub released: bool,
    /// Steps taken.
    pub steps: u64,
    /// Whether the run was given up because it took far more steps than the plan has.
    pub endless: bool,
}

/// A block that waits for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Where.
    pub site: Site,
    /// In which launch, from 1.
    pub launch: u32,
    /// For what.
    pub on: Waits,
}

/// What a block waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Something the interpreter knows too.
    On(BlockedOn),
    /// The proxy of a port channel of the rank.
    Flush {
        /// Position in the rank's channels.
        channel: u32,
    },
    /// The start of another rank's launch.
    Entry {
        /// That rank.
        rank: u32,
    },
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Waits::On(on) => on.fmt(f),
            Waits::Flush { channel } => write!(f, "the proxy of channel {channel}"),
            Waits::Entry { rank } => write!(f, "rank {rank} to start the launch"),
        }
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits in launch {} for {}", self.site, self.launch, self.on)
    }
}

/// Runs a plan once on a machine of its own, with blocks of [`LANES`] lanes.
///
/// # Errors
/// As [`Machine::new`].
pub fn play(
    layout: &Layout,
    case: Case,
    schedule: &Schedule,
    watch: &[Actor],
) -> Result<Played, LowerError> {
    Ok(Machine::new(layout, case, LANES)?.play(schedule, watch, Way::default(), 0))
}

impl Machine<'_> {
    /// Runs all launches from the beginning. `way` is how holds keep threads back, and `rotate` turns the regular deal of
    /// work to lanes that schedules with holds have; random schedules ignore both.
    pub fn play(&mut self, schedule: &Schedule, watch: &[Actor], way: Way, rotate: u32) -> Played {
        let ended = self.run(schedule, watch, way, rotate);
        let of_launch = |launch| {
            let ranks = 0..self.ranks.len() as u32;
            ranks.map(|rank| self.output(rank, launch).to_vec()).collect()
        };
        Played {
            blocked: self.blocked(),
            outputs: (1..=self.case.launches).map(of_launch).collect(),
            seen: self.tracker.seen(watch),
            released: ended.released,
            steps: self.steps,
            endless: ended.endless,
        }
    }

    /// The case that the machine runs.
    pub fn case(&self) -> Case {
        self.case
    }

    /// Every block that waits, once: for what its lanes are not at a meeting for.
    fn blocked(&self) -> Vec<Stuck> {
        let mut blocked: Vec<Stuck> = Vec::new();
        if self.ended() {
            return blocked;
        }
        let mut last = None;
        for id in self.waiting() {
            let block = id / self.width;
            let code = self.code.blocks[block as usize];
            let lane = &self.lanes[id as usize];
            if last == Some(block)
                || lane.at == code.end
                || self.ranks[code.rank as usize].launch == 0
            {
                continue;
            }
            let Some(on) = self.waits(id) else { continue };
            let rank = &self.layout.ranks[code.rank as usize];
            let start = rank.blocks[code.number as usize].code.start;
            let origin = rank.origins[(start + lane.at - code.start) as usize];
            let site = Site {
                rank: code.rank,
                tb: code.number,
                op: origin.op,
                inner: origin.inner,
                kind: origin.kind,
            };
            blocked.push(Stuck { site, launch: self.ranks[code.rank as usize].launch, on });
            last = Some(block);
        }
        blocked
    }

    /// What a waiting lane waits for; `None` for its own block.
    fn waits(&self, id: u32) -> Option<Waits> {
        let lane = &self.lanes[id as usize];
        let rank = self.code.blocks[(id / self.width) as usize].rank as usize;
        let on = match self.code.ops[lane.at as usize].kind {
            Kind::Wait { counter } => {
                let position = counter - self.code.channels[rank];
                let own = &self.layout.ranks[rank];
                let (channel_type, channel) = own.channel_id(position);
                BlockedOn::Signal {
                    channel_type,
                    channel,
                    peer: own.channels[position as usize].peer,
                    received: self.counters[counter as usize],
                    needed: lane.ticket as u64,
                }
            }
            Kind::Acquire { semaphore } => BlockedOn::Semaphore {
                semaphore: semaphore - self.code.semaphores[rank],
                value: self.semaphores[semaphore as usize],
                needed: lane.ticket,
            },
            Kind::Barrier { barrier, blocks } => {
                let ticket = self.blocks[(id / self.width) as usize].ticket;
                if ticket < 0 {
                    return None;
                }
                BlockedOn::Barrier {
                    barrier: barrier - self.code.barriers[rank],
                    arrived: (self.barriers[barrier as usize] + blocks - ticket) as u32,
                    blocks: blocks as u32,
                }
            }
            Kind::Flush { queue } => {
                return Some(Waits::Flush { channel: queue - self.code.channels[rank] });
            }
            Kind::Data(_) => {
                if let Some(rank) = self.keys.entry_of(lane.key) {
                    return Some(Waits::Entry { rank });
                }
                let rank = self.keys.packets_of(lane.key)?;
                let half = self.code.half;
                let start = self.code.packets[rank as usize];
                let start = if lane.address >= start + half { start + half } else { start };
                BlockedOn::Packet { rank, offset: (lane.address - start).into() }
            }
            _ => return None,
        };
        (lane.key != Keys::HOLD).then_some(Waits::On(on))
    }
}
