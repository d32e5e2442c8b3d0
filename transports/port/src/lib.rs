//! Port channels: requests that are carried out over a wire, by whoever makes progress.
//!
//! A [`Wire`] moves bytes into a peer's registered memory and signals afterwards. Four are built in or shipped: copies
//! between mapped memories, of neighbours ([`LocalWire`]) and of other ranks of the machine ([`SharedWire`]), TCP, and RDMA as a plugin;
//! others come as plugins too, by a C ABI.

mod error;
pub mod fifo;
mod local;
pub mod plugin;
pub mod proxy;
mod shared;
pub mod tcp;
pub mod wire;

/// For fuzzers and tests alone.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::tcp::fuzzing::{wire_address, wire_frame, wire_handshake, wire_traffic};
}

pub use error::WireError;
pub use local::{LocalWire, MappedRegions};
pub use proxy::{Attended, Driving};
pub use shared::{SharedRegions, SharedWire};
pub use tcp::TcpDriver;
pub use wire::{
    Keep, Link, Opening, Posted, Registration, Settings, Unit, Wire, WireDriver, Write,
};
