//! Tasks: work for a host stream that may have to be continued later.

use crate::error::{TaskError, TaskPanicked};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// How hard a poll may try before it returns [`TaskState::Pending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effort {
    /// Do what can be done now; never spin, yield or sleep.
    Try,
    /// May spin for a bounded number of microseconds; never sleep.
    Brief,
    /// May spin, yield or sleep, for up to about a millisecond.
    Wait,
}

/// What a poll found.
#[derive(Clone, Debug)]
pub enum TaskState {
    /// There is more to do; poll again.
    Pending,
    /// The task is over and is not polled again.
    Done(Result<(), TaskError>),
}

/// Work that a host stream drives to its end.
///
/// A task is internally synchronised: it may be polled from any thread, though a stream polls it from one thread
/// at a time, and each poll sees everything that earlier polls wrote. A task that panics counts as failed.
pub trait Task: Send + Sync {
    /// Does a part of the work, as much as `effort` allows. Each poll must end: a task that waits for something
    /// returns [`TaskState::Pending`] and looks again in the next poll.
    fn poll(&self, effort: Effort) -> TaskState;
}

/// Runs a poll; a panic is the task's failure, and does not take with it the thread, which may have other tasks to drive.
pub fn guarded(poll: impl FnOnce() -> TaskState) -> TaskState {
    catch_unwind(AssertUnwindSafe(poll))
        .unwrap_or_else(|payload| TaskState::Done(Err(Arc::new(TaskPanicked::new(&*payload)))))
}
