//! What the cases share: posting that goes on until it is queued, waits with an end, and patterns of bytes.

use antiphon_hal::Memory;
use antiphon_port::{Link, Posted, Unit, WireError, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub use crate::hal::support::words;

/// A link's two ends, driven together.
pub struct Pair {
    /// One end.
    pub a: Arc<dyn Link>,
    /// The other.
    pub b: Arc<dyn Link>,
    /// How long anything may take.
    pub patience: Duration,
}

impl Pair {
    /// Makes progress on both ends until `condition` holds.
    pub fn until(&self, what: &str, condition: impl FnMut() -> bool) {
        until(&[&self.a, &self.b], self.patience, what, condition);
    }

    /// Posts a write from `a`.
    pub fn write(&self, write: &Write<'_>) {
        self.until("room for a write", || queued(self.a.write(write)));
    }

    /// Posts a signal from `a`.
    pub fn signal(&self, region: u64, to: u64, value: u64) {
        self.until("room for a signal", || queued(self.a.signal(region, to, value)));
    }

    /// Waits until all that `a` posted has landed.
    pub fn flush(&self) {
        let position = self.a.posted();
        self.until("completion", || self.a.completed().expect("completed") >= position);
    }
}

/// Makes progress on `links` until `condition` holds; panics with `what` where it never does, or where a link breaks.
pub fn until(
    links: &[&Arc<dyn Link>],
    patience: Duration,
    what: &str,
    mut condition: impl FnMut() -> bool,
) {
    let start = Instant::now();
    while !condition() {
        let mut moved = false;
        for link in links {
            moved |= link.progress().unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        if !moved {
            assert!(start.elapsed() < patience, "waited {patience:?} in vain: {what}");
            thread::yield_now();
        }
    }
}

/// Whether a post was queued, of one that is right.
pub fn queued(posted: Result<Posted, WireError>) -> bool {
    posted.expect("a post that is right") == Posted::Queued
}

/// A write of plain bytes from the beginning of `source`.
pub fn plain(source: &Arc<dyn Memory>, region: u64, to: u64, bytes: u64) -> Write<'_> {
    Write { source, from: 0, region, to, bytes, unit: Unit::Bytes }
}

/// Writes a pattern, different for each `seed`, over part of a memory.
pub fn fill(memory: &Arc<dyn Memory>, from: u64, bytes: u64, seed: u64) {
    assert!(from + bytes <= memory.len());
    let start = memory.address().wrapping_add(from as usize);
    // SAFETY: the range is mapped while the borrowed `Arc` lives; no post reads it and no peer writes it meanwhile,
    // by the cases' own order.
    let slice = unsafe { std::slice::from_raw_parts_mut(start, bytes as usize) };
    for (at, byte) in slice.iter_mut().enumerate() {
        *byte = pattern(at as u64, seed);
    }
}

/// The byte of a pattern at a place.
pub fn pattern(at: u64, seed: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9).wrapping_add(seed.wrapping_mul(0x85eb_ca6b)) >> 11) as u8
}

/// The first byte of part of a memory that is not the pattern of `seed`.
pub fn differs(memory: &Arc<dyn Memory>, from: u64, bytes: u64, seed: u64) -> Option<u64> {
    (0..bytes).find(|&at| byte(memory, from + at) != pattern(at, seed))
}

/// A byte of a memory.
pub fn byte(memory: &Arc<dyn Memory>, at: u64) -> u8 {
    assert!(at < memory.len());
    // SAFETY: the byte is mapped while the borrowed `Arc` lives; volatile, as a wire may have written it just now.
    unsafe { memory.address().wrapping_add(at as usize).read_volatile() }
}

/// Makes progress on `links` in a thread of its own until dropped.
pub struct Driver {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Driver {
    /// Drives `links`.
    pub fn new(links: &[&Arc<dyn Link>]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let links: Vec<_> = links.iter().map(|link| Arc::clone(link)).collect();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let moved = links.iter().filter(|l| l.progress().expect("progress")).count();
                if moved == 0 {
                    thread::yield_now();
                }
            }
        });
        Driver { stop, thread: Some(thread) }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let joined = self.thread.take().map(thread::JoinHandle::join);
        assert!(thread::panicking() || !matches!(joined, Some(Err(_))), "a driving thread failed");
    }
}
