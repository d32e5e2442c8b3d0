//! Stepping the blocks of a launch: this rank's own, and where ranks share cores or a process, the others'.

use super::posting;
use super::*;

/// Looks of a lone block at what it waits for, before the launch looks at its surroundings.
const PATIENCE: u32 = 256;
/// How often blocks are stepped before the launch's descriptor leaves without a transfer to travel with.
const ALONE: u32 = 32;

/// A rank's arena, and where its input and output are.
type OwnSeats = ((ArenaShape, Arc<dyn Memory>), [RegionAt; 2]);

/// What driving blocks came to.
pub(super) enum Driven {
    /// The rank's launch is complete.
    Complete,
    /// Something moved.
    Progress,
    /// Nothing moved; the first reason.
    Blocked(Blocked),
}

/// Counts a block as done with the launch.
fn retire(arena: &Arena, cursor: &Cursor, shared_cursors: bool) {
    cursor.done.store(1, Ordering::Relaxed);
    let remaining = &arena.header().remaining.0;
    if shared_cursors {
        remaining.fetch_sub(1, Ordering::AcqRel);
    } else {
        // Peers whose buffers it wrote to look at it, too.
        remaining.store(remaining.load(Ordering::Relaxed) - 1, Ordering::Release);
    }
}

/// The operator that moves apply: an average is a sum until the end.
fn fold(op: ReduceOp) -> ReduceOp {
    if op == ReduceOp::Avg { ReduceOp::Sum } else { op }
}

