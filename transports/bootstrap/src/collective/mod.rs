//! Exchange and barrier: the first member of the group gathers all parts and sends everyone the whole.
//!
//! So the cost grows with the number of ranks, not with its square, and one rank knows who is missing. The others ask
//! it: when they have waited for long, when their time is up, and when a peer dies or leaves (its part may have been given
//! before). The answer comes from the gatherer's control thread, whatever its application does.

mod bundle;
mod rounds;

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::absent::Gone;
use crate::control::on_control_thread;
use crate::error::{BootstrapError, PeerName, Result};
use crate::group::Group;
use crate::late::{Late, overdue};
use crate::mesh::{Mesh, Session, State};
use crate::sync::lock;
#[cfg(any(test, fuzzing))]
pub(crate) use bundle::unpack;
pub(crate) use rounds::{Out, Rounds};

/// How long the gatherer may take to say who is missing.
const GRACE: Duration = Duration::from_secs(1);
/// How long after the gatherer has left a death is waited for that may be why: where this rank has a link to the dead rank as well, that
/// one is in doubt until its last words are over.
const CAUSE: Duration = Duration::from_millis(300);

/// A collective operation, as it travels in the tag: those that ranks may take for each other have one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// An exchange of the application's bytes.
    Exchange = 0,
    /// A barrier.
    Barrier = 1,
    /// An exchange that divides the ranks into groups.
    Split = 2,
    /// An exchange of what the ranks call.
    Call = 3,
}

