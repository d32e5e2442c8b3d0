//! Links that do what a test says, on descriptors of their own.

use crate::WireError;
use crate::wire::{Link, Posted, Write};
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How the link tells that there is something to do.
#[derive(Debug)]
pub enum Bell {
    /// An event, once after each arming, as completion queues do.
    Event(OwnedFd),
    /// Bytes in a pipe, as sockets do; progress takes them.
    Pipe { read: OwnedFd, write: OwnedFd },
    /// A descriptor of somebody else's, which is always readable.
    Noisy(Arc<OwnedFd>),
    /// Not at all.
    None,
}

impl Bell {
    pub fn event() -> Self {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Bell::Event(eventfd(0, flags).unwrap())
    }

    pub fn pipe() -> Self {
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (read, write) = rustix::pipe::pipe_with(flags).unwrap();
        Bell::Pipe { read, write }
    }

    pub fn noisy() -> Self {
        Bell::Noisy(Arc::new(eventfd(1, EventfdFlags::CLOEXEC).unwrap()))
    }
}

/// A link to which things arrive ([`arrive`](Fake::arrive)) and on which things are posted ([`Link::signal`]).
pub struct Fake {
    bell: Bell,
    arrived: AtomicU64,
    handled: AtomicU64,
    posted: AtomicU64,
    sent: AtomicU64,
    armed: AtomicBool,
    /// How many of what is posted a call of progress sends.
    pub sends: AtomicU64,
    /// How many of what is posted may wait to be sent.
    pub room: AtomicU64,
    /// Progress always has something to do.
    pub busy: AtomicBool,
    pub fails: AtomicBool,
    pub panics: AtomicBool,
    pub armings: AtomicU64,
    /// Calls of progress by the proxy's thread.
    pub proxied: AtomicU64,
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fake")
    }
}

impl Fake {
    pub fn new(bell: Bell) -> Arc<Self> {
        Arc::new(Fake {
            bell,
            arrived: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            posted: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            armed: AtomicBool::new(false),
            sends: AtomicU64::new(u64::MAX),
            room: AtomicU64::new(u64::MAX),
            busy: AtomicBool::new(false),
            fails: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            armings: AtomicU64::new(0),
            proxied: AtomicU64::new(0),
        })
    }

    /// Something arrives from the peer.
    pub fn arrive(&self) {
        self.arrived.fetch_add(1, SeqCst);
        self.ring();
    }

    /// Makes the descriptor readable, if that is due.
    pub fn ring(&self) {
        match &self.bell {
            Bell::Event(event) if self.armed.swap(false, SeqCst) => {
                rustix::io::write(event, &1u64.to_ne_bytes()).unwrap();
            }
            Bell::Pipe { write, .. } => {
                // A full pipe is readable as well.
                let _ = rustix::io::write(write, &[0]);
            }
            _ => {}
        }
    }

    /// All that arrived was taken, and all that was posted was sent.
    pub fn idle(&self) -> bool {
        !self.due()
    }

    fn due(&self) -> bool {
        self.handled.load(SeqCst) < self.arrived.load(SeqCst)
            || self.sent.load(SeqCst) < self.posted.load(SeqCst)
    }

    fn lost(&self) -> WireError {
        WireError::Lost { wire: "fake".to_owned(), peer: 1, reason: "the test said so".to_owned() }
    }
}

/// Raises `done` towards `all` by at most `step`; whether it did.
fn advance(done: &AtomicU64, all: &AtomicU64, step: u64) -> bool {
    let all = all.load(SeqCst);
    let next = |now: u64| (now < all).then(|| now.saturating_add(step).min(all));
    done.fetch_update(SeqCst, SeqCst, next).is_ok()
}

impl Link for Fake {
    fn peer(&self) -> u32 {
        1
    }

    fn accept(&self, _: u64, _: u64, _: &[u8]) -> Result<(), WireError> {
        Ok(())
    }

    fn retire(&self, _: u64) {}

    fn write(&self, _: &Write<'_>) -> Result<Posted, WireError> {
        self.signal(0, 0, 0)
    }

    fn signal(&self, _: u64, _: u64, _: u64) -> Result<Posted, WireError> {
        let waiting = self.posted.load(SeqCst).saturating_sub(self.sent.load(SeqCst));
        if waiting >= self.room.load(SeqCst) {
            return Ok(Posted::Full);
        }
        self.posted.fetch_add(1, SeqCst);
        Ok(Posted::Queued)
    }

    fn posted(&self) -> u64 {
        self.posted.load(SeqCst)
    }

    fn completed(&self) -> Result<u64, WireError> {
        Ok(self.sent.load(SeqCst))
    }

    fn progress(&self) -> Result<bool, WireError> {
        if std::thread::current().name() == Some("antiphon-proxy") {
            self.proxied.fetch_add(1, SeqCst);
        }
        if self.fails.load(SeqCst) {
            return Err(self.lost());
        }
        assert!(!self.panics.load(SeqCst), "the test said so");
        if let Bell::Pipe { read, .. } = &self.bell {
            let _ = rustix::io::read(read, &mut [0; 4]);
        }
        let took = advance(&self.handled, &self.arrived, 3);
        let sent = advance(&self.sent, &self.posted, self.sends.load(SeqCst));
        Ok(took || sent || self.busy.load(SeqCst))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.bell {
            Bell::Event(event) => Some(event.as_fd()),
            Bell::Pipe { read, .. } => Some(read.as_fd()),
            Bell::Noisy(event) => Some(event.as_fd()),
            Bell::None => None,
        }
    }

    fn arm(&self) -> Result<bool, WireError> {
        self.armings.fetch_add(1, SeqCst);
        if let Bell::Event(event) = &self.bell {
            let _ = rustix::io::read(event, &mut [0; 8]);
            self.armed.store(true, SeqCst);
        }
        Ok(!self.due())
    }

    fn stop(&self) {
        self.fails.store(true, SeqCst);
    }

    fn describe(&self) -> String {
        "a fake".to_owned()
    }
}

/// Waits until something is so.
#[track_caller]
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < limit, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}
