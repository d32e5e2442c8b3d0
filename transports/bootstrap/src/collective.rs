//! Exchange and barrier: every rank sends its part to every other one, and has finished when all parts are there.
//!
//! With all parts sent directly, a rank that does not answer is known by name, and the death of one rank disturbs only
//! those who still need its part.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::control::on_control_thread;
use crate::error::{BootstrapError, PeerName, Result};
use crate::frame::{Frame, Kind};
use crate::group::Group;
use crate::mesh::{Gone, Mesh, Session, State};
use crate::sync::lock;

/// A collective operation, as it travels in the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Operation {
    Exchange = 0,
    Barrier = 1,
}

fn name_of(operation: u32) -> &'static str {
    match operation {
        0 => "exchange",
        1 => "barrier",
        _ => "an operation this version does not know",
    }
}

struct Part {
    operation: u32,
    bytes: Arc<Vec<u8>>,
}

#[derive(Default)]
struct Round {
    /// By mesh rank.
    parts: HashMap<u32, Part>,
    /// Operation of this rank and number of parts, once this rank takes part.
    begun: Option<(u32, usize)>,
}

/// The collectives of all groups that are under way.
#[derive(Default)]
pub(crate) struct Rounds {
    /// By group and sequence number.
    open: HashMap<(u64, u64), Round>,
    /// Sequence number of this rank's next collective in each group. Kept for the life of the mesh, so that a group
    /// made again goes on where it was.
    next: HashMap<u64, u64>,
}

impl Rounds {
    /// Takes a peer's part; true if a waiter should look.
    pub fn take_part(&mut self, from: u32, frame: Frame) -> bool {
        let next = self.next.get(&frame.group).copied().unwrap_or(0);
        let key = (frame.group, frame.stream);
        if frame.stream < next && !self.open.contains_key(&key) {
            // This rank gave up on that one.
            return false;
        }
        let round = self.open.entry(key).or_default();
        let operation = frame.tag;
        round.parts.entry(from).or_insert(Part { operation, bytes: frame.payload });
        round.begun.is_some_and(|(own, parts)| own != operation || parts == round.parts.len())
    }
}

/// A collective call that has begun: finish it with [`wait`](Ticket::wait) or by [`poll`](Ticket::poll)ing.
///
/// Dropping it gives up on the result; the other ranks are not disturbed, for this rank's part has been sent.
#[must_use = "a collective that has begun wants its result taken"]
pub struct Ticket {
    session: Arc<Session>,
    group: Arc<Group>,
    sequence: u64,
    operation: Operation,
    started: Option<Instant>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket")
            .field("operation", &self.operation)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

impl Ticket {
    pub(crate) fn begin(
        session: &Arc<Session>,
        group: &Arc<Group>,
        operation: Operation,
        bytes: &[u8],
    ) -> Result<Ticket> {
        let mesh = &session.0;
        let doing = name_of(operation as u32);
        let payload = Arc::new(bytes.to_vec());
        let sequence = {
            let mut state = lock(&mesh.state);
            group.check_abort(mesh, &state, doing)?;
            let next = state.rounds.next.entry(group.id).or_insert(0);
            let sequence = *next;
            *next += 1;
            let round = state.rounds.open.entry((group.id, sequence)).or_default();
            round.begun = Some((operation as u32, group.members.len()));
            let part = Part { operation: operation as u32, bytes: payload.clone() };
            round.parts.insert(mesh.rank, part);
            sequence
        };
        for &to in group.members.iter().filter(|&&to| to != mesh.rank) {
            let frame = Frame {
                kind: Kind::Part,
                tag: operation as u32,
                group: group.id,
                stream: sequence,
                payload: payload.clone(),
                descriptors: Vec::new(),
            };
            mesh.send(to, frame);
        }
        let (session, group) = (session.clone(), group.clone());
        Ok(Ticket { session, group, sequence, operation, started: None })
    }

