//! What ranks of a node see of each other's progress, where they wait for something that others do for them.

use super::{Communicator, Shared};
use crate::shared::Line;
use std::sync::atomic::Ordering;

impl Communicator {
    /// Tells the peers on this node about progress of what this rank is to pass on: `position` changes when it moves.
    pub(crate) fn passes_on(&self, position: u64) {
        let passing = &self.shared.control(self.rank()).passing.0;
        if passing.load(Ordering::Relaxed) != position {
            passing.store(position, Ordering::Relaxed);
        }
    }
}

impl Shared {
    /// Progress of what the ranks of this node are to pass on, and of what their proxies move: a number that changes when some of
    /// it moves.
    pub fn passing(&self) -> u64 {
        let near = self.peers.iter().filter(|peer| peer.same_node);
        let passing = near.map(|peer| self.control(peer.rank).passing.0.load(Ordering::Relaxed));
        passing.fold(0, u64::wrapping_add)
    }

    /// Notes that a launch of this rank has moved.
    #[inline]
    pub fn note_moved(&self) {
        count_up(&self.control(self.rank).moved);
    }

    /// Notes that a link of this rank has moved something, perhaps for who waits for this rank.
    pub fn note_passing(&self) {
        count_up(&self.control(self.rank).passing);
    }
}

/// Changes a number that peers look at now and then. Of two threads that do at once, one may be lost: it has changed all the same.
#[inline]
fn count_up(line: &Line) {
    line.0.store(line.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}
