//! Pinned memory of the host. Small pieces are cut out of slabs that stay until the device goes: a driver may let whoever pins
//! or frees memory wait for all kernels of a device, and kernels wait for what is pinned beside them.

use crate::error::HalError;
use crate::gpu::calls::Address;
use crate::gpu::core::Core;
use crate::gpu::lock;
use crate::gpu::memory::{GpuMemory, Kind, check_size, enter, failed};
use crate::gpu::recording::Unrecorded;
use crate::gpu::vendor::{Context, Vendor, unsupported};
use crate::memory::{Memory, check_host};
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex};

/// Bytes of a slab.
const SLAB: usize = 16 << 20;
/// Pieces are so many bytes, or a multiple: no two of them share a page.
const UNIT: usize = 4 << 10;
/// The most bytes of a piece; what is longer is the driver's.
const LARGEST: usize = SLAB / 2;
/// Bytes of zeros that memory is cleared from.
pub(crate) const ZEROS: usize = 1 << 20;

/// Pinned memory of the driver's, freed when dropped.
#[derive(Debug)]
pub(crate) struct Block<V: Vendor> {
    address: Address,
    context: Arc<V::Context>,
}

/// Memory of the host's device that the driver knows until this is dropped.
#[derive(Debug)]
pub(crate) struct Registered<V: Vendor> {
    pub(crate) memory: Arc<dyn Memory>,
    context: Arc<V::Context>,
}

impl<V: Vendor> Drop for Registered<V> {
    fn drop(&mut self) {
        if let (Ok(_entered), Some(unregister)) =
            (self.context.enter(), self.context.api().host_unregister)
        {
            let _unrecorded = Unrecorded::new(self.context.api());
            // SAFETY: registered by `register`, and taken back here alone, while it is mapped.
            let _ = unsafe { unregister(self.memory.address().cast()) };
        }
    }
}

/// The slabs of a device.
pub(crate) struct Slabs<V: Vendor> {
    slabs: Mutex<Vec<Slab<V>>>,
    /// Where there are [`ZEROS`] zeros, once somebody has asked.
    zeros: Mutex<Option<Address>>,
}

/// A block, and which of its units are in use.
struct Slab<V: Vendor> {
    block: Block<V>,
    units: Units,
}

/// Which units of a slab are in use.
struct Units(Vec<bool>);

impl Units {
    fn new() -> Self {
        Units(vec![false; SLAB / UNIT])
    }

    /// The first of `count` free units that follow each other, taken.
    fn take(&mut self, count: usize) -> Option<usize> {
        let mut free = 0;
        let last = self.0.iter().position(|&used| {
            free = if used { 0 } else { free + 1 };
            free == count
        })?;
        let first = last + 1 - count;
        self.0[first..=last].fill(true);
        Some(first)
    }

    fn give_back(&mut self, first: usize, count: usize) {
        self.0[first..first + count].fill(false);
    }
}

impl<V: Vendor> Default for Slabs<V> {
    fn default() -> Self {
        Slabs { slabs: Mutex::default(), zeros: Mutex::default() }
    }
}

impl<V: Vendor> fmt::Debug for Slabs<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slabs").field("count", &lock(&self.slabs).len()).finish()
    }
}

impl<V: Vendor> Slabs<V> {
    /// A piece of at least `bytes` bytes, of what there is.
    fn take(&self, bytes: usize) -> Option<Address> {
        let mut slabs = lock(&self.slabs);
        slabs.iter_mut().find_map(|slab| {
            let first = slab.units.take(bytes.div_ceil(UNIT))?;
            Some(slab.block.address + (first * UNIT) as u64)
        })
    }

    /// Takes back a piece of `bytes` bytes.
    pub(crate) fn give_back(&self, address: Address, bytes: u64) {
        let mut slabs = lock(&self.slabs);
        let inside = |slab: &&mut Slab<V>| {
            (slab.block.address..slab.block.address + SLAB as u64).contains(&address)
        };
        if let Some(slab) = slabs.iter_mut().find(inside) {
            let first = (address - slab.block.address) as usize / UNIT;
            slab.units.give_back(first, (bytes as usize).div_ceil(UNIT));
        }
    }
}

impl<V: Vendor> Drop for Block<V> {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // To let go of memory is no part of a graph that is being recorded.
            let _unrecorded = Unrecorded::new(self.context.api());
            let pointer = ptr::with_exposed_provenance_mut(self.address as usize);
            // SAFETY: allocated by `block` and freed here alone.
            let _ = unsafe { (self.context.api().host_free)(pointer) };
        }
    }
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
    let (address, own) = if bytes as usize <= LARGEST {
        (piece(core, bytes as usize)?, None)
    } else {
        let made = block(core, bytes as usize)?;
        (made.address, Some(made))
    };
    let pointer = ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: `bytes` bytes were allocated, and nobody else knows of them.
    unsafe { ptr::write_bytes(pointer, 0, bytes as usize) };
    Ok(enter(core, address, bytes, Kind::Pinned(own)))
}

