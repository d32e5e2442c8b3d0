//! What the cases share: tasks that wait for a gate, waits with an end, shared memory as atomics.

use antiphon_hal::{Effort, Memory, Task, TaskState};
use std::fmt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long something may take before a case calls it missing. Nothing sleeps that long when all is well.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `condition` holds; panics with `what` where it never does.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain: {what}");
        thread::yield_now();
    }
}

/// The order in which things happened.
#[derive(Debug, Default)]
pub struct Log(Mutex<Vec<u64>>);

impl Log {
    /// Notes `entry`.
    pub fn push(&self, entry: u64) {
        self.0.lock().unwrap().push(entry);
    }

    /// What was noted so far.
    pub fn entries(&self) -> Vec<u64> {
        self.0.lock().unwrap().clone()
    }
}

/// A task that waits for its gate, then notes its number, and fails if told to.
#[derive(Debug, Default)]
pub struct Gated {
    /// What it notes.
    pub number: u64,
    /// Whether it may finish.
    pub open: AtomicBool,
    /// How often it was polled.
    pub polls: AtomicUsize,
    /// Where it notes its number.
    pub log: Arc<Log>,
    /// Whether it fails, with its number as the error.
    pub fails: bool,
    running: AtomicBool,
    done: AtomicBool,
}

impl Gated {
    /// A task whose gate is shut.
    pub fn shut(number: u64, log: &Arc<Log>) -> Arc<Self> {
        Arc::new(Gated { number, log: Arc::clone(log), ..Gated::default() })
    }

    /// A task whose gate is open.
    pub fn open(number: u64, log: &Arc<Log>) -> Arc<Self> {
        let task = Gated::shut(number, log);
        task.pass();
        task
    }

    /// A task that fails, its gate open or shut.
    pub fn failing(number: u64, log: &Arc<Log>, open: bool) -> Arc<Self> {
        let log = Arc::clone(log);
        Arc::new(Gated { number, log, fails: true, open: open.into(), ..Gated::default() })
    }

    /// Opens the gate.
    pub fn pass(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// Whether it finished.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}

/// As what [`antiphon_hal::Stream::submit`] takes.
pub fn task<T: Task + 'static>(task: &Arc<T>) -> Arc<dyn Task> {
    Arc::clone(task) as Arc<dyn Task>
}

impl Task for Gated {
    fn poll(&self, effort: Effort) -> TaskState {
        self.polls.fetch_add(1, Ordering::Relaxed);
        assert!(!self.running.swap(true, Ordering::Acquire), "polled by two threads at once");
        assert!(!self.is_done(), "polled after it was done");
        if effort == Effort::Wait && !self.open.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let open = self.open.load(Ordering::Acquire);
        if open {
            self.log.push(self.number);
            self.done.store(true, Ordering::Release);
        }
        self.running.store(false, Ordering::Release);
        match (open, self.fails) {
            (false, _) => TaskState::Pending,
            (true, false) => TaskState::Done(Ok(())),
            (true, true) => TaskState::Done(Err(Arc::new(Failure(self.number)))),
        }
    }
}

/// The error of a task that fails.
#[derive(Debug)]
pub struct Failure(
    /// The task's number.
    pub u64,
);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {} failed as told", self.0)
    }
}

impl std::error::Error for Failure {}

/// The first `count` 64-bit words of `memory`, which must be that long.
pub fn words(memory: &Arc<dyn Memory>, count: usize) -> &[AtomicU64] {
    assert!(count as u64 * 8 <= memory.len());
    // SAFETY: the range is mapped for as long as the borrowed `Arc` lives, page-aligned, and within this suite only
    // ever reached through atomics while it is shared.
    unsafe { std::slice::from_raw_parts(memory.address().cast(), count) }
}

/// Small, seeded pseudo-random numbers (xorshift64*).
#[derive(Clone, Debug)]
pub struct Random(
    /// The state; not 0.
    pub u64,
);

impl Random {
    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

/// A command that runs the test `test` of this very program, alone, with `variable` set to `value`.
pub fn myself(test: &str, variable: &str, value: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(variable, value);
    command
}

/// Checks that a run of [`myself`] ran the test and passed.
pub fn assert_passed(output: &Output) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "the other process: {}\n{stdout}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}