impl Launch<'_> {
    /// Steps this rank's blocks, and where ranks share cores or a process, the others' too.
    pub(super) fn drive(&self, state: &mut ContextState) -> Result<Driven, ExecutorError> {
        let rank = self.shared.rank;
        let assists = self.shared.assists();
        let mut driven = self.drive_rank(state, rank, assists)?;
        let over = own_arena(state, rank).header().remaining.0.load(Ordering::Acquire) == 0;
        if let Some(blocked) = self.tell(state, over)? {
            return Ok(Driven::Blocked(blocked));
        }
        if over {
            return Ok(Driven::Complete);
        }
        if assists && matches!(driven, Driven::Blocked(_)) && self.everyone(state) {
            for peer in 0..self.shared.world {
                if self.shared.may_assist(peer) && self.assistable(state, peer)? {
                    let other = self.drive_rank(state, peer, true)?;
                    if matches!(other, Driven::Progress) {
                        driven = Driven::Progress;
                    }
                }
            }
        }
        Ok(driven)
    }

    /// Mirrors the launch's descriptor to the peers behind ports that cannot see it; what to wait for if some link is full.
    ///
    /// Where no peer needs it to go on, it waits for a transfer with which it travels, though not for long: it also says
    /// that this rank has come, and for what, to peers that wait for it.
    pub(super) fn tell(
        &self,
        state: &mut ContextState,
        now: bool,
    ) -> Result<Option<Blocked>, ExecutorError> {
        let shared = self.shared;
        let Some(active) = &mut state.active else { return Ok(None) };
        let uses = self.context.plan.uses(shared.rank);
        let peers = &uses.port_peers;
        if active.told == peers.len() {
            return Ok(None);
        }
        active.looks += 1;
        // The first launches tell where the context's memory is.
        let needed = self.order.count <= 2 || uses.input.posted || uses.output.posted;
        if !(needed || now || active.spoke || active.looks > ALONE) {
            return Ok(None);
        }
        while let Some(&peer) = peers.get(active.told) {
            let near = shared.peers[peer as usize].same_node;
            if !near && !shared.publish(peer, self.order.seq)? {
                return Ok(Some(Blocked::Untold(peer)));
            }
            active.told += 1;
        }
        Ok(None)
    }

    /// Tells the ranks to which this one may have written behind its last signal to them, over a wire, that its blocks are through;
    /// the one whose link is full, if any.
    pub(super) fn tell_through(
        &self,
        state: &mut ContextState,
    ) -> Result<Option<u32>, ExecutorError> {
        let Some(active) = &mut state.active else { return Ok(None) };
        let uses = self.context.plan.uses(self.shared.rank);
        while let Some(&peer) = uses.written_late.get(active.told_through) {
            let ports = &self.shared.ports;
            // The plan's own links stand on both sides since the launch began, others may come up meanwhile.
            let by_wire = uses.port_peers.contains(&peer) && ports.is_mirrored(peer);
            if by_wire && !ports.tell_through(peer, self.order.seq)? {
                return Ok(Some(peer));
            }
            active.told_through += 1;
        }
        Ok(None)
    }

    /// Whether every rank of the node has entered the launch. Before that, the ranks that have are mostly waiting for the others.
    fn everyone(&self, state: &mut ContextState) -> bool {
        let Some(active) = &mut state.active else { return false };
        let world = self.shared.world;
        let entered = |rank: u32| {
            !self.shared.peers[rank as usize].same_node
                || self.shared.control(rank).entered(self.order.seq)
        };
        while active.entered < world && entered(active.entered) {
            active.entered += 1;
        }
        active.entered == world
    }

    /// Whether a peer has entered this launch and all it needs is mapped here.
    fn assistable(&self, state: &mut ContextState, peer: u32) -> Result<bool, ExecutorError> {
        let control = self.shared.control(peer);
        if !control.entered(self.order.seq) || !self.admit_peer(state, peer)? {
            return Ok(false);
        }
        let index = peer as usize;
        let Some(arena) = state.arenas[index] else { return Ok(false) };
        let header = arena.header();
        if header.launch.0.load(Ordering::Acquire) != self.order.seq
            || header.remaining.0.load(Ordering::Relaxed) == 0
            || control.quiet.0.load(Ordering::Acquire) != 0
        {
            return Ok(false);
        }
        if state.places[index][0] == Place::Unknown {
            let mut resolver = self.resolver(&mut state.held, &mut state.agreed);
            match resolver.resolve(peer) {
                Ok(places) => state.places[index] = places,
                Err(Unready::Blocked(_)) => return Ok(false),
                Err(Unready::Failed(fault)) => return Err(self.fault(fault)),
            }
        }
        Ok(state.places[index].iter().all(|place| matches!(place, Place::Here(_))))
    }

    /// Steps the blocks of `rank` once each, as far as they go without waiting.
    pub(super) fn drive_rank(
        &self,
        state: &mut ContextState,
        rank: u32,
        shared_cursors: bool,
    ) -> Result<Driven, ExecutorError> {
        let plan = &self.context.plan;
        let layout = plan.layout();
        let program = self.sized.program(layout, rank).map_err(|e| plan.lower_error(e))?;
        let flag = state.active.as_ref().map_or(0, |active| active.flag);
        let seats = self.seats(state, rank);
        let ContextState { arenas, places, agreed, held, pad, far, .. } = state;
        let mut poster = seats.map(|(own, buffers)| posting::Poster {
            launch: self,
            far,
            own,
            buffers,
            spoke: false,
        });
        let Some(arena) = arenas[rank as usize] else {
            return Ok(Driven::Blocked(Blocked::Entry(rank)));
        };
        let stage = Stage {
            rank,
            layout,
            program,
            arenas,
            flag,
            dtype: self.order.dtype,
            reduce: self.order.op.map(fold),
            patience: self.patience(layout.ranks[rank as usize].blocks.len()),
        };
        let mut resolver = self.resolver(held, agreed);
        let mut table = Table::new(places, &mut resolver);
        let mut first = None;
        let mut progress = false;
        for block in 0..layout.ranks[rank as usize].blocks.len() as u32 {
            let cursor = arena.cursor(block);
            if !self.takes(&arena, cursor, shared_cursors) {
                continue;
            }
            let before = cursor.position();
            // SAFETY: the cursor is locked, or nobody else steps this rank; arenas and buffers are held by `state` and
            // by the caller's contract, and lowering keeps offsets inside the launch's sizes.
            let stepped = unsafe {
                let posting = poster.as_mut().map(|poster| poster as &mut dyn Posting);
                step(&stage, block, &mut table, pad, posting)
            };
            progress |= cursor.position() != before;
            let outcome = match stepped {
                Step::Done => {
                    retire(&arena, cursor, shared_cursors);
                    progress = true;
                    Ok(())
                }
                Step::Blocked(blocked) => {
                    // What the launch itself must make available goes before what peers will do.
                    if first.is_none() || matches!(blocked, Blocked::Entry(_)) {
                        first = Some(blocked);
                    }
                    Ok(())
                }
                Step::Paused => Ok(()),
                Step::Failed(fault) => Err(fault),
            };
            if shared_cursors {
                cursor.unlock();
            }
            if let Err(fault) = outcome {
                return Err(self.fault(fault));
            }
        }
        let spoke = poster.is_some_and(|poster| poster.spoke);
        if let Some(active) = state.active.as_mut().filter(|_| spoke) {
            active.spoke = true;
        }
        Ok(match first {
            _ if progress => Driven::Progress,
            Some(blocked) => Driven::Blocked(blocked),
            None => Driven::Blocked(Blocked::Entry(rank)),
        })
    }

    /// Whether a block is this thread's to step, until it unlocks the cursor where several threads may have it.
    fn takes(&self, arena: &Arena, cursor: &Cursor, shared_cursors: bool) -> bool {
        let is_done = || cursor.done.load(Ordering::Relaxed) != 0;
        if is_done() || (shared_cursors && !cursor.try_lock()) {
            return false;
        }
        let current = || arena.header().launch.0.load(Ordering::Acquire) == self.order.seq;
        if shared_cursors && (!current() || is_done()) {
            cursor.unlock();
            return false;
        }
        true
    }

    /// What the port channels of this rank's own blocks need: the rank's arena, and where its buffers are.
    pub(super) fn seats(&self, state: &ContextState, rank: u32) -> Option<OwnSeats> {
        let shared = self.shared;
        if rank != shared.rank || self.context.plan.layout().port.is_none() {
            return None;
        }
        let active = state.active.as_ref()?;
        let memory = state.arena_memory[rank as usize].clone()?;
        let shape = *own_arena(state, rank).shape();
        Some(((shape, memory), [active.buffers.input_at, active.buffers.output_at]))
    }

    /// A lone block of a rank with a core of its own may look again at once; others must let someone else run.
    fn patience(&self, blocks: usize) -> u32 {
        let alone =
            blocks == 1 && !self.shared.assists() && self.context.plan.layout().port.is_none();
        if alone { PATIENCE } else { 0 }
    }

    fn resolver<'a>(
        &'a self,
        held: &'a mut [[Option<Held>; 2]],
        agreed: &'a mut [u64],
    ) -> Resolver<'a> {
        Resolver { launch: self, held, agreed }
    }

    /// Makes what a block waits for available, if it has come; `true` if something became so.
    pub(super) fn admit(
        &self,
        state: &mut ContextState,
        blocked: Blocked,
    ) -> Result<bool, ExecutorError> {
        match blocked {
            Blocked::Entry(peer) | Blocked::Writer(peer) if peer != self.shared.rank => {
                let mut admitted = false;
                for peer in 0..self.shared.world {
                    let missing = state.arenas[peer as usize].is_none();
                    admitted |= missing && self.admit_peer(state, peer)?;
                }
                Ok(admitted)
            }
            _ => Ok(false),
        }
    }

    /// Opens a peer's arena once its descriptor names it and its mapping has arrived.
    fn admit_peer(&self, state: &mut ContextState, peer: u32) -> Result<bool, ExecutorError> {
        let index = peer as usize;
        if state.arenas[index].is_some() {
            return Ok(true);
        }
        let Some(record) = self.entered(peer).map_err(|fault| self.fault(fault))? else {
            return Ok(false);
        };
        let Some(memory) = self.shared.regions.memory.region(peer, record.arena) else {
            return Ok(false);
        };
        let layout = &self.context.plan.layout().ranks[index];
        // SAFETY: the memory is mapped for its whole length and kept in `arena_memory`.
        let arena = unsafe { Arena::open(memory.address(), memory.len(), layout) };
        let Some(arena) = arena else {
            let found = format!("{} bytes of another layout", memory.len());
            return Err(ExecutorError::Layout { what: "launch context", peer, found });
        };
        state.arenas[index] = Some(arena);
        state.arena_memory[index] = Some(memory);
        Ok(true)
    }
}
