//! Processors that blocks take turns on, where a node has fewer of them than blocks.
//!
//! A processor goes on with a block until that waits, then turns to the block that has been ready longest, of whatever
//! rank: that is how the host engine's workers step blocks.

use std::collections::VecDeque;

/// What a processor can do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Enter the launch for this rank.
    Enter(u32),
    /// Go on with this block.
    Block(u32),
}

/// The processors of one node.
#[derive(Clone, Debug)]
pub(super) struct Cores {
    idle: u32,
    ready: VecDeque<Turn>,
}

impl Cores {
    pub(super) fn new(cores: u32) -> Self {
        Cores { idle: cores, ready: VecDeque::new() }
    }

    /// Someone can go on. Returns whom an idle processor turns to, if there is one.
    pub(super) fn ready(&mut self, turn: Turn) -> Option<Turn> {
        if self.idle == 0 {
            self.ready.push_back(turn);
            return None;
        }
        self.idle -= 1;
        Some(turn)
    }

    /// A processor has no more work to do for its current turn. Returns the turn that it takes next, if one is ready.
    pub(super) fn leave(&mut self) -> Option<Turn> {
        let next = self.ready.pop_front();
        if next.is_none() {
            self.idle += 1;
        }
        next
    }
}
