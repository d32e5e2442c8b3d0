//! Port channels: what blocks have posted, and how far each channel's proxy is.

use crate::program::Span;
use std::collections::VecDeque;

/// One end of a port channel, with its proxy.
#[derive(Clone, Debug)]
pub(super) struct Port {
    /// The rank.
    pub rank: u32,
    /// Its channel.
    pub channel: u32,
    /// What is to be done; the first is being done, if `busy`.
    pub queue: VecDeque<Item>,
    pub busy: bool,
    /// Items ever posted.
    pub posted: u64,
    /// Items done.
    pub done: u64,
    /// The span of the item done last.
    pub latest: Option<u32>,
    /// Blocks that flush, and the items that must be done.
    pub waiters: Vec<(u64, u32)>,
}

/// Something for a proxy to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// The span that posted it.
    pub span: u32,
    /// The transfer; else it is a signal.
    pub transfer: Option<Transfer>,
}

/// A posted transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    /// The accesses: one source and one destination.
    pub sides: [Span; 2],
    /// Number of the move.
    pub index: u32,
    /// The window of the pipeline.
    pub window: Option<(u64, u64)>,
}

impl Port {
    pub(super) fn new(rank: u32, channel: u32) -> Self {
        Port {
            rank,
            channel,
            queue: VecDeque::new(),
            busy: false,
            posted: 0,
            done: 0,
            latest: None,
            waiters: Vec::new(),
        }
    }
}
