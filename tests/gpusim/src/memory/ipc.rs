//! Classic IPC: a handle of 64 bytes by which another process maps an allocation.
//!
//! The handle names the process, its descriptor of the allocation's file and the file's number; the other process
//! opens the file through `/proc`. So nothing has a name in a file system, and nothing stays behind.

use super::registry::{self, Kind, Range};
use super::shared::{self, Physical};
use crate::abi::{Answer, Out};
use crate::context;
use crate::status::Status;
use crate::stream::capture;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often this process has mapped memory of others.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// How often this process has mapped memory of others by IPC handles, for tests.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_gpusim_opened() -> u64 {
    OPENED.load(Ordering::Relaxed)
}

const MAGIC: u64 = u64::from_le_bytes(*b"APHNIPC1");

/// A `CUipcMemHandle`: 64 bytes that the application only carries.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Handle([u8; 64]);

/// What the bytes say.
struct Named {
    process: u32,
    descriptor: i32,
    inode: u64,
    bytes: u64,
}

impl Handle {
    fn of(named: &Named) -> Self {
        let words =
            [MAGIC, named.process.into(), named.descriptor as u64, named.inode, named.bytes];
        let mut handle = [0; 64];
        for (place, word) in handle.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Self(handle)
    }

    fn read(&self) -> Option<Named> {
        let word = |k: usize| Some(u64::from_le_bytes(self.0[8 * k..8 * k + 8].try_into().ok()?));
        let named = Named {
            process: word(1)?.try_into().ok()?,
            descriptor: word(2)? as i32,
            inode: word(3)?,
            bytes: word(4)?,
        };
        (word(0)? == MAGIC).then_some(named)
    }
}

/// Opens a file of another process by its descriptor there, and proves it is the one meant.
pub fn reach(process: u32, descriptor: i32, inode: u64) -> Result<File, Status> {
    let path = format!("/proc/{process}/fd/{descriptor}");
    let file = File::options().read(true).write(true).open(path);
    let file = file.map_err(|_| Status::INVALID_HANDLE)?;
    let data = file.metadata().map_err(|_| Status::OPERATING_SYSTEM)?;
    if data.ino() == inode { Ok(file) } else { Err(Status::INVALID_HANDLE) }
}

/// Maps what a handle of another process names.
pub fn open(out: Out<u64>, handle: Handle) -> Answer {
    let context = context::current()?;
    let handle = handle.read().ok_or(Status::INVALID_VALUE)?;
    if handle.process == std::process::id() {
        // As the real call: a process cannot open what it exported itself.
        return Err(Status::INVALID_CONTEXT);
    }
    let reopened = registry::change(|range| match &mut range.kind {
        Kind::Opened(physical, count)
            if physical.identity() == Ok(handle.inode) && range.device == context.device =>
        {
            *count += 1;
            Some(range.base)
        }
        _ => None,
    });
    if let Some(base) = reopened {
        return out.set(base);
    }
    let file = reach(handle.process, handle.descriptor, handle.inode)?;
    let physical = Physical::adopt(file, context.device, 0)?;
    let bytes = usize::try_from(handle.bytes).ok().filter(|bytes| *bytes <= physical.bytes);
    let bytes = bytes.ok_or(Status::INVALID_VALUE)?;
    let (base, mapped) = (physical.map()?, physical.bytes);
    OPENED.fetch_add(1, Ordering::Relaxed);
    let kind = Kind::Opened(Arc::new(physical), 1);
    registry::add(Range::new(&context, base, bytes, mapped, kind));
    out.set(base)
}

driver_calls! {
    fn cuIpcGetMemHandle(out: Out<Handle>, address: u64) {
        context::current()?;
        let range = registry::find(address).ok_or(Status::INVALID_VALUE)?;
        // As the real call: only what cuMemAlloc made, not virtual memory management, nor host memory.
        let Kind::Device(physical) = &range.kind else {
            return Err(Status::INVALID_VALUE);
        };
        out.set(Handle::of(&Named {
            process: std::process::id(),
            descriptor: physical.file.as_raw_fd(),
            inode: physical.identity()?,
            bytes: range.bytes as u64,
        }))
    }

    fn cuIpcOpenMemHandle_v2(out: Out<u64>, handle: Handle, _flags: u32) {
        crate::stream::may_finish_device(context::current()?.device, "open");
        open(out, handle)
    }

    fn cuIpcCloseMemHandle(address: u64) {
        let context = context::current()?;
        capture::refuse()?;
        let left = registry::change(|range| match &mut range.kind {
            Kind::Opened(_, count) if range.base == address => {
                *count -= 1;
                Some(*count)
            }
            _ => None,
        });
        if left.ok_or(Status::INVALID_VALUE)? == 0 {
            crate::stream::finish_device(context.device);
            let range = registry::take(address, |range| matches!(range.kind, Kind::Opened(..)));
            let range = range.ok_or(Status::INVALID_VALUE)?;
            shared::unmap(range.base, range.mapped)?;
        }
        Ok(())
    }
}
