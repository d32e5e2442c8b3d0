//! Memory, and the handles by which other processes map it.

use crate::driver::Backend;
use crate::error::HalError;
pub use crate::handle::MemoryHandle;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Refuses memory that is not of the host's device where that is to be pinned.
pub(crate) fn check_host(memory: &Arc<dyn Memory>) -> Result<(), HalError> {
    if memory.backend() == Backend::Host {
        return Ok(());
    }
    Err(HalError::Invalid {
        what: "pin memory of the host",
        saw: format!("memory of {}", memory.backend().name()),
        allowed: "memory of the host's device".to_owned(),
        cure: "allocate it on the host's device",
    })
}

/// A mapped allocation: this process's own, or a peer's that was imported.
///
/// The mapping lives until the last `Arc` is dropped. The bytes are shared with every process that mapped the
/// same handle, so they are reached through raw pointers only, and whoever reads and writes them at the same time
/// must order the accesses with atomics or signals.
///
/// # Safety
/// Who implements it vouches that [`address`](Self::address), [`len`](Self::len) and [`id`](Self::id) always say the same, and that
/// as long as the value lives the bytes from the address on are mapped, for reads and writes by whoever may use the address.
pub unsafe trait Memory: Send + Sync + fmt::Debug {
    /// The backend of the device that mapped it.
    fn backend(&self) -> Backend;

    /// Where it is mapped in this process; a multiple of [`crate::Caps::page_bytes`], but for memory that the
    /// application allocated itself. Where [`crate::Caps::host_access`] is `false`, it is an address for kernels and
    /// copies alone.
    fn address(&self) -> *mut u8;

    /// Bytes asked for at allocation; the mapping may extend to the end of the page.
    fn len(&self) -> u64;

    /// Always `false`: nothing of zero length is ever allocated or imported.
    fn is_empty(&self) -> bool {
        false
    }

    /// A number no other memory of this process has had or will have, unlike the address.
    fn id(&self) -> u64;

    /// Whether it is memory that the application allocated itself, and may free at any time: the address must be
    /// asked for anew each time it is passed ([`crate::Device::find`]).
    fn is_borrowed(&self) -> bool {
        false
    }

    /// Whether it is [borrowed](Self::is_borrowed), and the application has freed it. Asks the driver, which may let that wait for
    /// kernels.
    fn is_freed(&self) -> bool {
        false
    }

    /// Whether other processes map it by a call that may wait for all kernels of their device, as with memory of `cudaMalloc`: a
    /// peer whose kernel waits for the mapping would wait for ever.
    fn is_legacy_ipc(&self) -> bool {
        false
    }

    /// What a peer needs to map the same bytes. Memory that no peer can map, or that takes more than one handle, is
    /// [`HalError::NotShareable`].
    fn export(&self) -> Result<MemoryHandle, HalError>;

    /// What a peer needs to map the same bytes: as [`export`](Self::export), also for memory that the application put
    /// together of several pieces, with a handle for each, in the order of their addresses. They belong together:
    /// [`crate::Device::import_parts`].
    fn export_parts(&self) -> Result<Vec<MemoryHandle>, HalError> {
        Ok(vec![self.export()?])
    }

    /// What a peer on another machine of the same NVLink domain needs to map the same bytes.
    fn export_fabric(&self) -> Result<MemoryHandle, HalError> {
        let op = "export memory as a fabric handle";
        Err(HalError::Unsupported { op, backend: self.backend() })
    }

    /// A descriptor by which a network card reads and writes the `bytes` bytes at `offset`. Needs [`crate::Caps::dma_buf`];
    /// memory that has no descriptor all the same is [`HalError::NotShareable`].
    fn export_dma_buf(&self, offset: u64, bytes: u64) -> Result<DmaBuf, HalError> {
        let _ = (offset, bytes);
        let op = "export memory for network cards";
        Err(HalError::Unsupported { op, backend: self.backend() })
    }
}

/// Device memory as a buffer of the kernel's dma-buf framework.
#[derive(Debug)]
#[non_exhaustive]
pub struct DmaBuf {
    /// The buffer; whoever registers it keeps it open until the registration is given back.
    pub descriptor: OwnedFd,
    /// Where in the buffer the bytes that were asked for begin: buffers start at pages.
    pub offset: u64,
}

impl DmaBuf {
    /// The bytes from `offset` on of the buffer `descriptor`.
    pub fn new(descriptor: OwnedFd, offset: u64) -> Self {
        DmaBuf { descriptor, offset }
    }
}
