//! The functions of the driver library that this backend loads.
//!
//! The bindings would link it. Loaded, one binary serves the releases of ROCm whose libraries have different names, and
//! starts on machines that have none.

use crate::gpu::calls::{Device, Location, Names, RawModule, RawStream, VirtualNames, symbols};
use crate::gpu::code::Code;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// What both vendors' drivers have.
const NAMES: Names = Names {
    init: "hipInit",
    version: "hipRuntimeGetVersion",
    device_count: "hipGetDeviceCount",
    device_name: "hipDeviceGetName",
    device_memory: "hipDeviceTotalMem",
    device_attribute: "hipDeviceGetAttribute",
    host_allocate: "hipHostMalloc",
    host_address: "hipHostGetDevicePointer",
    host_free: "hipHostFree",
    host_register: "hipHostRegister",
    host_unregister: "hipHostUnregister",
    pointer_range: "hipMemGetAddressRange",
    ipc_export: "hipIpcGetMemHandle",
    ipc_open: "hipIpcOpenMemHandle",
    ipc_close: "hipIpcCloseMemHandle",
    stream_create: "hipStreamCreateWithFlags",
    stream_create_priority: "hipStreamCreateWithPriority",
    stream_priorities: "hipDeviceGetStreamPriorityRange",
    stream_write: "hipStreamWriteValue64",
    limit_get: "hipDeviceGetLimit",
    limit_set: "hipDeviceSetLimit",
    stream_destroy: "hipStreamDestroy",
    stream_query: "hipStreamQuery",
    stream_synchronize: "hipStreamSynchronize",
    stream_wait: "hipStreamWaitEvent",
    stream_capturing: "hipStreamIsCapturing",
    event_create: "hipEventCreateWithFlags",
    event_destroy: "hipEventDestroy",
    event_record: "hipEventRecord",
    event_query: "hipEventQuery",
    event_synchronize: "hipEventSynchronize",
    module_unload: "hipModuleUnload",
    module_function: "hipModuleGetFunction",
    function_attribute: "hipFuncGetAttribute",
    function_occupancy: "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
    launch: "hipModuleLaunchKernel",
    launch_cooperative: "hipModuleLaunchCooperativeKernel",
    capture_mode: "hipThreadExchangeStreamCaptureMode",
    capture_info: "hipStreamGetCaptureInfo_v2",
    object_create: "hipUserObjectCreate",
    object_release: "hipUserObjectRelease",
    object_retain: "hipGraphRetainUserObject",
    device_place: "hipDeviceGetPCIBusId",
    peer_possible: "hipDeviceCanAccessPeer",
    peer_attribute: "hipDeviceGetP2PAttribute",
};

/// Virtual memory management.
const MAPPING: VirtualNames = VirtualNames {
    granularity: "hipMemGetAllocationGranularity",
    create: "hipMemCreate",
    release: "hipMemRelease",
    of: "hipMemRetainAllocationHandle",
    export: "hipMemExportToShareableHandle",
    import: "hipMemImportFromShareableHandle",
    reserve: "hipMemAddressReserve",
    free: "hipMemAddressFree",
    map: "hipMemMap",
    unmap: "hipMemUnmap",
    allow: "hipMemSetAccess",
};

symbols! {
    shared NAMES;
    mapping MAPPING;
    required {
        error_name = "hipGetErrorName" (Code) -> *const c_char;
        error_text = "hipGetErrorString" (Code) -> *const c_char;
        error_peek = "hipPeekAtLastError" ();
        error_forget = "hipGetLastError" ();
        device_current = "hipGetDevice" (*mut c_int);
        device_set = "hipSetDevice" (c_int);
        memory_allocate = "hipExtMallocWithFlags" (*mut *mut c_void, usize, c_uint);
        memory_free = "hipFree" (*mut c_void);
        memory_fill = "hipMemsetAsync" (*mut c_void, c_int, usize, RawStream);
        memory_copy = "hipMemcpyAsync"
            (*mut c_void, *const c_void, usize, c_uint, RawStream);
        pointer_attribute = "hipPointerGetAttribute" (*mut c_void, c_uint, *mut c_void);
        module_load = "hipModuleLoadData" (*mut RawModule, *const c_void);
    }
    optional {
        peer_enable = "hipDeviceEnablePeerAccess" (c_int, c_uint);
        properties = "hipGetDevicePropertiesR0600" (*mut c_void, c_int);
        properties_of_old = "hipGetDeviceProperties" (*mut c_void, c_int);
        stream_device = "hipStreamGetDevice" (RawStream, *mut Device);
        range_access = "hipMemGetAccess" (*mut c_ulonglong, *const Location, *mut c_void);
        // Of the library below, which this one needs: the loader looks there, too.
        system_information = "hsa_system_get_info" (c_uint, *mut c_void);
        dma_buf = "hsa_amd_portable_export_dmabuf"
            (*const c_void, usize, *mut c_int, *mut c_ulonglong);
    }
}
