//! Multicast: one address whose stores reach the memory of every member.

use crate::driver::Backend;
use crate::error::HalError;
use crate::memory::{Memory, MemoryHandle};
use std::fmt;
use std::sync::Arc;

/// A multicast group of devices.
///
/// One device makes it and exports it; every member imports it and binds memory of its own; when all have, each
/// may use its mapping.
pub trait Multicast: Send + Sync + fmt::Debug {
    /// The backend of the device that made or imported it.
    fn backend(&self) -> Backend;

    /// Bytes that every member binds.
    fn bytes(&self) -> u64;

    /// What the other members need to take part.
    fn export(&self) -> Result<MemoryHandle, HalError>;

    /// Binds this member's `memory` and maps the group: stores to the result reach every member's memory.
    fn bind(&self, memory: &Arc<dyn Memory>) -> Result<Arc<dyn Memory>, HalError>;
}
