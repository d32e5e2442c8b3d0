//! What passes work on: a block's operations with what their author asked for beside them.

use super::fusion::Cover;
use crate::model::{Op, OpKind, Pipeline};
use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign};

/// Where the threads of a block must meet around an operation that synchronises with others.
///
/// Before: everything the block did earlier is done. After: nobody goes on before the operation is through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DataSync(u8);

impl DataSync {
    /// Nowhere: the author knows that other operations see to it.
    pub const NONE: DataSync = DataSync(0);
    /// Before the operation.
    pub const BEFORE: DataSync = DataSync(1);
    /// After the operation.
    pub const AFTER: DataSync = DataSync(2);
    /// Before and after the operation.
    pub const BOTH: DataSync = DataSync(3);

    /// The value with these bits: 1 for before, 2 for after.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits < 4 { Some(DataSync(bits)) } else { None }
    }

    /// 1 for before, 2 for after.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether the threads meet before.
    pub const fn before(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether the threads meet after.
    pub const fn after(self) -> bool {
        self.0 & 2 != 0
    }

    /// The same without meeting before.
    pub const fn without_before(self) -> Self {
        DataSync(self.0 & 2)
    }

    /// The same without meeting after.
    pub const fn without_after(self) -> Self {
        DataSync(self.0 & 1)
    }
}

impl BitOr for DataSync {
    type Output = DataSync;

    fn bitor(self, other: Self) -> Self {
        DataSync(self.0 | other.0)
    }
}

impl BitOrAssign for DataSync {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for DataSync {
    type Output = DataSync;

    fn bitand(self, other: Self) -> Self {
        DataSync(self.0 & other.0)
    }
}

impl fmt::Display for DataSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(["none", "before", "after", "both"][usize::from(self.0)])
    }
}

/// One operation of a block on its way through the passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The operation. A pipeline's own list of operations is empty: its body is in `body`.
    pub op: Op,
    /// Where the threads meet around it; [`DataSync::NONE`] for what does not synchronise with others.
    pub sync: DataSync,
    /// The steps of a pipeline's iteration.
    pub body: Vec<Step>,
    /// What fusion remembers of the operation while it grows.
    pub(super) cover: Cover,
}

impl Step {
    /// A step that asks for no meeting.
    pub fn new(op: Op) -> Self {
        Step { op, sync: DataSync::NONE, body: Vec::new(), cover: Cover::default() }
    }

    /// A step of an operation that synchronises with others.
    pub fn synchronising(op: Op, sync: DataSync) -> Self {
        Step { op, sync, body: Vec::new(), cover: Cover::default() }
    }

    /// A block synchronisation.
    pub fn nop() -> Self {
        Step::new(Op::new(OpKind::Nop))
    }

    /// A pipeline over `num_chunks` chunks in windows of `unit_size` bytes.
    pub fn pipeline(unit_size: u64, num_chunks: u64, body: Vec<Step>) -> Self {
        let mut op = Op::new(OpKind::Pipeline);
        op.pipeline = Some(Pipeline { unit_size, num_chunks, ops: Vec::new() });
        Step { op, sync: DataSync::NONE, body, cover: Cover::default() }
    }

    /// Gives back the memory that only a growing step needs: nothing is fused with it any more.
    pub(super) fn seal(&mut self) {
        self.cover.clear();
        let op = &mut self.op;
        op.src.shrink_to_fit();
        op.dst.shrink_to_fit();
        op.channel_ids.shrink_to_fit();
    }

    /// What the operation is.
    pub fn kind(&self) -> OpKind {
        self.op.kind
    }

    /// Whether the operation signals others or waits for them, and so carries a [`DataSync`] that passes heed. Unlike with
    /// [`OpKind::synchronises`], block synchronisations and barriers do not count.
    pub fn carries_data_sync(&self) -> bool {
        use OpKind::*;
        matches!(
            self.op.kind,
            Signal
                | RelaxedSignal
                | Wait
                | RelaxedWait
                | Flush
                | SemaphoreAcquire
                | SemaphoreRelease
        )
    }

    /// Whether the operation waits for others.
    pub fn waits(&self) -> bool {
        use OpKind::*;
        matches!(self.op.kind, Wait | RelaxedWait | Flush | SemaphoreAcquire)
    }

    /// Whether the operation moves data.
    pub fn moves(&self) -> bool {
        use OpKind::*;
        !self.carries_data_sync() && !matches!(self.op.kind, Nop | Barrier | Pipeline)
    }

    /// The plan's operation, with a pipeline's body inside.
    pub fn into_op(self) -> Op {
        let mut op = self.op;
        if let Some(pipeline) = &mut op.pipeline {
            pipeline.ops = self.body.into_iter().map(Step::into_op).collect();
        }
        op
    }

    /// Number of operations that are not synchronisations, those of a pipeline's body included.
    pub fn operations(&self) -> usize {
        let own = usize::from(!matches!(self.op.kind, OpKind::Nop | OpKind::Pipeline));
        own + self.body.iter().map(Step::operations).sum::<usize>()
    }

    /// Number of block synchronisations, those of a pipeline's body included.
    pub fn meetings(&self) -> usize {
        let own = usize::from(self.op.kind == OpKind::Nop);
        own + self.body.iter().map(Step::meetings).sum::<usize>()
    }
}
