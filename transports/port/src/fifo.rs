//! The request FIFO: many thread blocks produce, one proxy consumes.
//!
//! A block asks for a transfer by a [`Request`] of eight words, and goes on. Nothing in it is narrower than 64 bits, so
//! that nothing is ever cut off. Producers claim a place by one atomic addition; while the ring is full they wait, and
//! nothing is lost. [`Drain`] carries requests out over links.
//!
//! # Layout
//! A FIFO of `n` requests (a power of two) is `n + 2` lines of 64 bytes, each eight 64-bit words. A GPU kernel that sees
//! these bytes produces like a thread of the host:
//!
//! | line | word 0 | word 1 | words 2 to 7 |
//! |---|---|---|---|
//! | 0, the producers' | `head`: places claimed so far, and 2^62 more once the FIFO is closed | `seen`: a `tail` that some producer saw | 0 |
//! | 1, the consumer's | `tail`: places free again | not 0 once the FIFO is closed | 0 |
//! | 2 + (t mod n) | `sequence`: t + 1 once the request of place t is there | kinds | channel, source, from, region, to, bytes |
//!
//! 1. `t = head++`, relaxed: place t is the producer's.
//! 2. Wait until `t - seen < n` or `t - tail < n`, by loads with acquire ordering; whoever read `tail` may raise `seen` to
//!    it with release ordering. If the FIFO is closed, give up: places claimed from then on never get free.
//! 3. Store words 1 to 7, then `sequence = t + 1` with release ordering, at system scope where the producer is a GPU.
//!
//! A request is posted when `tail > t`. One with the flush bit is done when its channel's done word reaches `t + 1`.
//! `tests/protocols/src/port.rs` has the model.

mod drain;

#[cfg(test)]
mod tests;

pub use drain::{Done, Drain, DrainError, End};

use antiphon_hal::{HalError, Memory};
use std::fmt;
use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Moves bytes.
pub const DATA: u64 = 1;
/// Sets the peer's counter after them.
pub const SIGNAL: u64 = 2;
/// Tells when all that the channel posted before has landed.
pub const FLUSH: u64 = 4;
/// The bytes are packets, whose aligned 8-byte units appear whole. With [`DATA`] only.
pub const PACKETS: u64 = 8;
/// The counter becomes what [`Request::bytes`] says, rather than one more than it was. With [`SIGNAL`] only, and where each
/// request names its counter.
pub const VALUE: u64 = 16;

/// What a thread block asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// [`DATA`], [`SIGNAL`], [`FLUSH`], [`PACKETS`], [`VALUE`]; carried out in this order.
    pub kinds: u64,
    /// The channel.
    pub channel: u64,
    /// Region of this rank that bytes come from.
    pub source: u64,
    /// Byte offset in it.
    pub from: u64,
    /// Region of the peer that they go to.
    pub region: u64,
    /// Byte offset in it.
    pub to: u64,
    /// How many bytes; of a [`VALUE`], the value.
    pub bytes: u64,
}

/// The FIFO was closed: nobody consumes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot produce a request: saw a closed FIFO, allowed one whose proxy runs; abort the launch"
)]
pub struct Closed;

#[repr(C, align(64))]
#[derive(Default)]
struct Line([AtomicU64; 8]);

const HEAD: (usize, usize) = (0, 0);
const SEEN: (usize, usize) = (0, 1);
const TAIL: (usize, usize) = (1, 0);
const CLOSED: (usize, usize) = (1, 1);
const FIRST: usize = 2;

/// What closing adds to `head`: whoever claims a place afterwards finds the FIFO full for ever, and so finds it closed, while
/// those that find room need not look.
const BEYOND: u64 = 1 << 62;

/// Where the lines are.
enum Lines {
    /// In this process's own memory.
    Own(Box<[Line]>),
    /// At the start of a memory that a device reaches, too: so many.
    Shared(Arc<dyn Memory>, usize),
}

impl Lines {
    fn all(&self) -> &[Line] {
        match self {
            Lines::Own(lines) => lines,
            // SAFETY: `consumer` has checked that so many lines fit the memory, which is mapped while this lives, and where
            // they are aligned; the words are touched by atomic accesses alone, of the host's and of the device's.
            Lines::Shared(memory, count) => unsafe {
                std::slice::from_raw_parts(memory.address().cast(), *count)
            },
        }
    }

    fn word(&self, (line, word): (usize, usize)) -> &AtomicU64 {
        &self.all()[line].0[word]
    }

    fn capacity(&self) -> u64 {
        (self.all().len() - FIRST) as u64
    }

    fn place(&self, ticket: u64) -> &[AtomicU64; 8] {
        &self.all()[FIRST + (ticket & (self.capacity() - 1)) as usize].0
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [head, tail] = [HEAD, TAIL].map(|at| self.word(at).load(Ordering::Relaxed));
        f.debug_struct("Fifo").field("head", &head).field("tail", &tail).finish_non_exhaustive()
    }
}

/// A FIFO of at least `requests` requests (rounded up to a power of two, at most 2^20): where they are produced, and
/// where they are consumed.
pub fn fifo(requests: u64) -> (Producer, Consumer) {
    let capacity = requests.clamp(2, 1 << 20).next_power_of_two() as usize;
    let lines = (0..capacity + FIRST).map(|_| Line::default()).collect();
    let lines = Arc::new(Lines::Own(lines));
    (Producer(Arc::clone(&lines)), Consumer { lines, next: 0 })
}

