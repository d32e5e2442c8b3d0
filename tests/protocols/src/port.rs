//! Of port channels: the FIFO of requests, and who drives a link when.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use loom::thread;

/// `proxy::Attended` over a link whose descriptor tells once after each arming.
#[derive(Default)]
struct Attended {
    state: AtomicU32,
    moved: AtomicBool,
    seen_posted: AtomicU64,
    visit: AtomicBool,
    /// The descriptor is in the set: the proxy's own.
    listening: AtomicBool,
    /// The link.
    armed: AtomicBool,
    readable: AtomicBool,
    arrived: AtomicU64,
    handled: AtomicU64,
    posted: AtomicU64,
    sent: AtomicU64,
}

const DEAF: u32 = 1 << 31;

impl Attended {
    fn arrive(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        if self.armed.swap(false, Ordering::SeqCst) {
            self.readable.store(true, Ordering::SeqCst);
        }
    }

    fn post(&self) {
        self.posted.fetch_add(1, Ordering::Release);
    }

    fn link_progress(&self) -> bool {
        let (arrived, posted) =
            (self.arrived.load(Ordering::SeqCst), self.posted.load(Ordering::Acquire));
        let took = self.handled.fetch_max(arrived, Ordering::SeqCst) < arrived;
        let sent = self.sent.fetch_max(posted, Ordering::SeqCst) < posted;
        took || sent
    }

    fn arm(&self) -> bool {
        self.readable.store(false, Ordering::SeqCst);
        self.armed.swap(true, Ordering::SeqCst);
        self.handled.load(Ordering::SeqCst) == self.arrived.load(Ordering::SeqCst)
    }

    fn drive(&self) {
        self.state.fetch_add(1, Ordering::AcqRel);
    }

    fn progress(&self) {
        if self.link_progress() && !self.moved.load(Ordering::Relaxed) {
            self.moved.store(true, Ordering::Release);
        }
    }

    fn leave(&self) {
        let before = self.state.fetch_sub(1, Ordering::AcqRel);
        let last = before & !DEAF == 1;
        let spent = || {
            self.moved.load(Ordering::Acquire)
                || self.seen_posted.load(Ordering::Acquire) != self.posted.load(Ordering::Acquire)
        };
        if last && (before & DEAF != 0 || spent()) {
            self.visit.swap(true, Ordering::AcqRel);
        }
    }

    fn left_to_drivers(&self) -> bool {
        if self.state.load(Ordering::Acquire) & !DEAF == 0 {
            return false;
        }
        if self.state.fetch_or(DEAF, Ordering::AcqRel) & !DEAF != 0 {
            return true;
        }
        self.state.fetch_and(!DEAF, Ordering::AcqRel);
        false
    }

    /// What wakes the proxy; whether there was anything.
    fn wake(&self) -> bool {
        if self.visit.load(Ordering::Acquire) {
            self.visit.swap(false, Ordering::AcqRel);
        } else if !self.listening.load(Ordering::Relaxed) || !self.readable.load(Ordering::SeqCst) {
            return false;
        }
        self.turn();
        true
    }

    fn turn(&self) {
        self.state.fetch_and(!DEAF, Ordering::AcqRel);
        loop {
            if self.left_to_drivers() {
                self.listening.store(false, Ordering::Relaxed);
                return;
            }
            self.moved.swap(false, Ordering::AcqRel);
            self.seen_posted.store(self.posted.load(Ordering::Acquire), Ordering::Release);
            if !self.link_progress() && self.arm() {
                self.listening.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    fn assert_served(&self) {
        let of = |count: &AtomicU64| count.load(Ordering::SeqCst);
        assert_eq!(of(&self.handled), of(&self.arrived));
        assert_eq!(of(&self.sent), of(&self.posted));
    }
}

/// A thread that drives the link once.
fn driver(
    attended: &Arc<Attended>,
    work: impl FnOnce(&Attended) + Send + 'static,
) -> thread::JoinHandle<()> {
    let attended = Arc::clone(attended);
    thread::spawn(move || {
        attended.drive();
        work(&attended);
        attended.leave();
    })
}

#[test]
fn whatever_drivers_leave_the_proxy_serves() {
    for posts in [false, true] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let attended = Arc::new(Attended::default());
            // The first visit.
            attended.turn();
            let peer = {
                let attended = Arc::clone(&attended);
                thread::spawn(move || attended.arrive())
            };
            let driver = driver(&attended, move |attended| {
                if posts {
                    attended.post();
                } else {
                    attended.progress();
                }
            });
            attended.wake();
            attended.wake();
            peer.join().unwrap();
            driver.join().unwrap();
            while attended.wake() {}
            attended.assert_served();
        });
    }
}

