//! Memory, and the handles by which other processes map it.

use crate::driver::Backend;
use crate::error::HalError;
pub use crate::handle::MemoryHandle;
use std::fmt;

/// A mapped allocation: this process's own, or a peer's that was imported.
///
/// The mapping lives until the last `Arc` is dropped. The bytes are shared with every process that mapped the
/// same handle, so they are reached through raw pointers only, and whoever reads and writes them at the same time
/// must order the accesses with atomics or signals.
pub trait Memory: Send + Sync + fmt::Debug {
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

    /// What a peer needs to map the same bytes.
    fn export(&self) -> Result<MemoryHandle, HalError>;

    /// What a peer on another machine of the same NVLink domain needs to map the same bytes.
    fn export_fabric(&self) -> Result<MemoryHandle, HalError> {
        let op = "export memory as a fabric handle";
        Err(HalError::Unsupported { op, backend: self.backend() })
    }
}
