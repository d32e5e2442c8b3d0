//! ROCm memory: allocations, pinned memory of the host, and what every kind of memory lets go of.

use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::process_number;
use crate::id::next_id;
use crate::memory::{Memory, MemoryHandle};
use crate::ranges::Ranges;
use crate::rocm::context::Unrecorded;
use crate::rocm::device::Core;
use crate::rocm::library::Code;
use crate::rocm::peers::STAGE;
use crate::rocm::vmm::{Calls, Mapped, OWN, Physical};
use crate::rocm::{conv, foreign, graph, lock};
use hip_sys::hiprt as sys;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, LazyLock, OnceLock};

/// What the run-time library allocated for us on all devices, by address.
static ALLOCATED: LazyLock<Ranges<RocmMemory>> = LazyLock::new(Ranges::default);

/// Memory that kernels of a device reach.
#[derive(Debug)]
pub(super) struct RocmMemory {
    pub(super) id: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) kind: Kind,
    pub(super) core: Arc<Core>,
}

/// What the memory is, with what it owns.
#[derive(Debug)]
pub(super) enum Kind {
    /// Physical memory of a device, ours or a peer's. Unmapped before its count is given back.
    Mapped {
        /// Where it is mapped.
        _mapped: Mapped,
        /// The memory.
        physical: Physical,
    },
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
    /// The application's own, of this device or of another one; nothing is owned.
    Foreign(foreign::Origin),
    /// Opened by an IPC handle.
    Opened {
        /// The handle.
        handle: [u8; 64],
    },
    /// Pinned memory of the host.
    Pinned,
}

/// Allocates `bytes` bytes of zeroed memory on the device.
pub(super) fn allocate(core: &Arc<Core>, bytes: u64) -> Result<Arc<RocmMemory>, HalError> {
    graph::let_go();
    let limit = core.traits.caps.memory_bytes;
    check_size(core, bytes, limit, &format!("the device has {limit} in all"))?;
    let length = rounded(core, bytes)
        .ok_or_else(|| out_of_memory(core, bytes, "no range is that long".to_owned()))?;
    let _entered = core.context.enter()?;
    let _unrecorded = Unrecorded::new(core.context.api());
    let memory = match core.traits.virtual_memory {
        Some(calls) if core.traits.mapped => map_new(core, calls, bytes, length)?,
        _ => allocate_classic(core, bytes, length)?,
    };
    // SAFETY: the range came just now, and nobody else knows of it.
    unsafe { core.upkeep.clear(memory.address, length)? };
    Ok(memory)
}

/// Physical memory without caches between devices, mapped.
fn map_new(
    core: &Arc<Core>,
    calls: Calls,
    bytes: u64,
    length: usize,
) -> Result<Arc<RocmMemory>, HalError> {
    let physical = Physical::create(&core.context, calls, length)
        .map_err(|code| failed(core, bytes, "allocate HIP memory", code))?;
    let mapped = Mapped::new(&core.context, &physical, length)
        .map_err(|code| failed(core, bytes, "map HIP memory", code))?;
    let address = mapped.address();
    Ok(enter(core, address, bytes, Kind::Mapped { _mapped: mapped, physical }))
}

/// Memory of the run-time library that no cache keeps from other devices.
fn allocate_classic(
    core: &Arc<Core>,
    bytes: u64,
    length: usize,
) -> Result<Arc<RocmMemory>, HalError> {
    let ask = |flags| {
        let mut pointer = ptr::null_mut();
        // SAFETY: `pointer` is a valid place for the answer.
        let code = unsafe { (core.context.api().memory_allocate)(&raw mut pointer, length, flags) };
        if code == Code::SUCCESS { Ok(pointer) } else { Err(code) }
    };
    let pointer = match ask(conv::UNCACHED) {
        // An older release.
        Err(Code::INVALID_VALUE | Code::NOT_SUPPORTED) => ask(conv::FINE_GRAINED),
        other => other,
    };
    let pointer = pointer.map_err(|code| failed(core, bytes, "allocate HIP memory", code))?;
    let address = pointer.expose_provenance() as u64;
    OWN.enter(address, length as u64);
    let memory = enter(core, address, bytes, Kind::Allocated { handle: OnceLock::new() });
    ALLOCATED.enter(&memory);
    Ok(memory)
}

