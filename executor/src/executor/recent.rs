//! Calls whose contexts are at hand, and how they get their contexts and numbers.

use super::{Asked, Call, Executor, alike, mix};
use crate::context::{Context, ContextKey, MOST_LAUNCHES};
use crate::error::ExecutorError;
use crate::launch::Order;
use crate::plan_cache::{LoadedPlan, Sized};
use crate::shared::arena::BlockBytes;
use crate::shared::control::{CallType, RING};
use crate::sync::{or_panicked, shielded};
use antiphon_plan::counts::{Counts, Extent};
use antiphon_plan::program::CallSizes;
use antiphon_plan::recut::Told;
use antiphon_types::{DataType, ReduceOp};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Calls of an executor whose context is kept at hand.
const RECENT: usize = 16;

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
        self.context.given.load(Ordering::Relaxed) < MOST_LAUNCHES
    }
}

impl std::fmt::Debug for Recent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shape.fmt(f)
    }
}

impl Executor {
    /// Finds or makes the context of a call.
    fn meet(&self, plan: &Arc<LoadedPlan>, shape: Shape) -> Result<Recent, ExecutorError> {
        let shared = &self.communicator.shared;
        let Shape { sizes, dtype, op, stream, .. } = shape;
        // Refused before it takes a number.
        let sized = plan.admit(sizes)?;
        let mut log = shared.log();
        let stream = stream.map_or(0, |id| log.stream(id));
        let fingerprint = alike(plan, sizes, CallType::new(dtype, op), stream);
        let key = ContextKey::new(shared, plan, stream, sizes, Told::Read)?;
        let make = || Context::new(shared, Arc::clone(plan), key);
        let context = log.contexts.find_or(key, make)?;
        let runtime_blocks = Vec::new();
        let plan = Arc::clone(plan);
        Ok(Recent { plan, asked: None, shape, sized, context, fingerprint, runtime_blocks })
    }

    /// The context of a call, at hand or found.
    pub(super) fn recent<'r>(
        &self,
        recent: &'r mut Vec<Recent>,
        call: &Call<'_>,
        stream: Option<u64>,
        asked: Option<Asked>,
    ) -> Result<&'r Recent, ExecutorError> {
        self.communicator.shared.check()?;
        self.check(call)?;
        let sizes = self.sizes(call);
        let plan = Arc::as_ptr(call.plan);
        let shape = Shape { plan, sizes, dtype: call.dtype, op: call.op, stream };
        let known = recent.iter().position(|recent| {
            recent.shape == shape && (asked.is_none() || recent.asked == asked) && recent.lasts()
        });
        if known.is_none() {
            self.fits(call.plan)?;
        }
        let known = match known {
            Some(known) => known,
            None => {
                recent.retain(Recent::lasts);
                if recent.len() >= RECENT {
                    recent.clear();
                }
                let met = or_panicked("make a call's context", || self.meet(call.plan, shape));
                let met = met.map_err(|error| {
                    // The failure was heard of while peers were told about the context.
                    if error.breaks_communicator() {
                        self.communicator.shared.fail(error.clone());
                    }
                    call.plan.told(self.communicator.shared.lacking(error))
                });
                recent.push(Recent { asked, ..met? });
                recent.len() - 1
            }
        };
        let recent = &mut recent[known];
        recent.runtime_blocks.clear();
        add_runtime_blocks(call, &mut recent.runtime_blocks);
        Ok(recent)
    }

    /// Gives a call its number; `None` if its context takes no more launches, so that another must be found.
    pub(super) fn order(&self, recent: &Recent, call: &Call<'_>) -> Option<Order> {
        let shared = &self.communicator.shared;
        let mut log = shared.log();
        let seq = log.seq + 1;
        let count = log.contexts.launch(&recent.context, seq)?;
        log.seq = seq;
        let fingerprint = call.fingerprint(recent.fingerprint);
        log.chain = mix(log.chain, fingerprint);
        let chain = log.chain;
        // Also now and then, so that contexts let go of are freed though no new one is made.
        if count == 1 || seq.is_multiple_of(RING) {
            // The call has its number, by which others count on it.
            shielded(|| {
                let left = log.contexts.left(shared);
                // Freeing their memory may take long, so the log is not held.
                drop(log);
                drop(left);
            });
        }
        Some(Order {
            input: call.input,
            output: call.output,
            bytes: call.bytes_there(),
            dtype: call.dtype,
            op: call.op,
            seq,
            count,
            fingerprint,
            chain,
            proven: call.plan.keeps_to_itself(call.shares()),
        })
    }
}

/// Adds the runtime blocks of a call that was checked: those of its input, then those of its output.
pub(super) fn add_runtime_blocks(call: &Call<'_>, blocks: &mut Vec<BlockBytes>) {
    let Some(Counts { send, receive }) = call.counts else { return };
    let element = call.dtype.size() as u64;
    // In the buffers, so no product overflows.
    let bytes = |extent: &Extent| BlockBytes {
        offset: extent.offset * element,
        len: extent.count * element,
    };
    blocks.extend(send.iter().chain(receive).map(bytes));
}
