//! Host memory: shared files, their mappings, and the table of what is mapped where.

use crate::driver::Backend;
use crate::error::HalError;
use crate::handle::Home;
use crate::home::{Exported, mapping_number};
use crate::host::driver::DEVICE_NAME;
use crate::id::next_id;
use crate::memory::{Memory, MemoryHandle};
use crate::ranges::Ranges;
use rustix::fs::{self, FallocateFlags, FileType, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Mappings up to this many bytes get their pages at once: faulting them in one by one inside the first collective
/// would cost more than this does, while doing it for larger ones delays and commits memory that may stay unused.
const PREFAULT_LIMIT: usize = 64 << 20;
/// How many bytes of a file are reserved at once. A signal that interrupts the call undoes it (since Linux 6.18 the call
/// finishes), and signals that come again and again, such as a profiler's, must leave time for one call.
const RESERVED: u64 = 8 << 20;
/// From this many bytes on, huge pages are asked for.
const HUGE_PAGE: usize = 2 << 20;

/// What files host memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// `memfd_create`, with the size sealed.
    Sealed,
    /// A nameless file in the file system of POSIX shared memory. Its size cannot be sealed.
    Posix,
}

impl FileKind {
    /// Makes a file of `bytes` zero bytes (a multiple of the page size).
    pub(super) fn create(self, bytes: u64) -> Result<OwnedFd, Errno> {
        // Beyond it the kernel ends a process that does not expect the signal.
        if getrlimit(Resource::Fsize).current.is_some_and(|most| bytes > most) {
            return Err(Errno::FBIG);
        }
        match self {
            FileKind::Sealed => {
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
                // Kernels from 6.3 on want to be told that it never holds a program; older ones do not know how.
                let file = fs::memfd_create("antiphon", flags | MemfdFlags::NOEXEC_SEAL)
                    .or_else(|_| fs::memfd_create("antiphon", flags))?;
                fs::ftruncate(&file, bytes)?;
                // Not only no shrinking: that no peer may add a seal keeps the memory writable for all.
                fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
                Ok(file)
            }
            FileKind::Posix => {
                // No name at all instead of an unguessable one that is removed: nobody else can open it, and a
                // process killed at the wrong moment leaves nothing behind.
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
                let file = fs::open("/dev/shm", flags, Mode::RUSR | Mode::WUSR)?;
                // The file system has a size limit; reserving the pages turns a later fault into an error now.
                for at in (0..bytes).step_by(RESERVED as usize) {
                    let piece = RESERVED.min(bytes - at);
                    retry_on_intr(|| fs::fallocate(&file, FallocateFlags::empty(), at, piece))?;
                }
                Ok(file)
            }
        }
    }
}

/// A mapped range, unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    address: NonNull<c_void>,
    bytes: usize,
}

