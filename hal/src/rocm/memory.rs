//! ROCm memory of kinds of its own: what the run-time library allocates, where physical memory cannot be had without
//! caches between devices.

use crate::error::HalError;
use crate::gpu::calls::Address;
use crate::gpu::code::Code;
use crate::gpu::core::Core;
use crate::gpu::export::{by_ipc, ipc_handle, not_shareable};
use crate::gpu::import::refused;
use crate::gpu::memory::{self, GpuMemory, Kind, enter, failed, shared};
use crate::gpu::recording::Unrecorded;
use crate::gpu::vendor::Context as _;
use crate::gpu::vmm::OWN;
use crate::gpu::{lock, peers};
use crate::memory::MemoryHandle;
use crate::rocm::context::Context;
use crate::rocm::driver::pointer_to;
use crate::rocm::{RocmDriver, conv};
use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Memory of this vendor's GPUs.
type RocmMemory = GpuMemory<RocmDriver>;

/// Memory that the run-time library allocated for us, on all devices, and that others may have handles of.
static EXPORTED: Mutex<BTreeMap<[u8; 64], Weak<Block>>> = Mutex::new(BTreeMap::new());

/// Memory that the run-time library allocated, freed when dropped.
#[derive(Debug)]
pub(crate) struct Block {
    address: Address,
    bytes: u64,
    /// The IPC handle that was made of it: always the same one, so that peers open it once.
    handle: OnceLock<[u8; 64]>,
    context: Arc<Context>,
}

impl Drop for Block {
    fn drop(&mut self) {
        // To let go of memory is no part of a graph that is being recorded.
        let _unrecorded = Unrecorded::new(self.context.api());
        OWN.remove(self.address);
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: allocated by `allocate` and freed here alone; whoever uses the address keeps this object.
            let _ = unsafe { (self.context.api().memory_free)(pointer_to(self.address)) };
        }
    }
}

/// Memory that the run-time library allocated. Only the object of whoever asked for it is in the device's table, not those that
/// others of this process imported.
pub(crate) type Own = Arc<Block>;

/// Memory of the device, not cleared. The device must be current.
pub(super) fn allocate(
    core: &Arc<Core<RocmDriver>>,
    bytes: u64,
    length: usize,
) -> Result<Arc<RocmMemory>, HalError> {
    if core.traits.mapped {
        return memory::map_new(core, bytes, length);
    }
    // Memory of the run-time library that no cache keeps from other devices.
    let ask = |flags| {
        let mut pointer = ptr::null_mut();
        // SAFETY: `pointer` is a valid place for the answer.
        let code = unsafe { (core.context.api().memory_allocate)(&raw mut pointer, length, flags) };
        code.ok().map(|()| pointer)
    };
    let pointer = match ask(conv::UNCACHED) {
        // An older release.
        Err(Code::INVALID_VALUE | Code::NOT_SUPPORTED) => ask(conv::FINE_GRAINED),
        other => other,
    };
    let pointer = pointer.map_err(|code| failed(core, bytes, "allocate memory", code))?;
    let address = pointer.expose_provenance() as u64;
    OWN.enter(address, length as u64);
    let (handle, context) = (OnceLock::new(), Arc::clone(&core.context));
    let block = Arc::new(Block { address, bytes, handle, context });
    Ok(enter(core, address, bytes, Kind::Own(block)))
}

/// The handle of memory. The device must be current.
pub(super) fn export(memory: &RocmMemory, block: &Own) -> Result<MemoryHandle, HalError> {
    let core = &memory.core;
    if block.context.device() != core.context.device() {
        return Err(not_shareable(
            "another device allocated it",
            "let the device that allocated it export it",
        ));
    }
    let handle = match block.handle.get() {
        Some(handle) => *handle,
        None => {
            let made = ipc_handle(core, memory.address);
            let failed = |code| core.context.api().error("make an IPC handle of memory", code);
            let made = made.map_err(failed)?;
            *block.handle.get_or_init(|| made)
        }
    };
    // Each time: another thread may have made the handle, and not have come here yet.
    let mut exported = lock(&EXPORTED);
    exported.retain(|_, known| known.strong_count() > 0);
    exported.insert(handle, Arc::downgrade(block));
    Ok(by_ipc(memory, handle, 0))
}

/// Memory that the run-time library allocated for us in this process, if `handle` was made of it.
pub(super) fn by_own_handle(
    core: &Arc<Core<RocmDriver>>,
    handle: &[u8; 64],
    bytes: u64,
) -> Result<Option<Arc<RocmMemory>>, HalError> {
    let Some(block) = lock(&EXPORTED).get(handle).and_then(Weak::upgrade) else { return Ok(None) };
    if block.bytes != bytes {
        return Err(refused(&format!("{bytes} bytes"), &format!("{}", block.bytes)));
    }
    peers::enable(core, block.address, block.context.device())?;
    Ok(Some(shared(core, block.address, bytes, Kind::Own(block))))
}
