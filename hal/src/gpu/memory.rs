//! Memory of GPUs: allocations, pinned memory of the host, and what every kind of memory lets go of.

use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::calls::Address;
use crate::gpu::code::Code;
use crate::gpu::core::Core;
use crate::gpu::foreign::Origin;
use crate::gpu::recording::Unrecorded;
use crate::gpu::vendor::{Context, Vendor, unsupported};
use crate::gpu::vmm::{Mapped, OWN, Physical};
use crate::gpu::{export, foreign, keep, lock};
use crate::id::next_id;
use crate::memory::{DmaBuf, Memory, MemoryHandle};
use std::ptr;
use std::sync::Arc;

/// Memory that kernels of a device reach.
#[derive(Debug)]
pub(crate) struct GpuMemory<V: Vendor> {
    pub(crate) id: u64,
    pub(crate) address: Address,
    pub(crate) bytes: u64,
    pub(crate) kind: Kind<V>,
    pub(crate) core: Arc<Core<V>>,
}

/// What the memory is, with what it owns.
#[derive(Debug)]
pub(crate) enum Kind<V: Vendor> {
    /// Physical memory of a device, ours or a peer's. Unmapped before its count is given back.
    Mapped {
        /// Where it is mapped.
        mapped: Mapped<V>,
        /// The memory: one piece, or the parts of a peer's, in the order in which they are mapped.
        physicals: Vec<Physical<V>>,
    },
    /// The application's own, of this device or of another one; nothing is owned.
    Foreign(Origin),
    /// Opened by an IPC handle.
    Opened {
        /// The handle.
        handle: [u8; 64],
    },
    /// Pinned memory of the host.
    Pinned,
    /// Of a kind that only this vendor has.
    Own(V::Own),
}

/// Allocates `bytes` bytes of zeroed memory on the device.
pub(crate) fn allocate<V: Vendor>(
    core: &Arc<Core<V>>,
    bytes: u64,
) -> Result<Arc<GpuMemory<V>>, HalError> {
    keep::let_go();
    let limit = core.traits.caps.memory_bytes;
    check_size(core, bytes, limit, &format!("the device has {limit} in all"))?;
    let length = rounded(core, bytes)
        .ok_or_else(|| out_of_memory(core, bytes, "no range is that long".to_owned()))?;
    let _entered = core.context.enter()?;
    let _unrecorded = Unrecorded::new(core.context.api());
    let memory = V::allocate(core, bytes, length)?;
    // SAFETY: the range came just now, and nobody else knows of it.
    unsafe { core.upkeep.clear(memory.address, length)? };
    Ok(memory)
}

/// Physical memory of the device, mapped. The context must be current.
pub(crate) fn map_new<V: Vendor>(
    core: &Arc<Core<V>>,
    bytes: u64,
    length: usize,
) -> Result<Arc<GpuMemory<V>>, HalError> {
    let calls = core.mapping()?;
    let mut last = Code::NOT_SUPPORTED;
    for properties in V::wanted(core) {
        match Physical::create(&core.context, calls, length, &properties) {
            Ok(physical) => {
                let mapped = Mapped::new(&core.context, calls, &[(&physical, length)])
                    .map_err(|code| failed(core, bytes, "map memory", code))?;
                let (address, physicals) = (mapped.address(), vec![physical]);
                return Ok(enter(core, address, bytes, Kind::Mapped { mapped, physicals }));
            }
            Err(code) => last = code,
        }
        // Otherwise the device could, but the node is not set up for it, or the process may not.
        if ![Code::NOT_PERMITTED, Code::NOT_SUPPORTED, Code::INVALID_VALUE].contains(&last) {
            break;
        }
    }
    Err(failed(core, bytes, "allocate memory", last))
}