impl Mapping {
    /// Maps the first `bytes` bytes (not 0) of `file`, shared.
    fn new(file: impl AsFd, bytes: usize) -> Result<Self, Errno> {
        // SAFETY: a null hint lets the kernel choose a range that nothing else uses.
        let address = unsafe {
            mm::mmap(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        let address = NonNull::new(address).ok_or(Errno::NOMEM)?;
        Ok(Mapping { address, bytes })
    }

    /// Asks for huge pages and for the pages themselves, each where the size makes it worth while. Fails only
    /// where there is no memory for the pages.
    fn prepare(&self) -> Result<(), Errno> {
        let advise = |advice| {
            // SAFETY: the range is this mapping, and neither advice changes what it holds.
            unsafe { mm::madvise(self.address.as_ptr(), self.bytes, advice) }
        };
        if self.bytes >= HUGE_PAGE {
            // Refused where the kernel has none for shared memory: then there are none.
            let _ = advise(Advice::LinuxHugepage);
        }
        if self.bytes > PREFAULT_LIMIT {
            return Ok(());
        }
        populated(advise(Advice::LinuxPopulateWrite))
    }
}

/// What asking for the pages of a mapping came to: a failure where there is no memory for them.
fn populated(answer: Result<(), Errno>) -> Result<(), Errno> {
    match answer {
        Err(error @ (Errno::NOMEM | Errno::FAULT)) => Err(error),
        // Kernels before 5.14 do not know it; the pages then come one by one, as they are touched.
        _ => Ok(()),
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and is unmapped nowhere else; each `HostMemory` over it owns a part of it, and
        // users hold theirs for as long as they use the addresses.
        let result = unsafe { mm::munmap(self.address.as_ptr(), self.bytes) };
        debug_assert!(result.is_ok(), "cannot unmap {self:?}: {result:?}");
    }
}

// SAFETY: a mapping is an address range of the process, not of a thread; `Mapping` itself never reads or writes it.
unsafe impl Send for Mapping {}
// SAFETY: as above; through a shared reference one can only learn the address.
unsafe impl Sync for Mapping {}

/// A file that this process has mapped: once, however many memories of its ranks it is in.
#[derive(Debug)]
struct Backing {
    /// Its [number](mapping_number) in this process.
    number: u64,
    mapping: Mapping,
    /// The descriptor of a file that this process made. Only its own process passes a file on.
    descriptor: Option<Arc<OwnedFd>>,
}

/// The files that this process has passed on.
static EXPORTED: Exported<Backing> = Exported::new();

impl Backing {
    /// Maps the first `bytes` bytes (not 0) of `file`.
    fn new(
        file: BorrowedFd<'_>,
        bytes: usize,
        descriptor: Option<Arc<OwnedFd>>,
    ) -> Result<Arc<Self>, Errno> {
        let mapping = Mapping::new(file, bytes)?;
        mapping.prepare()?;
        Ok(Arc::new(Backing { number: mapping_number(), mapping, descriptor }))
    }
}

/// The memory of a host device by address.
pub(super) type Table = Ranges<HostMemory>;

/// An allocation or import of a host device.
#[derive(Debug)]
pub(super) struct HostMemory {
    id: u64,
    bytes: u64,
    backing: Arc<Backing>,
    table: Arc<Table>,
}

impl HostMemory {
    /// Allocates `bytes` of zeroed memory and enters it in `table`.
    pub(super) fn allocate(
        table: &Arc<Table>,
        kind: FileKind,
        bytes: u64,
        limit: u64,
    ) -> Result<Arc<Self>, HalError> {
        let failed = |error| not_allocated(bytes, kind, error);
        if bytes == 0 {
            return Err(HalError::Invalid {
                what: "allocate host memory",
                saw: "0 bytes".to_owned(),
                allowed: "1 or more".to_owned(),
                cure: "allocate nothing where nothing is needed",
            });
        }
        // The kernel gives address space for more than there is, and ends the process when the pages are touched.
        if bytes > limit {
            return Err(out_of_memory(bytes, format!("this process may use {limit} in all")));
        }
        let mapped = page_rounded(bytes).ok_or_else(|| failed(Errno::FBIG))?;
        let file = Arc::new(kind.create(mapped as u64).map_err(failed)?);
        let descriptor = Some(Arc::clone(&file));
        let backing = Backing::new(file.as_fd(), mapped, descriptor).map_err(failed)?;
        let memory = HostMemory::of(table, bytes, backing);
        table.enter(&memory);
        Ok(memory)
    }

    /// Maps a peer's file and enters it in `table`; a file that this process exported is mapped already. The peer is not trusted:
    /// a file by which an access could fault later is refused, unless `unsealed` says that this machine's files have sizes that
    /// may change.
    pub(super) fn import(
        table: &Arc<Table>,
        (descriptor, home): (&Arc<OwnedFd>, Option<Home>),
        bytes: u64,
        unsealed: bool,
    ) -> Result<Arc<Self>, HalError> {
        let refused = |saw: String, allowed: String, cure| HalError::Invalid {
            what: "import host memory",
            saw,
            allowed,
            cure,
        };
        let failed = |error| not_imported(bytes, error);
        if let Some(backing) = home.and_then(|home| EXPORTED.find(home))
            && (1..=backing.mapping.bytes as u64).contains(&bytes)
        {
            return Ok(HostMemory::of(table, bytes, backing));
        }
        // The seals come before the size: once they are there, the size that is seen next is final.
        let sealed =
            fs::fcntl_get_seals(&**descriptor).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !sealed && !unsealed {
            return Err(refused(
                "a file that can shrink".to_owned(),
                "a file sealed against it".to_owned(),
                "let every process of the node use memfd_create, or none",
            ));
        }
        let status = fs::fstat(&**descriptor).map_err(failed)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(refused(
                "a descriptor of something else".to_owned(),
                "one of a shared-memory file".to_owned(),
                "pass the descriptor that was exported",
            ));
        }
        let available = u64::try_from(status.st_size).unwrap_or(0);
        if bytes == 0 || bytes > available {
            return Err(refused(
                format!("{bytes} bytes"),
                format!("1 to {available}, the size of the file"),
                "run the same version of Antiphon on every rank, and pass blob and descriptor together",
            ));
        }
        let mapped = page_rounded(bytes).ok_or_else(|| failed(Errno::FBIG))?;
        let backing = Backing::new(descriptor.as_fd(), mapped, None).map_err(failed)?;
        let memory = HostMemory::of(table, bytes, backing);
        table.enter(&memory);
        Ok(memory)
    }

    fn of(table: &Arc<Table>, bytes: u64, backing: Arc<Backing>) -> Arc<Self> {
        Arc::new(HostMemory { id: next_id(), bytes, backing, table: Arc::clone(table) })
    }
}

// SAFETY: the mapping is the value's own, and lasts as long.
unsafe impl Memory for HostMemory {
    fn backend(&self) -> Backend {
        Backend::Host
    }

