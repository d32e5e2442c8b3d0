//! What a wire is: one-sided writes into a peer's registered memory, and signals that come after them.
//!
//! A [`Wire`] is one rank's end of a way to move bytes; a [`Link`] is that end's connection to one peer. Links are made
//! in two phases, so that nothing here ever waits for a peer: [`Wire::open`] gives an [`Opening`] with an address, the
//! address travels to the peer (by the bootstrap), and [`Opening::connect`] takes the peer's. From then on both sides
//! post: [`Link::write`] moves bytes from memory of this rank to memory that the peer registered, [`Link::signal`] sets
//! a counter there once all that was posted before has landed. Posting only queues; [`Link::progress`] moves, on
//! whatever thread calls it.
//!
//! # What every wire promises
//! - *Order.* A signal's counter changes only after every write posted to the link before it has landed in the peer's
//!   memory, so that a peer thread that reads the counter with acquire ordering sees the bytes. Signals of one link land
//!   in order. Writes among each other have no order.
//! - *Once and whole.* Every post takes effect exactly once, or the link is lost. Of [`Unit::Packets`] writes every
//!   aligned unit of 8 bytes appears at once; of others, bytes appear in any order.
//! - *Completion.* [`Link::completed`] reaches a position when the posts up to it have landed *in the peer's memory*:
//!   their source may change from then on, and no fault of this rank undoes them.
//! - *Bounds.* A write outside a registered region is an error on whichever side notices; it never touches other memory.
//! - *No waiting.* No method blocks, except that [`Link::stop`] lets calls of other threads end.
//! - *Loss is told.* After a link is lost every method says so, with the reason; other links go on. A peer of which
//!   nothing answers from the start is lost as well, after some ten seconds.
//! - *An end is an end.* After [`Link::stop`] no byte of the peer's lands here.
//!
//! What every wire refuses is checked here, so that all say it in the same words: [`Write::check_source`],
//! [`Write::check_units`], [`check_region`], [`check_counter`], [`check_host`], [`unknown_region`].

use crate::WireError;
use antiphon_hal::{Backend, Memory, PciAddress};
use antiphon_transport::{Peer, Reach};
use std::fmt;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What a wire's end is made with.
#[derive(Clone)]
#[non_exhaustive]
pub struct Settings {
    /// This rank.
    pub rank: u32,
    /// A secret that only the ranks of this communicator have: links prove themselves by it. It must never cross a wire
    /// in clear.
    pub key: [u8; 32],
    /// The network interface to use, by its name, an address of it, or an address prefix (`10.1.0.0/16`, `10.1.`); `None`
    /// lets the wire choose.
    pub interface: Option<String>,
    /// The address of this rank by which the ranks met, and which the others reach. A wire over the same network takes it
    /// if no interface is asked for; other wires ignore it.
    pub met: Option<IpAddr>,
    /// The device in whose memory this rank's buffers are: a wire that has several cards takes those near it. `None` if
    /// that memory is the host's, or not known: then the wire takes cards near the cores that the calling thread may use.
    pub device: Option<PciAddress>,
}

impl Settings {
    /// The end of `rank`, with the communicator's secret.
    pub fn new(rank: u32, key: [u8; 32]) -> Self {
        Settings { rank, key, interface: None, met: None, device: None }
    }

    /// These settings with an interface.
    #[must_use]
    pub fn with_interface(self, interface: Option<String>) -> Self {
        Settings { interface, ..self }
    }

    /// These settings with the address by which the ranks met.
    #[must_use]
    pub fn with_met(self, met: Option<IpAddr>) -> Self {
        Settings { met, ..self }
    }

