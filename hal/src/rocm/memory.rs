//! ROCm memory of kinds of its own: what the run-time library allocates, where physical memory cannot be had without
//! caches between devices.

use crate::error::HalError;
use crate::gpu::calls::Address;
use crate::gpu::code::Code;
use crate::gpu::core::Core;
use crate::gpu::export::{by_ipc, ipc_handle, not_shareable};
use crate::gpu::import::refused;
use crate::gpu::memory::{self, GpuMemory, Kind, enter, failed};
use crate::gpu::peers;
use crate::gpu::vendor::Context as _;
use crate::gpu::vmm::OWN;
use crate::memory::MemoryHandle;
use crate::ranges::Ranges;
use crate::rocm::driver::pointer_to;
use crate::rocm::{RocmDriver, conv};
use std::ptr;
use std::sync::{Arc, LazyLock, OnceLock};

/// Memory of this vendor's GPUs.
type RocmMemory = GpuMemory<RocmDriver>;

/// What the run-time library allocated for us on all devices, by address.
static ALLOCATED: LazyLock<Ranges<RocmMemory>> = LazyLock::new(Ranges::default);

/// What the memory is, with what it owns.
#[derive(Debug)]
pub(crate) enum Own {
    /// Allocated by the run-time library.
    Allocated {
        /// The IPC handle that was made of it: always the same one, so that peers open it once.
        handle: OnceLock<[u8; 64]>,
    },
    /// Allocated so, by another device of this process.
    Neighbour {
        /// Kept while it is used.
        _memory: Arc<RocmMemory>,
    },
}

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
    let own = Own::Allocated { handle: OnceLock::new() };
    let memory = enter(core, address, bytes, Kind::Own(own));
    ALLOCATED.enter(&memory);
    Ok(memory)
}

/// The handle of memory. The device must be current.
pub(super) fn export(memory: &RocmMemory, own: &Own) -> Result<MemoryHandle, HalError> {
    let core = &memory.core;
    match own {
        Own::Allocated { handle } => {
            if let Some(handle) = handle.get() {
                return Ok(by_ipc(memory, *handle));
            }
            let made = ipc_handle(core, memory.address)
                .map_err(|code| core.context.api().error("make an IPC handle of memory", code))?;
            Ok(by_ipc(memory, *handle.get_or_init(|| made)))
        }
        Own::Neighbour { .. } => Err(not_shareable(
            "another device allocated it",
            "let the device that allocated it export it",
        )),
    }
}

/// Memory that the run-time library allocated for us in this process, if `handle` was made of it.
pub(super) fn by_own_handle(
    core: &Arc<Core<RocmDriver>>,
    handle: &[u8; 64],
    address: Address,
    bytes: u64,
) -> Result<Option<Arc<RocmMemory>>, HalError> {
    let is_of = |kind: &Kind<RocmDriver>| matches!(kind, Kind::Own(Own::Allocated { handle: own }) if own.get() == Some(handle));
    let found = ALLOCATED.find(address as usize, 1);
    let Some((memory, _)) = found.filter(|(memory, offset)| *offset == 0 && is_of(&memory.kind))
    else {
        return Ok(None);
    };
    if memory.bytes != bytes {
        return Err(refused(&format!("{bytes} bytes"), &format!("{}", memory.bytes)));
    }
    let owner = memory.core.context.device();
    if owner == core.context.device() {
        return Ok(Some(memory));
    }
    if let Some((known, 0)) = core.ranges.find(address as usize, bytes) {
        return Ok(Some(known));
    }
    peers::enable(core, address, owner)?;
    let own = Own::Neighbour { _memory: memory };
    Ok(Some(enter(core, address, bytes, Kind::Own(own))))
}

/// Lets go of memory.
pub(super) fn let_go(memory: &RocmMemory, own: &Own) {
    if let Own::Allocated { .. } = own {
        ALLOCATED.remove(memory);
    }
    memory.core.ranges.remove(memory);
    if let Own::Allocated { .. } = own {
        // No lock is held in the call below: it waits for kernels, which may wait for other threads.
        OWN.remove(memory.address);
        if let Ok(_entered) = memory.core.context.enter() {
            // SAFETY: allocated by `allocate` and freed here alone.
            let _ = unsafe { (memory.core.context.api().memory_free)(pointer_to(memory.address)) };
        }
    }
}
