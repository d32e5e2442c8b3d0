//! Mapping memory of peers, which may lie about it.

use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::process_number;
use crate::memory::MemoryHandle;
use crate::rocm::context::Unrecorded;
use crate::rocm::device::Core;
use crate::rocm::library::Code;
use crate::rocm::memory::{Kind, RocmMemory, allocated, enter, rounded};
use crate::rocm::vmm::{Mapped, OWN, Physical};
use crate::rocm::{conv, foreign, lock, peers};
use hip_sys::hiprt as sys;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;
use std::sync::{Arc, Weak};

/// Maps what a peer exported.
pub(super) fn import(core: &Arc<Core>, handle: &MemoryHandle) -> Result<Arc<RocmMemory>, HalError> {
    let _entered = core.context.enter()?;
    let _unrecorded = Unrecorded::new(core.context.api());
    match handle {
        MemoryHandle::Device { backend: Backend::Rocm, descriptor, bytes } => {
            map(core, descriptor.as_fd(), *bytes)
        }
        MemoryHandle::Ipc { backend: Backend::Rocm, handle, process, address, bytes } => {
            if *process == process_number() {
                // The driver opens no handle in the process that made it.
                return here(core, handle, *address, *bytes);
            }
            open(core, handle, *bytes)
        }
        other => Err(refused(
            &format!("a handle of {} ({})", other.kind_name(), other.backend()),
            "one of ROCm memory: a descriptor or an IPC handle",
        )),
    }
}

/// Maps physical memory of a peer.
fn map(
    core: &Arc<Core>,
    descriptor: BorrowedFd<'_>,
    bytes: u64,
) -> Result<Arc<RocmMemory>, HalError> {
    let Some(calls) = core.traits.virtual_memory else {
        return Err(HalError::Unavailable {
            what: format!("a descriptor of memory on {}", core.name),
            why: "this release of ROCm cannot map it".to_owned(),
            cure: "use the same release on every rank".to_owned(),
        });
    };
    let Some(length) = rounded(core, bytes).filter(|_| bytes > 0) else {
        return Err(refused(&format!("{bytes} bytes"), "1 or more, fewer than an address range"));
    };
    let api = core.context.api();
    let failed = |what: &str, code| match code {
        Code::INVALID_VALUE | Code::INVALID_HANDLE | Code::OUT_OF_MEMORY => refused(
            &format!("{bytes} bytes, which the driver refuses ({})", api.error(what, code)),
            "a handle of ROCm memory at least that long",
        ),
        code => api.error(what, code),
    };
    let physical = Physical::import_descriptor(&core.context, calls, descriptor)
        .map_err(|code| failed("import HIP memory", code))?;
    let mapped = Mapped::new(&core.context, &physical, length)
        .map_err(|code| failed("map imported HIP memory", code))?;
    let address = mapped.address();
    Ok(enter(core, address, bytes, Kind::Mapped { _mapped: mapped, physical }))
}

/// Memory of this process, by an IPC handle of its own.
fn here(
    core: &Arc<Core>,
    handle: &[u8; 64],
    address: u64,
    bytes: u64,
) -> Result<Arc<RocmMemory>, HalError> {
    let gone = || refused("a handle of memory that is gone", "one of live memory");
    let Some(memory) = allocated(address, handle) else {
        let (memory, offset) = foreign::neighbour(core, address, bytes)?;
        return if offset == 0 { Ok(memory) } else { Err(gone()) };
    };
    if memory.bytes != bytes {
        return Err(refused(&format!("{bytes} bytes"), &format!("{}", memory.bytes)));
    }
    let owner = memory.core.context.device();
    if owner == core.context.device() {
        return Ok(memory);
    }
    if let Some((known, 0)) = core.ranges.find(address as usize, bytes) {
        return Ok(known);
    }
    peers::enable(core, owner)?;
    Ok(enter(core, address, bytes, Kind::Neighbour { _memory: memory }))
}

/// Opens memory of another process by its IPC handle, once.
fn open(core: &Arc<Core>, handle: &[u8; 64], bytes: u64) -> Result<Arc<RocmMemory>, HalError> {
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
    let what = "open HIP memory of another process";
    let raw = sys::hipIpcMemHandle_t { reserved: handle.map(|byte| byte as _) };
    let mut pointer = ptr::null_mut();
    // SAFETY: `pointer` is a valid place for the answer; the driver checks the handle.
    let code = unsafe { (api.ipc_open)(&raw mut pointer, raw, conv::LAZY_PEER_ACCESS) };
    match code {
        Code::INVALID_VALUE | Code::INVALID_HANDLE | Code::INVALID_POINTER => {
            let error = api.error(what, code);
            return Err(refused(
                &format!("a handle that the driver refuses ({error})"),
                "one of live memory of a device that this one reaches",
            ));
        }
        code => api.check(what, code)?,
    }
    let address = pointer.expose_provenance() as u64;
    let (mut base, mut length) = (ptr::null_mut(), 0);
    // SAFETY: both are valid places for the answers.
    let code = unsafe { (api.pointer_range)(&raw mut base, &raw mut length, pointer) };
    let end = (base.addr() as u64).saturating_add(length as u64);
    let fits = address.checked_add(bytes).is_some_and(|wanted| bytes > 0 && wanted <= end);
    if code != Code::SUCCESS || !fits {
        // SAFETY: opened above, and used by nobody.
        let _ = unsafe { (api.ipc_close)(pointer) };
        api.check(what, code)?;
        return Err(refused(&format!("{bytes} bytes"), &format!("1 to {length}")));
    }
    OWN.enter(address, bytes);
    let memory = enter(core, address, bytes, Kind::Opened { handle: *handle });
    opened.insert(*handle, Arc::downgrade(&memory));
    Ok(memory)
}

fn refused(saw: &str, allowed: &str) -> HalError {
    HalError::Invalid {
        what: "import HIP memory",
        saw: saw.to_owned(),
        allowed: allowed.to_owned(),
        cure: "run the same version of Antiphon on every rank, and pass blob and descriptor together",
    }
}
