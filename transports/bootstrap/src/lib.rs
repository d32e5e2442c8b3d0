//! How the ranks of a job find each other, and how they talk beside the data path.
//!
//! A [`Bootstrap`] is one rank's end of a mesh of control links. It gathers blobs ([`Bootstrap::exchange`]),
//! synchronises ([`Bootstrap::barrier`]), carries messages with file descriptors to a peer's [`Handler`] without that
//! peer calling anything ([`Bootstrap::send`]), tells everybody about an abort, and notices within milliseconds when a
//! peer's process dies. It moves bytes and descriptors and knows neither devices nor plans.
//!
//! Three kinds of mesh: [`in_process`] for ranks that live in one process, [`unix::connect`] for the processes of one
//! machine, and [`tcp::connect`] for those of many hosts. All behave alike; one conformance suite tests them.
//!
//! # Cost
//! The first rank of a group gathers the parts of a collective and sends everyone the whole: two messages a rank. It
//! therefore must not leave before the others have their results, which [`Ticket::wait`] sees to. On one node everyone has
//! a link to everyone; across nodes to rank 0 and to those it has spoken with.
//!
//! # Every wait ends
//! A blocking call returns with its result, with the loss of a peer, with an abort or with the time limit, and the
//! error names the ranks and processes to blame ([`BootstrapError`]). One that goes on for long warns of whom it waits for ([`Late`]).
//!
//! # Threads
//! One control thread per process serves all meshes. It starts with the first mesh and stays parked afterwards. All handlers run
//! on it, one at a time, so a handler must not block; a blocking bootstrap call inside a handler returns
//! [`BootstrapError::InsideHandler`] instead of hanging. A handler speaks by a [`Voice`]: if it held an end, and that was the
//! last one, the goodbye would be said on this thread, for which an ending process does not wait.
//!
//! # Trust
//! Links between processes of one node use abstract Unix sockets, whose names hold 128 random bits and vanish with the job. The
//! kernel's word on the peer's user id decides who is let in: only processes of the same user. Those are trusted to
//! be of good will, but not to be well: a stranger's or a corrupt stream never harms more than its own link. Links between
//! nodes are authenticated by the job's secret ([`tcp`] says what that gives, and what it does not).

mod absent;
mod collective;
mod control;
mod error;
mod frame;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod hello;
mod inbox;
mod key;
mod late;
pub mod launcher;
mod link;
mod local;
mod lookup;
mod meeting;
mod mesh;
mod pipe;
#[cfg(test)]
mod refusing;
mod socket;
mod sync;
pub mod tcp;
pub mod unix;

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

pub use collective::{Operation, Ticket};
pub use error::{BootstrapError, Lost, PeerName, Result};
pub use frame::{MAX_DESCRIPTORS, MAX_PAYLOAD};
pub use group::Voice;
pub use late::{Late, overdue, say_after};
pub use local::{in_process, in_process_with};

/// How long a blocking call waits where nothing else was asked for.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// The most ranks of a job, so that something that is mistaken for a number of ranks does not take all memory.
pub const MOST_RANKS: u32 = 1 << 20;

/// One message to a peer's handler.
#[derive(Debug, Default)]
pub struct Message {
    /// Which handler of the peer gets it (of this group: groups have channels of their own).
    pub channel: u64,
    /// Free for the application, usually the kind of message.
    pub tag: u32,
    /// Up to [`MAX_PAYLOAD`] bytes.
    pub payload: Vec<u8>,
    /// Up to [`MAX_DESCRIPTORS`] descriptors, for a rank of the same node. The receiver gets duplicates (close-on-exec); these are closed when sent.
    pub descriptors: Vec<OwnedFd>,
}

/// What is known of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its process id as this process's pid namespace sees it, 0 where it is not visible; of a rank on another node, as
    /// its own pid namespace sees it.
    pub pid: u32,
    /// Whether it lives in this very process, so that plain addresses may be exchanged.
    pub same_process: bool,
    /// The node it runs on (see [`Bootstrap::node_of`]).
    pub node: u32,
    /// The address by which ranks of other nodes reach it; `None` in meshes that do not leave the machine.
    pub address: Option<IpAddr>,
}

