//! Streams: work in order.

use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::task::{Effort, Task};
use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

/// What became of submitted work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Submitted {
    /// It is done.
    Complete,
    /// It is in the stream and goes on without the caller.
    Queued,
}

/// An ordered queue of work: each item starts when the one before it is done.
///
/// Items of one stream run one after the other; streams run independently of each other. Dropping a stream
/// detaches it: what is queued still runs to its end, and its errors are lost.
///
/// # Errors of tasks
///
/// A task that fails inside [`submit`](Self::submit) is reported there. One that fails later is remembered: the
/// first since the last [`synchronize`](Self::synchronize) is reported by the next, once. Later tasks run all the
/// same; a caller whose tasks depend on each other lets them share a flag.
///
/// # Recording
///
/// While an application records a stream of its own into a graph ([`is_capturing`](Self::is_capturing)), copies,
/// launches, records and waits become part of the graph; arguments are kept as they are then, and used again by every
/// replay. Nothing of this layer ends a recording: [`synchronize`](Self::synchronize) answers an error, and
/// [`query`](Self::query) `false`, without asking the driver, and so do events that were recorded there. Memory may be
/// allocated and mapped meanwhile; that is not part of the graph.
pub trait Stream: Any + Send + Sync + fmt::Debug {
    /// The backend of the device that made it.
    fn backend(&self) -> Backend;

    /// The number of the device that made it ([`crate::Device::index`]).
    fn device(&self) -> u32;

    /// A number no other stream of this process has had or will have. A stream of the application has the same number each time it is
    /// adopted. If the driver does not number streams, a stream that was given the handle of one that is gone has that one's number.
    fn id(&self) -> u64;

    /// The vendor's handle (`CUstream`, `hipStream_t`; null is its default stream), which is valid while this object lives; `None`
    /// where the backend has none.
    fn native(&self) -> Option<*mut c_void> {
        None
    }

    /// Submits a task.
    ///
    /// Where the stream is empty, the task is first polled on the calling thread with `effort`; if that finishes
    /// it, nothing was allocated or queued and no system call was made (but the task's own). Otherwise the stream
    /// keeps a clone of the `Arc`.
    fn submit(&self, task: &Arc<dyn Task>, effort: Effort) -> Result<Submitted, HalError>;

    /// Copies `bytes` from `source` to `destination` when all earlier work is done.
    ///
    /// # Safety
    ///
    /// Both ranges must be mapped and must not overlap, and nothing else may write the source or touch the
    /// destination, from now until the copy is done.
    unsafe fn copy(
        &self,
        destination: *mut u8,
        source: *const u8,
        bytes: u64,
    ) -> Result<Submitted, HalError>;

    /// Stores `value` at the address `to`, a multiple of 8, in one step, when all earlier work is done and seen by all devices.
    /// [`HalError::Unsupported`] where streams of the device cannot; a copy of 8 bytes can then.
    ///
    /// # Safety
    ///
    /// The word must be mapped until that is done, and reached by atomic operations alone meanwhile.
    unsafe fn write(&self, to: *mut u64, value: u64) -> Result<(), HalError> {
        let _ = (to, value);
        Err(HalError::Unsupported { op: "write a word in a stream", backend: self.backend() })
    }

    /// Lets `event` stand for everything submitted so far. Events of other backends are refused.
    fn record(&self, event: &dyn Event) -> Result<(), HalError>;

    /// Makes work submitted from now on wait for what `event` stands for at this moment; an event that was never
    /// recorded is not waited for. Never blocks the caller. Events of other backends are refused.
    fn wait(&self, event: &dyn Event) -> Result<(), HalError>;

    /// Whether everything submitted is known to be done; `false` for a stream that is being recorded into a graph. Work that
    /// failed is done: [`synchronize`](Self::synchronize) returns its error.
    fn query(&self) -> Result<bool, HalError>;

    /// Waits until everything submitted before the call is done, polling tasks on the calling thread with
    /// [`Effort::Wait`]. Returns the first error since the last call, and forgets it.
    fn synchronize(&self) -> Result<(), HalError>;

    /// Whether what is submitted is recorded into a graph instead of being run. Always `false` where the backend
    /// has no graphs.
    fn is_capturing(&self) -> Result<bool, HalError>;

    /// Keeps `object` until the graph that this stream is being recorded into is gone, and with it every executable made of it:
    /// kernels, memory and whatever else replays use must outlive the caller. Whoever uses the device takes the object then
    /// ([`crate::Device::take_abandoned`]). A stream that is not being recorded is [`HalError::Invalid`].
    fn keep(&self, object: Arc<dyn Any + Send + Sync>) -> Result<(), HalError> {
        drop(object);
        Err(HalError::Unsupported { op: "keep an object for a graph", backend: self.backend() })
    }
}
