//! Barriers: on one node by the ranks' control pages, else by the bootstrap.

use super::*;
use antiphon_bootstrap::{Late, overdue};

impl Communicator {
    /// Returns once all ranks have called it. Costs about a cache line to and from each peer where all are on one node.
    ///
    /// # Errors
    /// The communicator's failure; `Bootstrap` with the ranks that did not come within the time limit, or with one that has left.
    pub fn barrier(&self) -> Result<(), ExecutorError> {
        let shared = &*self.shared;
        shared.check()?;
        shared.sweep()?;
        if !shared.one_node {
            return shared.bootstrap.barrier().map_err(|error| shared.failure_or(error));
        }
        let mine = &shared.control(shared.rank).arrived.0;
        let round = mine.load(Ordering::Relaxed) + 1;
        mine.store(round, Ordering::Release);
        let missing = |&peer: &u32| shared.control(peer).arrived.0.load(Ordering::Acquire) < round;
        let mut late: Option<Late> = None;
        loop {
            let mut waiter = Waiter::new(Effort::Wait, shared.yields);
            loop {
                if !(0..shared.world).any(|peer| missing(&peer)) {
                    return Ok(());
                }
                let stalled = late.map_or(Duration::ZERO, |late| late.waited(Instant::now()));
                if waiter.pause(stalled) == Verdict::GiveUp {
                    break;
                }
            }
            shared.check()?;
            // Whether it is missing is asked again: it may have come before it left.
            let gone = |peer: &u32| shared.has_left(*peer) && missing(peer);
            let all_gone = (0..shared.world).filter(missing).filter(gone);
            // One that is lost may be why another has left.
            if let Some(rank) = all_gone.min_by_key(|&peer| !shared.has_lost(peer)) {
                let peer = PeerName { rank, pid: shared.peers[rank as usize].pid };
                let left = || BootstrapError::PeerLeft { doing: "barrier", peer }.into();
                let error = shared.blamed_for(rank).unwrap_or_else(left);
                return Err(shared.check().err().unwrap_or(error));
            }
            let now = Instant::now();
            let late = late.get_or_insert_with(|| Late::new(now));
            let name = |rank: u32| PeerName { rank, pid: shared.peers[rank as usize].pid };
            let names = || (0..shared.world).filter(missing).map(name).collect::<Vec<_>>();
            let waited = late.waited(now);
            if let Some(limit) = shared.options.timeout.filter(|&limit| waited >= limit) {
                let missing = names();
                let error = BootstrapError::Timeout { doing: "barrier", limit, missing };
                shared.end(error.clone().into());
                return Err(error.into());
            }
            if let Some(waited) = late.due(now) {
                let missing = names();
                if !missing.is_empty() {
                    log::warn!("{}", overdue(shared.rank, "barrier", waited, &missing));
                }
            }
        }
    }
}
