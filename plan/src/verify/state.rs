//! What a run is made of: its setting, blocks, proxies and ranks on their way, and what it finds.

use super::cases::Grid;
use super::clock::{Clock, Handed};
use super::contention::Contention;
use super::lineage::Lineage;
use super::shadow::StepTouch;
use crate::postcondition::PostCondition;
use crate::program::{Area, Layout};
use crate::schedule::Case;
use std::collections::HashSet;

/// What a run goes over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    pub layout: &'a Layout,
    pub grid: &'a Grid,
    pub case: Case,
    pub contention: &'a Contention,
    /// Counters that have more signals than waits, launch after launch, so that waits on them wait for nothing in the
    /// end: channels by receiving end, then semaphores.
    pub free: &'a [bool],
    /// The user reads outputs, writes over them and rewrites inputs between launches.
    pub user_acts: bool,
    /// What a collective without a promise of its own is to compute.
    pub promise: Option<&'a PostCondition>,
    /// The root of collectives that have one.
    pub root: u32,
    /// Touches of cells after which the run is given up; making a cell counts as one.
    pub budget: u64,
    /// Keep a log of who did what when, to tell it.
    pub log: bool,
    /// What seeing each packet tells, where a run has written it down.
    pub lineage: Option<&'a Lineage>,
    /// Write down who writes each packet, and from what; go on to the end whatever is found.
    pub record: bool,
}

/// A cell of a rank's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CellAt {
    pub owner: u32,
    pub area: Area,
    /// Counted from the area's first.
    pub cell: u32,
}

/// Two touches of a cell without order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub earlier: StepTouch,
    pub later: StepTouch,
    pub place: CellAt,
}

/// An output cell that does not hold what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub rank: u32,
    pub launch: u32,
    /// Counted from the output's first.
    pub cell: u32,
    pub value: u32,
}

/// One step of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A launch begins: the user has read and spoilt the output of the one before, and rewritten the input.
    Begin { launch: u32 },
    /// An instruction ran.
    Ran { launch: u32, at: u32, iteration: u64 },
    /// The proxy did what a block of its rank had posted.
    Posted { block: u32, launch: u32, at: u32, iteration: u64 },
}

/// Decides in which order blocks come to what they contend for.
pub(super) trait Script {
    /// Which of the blocks, each with the counter it contends for, is next; `None` to give the run up.
    fn choose(&mut self, options: &[(u32, Object)]) -> Option<u32>;
}

/// What blocks contend for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Object {
    /// The order of signals on a receiving end.
    Signals(u32),
    /// The order of waits on a receiving end.
    Waits(u32),
    Semaphore(u32),
    Barrier(u32),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Every rank came to the end of its last launch.
    Complete,
    /// Blocks wait for ever.
    Stuck,
    /// Enough conflicts were found.
    Enough,
    /// Memory was touched more often than is looked at.
    TooLong,
    /// The script gave the run up.
    GivenUp,
}

/// What a block waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The signal with this number, on a channel of its rank.
    Signal {
        channel: u32,
        ticket: u64,
    },
    Packet {
        owner: u32,
        cell: u32,
    },
    Semaphore {
        semaphore: u32,
        needed: i64,
    },
    Barrier {
        barrier: u32,
        full: u64,
    },
    /// A rank has not begun the launch.
    Start {
        rank: u32,
    },
}

/// A block on its way.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub rank: u32,
    pub number: u32,
    /// Position in its code.
    pub at: u32,
    /// Iteration and bytes of a window, in a pipeline.
    pub window: Option<(u64, u64)>,
    /// Steps so far.
    pub count: u32,
    /// Steps when its threads last met.
    pub met: u32,
    /// What happened before all its threads do next.
    pub clock: Clock,
    /// What single threads have seen, by thread, and the others will when they meet.
    pub pending: Vec<(u32, Handed)>,
    /// What it took when it began to wait.
    pub ticket: Option<i64>,
    pub wait: Option<Wait>,
    /// The script lets it contend.
    pub permit: bool,
    pub done: bool,
}

impl Block {
    /// All threads learn what single ones have seen.
    pub fn learn(&mut self) {
        for (_, handed) in self.pending.drain(..) {
            handed.teach(&mut self.clock);
        }
    }
}

/// The proxy of a port channel.
#[derive(Clone, Debug)]
pub(super) struct Proxy {
    pub clock: Clock,
    pub count: u32,
}

/// A rank on its way.
#[derive(Clone, Debug)]
pub(super) struct Rank {
    /// The launch it is in, from 1.
    pub launch: u32,
    pub running: u32,
    /// What its waits observed in this launch.
    pub observed: Option<Clock>,
    /// By peer, the last launch of which something was observed.
    pub heard: Vec<u32>,
    /// What packets told in this launch, by the lineage's numbers.
    pub news: HashSet<u32>,
    /// What happened before each launch.
    pub starts: Vec<Clock>,
    pub waiting: Vec<u32>,
    /// Every launch is over.
    pub over: bool,
}

impl Rank {
    /// Something that the end of the launch comes after.
    pub fn learn(&mut self, handed: &Handed) {
        handed.teach(self.observed.get_or_insert_with(|| handed.clock.clone()));
    }
}
