//! The errors of transports.

use crate::ChannelKind;
use antiphon_hal::HalError;

/// What can go wrong between a rank and its peers' memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// No transport of this kind reaches a peer.
    #[error("cannot open a {kind} channel to rank {peer}: {}", reasons.join("; "))]
    Unreachable {
        /// What was needed.
        kind: ChannelKind,
        /// The peer.
        peer: u32,
        /// What each transport of the kind says, by name.
        reasons: Vec<String>,
    },
    /// A peer's buffer does not lie inside the memory that it offered.
    #[error(
        "cannot open a buffer of rank {peer}: saw {bytes} bytes at offset {offset}, allowed {length} bytes of region {region}"
    )]
    Outside {
        /// The owner.
        peer: u32,
        /// The region.
        region: u64,
        /// Where the buffer begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
        /// How long the region is.
        length: u64,
    },
    /// The device could not map or export memory.
    #[error(transparent)]
    Hal(#[from] HalError),
}