    /// The blobs of all ranks in rank order, once they are all here; `None` until then. After a result or an error the
    /// ticket is spent: drop it.
    ///
    /// # Errors
    /// As [`wait`](Ticket::wait); the time limit counts from the first poll.
    pub fn poll(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        let mesh = self.session.0.clone();
        let mut state = lock(&mesh.state);
        if let Some(outcome) = self.outcome(&mesh, &mut state) {
            return outcome.map(Some);
        }
        self.remaining(&mesh, &state).map(|_| None)
    }

    /// Waits for the blobs of all ranks, in rank order.
    ///
    /// # Errors
    /// `PeerLost`, `PeerLeft`, `Aborted`, `Mismatch`; `Timeout` with the missing ranks when the mesh's time limit,
    /// counted from this call, has passed; `InsideHandler` where the result is not there yet.
    pub fn wait(mut self) -> Result<Vec<Vec<u8>>> {
        let mesh = self.session.0.clone();
        let mut state = lock(&mesh.state);
        loop {
            if let Some(outcome) = self.outcome(&mesh, &mut state) {
                // The lock goes first: dropping the ticket takes it.
                drop(state);
                return outcome;
            }
            let remaining = match self.remaining(&mesh, &state) {
                Ok(_) if on_control_thread() => {
                    Err(BootstrapError::InsideHandler { doing: name_of(self.operation as u32) })
                }
                remaining => remaining,
            };
            match remaining {
                Err(error) => {
                    drop(state);
                    return Err(error);
                }
                Ok(remaining) => {
                    state = mesh
                        .changed
                        .wait_timeout(state, remaining)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                }
            }
        }
    }

    fn key(&self) -> (u64, u64) {
        (self.group.id, self.sequence)
    }

    /// How the call ended, if it has.
    fn outcome(&self, mesh: &Mesh, state: &mut State) -> Option<Result<Vec<Vec<u8>>>> {
        let doing = name_of(self.operation as u32);
        let round = state.rounds.open.get(&self.key())?;
        for (at, &member) in self.group.members.iter().enumerate() {
            if let Some(part) = round.parts.get(&member)
                && part.operation != self.operation as u32
            {
                let peer = PeerName { rank: at as u32, pid: mesh.peers[member as usize].pid };
                let (theirs, sequence) = (name_of(part.operation), self.sequence);
                return Some(Err(BootstrapError::Mismatch { doing, peer, theirs, sequence }));
            }
        }
        if round.parts.len() == self.group.members.len() {
            let mut round = state.rounds.open.remove(&self.key())?;
            let take = |member| round.parts.remove(member).map(|part| part.bytes);
            let parts: Vec<_> = self.group.members.iter().filter_map(take).collect();
            return Some(Ok(parts.into_iter().map(Arc::unwrap_or_clone).collect()));
        }
        if let Err(error) = self.group.check_abort(mesh, state, doing) {
            return Some(Err(error));
        }
        for (at, &member) in self.group.members.iter().enumerate() {
            if let Some(gone) = &state.gone[member as usize]
                && !round.parts.contains_key(&member)
            {
                let peer = PeerName { rank: at as u32, pid: mesh.peers[member as usize].pid };
                return Some(Err(match gone {
                    Gone::Left => BootstrapError::PeerLeft { doing, peer },
                    Gone::Lost(lost) => {
                        BootstrapError::PeerLost { doing, peer, reason: lost.reason.clone() }
                    }
                }));
            }
        }
        None
    }

    /// The time left, or the error that it has run out.
    fn remaining(&mut self, mesh: &Mesh, state: &State) -> Result<Duration> {
        let started = *self.started.get_or_insert_with(Instant::now);
        let remaining = mesh.limit.saturating_sub(started.elapsed());
        if !remaining.is_zero() {
            return Ok(remaining);
        }
        let round = state.rounds.open.get(&self.key());
        let missing = (0..).zip(&self.group.members).filter_map(|(rank, &member)| {
            let here = round.is_some_and(|round| round.parts.contains_key(&member));
            (!here).then(|| PeerName { rank, pid: mesh.peers[member as usize].pid })
        });
        let (doing, limit) = (name_of(self.operation as u32), mesh.limit);
        Err(BootstrapError::Timeout { doing, limit, missing: missing.collect() })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock(&self.session.0.state).rounds.open.remove(&self.key());
    }
}