/// Receives what peers send on one channel.
///
/// Calls come from the control thread, one at a time, in the order in which each peer sent. A handler must not block
/// and must return soon: while it runs, no rank of this process hears from its peers. It may call every
/// non-blocking method of [`Bootstrap`]. A handler that panics aborts its group.
///
/// The mesh keeps the handler alive until [`Bootstrap::unsubscribe`] or the end of the mesh: a handler that owns the
/// `Arc<dyn Bootstrap>` it is subscribed to would keep both alive for ever, so hold a `Weak` there.
pub trait Handler: Send + Sync {
    /// A message from rank `from`.
    fn message(&self, from: u32, tag: u32, payload: &[u8], descriptors: Vec<OwnedFd>);
    /// Rank `peer` died or its link broke; called once for each, after the last message from it. If this rank has no
    /// link to it, as may be between nodes, it hears of the loss from the rank that watches all. A peer that closes its
    /// bootstrap in good order is not lost.
    fn peer_lost(&self, peer: u32, why: &Lost);
    /// Rank `by` called [`Bootstrap::abort`] on this group; called once, and not on the rank that aborts.
    fn aborted(&self, by: u32, reason: &str);
}

/// One rank's end of the mesh, or of a group of its ranks.
///
/// All methods may be called from any thread. Collective calls ([`exchange`](Bootstrap::exchange),
/// [`barrier`](Bootstrap::barrier) and what [begins](Bootstrap::begin) one) must be made by all ranks of a group in the same order;
/// where ranks differ, both sides get [`BootstrapError::Mismatch`].
///
/// Dropping the last reference (of the mesh, its groups and tickets) says goodbye to the peers. It waits, at most two
/// seconds, for queued messages to leave, and between hosts for the word that the goodbye was heard.
pub trait Bootstrap: Send + Sync {
    /// This rank, in 0..[`world`](Bootstrap::world).
    fn rank(&self) -> u32;

    /// The number of ranks.
    fn world(&self) -> u32;

    /// Begins a collective call without waiting: with it one thread can drive several ranks (begin all, then finish all). The
    /// ticket's result is the bytes of all ranks. Ranks whose operations differ are told so.
    ///
    /// # Errors
    /// `TooLarge`; `Aborted` where the group is aborted already.
    fn begin(&self, operation: Operation, bytes: &[u8]) -> Result<Ticket>;

    /// [Begins](Bootstrap::begin) an exchange.
    ///
    /// # Errors
    /// As [`begin`](Bootstrap::begin).
    fn exchange_begin(&self, bytes: &[u8]) -> Result<Ticket> {
        self.begin(Operation::Exchange, bytes)
    }

    /// [Begins](Bootstrap::begin) a barrier, whose result is one empty blob a rank.
    ///
    /// # Errors
    /// `Aborted` where the group is aborted already.
    fn barrier_begin(&self) -> Result<Ticket> {
        self.begin(Operation::Barrier, &[])
    }

