//! One launch of a plan on one rank: from its descriptor to its completion.

mod driving;
mod outcome;
mod posting;
mod queued;
mod resolver;

use crate::communicator::Shared;
use crate::context::{Context, ContextState, Held};
use crate::diagnose;
use crate::error::{Doing, ExecutorError};
use crate::host::moves::PART;
use crate::host::posts::Posting;
use crate::host::table::{Place, Resolve, Table};
use crate::host::{Blocked, Fault, Stage, Step, Unready, step};
use crate::placement::{self, Buffers};
use crate::plan_cache::Sized;
use crate::shared::arena::{Arena, ArenaShape, BlockBytes, Cursor};
use crate::shared::control::{ControlPage, FOREIGN, LaunchRecord, RING, RegionAt};
use crate::waiting::{Verdict, Waiter};
use antiphon_bootstrap::Late;
use antiphon_hal::{Effort, Memory};
use antiphon_transport::{Handle, Mapping, RemoteBuffer};
use antiphon_types::{DataType, ReduceOp};
use driving::Driven;
pub use queued::QueuedLaunch;
use resolver::Resolver;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Launches after which a rank compares its history with its peers'.
const HISTORY_CHECK: u64 = 32;
/// How often in a row links may move something before the launch looks at its surroundings: what they move may be for other streams.
const CARRIES: u64 = 64;
/// How long a failed launch waits for peers in other processes that may still reach into its memory themselves: one that does not
/// come to an end then has been stopped, and finds the launch given up when it goes on.
pub(crate) const QUIET_LIMIT: Duration = Duration::from_millis(500);

/// What a launch was asked to do.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The caller's send buffer.
    pub input: *const u8,
    /// The caller's receive buffer.
    pub output: *mut u8,
    /// Bytes of the two buffers; with runtime sizes, of this rank's.
    pub bytes: (u64, u64),
    /// Element type.
    pub dtype: DataType,
    /// The caller's operator, as given.
    pub op: Option<ReduceOp>,
    /// Number on the communicator.
    pub seq: u64,
    /// Number on the context, from 1.
    pub count: u64,
    /// Hash of the call.
    pub fingerprint: u64,
    /// Hash of all calls up to this one.
    pub chain: u64,
    /// By the plan's proof no other rank touches the buffers once this rank's blocks are done.
    pub proven: bool,
}

/// A launch, for as long as one poll borrows what it works with.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) context: &'a Context,
    pub(crate) sized: &'a Sized,
    pub(crate) order: &'a Order,
    /// This rank's runtime blocks: those of the input, then those of the output.
    pub(crate) runtime_blocks: &'a [BlockBytes],
    /// Since when it has made no progress, while it waits to begin.
    pub(crate) waiting: &'a Mutex<Option<Stalled>>,
}

/// A wait that was found to make no progress.
pub struct Stalled {
    /// Since when the rank's position has not changed.
    late: Late,
    position: u64,
    /// What others move that the launch may wait for has not changed since then, either.
    still: Instant,
    around: u64,
    /// How far writes over the plan's links had come when it was looked at last.
    carried: u64,
}

/// What came of a poll.
enum Polled {
    Complete,
    Pending,
    /// An earlier launch of the context, which another thread drives, is not over.
    Queued,
}

/// What came of stepping a launch.
enum Stepped {
    /// All that is left is to end it.
    Complete,
    /// A block moved.
    Progress,
    /// A link moved something, perhaps for the launch.
    Carried,
    Blocked(Blocked),
}

/// What a running launch remembers between polls.
pub struct Active {
    seq: u64,
    flag: u32,
    buffers: Buffers,
    /// Ranks below this one have entered the launch.
    entered: u32,
    /// So many of the plan's peers behind ports have its descriptor.
    told: usize,
    /// So many of the ranks that it writes late know that its blocks are through.
    told_through: usize,
    /// How often the blocks were stepped meanwhile.
    looks: u32,
    /// Something was posted to a link.
    spoke: bool,
    /// How often this launch found that the plan's links moved something, and nothing else did.
    carried: u64,
    stalled: Option<Stalled>,
}