    fn address(&self) -> *mut u8 {
        self.backing.mapping.address.as_ptr().cast()
    }

    fn len(&self) -> u64 {
        self.bytes
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn export(&self) -> Result<MemoryHandle, HalError> {
        let Some(descriptor) = &self.backing.descriptor else {
            return Err(HalError::NotShareable {
                why: "another process allocated it".to_owned(),
                cure: "let the process that allocated it export it",
            });
        };
        let (descriptor, bytes) = (Arc::clone(descriptor), self.bytes);
        let home = Some(EXPORTED.enter(self.backing.number, &self.backing));
        Ok(MemoryHandle::SharedMemory { descriptor, home, bytes })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // Out of the table before the range is unmapped (the fields are dropped after this): the next mapping may
        // get the same address.
        self.table.remove(self);
    }
}

fn out_of_memory(bytes: u64, why: String) -> HalError {
    HalError::OutOfMemory { bytes, device: DEVICE_NAME.to_owned(), why }
}

/// What the system means that may not lock what it maps, of a process that locks all of its memory.
const MOST_LOCKED: &str = "this process, which locks its memory, may lock no more (`ulimit -l`)";

/// Why there are no `bytes` of memory of a kind.
fn not_allocated(bytes: u64, kind: FileKind, error: Errno) -> HalError {
    match error {
        Errno::NOSPC if kind == FileKind::Posix => {
            let why = format!(
                "the file system at /dev/shm, which serves where memfd_create is not permitted, is full ({error})"
            );
            out_of_memory(bytes, why)
        }
        Errno::NOMEM | Errno::NOSPC | Errno::FAULT => {
            out_of_memory(bytes, format!("the system has none left ({error})"))
        }
        Errno::AGAIN => out_of_memory(bytes, MOST_LOCKED.to_owned()),
        Errno::FBIG => out_of_memory(bytes, "no file may be that long (`ulimit -f`)".to_owned()),
        Errno::MFILE | Errno::NFILE => HalError::system(
            "allocate host memory (each allocation holds a descriptor: free some, or raise the limit, \
             `ulimit -n`)",
            error,
        ),
        error => HalError::system(format!("allocate {bytes} bytes of host memory"), error),
    }
}

/// Why this process cannot map `bytes` bytes of another one's memory.
fn not_imported(bytes: u64, error: Errno) -> HalError {
    let cure = match error {
        Errno::NOMEM | Errno::NOSPC | Errno::FAULT => {
            "; free memory, or raise the limits on it (`ulimit -v`, vm.max_map_count, the control group's)".to_owned()
        }
        Errno::AGAIN => format!("; {MOST_LOCKED}"),
        _ => String::new(),
    };
    HalError::system(format!("map {bytes} bytes of another process's memory{cure}"), error)
}

/// `bytes` rounded up to whole pages, if a mapping can be that long.
fn page_rounded(bytes: u64) -> Option<usize> {
    let rounded =
        usize::try_from(bytes).ok()?.checked_next_multiple_of(rustix::param::page_size())?;
    isize::try_from(rounded).is_ok().then_some(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_full_is_named() {
        let said = |kind, error| not_allocated(4096, kind, error).to_string();
        assert!(said(FileKind::Posix, Errno::NOSPC).contains("/dev/shm"));
        for (kind, error) in [(FileKind::Posix, Errno::NOMEM), (FileKind::Sealed, Errno::NOSPC)] {
            assert!(said(kind, error).contains("the system has none left"));
        }
        assert!(said(FileKind::Sealed, Errno::AGAIN).contains("`ulimit -l`"));
    }

    #[test]
    fn who_cannot_map_a_peers_memory_hears_what_it_lacks() {
        for (error, cure) in [
            (Errno::NOMEM, "`ulimit -v`"),
            (Errno::NOSPC, "free memory"),
            (Errno::FAULT, "free memory"),
            (Errno::AGAIN, "`ulimit -l`"),
        ] {
            let said = not_imported(4096, error).to_string();
            assert!(said.contains(cure) && said.contains("4096 bytes"), "{said}");
        }
    }

    /// A page that is not there when it is touched ends the process by a signal.
    #[test]
    fn pages_that_there_is_no_memory_for_are_an_error_before_they_are_touched() {
        for error in [Errno::NOMEM, Errno::FAULT] {
            assert_eq!(populated(Err(error)), Err(error));
        }
        for answer in [Ok(()), Err(Errno::INVAL), Err(Errno::NOSYS)] {
            assert_eq!(populated(answer), Ok(()), "{answer:?}");
        }
    }
}
