//! Access to the memory of other processes by address.

use crate::error::HalError;
use rustix::io::Errno;
use std::ffi::c_void;
use std::io;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the other process.
    Read,
    /// To the other process.
    Write,
}

/// Whether the kernel has the calls and this process may make them: it reads itself.
pub(super) fn is_permitted() -> bool {
    let source = [0x5au8; 8];
    let mut destination = [0u8; 8];
    // SAFETY: both are local arrays of 8 bytes, and `destination` is borrowed here alone.
    let result = unsafe {
        transfer(
            Direction::Read,
            std::process::id(),
            source.as_ptr().expose_provenance() as u64,
            destination.as_mut_ptr(),
            8,
        )
    };
    result.is_ok() && destination == source
}

/// Moves `bytes` between `local` and the address `remote` of process `process`.
///
/// # Safety
///
/// `local` must be mapped for `bytes` (writable for [`Direction::Read`]) and not touched by others meanwhile; the
/// other process must have given `remote` for writing, for [`Direction::Write`].
pub(super) unsafe fn transfer(
    direction: Direction,
    process: u32,
    remote: u64,
    local: *mut u8,
    bytes: u64,
) -> Result<(), HalError> {
    let what = || match direction {
        Direction::Read => format!("read {bytes} bytes at {remote:#x} of process {process}"),
        Direction::Write => format!("write {bytes} bytes at {remote:#x} of process {process}"),
    };
    let range_error = || HalError::system(what(), Errno::FAULT);
    let pid = libc::pid_t::try_from(process).map_err(|_| HalError::system(what(), Errno::SRCH))?;
    let mut left = usize::try_from(bytes).map_err(|_| range_error())?;
    let remote = usize::try_from(remote).map_err(|_| range_error())?;
    let mut done = 0;
    while left > 0 {
        let start = remote.checked_add(done).ok_or_else(range_error)?;
        let here = libc::iovec { iov_base: local.wrapping_add(done).cast(), iov_len: left };
        let there = libc::iovec {
            iov_base: std::ptr::without_provenance_mut::<c_void>(start),
            iov_len: left,
        };
        // SAFETY: both point at one valid iovec; the local one describes the rest of the caller's range, and the
        // kernel checks the remote one against the other process's mappings.
        let moved = unsafe {
            match direction {
                Direction::Read => libc::process_vm_readv(pid, &here, 1, &there, 1, 0),
                Direction::Write => libc::process_vm_writev(pid, &here, 1, &there, 1, 0),
            }
        };
        match usize::try_from(moved) {
            // The kernel never returns 0 for a non-empty range; ending here keeps the loop finite even so.
            Ok(0) => return Err(range_error()),
            Ok(moved) => {
                done += moved;
                left -= moved;
            }
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(HalError::system(what(), error));
                }
            }
        }
    }
    Ok(())
}
