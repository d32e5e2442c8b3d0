//! Where a block's threads have to meet: the `nop`s a GPU needs between operations.
//!
//! All threads of a block share a data operation, but single threads signal and wait. So threads must meet
//! between data and a signal that announces it, between a wait and whatever relies on it, and between two data
//! operations of which one writes local chunks that the other touches. Packets carry their own flags and need
//! none of this.

use crate::model::{Buffer, Collective};
use std::ops::Range;

/// What a block has done since its threads last met.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    moved: bool,
    waited: bool,
    accesses: Vec<LocalAccess>,
}

/// A data operation's use of raw memory of its own rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalAccess {
    /// Whether the memory is scratch; input and output count as one memory, because in place they are.
    pub scratch: bool,
    /// Chunks, in the coordinates of [`home`].
    pub range: Range<u64>,
    /// Whether it is written.
    pub write: bool,
}

impl Pending {
    /// Whether the threads must meet before a data operation with these accesses.
    pub fn needed_before_move(&self, accesses: &[LocalAccess]) -> bool {
        self.waited || accesses.iter().any(|a| self.accesses.iter().any(|b| a.conflicts(b)))
    }

    /// Whether the threads must meet before an operation that lets others go on.
    pub fn needed_before_signal(&self) -> bool {
        self.moved || self.waited
    }

    pub fn moved(&mut self, accesses: Vec<LocalAccess>) {
        self.moved = true;
        self.accesses.extend(accesses);
    }

    pub fn waited(&mut self) {
        self.waited = true;
    }

    pub fn clear(&mut self) {
        *self = Pending::default();
    }
}

impl LocalAccess {
    fn conflicts(&self, other: &LocalAccess) -> bool {
        (self.write || other.write)
            && self.scratch == other.scratch
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

/// Where `range` of a rank's `buffer` lies in place: the smaller buffer of an allgather or reducescatter is the
/// rank's block of the larger one, elsewhere input and output are the same.
pub(super) fn home(
    collective: &Collective,
    rank: usize,
    buffer: Buffer,
    buffer_chunks: u64,
    range: Range<u64>,
) -> Range<u64> {
    let shift = match (collective, buffer) {
        (Collective::AllGather, Buffer::Input) | (Collective::ReduceScatter, Buffer::Output) => {
            (rank as u64).saturating_mul(buffer_chunks)
        }
        _ => 0,
    };
    range.start.saturating_add(shift)..range.end.saturating_add(shift)
}
