//! What a channel is, and what a transport offers: the traits that every transport implements.
//!
//! A plan's channel *type* says what semantics it needs ([`ChannelKind`]); a [`Transport`] says which peers it reaches and at
//! what cost; the [`Registry`] picks. One that maps memory is a [`Mapping`]. Opening has two phases and nothing blocks inside:
//! a rank registers memory and sends the [`Offer`]; the peer accepts it, and from then on opens any buffer inside it as a
//! [`Handle`], one of a closed set of kinds that engines know how to use. The crate of port channels says what their transport
//! does instead. For everything that goes over a network, [`interface`] and [`topology`] help to choose it, [`outage`] lets
//! connections outlive an outage of it, and [`room`] tells a want of descriptors from a peer that is not there.

mod error;
mod handle;
pub mod interface;
pub mod outage;
mod registry;
pub mod room;
mod route;
pub mod topology;

pub use error::TransportError;
pub use handle::{Handle, Offer, RemoteBuffer};
pub use registry::Registry;

use antiphon_hal::Memory;
use std::fmt;
use std::sync::Arc;

/// The semantics that a plan's channel needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChannelKind {
    /// Loads and stores to the peer's memory, and counters that both see.
    Memory,
    /// Requests that a proxy carries out.
    Port,
    /// Stores to all members of a group, loads that reduce over all members.
    Switch,
}

impl fmt::Display for ChannelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ChannelKind::Memory => "memory",
            ChannelKind::Port => "port",
            ChannelKind::Switch => "switch",
        })
    }
}

/// What a transport needs to know of a peer to say whether it reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The peer's rank.
    pub rank: u32,
    /// The peer's process.
    pub pid: u32,
    /// It lives in this process.
    pub same_process: bool,
    /// It was proven to map this rank's memory, and the other way round.
    pub same_node: bool,
    /// This process may read and write the peer's memory through the kernel.
    pub process_access: bool,
}

/// Whether and how well a transport reaches a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It does. Lower is better; costs compare transports of one kind only.
    At {
        /// Relative cost of moving a byte.
        cost: u32,
    },
    /// It does not.
    No {
        /// Why, and what would help.
        why: String,
    },
}

/// A way to reach peers.
///
/// All methods may be called from any thread and return without waiting for a peer.
pub trait Transport: Send + Sync + fmt::Debug {
    /// The name, e.g. `shared-memory`.
    fn name(&self) -> &str;

    /// What it offers.
    fn kind(&self) -> ChannelKind;

    /// Whether it reaches a peer.
    fn reach(&self, peer: &Peer) -> Reach;
}

/// A way to reach peers by loads and stores: their memory is mapped, or reached through the kernel.
///
/// All methods may be called from any thread and return without waiting for a peer.
pub trait Mapping: Transport {
    /// Makes a memory of this rank reachable: what a peer needs to [`accept`](Self::accept) it.
    ///
    /// # Errors
    /// If the memory cannot be exported.
    fn register(&self, memory: &Arc<dyn Memory>) -> Result<Offer, TransportError>;

    /// Takes a peer's offer; its buffers can be opened from now on.
    ///
    /// # Errors
    /// If the offer makes no sense or cannot be mapped.
    fn accept(&self, peer: u32, offer: Offer) -> Result<(), TransportError>;

    /// Forgets a peer's region, and hands over its mapping, if there is one. Handles that are in use stay valid while their
    /// [`Handle::Mapped`] memory is held; the region is unmapped where the last of all these is dropped.
    fn retire(&self, peer: u32, region: u64) -> Option<Arc<dyn Memory>>;

    /// A buffer of a peer; `None` until its region has been accepted.
    ///
    /// # Errors
    /// If the buffer does not lie inside its region.
    fn open(&self, peer: &Peer, buffer: &RemoteBuffer) -> Result<Option<Handle>, TransportError>;
}
