//! Other devices: what this one reaches of their memory, and making it reachable.

use crate::caps::PeerLink;
use crate::cuda::conv;
use crate::cuda::device::Core;
use crate::cuda::driver;
use crate::cuda::library::{Api, Code};
use crate::error::HalError;
use cudarc::driver::sys;

/// What helps where memory cannot be mapped by a peer.
pub(super) const STAGE: &str =
    "copy its bytes through memory that the device allocated, or through the host";

/// The links from `device` to the others that this process sees.
pub(super) fn links(api: &Api, device: sys::CUdevice) -> Result<Vec<PeerLink>, HalError> {
    use sys::CUdevice_P2PAttribute_enum as Attribute;
    let mut links = Vec::new();
    for index in 0..driver::count(api)? {
        let other = driver::device(api, index)?;
        if other == device {
            continue;
        }
        let ask = |attribute| {
            let mut value = 0;
            // SAFETY: `value` is a valid place for the answer.
            let code = unsafe { (api.peer_attribute?)(&raw mut value, attribute, device, other) };
            (code == Code::SUCCESS).then(|| conv::count(value))
        };
        let access = possible(api, device, other) == Some(true);
        links.push(PeerLink {
            index,
            access,
            atomics: access
                && ask(Attribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)
                    .is_some_and(|value| value != 0),
            rank: ask(Attribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK).unwrap_or(u32::MAX),
        });
    }
    Ok(links)
}

/// Whether `device` can reach the memory of `other`; `None` where the driver does not tell, as for a device that this
/// process does not see.
fn possible(api: &Api, device: sys::CUdevice, other: sys::CUdevice) -> Option<bool> {
    if device == other {
        return Some(true);
    }
    let mut value = 0;
    // SAFETY: `value` is a valid place for the answer; the driver refuses numbers that are no device's.
    let code = unsafe { (api.peer_possible?)(&raw mut value, device, other) };
    (code == Code::SUCCESS).then_some(value != 0)
}

/// That `core`'s device does not reach the memory of `other`.
pub(super) fn out_of_reach(core: &Core, other: sys::CUdevice) -> HalError {
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
pub(super) fn check(core: &Core, other: sys::CUdevice) -> Result<(), HalError> {
    match possible(core.context.api(), core.context.device(), other) {
        Some(false) => Err(out_of_reach(core, other)),
        _ => Ok(()),
    }
}

/// Lets kernels of `core`'s device use what was allocated in the context `peer` of device `other`. Our context must be
/// current.
pub(super) fn enable(
    core: &Core,
    peer: sys::CUcontext,
    other: sys::CUdevice,
) -> Result<(), HalError> {
    check(core, other)?;
    let api = core.context.api();
    let Some(enable) = api.peer_enable else { return Err(out_of_reach(core, other)) };
    // SAFETY: the driver gave the context for memory that is live, and checks it.
    match unsafe { enable(peer, 0) } {
        Code::SUCCESS | Code::PEER_ENABLED => Ok(()),
        code => api.check("let a CUDA device use another one's memory", code),
    }
}
