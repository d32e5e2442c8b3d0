//! What a GPU has wired: asked once, when the device is opened.

use crate::caps::Caps;
use crate::error::HalError;
use crate::rocm::library::{Api, Code};
use crate::rocm::vmm::Calls;
use crate::rocm::{conv, peers};
use hip_sys::hiprt as sys;
use std::ffi::CStr;

/// What is asked of a device when it is opened.
#[derive(Clone, Debug)]
pub(super) struct Traits {
    /// The capabilities that callers see.
    pub(super) caps: Caps,
    /// The architecture, as the compiler names it.
    pub(super) architecture: String,
    /// The driver's calls that map physical memory at addresses, where it has them.
    pub(super) virtual_memory: Option<Calls>,
    /// Whether our own memory is mapped by them: otherwise it is allocated as the run-time library does.
    pub(super) mapped: bool,
    /// Whether kernels reach pinned memory of the host.
    pub(super) pinned: bool,
    /// Whether blocks of one launch can be promised to run at the same time.
    pub(super) cooperative: bool,
}

/// The unit of allocation of the run-time library, in bytes.
const PAGE_BYTES: u64 = 4096;

/// Asks the device.
pub(super) fn probe(api: &Api, device: sys::hipDevice_t) -> Result<Traits, HalError> {
    use sys::hipDeviceAttribute_t as Attribute;
    let ask = |attribute| attribute_of(api, device, attribute);
    // An attribute that an older driver does not know is a capability that it lacks.
    let has = |attribute| ask(attribute).is_ok_and(|value| value != 0);
    let virtual_memory = has(Attribute::hipDeviceAttributeVirtualMemoryManagementSupported)
        .then(|| Calls::of(api))
        .flatten();
    // What peers poll must not stay in a cache of theirs.
    let mapped = virtual_memory.filter(|_| conv::has_uncached_physical(api.version));
    let page_bytes = match mapped {
        Some(calls) => granularity(api, calls, device)?,
        None => PAGE_BYTES,
    };
    let caps = Caps {
        peer_mapping: true,
        sealed_handles: true,
        host_access: false,
        tasks: false,
        kernels: true,
        multicast: false,
        dma_buf: false,
        peers: peers::links(api, device)?,
        process_access: false,
        memory_bytes: memory_bytes(api, device)?,
        page_bytes,
        cores: conv::count(ask(Attribute::hipDeviceAttributeMultiprocessorCount)?).max(1),
    };
    Ok(Traits {
        caps,
        architecture: architecture(api, device)?,
        virtual_memory,
        mapped: mapped.is_some(),
        pinned: has(Attribute::hipDeviceAttributeCanMapHostMemory),
        cooperative: has(Attribute::hipDeviceAttributeCooperativeLaunch)
            && api.launch_cooperative.is_some(),
    })
}

/// The device's name, for people.
pub(super) fn name(api: &Api, device: sys::hipDevice_t) -> Result<String, HalError> {
    let mut name = [0; 256];
    // SAFETY: the driver writes at most the length that it is given, with the zero byte at the end.
    let code = unsafe { (api.device_name)(name.as_mut_ptr(), 256, device) };
    api.check("ask for a HIP device's name", code)?;
    Ok(text_of(&name.map(|byte| byte as u8)))
}

/// Bytes of memory on the device.
pub(super) fn memory_bytes(api: &Api, device: sys::hipDevice_t) -> Result<u64, HalError> {
    let mut bytes = 0;
    // SAFETY: `bytes` is a valid place for the answer.
    let code = unsafe { (api.device_memory)(&raw mut bytes, device) };
    api.check("ask for a HIP device's memory", code)?;
    Ok(bytes as u64)
}

/// The text up to the first zero byte.
fn text_of(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes)
        .map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
}

/// The device's architecture, with what is switched on in it, e.g. `gfx90a:sramecc+:xnack-`: it is only in a structure
/// that has two layouts, told apart by the name of the call.
fn architecture(api: &Api, device: sys::hipDevice_t) -> Result<String, HalError> {
    const NEW: usize = 1160;
    const OLD: usize = 396;
    /// More than either layout takes.
    const BYTES: usize = 4096;
    let (ask, at) = match (api.properties, api.properties_of_old) {
        (Some(ask), _) => (ask, NEW),
        (None, Some(ask)) => (ask, OLD),
        (None, None) => return Err(unknown("its driver does not tell")),
    };
    let mut properties = [0u64; BYTES / 8];
    // SAFETY: the place is aligned, and larger than the structure.
    let code = unsafe { ask(properties.as_mut_ptr().cast(), device) };
    api.check("ask for a HIP device's properties", code)?;
    let bytes: Vec<_> = properties.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let name = text_of(&bytes[at..at + 256]);
    if name.starts_with("gfx") {
        return Ok(name);
    }
    Err(unknown(&format!("its driver answers {name:?}")))
}

fn unknown(why: &str) -> HalError {
    HalError::Unavailable {
        what: "the HIP device's architecture".to_owned(),
        why: why.to_owned(),
        cure: "report this, with the release of ROCm".to_owned(),
    }
}

fn attribute_of(
    api: &Api,
    device: sys::hipDevice_t,
    attribute: sys::hipDeviceAttribute_t,
) -> Result<i32, HalError> {
    let mut value = 0;
    // SAFETY: `value` is a valid place for the answer.
    let code = unsafe { (api.device_attribute)(&raw mut value, attribute as u32, device) };
    api.check("ask for an attribute of a HIP device", code)?;
    Ok(value)
}

/// The unit in which physical memory comes, in bytes; a power of two.
fn granularity(api: &Api, calls: Calls, device: sys::hipDevice_t) -> Result<u64, HalError> {
    let properties = conv::allocation(device);
    let mut bytes = 0;
    // SAFETY: both pointers are valid for the call.
    let code: Code =
        unsafe { (calls.granularity)(&raw mut bytes, &raw const properties, conv::GRANULARITY) };
    api.check("ask for the granularity of HIP memory", code)?;
    if !bytes.is_power_of_two() {
        return Err(HalError::Unavailable {
            what: "the HIP device".to_owned(),
            why: format!("its driver gives memory in units of {bytes} bytes, no power of two"),
            cure: "report this, with the release of ROCm".to_owned(),
        });
    }
    Ok(bytes as u64)
}
