//! Whether a launch can still finish, and what becomes of it if not.

use super::*;
use crate::ports::Ports;
use crate::shared::Line;
use crate::shared::control::CallType;
use crate::sync::{lock, shielded};
use antiphon_plan::program::{Area, Instruction};
use std::sync::MutexGuard;

impl Launch<'_> {
    /// How long the launch has made no progress, as far as is known.
    pub(super) fn stalled_for(&self, state: &ContextState) -> Duration {
        let waited = |stalled: &Option<Stalled>| {
            stalled.as_ref().map_or(Duration::ZERO, |stalled| stalled.late.waited(Instant::now()))
        };
        match &state.active {
            Some(active) if active.seq == self.order.seq => waited(&active.stalled),
            _ => waited(&self.waits()),
        }
    }

    /// The slow look: whether the launch, which waits for something, can still finish.
    pub(super) fn check(
        &self,
        state: &mut ContextState,
        now: Instant,
        blocked: Blocked,
    ) -> Result<(), ExecutorError> {
        let shared = self.shared;
        if shared.failed() {
            return Err(self.broken(state));
        }
        for peer in (0..shared.world).filter(|&peer| peer != shared.rank) {
            self.compare(peer, self.order.seq)?;
        }
        self.linked(state)?;
        if let Some(peer) = self.deserter(state) {
            return Err(shared.deserted(peer, self.doing(state)));
        }
        // Progress of this launch and of those before it.
        let position = self.progress_of(state).wrapping_add(state.begun);
        let around = self.around(blocked);
        let carried = if shared.one_node { 0 } else { self.sum_of_links(Ports::carried) };
        let mut waits = self.waits();
        let stalled = match &mut state.active {
            Some(active) if active.seq == self.order.seq => &mut active.stalled,
            _ => &mut *waits,
        };
        if stalled.as_ref().is_some_and(|before| before.carried != carried) {
            shared.note_written();
        }
        match stalled {
            Some(stalled) if stalled.position == position => {
                stalled.carried = carried;
                if stalled.around != around {
                    (stalled.around, stalled.still) = (around, now);
                }
                let waited = now.saturating_duration_since(stalled.still);
                // A launch that waits for its turn is neither ended nor reported: the launch before it is.
                let own = blocked != Blocked::Turn;
                let limit = shared.options.timeout.filter(|&limit| own && waited >= limit);
                let overdue = stalled.late.due(now).filter(|_| own);
                drop(waits);
                if let Some(limit) = limit {
                    return Err(self.stalled(state, limit, blocked));
                }
                if let Some(waited) = overdue {
                    state.word = Some(diagnose::goes_on(&self.stalled(state, waited, blocked)));
                }
            }
            _ => {
                let late = Late::new(now);
                *stalled = Some(Stalled { late, position, still: now, around, carried });
            }
        }
        Ok(())
    }

    /// Progress of others, for which the launch may wait: of what peers are to pass on, and of ranks that are in this launch, as they
    /// may have much to do for others first; or of the launches, on whatever streams, that a peer must complete before this one
    /// begins, for which this rank's may be needed.
    pub(super) fn around(&self, blocked: Blocked) -> u64 {
        let (shared, seq) = (self.shared, self.order.seq);
        let word = |word: &Line| word.0.load(Ordering::Relaxed);
        let moved = |rank: u32| word(&shared.control(rank).moved);
        let others = match blocked {
            Blocked::Behind(peer) => {
                let completed = word(&shared.control(peer).completed);
                moved(shared.rank).wrapping_add(moved(peer)).wrapping_add(completed)
            }
            _ => {
                let peers = (0..shared.world).filter(|&peer| peer != shared.rank);
                let is_in = |peer: &u32| {
                    let page = shared.control(*peer);
                    page.entered(seq) && word(&page.completed) < seq
                };
                peers.filter(is_in).map(moved).fold(0, u64::wrapping_add)
            }
        };
        shared.passing().wrapping_add(others)
    }

    /// A peer on this node that has left before it came as far as this launch needs: one that the plan connects with this rank
    /// and that has not entered the launch, or one that had to complete an earlier launch before this one begins; or a lost one that such
    /// peers miss.
    fn deserter(&self, state: &mut ContextState) -> Option<u32> {
        let shared = self.shared;
        let seq = self.order.seq;
        let uses = self.context.plan.uses(shared.rank);
        let own = &self.context.plan.layout().ranks[shared.rank as usize];
        let connected = |peer: u32| {
            let touched = [&own.buffer_peers, &own.scratch_peers, &uses.packet_writers];
            // Those that touch this rank's buffers, if it waits for them.
            let guest = !self.order.proven && uses.guests.contains(&peer);
            guest
                || touched.iter().any(|peers| peers.contains(&peer))
                || own.channels.iter().any(|channel| channel.peer == peer)
        };
        // The page of a peer that has left shows all that it has done. Copies of the page of a peer on another node may come
        // later. A peer that was given up may have entered since, and gives up in turn.
        let entered = |peer: u32| {
            let page = shared.control(peer);
            let comes = page.record(seq).is_some() && !shared.has_lost(peer);
            comes || page.completed.0.load(Ordering::Acquire) >= seq
        };
        let left: Vec<u32> = (0..shared.world).filter(|&peer| shared.has_left(peer)).collect();
        if left.is_empty() {
            return None;
        }
        let begun = state.active.as_ref().is_some_and(|active| active.seq == seq);
        let awaited = if begun { None } else { self.behind(state) };
        let missed = |&peer: &u32| awaited == Some(peer) || !entered(peer) && connected(peer);
        // By way of others a launch may wait for a lost rank that it is not connected with. Who has yet to enter begins no launch
        // that a lost rank is missing from.
        let mut peers = (0..shared.world).filter(|&peer| peer != shared.rank);
        let missing = shared.missing(seq).filter(|_| peers.any(|peer| missed(&peer)));
        // A lost rank is named first, since it may be why another has left.
        missing.or_else(|| left.into_iter().find(missed))
    }

    /// Since when a launch that has not begun has made no progress.
    fn waits(&self) -> MutexGuard<'_, Option<Stalled>> {
        lock(self.waiting)
    }

    /// Checks the links that the launch waits for. A lost link brings nothing more, but is an error only if the launch awaits
    /// something from its peer: a peer that is through with the launch may leave while this rank waits for others.
    fn linked(&self, state: &mut ContextState) -> Result<(), ExecutorError> {
        let ports = &self.shared.ports;
        ports.remind();
        let peers = &self.context.plan.uses(self.shared.rank).port_peers;
        for &peer in peers {
            ports.miss(peer);
            if let Some(error) = ports.lost(peer).filter(|_| self.awaits(state, peer)) {
                return Err(match error {
                    ExecutorError::Link { peer, reason, .. } => {
                        ExecutorError::Link { peer, reason, doing: self.doing(state) }
                    }
                    other => other,
                });
            }
        }
        Ok(())
    }

    /// Whether the launch can go no further without something that comes over the link to a peer.
    fn awaits(&self, state: &mut ContextState, peer: u32) -> bool {
        let shared = self.shared;
        match &state.active {
            None => {
                let stands = matches!(shared.ports.link(peer), Ok(Some(_)));
                return !stands || self.behind(state) == Some(peer);
            }
            // That launch finds out by itself.
            Some(active) if active.seq != self.order.seq => return false,
            // The launch does not wait for the peer to have its descriptor: over a lost link nobody needs one.
            Some(_) => {}
        }
        if self.late_writer(state) == Some(peer) {
            return true;
        }
        let arena = own_arena(state, shared.rank);
        let own = &self.context.plan.layout().ranks[shared.rank as usize];
        let by_port = |channel: u32| {
            let end = &own.channels[channel as usize];
            end.port && end.peer == peer
        };
        // All that a peer posts in the launch has landed before its count says that it is through.
        let comes = || shared.landed(peer) < self.order.seq;
        (0..).zip(&own.blocks).any(|(block, code)| {
            let cursor = arena.cursor(block);
            if cursor.done.load(Ordering::Relaxed) != 0 {
                return false;
            }
            let at = cursor.pc.load(Ordering::Relaxed) as usize;
            match own.instructions[code.code.range()].get(at) {
                Some(Instruction::Wait { channel, .. }) => by_port(*channel) && comes(),
                Some(
                    Instruction::Signal { channel, .. }
                    | Instruction::Post { channel, .. }
                    | Instruction::Flush { channel },
                ) => by_port(*channel),
                Some(Instruction::Move { sources, .. }) => {
                    let mut read = own.accesses[sources.range()].iter();
                    let writers = &self.context.plan.uses(shared.rank).packet_writers;
                    let packets = read.any(|side| side.area == Area::Packets);
                    packets && writers.contains(&peer) && comes()
                }
                _ => false,
            }
        })
    }

    /// A peer of this node that has given this launch up: its caller may use its buffers again, so what was read there is
    /// worthless, here and wherever others of the node passed it on. Also names a peer that has completed this launch but not an
    /// earlier one on another stream.
    pub(super) fn given_up(&self) -> Option<u32> {
        let shared = self.shared;
        // Whatever this rank has read, it read before this look.
        fence(Ordering::Acquire);
        let near = shared.peers.iter().filter(|peer| peer.same_node && peer.rank != shared.rank);
        near.map(|peer| peer.rank).find(|&peer| self.has_given_up(peer))
    }

    /// Whether a peer of this node has given this launch up.
    pub(super) fn has_given_up(&self, peer: u32) -> bool {
        let page = self.shared.control(peer);
        page.quiet.0.load(Ordering::Acquire) != 0
            && page.completed.0.load(Ordering::Acquire) < self.order.seq
            && page.record(self.order.seq).is_some()
    }

    /// The error of a launch that has made no progress for `limit`.
    pub(super) fn stalled(
        &self,
        state: &ContextState,
        limit: Duration,
        blocked: Blocked,
    ) -> ExecutorError {
        let Order { seq, bytes, dtype, op, .. } = *self.order;
        let name = self.context.plan.name();
        ExecutorError::Stalled {
            rank: self.shared.rank,
            seq,
            call: diagnose::named(name, bytes, CallType::new(dtype, op)),
            limit,
            waits: diagnose::all_waits(self, state, blocked),
        }
    }

    /// A number that changes whenever one of this rank's blocks, or one of the plan's links, moves.
    pub(super) fn progress_of(&self, state: &ContextState) -> u64 {
        let shared = self.shared;
        // A long transfer is progress, whatever the blocks wait for, and whichever thread carries it.
        let carried = self.sum_of_links(Ports::moves);
        let arena = own_arena(state, shared.rank);
        (0..self.blocks())
            .map(|block| arena.cursor(block).position())
            .fold(carried, |sum, position| sum.wrapping_mul(31).wrapping_add(position))
    }

    /// The sum of a number that each of the plan's links has.
    fn sum_of_links(&self, number: impl Fn(&Ports, u32) -> u64) -> u64 {
        let shared = self.shared;
        let peers = self.context.plan.uses(shared.rank).port_peers.iter();
        peers.map(|&peer| number(&shared.ports, peer)).fold(0, u64::wrapping_add)
    }

    /// The error of a launch whose communicator broke under it.
    pub(super) fn broken(&self, state: &ContextState) -> ExecutorError {
        let now = self.doing(state);
        match self.shared.check() {
            Err(error) => error.while_doing(now),
            Ok(()) => ExecutorError::Aborted {
                by: self.shared.rank,
                reason: "unknown".to_owned(),
                doing: now,
            },
        }
    }

    pub(super) fn fault(&self, fault: Fault) -> ExecutorError {
        match fault {
            Fault::Reach { peer, what, errno } => ExecutorError::Reach {
                rank: self.shared.rank,
                seq: self.order.seq,
                plan: self.context.plan.name().to_owned(),
                peer,
                what,
                errno,
            },
            Fault::Unequal { source, read, destination, written } => {
                let element = self.order.dtype.size() as u64;
                let name = diagnose::runtime_block;
                ExecutorError::Unequal {
                    seq: self.order.seq,
                    plan: self.context.plan.name().to_owned(),
                    sender: source.rank,
                    sent: read / element,
                    source_block: name(source),
                    receiver: destination.rank,
                    expected: written / element,
                    destination: name(destination),
                }
            }
            Fault::Link(peer, reason) => ExecutorError::Link { peer, reason, doing: self.now() },
            Fault::Unannounced(region) => ExecutorError::Argument {
                what: "send a buffer over port channels",
                saw: format!("memory (region {region}) that the wires were not told of"),
                allowed: "memory that is held until the launch is over",
            },
            Fault::Outside(peer) => {
                let found = "a buffer outside its region".to_owned();
                ExecutorError::Layout { what: "launch descriptor", peer, found }
            }
            Fault::Mismatch(peer) => {
                let unknown = || {
                    let Order { seq, .. } = *self.order;
                    let (rank, own) = (self.shared.rank, diagnose::call(&self.record()));
                    let theirs = "another call".to_owned();
                    ExecutorError::Mismatch { rank, seq, own, peer, theirs }
                };
                self.compare(peer, self.order.seq).err().unwrap_or_else(unknown)
            }
        }
    }

    /// That this launch was running, and which of its blocks waited.
    pub(super) fn doing(&self, state: &ContextState) -> Doing {
        let running = state.active.as_ref().is_some_and(|active| active.seq == self.order.seq);
        let waits = if running { diagnose::own_waits(self, state) } else { Default::default() };
        Doing { waits, ..self.now() }
    }

    /// That this launch was running.
    fn now(&self) -> Doing {
        let launch = Some((self.order.seq, self.context.plan.name().to_owned()));
        Doing { launch, ..Doing::nothing_on(self.shared.rank) }
    }

    /// What a peer says of the launch, once it has entered it with the same call.
    pub(super) fn entered(&self, peer: u32) -> Result<Option<LaunchRecord>, Fault> {
        match self.shared.control(peer).record(self.order.seq) {
            Some(record) if record.fingerprint != self.order.fingerprint => {
                Err(Fault::Mismatch(peer))
            }
            record => Ok(record),
        }
    }

    /// What this rank says of the launch, but for where its memory is.
    pub(super) fn record(&self) -> LaunchRecord {
        let Order { seq, chain, fingerprint, bytes, dtype, op, .. } = *self.order;
        let call_type = CallType::new(dtype, op);
        let name = LaunchRecord::cut_name(self.context.plan.name());
        LaunchRecord { seq, chain, fingerprint, bytes, call_type, name, ..LaunchRecord::default() }
    }

    /// Compares the history of launches with every peer's, at the last launch that peer has completed.
    pub(super) fn compare_history(&self) -> Result<(), ExecutorError> {
        let shared = self.shared;
        for peer in (0..shared.world).filter(|&peer| peer != shared.rank) {
            let completed = shared.control(peer).completed.0.load(Ordering::Acquire);
            self.compare(peer, completed.min(self.order.seq - 1))?;
        }
        Ok(())
    }

    /// Compares the launches up to one with a peer's, as far as both ranks have them.
    fn compare(&self, peer: u32, last: u64) -> Result<(), ExecutorError> {
        let shared = self.shared;
        let (own, page) = (shared.control(shared.rank), shared.control(peer));
        let both = |seq: u64| {
            let mine = if seq == self.order.seq { Some(self.record()) } else { own.record(seq) };
            Some((mine?, page.record(seq)?))
        };
        let Some(pair) = both(last).filter(|(mine, theirs)| mine.chain != theirs.chain) else {
            return Ok(());
        };
        let differing = (last.saturating_sub(RING / 2)..=last)
            .filter_map(both)
            .find(|(mine, theirs)| mine.fingerprint != theirs.fingerprint);
        let (mine, theirs) = differing.unwrap_or(pair);
        let (rank, seq, own) = (shared.rank, mine.seq, diagnose::call(&mine));
        let theirs = diagnose::other_call(&own, &theirs);
        Err(ExecutorError::Mismatch { rank, seq, own, peer, theirs })
    }

    /// Gives the launch up for a reason of this rank's own: nobody will work on it.
    #[cold]
    pub(super) fn abandon(&self, reason: &str) {
        let (running, doing) = {
            let mut state = self.context.state();
            let doing = self.doing(&state);
            (state.active.take_if(|active| active.seq == self.order.seq), doing)
        };
        let (by, reason) = (self.shared.rank, reason.to_owned());
        self.give_up(running, &ExecutorError::Aborted { by, reason, doing });
    }

    /// After a failure: breaks the communicator, whatever the failure, as peers count on every launch that has a
    /// number; and keeps the caller's buffers until peers are out of them.
    #[cold]
    pub(super) fn give_up(&self, running: Option<Active>, error: &ExecutorError) {
        self.shared.end(error.clone());
        if let Some(active) = running {
            self.keep(&active, Instant::now());
        }
    }

    /// Keeps the caller's buffers, from `began` on, until peers are out of them.
    pub(super) fn keep(&self, active: &Active, began: Instant) {
        let shared = self.shared;
        let ports = &self.context.plan.uses(shared.rank).port_peers;
        // Peers of other nodes reach only regions, by links that are closed. Over the local wire peers copy by themselves.
        let reaches = |peer: u32| {
            let copies = ports.contains(&peer) && !shared.ports.is_mirrored(peer);
            active.buffers.reached_from_outside || copies
        };
        let mut late = Late::new(began);
        let mut helped = began;
        while let Some(peer) = shared.reaching(began, reaches) {
            if helped.elapsed() >= Duration::from_millis(1) {
                shared.quieten_near();
                helped = Instant::now();
            }
            if let Some(waited) = late.due(Instant::now()) {
                let (who, seq, waited) = (&shared.whose, self.order.seq, waited.as_secs());
                shielded(|| {
                    log::warn!(
                        "{who} waits, for {waited} s by now, until rank {peer}, of this process, is out of the buffers of \
                         launch {seq}, which has failed"
                    )
                });
            }
            std::thread::yield_now();
        }
    }
}
