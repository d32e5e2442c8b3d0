//! Other devices: what this one reaches of their memory, and making it reachable.

use crate::caps::PeerLink;
use crate::error::HalError;
use crate::rocm::device::Core;
use crate::rocm::library::{Api, Code};
use crate::rocm::{conv, driver};
use hip_sys::hiprt as sys;

/// What helps where memory cannot be mapped by a peer.
pub(super) const STAGE: &str =
    "copy its bytes through memory that the device allocated, or through the host";

/// The links from `device` to the others that this process sees.
pub(super) fn links(api: &Api, device: sys::hipDevice_t) -> Result<Vec<PeerLink>, HalError> {
    let numbers = 0..driver::count(api)?;
    let others = numbers.filter(|&index| driver::device(index) != device);
    let link = |index| {
        let other = driver::device(index);
        let ask = |attribute| {
            let mut value = 0;
            // SAFETY: `value` is a valid place for the answer.
            let code = unsafe { (api.peer_attribute?)(&raw mut value, attribute, device, other) };
            (code == Code::SUCCESS).then(|| conv::count(value))
        };
        let access = possible(api, device, other) == Some(true);
        PeerLink {
            index,
            access,
            atomics: access && ask(conv::LINK_ATOMICS).is_some_and(|value| value != 0),
            rank: ask(conv::LINK_RANK).unwrap_or(u32::MAX),
        }
    };
    Ok(others.map(link).collect())
}

/// Whether `device` can reach the memory of `other`; `None` where the driver does not tell.
fn possible(api: &Api, device: sys::hipDevice_t, other: sys::hipDevice_t) -> Option<bool> {
    let mut value = 0;
    // SAFETY: `value` is a valid place for the answer; the driver refuses numbers that are no device's.
    let code = unsafe { (api.peer_possible?)(&raw mut value, device, other) };
    (code == Code::SUCCESS).then_some(value != 0)
}

/// Lets kernels of `core`'s device, which must be current, use the memory of `other`.
pub(super) fn enable(core: &Core, other: sys::hipDevice_t) -> Result<(), HalError> {
    let (api, device) = (core.context.api(), core.context.device());
    if device == other {
        return Ok(());
    }
    let out_of_reach = || HalError::NotShareable {
        why: format!(
            "device {device} ({}) does not reach the memory of device {other}: the driver allows no peer access \
             between them",
            core.name
        ),
        cure: STAGE,
    };
    let Some(enable) = api.peer_enable.filter(|_| possible(api, device, other) != Some(false))
    else {
        return Err(out_of_reach());
    };
    // SAFETY: takes no pointers.
    match unsafe { enable(other, 0) } {
        Code::SUCCESS | Code::PEER_ENABLED => Ok(()),
        code => api.check("let a HIP device use another one's memory", code),
    }
}
