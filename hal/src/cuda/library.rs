//! The functions of the driver library that this backend loads.

use crate::gpu::calls::{
    Address, AllocationProperties, Device, Names, RawFunction, RawModule, RawPhysical, RawStream,
    VirtualNames, symbols,
};
use crate::gpu::code::Code;
use cudarc::driver::sys;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// What both vendors' drivers have.
const NAMES: Names = Names {
    init: "cuInit",
    version: "cuDriverGetVersion",
    device_count: "cuDeviceGetCount",
    device_name: "cuDeviceGetName",
    device_memory: "cuDeviceTotalMem_v2",
    device_attribute: "cuDeviceGetAttribute",
    host_allocate: "cuMemHostAlloc",
    host_address: "cuMemHostGetDevicePointer_v2",
    host_free: "cuMemFreeHost",
    host_register: "cuMemHostRegister_v2",
    host_unregister: "cuMemHostUnregister",
    pointer_range: "cuMemGetAddressRange_v2",
    ipc_export: "cuIpcGetMemHandle",
    ipc_open: "cuIpcOpenMemHandle_v2",
    ipc_close: "cuIpcCloseMemHandle",
    stream_create: "cuStreamCreate",
    stream_create_priority: "cuStreamCreateWithPriority",
    stream_priorities: "cuCtxGetStreamPriorityRange",
    stream_write: "cuStreamWriteValue64_v2",
    limit_get: "cuCtxGetLimit",
    limit_set: "cuCtxSetLimit",
    stream_destroy: "cuStreamDestroy_v2",
    stream_query: "cuStreamQuery",
    stream_synchronize: "cuStreamSynchronize",
    stream_wait: "cuStreamWaitEvent",
    stream_capturing: "cuStreamIsCapturing",
    event_create: "cuEventCreate",
    event_destroy: "cuEventDestroy_v2",
    event_record: "cuEventRecord",
    event_query: "cuEventQuery",
    event_synchronize: "cuEventSynchronize",
    module_unload: "cuModuleUnload",
    module_function: "cuModuleGetFunction",
    function_attribute: "cuFuncGetAttribute",
    function_occupancy: "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    launch: "cuLaunchKernel",
    launch_cooperative: "cuLaunchCooperativeKernel",
    capture_mode: "cuThreadExchangeStreamCaptureMode",
    capture_info: "cuStreamGetCaptureInfo_v2",
    object_create: "cuUserObjectCreate",
    object_release: "cuUserObjectRelease",
    object_retain: "cuGraphRetainUserObject",
    device_place: "cuDeviceGetPCIBusId",
    peer_possible: "cuDeviceCanAccessPeer",
    peer_attribute: "cuDeviceGetP2PAttribute",
};

/// Virtual memory management.
const MAPPING: VirtualNames = VirtualNames {
    granularity: "cuMemGetAllocationGranularity",
    create: "cuMemCreate",
    release: "cuMemRelease",
    of: "cuMemRetainAllocationHandle",
    export: "cuMemExportToShareableHandle",
    import: "cuMemImportFromShareableHandle",
    reserve: "cuMemAddressReserve",
    free: "cuMemAddressFree",
    map: "cuMemMap",
    unmap: "cuMemUnmap",
    allow: "cuMemSetAccess",
};

symbols! {
    shared NAMES;
    mapping MAPPING;
    required {
        error_name = "cuGetErrorName" (Code, *mut *const c_char);
        error_text = "cuGetErrorString" (Code, *mut *const c_char);
        device_get = "cuDeviceGet" (*mut Device, c_int);
        primary_retain = "cuDevicePrimaryCtxRetain" (*mut sys::CUcontext, Device);
        primary_release = "cuDevicePrimaryCtxRelease_v2" (Device);
        primary_state = "cuDevicePrimaryCtxGetState" (Device, *mut c_uint, *mut c_int);
        context_current = "cuCtxGetCurrent" (*mut sys::CUcontext);
        context_device = "cuCtxGetDevice" (*mut Device);
        context_push = "cuCtxPushCurrent_v2" (sys::CUcontext);
        context_pop = "cuCtxPopCurrent_v2" (*mut sys::CUcontext);
        memory_fill = "cuMemsetD8Async" (Address, u8, usize, RawStream);
        memory_copy = "cuMemcpyAsync" (Address, Address, usize, RawStream);
        pointer_attributes = "cuPointerGetAttributes" (
            c_uint,
            *mut sys::CUpointer_attribute,
            *mut *mut c_void,
            Address,
        );
        stream_context = "cuStreamGetCtx" (RawStream, *mut sys::CUcontext);
        module_load = "cuModuleLoadDataEx" (
            *mut RawModule,
            *const c_void,
            c_uint,
            *mut sys::CUjit_option,
            *mut *mut c_void,
        );
        function_set = "cuFuncSetAttribute"
            (RawFunction, sys::CUfunction_attribute, c_int);
    }
    optional {
        // Since CUDA 12.5: the second place is for a green context.
        stream_contexts = "cuStreamGetCtx_v2"
            (RawStream, *mut sys::CUcontext, *mut *mut c_void);
        stream_number = "cuStreamGetId" (RawStream, *mut c_ulonglong);
        memory_properties = "cuMemGetAllocationPropertiesFromHandle"
            (*mut AllocationProperties, RawPhysical);
        device_uuid = "cuDeviceGetUuid_v2" (*mut [u8; 16], Device);
        device_uuid_whole = "cuDeviceGetUuid" (*mut [u8; 16], Device);
        range_handle = "cuMemGetHandleForAddressRange" (
            *mut c_void,
            Address,
            usize,
            sys::CUmemRangeHandleType,
            c_ulonglong,
        );
        peer_enable = "cuCtxEnablePeerAccess" (sys::CUcontext, c_uint);
        multicast_create = "cuMulticastCreate" (
            *mut RawPhysical,
            *const sys::CUmulticastObjectProp,
        );
        multicast_add = "cuMulticastAddDevice"
            (RawPhysical, Device);
        multicast_bind = "cuMulticastBindMem" (
            RawPhysical,
            usize,
            RawPhysical,
            usize,
            usize,
            c_ulonglong,
        );
        multicast_unbind = "cuMulticastUnbind"
            (RawPhysical, Device, usize, usize);
        multicast_granularity = "cuMulticastGetGranularity" (
            *mut usize,
            *const sys::CUmulticastObjectProp,
            sys::CUmulticastGranularity_flags,
        );
    }
}
