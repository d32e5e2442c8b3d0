//! Mapping what peers exported, which may lie about it: other processes, and other devices of this one.

use crate::error::HalError;
use crate::gpu::calls::IpcHandle;
use crate::gpu::code::{Code, LAZY_PEER_ACCESS};
use crate::gpu::core::Core;
use crate::gpu::memory::{GpuMemory, Kind, enter, rounded};
use crate::gpu::recording::Unrecorded;
use crate::gpu::vendor::{Context, Vendor};
use crate::gpu::vmm::{Mapped, Mapping, OWN, Physical};
use crate::gpu::{foreign, lock, memory, peers, vmm};
use crate::home::process_number;
use crate::memory::MemoryHandle;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Maps what a peer exported, the parts of one memory or a single handle.
pub(crate) fn import<V: Vendor>(
    core: &Arc<Core<V>>,
    handles: &[MemoryHandle],
) -> Result<Arc<GpuMemory<V>>, HalError> {
    if let [MemoryHandle::Ipc { backend, handle, process, bytes, .. }] = handles
        && *backend == V::BACKEND
        && *process != process_number()
    {
        let _entered = core.context.enter()?;
        let _unrecorded = Unrecorded::new(core.context.api());
        return open(core, handle, *bytes);
    }
    // No context is entered where the driver needs none: a kernel may wait for this mapping, and a thread of the application that
    // holds the context's lock may wait for that kernel.
    let _entered = vmm::enter::<V>(&core.context)?;
    let _unrecorded = Unrecorded::new(core.context.api());
    if let [MemoryHandle::Ipc { backend, handle, number, bytes, .. }] = handles
        && *backend == V::BACKEND
    {
        // The driver opens no handle in the process that made it.
        return match V::by_own_handle(core, handle, *bytes)? {
            Some(memory) => Ok(memory),
            None => foreign::borrow(core, *number, *bytes),
        };
    }
    if let [MemoryHandle::Device { backend, home: Some(home), bytes, .. }] = handles
        && *backend == V::BACKEND
        && let Some(mapping) = V::process().exported.find(*home)
    {
        return share(core, mapping, *bytes);
    }
    import_physical(core, handles)
}

/// Memory that this process has mapped, at the same address.
fn share<V: Vendor>(
    core: &Arc<Core<V>>,
    mapping: Arc<Mapping<V>>,
    bytes: u64,
) -> Result<Arc<GpuMemory<V>>, HalError> {
    let mapped = &mapping.mapped;
    let length = mapped.parts().iter().sum::<usize>() as u64;
    if !(1..=length).contains(&bytes) {
        return Err(refused(&format!("{bytes} bytes"), &format!("1 to {length}")));
    }
    if mapped.device() != core.context.device() {
        peers::check(core, mapped.device())?;
        let allowed = mapped.allow(core.context.device());
        allowed.map_err(|code| core.context.api().error("share memory with a device", code))?;
    }
    Ok(memory::shared(core, mapped.address(), bytes, Kind::Mapped(mapping)))
}

/// Maps physical memory of a peer.
fn import_physical<V: Vendor>(
    core: &Arc<Core<V>>,
    handles: &[MemoryHandle],
) -> Result<Arc<GpuMemory<V>>, HalError> {
    let api = core.context.api();
    let failed = |what: &str, bytes: u64, code| match code {
        // Of a device that this process does not see.
        Code::INVALID_DEVICE => HalError::NotShareable {
            why: format!(
                "{} does not reach it, or {} hides its device from this process ({})",
                core.name,
                V::WORDS.visible,
                api.error(what, code)
            ),
            cure: peers::STAGE,
        },
        code if V::REFUSALS.contains(&code) => refused(
            &format!("{bytes} bytes, which the driver refuses ({})", api.error(what, code)),
            &format!("a handle of {} memory at least that long", V::BACKEND),
        ),
        code => api.error(what, code),
    };
    let (mut physicals, mut total) = (Vec::new(), 0u64);
    for (at, handle) in handles.iter().enumerate() {
        let bytes = handle.bytes();
        let imported = match handle {
            MemoryHandle::Device { backend, descriptor, .. } if *backend == V::BACKEND => {
                let descriptor = descriptor.as_fd();
                Some(Physical::import_descriptor(&core.context, core.mapping()?, descriptor))
            }
            MemoryHandle::Fabric { backend, handle, .. } if *backend == V::BACKEND => {
                V::import_fabric(&core.context, core.mapping()?, handle)
            }
            _ => None,
        };
        let Some(physical) = imported else {
            return Err(refused(
                &format!("a handle of {} ({})", handle.kind_name(), handle.backend()),
                &format!("those that the {} backend makes, or a single IPC handle", V::BACKEND),
            ));
        };
        let length = rounded(core, bytes).filter(|_| bytes > 0);
        let Some(length) = length else {
            return Err(refused(
                &format!("{bytes} bytes"),
                "1 or more, fewer than an address range",
            ));
        };
        if at + 1 < handles.len() && length as u64 != bytes {
            return Err(refused(
                &format!("a part of {bytes} bytes with others behind it"),
                &format!("whole units of {} bytes", core.traits.caps.page_bytes),
            ));
        }
        total = total.saturating_add(bytes);
        let physical = physical.map_err(|code| failed("import memory", bytes, code))?;
        if let Some(owner) = V::properties(&physical).and_then(|properties| properties.device()) {
            peers::check(core, owner)?;
        }
        physicals.push((physical, length));
    }
    let parts: Vec<_> = physicals.iter().map(|(physical, length)| (physical, *length)).collect();
    if parts.is_empty() {
        return Err(refused("no handle", "1 or more"));
    }
    let mapped = Mapped::new(&core.context, core.mapping()?, &parts)
        .map_err(|code| failed("map imported memory", total, code))?;
    let physicals = physicals.into_iter().map(|(physical, _)| physical).collect();
    let (address, mapping) = (mapped.address(), Mapping::new(mapped, physicals));
    Ok(enter(core, address, total, Kind::Mapped(mapping)))
}

