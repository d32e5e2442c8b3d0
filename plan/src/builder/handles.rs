//! Values that name parts of a program: runs of chunks, channels, semaphores.
//!
//! Handles are small copies; they stay valid for the program that made them.

use super::{NOWHERE, ProblemKind, ProgramBuilder};
use crate::dsl;
use crate::model::Buffer;
use std::ops::Range;
use std::panic::Location;

/// A whole buffer of a rank, or one allocation of its scratch.
#[derive(Clone, Copy)]
pub struct Region<'p> {
    pub(super) program: &'p ProgramBuilder,
    pub(super) rank: usize,
    pub(super) buffer: Buffer,
    pub(super) start: usize,
    pub(super) len: usize,
}

impl Region<'_> {
    /// A run of this region's chunks, counted from the region's start.
    #[track_caller]
    pub fn chunks(&self, range: Range<usize>) -> Chunks {
        self.take(range, Location::caller())
    }

    /// One of this region's chunks, counted from the region's start.
    #[track_caller]
    pub fn chunk(&self, index: usize) -> Chunks {
        self.take(index..index.saturating_add(1), Location::caller())
    }

    /// All chunks of this region.
    #[track_caller]
    pub fn all(&self) -> Chunks {
        self.take(0..self.len, Location::caller())
    }

    /// A part of this region; its chunks are counted from the part's start.
    #[track_caller]
    pub fn part(&self, range: Range<usize>) -> Self {
        let Range { start, end } = range;
        if start > end || end > self.len {
            let Region { rank, buffer, len: chunks, .. } = *self;
            let kind = ProblemKind::Chunks { rank, buffer, start, end, chunks };
            self.program.report(Location::caller(), kind);
            return Region { rank: NOWHERE, len: 0, ..*self };
        }
        Region { start: self.start + start, len: end - start, ..*self }
    }

    /// Number of chunks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the region has no chunks.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn take(&self, range: Range<usize>, at: &'static Location<'static>) -> Chunks {
        let Range { start, end } = range;
        let mut rank = self.rank;
        if rank != NOWHERE && (start >= end || end > self.len) {
            let (buffer, chunks) = (self.buffer, self.len);
            self.program.report(at, ProblemKind::Chunks { rank, buffer, start, end, chunks });
            rank = NOWHERE;
        }
        let index = self.start.saturating_add(start) as u64;
        Chunks { rank, buffer: self.buffer, index, size: end.saturating_sub(start) as u64 }
    }
}

/// A run of chunks in a buffer of some rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// [`NOWHERE`] if the making of it failed.
    pub(super) rank: usize,
    pub(super) buffer: Buffer,
    pub(super) index: u64,
    pub(super) size: u64,
}

impl Chunks {
    /// The owner.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Which of the owner's buffers.
    pub fn buffer(&self) -> Buffer {
        self.buffer
    }

    /// Chunks of the buffer that the run covers.
    pub fn range(&self) -> Range<u64> {
        self.index..self.index.saturating_add(self.size)
    }

    pub(super) fn recorded(&self) -> dsl::Chunk {
        let Chunks { rank, buffer, index, size } = *self;
        dsl::Chunk { rank: rank as u64, buffer, index, size }
    }
}

/// A two-way channel, over memory or a port: each end signals the other and waits for its signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The channel as each of the two ranks sees it; none if the making of it failed.
    pub(super) ends: Option<[dsl::Channel; 2]>,
}

impl Channel {
    /// The channel as `rank` sees it.
    pub(super) fn end_at(&self, rank: usize) -> Option<dsl::Channel> {
        self.ends?.into_iter().find(|end| end.source == rank as u64)
    }
}

/// A multicast channel over one buffer of several ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchChannel {
    /// None if the making of it failed.
    pub(super) switch: Option<dsl::Switch>,
}

/// A counter of one rank, by which its blocks wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Semaphore {
    /// None if the making of it failed.
    pub(super) semaphore: Option<dsl::Semaphore>,
}
