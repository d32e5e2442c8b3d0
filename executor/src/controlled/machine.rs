//! The state of all ranks, and who can go on.
//!
//! Everyone who acts has a number: the lanes of all blocks, then the proxies of all channels, then the users of all ranks.
//! Who cannot go on waits for a key, which whoever changes what it stands for wakes.

use super::code::Code;
use super::order::{Rng, Ways};
use super::stores::Pending;
use super::values::Inputs;
use super::watch::Tracker;
use antiphon_hal::kernels::Kernels;
use antiphon_plan::LowerError;
use antiphon_plan::program::Layout;
use antiphon_plan::schedule::Case;
use antiphon_types::DataType;
use std::collections::VecDeque;

/// Runs launches of one plan at one size, in any number of orders, one after the other.
///
/// Making one works out everything that does not depend on the order; a run then allocates next to nothing.
pub struct Machine<'a> {
    pub(super) layout: &'a Layout,
    pub(super) case: Case,
    pub(super) code: Code,
    pub(super) dtype: DataType,
    pub(super) kernels: &'static Kernels,
    pub(super) inputs: Inputs,
    /// Lanes to a block.
    pub(super) width: u32,
    pub(super) keys: Keys,
    /// What memory holds before the first launch.
    fresh: Vec<u8>,
    pub(super) memory: Vec<u8>,
    /// For every word of memory, the launch whose packet is there.
    pub(super) flags: Vec<u32>,
    pub(super) counters: Vec<u64>,
    pub(super) expected: Vec<u64>,
    pub(super) semaphores: Vec<i64>,
    pub(super) barriers: Vec<i64>,
    pub(super) lanes: Vec<Lane>,
    pub(super) blocks: Vec<Block>,
    pub(super) ranks: Vec<Rank>,
    pub(super) queues: Vec<Queue>,
    pub(super) status: Vec<Status>,
    waiters: Vec<Vec<u32>>,
    /// Who has become ready since the order was last asked.
    pub(super) woken: Vec<u32>,
    /// Lists of pending stores that may hold something.
    pub(super) late: Vec<u32>,
    pub(super) in_late: Vec<bool>,
    pub(super) outputs: Vec<u8>,
    pub(super) tracker: Tracker,
    pub(super) ways: Ways,
    pub(super) rng: Rng,
    pub(super) steps: u64,
    /// Steps that one run in the default order takes, about.
    pub(super) usual: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Somebody's turn will come.
    Ready,
    /// Waits for a key, for the other lanes of the block, for work, or for the launch to end.
    Waiting,
}

/// Where a lane of a block is.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Position in [`Code::ops`].
    pub at: u32,
    /// The next unit it looks at, in the instruction it is in.
    pub unit: u32,
    pub iteration: u32,
    /// Whether it has taken its part in what it waits for.
    pub entered: bool,
    /// With what it waits.
    pub ticket: i64,
    /// What it waits for.
    pub key: u32,
    /// For packets, the address it waits for.
    pub address: u32,
    pub pending: Vec<Pending>,
}

/// What the lanes of a block share.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Lanes at the meeting.
    pub arrived: u32,
    /// The round of the barrier that the block is in, or -1.
    pub ticket: i64,
    /// Lanes whose launch has ended.
    pub ended: u32,
    pub pending: Vec<Pending>,
}

#[derive(Debug, Default)]
pub(super) struct Rank {
    /// The launch it has started, from 1; 0 before the first.
    pub launch: u32,
    /// Blocks whose launch has not ended.
    pub running: u32,
    /// Launches whose output the user has read.
    pub read: u32,
}

/// What the proxy of a port channel has to do.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub items: VecDeque<Item>,
    /// Units of the oldest item that have been moved.
    pub moved: usize,
    pub posted: u64,
    pub done: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    Transfer { at: u32, launch: u32, iteration: u32 },
    Signal { counter: Option<u32> },
}

/// Numbers of what can be waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    semaphores: u32,
    barriers: u32,
    entries: u32,
    flushes: u32,
    pub packets: u32,
    total: u32,
}

impl Keys {
    /// A hold of the schedule.
    pub const HOLD: u32 = 0;

