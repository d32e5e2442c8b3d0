//! What the driver's numbers and structures mean: the one place that maps its enumerations, and knows in which release
//! they changed.

use crate::gpu::calls::{AllocationProperties, Device};
use crate::gpu::code::{Code, DESCRIPTOR};
use hip_sys::hiprt as sys;
use std::ffi::c_uint;

/// That an address is not on any device.
pub(super) const INVALID_POINTER: Code = Code(sys::hipError_t::hipErrorInvalidDevicePointer as u32);

/// The number of a release of HIP, as the driver answers it.
pub(super) const fn release(major: u32, minor: u32) -> u32 {
    major * 10_000_000 + minor * 100_000
}

/// The first whose structures of virtual memory management are those used here.
pub(super) const VIRTUAL_MEMORY: u32 = release(6, 1);
/// The first whose physical memory can be asked for without caches between devices.
const UNCACHED_PHYSICAL: u32 = release(7, 2);
/// The first that takes a descriptor itself instead of its address.
const DESCRIPTOR_BY_VALUE: u32 = release(7, 1);

/// Whether physical memory of this release can be had without caches between devices.
pub(super) fn has_uncached_physical(version: u32) -> bool {
    version >= UNCACHED_PHYSICAL
}

/// Whether descriptors are passed by value in this release.
pub(super) fn takes_descriptor_by_value(version: u32) -> bool {
    version >= DESCRIPTOR_BY_VALUE
}

/// What helps where the driver cannot be initialised.
pub(super) fn cure_of_initialisation(code: Code) -> &'static str {
    match code.0 {
        35 => "make ROCm match the amdgpu kernel module: update the older of the two",
        100 | 101 => {
            "look at rocminfo, HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES, and let the process open /dev/kfd and \
             /dev/dri (in a container: pass both in; the user must be in the groups render and video)"
        }
        _ => "look at rocminfo and the system's log",
    }
}

/// Physical memory of `device`, without caches between devices, that can be exported as a descriptor.
pub(super) fn allocation(device: Device) -> AllocationProperties {
    const UNCACHED: u32 = 0x4000_0000;
    AllocationProperties::new(device, UNCACHED, DESCRIPTOR)
}

/// Device memory that no cache keeps from other devices; older releases have only the next.
pub(super) const UNCACHED: c_uint = 3;
/// Device memory whose caches other devices see through.
pub(super) const FINE_GRAINED: c_uint = 1;
/// Pinned memory that all devices reach, while kernels run.
pub(super) const PINNED: c_uint = 0x1 | 0x2 | 0x4000_0000;
/// The same of memory that the application allocated.
pub(super) const REGISTERED: c_uint = 0x1 | 0x2;
/// A copy between any two addresses.
pub(super) const ANYWHERE: c_uint = sys::hipMemcpyKind::hipMemcpyDefault as c_uint;
/// Asks the library below HIP's whether the kernel gives memory of GPUs to other drivers (`HSA_AMD_SYSTEM_INFO_DMABUF_SUPPORTED`,
/// which HIP's headers do not have).
pub(super) const GIVES_BUFFERS: c_uint = 0x204;
/// How fast a link to another device is, 0 the fastest.
pub(super) const LINK_RANK: c_uint = sys::hipDeviceP2PAttr::hipDevP2PAttrPerformanceRank as c_uint;
/// Whether atomic operations over a link are single steps.
pub(super) const LINK_ATOMICS: c_uint =
    sys::hipDeviceP2PAttr::hipDevP2PAttrNativeAtomicSupported as c_uint;