/// Opens memory of another process by its IPC handle, once.
fn open<V: Vendor>(
    core: &Arc<Core<V>>,
    handle: &[u8; 64],
    bytes: u64,
) -> Result<Arc<GpuMemory<V>>, HalError> {
    let api = core.context.api();
    let place = {
        let mut all = lock(&core.opened);
        // A thread that opens a handle, or lets go of it, holds the handle's place.
        all.retain(|_, place| Arc::strong_count(place) > 1 || lock(place).strong_count() > 0);
        Arc::clone(all.entry(*handle).or_default())
    };
    // Held until it is in the tables: the driver gives the same address when a handle is opened again.
    let mut opened = lock(&place);
    if let Some(memory) = opened.upgrade() {
        // Before the memory can be dropped here, which takes the lock.
        drop(opened);
        if memory.bytes == bytes {
            return Ok(memory);
        }
        return Err(refused(&format!("{bytes} bytes"), &format!("{}", memory.bytes)));
    }
    let what = "open memory of another process";
    let mut address = 0;
    // The addresses are entered only after the call. It may wait for kernels, and a lock held over it would let others wait, too.
    // Nobody has the addresses before that: a lookup there would be for memory that is none of the caller's.
    // SAFETY: `address` is a valid place for the answer; the driver checks the handle.
    let code = unsafe { (api.ipc_open)(&raw mut address, IpcHandle(*handle), LAZY_PEER_ACCESS) };
    code.ok().map_err(|code| {
        let error = api.error(what, code);
        if !V::REFUSALS.contains(&code) || code == Code::OUT_OF_MEMORY {
            return error;
        }
        refused(
            &format!("a handle that the driver refuses ({error})"),
            &format!(
                "one of live memory of a device that this one reaches, and that {} does not hide",
                V::WORDS.visible
            ),
        )
    })?;
    let (mut base, mut length) = (0, 0);
    // SAFETY: both are valid places for the answers.
    let code = unsafe { (api.pointer_range)(&raw mut base, &raw mut length, address) };
    let end = base.saturating_add(length as u64);
    let fits = address.checked_add(bytes).is_some_and(|wanted| bytes > 0 && wanted <= end);
    if code != Code::SUCCESS || !fits {
        // The call below may wait for kernels, which may wait for other threads.
        drop(opened);
        // SAFETY: opened above, and used by nobody.
        let _ = unsafe { (api.ipc_close)(address) };
        api.check(what, code)?;
        return Err(refused(&format!("{bytes} bytes"), &format!("1 to {length}")));
    }
    OWN.enter(address, bytes);
    let memory = enter(core, address, bytes, Kind::Opened { handle: *handle });
    *opened = Arc::downgrade(&memory);
    Ok(memory)
}

/// The error for a handle that is not one of memory that can be mapped.
pub(crate) fn refused(saw: &str, allowed: &str) -> HalError {
    HalError::Invalid {
        what: "import memory of a GPU",
        saw: saw.to_owned(),
        allowed: allowed.to_owned(),
        cure: "run the same version of Antiphon on every rank, and pass blob and descriptor together",
    }
}
