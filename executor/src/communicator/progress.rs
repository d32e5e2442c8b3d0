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

    /// Notes that blocks of a launch of this rank have moved.
    #[inline]
    pub fn note_moved(&self) {
        let moved = count_up(&self.control(self.rank).moved);
        // Not each time: it looks at the clock.
        if !self.one_node && moved.is_multiple_of(16) {
            self.ports.tell_moved(moved);
        }
    }

    /// Notes that writes of a launch of this rank have come further, though perhaps none of its blocks has: a long one may take all the
    /// time for which others wait.
    pub fn note_written(&self) {
        self.ports.tell_moved(count_up(&self.control(self.rank).moved));
    }

    /// Notes that links moved something for a launch of this rank. Ranks of other nodes do not hear of that: what they are told comes
    /// over links, too, and two launches that wait for each other would look alive by it for ever. Of [writes](Self::note_written)
    /// they hear.
    pub fn note_carried(&self) {
        count_up(&self.control(self.rank).moved);
    }

    /// Notes that a link of this rank has moved something, perhaps for who waits for this rank.
    pub fn note_passing(&self) {
        count_up(&self.control(self.rank).passing);
    }
}

/// Changes a number that peers look at now and then; the new one. Of two threads that do at once, one may be lost: it has changed all the same.
#[inline]
fn count_up(line: &Line) -> u64 {
    let count = line.0.load(Ordering::Relaxed).wrapping_add(1);
    line.0.store(count, Ordering::Relaxed);
    count
}
