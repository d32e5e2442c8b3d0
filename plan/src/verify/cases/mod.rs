//! Which sizes of a plan to look at, so that what holds at them holds at every valid size.
//!
//! The argument, which docs/verification.md gives in full:
//!
//! - *Canonical sizes* (`family`) are those at which every chunk of every buffer is exactly one stride. What moves at any
//!   valid size is what moves at the canonical size of the same stride, but for bytes beyond the ends of buffers:
//!   positions inside chunks stay as they are, signals, waits, iterations and packets stay altogether.
//! - *Strides* matter only where something cuts chunks. Where nothing does, one grid stands for all sizes.
//! - *Slices* (`slices`) begin at `A * m + d`, where the stride is `m` units, `A` has the number of slices as denominator and
//!   `d` depends on `m` modulo that number, and is at most a quarter of it. So from some `m` on all comes back after one
//!   period. Of the rest, sizes that only leave pieces of another one empty say nothing new.
//! - *Pipelines* (`pipelines`, `strides`): where windows of different iterations touch different bytes (`overlaps`) and blocks
//!   meet alike in every iteration (`meetings`), every byte sees in a long run what a byte of a short one sees, in an
//!   order that is at least as strict; and a cycle of waits in a long run leaves its trace in one that is long enough for
//!   a path through all blocks that meet.
//! - Plans with runtime sizes have one chunk a block, and plans without canonical sizes one size and a doubt (`plain`).
//!
//! If some of this does not hold for a plan, that is a doubt: the plan may then be refuted, but not proven.

mod family;
mod meetings;
mod overlaps;
mod pipelines;
mod plain;
mod slices;
mod strides;
#[cfg(test)]
mod tests;

use crate::program::{CallSizes, Layout, Program};
use family::Family;

/// The sizes that stand for all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cases {
    /// At least one, where the plan can be lowered at all.
    pub grids: Vec<Grid>,
    /// Why sizes exist that no grid stands for; empty if there are none.
    pub doubts: Vec<String>,
}

/// A plan at sizes at which every chunk of every buffer is one stride.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// The sizes.
    pub sizes: CallSizes,
    /// Whether a call may have these sizes. If not, what holds at them holds at the sizes they stand for, but a fault at them
    /// need not show at a valid size.
    pub valid: bool,
    /// By rank, lowered at `sizes`.
    pub programs: Vec<Program>,
    /// Bytes between chunks, the same in every buffer of every rank; at least 1.
    pub stride: u64,
    /// Ascending positions inside a chunk, from 0 to `stride`, both included: every access is a union of the pieces between
    /// neighbours.
    pub cuts: Vec<u64>,
}

/// The sizes to look at for a proof about the plan that was lowered to `layout`; `contended` says whether its blocks contend
/// for counters.
pub(super) fn cases(layout: &Layout, contended: bool) -> Cases {
    if layout.runtime_sizes {
        return plain::runtime(layout);
    }
    match Family::new(layout) {
        Ok(family) => family.cases(contended),
        Err(doubt) => plain::concrete(layout, doubt),
    }
}
