//! Calls as they are made: by plans, or by names.

use super::{Call, Executor};
use crate::error::ExecutorError;
use antiphon_hal::{Stream, Task};
use std::sync::Arc;

/// How a rank makes a call, and so in which order all ranks make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// By its plan, in one order with the calls on its stream: plans of one's own run at once on several.
    Directly,
    /// By a collective's name, in one order with all such calls of the communicator, on whatever streams.
    ByName,
}

impl Executor {
    /// [`execute`](Self::execute) of a call that is made so.
    ///
    /// # Safety
    /// As [`execute`](Self::execute).
    pub(crate) unsafe fn execute_as(
        &self,
        made: Made,
        call: &Call<'_>,
        stream: &Arc<dyn Stream>,
    ) -> Result<(), ExecutorError> {
        if let Some(gpu) = &self.communicator.shared.gpu {
            // SAFETY: as this function's.
            return unsafe { self.launch(gpu, made, call, stream) };
        }
        let launch: Arc<dyn Task> = Arc::new(self.queued(call, Some(stream.id()))?);
        self.submit(&launch, stream)
    }

    /// [`run`](Self::run) of a call that is made so.
    ///
    /// # Safety
    /// As [`execute`](Self::execute).
    pub(crate) unsafe fn run_as(&self, made: Made, call: &Call<'_>) -> Result<(), ExecutorError> {
        if let Some(gpu) = &self.communicator.shared.gpu {
            let stream = gpu.own_stream()?;
            // SAFETY: as this function's.
            unsafe { self.launch(gpu, made, call, &stream)? };
            return self.synchronize(&stream);
        }
        // SAFETY: as this function's.
        unsafe { self.run_asked(call, None) }
    }
}
