//! The hardware abstraction layer: what a device is, behind object-safe traits.
//!
//! | noun | what it is |
//! |---|---|
//! | [`Driver`] | finds and opens the devices of one [`Backend`] |
//! | [`Device`] | allocates and maps memory, makes streams and events, loads kernels |
//! | [`Memory`] | a mapped allocation; [`MemoryHandle`] is what a peer needs to map it as well |
//! | [`Stream`] | an ordered queue of work; on the host the work is [`Task`]s |
//! | [`Event`] | a point in a stream that others wait for |
//! | [`Kernel`] | device code that has been loaded |
//! | [`Multicast`] | an address whose stores reach every member of a group |
//! | [`Caps`] | what a device has wired, with limits |
//!
//! # Contract
//!
//! Everything above holds `Arc<dyn Device>` and is not generic over backends. All traits are `Send + Sync`: any
//! thread may call any method at any time unless the method says otherwise. An operation a backend lacks returns
//! [`HalError::Unsupported`]; a driver that is not there returns [`HalError::Unavailable`] with the reason and the
//! cure. [`Caps`] advertises exactly what is wired, and the conformance suite in `tests/` proves each entry.
//!
//! Callers validate plans and sizes; a backend checks what only it can know (sizes of a peer's memory, limits).
//!
//! A process that uses this crate must not call `fork` and go on using it in the child: threads and locks do not
//! survive there. `fork` followed by `exec` is fine; every descriptor is close-on-exec.
#![warn(missing_docs)]

mod cache_folder;
mod caps;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod device_name;
mod driver;
mod error;
mod event;
#[cfg(any(feature = "cuda", feature = "rocm"))]
mod gpu;
mod handle;
mod home;
pub mod host;
mod id;
mod kernel;
mod log_line;
mod memory;
mod multicast;
mod parts;
mod pci;
mod ranges;
#[cfg(feature = "rocm")]
pub mod rocm;
mod stream;
mod task;
mod uuid;

pub use antiphon_kernels as kernels;
pub use cache_folder::{cache_folder, replace_file};
pub use caps::{Caps, PeerLink};
pub use device::Device;
pub use device_name::DeviceName;
pub use driver::{Backend, DeviceInfo, Driver, driver, drivers};
pub use error::{HalError, TaskError};
pub use event::Event;
pub use id::next_id;
pub use kernel::{Kernel, KernelAttributes, KernelCode, KernelSource, LaunchShape};
pub use log_line::log_line;
pub use memory::{DmaBuf, Memory, MemoryHandle};
pub use multicast::Multicast;
pub use pci::{NoPciAddress, PciAddress};
pub use stream::{Stream, Submitted};
pub use task::{Effort, Task, TaskState, guarded};
pub use uuid::DeviceUuid;
