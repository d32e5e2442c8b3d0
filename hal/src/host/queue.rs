//! The queue inside a stream: tasks in order, driven by one thread at a time, whichever comes by.
//!
//! One word tells everything that the fast path must know: how many tasks are queued, and whether some thread is
//! driving (running the task at the head, or one that never needed to be queued). Submitting to an empty, undriven
//! queue is one exchange of that word, a poll, and a second exchange.

use crate::error::TaskError;
use crate::host::{lock, progress};
use crate::task::{Effort, Task, TaskState, guarded};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The bit of [`Queue::state`] that says that a thread drives.
const DRIVEN: u64 = 1;
/// One task, in the upper bits of [`Queue::state`].
const ONE: u64 = 2;

/// What [`Queue::step`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing is queued.
    Empty,
    /// Another thread drives.
    Busy,
    /// The task at the head is not done yet.
    Pending,
    /// The task at the head is done and gone.
    Advanced,
}

/// What [`Queue::run`] did.
pub(super) enum Ran {
    /// The work is done, with this result.
    Done(Result<(), TaskError>),
    /// The work is queued.
    Queued,
}

/// Tasks in order.
#[derive(Default)]
pub(super) struct Queue {
    /// [`DRIVEN`], and the number of queued tasks times [`ONE`].
    state: AtomicU64,
    /// Whether the worker knows of this queue.
    listed: AtomicBool,
    /// The queued tasks. The head stays until it is done. Never locked while a task runs.
    tasks: Mutex<VecDeque<Arc<dyn Task>>>,
    /// The first error since it was last taken.
    error: Mutex<Option<TaskError>>,
}

impl Queue {
    /// Whether nothing is queued or running.
    pub(super) fn is_idle(&self) -> bool {
        // Pairs with the release when a driver leaves: who sees an idle queue sees what its tasks wrote.
        self.state.load(Ordering::Acquire) == 0
    }

    /// Takes the first error since the last call.
    pub(super) fn take_error(&self) -> Option<TaskError> {
        lock(&self.error).take()
    }

    /// Polls `work` here if the queue is empty and nobody drives it. What that does not finish is queued as the
    /// task that `task` makes.
    pub(super) fn run(
        self: &Arc<Self>,
        work: impl FnOnce() -> TaskState,
        task: impl FnOnce() -> Arc<dyn Task>,
    ) -> Ran {
        if self.state.compare_exchange(0, DRIVEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.push(task());
            return Ran::Queued;
        }
        if let TaskState::Done(result) = guarded(work) {
            if self.state.compare_exchange(DRIVEN, 0, Ordering::Release, Ordering::Relaxed).is_err()
            {
                // Others queued behind it meanwhile; they enlisted the queue, and the worker passed it by as busy.
                self.state.fetch_sub(DRIVEN, Ordering::AcqRel);
            }
            return Ran::Done(result);
        }
        // It was first, and others may have queued meanwhile. The driver's right is kept until it is in place.
        let mut tasks = lock(&self.tasks);
        tasks.push_front(task());
        self.state.fetch_add(ONE - DRIVEN, Ordering::SeqCst);
        drop(tasks);
        self.enlist();
        Ran::Queued
    }

    /// Queues `task` behind all others.
    pub(super) fn push(self: &Arc<Self>, task: Arc<dyn Task>) {
        let mut tasks = lock(&self.tasks);
        tasks.push_back(task);
        self.state.fetch_add(ONE, Ordering::SeqCst);
        drop(tasks);
        self.enlist();
    }

    /// Tells the worker of this queue, unless it knows.
    fn enlist(self: &Arc<Self>) {
        if !self.listed.swap(true, Ordering::SeqCst) {
            progress::enlist(Arc::clone(self));
        }
    }

    /// The worker forgets this queue. Returns false if it must not, because there is work.
    ///
    /// Sequentially consistent, as are the writes to `state` before [`enlist`](Self::enlist): either the worker
    /// sees the new task here, or the submitter sees that the queue is no longer listed.
    pub(super) fn delist(&self) -> bool {
        self.listed.store(false, Ordering::SeqCst);
        self.state.load(Ordering::SeqCst) < ONE || self.listed.swap(true, Ordering::SeqCst)
    }

    /// Polls the task at the head once, with `effort`, if there is one and nobody else drives.
    pub(super) fn step(&self, effort: Effort) -> Step {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state < ONE {
                return Step::Empty;
            }
            if state & DRIVEN != 0 {
                return Step::Busy;
            }
            match self.state.compare_exchange_weak(
                state,
                state | DRIVEN,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(current) => state = current,
            }
        }
        let head = lock(&self.tasks).front().cloned();
        let Some(head) = head else {
            debug_assert!(false, "a count without a task");
            self.state.fetch_sub(DRIVEN, Ordering::Release);
            return Step::Empty;
        };
        let TaskState::Done(result) = guarded(|| head.poll(effort)) else {
            self.state.fetch_sub(DRIVEN, Ordering::Release);
            return Step::Pending;
        };
        if let Err(error) = result {
            lock(&self.error).get_or_insert(error);
        }
        let done = lock(&self.tasks).pop_front();
        self.state.fetch_sub(ONE + DRIVEN, Ordering::AcqRel);
        // Only now: dropping a task runs its owner's code, which may come back to this queue.
        drop((done, head));
        Step::Advanced
    }
}
