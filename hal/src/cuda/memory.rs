//! CUDA memory: allocations, pinned memory of the host, and what every kind of memory lets go of.

use crate::cuda::context::Unrecorded;
use crate::cuda::conv::Sharing;
use crate::cuda::device::Core;
use crate::cuda::library::Code;
use crate::cuda::multicast::Binding;
use crate::cuda::vmm::{Mapped, OWN, Physical};
use crate::cuda::{export, foreign, graph, lock};
use crate::driver::Backend;
use crate::error::HalError;
use crate::id::next_id;
use crate::memory::{DmaBuf, Memory, MemoryHandle};
use cudarc::driver::sys;
use std::ptr;
use std::sync::Arc;

/// Memory that kernels of a device reach.
#[derive(Debug)]
pub(super) struct CudaMemory {
    pub(super) id: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) kind: Kind,
    pub(super) core: Arc<Core>,
}

/// What the memory is, with what it owns.
#[derive(Debug)]
pub(super) enum Kind {
    /// Physical memory of a device, ours or a peer's. Unmapped before its count is given back.
    Mapped {
        /// Where it is mapped.
        mapped: Mapped,
        /// The memory: one piece, or the parts of a peer's, in the order in which they are mapped.
        physicals: Vec<Physical>,
    },
    /// The application's own, of this device or of another one; nothing is owned.
    Foreign(foreign::Origin),
    /// Opened by a classic IPC handle.
    Opened {
        /// The handle.
        handle: [u8; 64],
    },
    /// Pinned memory of the host.
    Pinned,
    /// A multicast group. Unmapped before this member's memory is unbound.
    Multicast {
        /// Where the group is mapped.
        _mapped: Mapped,
        /// What this member has bound.
        _binding: Binding,
    },
}

/// Allocates `bytes` bytes of zeroed memory on the device.
pub(super) fn allocate(core: &Arc<Core>, bytes: u64) -> Result<Arc<CudaMemory>, HalError> {
    graph::let_go();
    let limit = core.traits.caps.memory_bytes;
    check_size(core, bytes, limit, &format!("the device has {limit} in all"))?;
    check_mappable(core)?;
    let api = core.context.api();
    let length = rounded(core, bytes)
        .ok_or_else(|| out_of_memory(core, bytes, "no range is that long".to_owned()))?;
    let failed = |what: &str, code| match code {
        Code::OUT_OF_MEMORY => out_of_memory(core, bytes, api.error(what, code).to_string()),
        code => api.error(what, code),
    };
    let _entered = core.context.enter()?;
    let _unrecorded = Unrecorded::new(api);
    let sharing = core.traits.sharing;
    let physical = match Physical::create(&core.context, length, sharing) {
        // The card could, but the node is not set up for it, or the process may not.
        Err(Code::NOT_PERMITTED | Code::NOT_SUPPORTED | Code::INVALID_VALUE) if sharing.fabric => {
            let local = Sharing { fabric: false, ..sharing };
            Physical::create(&core.context, length, local)
        }
        other => other,
    };
    let physical = physical.map_err(|code| failed("allocate CUDA memory", code))?;
    let mapped = Mapped::new(&core.context, &physical, length)
        .map_err(|code| failed("map CUDA memory", code))?;
    // SAFETY: the range was mapped just now, and nobody else knows of it.
    unsafe { core.upkeep.clear(mapped.address(), length)? };
    Ok(enter(core, mapped.address(), bytes, Kind::Mapped { mapped, physicals: vec![physical] }))
}

/// Allocates `bytes` bytes of zeroed memory of the host that kernels reach at the same address.
pub(super) fn pinned(core: &Arc<Core>, bytes: u64) -> Result<Arc<CudaMemory>, HalError> {
    check_size(core, bytes, isize::MAX as u64, "no range is that long")?;
    if !core.traits.pinned {
        return Err(HalError::Unsupported { op: "allocate pinned memory", backend: Backend::Cuda });
    }
    let api = core.context.api();
    let _entered = core.context.enter()?;
    let _unrecorded = Unrecorded::new(api);
    let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
    let what = "allocate pinned memory";
    let mut pointer = ptr::null_mut();
    // SAFETY: `pointer` is a valid place for the answer; the length fits an address.
    let code = unsafe { (api.host_allocate)(&raw mut pointer, bytes as usize, flags) };
    match code {
        Code::OUT_OF_MEMORY => {
            return Err(out_of_memory(core, bytes, api.error(what, code).to_string()));
        }
        code => api.check(what, code)?,
    }
    let address = pointer.expose_provenance() as u64;
    let memory = enter(core, address, bytes, Kind::Pinned);
    // SAFETY: `bytes` bytes were allocated just now, and nobody else knows of them.
    unsafe { ptr::write_bytes(pointer.cast::<u8>(), 0, bytes as usize) };
    let mut seen = 0;
    // SAFETY: `seen` is a valid place for the answer; the memory is pinned.
    let code = unsafe { (api.host_address)(&raw mut seen, pointer, 0) };
    api.check("find the device's address of pinned memory", code)?;
    if seen != address {
        return Err(HalError::Unavailable {
            what: "pinned memory".to_owned(),
            why: format!("the device sees {address:#x} at {seen:#x}"),
            cure: "use a device with unified addressing".to_owned(),
        });
    }
    Ok(memory)
}

