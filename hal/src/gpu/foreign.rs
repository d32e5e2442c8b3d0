//! Memory that the application allocated itself: what the driver knows of an address, and how peers can map it.

use crate::error::HalError;
use crate::gpu::calls::{Address, Device};
use crate::gpu::core::Core;
use crate::gpu::export::{by_ipc, ipc_handle, physical};
use crate::gpu::memory::{GpuMemory, Kind};
use crate::gpu::vendor::{Context, Numbers, Owner, Vendor};
use crate::gpu::vmm::{OWN, Physical};
use crate::gpu::{import, lock, peers};
use crate::handle::Home;
use crate::home::{mapping_number, process_number};
use crate::id::next_id;
use crate::memory::MemoryHandle;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

/// The objects for memory of the application, by the numbers of its allocations.
pub(crate) type Known<V> = HashMap<Vec<Numbers>, Weak<GpuMemory<V>>>;

/// What the driver says of memory of the application.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The allocations, at addresses that follow each other: a single one, unless an allocator maps physical memory in chunks.
    pub(crate) pieces: Vec<Piece>,
    /// Whether IPC handles can be made of it ([`Owner::classic`]). Only one piece then.
    classic: Option<bool>,
    device: Device,
    /// How others of this process find it, once it was exported.
    lent: OnceLock<Lent>,
}

/// How others of a process find memory of the application's.
#[derive(Debug)]
struct Lent {
    /// Its [number](mapping_number).
    number: u64,
    /// What the driver knows its owner by ([`Vendor::peer_at`]).
    peer: usize,
}

impl Origin {
    fn base(&self) -> Address {
        self.pieces[0].base
    }

    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }

    fn numbers(&self) -> Vec<Numbers> {
        self.pieces.iter().map(|piece| piece.numbers).collect()
    }

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
    // The driver is asked again if memory of our own came or went meanwhile.
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

/// The application's memory that this process exported by this number, for kernels of this device; it may be of another device.
///
/// If kernels of this device may use the other device's memory already, the driver is not asked: a kernel may wait for the
/// memory, and the driver for that kernel. So the application may have freed the memory.
pub(crate) fn borrow<V: Vendor>(
    core: &Arc<Core<V>>,
    number: u64,
    bytes: u64,
) -> Result<Arc<GpuMemory<V>>, HalError> {
    let home = Home { process: process_number(), number };
    // The exporter keeps it as long as others may use it.
    let origin = V::process().lent.find(home).ok_or(HalError::Gone)?;
    if bytes != origin.bytes() {
        return Err(import::refused(&format!("{bytes} bytes"), &format!("{}", origin.bytes())));
    }
    let may_use = |lent: &Lent| peers::may_use(core, lent.peer, origin.device);
    if !origin.lent.get().is_some_and(may_use) {
        let _entered = core.context.enter()?;
        let enabled = peers::enable(core, origin.base(), origin.device);
        // The driver knows no context of memory that was freed meanwhile.
        enabled.or_else(|error| match check_alive(core, &origin) {
            Err(HalError::Invalid { .. }) => Err(HalError::Gone),
            alive => alive.and(Err(error)),
        })?;
    }
    Ok(one(core, &origin))
}

fn refused(saw: String, allowed: &str, cure: &'static str) -> HalError {
    let allowed = allowed.to_owned();
    HalError::Invalid { what: "find memory of a GPU", saw, allowed, cure }
}

/// The allocations that hold the `bytes` bytes at `address`. The context must be current.
fn walk<V: Vendor>(core: &Core<V>, address: Address, bytes: u64) -> Result<Origin, HalError> {
    let (first, Owner { device, classic, .. }) = piece(core, address)?;
    let mut origin = Origin { pieces: vec![first], classic, device, lent: OnceLock::new() };
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
    let offset = address.saturating_sub(origin.base());
    if let Some(memory) = find(core, &origin) {
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
    Ok((one(core, &Arc::new(origin)), offset))
}

/// The object for the allocations, if somebody has it.
fn find<V: Vendor>(core: &Core<V>, origin: &Origin) -> Option<Arc<GpuMemory<V>>> {
    known_among(&lock(&core.foreign), origin)
}

fn known_among<V: Vendor>(all: &Known<V>, origin: &Origin) -> Option<Arc<GpuMemory<V>>> {
    let known = all.get(&origin.numbers()).and_then(Weak::upgrade)?;
    ((known.address, known.bytes) == (origin.base(), origin.bytes())).then_some(known)
}

/// The object for the allocations, made if nobody has it. Asks no driver.
fn one<V: Vendor>(core: &Arc<Core<V>>, origin: &Arc<Origin>) -> Arc<GpuMemory<V>> {
    let mut foreign = lock(&core.foreign);
    if let Some(memory) = known_among(&foreign, origin) {
        return memory;
    }
    let (address, bytes) = (origin.base(), origin.bytes());
    foreign.retain(|_, memory| memory.strong_count() > 0);
    let (kind, core) = (Kind::Foreign(Arc::clone(origin)), Arc::clone(core));
    let memory = Arc::new(GpuMemory { id: next_id(), address, bytes, kind, core });
    foreign.insert(origin.numbers(), Arc::downgrade(&memory));
    memory
}

/// Checks that the application has not freed the memory meanwhile: its addresses may be another allocation's by now. The context
/// must be current.
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
    origin: &Arc<Origin>,
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
            Ok(handle) => return Ok(vec![by_ipc(memory, handle, lend(core, origin)?)]),
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

/// The number by which others of this process find memory, as long as somebody has it. The context must be current.
fn lend<V: Vendor>(core: &Core<V>, origin: &Arc<Origin>) -> Result<u64, HalError> {
    let lent = match origin.lent.get() {
        Some(lent) => lent,
        None => {
            let peer = V::peer_at(core, origin.base(), origin.device)?;
            origin.lent.get_or_init(|| Lent { number: mapping_number(), peer })
        }
    };
    V::process().lent.enter(lent.number, origin);
    Ok(lent.number)
}
