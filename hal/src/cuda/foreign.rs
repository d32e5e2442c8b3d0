//! Memory that the application allocated itself: what the driver knows of an address, and how peers can map it.

use crate::cuda::device::Core;
use crate::cuda::memory::{CudaMemory, Kind};
use crate::cuda::vmm::{OWN, Physical};
use crate::cuda::{conv, export, lock, peers};
use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::process_number;
use crate::gpu::spans::Entries;
use crate::id::next_id;
use crate::memory::MemoryHandle;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::sync::{Arc, Weak};

/// What the driver says of memory of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The allocations, one behind the other: one, but where an allocator maps physical memory in chunks.
    pub(super) pieces: Vec<Piece>,
    /// Whether classic IPC handles can be made of it. Only one piece then.
    classic: bool,
    device: sys::CUdevice,
}

/// One allocation of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    base: u64,
    bytes: u64,
    /// The driver's number of the allocation, which no other one gets.
    number: u64,
}

impl Piece {
    fn end(&self) -> u64 {
        self.base.saturating_add(self.bytes)
    }
}

/// The application's memory of this device that holds the `bytes` bytes at `address`, and the offset of `address` in it.
pub(super) fn locate(
    core: &Arc<Core>,
    address: u64,
    bytes: u64,
) -> Result<(Arc<CudaMemory>, u64), HalError> {
    let _entered = core.context.enter()?;
    let origin = walk(core, address, bytes)?;
    if origin.device != core.context.device() {
        return Err(refused(
            format!("memory of device {}", origin.device),
            "memory of this device",
            "pass buffers of the rank's own device",
        ));
    }
    known(core, origin, address)
}

/// As [`locate`], also for memory of another device of this process, which kernels of this one reach afterwards. The
/// context must be current.
pub(super) fn neighbour(
    core: &Arc<Core>,
    address: u64,
    bytes: u64,
) -> Result<(Arc<CudaMemory>, u64), HalError> {
    let origin = walk(core, address, bytes)?;
    if origin.device != core.context.device() {
        let names = [sys::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_CONTEXT];
        let [context] = ask(core, address, names)?;
        let context = std::ptr::with_exposed_provenance_mut(context as usize);
        peers::enable(core, context, origin.device)?;
    }
    known(core, origin, address)
}

fn refused(saw: String, allowed: &str, cure: &'static str) -> HalError {
    HalError::Invalid {
        what: "find memory of a CUDA device",
        saw,
        allowed: allowed.to_owned(),
        cure,
    }
}

/// The allocations that hold the `bytes` bytes at `address`. The context must be current.
fn walk(core: &Core, address: u64, bytes: u64) -> Result<Origin, HalError> {
    // Locked while the driver is asked: nothing of our own comes to the addresses meanwhile.
    let own = OWN.read();
    let (first, device, classic) = piece(core, &own, address)?;
    let mut origin = Origin { pieces: vec![first], classic, device };
    let offset = address.saturating_sub(first.base);
    let short = |known: u64| {
        refused(
            format!("{bytes} bytes at offset {offset} of an allocation of {known}"),
            "a range within one allocation",
            "pass a buffer whose memory is live from end to end",
        )
    };
    let wanted = address.checked_add(bytes).ok_or_else(|| short(first.bytes))?;
    let mut end = first.end();
    while end < wanted {
        let next = (!classic).then(|| piece(core, &own, end)).and_then(Result::ok);
        let next = next.filter(|(next, its_device, classic)| {
            next.base == end && next.end() > end && !classic && *its_device == device
        });
        let known = end - first.base;
        let (next, ..) = next.ok_or_else(|| short(known))?;
        end = next.end();
        origin.pieces.push(next);
    }
    Ok(origin)
}

