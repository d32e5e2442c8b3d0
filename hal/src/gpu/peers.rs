//! Other devices: what this one reaches of their memory, and making it reachable.

use crate::caps::PeerLink;
use crate::error::HalError;
use crate::gpu::calls::{Address, Device};
use crate::gpu::code::{self, Code};
use crate::gpu::core::Core;
use crate::gpu::library::{Api, text_of};
use crate::gpu::memory::{GpuMemory, Kind};
use crate::gpu::recording::Unrecorded;
use crate::gpu::vendor::{Context, Vendor};
use crate::gpu::{lock, process, vmm};
use crate::pci::PciAddress;

/// What helps where memory cannot be mapped by a peer.
pub(crate) const STAGE: &str =
    "copy its bytes through memory that the device allocated, or through the host";

/// The links from `device` to the others that this process sees.
pub(crate) fn links<V: Vendor>(
    api: &'static Api<V>,
    device: Device,
) -> Result<Vec<PeerLink>, HalError> {
    let mut links = Vec::new();
    for index in 0..process::count(api)? {
        let other = V::device(api, index)?;
        if other == device {
            continue;
        }
        let ask = |attribute| {
            let mut value = 0;
            // SAFETY: `value` is a valid place for the answer.
            let code = unsafe { (api.peer_attribute?)(&raw mut value, attribute, device, other) };
            (code == Code::SUCCESS).then(|| code::count(value))
        };
        let access = possible(api, device, other) == Some(true);
        let (atomics, rank) = V::LINK;
        links.push(PeerLink {
            index,
            pci: place(api, other),
            uuid: V::uuid(api, other),
            access,
            atomics: access && ask(atomics).is_some_and(|value| value != 0),
            rank: ask(rank).unwrap_or(u32::MAX),
        });
    }
    Ok(links)
}

/// Where a device is on the machine's buses; `None` where the driver does not tell.
pub(crate) fn place<V: Vendor>(api: &Api<V>, device: Device) -> Option<PciAddress> {
    let mut text = [0; 64];
    // SAFETY: the driver writes at most the length that it is given, with the zero byte at the end.
    let code = unsafe { (api.device_place?)(text.as_mut_ptr(), 64, device) };
    let text = text_of(&text.map(|byte| byte as u8));
    text.parse().ok().filter(|_| code == Code::SUCCESS)
}

/// Whether `device` can reach the memory of `other`; `None` where the driver does not tell, as for a device that this
/// process does not see.
fn possible<V: Vendor>(api: &Api<V>, device: Device, other: Device) -> Option<bool> {
    if device == other {
        return Some(true);
    }
    let mut value = 0;
    // SAFETY: `value` is a valid place for the answer; the driver refuses numbers that are no device's.
    let code = unsafe { (api.peer_possible?)(&raw mut value, device, other) };
    (code == Code::SUCCESS).then_some(value != 0)
}

/// That `core`'s device does not reach the memory of `other`.
fn out_of_reach<V: Vendor>(core: &Core<V>, other: Device) -> HalError {
    HalError::NotShareable {
        why: format!(
            "device {} ({}) does not reach the memory of device {other}: the driver allows no peer access \
             between them",
            core.context.device(),
            core.name
        ),
        cure: STAGE,
    }
}

/// An error where the driver says that the device does not reach the memory of `other`.
pub(crate) fn check<V: Vendor>(core: &Core<V>, other: Device) -> Result<(), HalError> {
    match possible(core.context.api(), core.context.device(), other) {
        Some(false) => Err(out_of_reach(core, other)),
        _ => Ok(()),
    }
}

/// Lets every device of the process that reaches mapped memory use it at its address. Memory of other kinds is reached by peer
/// access, which whoever uses it enables.
pub(crate) fn allow_all<V: Vendor>(memory: &GpuMemory<V>) -> Result<(), HalError> {
    let Kind::Mapped(mapping) = &memory.kind else { return Ok(()) };
    let (context, owner) = (&memory.core.context, mapping.mapped.device());
    let api = context.api();
    let _entered = vmm::enter::<V>(context)?;
    let _unrecorded = Unrecorded::new(api);
    for index in 0..process::count(api)? {
        let device = V::device(api, index)?;
        if device != owner && possible(api, device, owner) == Some(true) {
            let allowed = mapping.mapped.allow(device);
            allowed.map_err(|code| api.error("share memory with a device", code))?;
        }
    }
    Ok(())
}

/// Whether kernels of `core`'s device may use memory of `other` already; the driver knows its owner by `peer`. Asks no driver.
pub(crate) fn may_use<V: Vendor>(core: &Core<V>, peer: usize, other: Device) -> bool {
    other == core.context.device() || lock(&core.enabled).contains(&peer)
}

/// Lets kernels of `core`'s device use the live memory at `address` on `other`. The context must be current.
pub(crate) fn enable<V: Vendor>(
    core: &Core<V>,
    address: Address,
    other: Device,
) -> Result<(), HalError> {
    if other == core.context.device() {
        return Ok(());
    }
    allow(core, V::peer_at(core, address, other)?, other)
}

/// Lets kernels of `core`'s device use the memory of `other`, a device of this process, what it has now and later.
pub(crate) fn enable_all<V: Vendor>(core: &Core<V>, other: &Core<V>) -> Result<(), HalError> {
    let device = other.context.device();
    if device == core.context.device() {
        return Ok(());
    }
    let _entered = core.context.enter()?;
    let _unrecorded = Unrecorded::new(core.context.api());
    allow(core, other.context.as_peer(), device)
}

/// The same for what the driver knows a device by ([`Context::as_peer`]), once: the call may wait for kernels. The context
/// must be current.
fn allow<V: Vendor>(core: &Core<V>, peer: usize, other: Device) -> Result<(), HalError> {
    if may_use(core, peer, other) {
        return Ok(());
    }
    check(core, other)?;
    match V::enable_peer(core, peer) {
        None => return Err(out_of_reach(core, other)),
        Some(Code::SUCCESS | Code::PEER_ENABLED) => {}
        Some(code) => core.context.api().check("let a device use another one's memory", code)?,
    }
    lock(&core.enabled).insert(peer);
    Ok(())
}
