//! The thread that looks after launches: one that makes no progress is ended, and the error says where it stood.
//!
//! Kernels say where they are in pinned memory, and only once they have waited a while; so looking costs them nothing. Nor does this thread
//! ask the driver while something runs, which may let it wait for the very launch that it is to end: see [`Tender`](super::tender::Tender).

use super::context::{Context, LaunchMarks};
use super::{Gpu, calls};
use crate::communicator::Shared;
use crate::diagnose::goes_on;
use crate::error::{Doing, ExecutorError, Wait, Waits};
use crate::sync::lock;
use antiphon_bootstrap::Late;
use antiphon_codegen::abi::Where;
use antiphon_hal::HalError;
use antiphon_plan::program::{BlockMove, Instruction, RankLayout};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How often running launches are looked at.
const TICK: Duration = Duration::from_millis(20);
/// How often contexts without a known launch are: graphs launch without the host's knowledge.
const IDLE_TICK: Duration = Duration::from_millis(500);

/// The watching thread of one rank.
pub struct Watch {
    bell: Arc<Bell>,
}

/// Wakes the watching thread.
#[derive(Debug, Default)]
pub struct Bell {
    /// There is one. It is set before the rank's first launch.
    watched: AtomicBool,
    busy: AtomicBool,
    rung: Mutex<bool>,
    condition: Condvar,
}

impl Watch {
    /// Watches the launches of a rank while its communicator lives.
    pub fn start(shared: Weak<Shared>, bell: Arc<Bell>) -> Result<Self, HalError> {
        bell.watched.store(true, Ordering::Relaxed);
        // Before the launch looks whether the communicator has failed: see `is_watched`.
        fence(Ordering::SeqCst);
        let thread = Arc::clone(&bell);
        let named = std::thread::Builder::new().name("antiphon-watch".to_owned());
        let started = named.spawn(move || run(&thread, &shared));
        started.map_err(|error| HalError::no_thread("that watches launches", error))?;
        Ok(Watch { bell })
    }

    /// A launch was added.
    pub fn look(&self) {
        if !self.bell.busy.swap(true, Ordering::AcqRel) {
            self.bell.ring();
        }
    }
}

impl Bell {
    /// Has the thread look at once.
    pub fn ring(&self) {
        *lock(&self.rung) = true;
        self.condition.notify_one();
    }

    /// Whether a thread watches the rank's launches; if not, there is none. After a failure: a launch that comes later finds it.
    pub fn is_watched(&self) -> bool {
        fence(Ordering::SeqCst);
        self.watched.load(Ordering::Relaxed)
    }
}

