//! What a simulated run looks like: when every operation of every block ran, and who waited for whom.

use crate::lower::Site;

/// A simulated launch of a whole plan. Times are seconds from the launch's start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// When the last block ended.
    pub end: f64,
    /// Every operation that ran, in order of start; an operation inside a pipeline has one span per iteration.
    pub spans: Vec<OpSpan>,
    /// Who let whom go on: from the span that signalled, released, arrived or wrote packets to the span that waited.
    pub arrows: Vec<Arrow>,
    /// Positions in `spans` on the critical path, in order of time.
    pub critical: Vec<u32>,
    /// What every link carried.
    pub links: Vec<LinkLoad>,
}

/// One execution of one operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpSpan {
    /// The operation.
    pub site: Site,
    /// The iteration, inside a pipeline; else 0.
    pub iteration: u64,
    /// When the block came to it.
    pub start: f64,
    /// When it could go on: later than `start` by the time it waited for others.
    pub ready: f64,
    /// When it was done.
    pub end: f64,
    /// Bytes it moved: what it stored, at all destinations together.
    pub bytes: u64,
}

/// One dependency between blocks, whether or not its later side had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// Position of the earlier span.
    pub from: u32,
    /// Position of the span that waited.
    pub to: u32,
}

/// What one link carried.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkLoad {
    /// The link's name in the topology.
    pub name: String,
    /// Bytes in all.
    pub bytes: u64,
    /// Seconds in which it carried anything.
    pub busy: f64,
    /// Bytes a second it can carry.
    pub bandwidth: f64,
}