/// Makes the object for memory at `address` and enters it in the device's table.
pub(super) fn enter(core: &Arc<Core>, address: u64, bytes: u64, kind: Kind) -> Arc<CudaMemory> {
    let core = Arc::clone(core);
    let memory = Arc::new(CudaMemory { id: next_id(), address, bytes, kind, core });
    memory.core.ranges.enter(&memory);
    memory
}

/// `bytes` rounded up to whole units of allocation, if a range can be that long.
pub(super) fn rounded(core: &Core, bytes: u64) -> Option<usize> {
    let unit = usize::try_from(core.traits.caps.page_bytes).ok()?;
    let rounded = usize::try_from(bytes).ok()?.checked_next_multiple_of(unit)?;
    isize::try_from(rounded).is_ok().then_some(rounded)
}

fn check_size(core: &Core, bytes: u64, limit: u64, why: &str) -> Result<(), HalError> {
    if bytes == 0 {
        return Err(HalError::Invalid {
            what: "allocate CUDA memory",
            saw: "0 bytes".to_owned(),
            allowed: "1 or more".to_owned(),
            cure: "allocate nothing where nothing is needed",
        });
    }
    if bytes > limit {
        return Err(out_of_memory(core, bytes, why.to_owned()));
    }
    Ok(())
}

pub(super) fn check_mappable(core: &Core) -> Result<(), HalError> {
    if core.traits.mappable {
        return Ok(());
    }
    Err(HalError::Unavailable {
        what: format!("memory of {}", core.name),
        why: "its driver has no virtual memory management".to_owned(),
        cure: "use a GPU that is not shared by a hypervisor in a mode without it".to_owned(),
    })
}

fn out_of_memory(core: &Core, bytes: u64, why: String) -> HalError {
    HalError::OutOfMemory { bytes, device: core.name.clone(), why }
}

impl Memory for CudaMemory {
    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn address(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.address as usize)
    }

    fn len(&self) -> u64 {
        self.bytes
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn is_borrowed(&self) -> bool {
        matches!(self.kind, Kind::Foreign(_))
    }

    fn export(&self) -> Result<MemoryHandle, HalError> {
        export::whole(self)
    }

    fn export_parts(&self) -> Result<Vec<MemoryHandle>, HalError> {
        export::parts(self)
    }

    fn export_fabric(&self) -> Result<MemoryHandle, HalError> {
        export::fabric(self)
    }

    fn export_dma_buf(&self, offset: u64, bytes: u64) -> Result<DmaBuf, HalError> {
        export::dma_buf(self, offset, bytes)
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        let api = self.core.context.api();
        // To let go of memory is no part of a graph that is being recorded.
        let _unrecorded = Unrecorded::new(api);
        match &self.kind {
            Kind::Foreign(_) => {}
            // Out of the table before the range is unmapped, here by the fields, which are dropped after this: the
            // next mapping may get the same address.
            Kind::Mapped { .. } | Kind::Multicast { .. } => self.core.ranges.remove(self),
            Kind::Pinned => {
                self.core.ranges.remove(self);
                if let Ok(_entered) = self.core.context.enter() {
                    let pointer = ptr::with_exposed_provenance_mut(self.address as usize);
                    // SAFETY: allocated by `pinned` and freed here alone.
                    let _ = unsafe { (api.host_free)(pointer) };
                }
            }
            Kind::Opened { handle } => {
                let mut opened = lock(&self.core.opened);
                if opened.get(handle).is_some_and(|memory| ptr::eq(memory.as_ptr(), self)) {
                    opened.remove(handle);
                }
                self.core.ranges.remove(self);
                let mut own = OWN.write();
                own.remove(self.address);
                if let Ok(_entered) = self.core.context.enter() {
                    // SAFETY: opened by `open`, and closed here once for that; the driver counts.
                    let _ = unsafe { (api.ipc_close)(self.address) };
                }
            }
        }
    }
}
