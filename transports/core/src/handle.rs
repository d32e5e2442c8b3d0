//! Offers, remote buffers, and the handles that engines use.

use antiphon_hal::Memory;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What a rank sends so that peers reach one of its memories.
#[derive(Debug)]
pub struct Offer {
    /// The region's number: unique on its rank, never used again.
    pub region: u64,
    /// What the transport needs to know, as bytes.
    pub blob: Vec<u8>,
    /// The descriptors that go with it, in order: one for each piece of the memory, where its kind has any.
    pub descriptors: Vec<OwnedFd>,
}

/// Where a peer says that a buffer of its lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteBuffer {
    /// Inside memory that the peer offered.
    Region {
        /// The region's number.
        region: u64,
        /// Byte offset of the buffer in it.
        offset: u64,
        /// Bytes of the buffer.
        bytes: u64,
    },
    /// Plain memory of the peer's process.
    Plain {
        /// The address there.
        address: u64,
    },
}

/// How an engine reaches a buffer of a peer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Handle {
    /// Loads and stores at this address; `memory` keeps it mapped.
    Mapped {
        /// Where the buffer begins.
        address: *mut u8,
        /// The mapping; `None` for memory of this process that its owner keeps.
        memory: Option<Arc<dyn Memory>>,
    },
    /// Memory of another process, through the kernel.
    Process {
        /// The process.
        pid: u32,
        /// The address there.
        address: u64,
    },
}

// SAFETY: a handle is an address and what keeps it valid; whoever uses the address answers for the access.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}
