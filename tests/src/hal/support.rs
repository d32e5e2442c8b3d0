//! What the cases share: tasks that wait for a gate, waits with an end, a way to memory that the CPU may not reach.

use antiphon_hal::{Device, Effort, HalError, Memory, Stream, Task, TaskState};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

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

/// The first `count` 64-bit words of `memory`, which must be that long and of a kind that the CPU reaches: the host's, or
/// pinned. Cases on devices go by [`Access`].
pub fn words(memory: &Arc<dyn Memory>, count: usize) -> &[AtomicU64] {
    assert!(count as u64 * 8 <= memory.len());
    // SAFETY: the range is mapped for as long as the borrowed `Arc` lives, and the CPU reaches it (`Access` sees to
    // that); it is aligned for words, and within this suite only ever reached through atomics while it is shared.
    unsafe { std::slice::from_raw_parts(memory.address().cast(), count) }
}

/// How the suite reads and writes a device's memory: at its address where [`antiphon_hal::Caps::host_access`] says that
/// the CPU reaches it, by copies through pinned memory everywhere else.
#[derive(Debug)]
pub struct Access {
    way: Option<(Arc<dyn Stream>, Arc<dyn Memory>)>,
}

/// Words of pinned memory that copies go through.
const STAGED_WORDS: usize = 1 << 15;

impl Access {
    /// The way to memory of `device`.
    pub fn new(device: &Arc<dyn Device>) -> Self {
        let way = (!device.caps().host_access)
            .then(|| (device.stream().unwrap(), device.pinned(STAGED_WORDS as u64 * 8).unwrap()));
        Access { way }
    }

    /// The word `at` of `memory`.
    pub fn load(&self, memory: &Arc<dyn Memory>, at: usize) -> u64 {
        let Some((stream, pinned)) = &self.way else {
            return words(memory, at + 1)[at].load(Ordering::Acquire);
        };
        copy(stream, pinned.address(), place(memory, at, 1), 1);
        words(pinned, 1)[0].load(Ordering::Acquire)
    }

    /// Sets the word `at` of `memory`.
    pub fn store(&self, memory: &Arc<dyn Memory>, at: usize, value: u64) {
        let Some((stream, pinned)) = &self.way else {
            return words(memory, at + 1)[at].store(value, Ordering::Release);
        };
        words(pinned, 1)[0].store(value, Ordering::Release);
        copy(stream, place(memory, at, 1), pinned.address(), 1);
    }

    /// The first `count` words of `memory`.
    pub fn read(&self, memory: &Arc<dyn Memory>, count: usize) -> Vec<u64> {
        let all = |words: &[AtomicU64]| -> Vec<u64> {
            words.iter().map(|word| word.load(Ordering::Acquire)).collect()
        };
        let Some((stream, pinned)) = &self.way else { return all(words(memory, count)) };
        let mut values = Vec::with_capacity(count);
        for at in (0..count).step_by(STAGED_WORDS) {
            let part = STAGED_WORDS.min(count - at);
            copy(stream, pinned.address(), place(memory, at, part), part);
            values.extend(all(words(pinned, part)));
        }
        values
    }

    /// Sets the first words of `memory`.
    pub fn write(&self, memory: &Arc<dyn Memory>, values: &[u64]) {
        let set = |words: &[AtomicU64], values: &[u64]| {
            for (word, value) in words.iter().zip(values) {
                word.store(*value, Ordering::Release);
            }
        };
        let Some((stream, pinned)) = &self.way else {
            return set(words(memory, values.len()), values);
        };
        for (part, values) in values.chunks(STAGED_WORDS).enumerate() {
            set(words(pinned, values.len()), values);
            let to = place(memory, part * STAGED_WORDS, values.len());
            copy(stream, to, pinned.address(), values.len());
        }
    }

    /// The byte at `at` of `memory`.
    pub fn byte(&self, memory: &Arc<dyn Memory>, at: u64) -> u8 {
        assert!(at < memory.len());
        let from = memory.address().wrapping_add(at as usize);
        let Some((stream, pinned)) = &self.way else {
            // SAFETY: within the memory, which the CPU reaches where there is no other way, as for `words`.
            return unsafe { AtomicU8::from_ptr(from) }.load(Ordering::Acquire);
        };
        // SAFETY: as in `copy`, for one byte.
        let _ = unsafe { stream.copy(pinned.address(), from, 1) }.unwrap();
        stream.synchronize().unwrap();
        words(pinned, 1)[0].load(Ordering::Acquire).to_ne_bytes()[0]
    }

    /// The words of pinned memory, which the CPU always reaches.
    pub fn pinned(memory: &Arc<dyn Memory>, count: usize) -> &[AtomicU64] {
        words(memory, count)
    }
}

/// The address of `count` words of `memory`, the first of which is word `at`.
fn place(memory: &Arc<dyn Memory>, at: usize, count: usize) -> *mut u8 {
    assert!((at + count) as u64 * 8 <= memory.len());
    memory.address().wrapping_add(at * 8)
}

/// Copies `count` words, and waits for that.
fn copy(stream: &Arc<dyn Stream>, to: *mut u8, from: *const u8, count: usize) {
    // SAFETY: one range is the suite's own pinned memory, the other was checked by `place`; they are different memory,
    // mapped, and this call waits until the copy is done.
    let _ = unsafe { stream.copy(to, from, count as u64 * 8) }.unwrap();
    stream.synchronize().unwrap();
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

/// What lies at a word of memory is found by the descriptor that network cards get; ranges outside it are refused. The memory is as
/// long as `bytes`, which is more than a page beyond the word.
///
/// # Panics
/// If not.
pub fn assert_given_to_cards(access: &Access, memory: &Arc<dyn Memory>, at: usize, bytes: u64) {
    let value = 0x0123_4567_89ab_cdef;
    access.store(memory, at, value);
    let buffer = memory.export_dma_buf(8 * at as u64, 4096).expect("a buffer");
    let mut word = [0; 8];
    File::from(buffer.descriptor).read_exact_at(&mut word, buffer.offset).expect("its bytes");
    assert_eq!(u64::from_le_bytes(word), value, "word {at}");
    for (offset, length) in [(0, 0), (0, bytes + 1), (8, bytes), (u64::MAX, 1)] {
        let refused = memory.export_dma_buf(offset, length);
        assert!(matches!(refused, Err(HalError::Invalid { .. })), "{offset} {length}");
    }
}
