//! What the driver's numbers and structures mean: the one place that maps its enumerations.

use crate::cuda::library::Code;
use cudarc::driver::sys;
use std::ffi::{c_int, c_uint};

/// What helps where the driver cannot be initialised.
pub(super) fn cure_of_initialisation(code: Code) -> &'static str {
    match code.0 {
        34 => "the library is a stub for linking: remove its folder from LD_LIBRARY_PATH",
        46 | 100 => {
            "look at nvidia-smi and CUDA_VISIBLE_DEVICES (in a container: start it with the GPUs)"
        }
        802 => "start the fabric manager, or wait until the system is ready",
        803 | 804 => {
            "make the driver library match the kernel module: restart after an update, or leave the compatibility \
             library out"
        }
        _ => "look at nvidia-smi and the system's log",
    }
}

/// The name of a compute capability for the compiler, e.g. `sm_90`.
pub(super) fn architecture(major: u32, minor: u32) -> String {
    format!("sm_{major}{minor}")
}

/// Where the memory of a device is.
pub(super) fn location(device: sys::CUdevice) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

/// How memory can be passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sharing {
    /// As a file descriptor.
    pub(super) descriptor: bool,
    /// As a fabric handle.
    pub(super) fabric: bool,
    /// To network cards, which then read and write it themselves.
    pub(super) network: bool,
}

/// The handle types of `sharing`.
pub(super) fn handle_types(sharing: Sharing) -> sys::CUmemAllocationHandleType {
    let mut types = sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE.0;
    if sharing.descriptor {
        types |= DESCRIPTOR.0;
    }
    if sharing.fabric {
        types |= FABRIC.0;
    }
    sys::CUmemAllocationHandleType_enum(types)
}

/// A file descriptor.
pub(super) const DESCRIPTOR: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
/// A fabric handle.
pub(super) const FABRIC: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC;

/// How memory with these properties can be passed on.
pub(super) fn sharing_of(properties: &sys::CUmemAllocationProp) -> Sharing {
    let types = properties.requestedHandleTypes.0;
    Sharing {
        descriptor: types & DESCRIPTOR.0 != 0,
        fabric: types & FABRIC.0 != 0,
        network: properties.allocFlags.gpuDirectRDMACapable != 0,
    }
}

/// The device whose memory has these properties; `None` for memory of the host.
pub(super) fn device_of(properties: &sys::CUmemAllocationProp) -> Option<sys::CUdevice> {
    let location = properties.location;
    let on_device = location.type_ == sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    on_device.then_some(location.id)
}

/// Properties to be filled in by the driver.
pub(super) fn no_properties() -> sys::CUmemAllocationProp {
    allocation(0, Sharing::default())
}

/// Physical memory of `device` that can be passed on by `sharing`.
pub(super) fn allocation(device: sys::CUdevice, sharing: Sharing) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: handle_types(sharing),
        location: location(device),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: u8::from(sharing.network),
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// That `device` may read and write.
pub(super) fn access(device: sys::CUdevice) -> sys::CUmemAccessDesc {
    sys::CUmemAccessDesc {
        location: location(device),
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    }
}

/// A multicast object over `members` devices that bind `bytes` each.
pub(super) fn multicast(members: u32, bytes: usize) -> sys::CUmulticastObjectProp {
    sys::CUmulticastObjectProp {
        numDevices: members,
        size: bytes,
        handleTypes: u64::from(DESCRIPTOR.0),
        flags: 0,
    }
}

/// Whether a capture status says that work is being recorded. One that was invalidated is still open.
pub(super) fn is_capturing(status: c_uint) -> bool {
    status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as c_uint
}

/// Whether a memory type is that of a device.
pub(super) fn is_device_memory(kind: u32) -> bool {
    kind == sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32
}

/// An attribute that counts something; the driver never answers a negative one for these.
pub(super) fn count(value: c_int) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_have_the_compilers_names() {
        for (major, minor, name) in [(8, 0, "sm_80"), (9, 0, "sm_90"), (10, 3, "sm_103")] {
            assert_eq!(architecture(major, minor), name);
        }
    }

    #[test]
    fn handle_types_are_the_drivers_bits() {
        for (descriptor, fabric, bits) in
            [(false, false, 0), (true, false, 1), (false, true, 8), (true, true, 9)]
        {
            let sharing = Sharing { descriptor, fabric, network: false };
            assert_eq!(handle_types(sharing).0, bits, "{sharing:?}");
            assert_eq!(sharing_of(&allocation(3, sharing)), sharing);
            assert_eq!(device_of(&allocation(3, sharing)), Some(3));
        }
    }

    #[test]
    fn structures_have_the_sizes_of_the_drivers_header() {
        assert_eq!(size_of::<sys::CUmemAllocationProp>(), 32);
        assert_eq!(size_of::<sys::CUmemAccessDesc>(), 12);
        assert_eq!(size_of::<sys::CUmulticastObjectProp>(), 32);
        assert_eq!(size_of::<sys::CUipcMemHandle>(), 64);
        assert_eq!(size_of::<sys::CUmemFabricHandle>(), 64);
    }

    #[test]
    fn codes_are_those_of_the_drivers_header() {
        for (code, number) in [
            (Code::SUCCESS, 0),
            (Code::INVALID_VALUE, 1),
            (Code::OUT_OF_MEMORY, 2),
            (Code::INVALID_HANDLE, 400),
            (Code::NOT_READY, 600),
            (Code::NOT_PERMITTED, 800),
            (Code::NOT_SUPPORTED, 801),
            (Code::INVALID_DEVICE, 101),
            (Code::PEER_ENABLED, 704),
            (Code::CAPTURE_IMPLICIT, 906),
        ] {
            assert_eq!(code.0, number);
        }
    }

    #[test]
    fn every_failed_start_has_a_cure() {
        for code in [1, 34, 46, 100, 802, 803, 804, 999, u32::MAX] {
            assert!(!cure_of_initialisation(Code(code)).is_empty());
        }
        assert!(cure_of_initialisation(Code(34)).contains("stub"));
        assert!(cure_of_initialisation(Code(100)).contains("CUDA_VISIBLE_DEVICES"));
    }

    #[test]
    fn an_invalidated_capture_is_still_one() {
        assert_eq!([0, 1, 2].map(is_capturing), [false, true, true]);
        assert_eq!([1, 2, 3].map(is_device_memory), [false, true, false]);
    }
}