fn run(bell: &Bell, shared: &Weak<Shared>) {
    let mut looks = Looks::default();
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let Some(gpu) = &strong.gpu else { return };
        let seen = looks.tick(&strong, gpu);
        if strong.failed() {
            strong.quieten_device(gpu);
        }
        let busy = seen.busy;
        if !busy {
            tidy(gpu);
        }
        if seen.stands || gpu.has_groups() || !busy && gpu.has_borrowed() {
            gpu.tender.ring(shared, &strong, gpu);
        }
        drop(strong);
        bell.busy.store(busy, Ordering::Release);
        let wait = if busy { TICK } else { IDLE_TICK };
        let rung = lock(&bell.rung);
        let waited = bell.condition.wait_timeout_while(rung, wait, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

/// What a context's launch was doing when it was first seen so.
struct Standing {
    late: Late,
    /// What the proxies of the node's ranks had moved when that last changed, and when that was: the launch may wait for them.
    moved: (u64, Instant),
    marks: LaunchMarks,
    progress: Vec<[u64; 2]>,
}

/// What was seen of launches at the last look, by their contexts.
#[derive(Default)]
pub struct Looks(HashMap<usize, Standing>);

/// What a look at all contexts has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Some launch is under way.
    pub busy: bool,
    /// One of them has not moved since the last look.
    pub stands: bool,
}

impl Looks {
    /// Looks at all contexts, and ends what makes no progress for the time limit. Asks no driver.
    pub fn tick(&mut self, shared: &Shared, gpu: &Gpu) -> Seen {
        tick(shared, gpu, &mut self.0)
    }
}

fn tick(shared: &Shared, gpu: &Gpu, standing: &mut HashMap<usize, Standing>) -> Seen {
    let mut seen = Seen::default();
    let moved = shared.passing();
    for context in gpu.contexts() {
        let marks = context.marks();
        let over = context.is_over(&gpu.asker);
        seen.busy |= !over;
        let id = Arc::as_ptr(&context).addr();
        if let Some(error) = context.fate.lost()
            && !shared.failed()
        {
            shared.end(error.clone());
        }
        if marks.is_quiet() {
            standing.remove(&id);
            if !over {
                // It may never begin.
                context.ask(&gpu.asker);
            }
            continue;
        }
        seen.busy = true;
        if shared.failed() {
            context.ask(&gpu.asker);
            continue;
        }
        let launch = Begun::new(shared, gpu, &context, marks);
        if let Some(error) = launch.mismatch() {
            shared.end(error);
            continue;
        }
        let stands = |then: &&mut Standing| then.marks == marks && then.progress == launch.progress;
        match standing.get_mut(&id).filter(stands) {
            Some(then) => {
                seen.stands = true;
                let now = Instant::now();
                if then.moved.0 != moved {
                    then.moved = (moved, now);
                }
                let waited = then.late.waited(now).min(now.saturating_duration_since(then.moved.1));
                context.ask(&gpu.asker);
                if let Some(error) = calls::differs(shared, &context) {
                    shared.end(error);
                } else if let Some(limit) = shared.options.timeout.filter(|&limit| waited >= limit)
                {
                    shared.end(launch.stalled(limit));
                } else if let Some(waited) = then.late.due(now) {
                    log::warn!("{}", shared.whose.says(goes_on(&launch.stalled(waited))));
                }
            }
            None => {
                let now = Instant::now();
                let (late, moved) = (Late::new(now), (moved, now));
                standing.insert(id, Standing { late, moved, marks, progress: launch.progress });
            }
        }
    }
    seen
}

/// Has what nobody uses any more freed. No launch is under way.
fn tidy(gpu: &Gpu) {
    let outgrown = std::mem::take(&mut *lock(&gpu.outgrown));
    for unused in [gpu.peers.tables.take_retired(), outgrown] {
        if !unused.is_empty() {
            gpu.reaper.free(unused);
        }
    }
    gpu.free_abandoned();
}

/// A launch that has begun and is not over.
pub(super) struct Begun<'a> {
    shared: &'a Shared,
    gpu: &'a Gpu,
    context: &'a Context,
    /// Its number, as the device counts the context's launches.
    number: u64,
    /// What its blocks have said.
    pub progress: Vec<[u64; 2]>,
}

/// An instruction, by its place in its block.
fn instruction(own: &RankLayout, block: u32, index: u32) -> Option<Instruction> {
    let start = own.blocks.get(block as usize)?.code.start;
    own.instructions.get(start as usize + index as usize).copied()
}

impl<'a> Begun<'a> {
    /// The launch that has begun last in a context with these marks.
    pub fn new(shared: &'a Shared, gpu: &'a Gpu, context: &'a Context, marks: LaunchMarks) -> Self {
        Begun { shared, gpu, context, number: marks.begun, progress: context.progress() }
    }

