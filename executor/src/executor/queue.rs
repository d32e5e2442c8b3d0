//! Calls for streams and groups to drive: their numbers and contexts, and the errors that come back.

use super::{Call, Executor};
use crate::error::ExecutorError;
use crate::launch::QueuedLaunch;
use antiphon_hal::{Effort, HalError, Stream, Task};
use std::sync::{Arc, OnceLock, PoisonError};

impl Executor {
    /// A call that somebody will drive, with its number and its context: that of a stream, or of blocking calls. All are
    /// driven to their end, those of one context in the order in which they were made.
    pub(crate) fn queued(
        &self,
        call: &Call<'_>,
        stream: Option<u64>,
    ) -> Result<QueuedLaunch, ExecutorError> {
        let mut recent = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = self.recent(&mut recent, call, stream, None)?;
        Ok(QueuedLaunch {
            shared: Arc::clone(&self.communicator.shared),
            context: Arc::clone(&recent.context),
            sized: Arc::clone(&recent.sized),
            order: self.order(recent, call),
            runtime_blocks: recent.runtime_blocks.clone(),
            waiting: OnceLock::new(),
        })
    }

    /// Gives a launch to a stream.
    pub(crate) fn submit(
        &self,
        launch: &Arc<dyn Task>,
        stream: &Arc<dyn Stream>,
    ) -> Result<(), ExecutorError> {
        stream.submit(launch, Effort::Brief).map(drop).map_err(own_error)
    }
}

/// A launch's own error, out of the stream's.
pub(crate) fn own_error(error: HalError) -> ExecutorError {
    if let HalError::Task(inner) = &error
        && let Some(own) = inner.downcast_ref::<ExecutorError>()
    {
        return own.clone();
    }
    error.into()
}
