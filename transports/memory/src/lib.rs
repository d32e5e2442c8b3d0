//! Memory channels: how ranks of one machine reach each other's buffers.
//!
//! Memory that Antiphon allocated is mapped by the peers and used as it is. Plain memory of another process is
//! reached through the kernel where the system permits it ([`process`]); where it does not, the executor stages it.

pub mod process;
mod shared;

pub use shared::SharedMemory;