    /// These settings with the device of the rank's buffers.
    #[must_use]
    pub fn with_device(self, device: Option<PciAddress>) -> Self {
        Settings { device, ..self }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the key.
        f.debug_struct("Settings")
            .field("rank", &self.rank)
            .field("interface", &self.interface)
            .field("met", &self.met)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

/// Makes ends of one kind of wire.
pub trait WireDriver: Send + Sync + fmt::Debug {
    /// The name, e.g. `tcp`.
    fn name(&self) -> &str;

    /// One rank's end.
    ///
    /// # Errors
    /// [`WireError::Unavailable`] with the reason and the cure where this machine has no such wire.
    fn open(&self, settings: &Settings) -> Result<Arc<dyn Wire>, WireError>;
}

/// One rank's end of a kind of wire. Dropping the last reference, links included, closes it.
pub trait Wire: Send + Sync + fmt::Debug {
    /// The name, e.g. `tcp`.
    fn name(&self) -> &str;

    /// Whether it reaches a peer that has the same wire, and at what cost (local copies 1, RDMA 10, sockets 100).
    fn reach(&self, peer: &Peer) -> Reach;

    /// What it runs over, for people: an interface and address, a device and its port.
    fn describe(&self) -> String;

    /// Whether it registers memory of GPUs, by its dma-buf ([`Memory::export_dma_buf`]); not all of it may have one.
    fn takes_gpu_memory(&self) -> bool {
        false
    }

    /// Makes a memory of this rank readable for its own posts and writable for its links' peers, until the registration
    /// is dropped. The registration keeps the memory.
    ///
    /// # Errors
    /// If the memory cannot be registered.
    fn register(&self, memory: &Arc<dyn Memory>) -> Result<Registration, WireError>;

    /// The first half of a link to `peer`.
    ///
    /// # Errors
    /// If the wire has no means for another link.
    fn open(&self, peer: u32) -> Result<Box<dyn Opening>, WireError>;
}

/// A memory that a wire knows.
#[derive(Debug)]
pub struct Registration {
    /// The region's number: that of its memory.
    pub region: u64,
    /// Bytes of the region.
    pub bytes: u64,
    /// What a peer's [`Link::accept`] needs, besides number and length.
    pub blob: Vec<u8>,
    /// Ends the registration when dropped.
    pub keep: Box<dyn Keep>,
}

/// What lives as long as a registration.
pub trait Keep: Send + Sync + fmt::Debug {}

impl<T: Send + Sync + fmt::Debug> Keep for T {}

/// Half a link: it has an address, and wants the peer's.
pub trait Opening: Send + Sync + fmt::Debug {
    /// What the peer's half needs.
    fn address(&self) -> Vec<u8>;

    /// Takes the address of the peer's half. The link may be used at once; what is posted before it stands waits.
    ///
    /// # Errors
    /// If the address makes no sense.
    fn connect(self: Box<Self>, address: &[u8]) -> Result<Arc<dyn Link>, WireError>;
}

/// How bytes of a write may appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// In any order.
    Bytes,
    /// Every 8 aligned bytes at once. Source, destination and length are multiples of 8.
    Packets,
}

/// Bytes to move.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Memory of this rank, registered with the wire.
    pub source: &'a Arc<dyn Memory>,
    /// Byte offset in it.
    pub from: u64,
    /// Region of the peer.
    pub region: u64,
    /// Byte offset in it.
    pub to: u64,
    /// How many bytes.
    pub bytes: u64,
    /// How they may appear.
    pub unit: Unit,
}

impl Write<'_> {
    /// Checks that what is read lies inside the source.
    ///
    /// # Errors
    /// [`WireError::Invalid`] by the wire of this name, where it does not.
    pub fn check_source(&self, wire: &str) -> Result<(), WireError> {
        within(wire, "write", (self.from, self.bytes), self.source.len(), || {
            "the source".to_owned()
        })
    }

    /// Checks that packets are whole units, at both ends. These begin at the addresses `starts`, which are 0 where the wire
    /// goes by offsets.
    ///
    /// # Errors
    /// [`WireError::Invalid`] by the wire of this name, where they are not.
    pub fn check_units(&self, wire: &str, starts: [u64; 2]) -> Result<(), WireError> {
        let Write { from, to, bytes, unit, .. } = *self;
        let places = [starts[0].wrapping_add(from), starts[1].wrapping_add(to), bytes];
        if unit == Unit::Bytes || places.into_iter().all(|place| place.is_multiple_of(8)) {
            return Ok(());
        }
        let saw = format!("{bytes} bytes of packets from offset {from} to offset {to}");
        Err(invalid(wire, "write", saw, "multiples of 8"))
    }
}

