//! Launches that go on together: one task drives several queues of them.

use crate::error::ExecutorError;
use crate::sync::lock;
use antiphon_hal::{Effort, HalError, Task, TaskError, TaskState, guarded};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// How long driving launches pauses for a queue that is to come.
const GLANCE: Duration = Duration::from_micros(50);
/// Rounds without progress after which one launch at a time may have the core for longer.
const PATIENCE: u32 = 1000;

/// Queues of launches, each of which runs in order, independently of the others. What one waits for may be another's to do.
#[derive(Default)]
pub(super) struct TaskSet {
    state: Mutex<State>,
    /// A queue that was expected has come.
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    queues: Vec<VecDeque<Arc<dyn Task>>>,
    /// So many queues are still to come.
    expected: usize,
    /// The first failure.
    error: Option<TaskError>,
    /// Rounds without progress.
    idle: u32,
}

impl TaskSet {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Adds a queue.
    pub fn add(&self, queue: VecDeque<Arc<dyn Task>>) {
        self.state().queues.push(queue);
    }

    /// Announces a queue that will be added, or of which will be said that it is not.
    pub fn expect(self: &Arc<Self>) -> Expected {
        self.state().expected += 1;
        Expected(Some(Arc::clone(self)))
    }

    fn arrive(&self, queue: VecDeque<Arc<dyn Task>>, error: Option<TaskError>) {
        let mut state = self.state();
        state.expected -= 1;
        state.queues.push(queue);
        state.error = state.error.take().or(error);
        self.arrived.notify_all();
    }
}

/// A queue that a set expects. One that is dropped, as by a panic, fails the set, which would wait for it otherwise.
pub(super) struct Expected(Option<Arc<TaskSet>>);

impl Expected {
    /// Whether it is this set that expects it.
    pub fn is_for(&self, set: &Arc<TaskSet>) -> bool {
        self.0.as_ref().is_some_and(|own| Arc::ptr_eq(own, set))
    }

    /// The queue is added, as far as there is one, and what kept it from being longer.
    pub fn arrive(mut self, queue: VecDeque<Arc<dyn Task>>, error: Option<TaskError>) {
        if let Some(set) = self.0.take() {
            set.arrive(queue, error);
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        if let Some(set) = self.0.take() {
            let what = "launch calls of a group".to_owned();
            let source = std::io::Error::other("what was to launch them panicked");
            let error = ExecutorError::from(HalError::System { what, source });
            set.arrive(VecDeque::new(), Some(Arc::new(error)));
        }
    }
}

impl Task for TaskSet {
    fn poll(&self, effort: Effort) -> TaskState {
        let mut state = self.state();
        let State { queues, expected, error, idle } = &mut *state;
        // A single launch knows best how to wait.
        let alone = queues.len() == 1 && *expected == 0;
        let turn = (*idle > PATIENCE && !queues.is_empty()).then(|| *idle as usize % queues.len());
        let mut moved = false;
        for (number, queue) in queues.iter_mut().enumerate() {
            let effort = if alone || turn == Some(number) { effort } else { Effort::Try };
            while let Some(first) = queue.front() {
                let TaskState::Done(outcome) = guarded(|| first.poll(effort)) else { break };
                *error = error.take().or(outcome.err());
                queue.pop_front();
                moved = true;
            }
        }
        queues.retain(|queue| !queue.is_empty());
        *idle = if moved { 0 } else { idle.wrapping_add(1) };
        if queues.is_empty() && *expected == 0 {
            return TaskState::Done(error.take().map_or(Ok(()), Err));
        }
        if effort == Effort::Wait && !moved && !alone {
            if *expected > 0 {
                drop(self.arrived.wait_timeout(state, GLANCE));
            } else {
                std::thread::yield_now();
            }
        }
        TaskState::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Is done once the count has come so far, and raises it.
    struct After(u32, Arc<AtomicU32>, bool);

    impl Task for After {
        fn poll(&self, _: Effort) -> TaskState {
            if self.1.load(Ordering::Relaxed) < self.0 {
                return TaskState::Pending;
            }
            self.1.fetch_add(1, Ordering::Relaxed);
            let failed = format!("number {} failed", self.0);
            TaskState::Done(if self.2 {
                Err(Arc::new(std::io::Error::other(failed)))
            } else {
                Ok(())
            })
        }
    }

    #[test]
    fn queues_that_wait_for_each_other_all_end_and_the_first_failure_is_told() {
        let count = Arc::new(AtomicU32::new(0));
        let task =
            |at: u32, fails| -> Arc<dyn Task> { Arc::new(After(at, Arc::clone(&count), fails)) };
        let set = Arc::new(TaskSet::default());
        let expected = set.expect();
        set.add(VecDeque::from([task(1, false), task(2, true), task(5, true)]));
        set.add(VecDeque::from([task(0, false), task(3, false)]));
        for _ in 0..3 {
            assert!(matches!(set.poll(Effort::Wait), TaskState::Pending));
        }
        expected.arrive(VecDeque::from([task(4, false)]), None);
        assert_eq!(outcome(&set).unwrap_err().to_string(), "number 2 failed");
        assert_eq!(count.load(Ordering::Relaxed), 6);
    }

    fn outcome(set: &TaskSet) -> Result<(), TaskError> {
        loop {
            if let TaskState::Done(outcome) = set.poll(Effort::Wait) {
                break outcome;
            }
        }
    }

    struct Panics;

    impl Task for Panics {
        fn poll(&self, _: Effort) -> TaskState {
            panic!("oh no");
        }
    }

    /// Their peers are in them, and go on using their buffers.
    #[test]
    fn a_task_that_panics_fails_and_the_others_are_driven_to_their_ends() {
        let count = Arc::new(AtomicU32::new(0));
        let task = |at: u32| -> Arc<dyn Task> { Arc::new(After(at, Arc::clone(&count), false)) };
        let set = TaskSet::default();
        set.add(VecDeque::from([Arc::new(Panics) as Arc<dyn Task>, task(1)]));
        set.add(VecDeque::from([task(0), task(2)]));
        let error = outcome(&set).unwrap_err().to_string();
        assert!(error.contains("oh no"), "{error}");
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_queue_that_is_lost_before_it_arrives_fails_the_set_and_is_not_waited_for() {
        let set = Arc::new(TaskSet::default());
        let (first, second) = (set.expect(), set.expect());
        let count = Arc::new(AtomicU32::new(0));
        first.arrive(VecDeque::from([Arc::new(After(0, Arc::clone(&count), false)) as _]), None);
        drop(second);
        let error = outcome(&set).unwrap_err().to_string();
        assert!(error.contains("launch calls of a group"), "{error}");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
