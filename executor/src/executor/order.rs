//! In which order all ranks make calls: calls by plans in the order of their stream, calls by names in that of the communicator.

use super::{Call, Executor};
use crate::error::ExecutorError;
use antiphon_hal::{Stream, Task};
use std::sync::Arc;

/// The order in which all ranks make a call, and in which their calls are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderOf {
    /// The order of the calls on its stream: for a call that is made by its plan, of which several run at once on several streams.
    Stream,
    /// The order of the communicator's collectives by name, on whatever streams, and also that of the calls on its stream.
    Communicator,
}

impl Executor {
    /// [`execute`](Self::execute) of a call that comes in this order.
    ///
    /// # Safety
    /// As [`execute`](Self::execute).
    pub(crate) unsafe fn execute_as(
        &self,
        order: OrderOf,
        call: &Call<'_>,
        stream: &Arc<dyn Stream>,
    ) -> Result<(), ExecutorError> {
        if let Some(gpu) = &self.communicator.shared.gpu {
            // SAFETY: as this function's.
            return unsafe { self.launch(gpu, order, call, stream) };
        }
        // Before the call has its number: the others would wait for one that never runs.
        self.communicator.shared.takes(&**stream)?;
        let launch: Arc<dyn Task> = Arc::new(self.queued(call, Some(stream.id()))?);
        self.submit(&launch, stream)
    }

    /// [`run`](Self::run) of a call that comes in this order.
    ///
    /// # Safety
    /// As [`execute`](Self::execute).
    pub(crate) unsafe fn run_as(
        &self,
        order: OrderOf,
        call: &Call<'_>,
    ) -> Result<(), ExecutorError> {
        if let Some(gpu) = &self.communicator.shared.gpu {
            let stream = gpu.own_stream()?;
            // SAFETY: as this function's.
            let launched = unsafe { self.launch(gpu, order, call, &stream) };
            // The kernel of a launch that has failed may be in the stream, with the caller's buffers.
            if launched.is_ok() || self.communicator.shared.failed() {
                return launched.and(self.synchronize(&stream));
            }
            return launched;
        }
        // SAFETY: as this function's.
        unsafe { self.run_asked(call, None) }
    }
}
