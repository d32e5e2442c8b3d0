//! Passing memory on: to peers as handles, to network cards as buffers of the kernel.

use crate::cuda::conv;
use crate::cuda::device::Core;
use crate::cuda::foreign;
use crate::cuda::library::Code;
use crate::cuda::memory::{CudaMemory, Kind};
use crate::cuda::peers::STAGE;
use crate::cuda::vmm::Physical;
use crate::driver::Backend;
use crate::error::HalError;
use crate::memory::{DmaBuf, MemoryHandle};
use cudarc::driver::sys;
use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

/// That peers cannot map memory of some kind.
fn not_shareable(why: &str, cure: &'static str) -> HalError {
    HalError::NotShareable { why: why.to_owned(), cure }
}

/// Why memory cannot be passed on at all, if it cannot.
fn barred(memory: &CudaMemory) -> Option<HalError> {
    Some(match &memory.kind {
        Kind::Mapped { .. } | Kind::Foreign(_) => return None,
        Kind::Opened { .. } => not_shareable(
            "another process allocated it",
            "let the process that allocated it export it",
        ),
        Kind::Pinned => {
            not_shareable("it is pinned memory of the host", "allocate memory of the device")
        }
        Kind::Multicast { .. } => {
            not_shareable("it is the mapping of a multicast group", "export the group")
        }
    })
}

/// The handles of `memory`, in the order of their addresses.
pub(super) fn parts(memory: &CudaMemory) -> Result<Vec<MemoryHandle>, HalError> {
    let core = &memory.core;
    if !core.traits.caps.peer_mapping {
        return Err(HalError::Unsupported { op: "export memory", backend: Backend::Cuda });
    }
    if let Some(why) = barred(memory) {
        return Err(why);
    }
    let _entered = core.context.enter()?;
    match &memory.kind {
        Kind::Mapped { mapped, physicals } => {
            let mut left = memory.bytes;
            let parts = physicals.iter().zip(mapped.parts());
            parts
                .map(|(physical, &length)| {
                    let bytes = left.min(length as u64);
                    left -= bytes;
                    let descriptor = Arc::new(physical.export_descriptor()?);
                    Ok(MemoryHandle::Device { backend: Backend::Cuda, descriptor, bytes })
                })
                .collect()
        }
        Kind::Foreign(origin) => foreign::export(memory, origin),
        _ => Err(not_shareable("it is of a kind of its own", STAGE)),
    }
}

/// How many handles `memory` takes.
fn count(memory: &CudaMemory) -> usize {
    match &memory.kind {
        Kind::Mapped { physicals, .. } => physicals.len(),
        Kind::Foreign(origin) => origin.pieces.len(),
        _ => 1,
    }
}

/// The handle of `memory`, if one is enough.
pub(super) fn whole(memory: &CudaMemory) -> Result<MemoryHandle, HalError> {
    let count = count(memory);
    if count == 1
        && let Some(handle) = parts(memory)?.pop()
    {
        return Ok(handle);
    }
    Err(HalError::NotShareable {
        why: format!("it lies in {count} pieces, which takes as many handles"),
        cure: "export its parts",
    })
}

/// A fabric handle for `memory`.
pub(super) fn fabric(memory: &CudaMemory) -> Result<MemoryHandle, HalError> {
    let backend = Backend::Cuda;
    let op = "export memory as a fabric handle";
    match &memory.kind {
        Kind::Mapped { physicals, .. } if memory.core.traits.sharing.fabric => {
            let [physical] = &physicals[..] else { return Err(several(physicals.len())) };
            let _entered = memory.core.context.enter()?;
            let handle = physical.export_fabric()?;
            Ok(MemoryHandle::Fabric { backend, handle, bytes: memory.bytes })
        }
        _ => Err(HalError::Unsupported { op, backend }),
    }
}

fn several(count: usize) -> HalError {
    HalError::NotShareable {
        why: format!("it lies in {count} pieces"),
        cure: "allocate the memory by the device",
    }
}

/// The handle of physical memory that the application's allocator made, `bytes` of which are mapped. The context must
/// be current.
pub(super) fn physical(
    core: &Core,
    physical: &Physical,
    bytes: u64,
) -> Result<MemoryHandle, HalError> {
    let backend = Backend::Cuda;
    let sharing = physical.properties().as_ref().map(conv::sharing_of);
    if sharing.is_some_and(|sharing| !sharing.descriptor && sharing.fabric) {
        let handle = physical.export_fabric()?;
        return Ok(MemoryHandle::Fabric { backend, handle, bytes });
    }
    let unwilling = || HalError::NotShareable {
        why: format!(
            "the application's allocator made memory of {} that no process can import",
            core.name
        ),
        cure: "let the allocator ask for memory that can be exported as a file descriptor, or copy its bytes through \
               memory that the device allocated",
    };
    if sharing.is_some_and(|sharing| !sharing.descriptor) {
        return Err(unwilling());
    }
    match physical.export_descriptor() {
        Ok(descriptor) => {
            Ok(MemoryHandle::Device { backend, descriptor: Arc::new(descriptor), bytes })
        }
        // An older driver, which says so only now.
        Err(HalError::Vendor { code, .. }) if sharing.is_none() && refuses(code) => {
            Err(unwilling())
        }
        Err(error) => Err(error),
    }
}

/// Whether a driver answers `code` where memory cannot be passed on.
fn refuses(code: i64) -> bool {
    [Code::INVALID_VALUE, Code::INVALID_HANDLE, Code::NOT_SUPPORTED, Code::NOT_PERMITTED]
        .iter()
        .any(|refusal| i64::from(refusal.0) == code)
}

/// `bytes` bytes at `offset` of `memory`, for network cards.
pub(super) fn dma_buf(memory: &CudaMemory, offset: u64, bytes: u64) -> Result<DmaBuf, HalError> {
    let core = &memory.core;
    let what = "export CUDA memory for network cards";
    let Some(export) = core.context.api().range_handle.filter(|_| core.traits.caps.dma_buf) else {
        let op = "export memory for network cards";
        return Err(HalError::Unsupported { op, backend: Backend::Cuda });
    };
    if let Some(why) = barred(memory) {
        return Err(why);
    }
    if bytes == 0 || offset.checked_add(bytes).is_none_or(|end| end > memory.bytes) {
        return Err(HalError::Invalid {
            what,
            saw: format!("{bytes} bytes at offset {offset}"),
            allowed: format!("1 or more, within {}", memory.bytes),
            cure: "pass a range of the memory",
        });
    }
    let _entered = core.context.enter()?;
    if let Kind::Foreign(origin) = &memory.kind {
        foreign::check_alive(core, origin)?;
    }
    // The driver wants whole pages of the host, and every allocation has them to itself.
    let page = rustix::param::page_size() as u64;
    let address = memory.address + offset;
    let start = address - address % page;
    let length = (address + bytes).next_multiple_of(page) - start;
    let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    let mut descriptor: c_int = -1;
    // SAFETY: for this type of handle the driver writes an int, for which there is a valid place.
    let code = unsafe { export((&raw mut descriptor).cast(), start, length as usize, kind, 0) };
    if refuses(i64::from(code.0)) {
        let error = core.context.api().error(what, code);
        let why = format!("{} gives no buffer for it ({error})", core.name);
        return Err(HalError::NotShareable { why, cure: STAGE });
    }
    core.context.api().check(what, code)?;
    // SAFETY: the driver made the descriptor for us alone.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)
        .map_err(|error| HalError::system(what, error))?;
    Ok(DmaBuf { descriptor, offset: address - start })
}
