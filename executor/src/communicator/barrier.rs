//! Barriers: on one node by the ranks' control pages, else by the bootstrap.

use super::*;
use antiphon_bootstrap::{Late, overdue};

impl Communicator {
    /// Returns once all ranks have called it. Costs about a cache line to and from each peer if all are on one node. A barrier
    /// that fails breaks the communicator, unless a rank has left in good order.
    ///
    /// # Errors
    /// The communicator's failure; `Bootstrap` with the ranks that did not come within the time limit, or with one that has left, or,
    /// where the ranks are on several nodes, with one that makes an exchange or a split.
    pub fn barrier(&self) -> Result<(), ExecutorError> {
        self.meet_all().map_err(|error| self.shared.whose.names(error))
    }

    fn meet_all(&self) -> Result<(), ExecutorError> {
        let shared = &*self.shared;
        shared.check()?;
        shared.sweep()?;
        if !shared.one_node {
            return shared.meet(|end| end.barrier_begin()).map(drop);
        }
        let mine = &shared.control(shared.rank).arrived.0;
        // Several threads of the rank may call it: each then has a round of its own.
        let round = mine.fetch_add(1, Ordering::AcqRel) + 1;
        let missing = |&peer: &u32| shared.control(peer).arrived.0.load(Ordering::Acquire) < round;
        let all_came = || !(0..shared.world).any(|peer| missing(&peer));
        let mut late: Option<Late> = None;
        loop {
            let mut waiter = Waiter::new(Effort::Wait, shared.yields);
            loop {
                if all_came() {
                    return Ok(());
                }
                let stalled = late.map_or(Duration::ZERO, |late| late.waited(Instant::now()));
                if waiter.pause(stalled) == Verdict::GiveUp {
                    break;
                }
            }
            if ends(|| shared.check(), all_came)? {
                return Ok(());
            }
            // Whether it is missing is asked again: it may have come before it left.
            let gone = |peer: &u32| shared.has_left(*peer) && missing(peer);
            let all_gone = (0..shared.world).filter(missing).filter(gone);
            // A lost rank is named first, since it may be why another has left.
            if let Some(rank) = all_gone.min_by_key(|&peer| !shared.has_lost(peer)) {
                let peer = PeerName { rank, pid: shared.peers[rank as usize].pid };
                let left = || BootstrapError::PeerLeft { doing: "barrier", peer }.into();
                let error = shared.blamed_for(rank).unwrap_or_else(left);
                return Err(shared.unmet(shared.check().err().unwrap_or(error)));
            }
            let now = Instant::now();
            let late = late.get_or_insert_with(|| Late::new(now));
            let name = |rank: u32| PeerName { rank, pid: shared.peers[rank as usize].pid };
            let names = || (0..shared.world).filter(missing).map(name).collect::<Vec<_>>();
            let waited = late.waited(now);
            if let Some(limit) = shared.options.timeout.filter(|&limit| waited >= limit) {
                let missing = names();
                if missing.is_empty() {
                    return Ok(());
                }
                let error = BootstrapError::Timeout { doing: "barrier", limit, missing };
                return Err(shared.unmet(error.into()));
            }
            if let Some(waited) = late.due(now) {
                let missing = names();
                if !missing.is_empty() {
                    log::warn!("{}", overdue(&shared.whose, "barrier", waited, &missing));
                }
            }
        }
    }
}

/// Whether a barrier is over although `check` finds a failure: if all ranks came, it succeeded. Others have gone on, and a failure
/// that they met then must not fail it here. The failure is asked for first, since a rank may come and then fail.
fn ends(
    check: impl FnOnce() -> Result<(), ExecutorError>,
    all_came: impl FnOnce() -> bool,
) -> Result<bool, ExecutorError> {
    match check() {
        Ok(()) => Ok(false),
        Err(_) if all_came() => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Doing;
    use std::cell::Cell;

    type Meeting = fn(&Communicator) -> Result<(), ExecutorError>;

    /// Else rank 1, which comes when rank 0 has gone, would take what that one says next for what it said then.
    #[test]
    fn a_meeting_to_which_a_rank_does_not_come_in_time_breaks_the_communicator() {
        let meetings: [(&str, Meeting); 3] = [
            ("barrier", |rank| rank.barrier()),
            ("exchange", |rank| rank.exchange(b"one").map(drop)),
            ("split", |rank| rank.split(Some(0), 0).map(drop)),
        ];
        for hosts in [["this"; 2], ["this", "that"]] {
            for (name, meet) in meetings {
                let options = Options::default().with_timeout(Some(Duration::from_millis(30)));
                let ranks = Communicator::in_process_on(&hosts, &options).unwrap();
                let text = meet(&ranks[0]).unwrap_err().to_string();
                assert!(text.contains("no answer within 30ms from rank 1"), "{name}: {text}");
                assert_eq!(ranks[0].failure().map(|it| it.to_string()), Some(text), "{name}");
                // In the one that rank 0 was in it may find all that it needs.
                let late = meet(&ranks[1]).and_then(|()| meet(&ranks[1]));
                let late = late.unwrap_err().to_string();
                assert!(late.contains("rank 0") && late.contains("30ms"), "{name}: {late}");
            }
        }
    }

    /// Rank 1 comes, goes on, and finds a failure, all between two looks of rank 0 at who has come.
    #[test]
    fn a_failure_behind_a_barrier_does_not_hurt_who_is_late_to_see_that_all_came() {
        let came = Cell::new(false);
        let enough = || {
            let (reason, doing) = ("enough".to_owned(), Doing::default());
            Err(ExecutorError::Aborted { by: 1, reason, doing })
        };
        let comes_and_fails = || {
            came.set(true);
            enough()
        };
        assert!(matches!(ends(comes_and_fails, || came.get()), Ok(true)));
        assert!(matches!(ends(enough, || false), Err(ExecutorError::Aborted { by: 1, .. })));
        assert!(matches!(ends(|| Ok(()), || came.get()), Ok(false)));
    }

    #[test]
    fn a_barrier_to_which_all_came_is_over_whatever_they_find_behind_it() {
        let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
        for round in 0..60 {
            let ranks = Communicator::in_process(2, &options).unwrap();
            let [first, second] = ranks.try_into().ok().unwrap();
            let waits = std::thread::spawn(move || first.barrier());
            while second.shared.control(0).arrived.0.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            second.barrier().unwrap();
            second.abort("enough");
            waits.join().unwrap().unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
    }
}