fn name_of(operation: u32) -> &'static str {
    match operation {
        0 => "exchange",
        1 => "barrier",
        2 => "split",
        3 => "call that code makes",
        _ => "an operation this version does not know",
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
    /// When the gatherer was asked who is missing.
    asked: Option<Instant>,
    /// When the gatherer was seen to have left.
    deserted: Option<Instant>,
    late: Option<Late>,
    /// How long the wait has been, to be logged once it is known who is missing.
    overdue: Option<Duration>,
    /// What the log is to hear once the state is free.
    word: Option<String>,
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
        let mut out = Out::new();
        let mut state = lock(&mesh.state);
        group.check_abort(mesh, &state, name_of(operation as u32))?;
        let code = operation as u32;
        let sequence = state.rounds.begin(mesh.rank, group, code, bytes.to_vec(), &mut out);
        mesh.send_out(state, out);
        let (session, group) = (session.clone(), group.clone());
        Ok(Ticket {
            session,
            group,
            sequence,
            operation,
            started: None,
            asked: None,
            deserted: None,
            late: None,
            overdue: None,
            word: None,
        })
    }

    /// The blobs of all ranks in rank order, once they are all here; `None` until then. After a result or an error the
    /// ticket is spent: drop it.
    ///
    /// # Errors
    /// As [`wait`](Ticket::wait); the time limit counts from the first poll.
    pub fn poll(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        let mesh = self.session.0.clone();
        let mut out = Out::new();
        let mut state = lock(&mesh.state);
        let outcome = match self.outcome(&mesh, &mut state, &mut out) {
            Some(outcome) => outcome.map(Some),
            None => self.remaining(&mesh, &mut state, &mut out).map(|_| None),
        };
        mesh.send_out(state, out);
        if let Some(word) = self.word.take() {
            log::warn!("{word}");
        }
        outcome
    }

    /// Waits for the blobs of all ranks, in rank order.
    ///
    /// # Errors
    /// `PeerLost`, `PeerLeft`, `Aborted`, `Mismatch`; `Timeout` with the missing ranks when the group's time limit,
    /// counted from this call, has passed; `InsideHandler` where the result is not there yet.
    pub fn wait(mut self) -> Result<Vec<Vec<u8>>> {
        loop {
            if let Some(parts) = self.wait_for(Duration::MAX)? {
                return Ok(parts);
            }
        }
    }

    /// As [`poll`](Self::poll), but waits up to `pause` for the blobs.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); the time limit counts from the first call.
    pub fn wait_for(&mut self, pause: Duration) -> Result<Option<Vec<Vec<u8>>>> {
        let mesh = self.session.0.clone();
        let began = Instant::now();
        let mut out = Out::new();
        let mut state = lock(&mesh.state);
        loop {
            if let Some(outcome) = self.outcome(&mesh, &mut state, &mut out) {
                return outcome.map(Some);
            }
            let remaining = self.remaining(&mesh, &mut state, &mut out)?;
            if on_control_thread() {
                return Err(BootstrapError::InsideHandler {
                    doing: name_of(self.operation as u32),
                });
            }
            if let Some(word) = self.word.take() {
                drop(state);
                log::warn!("{word}");
                state = lock(&mesh.state);
                continue;
            }
            if !out.is_empty() {
                // The answer may be here before the lock is back.
                mesh.send_out(state, std::mem::take(&mut out));
                state = lock(&mesh.state);
                continue;
            }
            let pause = pause.saturating_sub(began.elapsed());
            if pause.is_zero() {
                return Ok(None);
            }
            let cause = self.cause_is_open().unwrap_or(Duration::MAX);
            let waited = mesh.changed.wait_timeout(state, remaining.min(pause).min(cause));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How long the gatherer, which has left, may still turn out to have done so because another rank died.
    fn cause_is_open(&self) -> Option<Duration> {
        self.deserted.map(|since| CAUSE.saturating_sub(since.elapsed()))
    }

    fn key(&self) -> (u64, u64) {
        (self.group.id, self.sequence)
    }

    fn name(&self, mesh: &Mesh, member: u32) -> PeerName {
        let rank = self.group.rank_of(member).unwrap_or(member);
        PeerName { rank, pid: mesh.peers[member as usize].pid }
    }

    fn gone(&self, mesh: &Mesh, member: u32, how: &Gone) -> BootstrapError {
        let (doing, peer) = (name_of(self.operation as u32), self.name(mesh, member));
        match how {
            Gone::Left => BootstrapError::PeerLeft { doing, peer },
            Gone::Lost(lost) => {
                BootstrapError::PeerLost { doing, peer, reason: lost.reason.clone() }
            }
        }
    }

    fn mismatch(&self, mesh: &Mesh, ranks: [(u32, u32); 2]) -> Option<BootstrapError> {
        let (member, theirs) =
            ranks.into_iter().find(|&(_, theirs)| theirs != self.operation as u32)?;
        let (doing, theirs) = (name_of(self.operation as u32), name_of(theirs));
        let (peer, sequence) = (self.name(mesh, member), self.sequence);
        Some(BootstrapError::Mismatch { doing, peer, theirs, sequence })
    }

    /// How the call ended, if it has; questions to the gatherer where that depends on its word.
    fn outcome(
        &mut self,
        mesh: &Mesh,
        state: &mut State,
        out: &mut Out,
    ) -> Option<Result<Vec<Vec<u8>>>> {
        let doing = name_of(self.operation as u32);
        let (key, gatherer) = (self.key(), self.group.gatherer());
        let gathers = gatherer == mesh.rank;
        let (mismatch, parts) = if gathers {
            let round = state.rounds.gathering.get_mut(&key)?;
            (round.mismatch, round.done.take())
        } else {
            let round = state.rounds.awaiting.get_mut(&key)?;
            let whole = round.parts.len() == self.group.members.len();
            (round.mismatch, whole.then(|| std::mem::take(&mut round.parts)))
        };
        if let Some(error) = mismatch.and_then(|ranks| self.mismatch(mesh, ranks)) {
            return Some(Err(error));
        }
        if let Some(parts) = parts {
            return Some(Ok(parts));
        }
        if let Err(error) = self.group.check_abort(mesh, state, doing) {
            return Some(Err(error));
        }
        if state.absent.is_nobody(self.group.id) {
            return None;
        }
        let State { absent, rounds, .. } = state;
        let how = |member: u32| absent.from(self.group.id, member).map(|how| (member, how));
        // Among the missing ranks, a lost one is blamed first: it may be why another has left.
        let blame = |(member, how): (u32, &Gone)| Err(self.gone(mesh, member, how));
        let has_left = |(_, how): &(u32, &Gone)| matches!(how, Gone::Left);
        if gathers {
            let missing = rounds.missing(key, &self.group).into_iter().filter_map(how);
            return missing.min_by_key(has_left).map(blame);
        }
        if let Some((_, end)) = how(gatherer) {
            // A rank that heard of a death before this one ends its calls, and may leave, while this one still waits for it.
            let is_lost = |member: &(u32, &Gone)| matches!(member.1, Gone::Lost(_));
            let mut gone = self.group.members.iter().copied().filter_map(how);
            let lost = gone.find(is_lost);
            self.deserted.get_or_insert_with(Instant::now);
            if lost.is_none() && self.cause_is_open().is_some_and(|left| !left.is_zero()) {
                return None;
            }
            let (member, how) = lost.unwrap_or((gatherer, end));
            return Some(Err(self.gone(mesh, member, how)));
        }
        let round = rounds.awaiting.get_mut(&key)?;
        let gone: Vec<_> = self.group.members.iter().copied().filter_map(how).collect();
        let lacking = |(member, _): &(u32, &Gone)| round.lacking.contains(member);
        let missing = gone.iter().copied().filter(lacking).min_by_key(has_left);
        if missing.is_some() {
            return missing.map(blame);
        }
        for (member, _) in gone {
            if round.asked.insert(Some(member)) {
                out.push((gatherer, rounds::question(key, Some(member))));
            }
        }
        None
    }

    /// The time until the next look, or the error that the limit has passed.
    fn remaining(&mut self, mesh: &Mesh, state: &mut State, out: &mut Out) -> Result<Duration> {
        let now = Instant::now();
        let started = *self.started.get_or_insert(now);
        let remaining = self.group.limit.saturating_sub(now.saturating_duration_since(started));
        if !remaining.is_zero() {
            return Ok(remaining.min(self.say(now, mesh, state, out)));
        }
        let missing = match self.missing(mesh, state, out) {
            Ok(missing) => missing,
            Err(grace) => return Ok(grace),
        };
        let missing = missing.into_iter().map(|member| self.name(mesh, member)).collect();
        let (doing, limit) = (name_of(self.operation as u32), self.group.limit);
        Err(BootstrapError::Timeout { doing, limit, missing })
    }

    /// Says which ranks a long wait is for, if it is time to, and returns how long until the next look.
    fn say(&mut self, now: Instant, mesh: &Mesh, state: &mut State, out: &mut Out) -> Duration {
        let late = self.late.get_or_insert_with(|| Late::new(self.started.unwrap_or(now)));
        let left = late.left(now);
        let Some(waited) = self.overdue.or_else(|| late.due(now)) else { return left };
        self.overdue = Some(waited);
        let missing = match self.missing(mesh, state, out) {
            Ok(missing) => missing,
            Err(grace) => return grace,
        };
        (self.overdue, self.asked) = (None, None);
        // Later the answer may be another one.
        if let Some(round) = state.rounds.awaiting.get_mut(&self.key()) {
            round.asked.remove(&None);
        }
        if missing.is_empty() {
            return Duration::ZERO;
        }
        // Whoever reads it does not know how the ranks of a group count.
        let name = |rank: u32| PeerName { rank, pid: mesh.peers[rank as usize].pid };
        let missing: Vec<PeerName> = missing.into_iter().map(name).collect();
        let (ranks, job) = (self.group.members.len(), mesh.peers.len());
        let mut doing = name_of(self.operation as u32).to_owned();
        if ranks < job {
            doing += &format!(" among {ranks} of the job's {job} ranks");
        }
        let said = overdue(format_args!("rank {}", mesh.rank), &doing, waited, &missing);
        self.word = Some(match &self.group.called {
            Some(called) => format!("{called}: {said}"),
            None => said,
        });
        Duration::ZERO
    }

    /// Who is missing. Fails with the time that the gatherer, which was asked, may still take to answer.
    fn missing(
        &mut self,
        mesh: &Mesh,
        state: &mut State,
        out: &mut Out,
    ) -> std::result::Result<Vec<u32>, Duration> {
        let (key, gatherer) = (self.key(), self.group.gatherer());
        let missing = if gatherer == mesh.rank {
            state.rounds.missing(key, &self.group)
        } else {
            let round = state.rounds.awaiting.get_mut(&key);
            let asked = *self.asked.get_or_insert_with(Instant::now);
            let answer = round.and_then(|round| {
                if round.asked.insert(None) {
                    // Older answers are out of date.
                    round.present = None;
                    out.push((gatherer, rounds::question(key, None)));
                }
                round.present.clone()
            });
            match (answer, GRACE.saturating_sub(asked.elapsed())) {
                (Some(present), _) => {
                    let members = self.group.members.iter().copied();
                    members.filter(|member| !present.contains(member)).collect()
                }
                (None, Duration::ZERO) => vec![gatherer],
                (None, grace) => return Err(grace),
            }
        };
        Ok(missing)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let key = self.key();
        lock(&self.session.0.state).rounds.abandon(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until it is said whom a call waits for.
    fn word(ticket: &mut Ticket) -> String {
        loop {
            let mesh = ticket.session.0.clone();
            let mut out = Out::new();
            let mut state = lock(&mesh.state);
            ticket.remaining(&mesh, &mut state, &mut out).unwrap();
            mesh.send_out(state, out);
            if let Some(word) = ticket.word.take() {
                return word;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_waits_for_minutes_says_for_whom_and_goes_on() {
        let ends = crate::in_process(5).unwrap();
        let members = |at: usize| ends[at + 1].group(7, &[1, 2, 3, 4]).unwrap();
        let groups: Vec<_> = (0..4).map(members).collect();
        let begin = |at: usize| groups[at].barrier_begin().unwrap();
        // The first one gathers, and the second asks it.
        let mut tickets = [begin(0), begin(1)];
        let overdue = |seconds| {
            Some(Late::new(Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap()))
        };
        let pid = std::process::id();
        let mut others = Vec::new();
        for (seconds, missing) in [(121, vec![2, 3]), (250, vec![3])] {
            let names: Vec<String> =
                missing.iter().map(|at| format!("rank {} (pid {pid})", at + 1)).collect();
            for (rank, ticket) in (1..).zip(&mut tickets) {
                ticket.late = overdue(seconds);
                let start = format!("rank {rank} has waited {}", seconds / 10);
                let names = format!("waiting for {};", names.join(", "));
                let said = word(ticket);
                assert!(said.starts_with(&start) && said.contains(&names), "{said}");
                assert!(said.contains(" s in the barrier among 4 of the job's 5 ranks "), "{said}");
                assert!(ticket.poll().unwrap().is_none());
                let left = ticket.late.unwrap().left(Instant::now());
                assert!(left > Duration::from_secs(seconds / 2), "it is said at times: {left:?}");
            }
            others.push(begin(missing[0]));
        }
        for ticket in tickets.into_iter().chain(others) {
            assert_eq!(ticket.wait().unwrap().len(), 4);
        }
        // A group that is called something says so first.
        let called = groups[0].within(Duration::from_secs(60), Some("the first".into()));
        let mut ticket = called.barrier_begin().unwrap();
        ticket.late = overdue(121);
        let said = word(&mut ticket);
        assert!(said.starts_with("the first: rank 1 has waited 12"), "{said}");
    }
}
