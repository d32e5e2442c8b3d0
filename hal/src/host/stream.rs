//! Host streams.

use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::host::event::{Await, HostEvent, Point};
use crate::host::queue::{Queue, Ran};
use crate::id::next_id;
use crate::stream::{Stream, Submitted};
use crate::task::{Effort, Task, TaskState};
use std::fmt;
use std::ptr;
use std::sync::Arc;

/// A stream of the host backend.
pub(super) struct HostStream {
    id: u64,
    queue: Arc<Queue>,
}

impl HostStream {
    /// An empty stream. The worker must have been started.
    pub(super) fn new() -> Self {
        HostStream { id: next_id(), queue: Arc::default() }
    }
}

impl Stream for HostStream {
    fn backend(&self) -> Backend {
        Backend::Host
    }

    fn device(&self) -> u32 {
        0
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn submit(&self, task: &Arc<dyn Task>, effort: Effort) -> Result<Submitted, HalError> {
        outcome(self.queue.run(|| task.poll(effort), || Arc::clone(task)))
    }

    unsafe fn copy(
        &self,
        destination: *mut u8,
        source: *const u8,
        bytes: u64,
    ) -> Result<Submitted, HalError> {
        let copy = Copy {
            destination,
            source,
            bytes: usize::try_from(bytes).map_err(|_| HalError::Invalid {
                what: "copy host memory",
                saw: format!("{bytes} bytes"),
                allowed: format!("up to {}, the address space", usize::MAX),
                cure: "pass ranges that are mapped",
            })?,
        };
        outcome(self.queue.run(|| copy.poll(Effort::Try), || Arc::new(copy)))
    }

    fn record(&self, event: &dyn Event) -> Result<(), HalError> {
        let event = HostEvent::of(event, "record an event on a host stream")?;
        event.record((!self.queue.is_idle()).then(|| Point::behind(&self.queue)));
        Ok(())
    }

    fn wait(&self, event: &dyn Event) -> Result<(), HalError> {
        let event = HostEvent::of(event, "wait for an event on a host stream")?;
        if let Some(point) = event.pending() {
            self.queue.push(Arc::new(Await(point)));
        }
        Ok(())
    }

    fn query(&self) -> Result<bool, HalError> {
        Ok(self.queue.is_idle())
    }

    fn is_capturing(&self) -> Result<bool, HalError> {
        Ok(false)
    }

    fn synchronize(&self) -> Result<(), HalError> {
        if !self.queue.is_idle() {
            // Behind everything submitted so far: what others submit later is not waited for.
            Point::behind(&self.queue).finish();
        }
        self.queue.take_error().map_or(Ok(()), |error| Err(HalError::Task(error)))
    }
}

impl fmt::Debug for HostStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostStream")
            .field("id", &self.id)
            .field("idle", &self.queue.is_idle())
            .finish_non_exhaustive()
    }
}

fn outcome(ran: Ran) -> Result<Submitted, HalError> {
    match ran {
        Ran::Done(result) => result.map(|()| Submitted::Complete).map_err(HalError::Task),
        Ran::Queued => Ok(Submitted::Queued),
    }
}

/// A copy in a stream.
#[derive(Clone, Copy)]
struct Copy {
    destination: *mut u8,
    source: *const u8,
    bytes: usize,
}

// SAFETY: whoever made the copy promised (`Stream::copy`) that the ranges stay mapped and are left alone until it
// is done, on whichever thread that happens.
unsafe impl Send for Copy {}
// SAFETY: as above; and a stream polls a task from one thread at a time.
unsafe impl Sync for Copy {}

impl Task for Copy {
    fn poll(&self, _effort: Effort) -> TaskState {
        // SAFETY: `Stream::copy` asks its caller for mapped ranges that do not overlap and that nothing else touches.
        unsafe { ptr::copy_nonoverlapping(self.source, self.destination, self.bytes) };
        TaskState::Done(Ok(()))
    }
}
