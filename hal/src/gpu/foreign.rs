//! Memory that the application allocated itself: what the driver knows of an address, and how peers can map it.

use crate::error::HalError;
use crate::gpu::calls::{Address, Device};
use crate::gpu::core::Core;
use crate::gpu::export::{by_ipc, ipc_handle, physical};
use crate::gpu::memory::{GpuMemory, Kind};
use crate::gpu::vendor::{Context, Numbers, Owner, Vendor};
use crate::gpu::vmm::{OWN, Physical};
use crate::gpu::{lock, peers};
use crate::id::next_id;
use crate::memory::MemoryHandle;
use std::sync::{Arc, Weak};

/// What the driver says of memory of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The allocations, one behind the other: one, but where an allocator maps physical memory in chunks.
    pub(crate) pieces: Vec<Piece>,
    /// Whether IPC handles can be made of it ([`Owner::classic`]). Only one piece then.
    classic: Option<bool>,
    device: Device,
}

impl Origin {
    /// Whether it is known that other processes can map it by IPC handles alone.
    pub(crate) fn is_legacy_ipc(&self) -> bool {
        self.classic == Some(true)
    }
}

/// One allocation of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    base: Address,
    bytes: u64,
    /// Which one it is.
    numbers: Numbers,
}

impl Piece {
    fn end(&self) -> Address {
        self.base.saturating_add(self.bytes)
    }
}

/// Memory, and an offset in it.
type Place<V> = (Arc<GpuMemory<V>>, u64);

/// The application's memory of this device that holds the `bytes` bytes at `address`, and the offset of `address` in it.
pub(crate) fn locate<V: Vendor>(
    core: &Arc<Core<V>>,
    address: Address,
    bytes: u64,
) -> Result<Place<V>, HalError> {
    let _entered = core.context.enter()?;
    // Nothing of our own comes to the addresses while the driver is asked.
    let origin = OWN.steadily(|| walk(core, address, bytes))?;
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
pub(crate) fn neighbour<V: Vendor>(
    core: &Arc<Core<V>>,
    address: Address,
    bytes: u64,
) -> Result<Place<V>, HalError> {
    let origin = OWN.steadily(|| walk(core, address, bytes))?;
    // Of memory that goes meanwhile the driver tells no context.
    let enabled = peers::enable(core, address, origin.device);
    enabled.or_else(|error| check_alive(core, &origin).and(Err(error)))?;
    known(core, origin, address)
}

fn refused(saw: String, allowed: &str, cure: &'static str) -> HalError {
    let allowed = allowed.to_owned();
    HalError::Invalid { what: "find memory of a GPU", saw, allowed, cure }
}

/// The allocations that hold the `bytes` bytes at `address`. The context must be current.
fn walk<V: Vendor>(core: &Core<V>, address: Address, bytes: u64) -> Result<Origin, HalError> {
    let (first, Owner { device, classic, .. }) = piece(core, address)?;
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
        let is_classic = |classic| classic == Some(true);
        let next = (!is_classic(classic)).then(|| piece(core, end)).and_then(Result::ok);
        let next = next.filter(|(next, owner)| {
            let goes_on = next.base == end && next.end() > end;
            goes_on && !is_classic(owner.classic) && owner.device == device
        });
        let known = end - first.base;
        let (next, _) = next.ok_or_else(|| short(known))?;
        end = next.end();
        origin.pieces.push(next);
    }
    Ok(origin)
}

/// The allocation at `address`, and whose it is. The context must be current.
fn piece<V: Vendor>(core: &Core<V>, address: Address) -> Result<(Piece, Owner), HalError> {
    if OWN.hold(address) {
        return Err(refused(
            format!(
                "the address {address:#x}, past the end of memory of a device, or of another device"
            ),
            "a range within one memory of this device",
            "pass a range of memory that is live",
        ));
    }
    let nowhere = || {
        refused(
            format!("the address {address:#x}, which is not on any device"),
            &format!("memory that {} or this device allocated", V::WORDS.allocator),
            "pass memory of this device",
        )
    };
    let owner = if address == 0 { None } else { V::owner(core, address)? };
    let owner = owner.ok_or_else(nowhere)?;
    let (mut base, mut length) = (0, 0);
    let api = core.context.api();
    // SAFETY: both are valid places for the answers.
    let code = unsafe { (api.pointer_range)(&raw mut base, &raw mut length, address) };
    api.check("find the allocation at an address", code).or_else(|error| {
        // It may have been freed meanwhile.
        let now = V::owner(core, address)?.filter(|now| now.numbers == owner.numbers);
        Err(now.map_or_else(nowhere, |_| error))
    })?;
    Ok((Piece { base, bytes: length as u64, numbers: owner.numbers }, owner))
}

