//! Host events: points that streams reach.

use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::host::lock;
use crate::host::queue::{Queue, Step};
use crate::task::{Effort, Task, TaskState};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// How often a waiter that another thread keeps from driving looks whether it may.
const RETRY: Duration = Duration::from_micros(100);

/// One point of a stream. In the stream's queue it is the task that marks it as reached.
pub(super) struct Point {
    reached: AtomicBool,
    /// The queue it is a point of: a waiter works on it instead of only waiting.
    origin: Weak<Queue>,
    waiters: AtomicUsize,
    gate: Mutex<()>,
    moved: Condvar,
}

impl Point {
    /// The point behind all that `queue` holds now.
    pub(super) fn behind(queue: &Arc<Queue>) -> Arc<Self> {
        let point = Arc::new(Point {
            reached: AtomicBool::new(false),
            origin: Arc::downgrade(queue),
            waiters: AtomicUsize::new(0),
            gate: Mutex::default(),
            moved: Condvar::new(),
        });
        queue.push(Arc::clone(&point) as Arc<dyn Task>);
        point
    }

    /// Whether it was reached; if so, what came before it is visible to the caller.
    fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Acquire)
    }

    /// Works towards it as much as `effort` allows. Returns whether it was reached.
    fn advance(&self, effort: Effort) -> bool {
        let origin = self.origin.upgrade();
        while !self.is_reached() {
            match origin.as_ref().map_or(Step::Empty, |queue| queue.step(effort)) {
                Step::Advanced => {}
                // The head's own poll has done the waiting that the effort allows.
                Step::Pending => break,
                Step::Busy | Step::Empty => {
                    if effort == Effort::Wait {
                        self.rest();
                    }
                    break;
                }
            }
        }
        self.is_reached()
    }

    /// Waits until it is reached, by work on this thread where possible.
    pub(super) fn finish(&self) {
        while !self.advance(Effort::Wait) {
            thread::yield_now();
        }
    }

    /// Sleeps until it is reached, at most for [`RETRY`].
    fn rest(&self) {
        let gate = lock(&self.gate);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        // Sequentially consistent on both sides: either this load sees it reached, or `poll` sees the waiter.
        if !self.reached.load(Ordering::SeqCst) {
            let woken = self.moved.wait_timeout(gate, RETRY);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Task for Point {
    fn poll(&self, _effort: Effort) -> TaskState {
        self.reached.store(true, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            let _gate = lock(&self.gate);
            self.moved.notify_all();
        }
        TaskState::Done(Ok(()))
    }
}

/// An event of the host backend.
#[derive(Default)]
pub(super) struct HostEvent {
    /// Where its latest record stands. Who waits keeps the point that it saw here, whatever is recorded later.
    latest: Mutex<Option<Arc<Point>>>,
}

impl HostEvent {
    /// The host event behind `event`, or an error that names `what` cannot be done with others.
    pub(super) fn of<'a>(event: &'a dyn Event, what: &'static str) -> Result<&'a Self, HalError> {
        let any: &dyn std::any::Any = event;
        any.downcast_ref().ok_or_else(|| HalError::Invalid {
            what,
            saw: format!("an event of the {} backend", event.backend()),
            allowed: "one of the host backend".to_owned(),
            cure: "make the event on the stream's own device",
        })
    }

    /// Notes its latest record; `None` for one that was reached at once.
    pub(super) fn record(&self, point: Option<Arc<Point>>) {
        *lock(&self.latest) = point;
    }

    /// The point that is to be waited for, if it was not reached yet.
    pub(super) fn pending(&self) -> Option<Arc<Point>> {
        lock(&self.latest).clone().filter(|point| !point.is_reached())
    }
}

impl Event for HostEvent {
    fn backend(&self) -> Backend {
        Backend::Host
    }

    fn query(&self) -> Result<bool, HalError> {
        Ok(self.pending().is_none())
    }

    fn synchronize(&self) -> Result<(), HalError> {
        if let Some(point) = self.pending() {
            point.finish();
        }
        Ok(())
    }
}

impl fmt::Debug for HostEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostEvent")
            .field("reached", &self.pending().is_none())
            .finish_non_exhaustive()
    }
}

/// A wait in a queue: done when the other queue has reached the point, and helps it on meanwhile.
pub(super) struct Await(pub(super) Arc<Point>);

impl Task for Await {
    fn poll(&self, effort: Effort) -> TaskState {
        // Queues that wait for each other in a circle end here: each is busy, driven by this very thread.
        match self.0.advance(effort) {
            true => TaskState::Done(Ok(())),
            false => TaskState::Pending,
        }
    }
}
