//! The driver library: its functions, loaded symbol by symbol, and its errors in words.

use crate::cuda::conv;
use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::search::{Found, Search};
use crate::gpu::symbols::symbols;
use cudarc::driver::sys;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

/// The variable that names another driver library, the only one then.
const VARIABLE: &str = "ANTIPHON_CUDA_LIB";

/// What a driver function returns. A number and not the bindings' enumeration: a newer driver answers codes that
/// those do not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Code(pub(super) u32);

impl Code {
    pub(super) const SUCCESS: Code = Code(sys::CUresult::CUDA_SUCCESS as u32);
    pub(super) const INVALID_VALUE: Code = Code(sys::CUresult::CUDA_ERROR_INVALID_VALUE as u32);
    pub(super) const OUT_OF_MEMORY: Code = Code(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32);
    pub(super) const INVALID_HANDLE: Code = Code(sys::CUresult::CUDA_ERROR_INVALID_HANDLE as u32);
    pub(super) const NOT_READY: Code = Code(sys::CUresult::CUDA_ERROR_NOT_READY as u32);
    pub(super) const NOT_PERMITTED: Code = Code(sys::CUresult::CUDA_ERROR_NOT_PERMITTED as u32);
    pub(super) const NOT_SUPPORTED: Code = Code(sys::CUresult::CUDA_ERROR_NOT_SUPPORTED as u32);
    pub(super) const INVALID_DEVICE: Code = Code(sys::CUresult::CUDA_ERROR_INVALID_DEVICE as u32);
    pub(super) const PEER_ENABLED: Code =
        Code(sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as u32);
    pub(super) const CAPTURE_IMPLICIT: Code =
        Code(sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT as u32);
}

