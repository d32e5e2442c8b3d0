//! The host as a device.

use crate::caps::Caps;
use crate::device::Device;
use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::host::driver::DEVICE_NAME;
use crate::host::event::HostEvent;
use crate::host::memory::{FileKind, HostMemory, Table};
use crate::host::process::{self, Direction};
use crate::host::stream::HostStream;
use crate::host::{caps, progress};
use crate::kernel::{Kernel, KernelSource};
use crate::memory::{Memory, MemoryHandle, check_host};
use crate::multicast::Multicast;
use crate::stream::Stream;
use rustix::io::Errno;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What the memory of a host device is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SharedMemory {
    /// Sealed memory files where the system permits them, otherwise POSIX shared memory.
    #[default]
    Automatic,
    /// Sealed memory files (`memfd_create`), or [`HalError::Unavailable`].
    Sealed,
    /// POSIX shared memory (nameless files in `/dev/shm`). The sizes of these files cannot be sealed, so that the
    /// processes which share them must trust each other not to truncate them.
    Posix,
}

/// How a host device is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// What its memory is made of.
    pub shared_memory: SharedMemory,
}

/// The host as a device. [`crate::Driver::open`] gives the process's own, with default options; others made here
/// are independent of it and do not find its memory.
#[derive(Debug)]
pub struct HostDevice {
    caps: Caps,
    kind: FileKind,
    table: Arc<Table>,
}

impl HostDevice {
    /// Sets up a device.
    pub fn new(options: Options) -> Result<Self, HalError> {
        let kind = match options.shared_memory {
            SharedMemory::Posix => FileKind::Posix,
            SharedMemory::Sealed => FileKind::Sealed,
            SharedMemory::Automatic => automatic(probe(FileKind::Sealed)),
        };
        probe(kind).map_err(|error| unavailable(kind, error))?;
        let caps = caps::probe(kind == FileKind::Sealed);
        Ok(HostDevice { caps, kind, table: Arc::default() })
    }

    fn unsupported<T>(&self, op: &'static str) -> Result<T, HalError> {
        Err(HalError::Unsupported { op, backend: Backend::Host })
    }

    fn check_process_access(&self, op: &'static str) -> Result<(), HalError> {
        if self.caps.process_access { Ok(()) } else { self.unsupported(op) }
    }
}

/// Whether the system lets this process make a page of a kind.
fn probe(kind: FileKind) -> Result<(), Errno> {
    kind.create(rustix::param::page_size() as u64).map(drop)
}

/// The kind that serves, given whether the system lets this process make sealed files. A process that lacks room, as it may for a
/// moment, takes no other kind for that: its peers have room, and could not map its files.
fn automatic(sealed: Result<(), Errno>) -> FileKind {
    match sealed {
        Ok(()) | Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOSPC) => FileKind::Sealed,
        Err(_) => FileKind::Posix,
    }
}

/// Why there is no memory of a kind, and what to do.
fn unavailable(kind: FileKind, error: Errno) -> HalError {
    let (what, cure) = match kind {
        FileKind::Sealed => (
            "sealed memory files",
            "permit memfd_create (a sandbox may forbid it), or use POSIX shared memory",
        ),
        FileKind::Posix => (
            "POSIX shared memory",
            "mount a writable tmpfs with free space at /dev/shm, or permit memfd_create",
        ),
    };
    let cure = match error {
        // Whichever kind it was.
        Errno::MFILE | Errno::NFILE => "raise the limit on open files (`ulimit -n`)",
        _ => cure,
    };
    HalError::Unavailable { what: what.to_owned(), why: error.to_string(), cure: cure.to_owned() }
}

// SAFETY: memory is looked up in the table of what is mapped, by all of its range.
unsafe impl Device for HostDevice {
    fn backend(&self) -> Backend {
        Backend::Host
    }

    fn index(&self) -> u32 {
        0
    }

