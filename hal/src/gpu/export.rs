//! Passing memory on to peers, as handles.

use crate::error::HalError;
use crate::gpu::calls::{Address, IpcHandle};
use crate::gpu::code::Code;
use crate::gpu::core::Core;
use crate::gpu::memory::{GpuMemory, Kind};
use crate::gpu::peers::STAGE;
use crate::gpu::recording::Unrecorded;
use crate::gpu::vendor::{Context, Vendor, unsupported};
use crate::gpu::vmm::Physical;
use crate::gpu::{foreign, vmm};
use crate::handle::Home;
use crate::home::process_number;
use crate::memory::{DmaBuf, MemoryHandle};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// That peers cannot map memory of some kind.
pub(crate) fn not_shareable(why: &str, cure: &'static str) -> HalError {
    HalError::NotShareable { why: why.to_owned(), cure }
}

/// Why memory cannot be passed on at all, if it cannot for a reason that all vendors have.
pub(crate) fn barred<V: Vendor>(memory: &GpuMemory<V>) -> Option<HalError> {
    Some(match &memory.kind {
        Kind::Mapped(_) | Kind::Foreign(_) | Kind::Own(_) => return None,
        Kind::Opened { .. } => not_shareable(
            "another process allocated it",
            "let the process that allocated it export it",
        ),
        Kind::Pinned(_) | Kind::Registered(_) => {
            not_shareable("it is pinned memory of the host", "allocate memory of the device")
        }
    })
}

/// The handles of `memory`, in the order of their addresses.
pub(crate) fn parts<V: Vendor>(memory: &GpuMemory<V>) -> Result<Vec<MemoryHandle>, HalError> {
    if let Kind::Registered(registered) = &memory.kind {
        return registered.memory.export_parts();
    }
    let core = &memory.core;
    if !core.traits.caps.peer_mapping {
        return unsupported::<V, _>("export memory");
    }
    if let Some(why) = barred(memory) {
        return Err(why);
    }
    let _entered = match &memory.kind {
        Kind::Mapped(_) => vmm::enter::<V>(&core.context)?,
        _ => Some(core.context.enter()?),
    };
    let _unrecorded = Unrecorded::new(core.context.api());
    match &memory.kind {
        Kind::Mapped(mapping) => {
            let mut left = memory.bytes;
            let one = mapping.physicals.len() == 1;
            let home = one.then(|| V::process().exported.enter(mapping.number, mapping));
            let parts = mapping.physicals.iter().zip(mapping.mapped.parts());
            parts
                .map(|(physical, &length)| {
                    let bytes = left.min(length as u64);
                    left -= bytes;
                    by_descriptor(physical, home, bytes)
                })
                .collect()
        }
        Kind::Foreign(origin) => foreign::export(memory, origin),
        Kind::Own(own) => Ok(vec![V::export_own(memory, own)?]),
        Kind::Opened { .. } | Kind::Pinned(_) | Kind::Registered(_) => {
            unsupported::<V, _>("export memory")
        }
    }
}