/// Where there are [`ZEROS`] zeros in pinned memory; `None` where kernels reach no memory of the host.
pub(crate) fn zeros<V: Vendor>(core: &Core<V>) -> Result<Option<Address>, HalError> {
    if !core.traits.pinned {
        return Ok(None);
    }
    let known = *lock(&core.slabs.zeros);
    if known.is_some() {
        return Ok(known);
    }
    // Without the lock, as the driver may let it wait for kernels.
    let address = piece(core, ZEROS)?;
    let pointer = ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: so many bytes were allocated, and nobody else knows of them; nobody writes there after this.
    unsafe { ptr::write_bytes(pointer, 0, ZEROS) };
    let first = *lock(&core.slabs.zeros).get_or_insert(address);
    if first != address {
        core.slabs.give_back(address, ZEROS as u64);
    }
    Ok(Some(first))
}

/// A piece of `bytes` bytes, of a new slab where it fits none that there is.
fn piece<V: Vendor>(core: &Core<V>, bytes: usize) -> Result<Address, HalError> {
    loop {
        if let Some(address) = core.slabs.take(bytes) {
            return Ok(address);
        }
        // No lock is held: it may wait for kernels, which may wait for other threads.
        let block = block(core, SLAB)?;
        lock(&core.slabs.slabs).push(Slab { block, units: Units::new() });
    }
}

/// Pinned memory of the driver's.
fn block<V: Vendor>(core: &Core<V>, bytes: usize) -> Result<Block<V>, HalError> {
    let api = core.context.api();
    let _entered = core.context.enter()?;
    let _unrecorded = Unrecorded::new(api);
    let mut pointer = ptr::null_mut();
    // SAFETY: `pointer` is a valid place for the answer; the length fits an address.
    let code = unsafe { (api.host_allocate)(&raw mut pointer, bytes, V::PINNED) };
    code.ok().map_err(|code| failed(core, bytes as u64, "allocate pinned memory", code))?;
    let address = pointer.expose_provenance() as u64;
    let block = Block { address, context: Arc::clone(&core.context) };
    check_address(core, address)?;
    Ok(block)
}

/// Registers memory of the host's device with the driver.
pub(crate) fn register<V: Vendor>(
    core: &Arc<Core<V>>,
    memory: &Arc<dyn Memory>,
) -> Result<Arc<GpuMemory<V>>, HalError> {
    check_host(memory)?;
    let api = core.context.api();
    let (Some(register), true) = (api.host_register, core.traits.pinned) else {
        return unsupported::<V, _>("pin memory of the host");
    };
    let _entered = core.context.enter()?;
    let _unrecorded = Unrecorded::new(api);
    let (pointer, bytes) = (memory.address(), memory.len());
    // SAFETY: the range is mapped for as long as `memory` is there, which is kept until it is taken back.
    let code = unsafe { register(pointer.cast(), bytes as usize, V::REGISTERED) };
    code.ok().map_err(|code| failed(core, bytes, "pin memory of the host", code))?;
    let (memory, context) = (Arc::clone(memory), Arc::clone(&core.context));
    let registered = Registered { memory, context };
    let address = pointer.expose_provenance() as u64;
    check_address(core, address)?;
    Ok(enter(core, address, bytes, Kind::Registered(registered)))
}

/// Checks that the device has pinned memory at the address where the host has it. The context must be current.
fn check_address<V: Vendor>(core: &Core<V>, address: Address) -> Result<(), HalError> {
    let (api, mut seen) = (core.context.api(), 0);
    let pointer = ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: `seen` is a valid place for the answer; the memory is pinned.
    let code = unsafe { (api.host_address)(&raw mut seen, pointer, 0) };
    api.check("find the device's address of pinned memory", code)?;
    if seen == address {
        return Ok(());
    }
    Err(HalError::Unavailable {
        what: "pinned memory".to_owned(),
        why: format!("the device sees {address:#x} at {seen:#x}"),
        cure: "use a device with unified addressing".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_taken_where_enough_follow_each_other() {
        let mut units = Units::new();
        let all = SLAB / UNIT;
        assert_eq!([units.take(2), units.take(3), units.take(1)], [Some(0), Some(2), Some(5)]);
        units.give_back(2, 3);
        assert_eq!(units.take(4), Some(6), "three are not four");
        assert_eq!(units.take(3), Some(2));
        assert_eq!(units.take(all), None);
        assert_eq!(units.take(all - 10), Some(10));
        assert_eq!(units.take(1), None);
    }
}
