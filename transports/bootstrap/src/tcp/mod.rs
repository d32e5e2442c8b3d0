//! A mesh among the processes of many hosts, over TCP, and over Unix sockets inside a node.
//!
//! # Forming
//! Rank 0 listens at the [`Place`]; the others come to it and prove that they know the job's [`Secret`], as rank 0 does to
//! them. At the address of a [`UniqueId`] the process that made it answers, and sends them on to a rank 0 that is elsewhere.
//! Rank 0 collects what they are and hands everyone the whole table. Ranks of one host prove by Unix sockets that memory
//! passes between them, and make a node. [`connect`] returns on all ranks or on none, within the time limit, with the
//! missing ranks or the culprit named.
//!
//! # Links
//! Each rank keeps its connection to rank 0, and links to the ranks of its node. Others are opened when the first frame
//! wants to go there. The lowest rank that is alive has a link to everyone: it notices who dies, and tells the others;
//! aborts go by it as well. So the number of connections grows with the ranks, not with their square.
//!
//! # Trust
//! Every TCP connection, while the job forms and later, begins with a handshake that proves the secret to both sides and that
//! cannot be replayed; the secret itself never crosses the wire, and neither does what [`Bootstrap::key`] gives. A connection
//! that proves nothing gets a few seconds and 104 bytes, and is dropped. It gets no answer unless it speaks the protocol,
//! which has one challenge and one verdict for it. After the handshake, frames are neither encrypted nor signed: whoever can
//! change packets on the way between two hosts can change them.

mod card;
mod contact;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod handshake;
mod interface;
mod keeper;
mod links;
mod meeting;
mod place;
mod secret;
mod stand;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use place::{Place, UniqueId};
pub use secret::Secret;

use crate::error::Result;
use crate::meeting::check_shape;
use crate::unix::host_id;
use crate::{Bootstrap, DEFAULT_TIMEOUT};

/// After how long without a sign of life from its host a peer is lost, where nothing else was asked for.
pub const DEFAULT_SILENCE: Duration = Duration::from_secs(10);
/// How long a rank goes on while nobody answers at the address of a [`UniqueId`], if nothing else was asked for.
pub const DEFAULT_SEARCH: Duration = Duration::from_secs(60);

/// Where and as whom to join a job.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    /// Where the ranks meet, the same for all ranks.
    pub place: Place,
    /// This rank, in 0..`world`.
    pub rank: u32,
    /// The number of ranks.
    pub world: u32,
    /// What only the ranks of the job know. A [`Place::Id`] brings its own, and this one does not count.
    pub secret: Secret,
    /// How long to wait for the others, and the time limit of the later blocking calls.
    pub timeout: Duration,
    /// How long a rank goes on, within `timeout`, while nobody answers at the address of a [`Place::Id`]: after this, the
    /// process that made the id has ended, or cannot be reached.
    pub search: Duration,
    /// The network interface (name, address or address prefix) by which other nodes reach this rank; without it, the one
    /// by which this rank reaches rank 0.
    pub interface: Option<String>,
    /// Whether rank 0 listens on all interfaces of its host if the place is a host name, although `interface` names one. This is
    /// for an interface that was not chosen with the place in mind: ranks that look the name up may not find that interface.
    /// Without an `interface`, rank 0 does so anyway.
    pub listen_everywhere: bool,
    /// After how long without a sign of life from its host (not its process: the kernel answers) a peer is lost. At
    /// least a second, and at most 24 days, which the kernel takes: others count as these.
    pub silence: Duration,
}

impl Rendezvous {
    /// Joins as `rank` of `world`, with [`DEFAULT_TIMEOUT`], [`DEFAULT_SEARCH`] and [`DEFAULT_SILENCE`].
    pub fn new(place: Place, rank: u32, world: u32, secret: Secret) -> Rendezvous {
        let (timeout, search, silence) = (DEFAULT_TIMEOUT, DEFAULT_SEARCH, DEFAULT_SILENCE);
        let (interface, listen_everywhere) = (None, false);
        Rendezvous {
            place,
            rank,
            world,
            secret,
            timeout,
            search,
            interface,
            listen_everywhere,
            silence,
        }
    }

    /// The secret that counts.
    fn secret_in_force(&self) -> &Secret {
        match &self.place {
            Place::Id(id) => &id.secret,
            _ => &self.secret,
        }
    }
}

/// Joins a job; returns when all ranks are there. Several ranks of one process may join, from a thread each. Nothing of
/// the rendezvous stays behind: its port is closed and its file removed when this returns.
///
/// The host of a rank is its machine's boot id, or the value of [`HOST_VARIABLE`](crate::unix::HOST_VARIABLE).
///
/// # Errors
/// `BadShape`, `TooManyRanks`, `WrongWorld`, `DuplicateRank`, `WrongSecret`, `OtherVersion`, `NoInterface`, `Network`, `PeerLost`;
/// `Os` where this process lacks something, descriptors mostly; `Unmet` where nobody answers at the address of an id; `Timeout` with
/// the missing ranks, or `Incomplete` where something was turned away meanwhile or nobody listened where this rank looked for rank 0;
/// `Refused` where another rank found one of these first; on rank 0 `TurnedAway` with another error and what it had turned away.
pub fn connect(rendezvous: &Rendezvous) -> Result<Arc<dyn Bootstrap>> {
    connect_since(rendezvous, Instant::now())
}

/// Like [`connect`], but the time runs since `begun`: the time that it took to find the place counts as waiting for the others,
/// and takes nothing off the limit of later calls.
pub(crate) fn connect_since(rendezvous: &Rendezvous, begun: Instant) -> Result<Arc<dyn Bootstrap>> {
    join(rendezvous, &host_id()?, begun)
}

/// Like [`connect`], with the host's identity given. For tests, whose ranks may share a process and its environment.
///
/// # Errors
/// As [`connect`].
pub fn connect_as(rendezvous: &Rendezvous, host: &str) -> Result<Arc<dyn Bootstrap>> {
    join(rendezvous, host, Instant::now())
}

fn join(rendezvous: &Rendezvous, host: &str, begun: Instant) -> Result<Arc<dyn Bootstrap>> {
    check_shape(rendezvous.rank, rendezvous.world)?;
    keeper::forget_inherited();
    meeting::hold(rendezvous, host, begun)
}
