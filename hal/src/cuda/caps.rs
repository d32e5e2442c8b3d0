//! What a GPU has wired: asked once, when the device is opened.

use crate::caps::Caps;
use crate::cuda::CudaDriver;
use crate::cuda::context::Context;
use crate::cuda::conv::{self, Sharing};
use crate::error::HalError;
use crate::gpu::core::{attribute, granularity, memory_bytes};
use crate::gpu::peers;
use crate::gpu::vendor::{Context as _, Vendor as _};
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use std::ops::Deref;

/// What is asked of a device when it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Traits {
    shared: crate::gpu::core::Traits,
    /// How its memory can be passed on.
    pub(super) sharing: Sharing,
}

impl Deref for Traits {
    type Target = crate::gpu::core::Traits;

    fn deref(&self) -> &Self::Target {
        &self.shared
    }
}

/// Asks the device.
pub(super) fn probe(context: &Context) -> Result<Traits, HalError> {
    let (api, device) = (context.api(), context.device());
    let ask = |which: Attribute| attribute::<CudaDriver>(api, device, which as u32);
    // An attribute that an older driver does not know is a capability that it lacks.
    let has = |which| ask(which).is_ok_and(|value| value != 0);
    let mapping = api
        .mapping
        .filter(|_| has(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
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
    let major = ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let local = conv::allocation(device, Sharing { fabric: false, ..sharing });
    let page_bytes = match mapping {
        Some(calls) => granularity(api, calls, &local)?,
        None => 2 << 20,
    };
    let passed_on = mapping.is_some() && sharing.descriptor;
    let caps = Caps {
        peer_mapping: passed_on,
        sealed_handles: true,
        host_access: false,
        tasks: false,
        kernels: true,
        cooperative: has(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH),
        multicast: passed_on && multicast,
        dma_buf: has(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)
            && api.range_handle.is_some(),
        // In order for the device that has the memory, or for all devices; 0 stands for neither.
        ordered_network_writes: has(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING),
        pci: peers::place(api, device),
        uuid: CudaDriver::uuid(api, device),
        peers: peers::links(api, device)?,
        process_access: false,
        memory_bytes: memory_bytes(api, device)?,
        page_bytes,
        cores: ask(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1),
    };
    let shared = crate::gpu::core::Traits {
        caps,
        architecture: conv::architecture(major, minor),
        mapping,
        pinned: has(Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY),
        shared_bytes: ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
    };
    Ok(Traits { shared, sharing })
}