/// Checks that `bytes` bytes from offset `to` on lie inside a region of `length` bytes.
///
/// # Errors
/// [`WireError::Invalid`] by the wire of this name, where they do not.
pub fn check_region(
    wire: &str,
    operation: &'static str,
    region: u64,
    (to, bytes): (u64, u64),
    length: u64,
) -> Result<(), WireError> {
    within(wire, operation, (to, bytes), length, || format!("region {region}"))
}

/// Checks that a signal's counter, at offset `to` of a region, is aligned. The region begins at the address `start`, which is 0
/// where the wire goes by offsets.
///
/// # Errors
/// [`WireError::Invalid`] by the wire of this name, where it is not.
pub fn check_counter(wire: &str, start: u64, to: u64) -> Result<(), WireError> {
    if start.wrapping_add(to).is_multiple_of(8) {
        return Ok(());
    }
    Err(invalid(wire, "signal", format!("offset {to}"), "multiples of 8"))
}

/// Checks that memory is the host's, for wires that move no other.
///
/// # Errors
/// [`WireError::Invalid`] by the wire of this name, where it is not.
pub fn check_host(wire: &str, memory: &Arc<dyn Memory>) -> Result<(), WireError> {
    if memory.backend() == Backend::Host {
        return Ok(());
    }
    let saw = format!("memory of {}", memory.backend().name());
    Err(invalid(wire, "use memory", saw, "memory of the host; stage through it"))
}

/// The error where a link has not accepted the region that is posted to.
pub fn unknown_region(wire: &str, operation: &'static str, peer: u32, region: u64) -> WireError {
    let saw = format!("region {region} of rank {peer}");
    invalid(wire, operation, saw, "regions that were accepted")
}

fn within(
    wire: &str,
    operation: &'static str,
    (at, bytes): (u64, u64),
    length: u64,
    what: impl FnOnce() -> String,
) -> Result<(), WireError> {
    if at.checked_add(bytes).is_some_and(|end| end <= length) {
        return Ok(());
    }
    let saw = format!("{bytes} bytes at offset {at} of {}", what());
    Err(invalid(wire, operation, saw, &format!("{length} bytes")))
}

fn invalid(wire: &str, operation: &'static str, saw: String, allowed: &str) -> WireError {
    WireError::Invalid { operation, wire: wire.to_owned(), saw, allowed: allowed.to_owned() }
}

/// What became of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Posted {
    /// It is queued, and will be done.
    Queued,
    /// The link's queue is full and nothing was queued: post it again after some progress.
    Full,
}

/// One rank's connection to one peer.
///
/// All methods may be called from any thread. Dropping the last reference gives up what has not been sent.
pub trait Link: Send + Sync + fmt::Debug {
    /// The rank at the other end.
    fn peer(&self) -> u32;

    /// Learns of a region that the peer registered: number, bytes, and what [`Registration::blob`] said.
    ///
    /// # Errors
    /// If that makes no sense.
    fn accept(&self, region: u64, bytes: u64, blob: &[u8]) -> Result<(), WireError>;

    /// Forgets a region of the peer's.
    fn retire(&self, region: u64);