/// Allocates `bytes` bytes of zeroed memory of the host that kernels reach at the same address.
pub(super) fn pinned(core: &Arc<Core>, bytes: u64) -> Result<Arc<RocmMemory>, HalError> {
    check_size(core, bytes, isize::MAX as u64, "no range is that long")?;
    if !core.traits.pinned {
        return Err(HalError::Unsupported { op: "allocate pinned memory", backend: Backend::Rocm });
    }
    let api = core.context.api();
    let _entered = core.context.enter()?;
    let _unrecorded = Unrecorded::new(api);
    let what = "allocate pinned memory";
    let mut pointer = ptr::null_mut();
    // SAFETY: `pointer` is a valid place for the answer; the length fits an address.
    let code = unsafe { (api.host_allocate)(&raw mut pointer, bytes as usize, conv::PINNED) };
    if code != Code::SUCCESS {
        return Err(failed(core, bytes, what, code));
    }
    let address = pointer.expose_provenance() as u64;
    let memory = enter(core, address, bytes, Kind::Pinned);
    // SAFETY: `bytes` bytes were allocated just now, and nobody else knows of them.
    unsafe { ptr::write_bytes(pointer.cast::<u8>(), 0, bytes as usize) };
    let mut seen = ptr::null_mut();
    // SAFETY: `seen` is a valid place for the answer; the memory is pinned.
    let code = unsafe { (api.host_address)(&raw mut seen, pointer, 0) };
    api.check("find the device's address of pinned memory", code)?;
    if seen != pointer {
        return Err(HalError::Unavailable {
            what: "pinned memory".to_owned(),
            why: format!("the device sees {address:#x} at {seen:?}"),
            cure: "use a device with unified addressing".to_owned(),
        });
    }
    Ok(memory)
}

/// Makes the object for memory at `address` and enters it in the device's table.
pub(super) fn enter(core: &Arc<Core>, address: u64, bytes: u64, kind: Kind) -> Arc<RocmMemory> {
    let core = Arc::clone(core);
    let memory = Arc::new(RocmMemory { id: next_id(), address, bytes, kind, core });
    memory.core.ranges.enter(&memory);
    memory
}

/// `bytes` rounded up to whole units of allocation, if a range can be that long.
pub(super) fn rounded(core: &Core, bytes: u64) -> Option<usize> {
    let unit = usize::try_from(core.traits.caps.page_bytes).ok()?;
    let rounded = usize::try_from(bytes).ok()?.checked_next_multiple_of(unit)?;
    isize::try_from(rounded).is_ok().then_some(rounded)
}

