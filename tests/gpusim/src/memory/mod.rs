//! Memory: a registry of every range of addresses that means something to the driver.

pub mod attributes;
pub mod device;
pub mod host;
pub mod ipc;
mod multicast;
mod registry;
mod shared;
pub mod virtual_memory;

pub use multicast::antiphon_gpusim_members;
pub use registry::{Rights, allowed, covered, device_of, is_known, rights_at};