    /// Queues a write. The source must stay as it is until it is complete (memory is kept mapped meanwhile).
    ///
    /// # Errors
    /// [`WireError::Invalid`] for ranges outside the source or the region, and for regions not accepted;
    /// [`WireError::Lost`].
    fn write(&self, write: &Write<'_>) -> Result<Posted, WireError>;

    /// Queues a signal: the 8-byte counter at byte `to` (a multiple of 8) of a region becomes `value`, by a release store,
    /// after all that was queued before has landed.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn signal(&self, region: u64, to: u64, value: u64) -> Result<Posted, WireError>;

    /// How many posts were queued so far.
    fn posted(&self) -> u64;

    /// How many posts, from the first on, have landed. One call may only begin to find out, and a later one tell.
    ///
    /// # Errors
    /// [`WireError::Lost`].
    fn completed(&self) -> Result<u64, WireError>;

    /// How many of them, from the first on, are done with their source: it may change from then on, although the bytes
    /// may not have landed yet. At least as many as have landed; more where a wire keeps a copy under way, and knows that
    /// without asking the peer.
    ///
    /// # Errors
    /// [`WireError::Lost`].
    fn released(&self) -> Result<u64, WireError> {
        self.completed()
    }

    /// How far writes have come, to the peer and from it, in whatever steps the wire knows of: a number that changes while bytes of
    /// them move, also of one that takes long, and that signals behind the last write leave as it is. A wire need not know what comes
    /// from the peer, nor anything: then the number stays, and ranks that wait for who only receives hear nothing of a long write.
    fn carried(&self) -> u64 {
        0
    }

    /// Sends and receives what can be without waiting; whether anything moved.
    ///
    /// # Errors
    /// [`WireError::Lost`].
    fn progress(&self) -> Result<bool, WireError>;

    /// A descriptor that becomes readable when [`progress`](Self::progress) would find something to do, once
    /// [`arm`](Self::arm) was called; `None` if nothing ever happens unasked. It is the same for the link's life, and
    /// links may share one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Makes the descriptor tell of the next thing to do. `false` if there may be something to do already: make progress
    /// and arm again. The arming holds until something is posted, or progress (on any thread) moves something: a post of
    /// another thread makes the descriptor of an armed link readable, as what arrives does.
    ///
    /// # Errors
    /// [`WireError::Lost`].
    fn arm(&self) -> Result<bool, WireError>;

    /// Ends the link on this side, from any thread. Once this returns, nothing that the peer has posted or will post lands
    /// in this rank's memory, no memory of this rank is read for the link, and nothing is sent. The link is lost then: here
    /// every method says so, and the peer is told as of any loss. Where peers themselves store to this rank's memory, as
    /// over the local wire, stopping ends what this rank stores; what they do is theirs to stop.
    ///
    /// What other threads are doing with the link at this moment is waited for. That is bounded, as all calls are.
    fn stop(&self);

    /// What it runs over, for people.
    fn describe(&self) -> String;
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_hal::driver;

    fn saw(checked: Result<(), WireError>) -> Option<String> {
        checked.err().map(|error| match error {
            WireError::Invalid { wire, saw, .. } if wire == "any" => saw,
            other => panic!("{other}"),
        })
    }

    #[test]
    fn ranges_end_where_memory_does_and_never_wrap() {
        for (range, length, inside) in [
            ((0, 0), 0, true),
            ((8, 8), 16, true),
            ((9, 8), 16, false),
            ((u64::MAX - 7, 8), u64::MAX, false),
        ] {
            let (to, bytes) = range;
            let expected = format!("{bytes} bytes at offset {to} of region 3");
            let checked = saw(check_region("any", "signal", 3, range, length));
            assert_eq!(checked, Some(expected).filter(|_| !inside));
        }
    }

    #[test]
    fn units_are_aligned_where_they_lie_and_bytes_need_not_be() {
        let device = driver(Backend::Host).unwrap().open(0).unwrap();
        let source = &device.allocate(64).unwrap();
        let (region, unit) = (1, Unit::Packets);
        let write = Write { source, from: 4, region, to: 8, bytes: 16, unit };
        assert_eq!(saw(write.check_units("any", [4, 0])), None);
        let expected = "16 bytes of packets from offset 4 to offset 8";
        for starts in [[0, 0], [4, 4]] {
            assert_eq!(saw(write.check_units("any", starts)).as_deref(), Some(expected));
        }
        assert_eq!(saw(Write { unit: Unit::Bytes, ..write }.check_units("any", [0, 0])), None);
        let short = Write { from: 0, bytes: 12, ..write };
        assert!(saw(short.check_units("any", [0, 0])).is_some());
        let outside = Write { from: 56, ..write };
        let expected = "16 bytes at offset 56 of the source";
        assert_eq!(saw(outside.check_source("any")).as_deref(), Some(expected));
        assert_eq!(
            [(4, 4), (0, 4)].map(|(start, to)| saw(check_counter("any", start, to))),
            [None, Some("offset 4".to_owned())]
        );
    }
}