/// The one object for the allocations, as long as somebody has it, and the offset of `address` in it.
fn known<V: Vendor>(
    core: &Arc<Core<V>>,
    origin: Origin,
    address: Address,
) -> Result<Place<V>, HalError> {
    let base = origin.pieces[0].base;
    let bytes = origin.pieces.iter().map(|piece| piece.bytes).sum();
    let offset = address.saturating_sub(base);
    let numbers: Vec<_> = origin.pieces.iter().map(|piece| piece.numbers).collect();
    let mut foreign = lock(&core.foreign);
    let known = foreign.get(&numbers).and_then(Weak::upgrade);
    if let Some(memory) = known.filter(|memory| (memory.address, memory.bytes) == (base, bytes)) {
        return Ok((memory, offset));
    }
    if origin.pieces.len() > 1 {
        // Allocations that merely lie side by side are not one: only chunks of physical memory are put together.
        let apart = || {
            refused(
                format!("a range over {} allocations", origin.pieces.len()),
                "a range within one allocation",
                "pass a buffer that was allocated as one",
            )
        };
        let calls = core.traits.mapping.ok_or_else(apart)?;
        for piece in &origin.pieces {
            Physical::<V>::at(&core.context, calls, piece.base).map_err(|_| apart())?;
        }
    }
    foreign.retain(|_, memory| memory.strong_count() > 0);
    let kind = Kind::Foreign(origin);
    let core = Arc::clone(core);
    let memory = Arc::new(GpuMemory { id: next_id(), address: base, bytes, kind, core });
    foreign.insert(numbers, Arc::downgrade(&memory));
    Ok((memory, offset))
}

/// That the application has not freed the memory meanwhile: its addresses may be another allocation's by now. The
/// context must be current.
pub(crate) fn check_alive<V: Vendor>(core: &Core<V>, origin: &Origin) -> Result<(), HalError> {
    for piece in &origin.pieces {
        if V::owner(core, piece.base)?.is_none_or(|owner| owner.numbers != piece.numbers) {
            return Err(HalError::Invalid {
                what: "export memory",
                saw: "an allocation that the application has freed".to_owned(),
                allowed: "live memory".to_owned(),
                cure: "keep a buffer until the collectives that use it are done",
            });
        }
    }
    Ok(())
}

/// What a peer needs to map the application's `memory`: a handle for each piece. Its context must be current.
pub(crate) fn export<V: Vendor>(
    memory: &GpuMemory<V>,
    origin: &Origin,
) -> Result<Vec<MemoryHandle>, HalError> {
    let core = &memory.core;
    let api = core.context.api();
    check_alive(core, origin)?;
    let unshareable = |what: &str, code| HalError::NotShareable {
        why: format!(
            "the application's allocator made it neither by {} nor of physical memory of its own ({})",
            V::WORDS.allocator,
            api.error(what, code)
        ),
        cure: peers::STAGE,
    };
    if origin.classic != Some(false) && origin.pieces.len() == 1 {
        let what = "make an IPC handle of memory";
        match ipc_handle(core, memory.address) {
            Ok(handle) => return Ok(vec![by_ipc(memory, handle)]),
            Err(code) if origin.classic == Some(true) => return Err(api.error(what, code)),
            Err(code) if core.traits.mapping.is_none() => return Err(unshareable(what, code)),
            // Tried in vain: it may be physical memory.
            Err(_) => {}
        }
    }
    let calls = core.mapping()?;
    let pieces = origin.pieces.iter();
    pieces
        .map(|piece| {
            let found = Physical::at(&core.context, calls, piece.base)
                .map_err(|code| unshareable("find the physical memory at an address", code))?;
            physical(core, &found, piece.bytes)
        })
        .collect()
}
