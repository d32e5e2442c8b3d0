//! What a device can do, as data.

use crate::pci::PciAddress;
use crate::uuid::DeviceUuid;

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
    /// Launches can promise that their blocks run at the same time ([`crate::Kernel::launch_cooperative`]).
    pub cooperative: bool,
    /// Multicast groups can be made ([`crate::Device::multicast`]).
    pub multicast: bool,
    /// Ranges of memory can be given to network cards as descriptors ([`crate::Memory::export_dma_buf`]).
    pub dma_buf: bool,
    /// What a network card has written to the device's memory is there for its kernels and copies once the host has seen
    /// something that the card wrote later. Without it, data must not be written past the host.
    pub ordered_network_writes: bool,
    /// Where the device is on the machine's buses; `None` for the host, and where the driver does not tell.
    pub pci: Option<PciAddress>,
    /// What tells the device from all others; `None` for the host, and where the driver does not tell or is not asked.
    pub uuid: Option<DeviceUuid>,
    /// The other devices of the backend that this process sees, in the order of their numbers. Empty where a device
    /// has no other beside it.
    pub peers: Vec<PeerLink>,
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

/// What a device reaches of another one's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerLink {
    /// The number of the other device ([`crate::Driver::open`]).
    pub index: u32,
    /// Where it is on the machine's buses; `None` where the driver does not tell.
    pub pci: Option<PciAddress>,
    /// What tells it from all others; `None` as of [`Caps::uuid`].
    pub uuid: Option<DeviceUuid>,
    /// Kernels of this device read and write the other's memory, once it is imported.
    pub access: bool,
    /// Atomic operations of this device's kernels on the other's memory are single steps for all devices. So it is
    /// over NVLink and xGMI, and not over PCIe.
    pub atomics: bool,
    /// The driver's order of such links: 0 is the fastest. Only links of one machine compare.
    pub rank: u32,
}
