//! Ranks that were lost when they were through with all that they had begun, which breaks nothing by itself.

use crate::error::ExecutorError;
use crate::sync::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Such losses among the ranks of a communicator: a call that needs a lost rank from now on finds how it was lost.
#[derive(Default)]
pub(super) struct Losses {
    /// By lost rank, the error, and whether only this rank has lost it.
    gone: Mutex<BTreeMap<u32, (ExecutorError, bool)>>,
    /// There are some.
    bereft: AtomicBool,
}

/// What a pair knows of the communicator whose transfers go through it.
pub(super) struct Whole {
    /// The numbers of its ranks there.
    pub names: [u32; 2],
    /// They outlive the communicator, whose pairs leave after it.
    pub losses: Arc<Losses>,
}

impl Losses {
    pub fn add(&self, peer: u32, error: ExecutorError, alone: bool) {
        self.gone().insert(peer, (error, alone));
        self.bereft.store(true, Ordering::Release);
    }

    #[inline]
    pub fn are_there(&self) -> bool {
        self.bereft.load(Ordering::Acquire)
    }

    /// The loss of this peer, if it is lost.
    pub fn of(&self, peer: u32) -> Option<ExecutorError> {
        self.pick(|&(&gone, _)| gone == peer)
    }

    /// A loss of which the other ranks hear as this rank does.
    pub fn heard(&self) -> Option<ExecutorError> {
        self.pick(|(_, (_, alone))| !alone)
    }

    pub fn first(&self) -> Option<ExecutorError> {
        self.pick(|_| true)
    }

    /// A lost rank for which this holds.
    pub fn find(&self, holds: impl Fn(u32) -> bool) -> Option<u32> {
        self.gone().keys().copied().find(|&peer| holds(peer))
    }

    fn pick(
        &self,
        holds: impl Fn(&(&u32, &(ExecutorError, bool))) -> bool,
    ) -> Option<ExecutorError> {
        if !self.are_there() {
            return None;
        }
        self.gone().iter().find(holds).map(|(_, (error, _))| error.clone())
    }

    fn gone(&self) -> MutexGuard<'_, BTreeMap<u32, (ExecutorError, bool)>> {
        lock(&self.gone)
    }
}

#[cfg(test)]
impl super::Communicator {
    /// Has this rank hear that a peer, which was through, is lost; pid 7.
    pub(crate) fn hears_of_a_loss(&self, peer: u32) {
        let (reason, doing) = ("its process ended".to_owned(), crate::error::Doing::default());
        let loss = super::failure::Loss { landed: true, alone: false };
        let error = ExecutorError::PeerLost { peer, pid: 7, reason, doing };
        self.shared.failure.lose(peer, loss, error);
    }
}