    fn name(&self) -> &str {
        DEVICE_NAME
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(&self, bytes: u64) -> Result<Arc<dyn Memory>, HalError> {
        Ok(HostMemory::allocate(&self.table, self.kind, bytes, self.caps.memory_bytes)?)
    }

    fn pinned(&self, bytes: u64) -> Result<Arc<dyn Memory>, HalError> {
        self.allocate(bytes)
    }

    fn pin(&self, memory: &Arc<dyn Memory>) -> Result<Arc<dyn Memory>, HalError> {
        check_host(memory)?;
        Ok(Arc::clone(memory))
    }

    fn import(&self, handle: &MemoryHandle) -> Result<Arc<dyn Memory>, HalError> {
        let MemoryHandle::SharedMemory { descriptor, home, bytes } = handle else {
            return Err(HalError::Invalid {
                what: "import host memory",
                saw: format!("a handle of {}", handle.kind_name()),
                allowed: "one of shared memory".to_owned(),
                cure: "import it on a device of the backend that exported it",
            });
        };
        let unsealed = self.kind == FileKind::Posix;
        Ok(HostMemory::import(&self.table, (descriptor, *home), *bytes, unsealed)?)
    }

    fn find(&self, address: *const u8, bytes: u64) -> Option<(Arc<dyn Memory>, u64)> {
        let (memory, offset) = self.table.find(address.addr(), bytes)?;
        Some((memory, offset))
    }

    fn epoch_cell(&self) -> &AtomicU64 {
        self.table.epoch()
    }

    fn stream(&self) -> Result<Arc<dyn Stream>, HalError> {
        progress::start()?;
        Ok(Arc::new(HostStream::new()))
    }

    unsafe fn adopt_stream(&self, _raw: *mut c_void) -> Result<Arc<dyn Stream>, HalError> {
        self.unsupported("adopt a stream")
    }

    fn event(&self) -> Result<Arc<dyn Event>, HalError> {
        Ok(Arc::new(HostEvent::default()))
    }

    fn load(&self, _source: KernelSource<'_>) -> Result<Arc<dyn Kernel>, HalError> {
        self.unsupported("load a kernel")
    }

    fn multicast(&self, _members: u32, _bytes: u64) -> Result<Arc<dyn Multicast>, HalError> {
        self.unsupported("make a multicast group")
    }

    fn import_multicast(&self, _handle: &MemoryHandle) -> Result<Arc<dyn Multicast>, HalError> {
        self.unsupported("join a multicast group")
    }

    unsafe fn read_process(
        &self,
        process: u32,
        source: u64,
        destination: *mut u8,
        bytes: u64,
    ) -> Result<(), HalError> {
        self.check_process_access("read another process's memory")?;
        // SAFETY: the caller vouches for `destination`, as this method asks.
        unsafe { process::transfer(Direction::Read, process, source, destination, bytes) }
    }

    unsafe fn write_process(
        &self,
        process: u32,
        destination: u64,
        source: *const u8,
        bytes: u64,
    ) -> Result<(), HalError> {
        self.check_process_access("write another process's memory")?;
        // SAFETY: the caller vouches for both ranges, as this method asks; writing to the other process only
        // reads `source`.
        unsafe {
            process::transfer(Direction::Write, process, destination, source.cast_mut(), bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_may_not_make_memory_files_does_without() {
        for passing in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOSPC] {
            assert_eq!(automatic(Err(passing)), FileKind::Sealed, "{passing}");
        }
        for forbidden in [Errno::PERM, Errno::ACCESS, Errno::NOSYS, Errno::INVAL] {
            assert_eq!(automatic(Err(forbidden)), FileKind::Posix, "{forbidden}");
        }
        assert_eq!(automatic(Ok(())), FileKind::Sealed);
    }

    #[test]
    fn who_may_open_no_more_files_is_not_sent_to_mount_something() {
        for kind in [FileKind::Sealed, FileKind::Posix] {
            let said = |error| unavailable(kind, error).to_string();
            assert!(said(Errno::MFILE).ends_with("raise the limit on open files (`ulimit -n`)"));
            assert!(said(Errno::PERM).contains("memfd_create"));
        }
    }
}
