//! What a device can do, as data.

/// What a device has wired, and its limits.
///
/// `true` means that the operations work; `false` that they answer [`crate::HalError::Unsupported`]. The
/// conformance suite proves both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caps {
    /// Other processes can map exported memory ([`crate::Memory::export`], [`crate::Device::import`]).
    pub peer_mapping: bool,
    /// Exported memory can never shrink, so that no peer can make an access to it fault; and
    /// [`crate::Device::import`] refuses memory that could.
    pub sealed_handles: bool,
    /// The CPU reads and writes the device's memory at its address. Without it, only copies and kernels do, but for
    /// [`crate::Device::pinned`] memory.
    pub host_access: bool,
    /// Streams run [`crate::Task`]s ([`crate::Stream::submit`]).
    pub tasks: bool,
    /// Kernels can be loaded ([`crate::Device::load`]).
    pub kernels: bool,
    /// Multicast groups can be made ([`crate::Device::multicast`]).
    pub multicast: bool,
    /// Memory of another process can be read and written by its address, without a mapping
    /// ([`crate::Device::read_process`]). Whether a given process allows it is asked by trying.
    pub process_access: bool,
    /// Bytes of memory that this process may use, all of it counted (limits of the container included).
    pub memory_bytes: u64,
    /// Unit of allocation and of the addresses of allocations, in bytes; a power of two.
    pub page_bytes: u64,
    /// Processors that this process may keep busy at once, at least 1: affinity and container quota on the host,
    /// multiprocessors on a GPU.
    pub cores: u32,
}