#[test]
fn the_last_of_two_drivers_asks_for_both() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let attended = Arc::new(Attended::default());
        attended.turn();
        let drivers = [false, true].map(|posts| {
            driver(&attended, move |attended| {
                if posts {
                    attended.post();
                } else {
                    attended.arrive();
                    attended.progress();
                }
            })
        });
        attended.wake();
        for driver in drivers {
            driver.join().unwrap();
        }
        while attended.wake() {}
        attended.assert_served();
        // Armed for what is next.
        attended.arrive();
        assert!(attended.wake());
        attended.assert_served();
    });
}

/// `fifo::{Producer::push, Consumer::take, Consumer::release}`.
struct Fifo {
    head: AtomicU64,
    seen: AtomicU64,
    tail: AtomicU64,
    /// Of each place the sequence word, and a request's words. These are plain memory: loom fails the test if a producer
    /// writes what the consumer reads.
    places: Vec<(AtomicU64, UnsafeCell<u64>)>,
}

impl Fifo {
    fn new(places: u64) -> Arc<Self> {
        Arc::new(Fifo {
            head: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            places: (0..places).map(|_| (AtomicU64::new(0), UnsafeCell::new(0))).collect(),
        })
    }

    fn push(&self, value: u64) {
        let capacity = self.places.len() as u64;
        let ticket = self.head.fetch_add(1, Ordering::Relaxed);
        if ticket - self.seen.load(Ordering::Acquire) >= capacity {
            loop {
                let tail = self.tail.load(Ordering::Acquire);
                if ticket.saturating_sub(tail) < capacity {
                    self.seen.fetch_max(tail, Ordering::AcqRel);
                    break;
                }
                thread::yield_now();
            }
        }
        let (sequence, words) = &self.places[(ticket % capacity) as usize];
        // SAFETY: loom fails the test if anyone else touches the cell meanwhile.
        words.with_mut(|words| unsafe { *words = value });
        sequence.store(ticket + 1, Ordering::Release);
    }

    fn take(&self, ticket: u64) -> u64 {
        let (sequence, words) = &self.places[(ticket % self.places.len() as u64) as usize];
        while sequence.load(Ordering::Acquire) != ticket + 1 {
            thread::yield_now();
        }
        // SAFETY: as above.
        let value = words.with(|words| unsafe { *words });
        self.tail.store(ticket + 1, Ordering::Release);
        value
    }
}

#[test]
fn a_place_is_written_again_only_when_it_was_read() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let fifo = Fifo::new(1);
        let producer = {
            let fifo = Arc::clone(&fifo);
            thread::spawn(move || (1..=3).for_each(|value| fifo.push(value)))
        };
        assert_eq!([0, 1, 2].map(|ticket| fifo.take(ticket)), [1, 2, 3]);
        producer.join().unwrap();
    });
}

#[test]
fn requests_of_several_producers_are_whole() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let fifo = Fifo::new(2);
        let producers = [1, 10].map(|value| {
            let fifo = Arc::clone(&fifo);
            thread::spawn(move || fifo.push(value))
        });
        let taken = [0, 1].map(|ticket| fifo.take(ticket));
        for producer in producers {
            producer.join().unwrap();
        }
        assert!([[1, 10], [10, 1]].contains(&taken), "{taken:?}");
    });
}
