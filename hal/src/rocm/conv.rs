//! What the driver's numbers and structures mean: the one place that maps its enumerations, and knows in which release
//! they changed.

use crate::rocm::library::Code;
use hip_sys::hiprt as sys;
use std::ffi::{c_int, c_uint, c_void};

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

/// Where memory is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Location {
    kind: u32,
    device: c_int,
}

/// The memory of `device`.
pub(super) fn location(device: sys::hipDevice_t) -> Location {
    Location { kind: sys::hipMemLocationType::hipMemLocationTypeDevice as u32, device }
}

/// `hipMemAllocationProp`. The bindings' enumerations lack values of newer releases.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct AllocationProperties {
    kind: u32,
    handle_types: u32,
    location: Location,
    windows: *mut c_void,
    compression: u8,
    network: u8,
    usage: u16,
}

/// Physical memory of `device`, without caches between devices, that can be exported as a descriptor.
pub(super) fn allocation(device: sys::hipDevice_t) -> AllocationProperties {
    const UNCACHED: u32 = 0x4000_0000;
    AllocationProperties {
        kind: UNCACHED,
        handle_types: DESCRIPTOR,
        location: location(device),
        windows: std::ptr::null_mut(),
        compression: 0,
        network: 0,
        usage: 0,
    }
}

/// `hipMemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessDescription {
    location: Location,
    flags: u32,
}

/// That `device` may read and write.
pub(super) fn access(device: sys::hipDevice_t) -> AccessDescription {
    let flags = sys::hipMemAccessFlags::hipMemAccessFlagsProtReadWrite as u32;
    AccessDescription { location: location(device), flags }
}

/// A file descriptor, as a type of handle.
pub(super) const DESCRIPTOR: u32 =
    sys::hipMemAllocationHandleType::hipMemHandleTypePosixFileDescriptor as u32;
/// The smallest granularity.
pub(super) const GRANULARITY: u32 =
    sys::hipMemAllocationGranularity_flags::hipMemAllocationGranularityMinimum as u32;
/// Device memory that no cache keeps from other devices; older releases have only the next.
pub(super) const UNCACHED: c_uint = 3;
/// Device memory whose caches other devices see through.
pub(super) const FINE_GRAINED: c_uint = 1;
/// Pinned memory that all devices reach, while kernels run.
pub(super) const PINNED: c_uint = 0x1 | 0x2 | 0x4000_0000;
/// The only flag that opening an IPC handle takes.
pub(super) const LAZY_PEER_ACCESS: c_uint = 1;
/// A copy between any two addresses.
pub(super) const ANYWHERE: c_uint = sys::hipMemcpyKind::hipMemcpyDefault as c_uint;
/// A stream that does not wait for the default stream.
pub(super) const NON_BLOCKING: c_uint = 1;
/// An event without timing.
pub(super) const NO_TIMING: c_uint = 2;
/// That nothing waits for an object of a graph to be let go of.
pub(super) const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// That a graph takes over the count on an object.
pub(super) const MOVE_TO_GRAPH: c_uint = 1;
/// How fast a link to another device is, 0 the fastest.
pub(super) const LINK_RANK: c_uint = sys::hipDeviceP2PAttr::hipDevP2PAttrPerformanceRank as c_uint;
/// Whether atomic operations over a link are single steps.
pub(super) const LINK_ATOMICS: c_uint =
    sys::hipDeviceP2PAttr::hipDevP2PAttrNativeAtomicSupported as c_uint;
/// The least strict mode of recording.
pub(super) const RELAXED: c_uint = sys::hipStreamCaptureMode::hipStreamCaptureModeRelaxed as c_uint;

/// Whether a capture status says that work is being recorded. One that was invalidated is still open.
pub(super) fn is_capturing(status: c_uint) -> bool {
    status != sys::hipStreamCaptureStatus::hipStreamCaptureStatusNone as c_uint
}

/// Whether a memory type of release `version` is that of a device.
pub(super) fn is_device_memory(kind: u32, version: u32) -> bool {
    kind == if version >= release(6, 0) { 2 } else { 1 }
}

/// An attribute that counts something; the driver never answers a negative one for these.
pub(super) fn count(value: c_int) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_drivers_header() {
        assert_eq!(size_of::<AllocationProperties>(), size_of::<sys::hipMemAllocationProp>());
        assert_eq!(size_of::<AccessDescription>(), size_of::<sys::hipMemAccessDesc>());
        assert_eq!(size_of::<Location>(), size_of::<sys::hipMemLocation>());
        assert_eq!(size_of::<sys::hipIpcMemHandle_t>(), 64);
    }

    #[test]
    fn codes_are_those_of_the_drivers_header() {
        for (code, number) in [
            (Code::SUCCESS, 0),
            (Code::INVALID_VALUE, 1),
            (Code::OUT_OF_MEMORY, 2),
            (Code::INVALID_POINTER, 17),
            (Code::INVALID_HANDLE, 400),
            (Code::NOT_READY, 600),
            (Code::NOT_SUPPORTED, 801),
            (Code::CAPTURE_IMPLICIT, 906),
        ] {
            assert_eq!(code.0, number);
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

    #[test]
    fn an_invalidated_capture_is_still_one() {
        assert_eq!([0, 1, 2].map(is_capturing), [false, true, true]);
    }
}