/// The handle of `memory`, if one is enough.
pub(crate) fn whole<V: Vendor>(memory: &GpuMemory<V>) -> Result<MemoryHandle, HalError> {
    let count = match &memory.kind {
        Kind::Mapped(mapping) => mapping.physicals.len(),
        Kind::Foreign(origin) => origin.pieces.len(),
        _ => 1,
    };
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

/// The first `bytes` bytes of physical memory, as a descriptor.
fn by_descriptor<V: Vendor>(
    physical: &Physical<V>,
    home: Option<Home>,
    bytes: u64,
) -> Result<MemoryHandle, HalError> {
    let descriptor = Arc::new(physical.export_descriptor()?);
    Ok(MemoryHandle::Device { backend: V::BACKEND, descriptor, home, bytes })
}

/// The IPC handle of memory that the driver allocated at `address`. The context must be current.
pub(crate) fn ipc_handle<V: Vendor>(core: &Core<V>, address: Address) -> Result<[u8; 64], Code> {
    let mut handle = IpcHandle([0; 64]);
    // SAFETY: `handle` is a valid place for the answer; the driver checks the address.
    unsafe { (core.context.api().ipc_export)(&raw mut handle, address) }.ok()?;
    Ok(handle.0)
}

/// The handle of `memory` by IPC; of the application's it has a number in this process, of others 0.
pub(crate) fn by_ipc<V: Vendor>(
    memory: &GpuMemory<V>,
    handle: [u8; 64],
    number: u64,
) -> MemoryHandle {
    MemoryHandle::Ipc {
        backend: V::BACKEND,
        handle,
        process: process_number(),
        number,
        bytes: memory.bytes,
    }
}

/// Physical memory that makes up all of a memory for which there is to be one handle.
pub(crate) fn single<V: Vendor>(physicals: &[Physical<V>]) -> Result<&Physical<V>, HalError> {
    let [physical] = physicals else {
        let why = format!("it lies in {} pieces", physicals.len());
        return Err(HalError::NotShareable { why, cure: "allocate the memory by the device" });
    };
    Ok(physical)
}

/// A buffer of the kernel, which a driver made for us alone, and where in it what was asked for begins.
pub(crate) type Buffer = (OwnedFd, u64);

/// `bytes` bytes at `offset` of `memory`, for network cards.
pub(crate) fn dma_buf<V: Vendor>(
    memory: &GpuMemory<V>,
    offset: u64,
    bytes: u64,
) -> Result<DmaBuf, HalError> {
    let core = &memory.core;
    let what = "export memory of a GPU for network cards";
    if !core.traits.caps.dma_buf {
        return unsupported::<V, _>("export memory for network cards");
    }
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
    let _unrecorded = Unrecorded::new(core.context.api());
    if let Kind::Foreign(origin) = &memory.kind {
        foreign::check_alive(core, origin)?;
    }
    // Drivers want whole pages of the host, and every allocation has them to itself.
    let page = rustix::param::page_size() as u64;
    let address = memory.address + offset;
    let start = address - address % page;
    let length = (address + bytes).next_multiple_of(page) - start;
    let (descriptor, before) = V::dma_buf(memory, start, length)?;
    rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)
        .map_err(|error| HalError::system(what, error))?;
    Ok(DmaBuf { descriptor, offset: before + (address - start) })
}

/// That a driver has no such buffer for memory, in its words.
pub(crate) fn no_buffer<V: Vendor>(core: &Core<V>, answer: impl std::fmt::Display) -> HalError {
    let why = format!("{} gives no buffer for it ({answer})", core.name);
    HalError::NotShareable { why, cure: STAGE }
}

/// The handle of physical memory that the application's allocator made, `bytes` of which are mapped. The context must
/// be current.
pub(crate) fn physical<V: Vendor>(
    core: &Core<V>,
    physical: &Physical<V>,
    bytes: u64,
) -> Result<MemoryHandle, HalError> {
    let unwilling = |answer: &str| HalError::NotShareable {
        why: format!(
            "the application's allocator made memory of {} that no process can import{answer}",
            core.name
        ),
        cure: "let the allocator ask for memory that can be exported as a file descriptor, or copy its bytes through \
               memory that the device allocated",
    };
    let properties = V::properties(physical);
    if let Some(properties) = &properties
        && properties.handle_types & crate::gpu::code::DESCRIPTOR == 0
    {
        let Some(handle) = V::fabric_only(physical, properties) else { return Err(unwilling("")) };
        return Ok(MemoryHandle::Fabric { backend: V::BACKEND, handle: handle?, bytes });
    }
    by_descriptor(physical, None, bytes).map_err(|error| match error {
        // Of a driver that says so only now.
        HalError::Vendor { .. } if properties.is_none() => unwilling(&format!(" ({error})")),
        error => error,
    })
}