    /// Gives every rank the blobs of all ranks, in rank order. Lengths may differ.
    ///
    /// # Errors
    /// As [`Ticket::wait`].
    fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.exchange_begin(bytes)?.wait()
    }

    /// Returns once all ranks have called it.
    ///
    /// # Errors
    /// As [`Ticket::wait`].
    fn barrier(&self) -> Result<()> {
        self.barrier_begin()?.wait().map(drop)
    }

    /// Queues a message to `peer` (which may be this rank) and returns at once. Messages to one peer arrive in order.
    /// The queue has no limit but memory.
    ///
    /// # Errors
    /// `NoSuchRank`, `TooLarge`, `NoDescriptors` where there are some and the peer is on another node, and `PeerLost`, `PeerLeft` or `Aborted` where that is known already. Success does not
    /// mean that the peer has it.
    fn send(&self, peer: u32, message: Message) -> Result<()>;

    /// Delivers the messages of `channel` to `handler` from now on, beginning with those that came earlier. Losses and
    /// aborts of the past are told as well.
    ///
    /// # Errors
    /// `Subscribed` where the channel has a handler.
    fn subscribe(&self, channel: u64, handler: Arc<dyn Handler>) -> Result<()>;

    /// Ends the deliveries of `channel`; its messages are dropped until the next `subscribe`. A handler call that is
    /// under way may still finish.
    fn unsubscribe(&self, channel: u64);

    /// Says that this rank is through with the group for good: it neither uses an end of it again nor makes it again. The others
    /// hear of this: for them the rank has [left](Self::has_left) the group, though it may go on in other groups. What it takes
    /// to continue the calls of such a group is forgotten in time; it is never forgotten for a group that nobody lets go of.
    fn let_go(&self) {}

    /// Says goodbye to all ranks of the job, as dropping the last object of the job does. It is for processes that end without
    /// dropping their objects; no end is of use afterwards.
    fn farewell(&self) {}

    /// A bootstrap among some of the ranks, on the same links; `members[i]` becomes rank `i`. All members pass the same
    /// `id` and list; nothing is sent. Groups with different ids, lists or parents have nothing to do with each other;
    /// the same id and list again give the same group (its calls continue the same sequence).
    ///
    /// # Errors
    /// `BadGroup`.
    fn group(&self, id: u64, members: &[u32]) -> Result<Arc<dyn Bootstrap>>;

    /// This end of the same group with another time limit: its calls, and those of groups made of it, wait for the others for at
    /// most `limit`; and what the log says of its long waits begins with what the group is `called`, if it is called something. Both
    /// ends share everything else: the order of collective calls, subscriptions, aborts.
    fn within(&self, limit: Duration, called: Option<Arc<str>>) -> Arc<dyn Bootstrap>;

    /// Ends all waits of this group, here and on all its ranks, and tells the peers' handlers. Final: later calls fail
    /// with the same reason. Of several aborts the first counts. Other groups, also those made from this one, are not
    /// touched.
    fn abort(&self, reason: &str);

    /// A voice that speaks for this rank in the group without being an end of it, for handlers and what they call.
    fn voice(&self) -> Voice;

    /// Whether the group is whole.
    ///
    /// # Errors
    /// `Aborted` or `PeerLost`, once that happened.
    fn check(&self) -> Result<()>;

    /// Whether `peer` closed its bootstrap in good order, or let go of this group, as far as is known. [`check`](Self::check) is silent about that.
    ///
    /// # Errors
    /// `NoSuchRank`.
    fn has_left(&self, peer: u32) -> Result<bool>;

    /// The ranks of this group that are lost or have [left](Self::has_left), in order, as far as is known; also where the group is
    /// aborted.
    fn gone(&self) -> Vec<u32>;

    /// A key that only the ranks of this group know, and that never travelled: derived from the job's secret, the group and
    /// `purpose`. Equal on all ranks of the group.
    fn key(&self, purpose: &str) -> [u8; 32];

    /// What is known of a rank (this one included).
    ///
    /// # Errors
    /// `NoSuchRank`.
    fn peer(&self, rank: u32) -> Result<PeerInfo>;

    /// The node that `rank` runs on: equal numbers can map each other's memory, by proof (each read a random token
    /// through a descriptor that the other passed). Numbers count from 0 in the order of the mesh's ranks, and are the
    /// same on all ranks and in all groups of a mesh.
    ///
    /// # Errors
    /// `NoSuchRank`.
    fn node_of(&self, rank: u32) -> Result<u32> {
        self.peer(rank).map(|peer| peer.node)
    }

    /// The node that `rank` really runs on. It differs from [`node_of`](Self::node_of) only where somebody has ranks of one
    /// node count as on several. These numbers compare with each other alone.
    ///
    /// # Errors
    /// `NoSuchRank`.
    fn home_of(&self, rank: u32) -> Result<u32> {
        self.node_of(rank)
    }
}