symbols! {
    code Code;
    required {
        init = "cuInit" (c_uint);
        driver_version = "cuDriverGetVersion" (*mut c_int);
        error_name = "cuGetErrorName" (Code, *mut *const c_char);
        error_text = "cuGetErrorString" (Code, *mut *const c_char);
        device_count = "cuDeviceGetCount" (*mut c_int);
        device_get = "cuDeviceGet" (*mut sys::CUdevice, c_int);
        device_name = "cuDeviceGetName" (*mut c_char, c_int, sys::CUdevice);
        device_memory = "cuDeviceTotalMem_v2" (*mut usize, sys::CUdevice);
        device_attribute = "cuDeviceGetAttribute"
            (*mut c_int, sys::CUdevice_attribute, sys::CUdevice);
        primary_retain = "cuDevicePrimaryCtxRetain" (*mut sys::CUcontext, sys::CUdevice);
        primary_release = "cuDevicePrimaryCtxRelease_v2" (sys::CUdevice);
        primary_state = "cuDevicePrimaryCtxGetState" (sys::CUdevice, *mut c_uint, *mut c_int);
        context_current = "cuCtxGetCurrent" (*mut sys::CUcontext);
        context_device = "cuCtxGetDevice" (*mut sys::CUdevice);
        context_push = "cuCtxPushCurrent_v2" (sys::CUcontext);
        context_pop = "cuCtxPopCurrent_v2" (*mut sys::CUcontext);
        memory_granularity = "cuMemGetAllocationGranularity" (
            *mut usize,
            *const sys::CUmemAllocationProp,
            sys::CUmemAllocationGranularity_flags,
        );
        memory_create = "cuMemCreate" (
            *mut sys::CUmemGenericAllocationHandle,
            usize,
            *const sys::CUmemAllocationProp,
            c_ulonglong,
        );
        memory_release = "cuMemRelease" (sys::CUmemGenericAllocationHandle);
        memory_retain = "cuMemRetainAllocationHandle"
            (*mut sys::CUmemGenericAllocationHandle, *mut c_void);
        memory_reserve = "cuMemAddressReserve"
            (*mut sys::CUdeviceptr, usize, usize, sys::CUdeviceptr, c_ulonglong);
        memory_unreserve = "cuMemAddressFree" (sys::CUdeviceptr, usize);
        memory_map = "cuMemMap" (
            sys::CUdeviceptr,
            usize,
            usize,
            sys::CUmemGenericAllocationHandle,
            c_ulonglong,
        );
        memory_unmap = "cuMemUnmap" (sys::CUdeviceptr, usize);
        memory_access = "cuMemSetAccess"
            (sys::CUdeviceptr, usize, *const sys::CUmemAccessDesc, usize);
        memory_export = "cuMemExportToShareableHandle" (
            *mut c_void,
            sys::CUmemGenericAllocationHandle,
            sys::CUmemAllocationHandleType,
            c_ulonglong,
        );
        memory_import = "cuMemImportFromShareableHandle" (
            *mut sys::CUmemGenericAllocationHandle,
            *mut c_void,
            sys::CUmemAllocationHandleType,
        );
        memory_fill = "cuMemsetD8Async" (sys::CUdeviceptr, u8, usize, sys::CUstream);
        memory_copy = "cuMemcpyAsync" (sys::CUdeviceptr, sys::CUdeviceptr, usize, sys::CUstream);
        host_allocate = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
        host_address = "cuMemHostGetDevicePointer_v2"
            (*mut sys::CUdeviceptr, *mut c_void, c_uint);
        host_free = "cuMemFreeHost" (*mut c_void);
        pointer_attributes = "cuPointerGetAttributes" (
            c_uint,
            *mut sys::CUpointer_attribute,
            *mut *mut c_void,
            sys::CUdeviceptr,
        );
        pointer_range = "cuMemGetAddressRange_v2"
            (*mut sys::CUdeviceptr, *mut usize, sys::CUdeviceptr);
        ipc_export = "cuIpcGetMemHandle" (*mut sys::CUipcMemHandle, sys::CUdeviceptr);
        ipc_open = "cuIpcOpenMemHandle_v2" (*mut sys::CUdeviceptr, sys::CUipcMemHandle, c_uint);
        ipc_close = "cuIpcCloseMemHandle" (sys::CUdeviceptr);
        stream_create = "cuStreamCreate" (*mut sys::CUstream, c_uint);
        stream_destroy = "cuStreamDestroy_v2" (sys::CUstream);
        stream_query = "cuStreamQuery" (sys::CUstream);
        stream_synchronize = "cuStreamSynchronize" (sys::CUstream);
        stream_wait = "cuStreamWaitEvent" (sys::CUstream, sys::CUevent, c_uint);
        stream_capturing = "cuStreamIsCapturing" (sys::CUstream, *mut c_uint);
        stream_context = "cuStreamGetCtx" (sys::CUstream, *mut sys::CUcontext);
        event_create = "cuEventCreate" (*mut sys::CUevent, c_uint);
        event_destroy = "cuEventDestroy_v2" (sys::CUevent);
        event_record = "cuEventRecord" (sys::CUevent, sys::CUstream);
        event_query = "cuEventQuery" (sys::CUevent);
        event_synchronize = "cuEventSynchronize" (sys::CUevent);
        module_load = "cuModuleLoadDataEx" (
            *mut sys::CUmodule,
            *const c_void,
            c_uint,
            *mut sys::CUjit_option,
            *mut *mut c_void,
        );
        module_unload = "cuModuleUnload" (sys::CUmodule);
        module_function = "cuModuleGetFunction"
            (*mut sys::CUfunction, sys::CUmodule, *const c_char);
        function_attribute = "cuFuncGetAttribute"
            (*mut c_int, sys::CUfunction_attribute, sys::CUfunction);
        function_set = "cuFuncSetAttribute"
            (sys::CUfunction, sys::CUfunction_attribute, c_int);
        function_occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
            (*mut c_int, sys::CUfunction, c_int, usize);
        launch = "cuLaunchKernel" (
            sys::CUfunction,
            c_uint, c_uint, c_uint,
            c_uint, c_uint, c_uint,
            c_uint,
            sys::CUstream,
            *mut *mut c_void,
            *mut *mut c_void,
        );
        launch_cooperative = "cuLaunchCooperativeKernel" (
            sys::CUfunction,
            c_uint, c_uint, c_uint,
            c_uint, c_uint, c_uint,
            c_uint,
            sys::CUstream,
            *mut *mut c_void,
        );
    }
    optional {
        capture_mode = "cuThreadExchangeStreamCaptureMode" (*mut c_uint);
        capture_info = "cuStreamGetCaptureInfo_v2" (
            sys::CUstream,
            *mut c_uint,
            *mut sys::cuuint64_t,
            *mut sys::CUgraph,
            *mut *const sys::CUgraphNode,
            *mut usize,
        );
        object_create = "cuUserObjectCreate" (
            *mut sys::CUuserObject,
            *mut c_void,
            Option<unsafe extern "C" fn(*mut c_void)>,
            c_uint,
            c_uint,
        );
        object_release = "cuUserObjectRelease" (sys::CUuserObject, c_uint);
        object_retain = "cuGraphRetainUserObject"
            (sys::CUgraph, sys::CUuserObject, c_uint, c_uint);
        memory_properties = "cuMemGetAllocationPropertiesFromHandle"
            (*mut sys::CUmemAllocationProp, sys::CUmemGenericAllocationHandle);
        range_handle = "cuMemGetHandleForAddressRange" (
            *mut c_void,
            sys::CUdeviceptr,
            usize,
            sys::CUmemRangeHandleType,
            c_ulonglong,
        );
        peer_possible = "cuDeviceCanAccessPeer" (*mut c_int, sys::CUdevice, sys::CUdevice);
        peer_attribute = "cuDeviceGetP2PAttribute"
            (*mut c_int, sys::CUdevice_P2PAttribute, sys::CUdevice, sys::CUdevice);
        peer_enable = "cuCtxEnablePeerAccess" (sys::CUcontext, c_uint);
        multicast_create = "cuMulticastCreate" (
            *mut sys::CUmemGenericAllocationHandle,
            *const sys::CUmulticastObjectProp,
        );
        multicast_add = "cuMulticastAddDevice"
            (sys::CUmemGenericAllocationHandle, sys::CUdevice);
        multicast_bind = "cuMulticastBindMem" (
            sys::CUmemGenericAllocationHandle,
            usize,
            sys::CUmemGenericAllocationHandle,
            usize,
            usize,
            c_ulonglong,
        );
        multicast_unbind = "cuMulticastUnbind"
            (sys::CUmemGenericAllocationHandle, sys::CUdevice, usize, usize);
        multicast_granularity = "cuMulticastGetGranularity" (
            *mut usize,
            *const sys::CUmulticastObjectProp,
            sys::CUmulticastGranularity_flags,
        );
    }
}