/// The allocation at `address`, its device, and whether classic IPC handles can be made of it. `own` is what this
/// backend uses itself.
fn piece(
    core: &Core,
    own: &Entries,
    address: u64,
) -> Result<(Piece, sys::CUdevice, bool), HalError> {
    if own.hold(address) {
        return Err(refused(
            format!(
                "the address {address:#x}, past the end of memory of a device, or of another device"
            ),
            "a range within one memory of this device",
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
    let (mut base, mut length) = (0, 0);
    // SAFETY: both are valid places for the answers.
    let code =
        unsafe { (core.context.api().pointer_range)(&raw mut base, &raw mut length, address) };
    core.context.api().check("find the allocation at an address", code)?;
    // The driver writes the device as an int, and the last as one byte.
    let piece = Piece { base, bytes: length as u64, number };
    Ok((piece, device as u32 as i32, classic & 0xff != 0))
}

/// Four attributes of `address`: the kind of memory, its device, the allocation's number, whether it can be shared
/// by classic IPC. All zero for an address that the driver does not know.
fn attributes(core: &Core, address: u64) -> Result<[u64; 4], HalError> {
    use sys::CUpointer_attribute_enum as Attribute;
    let names = [
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID,
        Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
    ];
    ask(core, address, names)
}

/// Attributes of `address`, each at most eight bytes.
fn ask<const COUNT: usize>(
    core: &Core,
    address: u64,
    mut names: [sys::CUpointer_attribute; COUNT],
) -> Result<[u64; COUNT], HalError> {
    // Eight zeroed bytes each: the driver writes one, four or eight, the lowest first.
    let mut values = [0u64; COUNT];
    let mut places = values.each_mut().map(|value| (&raw mut *value).cast::<c_void>());
    // SAFETY: as many names as places, each with room for the widest answer; any address may be asked for.
    let code = unsafe {
        (core.context.api().pointer_attributes)(
            COUNT as u32,
            names.as_mut_ptr(),
            places.as_mut_ptr(),
            address,
        )
    };
    core.context.api().check("ask what is at an address", code)?;
    Ok(values)
}

/// The one object for the allocations, as long as somebody has it, and the offset of `address` in it.
fn known(
    core: &Arc<Core>,
    origin: Origin,
    address: u64,
) -> Result<(Arc<CudaMemory>, u64), HalError> {
    let base = origin.pieces[0].base;
    let bytes = origin.pieces.iter().map(|piece| piece.bytes).sum();
    let offset = address.saturating_sub(base);
    let numbers: Vec<_> = origin.pieces.iter().map(|piece| piece.number).collect();
    let mut foreign = lock(&core.foreign);
    let known = foreign.get(&numbers).and_then(Weak::upgrade);
    if let Some(memory) = known.filter(|memory| (memory.address, memory.bytes) == (base, bytes)) {
        return Ok((memory, offset));
    }
    if origin.pieces.len() > 1 {
        // Allocations that merely lie side by side are not one: only chunks of physical memory are put together.
        for piece in &origin.pieces {
            Physical::at(&core.context, piece.base).map_err(|_| {
                refused(
                    format!("a range over {} allocations", origin.pieces.len()),
                    "a range within one allocation",
                    "pass a buffer that was allocated as one",
                )
            })?;
        }
    }
    foreign.retain(|_, memory| memory.strong_count() > 0);
    let kind = Kind::Foreign(origin);
    let core = Arc::clone(core);
    let memory = Arc::new(CudaMemory { id: next_id(), address: base, bytes, kind, core });
    foreign.insert(numbers, Arc::downgrade(&memory));
    Ok((memory, offset))
}

/// That the application has not freed the memory meanwhile: its addresses may be another allocation's by now. The
/// context must be current.
pub(super) fn check_alive(core: &Core, origin: &Origin) -> Result<(), HalError> {
    for piece in &origin.pieces {
        let [_, _, number, _] = attributes(core, piece.base)?;
        if number != piece.number {
            return Err(HalError::Invalid {
                what: "export CUDA memory",
                saw: "an allocation that the application has freed".to_owned(),
                allowed: "live memory".to_owned(),
                cure: "keep a buffer until the collectives that use it are done",
            });
        }
    }
    Ok(())
}

/// What a peer needs to map the application's `memory`: a handle for each piece. Its context must be current.
pub(super) fn export(memory: &CudaMemory, origin: &Origin) -> Result<Vec<MemoryHandle>, HalError> {
    let core = &memory.core;
    let api = core.context.api();
    check_alive(core, origin)?;
    if origin.classic {
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: `handle` is a valid place for the answer; the driver checks the address.
        let code = unsafe { (api.ipc_export)(&raw mut handle, memory.address) };
        api.check("make an IPC handle of CUDA memory", code)?;
        return Ok(vec![MemoryHandle::Ipc {
            backend: Backend::Cuda,
            handle: handle.reserved.map(i8::cast_unsigned),
            process: process_number(),
            address: memory.address,
            bytes: memory.bytes,
        }]);
    }
    let pieces = origin.pieces.iter();
    pieces
        .map(|piece| {
            let physical =
                Physical::at(&core.context, piece.base).map_err(|code| HalError::NotShareable {
                    why: format!(
                        "the application's allocator made it neither by cudaMalloc nor of physical memory of its own \
                         ({})",
                        api.error("find the physical memory at an address", code)
                    ),
                    cure: peers::STAGE,
                })?;
            export::physical(core, &physical, piece.bytes)
        })
        .collect()
}