    fn new(totals: [u32; 3], ranks: u32) -> Self {
        let semaphores = 1 + totals[0];
        let barriers = semaphores + totals[1];
        let entries = barriers + totals[2];
        let flushes = entries + ranks;
        let packets = flushes + totals[0];
        Keys { semaphores, barriers, entries, flushes, packets, total: packets + ranks }
    }

    pub fn counter(self, counter: u32) -> u32 {
        1 + counter
    }

    pub fn semaphore(self, semaphore: u32) -> u32 {
        self.semaphores + semaphore
    }

    pub fn barrier(self, barrier: u32) -> u32 {
        self.barriers + barrier
    }

    pub fn entry(self, rank: u32) -> u32 {
        self.entries + rank
    }

    pub fn flush(self, queue: u32) -> u32 {
        self.flushes + queue
    }

    pub fn packets(self, rank: u32) -> u32 {
        self.packets + rank
    }

    /// The rank whose start is waited for, if it is that.
    pub fn entry_of(self, key: u32) -> Option<u32> {
        (self.entries..self.flushes).contains(&key).then(|| key - self.entries)
    }

    /// The rank whose packets are waited for, if it is that.
    pub fn packets_of(self, key: u32) -> Option<u32> {
        (self.packets..self.total).contains(&key).then(|| key - self.packets)
    }
}

/// Bytes of a buffer of all ranks in all launches and one more.
fn buffers(case: &Case, bytes: u64, ranks: u32) -> Result<usize, LowerError> {
    let launches = u64::from(case.launches) + 1;
    let all = bytes.checked_mul(launches).and_then(|all| all.checked_mul(ranks.into()));
    let too_large = LowerError::Overflow { what: "what the users of a controlled run read" };
    let all = all.filter(|&all| all <= 1 << 30).ok_or(too_large)?;
    Ok((all / launches * u64::from(case.launches)) as usize)
}

impl<'a> Machine<'a> {
    /// A machine for `case`, with blocks of `lanes` threads (at least 1).
    ///
    /// # Errors
    /// Sizes that the plan cannot be lowered for, or that are too large for a controlled run.
    pub fn new(layout: &'a Layout, case: Case, lanes: u32) -> Result<Self, LowerError> {
        let code = Code::new(layout, &case)?;
        let width = lanes.clamp(1, 64);
        let ranks = layout.ranks.len() as u32;
        let keys = Keys::new(code.totals, ranks);
        let actors = code.blocks.len() as u32 * width + code.totals[0] + ranks;
        let fresh = super::values::fresh(code.memory);
        let usual = code.units.len() as u64 + u64::from(width) * code.ops.len() as u64;
        // Whole words where elements allow it, else bytes: what is combined must not depend on how units are cut.
        let words = case.sizes.element.is_multiple_of(4);
        let dtype = if words { DataType::U32 } else { DataType::U8 };
        let outputs = buffers(&case, case.sizes.output, ranks)?;
        buffers(&case, case.sizes.input, ranks)?;
        Ok(Machine {
            layout,
            case,
            dtype,
            kernels: Kernels::active(),
            inputs: Inputs::new(&case, ranks),
            width,
            keys,
            memory: fresh.clone(),
            fresh,
            flags: vec![0; code.memory / 8],
            counters: vec![0; code.totals[0] as usize],
            expected: vec![0; code.totals[0] as usize],
            semaphores: vec![0; code.totals[1] as usize],
            barriers: vec![0; code.totals[2] as usize],
            lanes: (0..code.blocks.len() * width as usize).map(|_| Lane::default()).collect(),
            blocks: (0..code.blocks.len()).map(|_| Block::default()).collect(),
            ranks: (0..ranks).map(|_| Rank::default()).collect(),
            queues: (0..code.totals[0]).map(|_| Queue::default()).collect(),
            status: vec![Status::Waiting; actors as usize],
            waiters: (0..keys.total).map(|_| Vec::new()).collect(),
            woken: Vec::new(),
            late: Vec::new(),
            in_late: vec![false; code.blocks.len() * (width as usize + 1)],
            outputs: vec![0; outputs],
            tracker: Tracker::new(code.ops.len()),
            ways: Ways::default(),
            rng: Rng::new(0),
            steps: 0,
            usual: usual * u64::from(case.launches.max(1)),
            code,
        })
    }

