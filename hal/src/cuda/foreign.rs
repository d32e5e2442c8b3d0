//! Memory that the application allocated itself: what the driver knows of an address, and how peers can map it.

use crate::cuda::conv;
use crate::cuda::device::Core;
use crate::cuda::lock;
use crate::cuda::memory::{CudaMemory, Kind};
use crate::cuda::vmm::{Physical, Spans};
use crate::driver::Backend;
use crate::error::HalError;
use crate::id::next_id;
use crate::memory::MemoryHandle;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock, Weak};

/// What the driver says of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The driver's number of the allocation, which no other one gets.
    number: u64,
    /// Whether classic IPC handles can be made of it.
    classic: bool,
}

/// A number of this process that no other process has, but by a chance of one in 2^64.
pub(super) fn process_number() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    // The standard library seeds its hashers from the system's randomness.
    *NUMBER.get_or_init(|| RandomState::new().hash_one(std::process::id()))
}

/// The application's allocation that holds the `bytes` bytes at `address`, and the offset of `address` in it.
pub(super) fn locate(
    core: &Arc<Core>,
    address: u64,
    bytes: u64,
) -> Result<(Arc<CudaMemory>, u64), HalError> {
    let refused = |saw: String, allowed: &str, cure| HalError::Invalid {
        what: "find memory of a CUDA device",
        saw,
        allowed: allowed.to_owned(),
        cure,
    };
    let api = core.context.api();
    let _entered = core.context.enter()?;
    // Locked while the driver is asked: nothing of our own comes to the address meanwhile.
    let own = core.context.own().read();
    if Spans::hold(&own, address) {
        return Err(refused(
            format!("{bytes} bytes at {address:#x}, past the end of memory of this device"),
            "a range within one memory",
            "pass a range of memory that is live",
        ));
    }
    let [kind, device, number, classic] = attributes(core, address)?;
    if address == 0 || !conv::is_device_memory(kind as u32) {
        return Err(refused(
            format!("the address {address:#x}, which is not on any device"),
            "memory of this device",
            "pass memory that cudaMalloc or this device allocated",
        ));
    }
    // The driver writes an int.
    let device = device as u32 as i32;
    if device != core.context.device() {
        return Err(refused(
            format!("memory of device {device}"),
            "memory of this device",
            "pass buffers of the rank's own device",
        ));
    }
    let (mut base, mut length) = (0, 0);
    // SAFETY: both are valid places for the answers.
    let code = unsafe { (api.pointer_range)(&raw mut base, &raw mut length, address) };
    drop(own);
    api.check("find the allocation at an address", code)?;
    let offset = address.saturating_sub(base);
    if offset.checked_add(bytes).is_none_or(|end| end > length as u64) {
        return Err(refused(
            format!("{bytes} bytes at offset {offset} of an allocation of {length}"),
            "a range within one allocation",
            "pass a buffer that lies in one allocation: one over several chunks (PyTorch's expandable segments \
             make such) cannot be shared yet",
        ));
    }
    let origin = Origin { number, classic: classic & 0xff != 0 };
    Ok((known(core, origin, base, length as u64), offset))
}

/// Four attributes of `address`: the kind of memory, its device, the allocation's number, whether it can be shared
/// by classic IPC. All zero for an address that the driver does not know.
fn attributes(core: &Core, address: u64) -> Result<[u64; 4], HalError> {
    use sys::CUpointer_attribute_enum as Attribute;
    let mut names = [
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID,
        Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
    ];
    // Eight zeroed bytes each: the driver writes one, four or eight, the lowest first.
    let mut values = [0u64; 4];
    let mut places = values.each_mut().map(|value| (&raw mut *value).cast::<c_void>());
    // SAFETY: as many names as places, each with room for the widest answer; any address may be asked for.
    let code = unsafe {
        (core.context.api().pointer_attributes)(4, names.as_mut_ptr(), places.as_mut_ptr(), address)
    };
    core.context.api().check("ask what is at an address", code)?;
    Ok(values)
}

/// The one object for the allocation, as long as somebody has it.
fn known(core: &Arc<Core>, origin: Origin, base: u64, length: u64) -> Arc<CudaMemory> {
    let mut foreign = lock(&core.foreign);
    let known = foreign.get(&origin.number).and_then(Weak::upgrade);
    if let Some(memory) = known.filter(|memory| (memory.address, memory.bytes) == (base, length)) {
        return memory;
    }
    foreign.retain(|_, memory| memory.strong_count() > 0);
    let memory = Arc::new(CudaMemory {
        id: next_id(),
        address: base,
        bytes: length,
        kind: Kind::Foreign(origin),
        core: Arc::clone(core),
    });
    foreign.insert(origin.number, Arc::downgrade(&memory));
    memory
}

/// What a peer needs to map the application's `memory`. Its context must be current.
pub(super) fn export(memory: &CudaMemory, origin: &Origin) -> Result<MemoryHandle, HalError> {
    let core = &memory.core;
    let api = core.context.api();
    // The application may have freed it, and the address may be another allocation's by now.
    let [_, _, number, _] = attributes(core, memory.address)?;
    if number != origin.number {
        return Err(HalError::Invalid {
            what: "export CUDA memory",
            saw: "an allocation that the application has freed".to_owned(),
            allowed: "live memory".to_owned(),
            cure: "keep a buffer until the collectives that use it are done",
        });
    }
    let backend = Backend::Cuda;
    if origin.classic {
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: `handle` is a valid place for the answer; the driver checks the address.
        let code = unsafe { (api.ipc_export)(&raw mut handle, memory.address) };
        api.check("make an IPC handle of CUDA memory", code)?;
        return Ok(MemoryHandle::Ipc {
            backend,
            handle: handle.reserved.map(i8::cast_unsigned),
            process: process_number(),
            address: memory.address,
            bytes: memory.bytes,
        });
    }
    let what = "export memory of the application, made by another allocator than cudaMalloc; let it make shareable \
                memory, or copy through a buffer that this device allocated";
    let physical =
        Physical::at(&core.context, memory.address).map_err(|code| api.error(what, code))?;
    let descriptor = Arc::new(physical.export_descriptor()?);
    Ok(MemoryHandle::Device { backend, descriptor, bytes: memory.bytes })
}