/// Allocates `bytes` bytes of zeroed memory of the host that kernels reach at the same address.
pub(crate) fn pinned<V: Vendor>(
    core: &Arc<Core<V>>,
    bytes: u64,
) -> Result<Arc<GpuMemory<V>>, HalError> {
    check_size(core, bytes, isize::MAX as u64, "no range is that long")?;
    if !core.traits.pinned {
        return unsupported::<V, _>("allocate pinned memory");
    }
    let api = core.context.api();
    let _entered = core.context.enter()?;
    let _unrecorded = Unrecorded::new(api);
    let mut pointer = ptr::null_mut();
    // SAFETY: `pointer` is a valid place for the answer; the length fits an address.
    let code = unsafe { (api.host_allocate)(&raw mut pointer, bytes as usize, V::PINNED) };
    code.ok().map_err(|code| failed(core, bytes, "allocate pinned memory", code))?;
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
pub(crate) fn enter<V: Vendor>(
    core: &Arc<Core<V>>,
    address: Address,
    bytes: u64,
    kind: Kind<V>,
) -> Arc<GpuMemory<V>> {
    let core = Arc::clone(core);
    let memory = Arc::new(GpuMemory { id: next_id(), address, bytes, kind, core });
    memory.core.ranges.enter(&memory);
    memory
}

/// `bytes` rounded up to whole units of allocation, if a range can be that long.
pub(crate) fn rounded<V: Vendor>(core: &Core<V>, bytes: u64) -> Option<usize> {
    let unit = usize::try_from(core.traits.caps.page_bytes).ok()?;
    let rounded = usize::try_from(bytes).ok()?.checked_next_multiple_of(unit)?;
    isize::try_from(rounded).is_ok().then_some(rounded)
}

fn check_size<V: Vendor>(
    core: &Core<V>,
    bytes: u64,
    limit: u64,
    why: &str,
) -> Result<(), HalError> {
    if bytes == 0 {
        return Err(HalError::Invalid {
            what: "allocate memory",
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

/// The error of an allocation.
pub(crate) fn failed<V: Vendor>(core: &Core<V>, bytes: u64, what: &str, code: Code) -> HalError {
    let error = core.context.api().error(what, code);
    if code == Code::OUT_OF_MEMORY { out_of_memory(core, bytes, error.to_string()) } else { error }
}

fn out_of_memory<V: Vendor>(core: &Core<V>, bytes: u64, why: String) -> HalError {
    HalError::OutOfMemory { bytes, device: core.name.clone(), why }
}

impl<V: Vendor> Memory for GpuMemory<V> {
    fn backend(&self) -> Backend {
        V::BACKEND
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

    fn is_freed(&self) -> bool {
        let Kind::Foreign(origin) = &self.kind else { return false };
        let Ok(_entered) = self.core.context.enter() else { return false };
        let _unrecorded = Unrecorded::new(self.core.context.api());
        foreign::check_alive(&self.core, origin).is_err()
    }

    fn export(&self) -> Result<MemoryHandle, HalError> {
        export::whole(self)
    }

    fn export_parts(&self) -> Result<Vec<MemoryHandle>, HalError> {
        export::parts(self)
    }

    fn export_fabric(&self) -> Result<MemoryHandle, HalError> {
        V::export_fabric(self)
    }

    fn export_dma_buf(&self, offset: u64, bytes: u64) -> Result<DmaBuf, HalError> {
        V::export_dma_buf(self, offset, bytes)
    }
}

impl<V: Vendor> Drop for GpuMemory<V> {
    fn drop(&mut self) {
        let api = self.core.context.api();
        // To let go of memory is no part of a graph that is being recorded.
        let _unrecorded = Unrecorded::new(api);
        match &self.kind {
            Kind::Foreign(_) => self.core.ranges.changed(),
            // Out of the table before the range is unmapped, here by the fields, which are dropped after this: the
            // next mapping may get the same address.
            Kind::Mapped { .. } => self.core.ranges.remove(self),
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
                // Before the handle can be opened again, which gives the same address.
                OWN.remove(self.address);
                // No lock is held in the call below: it may wait for kernels, which may wait for other threads.
                drop(opened);
                if let Ok(_entered) = self.core.context.enter() {
                    // SAFETY: opened by `open`, and closed here once for that; the driver counts.
                    let _ = unsafe { (api.ipc_close)(self.address) };
                }
            }
            Kind::Own(own) => V::let_go(self, own),
        }
    }
}
