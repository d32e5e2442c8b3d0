//! Memory: a registry of every range of addresses that means something to the driver.

mod attributes;
mod device;
mod host;
mod ipc;
mod multicast;
mod registry;
mod shared;
mod virtual_memory;

pub use multicast::antiphon_gpusim_members;
pub use registry::{covered, is_known};
