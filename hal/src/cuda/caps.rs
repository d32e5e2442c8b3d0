//! What a GPU has wired: asked once, when the device is opened.

use crate::caps::Caps;
use crate::cuda::conv::{self, Sharing};
use crate::cuda::library::Api;
use crate::cuda::peers;
use crate::error::HalError;
use cudarc::driver::sys;
use std::ffi::CStr;

/// What is asked of a device when it is opened.
#[derive(Clone, Debug)]
pub(super) struct Traits {
    /// The capabilities that callers see.
    pub(super) caps: Caps,
    /// How its memory can be passed on.
    pub(super) sharing: Sharing,
    /// The architecture, as the compiler names it.
    pub(super) architecture: String,
    /// Whether the driver maps physical memory at addresses of our choice: everything here needs it.
    pub(super) mappable: bool,
    /// Whether kernels reach pinned memory of the host.
    pub(super) pinned: bool,
    /// Whether blocks of one launch can be promised to run at the same time.
    pub(super) cooperative: bool,
    /// Bytes of shared memory that a block has without asking.
    pub(super) shared_bytes: u32,
}

/// Asks the device.
pub(super) fn probe(api: &Api, device: sys::CUdevice) -> Result<Traits, HalError> {
    use sys::CUdevice_attribute_enum as Attribute;
    let ask = |attribute| attribute_of(api, device, attribute);
    // An attribute that an older driver does not know is a capability that it lacks.
    let has = |attribute| ask(attribute).is_ok_and(|value| value != 0);
    let mappable = has(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    let sharing = Sharing {
        descriptor: has(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
        fabric: has(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED),
        network: has(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
    };
    let multicast = has(Attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)
        && api.multicast_create.is_some()
        && api.multicast_add.is_some()
        && api.multicast_bind.is_some()
        && api.multicast_unbind.is_some()
        && api.multicast_granularity.is_some();
    let major = conv::count(ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?);
    let minor = conv::count(ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?);
    let granularity = if mappable { granularity(api, device, sharing)? } else { 2 << 20 };
    let caps = Caps {
        peer_mapping: mappable && sharing.descriptor,
        sealed_handles: true,
        host_access: false,
        tasks: false,
        kernels: true,
        multicast: mappable && sharing.descriptor && multicast,
        dma_buf: has(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)
            && api.range_handle.is_some(),
        peers: peers::links(api, device)?,
        process_access: false,
        memory_bytes: memory_bytes(api, device)?,
        page_bytes: granularity,
        cores: conv::count(ask(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?).max(1),
    };
    Ok(Traits {
        caps,
        sharing,
        architecture: conv::architecture(major, minor),
        mappable,
        pinned: has(Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY),
        cooperative: has(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH),
        shared_bytes: conv::count(ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?),
    })
}

/// The device's name, for people.
pub(super) fn name(api: &Api, device: sys::CUdevice) -> Result<String, HalError> {
    let mut name = [0; 256];
    // SAFETY: the driver writes at most the length that it is given, with the zero byte at the end.
    let code = unsafe { (api.device_name)(name.as_mut_ptr(), 256, device) };
    api.check("ask for a CUDA device's name", code)?;
    let bytes = name.map(|byte| byte as u8);
    Ok(CStr::from_bytes_until_nul(&bytes)
        .map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned()))
}

/// Bytes of memory on the device.
pub(super) fn memory_bytes(api: &Api, device: sys::CUdevice) -> Result<u64, HalError> {
    let mut bytes = 0;
    // SAFETY: `bytes` is a valid place for the answer.
    let code = unsafe { (api.device_memory)(&raw mut bytes, device) };
    api.check("ask for a CUDA device's memory", code)?;
    Ok(bytes as u64)
}

fn attribute_of(
    api: &Api,
    device: sys::CUdevice,
    attribute: sys::CUdevice_attribute,
) -> Result<i32, HalError> {
    let mut value = 0;
    // SAFETY: `value` is a valid place for the answer.
    let code = unsafe { (api.device_attribute)(&raw mut value, attribute, device) };
    api.check("ask for an attribute of a CUDA device", code)?;
    Ok(value)
}

/// The unit in which physical memory comes, in bytes; a power of two.
fn granularity(api: &Api, device: sys::CUdevice, sharing: Sharing) -> Result<u64, HalError> {
    let properties = conv::allocation(device, Sharing { fabric: false, ..sharing });
    let mut bytes = 0;
    let option = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    // SAFETY: both pointers are valid for the call.
    let code = unsafe { (api.memory_granularity)(&raw mut bytes, &raw const properties, option) };
    api.check("ask for the granularity of CUDA memory", code)?;
    if !bytes.is_power_of_two() {
        return Err(HalError::Unavailable {
            what: "the CUDA device".to_owned(),
            why: format!("its driver gives memory in units of {bytes} bytes, no power of two"),
            cure: "report this, with the driver's version".to_owned(),
        });
    }
    Ok(bytes as u64)
}
