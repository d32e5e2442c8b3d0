//! Calls of several ranks of one process, launched by one thread.

use super::{Call, Executor, OrderOf};
use crate::error::ExecutorError;
use crate::gpu::{Member, launch_together};
use antiphon_hal::Stream;
use std::sync::Arc;

/// One rank's part of [`Executor::execute_together`].
#[derive(Clone, Copy, Debug)]
pub struct RankCall<'a> {
    /// The rank's executor.
    pub executor: &'a Executor,
    /// What it calls.
    pub call: Call<'a>,
    /// Its stream, of the rank's device; ranks may share one.
    pub stream: &'a Arc<dyn Stream>,
}

impl Executor {
    /// Launches calls of several ranks of this process, one of each, and returns, as [`execute`](Executor::execute) does for
    /// each of them.
    ///
    /// On GPUs, ranks of one communicator that share a device and make the same call are one kernel: their blocks wait for
    /// each other, and none of them waits for a place on the device that another rank's have. The kernel begins when what is
    /// before it is over in the streams of all of them, and what follows in each stream waits for all of it. Where these are
    /// all ranks of the communicator, the launch is cooperative, on devices that can. All other calls are launched as by
    /// `execute`.
    ///
    /// Of streams that are recorded into graphs, those of ranks that are one kernel must be recorded into the same graph.
    ///
    /// # Errors
    /// What is wrong with a call: then none of the ranks that would have been one kernel with it is launched, though ranks
    /// named before may be. An earlier failure of a communicator.
    ///
    /// # Safety
    /// As [`execute`](Executor::execute), for each call.
    pub unsafe fn execute_together(calls: &[RankCall<'_>]) -> Result<(), ExecutorError> {
        // SAFETY: as this function's.
        unsafe { Executor::execute_together_as(OrderOf::Stream, calls) }
    }

    /// The same of calls that come in this order.
    ///
    /// # Safety
    /// As [`execute_together`](Self::execute_together).
    pub(crate) unsafe fn execute_together_as(
        order: OrderOf,
        calls: &[RankCall<'_>],
    ) -> Result<(), ExecutorError> {
        let mut members = Vec::with_capacity(calls.len());
        for RankCall { executor, call, stream } in calls {
            let shared = &executor.communicator().shared;
            let Some(gpu) = &shared.gpu else { continue };
            let checked = executor.checked(call).map_err(|error| executor.names(error));
            let (sizes, blocks) = checked?;
            members.push(Member { shared, gpu, order, call, sizes, blocks, stream });
        }
        for RankCall { executor, call, stream } in calls {
            if executor.communicator().shared.gpu.is_none() {
                // SAFETY: as this function's.
                unsafe { executor.execute(call, stream)? };
            }
        }
        // SAFETY: as this function's.
        let launched = unsafe { launch_together(&members) };
        launched.map_err(|error| match members.first() {
            Some(Member { call, shared, .. }) => shared.whose.names(call.plan.told(error)),
            None => error,
        })
    }
}
