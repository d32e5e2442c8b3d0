//! Memory of GPUs: allocations, pinned memory of the host, and what every kind of memory lets go of.

use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::calls::Address;
use crate::gpu::code::Code;
use crate::gpu::core::Core;
use crate::gpu::foreign::Origin;
use crate::gpu::pinned::{self, Block, Registered};
use crate::gpu::recording::Unrecorded;
use crate::gpu::vendor::{Context, Vendor};
use crate::gpu::vmm::{Mapped, Mapping, OWN, Physical};
use crate::gpu::{export, foreign, lock};
use crate::id::next_id;
use crate::memory::{DmaBuf, Memory, MemoryHandle};
use std::ptr;
use std::sync::{Arc, Weak};

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
    /// Physical memory of a device, ours or a peer's. Only the object that mapped it is in the device's table, not others with
    /// the same mapping.
    Mapped(Arc<Mapping<V>>),
    /// The application's own, of this device or of another one; nothing is owned.
    Foreign(Arc<Origin>),
    /// Opened by an IPC handle.
    Opened {
        /// The handle.
        handle: [u8; 64],
    },
    /// Pinned memory of the host: a block of its own, or, if there is none, a piece of a slab.
    Pinned(Option<Block<V>>),
    /// Memory of the host's device, which is registered with the driver.
    Registered(Registered<V>),
    /// Of a kind that only this vendor has.
    Own(V::Own),
}

/// Allocates `bytes` bytes of zeroed memory on the device.
pub(crate) fn allocate<V: Vendor>(
    core: &Arc<Core<V>>,
    bytes: u64,
) -> Result<Arc<GpuMemory<V>>, HalError> {
    let limit = core.traits.caps.memory_bytes;
    check_size(core, bytes, limit, &format!("the device has {limit} in all"))?;
    let length = rounded(core, bytes)
        .ok_or_else(|| out_of_memory(core, bytes, "no range is that long".to_owned()))?;
    let _entered = core.context.enter()?;
    let _unrecorded = Unrecorded::new(core.context.api());
    let memory = V::allocate(core, bytes, length)?;
    let zeros = pinned::zeros(core)?.map(|zeros| (zeros, pinned::ZEROS));
    // SAFETY: the range came just now, and nobody else knows of it; so many zeros stay there.
    unsafe { core.upkeep.clear(memory.address, length, zeros)? };
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
                let (address, mapping) = (mapped.address(), Mapping::new(mapped, vec![physical]));
                return Ok(enter(core, address, bytes, Kind::Mapped(mapping)));
            }
            Err(code) => last = code,
        }
        // With one of these codes the device could do it, but the node is not set up for it, or the process may not: the next
        // kind is tried.
        if ![Code::NOT_PERMITTED, Code::NOT_SUPPORTED, Code::INVALID_VALUE].contains(&last) {
            break;
        }
    }
    Err(failed(core, bytes, "allocate memory", last))
}

/// Makes the object for memory at `address` and enters it in the device's table.
pub(crate) fn enter<V: Vendor>(
    core: &Arc<Core<V>>,
    address: Address,
    bytes: u64,
    kind: Kind<V>,
) -> Arc<GpuMemory<V>> {
    let memory = shared(core, address, bytes, kind);
    core.ranges.enter(&memory);
    memory
}

/// Makes the object for memory at `address` that this process has already. It is not entered in the table, which has the object
/// of whoever asked for the memory: that entry goes when its own holders are done with it, whoever has this object.
pub(crate) fn shared<V: Vendor>(
    core: &Arc<Core<V>>,
    address: Address,
    bytes: u64,
    kind: Kind<V>,
) -> Arc<GpuMemory<V>> {
    let core = Arc::clone(core);
    Arc::new(GpuMemory { id: next_id(), address, bytes, kind, core })
}

/// `bytes` rounded up to whole units of allocation, if a range can be that long.
pub(crate) fn rounded<V: Vendor>(core: &Core<V>, bytes: u64) -> Option<usize> {
    let unit = usize::try_from(core.traits.caps.page_bytes).ok()?;
    let rounded = usize::try_from(bytes).ok()?.checked_next_multiple_of(unit)?;
    isize::try_from(rounded).is_ok().then_some(rounded)
}

pub(crate) fn check_size<V: Vendor>(
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

// SAFETY: the mapping is the value's own and lasts as long; of memory that the application allocated, which may be freed, `is_borrowed`
// tells.
unsafe impl<V: Vendor> Memory for GpuMemory<V> {
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

    fn is_legacy_ipc(&self) -> bool {
        matches!(&self.kind, Kind::Foreign(origin) if origin.is_legacy_ipc())
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
        export::dma_buf(self, offset, bytes)
    }
}

impl<V: Vendor> Drop for GpuMemory<V> {
    fn drop(&mut self) {
        match &self.kind {
            Kind::Foreign(_) => self.core.ranges.changed(),
            // Out of the table before the range is unmapped, here by the fields, which are dropped after this: the
            // next mapping may get the same address.
            Kind::Mapped(_) | Kind::Registered(_) | Kind::Own(_) => self.core.ranges.remove(self),
            Kind::Pinned(own) => {
                self.core.ranges.remove(self);
                if own.is_none() {
                    self.core.slabs.give_back(self.address, self.bytes);
                }
            }
            Kind::Opened { handle } => {
                let place = lock(&self.core.opened).get(handle).map(Arc::clone);
                let mut opened = place.as_deref().map(lock);
                if let Some(opened) = &mut opened
                    && ptr::eq(opened.as_ptr(), self)
                {
                    **opened = Weak::new();
                }
                self.core.ranges.remove(self);
                // Before the handle can be opened again, which gives the same address.
                OWN.remove(self.address);
                // No lock is held in the call below: it may wait for kernels, which may wait for other threads.
                drop(opened);
                if let Ok(_entered) = self.core.context.enter() {
                    let api = self.core.context.api();
                    // To let go of memory is no part of a graph that is being recorded.
                    let _unrecorded = Unrecorded::new(api);
                    // SAFETY: opened by `open`, and closed here once for that; the driver counts.
                    let _ = unsafe { (api.ipc_close)(self.address) };
                }
            }
        }
    }
}