/// The symbols of the driver library that this backend loads: those it needs, and those it can do without.
pub fn symbol_names() -> (&'static [&'static str], &'static [&'static str]) {
    (Symbols::REQUIRED, Symbols::OPTIONAL)
}

/// The driver library, loaded and initialised.
pub(super) struct Api {
    symbols: Symbols,
    /// The newest CUDA that it supports: 1000 times the major version, plus 10 times the minor.
    pub(super) version: u32,
    /// The name by which it was loaded.
    pub(super) name: String,
}

impl Deref for Api {
    type Target = Symbols;

    fn deref(&self) -> &Symbols {
        &self.symbols
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("version", &self.version)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Api {
    /// Ok for [`Code::SUCCESS`], otherwise the error in the driver's words. `what` is a verb phrase.
    pub(super) fn check(&self, what: &str, code: Code) -> Result<(), HalError> {
        if code == Code::SUCCESS { Ok(()) } else { Err(self.error(what, code)) }
    }

    /// A driver's error in its own words.
    #[cold]
    pub(super) fn error(&self, what: &str, code: Code) -> HalError {
        let (name, text) = describe(&self.symbols, code);
        HalError::Vendor {
            what: what.to_owned(),
            backend: Backend::Cuda,
            code: i64::from(code.0),
            name,
            text,
        }
    }
}

/// The name and the text of `code`, from the driver.
fn describe(symbols: &Symbols, code: Code) -> (String, String) {
    let ask = |function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
        let mut text = std::ptr::null();
        // SAFETY: `text` is a valid place for the answer; any code may be asked for.
        let answer = unsafe { function(code, &raw mut text) };
        if answer != Code::SUCCESS || text.is_null() {
            return None;
        }
        // SAFETY: the driver answers a string that ends with a zero byte and lives as long as the library.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let name = ask(symbols.error_name).unwrap_or_else(|| "an unknown error".to_owned());
    let text =
        ask(symbols.error_text).unwrap_or_else(|| "the driver has no text for it".to_owned());
    (name, text)
}

/// The process's driver. Where it cannot work, the next call looks again.
pub(super) fn api() -> Result<&'static Api, HalError> {
    static LOADED: OnceLock<Api> = OnceLock::new();
    static LOADING: Mutex<()> = Mutex::new(());
    if let Some(api) = LOADED.get() {
        return Ok(api);
    }
    let _loading = crate::cuda::lock(&LOADING);
    if let Some(api) = LOADED.get() {
        return Ok(api);
    }
    let api = load(&search())?;
    Ok(LOADED.get_or_init(|| api))
}

/// Where the driver library may be.
fn search() -> Search {
    let folders = [
        "/usr/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/local/nvidia/lib64",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
    ];
    Search {
        named: std::env::var_os(VARIABLE).filter(|path| !path.is_empty()),
        names: &["libcuda.so.1"],
        folders: folders.into_iter().map(PathBuf::from).collect(),
    }
}

/// Loads the library that `search` finds, and initialises it.
fn load(search: &Search) -> Result<Api, HalError> {
    let unavailable = |why: String, cure: &str| HalError::Unavailable {
        what: "the CUDA driver".to_owned(),
        why,
        cure: cure.to_owned(),
    };
    let Found { library, name } = search.open().map_err(|why| {
        unavailable(
            why,
            "install NVIDIA's driver (in a container: start it with the GPUs), or name its library by \
             ANTIPHON_CUDA_LIB",
        )
    })?;
    // Never closed, also where it turns out to be of no use: the driver keeps threads and exit handlers.
    let library = ManuallyDrop::new(library);
    let symbols = Symbols::load(&library).map_err(|symbol| {
        unavailable(format!("{name} has no {symbol}"), "install a driver for CUDA 11.4 or newer")
    })?;
    // SAFETY: initialising takes no pointers and may be repeated, by this library and by the application.
    let code = unsafe { (symbols.init)(0) };
    if code != Code::SUCCESS {
        let (error, text) = describe(&symbols, code);
        let why = format!("{name} answers {error} ({}): {text}", code.0);
        return Err(unavailable(why, conv::cure_of_initialisation(code)));
    }
    let mut version = 0;
    // SAFETY: `version` is a valid place for the answer.
    let code = unsafe { (symbols.driver_version)(&raw mut version) };
    let version = if code == Code::SUCCESS { u32::try_from(version).unwrap_or(0) } else { 0 };
    Ok(Api { symbols, version, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str) -> Search {
        Search { named: Some(path.into()), names: &["libcuda.so.1"], folders: Vec::new() }
    }

    #[test]
    fn without_a_driver_the_answer_names_the_places_and_the_cure() {
        let nowhere = Search {
            named: None,
            names: &["libcuda-of-nobody.so.1"],
            folders: vec![PathBuf::from("/nowhere/lib64")],
        };
        for (search, place) in [(nowhere, "/nowhere/lib64"), (named("/none.so"), "/none.so")] {
            match load(&search) {
                Err(error @ HalError::Unavailable { .. }) => {
                    let text = error.to_string();
                    assert!(text.contains(place) && text.contains(VARIABLE), "{text}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_library_without_the_functions_is_told_by_the_first_it_lacks() {
        let text = load(&named("libc.so.6")).unwrap_err().to_string();
        assert!(text.contains("libc.so.6 has no cuInit"), "{text}");
    }

    #[test]
    fn no_symbol_is_listed_twice() {
        let (required, optional) = symbol_names();
        let mut all: Vec<_> = required.iter().chain(optional).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