/// Whether a memory type of release `version` is that of a device.
pub(super) fn is_device_memory(kind: u32, version: u32) -> bool {
    kind == if version >= release(6, 0) { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::calls::{AccessDescription, IpcHandle, Location};
    use crate::gpu::code::*;

    #[test]
    fn structures_have_the_sizes_of_the_drivers_header() {
        assert_eq!(size_of::<AllocationProperties>(), size_of::<sys::hipMemAllocationProp>());
        assert_eq!(size_of::<AccessDescription>(), size_of::<sys::hipMemAccessDesc>());
        assert_eq!(size_of::<Location>(), size_of::<sys::hipMemLocation>());
        assert_eq!(size_of::<sys::hipIpcMemHandle_t>(), size_of::<IpcHandle>());
    }

    #[test]
    fn numbers_are_those_of_the_drivers_header() {
        use sys::hipError_t as Error;
        for (code, theirs) in [
            (Code::SUCCESS, Error::hipSuccess),
            (Code::INVALID_VALUE, Error::hipErrorInvalidValue),
            (Code::OUT_OF_MEMORY, Error::hipErrorOutOfMemory),
            (Code::INVALID_DEVICE, Error::hipErrorInvalidDevice),
            (Code::INVALID_CONTEXT, Error::hipErrorInvalidContext),
            (Code::INVALID_HANDLE, Error::hipErrorInvalidHandle),
            (Code::NOT_READY, Error::hipErrorNotReady),
            (Code::PEER_ENABLED, Error::hipErrorPeerAccessAlreadyEnabled),
            (Code::NOT_SUPPORTED, Error::hipErrorNotSupported),
            (Code::CAPTURE_IMPLICIT, Error::hipErrorStreamCaptureImplicit),
            (Code(*Code::RECORDING.start()), Error::hipErrorStreamCaptureUnsupported),
            (Code(*Code::RECORDING.end()), Error::hipErrorStreamCaptureWrongThread),
            (Code::FOREIGN[0], Error::hipErrorInvalidImage),
            (Code::FOREIGN[1], Error::hipErrorNoBinaryForGpu),
            (Code::FOREIGN[2], Error::hipErrorInvalidKernelFile),
        ] {
            assert_eq!(code.0, theirs as u32);
        }
        use sys::hipFunction_attribute as Attribute;
        for (ours, theirs) in [
            (RELAXED, sys::hipStreamCaptureMode::hipStreamCaptureModeRelaxed as u32),
            (
                DESCRIPTOR,
                sys::hipMemAllocationHandleType::hipMemHandleTypePosixFileDescriptor as u32,
            ),
            (
                GRANULARITY,
                sys::hipMemAllocationGranularity_flags::hipMemAllocationGranularityMinimum as u32,
            ),
            (THREADS, Attribute::HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK as u32),
            (SHARED_BYTES, Attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES as u32),
            (LOCAL_BYTES, Attribute::HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES as u32),
            (REGISTERS, Attribute::HIP_FUNC_ATTRIBUTE_NUM_REGS as u32),
            (0, sys::hipStreamCaptureStatus::hipStreamCaptureStatusNone as u32),
            (1, sys::hipMemLocationType::hipMemLocationTypeDevice as u32),
            (3, sys::hipMemAccessFlags::hipMemAccessFlagsProtReadWrite as u32),
        ] {
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn what_changed_goes_by_the_release() {
        assert_eq!(release(6, 3), 60_300_000);
        for (version, uncached, by_value) in [
            (60_342_133, false, false),
            (70_052_802, false, false),
            (70_100_000, false, true),
            (70_200_000, true, true),
        ] {
            assert_eq!(has_uncached_physical(version), uncached, "{version}");
            assert_eq!(takes_descriptor_by_value(version), by_value, "{version}");
        }
        assert_eq!(
            [0, 1, 2, 3].map(|kind| is_device_memory(kind, 50_200_000)),
            [false, true, false, false]
        );
        assert_eq!(
            [0, 1, 2, 3].map(|kind| is_device_memory(kind, 60_000_000)),
            [false, false, true, false]
        );
    }

    #[test]
    fn every_failed_start_has_a_cure() {
        for code in [1, 35, 100, 101, 999, u32::MAX] {
            assert!(!cure_of_initialisation(Code(code)).is_empty());
        }
        assert!(cure_of_initialisation(Code(100)).contains("/dev/kfd"));
    }
}
