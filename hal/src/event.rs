//! Events: points in a stream that others wait for.

use crate::driver::Backend;
use crate::error::HalError;
use std::any::Any;
use std::fmt;

/// A point in a stream.
///
/// An event stands for its most recent [`crate::Stream::record`]. It may be recorded again at any time, on any
/// stream of its device; who waited for an earlier point keeps waiting for that one. An event that was never
/// recorded is complete. One that was recorded into a graph says nothing of the graph's replays: it is never done, and
/// waiting for it by a call is an error; streams may wait for it as long as they are part of the recording.
pub trait Event: Any + Send + Sync + fmt::Debug {
    /// The backend of the device that made it.
    fn backend(&self) -> Backend;

    /// Whether the work it stands for is done. If the driver says nothing about a stream that is being recorded into a graph, as
    /// ROCm's driver, the answer is `false` until the recording has ended. Errors of tasks are not told here but by
    /// [`crate::Stream::synchronize`]. A device that has failed answers why, here as in every call: nothing on it ends any more.
    fn query(&self) -> Result<bool, HalError>;

    /// Waits until the work it stands for at this moment is done, working on it where the backend can.
    fn synchronize(&self) -> Result<(), HalError>;
}