/// Bytes of a FIFO of `capacity` requests.
pub const fn bytes(capacity: u64) -> u64 {
    (capacity + FIRST as u64) * size_of::<Line>() as u64
}

/// The consumer of requests that a device produces. `memory` is zeroed, begins with a FIFO of `capacity` requests, and can
/// be reached by both at any time ([`antiphon_hal::Device::pinned`]). The device may keep the producers' line in memory of
/// its own; then it learns that the FIFO is closed when it finds it full.
///
/// # Errors
/// [`HalError::Invalid`] for a capacity that is no power of two from 2 on, and for memory that is too short for it or does not
/// begin at a line.
pub fn consumer(memory: Arc<dyn Memory>, capacity: u64) -> Result<Consumer, HalError> {
    let fits = capacity >= 2 && capacity.is_power_of_two() && capacity <= memory.len();
    let aligned = memory.address().addr().is_multiple_of(align_of::<Line>());
    if !fits || !aligned || bytes(capacity) > memory.len() {
        return Err(HalError::Invalid {
            what: "make a queue of requests",
            saw: format!("{capacity} requests in {} bytes", memory.len()),
            allowed: "a power of two from 2 on, and memory for it that begins at a line".to_owned(),
            cure: "allocate as many bytes as `fifo::bytes` says",
        });
    }
    let lines = Lines::Shared(memory, capacity as usize + FIRST);
    Ok(Consumer { lines: Arc::new(lines), next: 0 })
}

/// Where requests are produced, by any number of threads.
#[derive(Clone, Debug)]
pub struct Producer(Arc<Lines>);

impl Producer {
    /// Produces a request and returns its number. Waits while the FIFO is full. One that is produced while the FIFO is being
    /// closed may get a number and not be carried out.
    ///
    /// # Errors
    /// [`Closed`], if nobody consumes any more.
    pub fn push(&self, request: &Request) -> Result<u64, Closed> {
        let lines = &*self.0;
        let ticket = lines.word(HEAD).fetch_add(1, Ordering::Relaxed);
        if ticket - lines.word(SEEN).load(Ordering::Acquire) >= lines.capacity() {
            self.wait(ticket)?;
        }
        let [sequence, kinds, channel, source, from, region, to, bytes] = lines.place(ticket);
        for (word, value) in [
            (kinds, request.kinds),
            (channel, request.channel),
            (source, request.source),
            (from, request.from),
            (region, request.region),
            (to, request.to),
            (bytes, request.bytes),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        sequence.store(ticket + 1, Ordering::Release);
        Ok(ticket)
    }

    /// Waits until the place of `ticket` is free.
    #[cold]
    fn wait(&self, ticket: u64) -> Result<(), Closed> {
        let lines = &*self.0;
        for round in 0u32.. {
            let tail = lines.word(TAIL).load(Ordering::Acquire);
            if ticket.saturating_sub(tail) < lines.capacity() {
                lines.word(SEEN).fetch_max(tail, Ordering::AcqRel);
                break;
            }
            if lines.word(CLOSED).load(Ordering::Acquire) != 0 {
                return Err(Closed);
            }
            // The consumer may need this core.
            if round < 64 { hint::spin_loop() } else { thread::yield_now() }
        }
        Ok(())
    }

    /// Whether the request of a number was posted: its place is free again.
    pub fn posted(&self, ticket: u64) -> bool {
        self.0.word(TAIL).load(Ordering::Acquire) > ticket
    }

    /// Whether nobody consumes any more.
    pub fn closed(&self) -> bool {
        self.0.word(CLOSED).load(Ordering::Acquire) != 0
    }
}

/// Where requests are consumed, by one thread. Dropping it closes the FIFO.
#[derive(Debug)]
pub struct Consumer {
    lines: Arc<Lines>,
    next: u64,
}

impl Consumer {
    /// How many requests fit.
    pub fn capacity(&self) -> u64 {
        self.lines.capacity()
    }

    /// The next request and its number, if there is one. Its place stays taken until it is [released](Self::release).
    pub fn take(&mut self) -> Option<(u64, Request)> {
        let ticket = self.next;
        let place = self.lines.place(ticket);
        if place[0].load(Ordering::Acquire) != ticket + 1 {
            return None;
        }
        let word = |at: usize| place[at].load(Ordering::Relaxed);
        self.next += 1;
        let request = Request {
            kinds: word(1),
            channel: word(2),
            source: word(3),
            from: word(4),
            region: word(5),
            to: word(6),
            bytes: word(7),
        };
        Some((ticket, request))
    }

    /// Frees the places of all requests whose number is less than `end`, of those that were taken.
    pub fn release(&mut self, end: u64) {
        let end = end.min(self.next);
        if end > self.lines.word(TAIL).load(Ordering::Relaxed) {
            self.lines.word(TAIL).store(end, Ordering::Release);
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.lines.word(CLOSED).store(1, Ordering::Release);
        self.lines.word(HEAD).fetch_add(BEYOND, Ordering::Release);
    }
}
