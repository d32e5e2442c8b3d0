//! Host events: tickets that streams reach.

use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::host::lock;
use crate::host::queue::{Queue, Step};
use crate::task::{Effort, Task, TaskState};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// How often a waiter that another thread keeps from driving looks whether it may.
const RETRY: Duration = Duration::from_micros(100);

/// The points an event has stood for, in order: each record draws a ticket, and the stream reaches it.
#[derive(Default)]
pub(super) struct Timeline {
    drawn: AtomicU64,
    /// The highest ticket that was reached. A later record makes an earlier one irrelevant, so passing is reaching.
    reached: AtomicU64,
    /// The queue of the latest record: a waiter works on it instead of only waiting.
    origin: Mutex<Weak<Queue>>,
    waiters: AtomicUsize,
    gate: Mutex<()>,
    moved: Condvar,
}

impl Timeline {
    /// Draws the ticket of a record on `queue`.
    pub(super) fn draw(&self, queue: &Arc<Queue>) -> u64 {
        let mut origin = lock(&self.origin);
        *origin = Arc::downgrade(queue);
        self.drawn.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The ticket of the latest record; 0 if there was none.
    pub(super) fn latest(&self) -> u64 {
        self.drawn.load(Ordering::Relaxed)
    }

    /// Marks `ticket` as reached.
    pub(super) fn reach(&self, ticket: u64) {
        self.reached.fetch_max(ticket, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            let _gate = lock(&self.gate);
            self.moved.notify_all();
        }
    }

    /// Whether `ticket` was reached; if so, what came before it is visible to the caller.
    pub(super) fn has_reached(&self, ticket: u64) -> bool {
        self.reached.load(Ordering::Acquire) >= ticket
    }

    /// Works towards `ticket` as much as `effort` allows. Returns whether it was reached.
    pub(super) fn advance(&self, ticket: u64, effort: Effort) -> bool {
        let origin = lock(&self.origin).upgrade();
        while !self.has_reached(ticket) {
            match origin.as_ref().map_or(Step::Empty, |queue| queue.step(effort)) {
                Step::Advanced => {}
                // The head's own poll has done the waiting that the effort allows.
                Step::Pending => break,
                Step::Busy | Step::Empty => {
                    if effort == Effort::Wait {
                        self.rest(ticket);
                    }
                    break;
                }
            }
        }
        self.has_reached(ticket)
    }

    /// Waits until `ticket` is reached, by work on this thread where possible.
    pub(super) fn finish(&self, ticket: u64) {
        while !self.advance(ticket, Effort::Wait) {
            thread::yield_now();
        }
    }

    /// Sleeps until something is reached, at most for [`RETRY`].
    fn rest(&self, ticket: u64) {
        let gate = lock(&self.gate);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        // Sequentially consistent on both sides: either this load sees the ticket, or `reach` sees the waiter.
        if self.reached.load(Ordering::SeqCst) < ticket {
            let woken = self.moved.wait_timeout(gate, RETRY);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An event of the host backend.
#[derive(Default)]
pub(super) struct HostEvent {
    timeline: Arc<Timeline>,
}

impl HostEvent {
    /// The host event behind `event`, or an error that names `what` cannot be done with others.
    pub(super) fn timeline_of<'a>(
        event: &'a dyn Event,
        what: &'static str,
    ) -> Result<&'a Arc<Timeline>, HalError> {
        let any: &dyn std::any::Any = event;
        match any.downcast_ref::<HostEvent>() {
            Some(event) => Ok(&event.timeline),
            None => Err(HalError::Invalid {
                what,
                saw: format!("an event of the {} backend", event.backend()),
                allowed: "one of the host backend".to_owned(),
                cure: "make the event on the stream's own device",
            }),
        }
    }
}

impl Event for HostEvent {
    fn backend(&self) -> Backend {
        Backend::Host
    }

    fn query(&self) -> Result<bool, HalError> {
        Ok(self.timeline.has_reached(self.timeline.latest()))
    }

    fn synchronize(&self) -> Result<(), HalError> {
        self.timeline.finish(self.timeline.latest());
        Ok(())
    }
}

impl fmt::Debug for HostEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostEvent")
            .field("drawn", &self.timeline.drawn)
            .field("reached", &self.timeline.reached)
            .finish_non_exhaustive()
    }
}

/// A record in a queue: reaches its ticket when its turn comes.
pub(super) struct Record {
    pub(super) timeline: Arc<Timeline>,
    pub(super) ticket: u64,
}

impl Task for Record {
    fn poll(&self, _effort: Effort) -> TaskState {
        self.timeline.reach(self.ticket);
        TaskState::Done(Ok(()))
    }
}

/// A wait in a queue: done when the other queue has reached the ticket, and helps it on meanwhile.
pub(super) struct Await {
    pub(super) timeline: Arc<Timeline>,
    pub(super) ticket: u64,
}

impl Task for Await {
    fn poll(&self, effort: Effort) -> TaskState {
        // Queues that wait for each other in a circle end here: each is busy, driven by this very thread.
        match self.timeline.advance(self.ticket, effort) {
            true => TaskState::Done(Ok(())),
            false => TaskState::Pending,
        }
    }
}
