//! What a GPU has wired: asked once, when the device is opened.

use crate::caps::Caps;
use crate::error::HalError;
use crate::gpu::calls::Device;
use crate::gpu::code::Code;
use crate::gpu::core::{attribute, granularity, memory_bytes};
use crate::gpu::library::{Api, text_of};
use crate::gpu::peers;
use crate::gpu::vendor::{Context as _, Vendor as _};
use crate::rocm::context::Context;
use crate::rocm::{RocmDriver, conv};
use hip_sys::hiprt::hipDeviceAttribute_t as Attribute;
use std::ops::Deref;

/// What is asked of a device when it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Traits {
    shared: crate::gpu::core::Traits,
    /// Whether our own memory is mapped physical memory: otherwise it is allocated as the run-time library does.
    pub(super) mapped: bool,
}

impl Deref for Traits {
    type Target = crate::gpu::core::Traits;

    fn deref(&self) -> &Self::Target {
        &self.shared
    }
}

/// The unit of allocation of the run-time library, in bytes.
const PAGE_BYTES: u64 = 4096;

/// Asks the device.
pub(super) fn probe(context: &Context) -> Result<Traits, HalError> {
    let (api, device) = (context.api(), context.device());
    let ask = |which: Attribute| attribute::<RocmDriver>(api, device, which as u32);
    // An attribute that an older driver does not know is a capability that it lacks.
    let has = |which| ask(which).is_ok_and(|value| value != 0);
    let mapping = api.mapping.filter(|_| {
        // Older ones have other structures, and cannot tell whether memory at an address is mapped by these calls.
        api.version >= conv::VIRTUAL_MEMORY
            && api.range_access.is_some()
            && has(Attribute::hipDeviceAttributeVirtualMemoryManagementSupported)
    });
    // What peers poll must not stay in a cache of theirs.
    let mapped = mapping.filter(|_| conv::has_uncached_physical(api.version));
    let page_bytes = match mapped {
        Some(calls) => granularity(api, calls, &conv::allocation(device))?,
        None => PAGE_BYTES,
    };
    let caps = Caps {
        peer_mapping: true,
        sealed_handles: true,
        host_access: false,
        tasks: false,
        kernels: true,
        cooperative: has(Attribute::hipDeviceAttributeCooperativeLaunch)
            && api.launch_cooperative.is_some(),
        multicast: false,
        dma_buf: gives_buffers(api),
        ordered_network_writes: false,
        pci: peers::place(api, device),
        uuid: RocmDriver::uuid(api, device),
        peers: peers::links(api, device)?,
        process_access: false,
        memory_bytes: memory_bytes(api, device)?,
        page_bytes,
        cores: ask(Attribute::hipDeviceAttributeMultiprocessorCount)?.max(1),
    };
    let shared = crate::gpu::core::Traits {
        caps,
        architecture: architecture(api, device)?,
        mapping,
        pinned: has(Attribute::hipDeviceAttributeCanMapHostMemory),
        // Blocks have what there is without asking.
        shared_bytes: u32::MAX,
    };
    Ok(Traits { shared, mapped: mapped.is_some() })
}

/// Whether memory can be given to network cards: the kernel's driver says so, by way of the library below HIP's.
fn gives_buffers(api: &Api<RocmDriver>) -> bool {
    let Some((ask, _)) = api.system_information.zip(api.dma_buf) else { return false };
    // Zeroed: the library writes a `bool`.
    let mut supported = 0u64;
    // SAFETY: there is room for the answer.
    let code = unsafe { ask(conv::GIVES_BUFFERS, (&raw mut supported).cast()) };
    code == Code::SUCCESS && supported != 0
}

/// The device's architecture, with what is switched on in it, e.g. `gfx90a:sramecc+:xnack-`: it is only in a structure
/// that has two layouts, told apart by the name of the call.
fn architecture(api: &Api<RocmDriver>, device: Device) -> Result<String, HalError> {
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
