//! Calls whose contexts are at hand.

use super::Asked;
use crate::context::{Context, LAUNCHES_PER_EPOCH};
use crate::plan_cache::{LoadedPlan, Sized};
use crate::shared::arena::BlockBytes;
use antiphon_plan::program::CallSizes;
use antiphon_types::{DataType, ReduceOp};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Calls of an executor whose context is kept at hand.
pub(super) const RECENT: usize = 16;

/// What distinguishes calls that need another context or other byte ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    pub plan: *const LoadedPlan,
    pub sizes: CallSizes,
    pub dtype: DataType,
    pub op: Option<ReduceOp>,
    pub stream: Option<u64>,
}

/// A call's context, found once.
pub(super) struct Recent {
    /// Keeps the address in `shape` from being another plan's. The context may have been made with an equal plan.
    pub plan: Arc<LoadedPlan>,
    /// The question that the plan answers, if one was asked.
    pub asked: Option<Asked>,
    pub shape: Shape,
    pub sized: Arc<Sized>,
    pub context: Arc<Context>,
    pub fingerprint: u64,
    /// The runtime blocks of the call at hand.
    pub runtime_blocks: Vec<BlockBytes>,
}

// SAFETY: the plan's address is only compared.
unsafe impl Send for Recent {}

impl Recent {
    /// Whether the context takes more launches.
    #[inline]
    pub fn lasts(&self) -> bool {
        self.context.given.load(Ordering::Relaxed) < LAUNCHES_PER_EPOCH
    }
}

impl std::fmt::Debug for Recent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shape.fmt(f)
    }
}
