//! Mapping what peers exported: other processes, and other devices of this one.

use crate::cuda::context::Unrecorded;
use crate::cuda::device::Core;
use crate::cuda::library::Code;
use crate::cuda::memory::{CudaMemory, Kind, check_mappable, enter, rounded};
use crate::cuda::vmm::{Mapped, OWN, Physical};
use crate::cuda::{conv, foreign, lock, peers};
use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::process_number;
use crate::memory::MemoryHandle;
use cudarc::driver::sys;
use std::os::fd::AsFd;
use std::slice;
use std::sync::{Arc, Weak};

/// Maps what a peer exported, the parts of one memory or a single handle.
pub(super) fn import(
    core: &Arc<Core>,
    handles: &[MemoryHandle],
) -> Result<Arc<CudaMemory>, HalError> {
    let _entered = core.context.enter()?;
    let _unrecorded = Unrecorded::new(core.context.api());
    let [MemoryHandle::Ipc { backend: Backend::Cuda, handle, process, address, bytes }] = handles
    else {
        return import_physical(core, handles);
    };
    if *process == process_number() {
        // The driver opens no handle in the process that made it.
        return match foreign::neighbour(core, *address, *bytes)? {
            (memory, 0) => Ok(memory),
            _ => Err(refused("a handle of memory that is gone", "one of live memory")),
        };
    }
    open(core, handle, *bytes)
}

/// Maps physical memory of a peer, which may lie about its length.
fn import_physical(
    core: &Arc<Core>,
    handles: &[MemoryHandle],
) -> Result<Arc<CudaMemory>, HalError> {
    check_mappable(core)?;
    let api = core.context.api();
    let failed = |what: &str, bytes: u64, code| match code {
        Code::INVALID_VALUE | Code::INVALID_HANDLE => refused(
            &format!("{bytes} bytes, which the driver refuses ({})", api.error(what, code)),
            "a handle of CUDA memory at least that long",
        ),
        // Of a device that this process does not see.
        Code::INVALID_DEVICE => HalError::NotShareable {
            why: format!("{} does not reach it ({})", core.name, api.error(what, code)),
            cure: peers::STAGE,
        },
        code => api.error(what, code),
    };
    let (mut physicals, mut total) = (Vec::new(), 0u64);
    for (at, handle) in handles.iter().enumerate() {
        let bytes = handle.bytes();
        let length = rounded(core, bytes).filter(|_| bytes > 0);
        let Some(length) = length else {
            return Err(refused(
                &format!("{bytes} bytes"),
                "1 or more, fewer than an address range",
            ));
        };
        if at + 1 < handles.len() && length as u64 != bytes {
            return Err(refused(
                &format!("a part of {bytes} bytes with others behind it"),
                &format!("whole units of {} bytes", core.traits.caps.page_bytes),
            ));
        }
        total = total.saturating_add(bytes);
        let physical = match handle {
            MemoryHandle::Device { backend: Backend::Cuda, descriptor, .. } => {
                Physical::import_descriptor(&core.context, descriptor.as_fd())
            }
            MemoryHandle::Fabric { backend: Backend::Cuda, handle, .. } => {
                Physical::import_fabric(&core.context, handle)
            }
            other => {
                return Err(refused(
                    &format!("a handle of {}", other.kind_name()),
                    "one of CUDA memory: descriptors or fabric handles, or a single IPC handle",
                ));
            }
        };
        let physical = physical.map_err(|code| failed("import CUDA memory", bytes, code))?;
        if let Some(owner) = physical.properties().as_ref().and_then(conv::device_of) {
            peers::check(core, owner)?;
        }
        physicals.push((physical, length));
    }
    let parts: Vec<_> = physicals.iter().map(|(physical, length)| (physical, *length)).collect();
    if parts.is_empty() {
        return Err(refused("no handle", "1 or more"));
    }
    let mapped = Mapped::all(&core.context, &parts)
        .map_err(|code| failed("map imported CUDA memory", total, code))?;
    let physicals = physicals.into_iter().map(|(physical, _)| physical).collect();
    Ok(enter(core, mapped.address(), total, Kind::Mapped { mapped, physicals }))
}

/// Opens memory of another process by its classic IPC handle, once.
fn open(core: &Arc<Core>, handle: &[u8; 64], bytes: u64) -> Result<Arc<CudaMemory>, HalError> {
    let api = core.context.api();
    // Held until it is in the tables: the driver gives the same address when a handle is opened again.
    let mut opened = lock(&core.opened);
    if let Some(memory) = opened.get(handle).and_then(Weak::upgrade) {
        // Before the memory can be dropped here, which takes the lock.
        drop(opened);
        if memory.bytes == bytes {
            return Ok(memory);
        }
        return Err(refused(&format!("{bytes} bytes"), &format!("{}", memory.bytes)));
    }
    let what = "open CUDA memory of another process";
    let raw = sys::CUipcMemHandle { reserved: handle.map(u8::cast_signed) };
    let lazy = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
    let mut address = 0;
    let mut own = OWN.write();
    // SAFETY: `address` is a valid place for the answer; the driver checks the handle.
    let code = unsafe { (api.ipc_open)(&raw mut address, raw, lazy) };
    api.check(what, code)?;
    let (mut base, mut length) = (0, 0);
    // SAFETY: both are valid places for the answers.
    let code = unsafe { (api.pointer_range)(&raw mut base, &raw mut length, address) };
    let end = base.saturating_add(length as u64);
    let fits = address.checked_add(bytes).is_some_and(|wanted| bytes > 0 && wanted <= end);
    if code != Code::SUCCESS || !fits {
        // SAFETY: opened above, and used by nobody.
        let _ = unsafe { (api.ipc_close)(address) };
        api.check(what, code)?;
        return Err(refused(&format!("{bytes} bytes"), &format!("1 to {length}")));
    }
    own.enter(address, bytes);
    drop(own);
    let memory = enter(core, address, bytes, Kind::Opened { handle: *handle });
    opened.insert(*handle, Arc::downgrade(&memory));
    Ok(memory)
}

/// As [`import`], for one handle.
pub(super) fn import_one(
    core: &Arc<Core>,
    handle: &MemoryHandle,
) -> Result<Arc<CudaMemory>, HalError> {
    import(core, slice::from_ref(handle))
}

fn refused(saw: &str, allowed: &str) -> HalError {
    HalError::Invalid {
        what: "import CUDA memory",
        saw: saw.to_owned(),
        allowed: allowed.to_owned(),
        cure: "run the same version of Antiphon on every rank, and pass blob and descriptor together",
    }
}