    /// The places of the blocks that have said where they stand.
    fn places(&self) -> impl Iterator<Item = (u32, Where)> + '_ {
        let number = self.number & 0xFFFF_FFFF;
        let said = (0..).zip(&self.progress).filter(move |(_, [at, _])| *at >> 32 == number);
        said.filter_map(|(block, [at, _])| Some((block, Where::unpack(*at as u32)?)))
    }

    fn own(&self) -> &RankLayout {
        &self.context.plan.layout().ranks[self.shared.rank as usize]
    }

    /// Its number on the communicator; 0 of one that a graph has.
    fn seq(&self) -> u64 {
        self.context.called().map_or(0, |called| called.turn.seq)
    }

    fn plan(&self) -> String {
        self.context.plan.name().to_owned()
    }

    /// What is called, in words; of one that a graph has, the plan.
    fn call(&self) -> String {
        let (rank, seq, plan) = (self.shared.rank, self.seq(), self.context.plan.name());
        match self.shared.control(rank).record(seq).filter(|_| seq != 0) {
            Some(record) => crate::diagnose::named(plan, record.bytes, record.call_type),
            None => format!("plan `{plan}`"),
        }
    }

    /// The error that a peer called something else, if a block says so.
    fn mismatch(&self) -> Option<ExecutorError> {
        self.places().find_map(|(_, place)| match place {
            Where::Mismatch(peer) => Some(calls::mismatched(self.shared, self.context, peer)),
            _ => None,
        })
    }

    /// The error that runtime blocks have different lengths, if a block says so. Asks the driver.
    pub fn differs(&self) -> Option<ExecutorError> {
        let own = self.own();
        self.places().find_map(|(block, place)| {
            let Where::Unequal(index) = place else { return None };
            let Some(Instruction::MoveBlock { index }) = instruction(own, block, index) else {
                return None;
            };
            Some(self.unequal(own.block_moves[index as usize]))
        })
    }

    fn unequal(&self, moved: BlockMove) -> ExecutorError {
        let Begun { gpu, context, number, .. } = *self;
        let recorded = || context.recorded_element.load(Ordering::Relaxed);
        let element = context.called().map_or_else(recorded, |called| called.element).max(1);
        let elements = |block| context.block_bytes(gpu, number, block).unwrap_or(0) / element;
        let name = crate::diagnose::runtime_block;
        let BlockMove { source, destination, .. } = moved;
        ExecutorError::Unequal {
            seq: self.seq(),
            plan: self.plan(),
            sender: source.rank,
            sent: elements(source),
            source_block: name(source),
            receiver: destination.rank,
            expected: elements(destination),
            destination: name(destination),
        }
    }

    /// The error if the launch no longer moves and a block of it waits for a peer that has left, or whose link is lost: whatever
    /// the peer did for the launch would have been seen by now. Asks the driver.
    pub fn deserted(&self) -> Option<ExecutorError> {
        let Begun { shared, gpu, context, number, .. } = *self;
        let own = self.own();
        // A block may have got long ago what it noted last as its wait: a peer that made the call did its part.
        // A peer that left in good order did its part of every call that it entered. Replays of graphs are not entered, and a lost
        // link says nothing of calls: there a peer's launch counts as done only if the peer has said that it is over.
        let over = |peer: u32| context.has_completed(gpu, peer, number);
        let left = |peer: &u32| match shared.has_left(*peer) {
            true => !calls::has_entered(shared, context, *peer).unwrap_or_else(|| over(*peer)),
            false => shared.ports.lost(*peer).is_some() && !over(*peer),
        };
        let awaited = |(block, place): (u32, Where)| match place {
            Where::Arena(peer)
            | Where::Descriptor(peer)
            | Where::Region(peer)
            | Where::Completion(peer) => Some(peer),
            Where::Packets(_) => {
                context.plan.uses(shared.rank).packet_writers.iter().copied().find(left)
            }
            Where::Instruction(index) => {
                let Some(Instruction::Wait { channel, .. }) = instruction(own, block, index) else {
                    return None;
                };
                Some(own.channels[channel as usize].peer)
            }
            _ => None,
        };
        let peer = self.places().filter_map(awaited).find(left)?;
        let launch = Some((self.seq(), self.plan()));
        let doing = Doing { rank: Some(shared.rank), launch, waits: self.waits() };
        Some(match shared.ports.lost(peer) {
            Some(lost) => lost.while_doing(doing),
            None => shared.deserted(peer, doing),
        })
    }

    /// The error if the launch no longer moves and a block of it waits for memory that its peer freed before it was mapped here,
    /// so that it never will be. Asks the driver.
    pub fn freed(&self) -> Option<ExecutorError> {
        let Begun { shared, gpu, context, number, .. } = *self;
        let is_freed = |&(block, peer): &(u32, u32)| {
            let unfound = || context.unfound(gpu, (block, peer), number);
            // Asked twice: the peer may retire memory that the block has found meanwhile, once the peer's launch is through with it.
            let mut gone =
                unfound().into_iter().filter(|&region| gpu.peers.tables.is_gone(peer, region));
            gone.any(|region| unfound().contains(&region))
        };
        let mut awaited = self.places().filter_map(|(block, place)| match place {
            Where::Region(peer) => Some((block, peer)),
            _ => None,
        });
        let (_, peer) = awaited.find(is_freed)?;
        Some(ExecutorError::Freed { rank: shared.rank, seq: self.seq(), plan: self.plan(), peer })
    }

    fn stalled(&self, limit: Duration) -> ExecutorError {
        let (rank, seq, call) = (self.shared.rank, self.seq(), self.call());
        let waits = Waits([self.waits().0, calls::last(self.shared)].concat());
        ExecutorError::Stalled { rank, seq, call, limit, waits }
    }

    /// Where its blocks stand, in words.
    fn waits(&self) -> Waits {
        let Begun { shared, context, .. } = *self;
        let wait = |(block, place)| {
            let (op, what) = describe(shared, context, self.own(), block, place);
            Wait { rank: shared.rank, block, op, what }
        };
        Waits(self.places().map(wait).collect())
    }
}

