//! Multicast: one address whose stores reach the memory of every member.

use crate::driver::Backend;
use crate::error::HalError;
use crate::memory::{Memory, MemoryHandle};
use std::fmt;
use std::sync::Arc;

/// A multicast group of devices.
///
/// One device makes it and exports it, the others import it; when all have ([`crate::Device::multicast`],
/// [`crate::Device::import_multicast`]), every member binds memory of its own; when all have done that, too, each
/// may use its mapping. The caller sees to both "when all have".
pub trait Multicast: Send + Sync + fmt::Debug {
    /// The backend of the device that made or imported it.
    fn backend(&self) -> Backend;

    /// Bytes that every member binds.
    fn bytes(&self) -> u64;

    /// What the other members need to take part.
    fn export(&self) -> Result<MemoryHandle, HalError>;

    /// Binds the beginning of this member's `memory`, allocated by the device that made or imported the group, and
    /// maps the group: stores to the result reach every member's memory. The memory stays bound, and is kept, while
    /// the result lives.
    fn bind(&self, memory: &Arc<dyn Memory>) -> Result<Arc<dyn Memory>, HalError>;
}
