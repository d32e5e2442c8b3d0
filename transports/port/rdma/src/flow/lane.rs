//! One queue of a link.

use super::{Action, Request};
use std::collections::VecDeque;

/// Sequence numbers of a lane only grow: `done` ≤ `taken` ≤ `queued`.
#[derive(Debug)]
pub(super) struct Lane {
    /// What the device does not have yet.
    pub(super) pending: VecDeque<Request>,
    /// The last number given.
    pub(super) queued: u64,
    /// The last that the device has.
    pub(super) taken: u64,
    /// The last that is known to be done.
    pub(super) done: u64,
    /// The last that asks for a completion.
    asked: u64,
    depth: u64,
}

impl Lane {
    pub(super) fn new(depth: u64) -> Self {
        Lane { pending: VecDeque::new(), queued: 0, taken: 0, done: 0, asked: 0, depth }
    }

    pub(super) fn push(&mut self, action: Action) {
        self.queued += 1;
        // Often enough that a full queue always has one on its way.
        let told = action == Action::Nudge || self.queued - self.asked >= self.depth / 4;
        if told {
            self.asked = self.queued;
        }
        self.pending.push_back(Request { sequence: self.queued, action, told });
    }

    pub(super) fn take(&mut self, most: usize, batch: &mut Vec<Request>) {
        let room = self.depth - (self.taken - self.done);
        let count = most.min(self.pending.len()).min(room as usize);
        batch.extend(self.pending.drain(..count));
        self.taken += count as u64;
    }

    pub(super) fn want(&mut self) {
        if self.asked == self.queued {
            return;
        }
        match self.pending.back_mut() {
            Some(last) => {
                last.told = true;
                self.asked = self.queued;
            }
            None => self.push(Action::Nudge),
        }
    }
}
