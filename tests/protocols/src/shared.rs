//! Of the executor: what ranks write to each other's shared pages, and blocks that any thread may step.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;

/// `host::Run::signal` of a channel with one signaller, and `host::Run::wait`.
#[test]
fn a_wait_sees_what_its_signal_released() {
    loom::model(|| {
        let inbound = Arc::new(AtomicU64::new(0));
        let data = Arc::new([UnsafeCell::new(0u64), UnsafeCell::new(0u64)]);
        let signaller = {
            let (inbound, data) = (Arc::clone(&inbound), Arc::clone(&data));
            thread::spawn(move || {
                for (number, cell) in (1..).zip(data.iter()) {
                    // SAFETY: loom fails the test if anyone else touches the cell meanwhile.
                    cell.with_mut(|cell| unsafe { *cell = number });
                    inbound.store(number, Ordering::Release);
                }
            })
        };
        for (number, cell) in (1..).zip(data.iter()) {
            while inbound.load(Ordering::Acquire) < number {
                thread::yield_now();
            }
            // SAFETY: as above.
            cell.with(|cell| assert_eq!(unsafe { *cell }, number));
        }
        signaller.join().unwrap();
    });
}

/// `shared::control::ControlPage::{publish, record}` on one slot.
#[derive(Default)]
struct Slot {
    seq: AtomicU64,
    fields: [AtomicU64; 2],
}

impl Slot {
    fn publish(&self, seq: u64) {
        self.seq.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for field in &self.fields {
            field.store(seq * 10, Ordering::Relaxed);
        }
        self.seq.store(seq, Ordering::Release);
    }

    fn record(&self, seq: u64) -> Option<[u64; 2]> {
        if self.seq.load(Ordering::Acquire) != seq {
            return None;
        }
        let fields = [0, 1].map(|field: usize| self.fields[field].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        (self.seq.load(Ordering::Relaxed) == seq).then_some(fields)
    }
}

#[test]
fn a_descriptor_is_read_whole_or_not_at_all() {
    loom::model(|| {
        let slot = Arc::new(Slot::default());
        let owner = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || {
                slot.publish(1);
                slot.publish(65);
            })
        };
        for seq in [1, 65] {
            if let Some(fields) = slot.record(seq) {
                assert_eq!(fields, [seq * 10; 2]);
            }
        }
        owner.join().unwrap();
        assert_eq!(slot.record(65), Some([650; 2]));
        assert_eq!(slot.record(1), None);
    });
}

/// `launch::Launch::{reset, drive_rank, finish}` for a rank of one block.
struct Rank {
    launch: AtomicU64,
    remaining: AtomicU64,
    lock: AtomicU32,
    done: AtomicU32,
    pc: AtomicU32,
    /// What the block's moves write: plain memory.
    output: UnsafeCell<u64>,
}

impl Rank {
    fn lock(&self) -> bool {
        self.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn unlock(&self) {
        self.lock.store(0, Ordering::Release);
    }

    fn reset(&self, seq: u64) {
        self.launch.store(0, Ordering::SeqCst);
        while !self.lock() {
            thread::yield_now();
        }
        self.pc.store(0, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.unlock();
        self.remaining.store(1, Ordering::Relaxed);
        self.launch.store(seq, Ordering::Release);
    }

    /// One look at the block, by its owner or by a rank that assists in launch `seq`.
    fn drive(&self, seq: u64) {
        if self.done.load(Ordering::Relaxed) != 0 || !self.lock() {
            return;
        }
        let current = self.launch.load(Ordering::Acquire) == seq;
        if current && self.done.load(Ordering::Relaxed) == 0 {
            assert_eq!(self.pc.load(Ordering::Relaxed), 0, "a block is stepped from its start");
            // SAFETY: loom fails the test if anyone else touches the cell meanwhile.
            self.output.with_mut(|output| unsafe { *output += seq });
            self.pc.store(1, Ordering::Relaxed);
            self.done.store(1, Ordering::Relaxed);
            self.remaining.fetch_sub(1, Ordering::AcqRel);
        }
        self.unlock();
    }
}

#[test]
fn every_launch_steps_a_block_once_whoever_steps_it() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(|| {
        let rank = Arc::new(Rank {
            launch: AtomicU64::new(0),
            remaining: AtomicU64::new(0),
            lock: AtomicU32::new(0),
            done: AtomicU32::new(1),
            pc: AtomicU32::new(0),
            output: UnsafeCell::new(0),
        });
        let assistant = {
            let rank = Arc::clone(&rank);
            thread::spawn(move || {
                for seq in [1, 2] {
                    if rank.launch.load(Ordering::Acquire) == seq
                        && rank.remaining.load(Ordering::Relaxed) != 0
                    {
                        rank.drive(seq);
                    }
                }
            })
        };
        for (seq, sum) in [(1, 1), (2, 3)] {
            rank.reset(seq);
            loop {
                rank.drive(seq);
                if rank.remaining.load(Ordering::Acquire) == 0 {
                    break;
                }
                thread::yield_now();
            }
            // The caller reads its buffer.
            // SAFETY: as above.
            rank.output.with(|output| assert_eq!(unsafe { *output }, sum));
        }
        assistant.join().unwrap();
    });
}

/// `shared::verdicts::VerdictTable::look` on one slot, and `Claim`.
#[derive(Default)]
struct Verdict {
    content: AtomicU64,
    shape: AtomicU64,
    state: AtomicU64,
    text: AtomicU64,
}

const CLAIMED: u64 = 1;
const ABANDONED: u64 = 2;
const REFUTED: u64 = 4;

impl Verdict {
    /// Claims, or reads the verdict if there is one; whether it claimed.
    fn look(&self, gives_up: bool) -> bool {
        let taken = self.content.compare_exchange(0, 7, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() {
            self.shape.store(8, Ordering::Relaxed);
            self.state.store(CLAIMED, Ordering::Release);
        } else {
            match self.state.load(Ordering::Acquire) {
                0 => return false,
                state => {
                    assert_eq!(self.shape.load(Ordering::Relaxed), 8);
                    if state == REFUTED {
                        assert_eq!(self.text.load(Ordering::Relaxed), 9);
                    }
                }
            }
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            if self.state.compare_exchange(ABANDONED, CLAIMED, acquire, relaxed).is_err() {
                return false;
            }
        }
        if gives_up {
            self.state.store(ABANDONED, Ordering::Release);
        } else {
            self.text.store(9, Ordering::Relaxed);
            self.state.store(REFUTED, Ordering::Release);
        }
        true
    }
}

#[test]
fn one_verifies_and_the_others_read_all_it_wrote() {
    for first_gives_up in [false, true] {
        loom::model(move || {
            let slot = Arc::new(Verdict::default());
            let others = [first_gives_up, false].map(|gives_up| {
                let slot = Arc::clone(&slot);
                thread::spawn(move || slot.look(gives_up))
            });
            let claims = u32::from(slot.look(false))
                + others.map(|other| u32::from(other.join().unwrap())).iter().sum::<u32>();
            // A claim that is given up passes to whoever looks next, if anybody does.
            assert!((1..=1 + u32::from(first_gives_up)).contains(&claims), "{claims}");
            let state = slot.state.load(Ordering::Acquire);
            assert!(state == REFUTED || first_gives_up && state == ABANDONED, "{state}");
        });
    }
}