/// Gives a launch up if working on it panics, as the program's logger may: peers would go on using its buffers, which the caller
/// has back then.
struct GivesUp<'l, 'a>(&'l Launch<'a>);

impl Drop for GivesUp<'_, '_> {
    fn drop(&mut self) {
        self.0.abandon("a panic while a launch was worked on");
    }
}

impl Launch<'_> {
    /// Works on the launch as hard as `effort` allows; `true` once it is complete.
    pub fn advance(&self, effort: Effort) -> Result<bool, ExecutorError> {
        let unwinding = GivesUp(self);
        let advanced = self.advance_guarded(effort);
        std::mem::forget(unwinding);
        advanced
    }

    fn advance_guarded(&self, effort: Effort) -> Result<bool, ExecutorError> {
        let mut state = self.context.state();
        let worked = self.work(&mut state, effort);
        // Of a launch that has ended meanwhile there is nothing to say.
        let word = state.word.take();
        match worked {
            Ok(Polled::Complete) => {
                self.context.hand_on(&state);
                drop(state);
                if self.shared.failed() {
                    // The control thread does not mark the rank as quiet while a thread works on a launch.
                    self.shared.quieten_behind_the_last();
                }
                Ok(true)
            }
            Ok(Polled::Queued) if effort == Effort::Wait => {
                self.context.queue(state);
                Ok(false)
            }
            Ok(Polled::Queued | Polled::Pending) => {
                drop(state);
                if let Some(word) = word {
                    log::warn!("{}", self.shared.whose.says(word));
                }
                Ok(false)
            }
            Err(error) => {
                let running = state.active.take_if(|active| active.seq == self.order.seq);
                drop(state);
                self.give_up(running, &error);
                Err(self.context.plan.told(error))
            }
        }
    }

    fn work(&self, state: &mut ContextState, effort: Effort) -> Result<Polled, ExecutorError> {
        let links = posting::Links::new(self);
        let worked = self.work_with(state, effort, &links)?;
        // The end may copy much, in one piece: the proxy serves the links meanwhile.
        drop(links);
        if matches!(worked, Polled::Complete) {
            self.finish(state);
        }
        Ok(worked)
    }

    /// Works on the launch up to its end, which is the caller's to make.
    fn work_with(
        &self,
        state: &mut ContextState,
        effort: Effort,
        links: &posting::Links<'_>,
    ) -> Result<Polled, ExecutorError> {
        let shared = self.shared;
        // Whoever is waited for may need this core, or this very thread.
        let brief = effort == Effort::Brief && shared.assists();
        let mut waiter = Waiter::new(if brief { Effort::Try } else { effort }, shared.yields);
        if shared.failed() {
            let error = self.broken(state);
            return self.unless_it_came(state, links, error);
        }
        loop {
            let begun = self.has_begun(state);
            let blocked = if begun {
                match self.step(state, links)? {
                    Stepped::Complete => return Ok(Polled::Complete),
                    Stepped::Progress => {
                        waiter.progressed();
                        shared.note_moved();
                        if shared.failed() {
                            let error = self.broken(state);
                            return self.unless_it_came(state, links, error);
                        }
                        continue;
                    }
                    Stepped::Carried => {
                        shared.note_carried();
                        continue;
                    }
                    Stepped::Blocked(blocked) => blocked,
                }
            } else {
                match self.begin(state)? {
                    None => continue,
                    Some(blocked) => {
                        // Copies of much, which begin then, are made while the proxy has the links.
                        if !self.is_large() {
                            links.progress();
                        }
                        blocked
                    }
                }
            };
            if blocked == Blocked::Turn {
                // The launch whose turn it is needs the state.
                self.check(state, Instant::now(), blocked)?;
                return Ok(Polled::Queued);
            }
            if self.admit(state, blocked)? {
                continue;
            }
            let (now, pending) = match waiter.pause(self.stalled_for(state)) {
                Verdict::Again => continue,
                Verdict::Check(now) => (now, false),
                Verdict::GiveUp => (Instant::now(), true),
            };
            if let Err(error) = self.check(state, now, blocked) {
                return self.unless_it_came(state, links, error);
            }
            if pending {
                if begun {
                    // The caller may not come back for long.
                    self.tell(state, true)?;
                    links.progress();
                }
                return Ok(Polled::Pending);
            }
        }
    }

    /// Whether it is this launch that the context runs.
    fn has_begun(&self, state: &ContextState) -> bool {
        state.active.as_ref().is_some_and(|active| active.seq == self.order.seq)
    }

    /// Whether placing the buffers may take so long that links are not to go unserved meanwhile: their peers would count them as lost.
    fn is_large(&self) -> bool {
        let (input, output) = self.order.bytes;
        input.saturating_add(output) > PART
    }

    /// Steps what has begun, and says whether it is complete.
    fn step(
        &self,
        state: &mut ContextState,
        links: &posting::Links<'_>,
    ) -> Result<Stepped, ExecutorError> {
        links.hold();
        let driven = self.drive(state);
        // What was posted goes out, and what came in may unblock.
        let moved = links.progress();
        if moved {
            self.shared.note_passing();
        }
        let blocked = match driven? {
            Driven::Progress => return Ok(Stepped::Progress),
            Driven::Blocked(blocked) => blocked,
            Driven::Complete => {
                let untold = self.tell_through(state)?.map(Blocked::Untold);
                let late = untold.or_else(|| self.late_writer(state).map(Blocked::Writer));
                let unread = || posting::unread(self, state).map(Blocked::Unread);
                let given_up = || self.given_up().map(Blocked::GivenUp);
                match late.or_else(unread).or_else(given_up) {
                    Some(blocked) => blocked,
                    None => return Ok(Stepped::Complete),
                }
            }
        };
        let carried = moved && !carried(state).is_multiple_of(CARRIES);
        Ok(if carried { Stepped::Carried } else { Stepped::Blocked(blocked) })
    }

    /// Ends a launch by an error, unless all that it needs has come while nobody looked: the peer that sent it has gone on, and
    /// what it met then must not fail a launch here that only looks late. A launch that merely moved, or began, waits anew.
    #[cold]
    fn unless_it_came(
        &self,
        state: &mut ContextState,
        links: &posting::Links<'_>,
        error: ExecutorError,
    ) -> Result<Polled, ExecutorError> {
        let failed = self.shared.failed();
        let stalled = matches!(error, ExecutorError::Stalled { .. });
        if !self.has_begun(state) {
            let begins = stalled && !failed && matches!(self.begin(state), Ok(None));
            return if begins { Ok(Polled::Pending) } else { Err(error) };
        }
        let differs = matches!(error, ExecutorError::Mismatch { .. });
        // Over nodes a failed launch does not go on: others may have passed on what a rank of another node has given up.
        let goes_on = !differs && !state.ended && (!failed || self.shared.one_node);
        let mut moved = false;
        while goes_on && self.given_up().is_none() {
            match self.step(state, links) {
                Ok(Stepped::Complete) => return Ok(Polled::Complete),
                Ok(Stepped::Progress) => moved = true,
                // What a link moved shows that the launch is not stalled, but says nothing of a peer that is gone.
                Ok(Stepped::Carried) => moved |= stalled,
                Ok(Stepped::Blocked(blocked)) if self.admit(state, blocked).is_ok_and(|it| it) => {}
                Ok(Stepped::Blocked(_)) | Err(_) => break,
            }
        }
        if !moved {
            return Err(error);
        }
        // The launch waits for something else by now.
        if failed { Err(self.broken(state)) } else { Ok(Polled::Pending) }
    }

    /// Enters the launch: places the buffers, resets the cursors, publishes the descriptor.
    fn begin(&self, state: &mut ContextState) -> Result<Option<Blocked>, ExecutorError> {
        let shared = self.shared;
        if state.active.is_some() || state.begun + 1 != self.order.count {
            // An earlier launch of the context, submitted by another thread, has its turn first.
            return Ok(Some(Blocked::Turn));
        }
        if let Some(peer) = shared.missing(self.order.seq) {
            return Err(shared.deserted(peer, self.doing(state)));
        }
        for &peer in &self.context.plan.uses(shared.rank).port_peers {
            if shared.ports.link(peer)?.is_none() {
                return Ok(Some(Blocked::Link(peer)));
            }
        }
        if let Some(peer) = self.behind(state) {
            return Ok(Some(Blocked::Behind(peer)));
        }
        if let Some(peer) = shared.ports.unread(self.order.seq) {
            return Ok(Some(Blocked::Descriptor(peer)));
        }
        if self.order.seq.is_multiple_of(HISTORY_CHECK) {
            self.compare_history()?;
        }
        shared.sweep()?;
        // SAFETY: the buffers are valid for the launch's sizes until it is complete.
        let buffers = unsafe { placement::place(self, state)? };
        if state.retired != shared.regions.memory.retirements() {
            state.retired = shared.regions.memory.retirements();
            state.held.iter_mut().for_each(|held| *held = [None, None]);
        }
        for place in &mut state.places {
            *place = [Place::Unknown; 2];
        }
        state.places[shared.rank as usize] =
            [Place::Here(buffers.input.cast_mut()), Place::Here(buffers.output)];
        // The flag has bits of the history: ranks that once called different things take no packets of each other in any later
        // launch.
        let flag = ((self.order.count as u32) & 0x00FF_FFFF) << 8 | (self.order.chain >> 56) as u32;
        let arena = own_arena(state, shared.rank);
        if !self.rewind(&arena) {
            return Ok(Some(Blocked::Held));
        }
        let header = arena.header();
        header.remaining.0.store(self.blocks().into(), Ordering::Relaxed);
        header.launch.0.store(self.order.seq, Ordering::Release);
        // Before the descriptor, whose readers count on it.
        arena.set_blocks(self.order.count & 1, self.runtime_blocks);
        shared.control(shared.rank).publish(&LaunchRecord {
            arena: self.context.region,
            input: buffers.input_at,
            output: buffers.output_at,
            ..self.record()
        });
        state.begun = self.order.count;
        state.active = Some(Active {
            seq: self.order.seq,
            flag,
            buffers,
            entered: 0,
            told: 0,
            told_through: 0,
            looks: 0,
            spoke: false,
            carried: 0,
            stalled: None,
        });
        Ok(None)
    }

    /// A peer that must come further before this launch may begin: one that may still read the descriptors or the table of
    /// runtime blocks which this launch would overwrite, or one that may still read packets which it would. If the sizes have
    /// changed, scratch is cut differently, which the plan's own order between launches does not cover: then all must have
    /// completed the last launch.
    fn behind(&self, state: &mut ContextState) -> Option<u32> {
        let shared = self.shared;
        let completed = |peer: u32| shared.control(peer).completed.0.load(Ordering::Acquire);
        let mut needed = self.order.seq.saturating_sub(RING);
        if self.context.plan.layout().runtime_sizes {
            // This launch's blocks go into the table of the launch before last.
            needed = needed.max(state.recent[0]);
        }
        let resized = state.sizes.is_some_and(|sizes| sizes != self.sized.sizes());
        if resized && self.context.plan.has_scratch() {
            needed = needed.max(state.recent[1]);
        }
        if state.floor < needed {
            // This rank too: a launch of another stream that has not begun yet shares the descriptor's slot, and
            // would overwrite it later.
            let seen = (0..shared.world).filter(|&rank| shared.sees(rank));
            let ranks = seen.map(|rank| (completed(rank), rank));
            let (least, peer) = ranks.min().unwrap_or((u64::MAX, 0));
            if least < needed {
                return Some(peer);
            }
            state.floor = least;
        }
        let earlier = state.recent[0];
        let uses = self.context.plan.uses(shared.rank);
        let unheard = if state.silent { &uses.packet_targets } else { &uses.unheard };
        unheard.iter().copied().find(|&peer| completed(peer) < earlier)
    }

    /// A peer that may still touch this rank's buffers: what is staged is copied back only once, and the caller may free what is
    /// not. None if the plan is proven.
    fn late_writer(&self, state: &ContextState) -> Option<u32> {
        if self.order.proven {
            return None;
        }
        let staged = state.active.as_ref().is_some_and(|active| active.buffers.copies_back());
        let uses = self.context.plan.uses(self.shared.rank);
        uses.guests.iter().copied().find(|&peer| {
            // What is not staged is a region, to which no wire writes once it is freed.
            let writes = staged && uses.late_writers.contains(&peer);
            let by_wire = writes && uses.port_peers.contains(&peer);
            // Not that it has completed the launch: it may itself wait for this rank.
            let through = |page: &ControlPage| page.is_through(self.order.seq);
            if by_wire && !self.shared.mirror(peer).is_none_or(through) {
                return true;
            }
            if !self.shared.peers[peer as usize].same_node {
                return false;
            }
            state.arenas[peer as usize].is_none_or(|arena| {
                let header = arena.header();
                let launch = header.launch.0.load(Ordering::Acquire);
                let remaining = header.remaining.0.load(Ordering::Acquire);
                launch < self.order.seq || (launch == self.order.seq && remaining > 0)
            })
        })
    }

    /// Resets the cursors for this launch, keeping out threads that still look at the last one; `false` while one of them holds a
    /// cursor.
    fn rewind(&self, arena: &Arena) -> bool {
        let assists = self.shared.assists();
        if assists {
            arena.header().launch.0.store(0, Ordering::SeqCst);
        }
        for block in 0..self.blocks() {
            let cursor = arena.cursor(block);
            if assists && !cursor.try_lock() {
                return false;
            }
            cursor.rewind();
            if assists {
                cursor.unlock();
            }
        }
        true
    }

    fn blocks(&self) -> u32 {
        self.context.plan.layout().ranks[self.shared.rank as usize].blocks.len() as u32
    }

    /// Ends the launch: the caller's buffers hold the result.
    fn finish(&self, state: &mut ContextState) {
        let shared = self.shared;
        // Packets are read relaxed: what their writers did before the launch is visible from here on.
        fence(Ordering::Acquire);
        let in_place = self.order.input == self.order.output.cast_const();
        let averages = self.order.op == Some(ReduceOp::Avg)
            && self.context.plan.averages(shared.rank, in_place);
        if let Some(active) = state.active.take() {
            // SAFETY: no block touches the buffers any more, and they are valid by the caller's contract.
            unsafe {
                active.buffers.copy_out(self);
                if averages {
                    let bytes = self.order.bytes.1 as usize;
                    let Order { dtype, output, .. } = *self.order;
                    antiphon_hal::kernels::divide(dtype, output, bytes, shared.world);
                }
            }
        }
        state.recent = [state.recent[1], self.order.seq];
        state.sizes = Some(self.sized.sizes());
        state.silent = self.sized.silent(self.context.plan.layout(), shared.rank);
        shared.complete(self.order.seq);
    }
}

/// Notes that links moved something; how often they have.
fn carried(state: &mut ContextState) -> u64 {
    let Some(active) = &mut state.active else { return 0 };
    active.carried += 1;
    active.carried
}

fn own_arena(state: &ContextState, rank: u32) -> Arena {
    match state.arenas[rank as usize] {
        Some(arena) => arena,
        None => unreachable!("a context is made with its own arena"),
    }
}

#[cfg(test)]
mod tests;
