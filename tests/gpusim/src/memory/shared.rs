//! Physical memory: an anonymous file, so that it can be mapped several times, and by other processes.

use crate::abi::Answer;
use crate::status::Status;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

const NAME: &str = "antiphon-gpusim-";

/// Bytes that can be mapped anywhere, for as long as anybody holds or maps them.
pub struct Physical {
    pub file: File,
    pub bytes: usize,
    pub device: usize,
    /// The handle types it may be exported as.
    pub handle_types: u32,
}

impl Physical {
    pub fn new(bytes: usize, device: usize, handle_types: u32) -> Result<Self, Status> {
        // The name tells a process that imports the file whose memory it is.
        let name = CString::new(format!("{NAME}{device}")).map_err(|_| Status::UNKNOWN)?;
        // SAFETY: the name is a text that ends with a zero.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(Status::OPERATING_SYSTEM);
        }
        // SAFETY: the descriptor is fresh and nobody else's.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(bytes as u64).map_err(|_| Status::OUT_OF_MEMORY)?;
        Ok(Self { file, bytes, device, handle_types })
    }

    /// The device whose memory a file is, if it is any's.
    pub fn owner(file: &File) -> Option<usize> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        let text = link.to_string_lossy();
        let (_, device) = text.split_once("memfd:")?.1.split_once(NAME)?;
        device.split_whitespace().next()?.parse().ok()
    }

    /// Takes over a file that another process made.
    pub fn adopt(file: File, device: usize, handle_types: u32) -> Result<Self, Status> {
        let bytes = file.metadata().map_err(|_| Status::OPERATING_SYSTEM)?.len() as usize;
        Ok(Self { file, bytes, device, handle_types })
    }

    /// What tells this memory from all other: the file's number.
    pub fn identity(&self) -> Result<u64, Status> {
        self.file.metadata().map(|data| data.ino()).map_err(|_| Status::OPERATING_SYSTEM)
    }

    /// Maps everything where the system likes.
    pub fn map(&self) -> Result<u64, Status> {
        map(None, self.bytes, Some((&self.file, 0)), true)
    }

    /// Maps a part at a reserved address; nobody may touch it yet.
    pub fn map_at(&self, address: u64, offset: usize, bytes: usize) -> Answer {
        map(Some(address), bytes, Some((&self.file, offset)), false).map(drop)
    }
}

/// Addresses with nothing behind them.
pub fn reserve(bytes: usize) -> Result<u64, Status> {
    map(None, bytes, None, false)
}

/// Takes what is behind reserved addresses away, and keeps them reserved.
pub fn vacate(address: u64, bytes: usize) -> Answer {
    map(Some(address), bytes, None, false).map(drop)
}

/// Gives addresses back to the system.
pub fn unmap(address: u64, bytes: usize) -> Answer {
    // SAFETY: the callers pass only ranges that this module mapped and that their registry forgets with this call;
    // that no kernel or copy still uses them is the application's part.
    let code = unsafe { libc::munmap(address as *mut libc::c_void, bytes) };
    if code == 0 { Ok(()) } else { Err(Status::OPERATING_SYSTEM) }
}

/// Says whether mapped addresses may be touched.
pub fn protect(address: u64, bytes: usize, readable: bool, writable: bool) -> Answer {
    let read = if readable { libc::PROT_READ } else { 0 };
    let write = if writable { libc::PROT_WRITE } else { 0 };
    // SAFETY: the range is one that this module mapped, so only the application's accesses are concerned.
    let code = unsafe { libc::mprotect(address as *mut libc::c_void, bytes, read | write) };
    if code == 0 { Ok(()) } else { Err(Status::OPERATING_SYSTEM) }
}

fn map(
    at: Option<u64>,
    bytes: usize,
    file: Option<(&File, usize)>,
    open: bool,
) -> Result<u64, Status> {
    let access = if open { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    let place = if at.is_some() { libc::MAP_FIXED } else { 0 };
    let (kind, fd, offset) = match file {
        Some((file, offset)) => (libc::MAP_SHARED, file.as_raw_fd(), offset),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0),
    };
    // SAFETY: with no address the system picks unused ones; a fixed address lies in a range that this module
    // reserved, which is what the callers check in their registry.
    let address = unsafe {
        libc::mmap(
            at.unwrap_or(0) as *mut libc::c_void,
            bytes,
            access,
            kind | place,
            fd,
            offset as libc::off_t,
        )
    };
    if address == libc::MAP_FAILED { Err(Status::OUT_OF_MEMORY) } else { Ok(address as u64) }
}
