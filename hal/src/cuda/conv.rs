//! What the driver's numbers and structures mean: the one place that maps its enumerations.

use crate::gpu::calls::{AllocationProperties, Device};
use crate::gpu::code::{Code, DESCRIPTOR};
use cudarc::driver::sys;
use std::ffi::c_uint;

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
pub(super) fn handle_types(sharing: Sharing) -> c_uint {
    let kind = |wanted, kind| if wanted { kind } else { 0 };
    kind(sharing.descriptor, DESCRIPTOR) | kind(sharing.fabric, FABRIC)
}

/// A fabric handle, as a type of handle.
pub(super) const FABRIC: c_uint =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC.0 as c_uint;

/// Whether memory with these properties can be passed on as a fabric handle.
pub(super) fn has_fabric(properties: &AllocationProperties) -> bool {
    properties.handle_types & FABRIC != 0
}

/// Physical memory of `device` that can be passed on by `sharing`.
pub(super) fn allocation(device: Device, sharing: Sharing) -> AllocationProperties {
    let kind = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED as u32;
    let mut properties = AllocationProperties::new(device, kind, handle_types(sharing));
    properties.network = u8::from(sharing.network);
    properties
}

/// A multicast object over `members` devices that bind `bytes` each.
pub(super) fn multicast(members: u32, bytes: usize) -> sys::CUmulticastObjectProp {
    sys::CUmulticastObjectProp {
        numDevices: members,
        size: bytes,
        handleTypes: u64::from(DESCRIPTOR),
        flags: 0,
    }
}

/// Whether a memory type is that of a device.
pub(super) fn is_device_memory(kind: u32) -> bool {
    kind == sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::calls::{AccessDescription, IpcHandle};
    use crate::gpu::code::*;

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
            assert_eq!(handle_types(sharing), bits, "{sharing:?}");
            assert_eq!(has_fabric(&allocation(3, sharing)), fabric);
            assert_eq!(allocation(3, sharing).device(), Some(3));
        }
    }

    #[test]
    fn structures_have_the_sizes_of_the_drivers_header() {
        assert_eq!(size_of::<sys::CUmemAllocationProp>(), size_of::<AllocationProperties>());
        assert_eq!(size_of::<sys::CUmemAccessDesc>(), size_of::<AccessDescription>());
        assert_eq!(size_of::<sys::CUmulticastObjectProp>(), 32);
        assert_eq!(size_of::<sys::CUipcMemHandle>(), size_of::<IpcHandle>());
        assert_eq!(size_of::<sys::CUmemFabricHandle>(), 64);
    }

    #[test]
    fn numbers_are_those_of_the_drivers_header() {
        use sys::CUresult as Result;
        for (code, theirs) in [
            (Code::SUCCESS, Result::CUDA_SUCCESS),
            (Code::INVALID_VALUE, Result::CUDA_ERROR_INVALID_VALUE),
            (Code::OUT_OF_MEMORY, Result::CUDA_ERROR_OUT_OF_MEMORY),
            (Code::INVALID_DEVICE, Result::CUDA_ERROR_INVALID_DEVICE),
            (Code::INVALID_CONTEXT, Result::CUDA_ERROR_INVALID_CONTEXT),
            (Code::INVALID_HANDLE, Result::CUDA_ERROR_INVALID_HANDLE),
            (Code::NOT_READY, Result::CUDA_ERROR_NOT_READY),
            (Code::PEER_ENABLED, Result::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED),
            (Code::NOT_PERMITTED, Result::CUDA_ERROR_NOT_PERMITTED),
            (Code::NOT_SUPPORTED, Result::CUDA_ERROR_NOT_SUPPORTED),
            (Code::CAPTURE_IMPLICIT, Result::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
            (Code(*Code::RECORDING.start()), Result::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            (Code(*Code::RECORDING.end()), Result::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD),
            (Code::FOREIGN[0], Result::CUDA_ERROR_INVALID_IMAGE),
            (Code::FOREIGN[1], Result::CUDA_ERROR_NO_BINARY_FOR_GPU),
            (Code::FOREIGN[2], Result::CUDA_ERROR_INVALID_PTX),
            (Code::FOREIGN[3], Result::CUDA_ERROR_JIT_COMPILER_NOT_FOUND),
            (Code::FOREIGN[4], Result::CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
            (Code::FOREIGN[5], Result::CUDA_ERROR_JIT_COMPILATION_DISABLED),
        ] {
            assert_eq!(code.0, theirs as u32);
        }
        use sys::CUfunction_attribute as Attribute;
        for (ours, theirs) in [
            (NON_BLOCKING, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32),
            (NO_TIMING, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32),
            (NO_DESTRUCTOR_SYNC, sys::CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as u32),
            (MOVE_TO_GRAPH, sys::CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE as u32),
            (RELAXED, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as u32),
            (LAZY_PEER_ACCESS, sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32),
            (
                DESCRIPTOR,
                sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0,
            ),
            (
                GRANULARITY,
                sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM as u32,
            ),
            (THREADS, Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK as u32),
            (SHARED_BYTES, Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES as u32),
            (LOCAL_BYTES, Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES as u32),
            (REGISTERS, Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS as u32),
            (0, sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as u32),
            (1, sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as u32),
            (3, sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as u32),
        ] {
            assert_eq!(ours, theirs);
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
    fn memory_of_devices_is_told_from_that_of_hosts() {
        assert_eq!([1, 2, 3].map(is_device_memory), [false, true, false]);
    }
}
