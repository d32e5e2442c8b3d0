//! Memory that the application allocated itself: what the driver knows of an address, and how peers can map it.

use crate::driver::Backend;
use crate::error::HalError;
use crate::id::next_id;
use crate::memory::MemoryHandle;
use crate::rocm::device::Core;
use crate::rocm::library::Code;
use crate::rocm::memory::{Kind, RocmMemory, ipc_handle};
use crate::rocm::vmm::{OWN, Physical};
use crate::rocm::{conv, lock, peers};
use hip_sys::hiprt as sys;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Weak};

/// What the driver says of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The driver's number of the allocation, which no other one gets.
    number: u64,
    device: sys::hipDevice_t,
}

/// The application's allocation of this device that holds the `bytes` bytes at `address`, and the offset of `address`
/// in it.
pub(super) fn locate(
    core: &Arc<Core>,
    address: u64,
    bytes: u64,
) -> Result<(Arc<RocmMemory>, u64), HalError> {
    let _entered = core.context.enter()?;
    let found = Found::at(core, address, bytes)?;
    if found.origin.device != core.context.device() {
        return Err(refused(
            format!("memory of device {}", found.origin.device),
            "memory of this device",
            "pass buffers of the rank's own device",
        ));
    }
    Ok(found.known(core))
}

/// As [`locate`], also for memory of another device of this process, which kernels of this one reach afterwards. The
/// device must be current.
pub(super) fn neighbour(
    core: &Arc<Core>,
    address: u64,
    bytes: u64,
) -> Result<(Arc<RocmMemory>, u64), HalError> {
    let found = Found::at(core, address, bytes)?;
    peers::enable(core, found.origin.device)?;
    Ok(found.known(core))
}

fn refused(saw: String, allowed: &str, cure: &'static str) -> HalError {
    HalError::Invalid {
        what: "find memory of a ROCm device",
        saw,
        allowed: allowed.to_owned(),
        cure,
    }
}

/// An allocation that was found.
struct Found {
    origin: Origin,
    base: u64,
    length: u64,
    offset: u64,
}

impl Found {
    /// The allocation that holds the `bytes` bytes at `address`. The device must be current.
    fn at(core: &Core, address: u64, bytes: u64) -> Result<Self, HalError> {
        // Locked while the driver is asked: nothing of our own comes to the address meanwhile.
        let own = OWN.read();
        if own.hold(address) {
            return Err(refused(
                format!(
                    "{bytes} bytes at {address:#x}, past the end of memory of a device, or of another device"
                ),
                "a range within one memory of this device",
                "pass a range of memory that is live",
            ));
        }
        let origin = origin_of(core, address)?;
        let (mut base, mut length) = (ptr::null_mut(), 0);
        let pointer = pointer_to(address);
        // SAFETY: both are valid places for the answers.
        let code =
            unsafe { (core.context.api().pointer_range)(&raw mut base, &raw mut length, pointer) };
        drop(own);
        core.context.api().check("find the allocation at an address", code)?;
        let base = base.addr() as u64;
        let offset = address.saturating_sub(base);
        if offset.checked_add(bytes).is_none_or(|end| end > length as u64) {
            return Err(refused(
                format!("{bytes} bytes at offset {offset} of an allocation of {length}"),
                "a range within one allocation",
                "pass a buffer that lies in one allocation: one over several chunks (PyTorch's expandable segments \
                 make such) cannot be shared",
            ));
        }
        Ok(Found { origin, base, length: length as u64, offset })
    }

    /// The one object for the allocation, as long as somebody has it, and the offset of the address in it.
    fn known(self, core: &Arc<Core>) -> (Arc<RocmMemory>, u64) {
        let place = (self.base, self.length);
        let mut foreign = lock(&core.foreign);
        let known = foreign.get(&self.origin.number).and_then(Weak::upgrade);
        if let Some(memory) = known.filter(|memory| (memory.address, memory.bytes) == place) {
            return (memory, self.offset);
        }
        foreign.retain(|_, memory| memory.strong_count() > 0);
        let memory = Arc::new(RocmMemory {
            id: next_id(),
            address: self.base,
            bytes: self.length,
            kind: Kind::Foreign(self.origin),
            core: Arc::clone(core),
        });
        foreign.insert(self.origin.number, Arc::downgrade(&memory));
        (memory, self.offset)
    }
}

/// The pointer for an address of a device.
fn pointer_to(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// What the driver says of `address`, if it is memory of a device.
fn origin_of(core: &Core, address: u64) -> Result<Origin, HalError> {
    use sys::hipPointer_attribute as Attribute;
    let api = core.context.api();
    let nowhere = || {
        refused(
            format!("the address {address:#x}, which is not on any device"),
            "memory of this device",
            "pass memory that hipMalloc or this device allocated",
        )
    };
    let ask = |attribute: Attribute| {
        // Zeroed: the driver writes four or eight bytes, the lowest first.
        let mut value = 0u64;
        let place = (&raw mut value).cast::<c_void>();
        // SAFETY: there is room for the widest answer; any address may be asked for.
        match unsafe { (api.pointer_attribute)(place, attribute as u32, pointer_to(address)) } {
            Code::SUCCESS => Ok(value),
            Code::INVALID_VALUE | Code::INVALID_POINTER => Err(nowhere()),
            code => Err(api.error("ask what is at an address", code)),
        }
    };
    if address == 0 {
        return Err(nowhere());
    }
    let kind = ask(Attribute::HIP_POINTER_ATTRIBUTE_MEMORY_TYPE)?;
    if !conv::is_device_memory(kind as u32, api.version) {
        return Err(nowhere());
    }
    let number = ask(Attribute::HIP_POINTER_ATTRIBUTE_BUFFER_ID)?;
    // The driver writes an int.
    let device = ask(Attribute::HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL)? as u32 as i32;
    Ok(Origin { number, device })
}

/// What a peer needs to map the application's `memory`. Its device must be current.
pub(super) fn export(memory: &RocmMemory, origin: &Origin) -> Result<MemoryHandle, HalError> {
    let core = &memory.core;
    let api = core.context.api();
    // The application may have freed it, and the address may be another allocation's by now.
    if origin_of(core, memory.address).ok() != Some(*origin) {
        return Err(HalError::Invalid {
            what: "export HIP memory",
            saw: "an allocation that the application has freed".to_owned(),
            allowed: "live memory".to_owned(),
            cure: "keep a buffer until the collectives that use it are done",
        });
    }
    // The run-time library makes handles of its own allocations, and refuses others.
    let refusal = match ipc_handle(core, memory.address) {
        Ok(handle) => return Ok(memory.by_ipc(handle)),
        Err(code) => code,
    };
    let unshareable = |what: &str, code| HalError::NotShareable {
        why: format!(
            "the application's allocator made it neither by hipMalloc nor of physical memory that can be exported ({})",
            api.error(what, code)
        ),
        cure: peers::STAGE,
    };
    let Some(calls) = core.traits.virtual_memory else {
        return Err(unshareable("make an IPC handle of HIP memory", refusal));
    };
    let physical = Physical::at(&core.context, calls, memory.address)
        .map_err(|code| unshareable("find the physical memory at an address", code))?;
    let descriptor = physical.export_descriptor().map_err(|error| match error {
        HalError::Vendor { .. } => HalError::NotShareable {
            why: format!("the application's allocator did not ask for that ({error})"),
            cure: peers::STAGE,
        },
        error => error,
    })?;
    let descriptor = Arc::new(descriptor);
    Ok(MemoryHandle::Device { backend: Backend::Rocm, descriptor, bytes: memory.bytes })
}