    /// Back to the time before the first launch.
    pub(super) fn reset(&mut self) {
        self.memory.copy_from_slice(&self.fresh);
        self.flags.fill(0);
        self.counters.fill(0);
        self.expected.fill(0);
        self.barriers.fill(0);
        let initial = self.layout.ranks.iter().flat_map(|rank| &rank.semaphores);
        for (semaphore, &value) in self.semaphores.iter_mut().zip(initial) {
            *semaphore = value;
        }
        for lane in &mut self.lanes {
            lane.pending.clear();
            lane.entered = false;
        }
        for block in &mut self.blocks {
            block.pending.clear();
            (block.arrived, block.ticket, block.ended) = (0, -1, 0);
        }
        for queue in &mut self.queues {
            queue.items.clear();
            (queue.moved, queue.posted, queue.done) = (0, 0, 0);
        }
        self.ranks.fill_with(Rank::default);
        self.status.fill(Status::Waiting);
        self.waiters.iter_mut().for_each(Vec::clear);
        self.woken.clear();
        self.late.clear();
        self.in_late.fill(false);
        self.outputs.fill(0);
        self.steps = 0;
        if self.case.launches > 0 {
            for rank in 0..self.ranks.len() {
                let user = self.user(rank);
                self.ready(user);
            }
        }
    }

    pub(super) fn proxy(&self, queue: u32) -> u32 {
        self.lanes.len() as u32 + queue
    }

    pub(super) fn user(&self, rank: usize) -> u32 {
        (self.lanes.len() + self.queues.len() + rank) as u32
    }

    /// Whether an actor is a proxy or a user.
    pub(super) fn outside(&self, actor: u32) -> bool {
        actor as usize >= self.lanes.len()
    }

    pub(super) fn ready(&mut self, actor: u32) {
        if self.status[actor as usize] == Status::Waiting {
            self.status[actor as usize] = Status::Ready;
            self.woken.push(actor);
        }
    }

    /// `actor` cannot go on before `key` changes.
    pub(super) fn wait_for(&mut self, actor: u32, key: u32) -> bool {
        self.status[actor as usize] = Status::Waiting;
        self.waiters[key as usize].push(actor);
        if let Some(lane) = self.lanes.get_mut(actor as usize) {
            lane.key = key;
        }
        false
    }

    /// `actor` cannot go on before another one readies it.
    pub(super) fn park(&mut self, actor: u32) -> bool {
        self.status[actor as usize] = Status::Waiting;
        false
    }

    pub(super) fn wake(&mut self, key: u32) {
        while let Some(actor) = self.waiters[key as usize].pop() {
            self.ready(actor);
        }
    }

    /// Wakes who waits for the packet at `address` of `rank`.
    pub(super) fn wake_packet(&mut self, rank: u32, address: u32) {
        let key = self.keys.packets(rank) as usize;
        let mut at = 0;
        while let Some(&actor) = self.waiters[key].get(at) {
            if self.lanes[actor as usize].address == address {
                self.waiters[key].swap_remove(at);
                self.ready(actor);
            } else {
                at += 1;
            }
        }
    }

    /// One step of an actor that is ready: whether it may take another.
    pub(super) fn step(&mut self, actor: u32) -> bool {
        self.steps += 1;
        let lanes = self.lanes.len() as u32;
        let queues = self.queues.len() as u32;
        if actor < lanes {
            self.lane_step(actor)
        } else if actor < lanes + queues {
            self.proxy_step(actor, actor - lanes)
        } else {
            self.user_step(actor, (actor - lanes - queues) as usize)
        }
    }

    /// Whether every user has read every launch's output.
    pub(super) fn ended(&self) -> bool {
        self.ranks.iter().all(|rank| rank.read == self.case.launches)
    }

    /// What a rank's user read after a launch, in the last run.
    pub fn output(&self, rank: u32, launch: u32) -> &[u8] {
        let range = self.output_range(rank as usize, launch);
        self.outputs.get(range).unwrap_or_default()
    }

    pub(super) fn output_range(&self, rank: usize, launch: u32) -> std::ops::Range<usize> {
        let bytes = self.case.sizes.output as usize;
        let number = launch.saturating_sub(1) as usize * self.ranks.len() + rank;
        number * bytes..(number + 1) * bytes
    }
}