/// The operation at which a block waits, and what for.
fn describe(
    shared: &Shared,
    context: &Context,
    own: &RankLayout,
    block: u32,
    place: Where,
) -> (String, String) {
    let start = own.blocks.get(block as usize).map_or(0, |block| block.code.start as usize);
    let at = match place {
        Where::Instruction(index) | Where::Unequal(index) | Where::Closed(index) => {
            Some(start + index as usize)
        }
        Where::Packets(number) => own.instructions.iter().position(
            |instruction| matches!(instruction, Instruction::Move { index, .. } if *index == number),
        ),
        _ => None,
    };
    let op = at.and_then(|at| own.origins.get(at)).map_or_else(
        || "no op".to_owned(),
        |origin| {
            let inner =
                origin.inner.map_or_else(String::new, |inner| format!(", inner op {inner}"));
            format!("op {}{inner} ({})", origin.op, origin.kind)
        },
    );
    let what = match place {
        Where::Instruction(_) | Where::Packets(_) => {
            let instruction = at.and_then(|at| own.instructions.get(at));
            instruction.map_or_else(String::new, |instruction| {
                crate::diagnose::wanted(own, context.plan.uses(shared.rank), instruction)
            })
        }
        Where::Arena(peer) => format!("for rank {peer} to make its first launch of the plan"),
        Where::Descriptor(peer) => format!("for rank {peer} to enter the launch"),
        Where::Region(peer) => format!("for memory of rank {peer} to be mapped"),
        Where::Completion(peer) => {
            format!("for rank {peer} to complete an earlier launch, or its part of this one")
        }
        Where::Mismatch(peer) => format!("(rank {peer} called something else)"),
        Where::Unequal(_) => "(runtime blocks of different lengths)".to_owned(),
        Where::Closed(_) => "(the proxy has ended)".to_owned(),
        Where::Landing(channel) if (channel as usize) < own.channels.len() => {
            crate::diagnose::landing(own, channel)
        }
        Where::Landing(link) => {
            let partner = context.partner(link);
            partner.map_or_else(String::new, |peer| format!("for transfers to reach rank {peer}"))
        }
    };
    (op, what)
}