fn check_size(core: &Core, bytes: u64, limit: u64, why: &str) -> Result<(), HalError> {
    if bytes == 0 {
        return Err(HalError::Invalid {
            what: "allocate HIP memory",
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
fn failed(core: &Core, bytes: u64, what: &str, code: Code) -> HalError {
    let error = core.context.api().error(what, code);
    if code == Code::OUT_OF_MEMORY { out_of_memory(core, bytes, error.to_string()) } else { error }
}

fn out_of_memory(core: &Core, bytes: u64, why: String) -> HalError {
    HalError::OutOfMemory { bytes, device: core.name.clone(), why }
}

/// The IPC handle of memory that the run-time library allocated at `address`. The device must be current.
pub(super) fn ipc_handle(core: &Core, address: u64) -> Result<[u8; 64], Code> {
    let mut handle = sys::hipIpcMemHandle_t { reserved: [0; 64] };
    let pointer = ptr::with_exposed_provenance_mut::<c_void>(address as usize);
    // SAFETY: `handle` is a valid place for the answer; the driver checks the address.
    let code = unsafe { (core.context.api().ipc_export)(&raw mut handle, pointer) };
    if code == Code::SUCCESS { Ok(handle.reserved.map(|byte| byte as u8)) } else { Err(code) }
}

/// The memory at `address` that any device of this process allocated, if it is the one that `handle` was made of.
pub(super) fn allocated(address: u64, handle: &[u8; 64]) -> Option<Arc<RocmMemory>> {
    let (memory, offset) = ALLOCATED.find(address as usize, 1)?;
    let is_of =
        |kind: &Kind| matches!(kind, Kind::Allocated { handle: own } if own.get() == Some(handle));
    (offset == 0 && is_of(&memory.kind)).then_some(memory)
}

impl RocmMemory {
    /// The handle by IPC, of the memory's own allocation.
    pub(super) fn by_ipc(&self, handle: [u8; 64]) -> MemoryHandle {
        MemoryHandle::Ipc {
            backend: Backend::Rocm,
            handle,
            process: process_number(),
            address: self.address,
            bytes: self.bytes,
        }
    }
}

impl Memory for RocmMemory {
    fn backend(&self) -> Backend {
        Backend::Rocm
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

    fn export(&self) -> Result<MemoryHandle, HalError> {
        let _entered = self.core.context.enter()?;
        let (why, cure) = match &self.kind {
            Kind::Mapped { physical, .. } => {
                let descriptor = Arc::new(physical.export_descriptor()?);
                let backend = Backend::Rocm;
                return Ok(MemoryHandle::Device { backend, descriptor, bytes: self.bytes });
            }
            Kind::Allocated { handle } => {
                if let Some(handle) = handle.get() {
                    return Ok(self.by_ipc(*handle));
                }
                let made = ipc_handle(&self.core, self.address).map_err(|code| {
                    self.core.context.api().error("make an IPC handle of HIP memory", code)
                })?;
                return Ok(self.by_ipc(*handle.get_or_init(|| made)));
            }
            Kind::Foreign(origin) => return foreign::export(self, origin),
            Kind::Neighbour { .. } => {
                ("another device allocated it", "let the device that allocated it export it")
            }
            Kind::Opened { .. } => {
                ("another process allocated it", "let the process that allocated it export it")
            }
            Kind::Pinned => ("it is pinned memory of the host", STAGE),
        };
        Err(HalError::NotShareable { why: why.to_owned(), cure })
    }
}

impl Drop for RocmMemory {
    fn drop(&mut self) {
        let api = self.core.context.api();
        // To let go of memory is no part of a graph that is being recorded.
        let _unrecorded = Unrecorded::new(api);
        let pointer = ptr::with_exposed_provenance_mut::<c_void>(self.address as usize);
        match &self.kind {
            Kind::Foreign(_) => {}
            // Out of the table before the range is unmapped, here by the fields, which are dropped after this: the
            // next mapping may get the same address.
            Kind::Mapped { .. } | Kind::Neighbour { .. } => self.core.ranges.remove(self),
            Kind::Allocated { .. } => {
                ALLOCATED.remove(self);
                self.core.ranges.remove(self);
                // No lock is held in the calls below: they wait for kernels, which may wait for other threads.
                OWN.remove(self.address);
                if let Ok(_entered) = self.core.context.enter() {
                    // SAFETY: allocated by `allocate_classic` and freed here alone.
                    let _ = unsafe { (api.memory_free)(pointer) };
                }
            }
            Kind::Pinned => {
                self.core.ranges.remove(self);
                if let Ok(_entered) = self.core.context.enter() {
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
                drop(opened);
                OWN.remove(self.address);
                if let Ok(_entered) = self.core.context.enter() {
                    // SAFETY: opened by `open`, and closed here once for that; the driver counts.
                    let _ = unsafe { (api.ipc_close)(pointer) };
                }
            }
        }
    }
}
