//! The driver library: its functions, loaded symbol by symbol, and its errors in words.
//!
//! The bindings would link it. Loaded here, one binary serves the releases of ROCm whose libraries have different
//! names, and starts on machines that have none.

use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::search::{Found, Search};
use crate::gpu::symbols::symbols;
use crate::rocm::conv::{self, AccessDescription, AllocationProperties};
use crate::rocm::{lock, places};
use hip_sys::hiprt as sys;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Mutex, OnceLock};

/// The variable that names another driver library, the only one then.
const VARIABLE: &str = "ANTIPHON_HIP_LIB";

/// What a driver function returns. A number and not the bindings' enumeration: a newer driver answers codes that
/// those do not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Code(pub(super) u32);

impl Code {
    pub(super) const SUCCESS: Code = Code(sys::hipError_t::hipSuccess as u32);
    pub(super) const INVALID_VALUE: Code = Code(sys::hipError_t::hipErrorInvalidValue as u32);
    pub(super) const OUT_OF_MEMORY: Code = Code(sys::hipError_t::hipErrorOutOfMemory as u32);
    pub(super) const INVALID_POINTER: Code =
        Code(sys::hipError_t::hipErrorInvalidDevicePointer as u32);
    pub(super) const INVALID_HANDLE: Code = Code(sys::hipError_t::hipErrorInvalidHandle as u32);
    pub(super) const NOT_READY: Code = Code(sys::hipError_t::hipErrorNotReady as u32);
    pub(super) const NOT_SUPPORTED: Code = Code(sys::hipError_t::hipErrorNotSupported as u32);
    pub(super) const PEER_ENABLED: Code =
        Code(sys::hipError_t::hipErrorPeerAccessAlreadyEnabled as u32);
    pub(super) const CAPTURE_IMPLICIT: Code =
        Code(sys::hipError_t::hipErrorStreamCaptureImplicit as u32);
}

symbols! {
    code Code;
    required {
        init = "hipInit" (c_uint);
        runtime_version = "hipRuntimeGetVersion" (*mut c_int);
        error_name = "hipGetErrorName" (Code) -> *const c_char;
        error_text = "hipGetErrorString" (Code) -> *const c_char;
        error_peek = "hipPeekAtLastError" ();
        error_forget = "hipGetLastError" ();
        device_count = "hipGetDeviceCount" (*mut c_int);
        device_current = "hipGetDevice" (*mut c_int);
        device_set = "hipSetDevice" (c_int);
        device_name = "hipDeviceGetName" (*mut c_char, c_int, sys::hipDevice_t);
        device_memory = "hipDeviceTotalMem" (*mut usize, sys::hipDevice_t);
        device_attribute = "hipDeviceGetAttribute" (*mut c_int, c_uint, c_int);
        memory_allocate = "hipExtMallocWithFlags" (*mut *mut c_void, usize, c_uint);
        memory_free = "hipFree" (*mut c_void);
        memory_fill = "hipMemsetAsync" (*mut c_void, c_int, usize, sys::hipStream_t);
        memory_copy = "hipMemcpyAsync"
            (*mut c_void, *const c_void, usize, c_uint, sys::hipStream_t);
        host_allocate = "hipHostMalloc" (*mut *mut c_void, usize, c_uint);
        host_address = "hipHostGetDevicePointer" (*mut *mut c_void, *mut c_void, c_uint);
        host_free = "hipHostFree" (*mut c_void);
        pointer_attribute = "hipPointerGetAttribute" (*mut c_void, c_uint, *mut c_void);
        pointer_range = "hipMemGetAddressRange" (*mut *mut c_void, *mut usize, *mut c_void);
        ipc_export = "hipIpcGetMemHandle" (*mut sys::hipIpcMemHandle_t, *mut c_void);
        ipc_open = "hipIpcOpenMemHandle" (*mut *mut c_void, sys::hipIpcMemHandle_t, c_uint);
        ipc_close = "hipIpcCloseMemHandle" (*mut c_void);
        stream_create = "hipStreamCreateWithFlags" (*mut sys::hipStream_t, c_uint);
        stream_destroy = "hipStreamDestroy" (sys::hipStream_t);
        stream_query = "hipStreamQuery" (sys::hipStream_t);
        stream_synchronize = "hipStreamSynchronize" (sys::hipStream_t);
        stream_wait = "hipStreamWaitEvent" (sys::hipStream_t, sys::hipEvent_t, c_uint);
        stream_capturing = "hipStreamIsCapturing" (sys::hipStream_t, *mut c_uint);
        event_create = "hipEventCreateWithFlags" (*mut sys::hipEvent_t, c_uint);
        event_destroy = "hipEventDestroy" (sys::hipEvent_t);
        event_record = "hipEventRecord" (sys::hipEvent_t, sys::hipStream_t);
        event_query = "hipEventQuery" (sys::hipEvent_t);
        event_synchronize = "hipEventSynchronize" (sys::hipEvent_t);
        module_load = "hipModuleLoadData" (*mut sys::hipModule_t, *const c_void);
        module_unload = "hipModuleUnload" (sys::hipModule_t);
        module_function = "hipModuleGetFunction"
            (*mut sys::hipFunction_t, sys::hipModule_t, *const c_char);
        function_attribute = "hipFuncGetAttribute" (*mut c_int, c_uint, sys::hipFunction_t);
        function_occupancy = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"
            (*mut c_int, sys::hipFunction_t, c_int, usize);
        launch = "hipModuleLaunchKernel" (
            sys::hipFunction_t,
            c_uint, c_uint, c_uint,
            c_uint, c_uint, c_uint,
            c_uint,
            sys::hipStream_t,
            *mut *mut c_void,
            *mut *mut c_void,
        );
    }
    optional {
        capture_info = "hipStreamGetCaptureInfo_v2" (
            sys::hipStream_t,
            *mut c_uint,
            *mut c_ulonglong,
            *mut sys::hipGraph_t,
            *mut *const sys::hipGraphNode_t,
            *mut usize,
        );
        object_create = "hipUserObjectCreate" (
            *mut sys::hipUserObject_t,
            *mut c_void,
            Option<unsafe extern "C" fn(*mut c_void)>,
            c_uint,
            c_uint,
        );
        object_release = "hipUserObjectRelease" (sys::hipUserObject_t, c_uint);
        object_retain = "hipGraphRetainUserObject"
            (sys::hipGraph_t, sys::hipUserObject_t, c_uint, c_uint);
        peer_possible = "hipDeviceCanAccessPeer" (*mut c_int, c_int, c_int);
        peer_attribute = "hipDeviceGetP2PAttribute" (*mut c_int, c_uint, c_int, c_int);
        peer_enable = "hipDeviceEnablePeerAccess" (c_int, c_uint);
        properties = "hipGetDevicePropertiesR0600" (*mut c_void, c_int);
        properties_of_old = "hipGetDeviceProperties" (*mut c_void, c_int);
        capture_mode = "hipThreadExchangeStreamCaptureMode" (*mut c_uint);
        stream_device = "hipStreamGetDevice" (sys::hipStream_t, *mut sys::hipDevice_t);
        launch_cooperative = "hipModuleLaunchCooperativeKernel" (
            sys::hipFunction_t,
            c_uint, c_uint, c_uint,
            c_uint, c_uint, c_uint,
            c_uint,
            sys::hipStream_t,
            *mut *mut c_void,
        );
        physical_granularity = "hipMemGetAllocationGranularity"
            (*mut usize, *const AllocationProperties, c_uint);
        physical_create = "hipMemCreate" (
            *mut sys::hipMemGenericAllocationHandle_t,
            usize,
            *const AllocationProperties,
            c_ulonglong,
        );
        physical_release = "hipMemRelease" (sys::hipMemGenericAllocationHandle_t);
        physical_of = "hipMemRetainAllocationHandle"
            (*mut sys::hipMemGenericAllocationHandle_t, *mut c_void);
        physical_export = "hipMemExportToShareableHandle"
            (*mut c_void, sys::hipMemGenericAllocationHandle_t, c_uint, c_ulonglong);
        physical_import = "hipMemImportFromShareableHandle"
            (*mut sys::hipMemGenericAllocationHandle_t, *mut c_void, c_uint);
        range_reserve = "hipMemAddressReserve"
            (*mut *mut c_void, usize, usize, *mut c_void, c_ulonglong);
        range_free = "hipMemAddressFree" (*mut c_void, usize);
        range_map = "hipMemMap" (
            *mut c_void,
            usize,
            usize,
            sys::hipMemGenericAllocationHandle_t,
            c_ulonglong,
        );
        range_unmap = "hipMemUnmap" (*mut c_void, usize);
        range_allow = "hipMemSetAccess" (*mut c_void, usize, *const AccessDescription, usize);
        range_access = "hipMemGetAccess" (*mut c_ulonglong, *const conv::Location, *mut c_void);
    }
}

/// The symbols of the driver library that this backend loads: those it needs, and those it can do without.
pub fn symbol_names() -> (&'static [&'static str], &'static [&'static str]) {
    (Symbols::REQUIRED, Symbols::OPTIONAL)
}

/// The driver library, loaded and initialised.
pub(super) struct Api {
    symbols: Symbols,
    /// Its release: ten million times the major version, plus a hundred thousand times the minor, plus the patch.
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
            backend: Backend::Rocm,
            code: i64::from(code.0),
            name,
            text,
        }
    }
}

/// The name and the text of `code`, from the driver.
fn describe(symbols: &Symbols, code: Code) -> (String, String) {
    let ask = |function: unsafe extern "C" fn(Code) -> *const c_char| {
        // SAFETY: any code may be asked for.
        let text = unsafe { function(code) };
        // SAFETY: the driver answers a string that ends with a zero byte and lives as long as the library.
        let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
        text.map(|text| text.to_string_lossy().into_owned())
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
    let _loading = lock(&LOADING);
    if let Some(api) = LOADED.get() {
        return Ok(api);
    }
    let api = load(&search())?;
    Ok(LOADED.get_or_init(|| api))
}

/// Where the driver library may be.
fn search() -> Search {
    Search {
        named: std::env::var_os(VARIABLE).filter(|path| !path.is_empty()),
        // The last as Python packages call it.
        names: &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"],
        folders: places::folders(|name| std::env::var_os(name)),
    }
}

/// Loads the library that `search` finds, and initialises it.
fn load(search: &Search) -> Result<Api, HalError> {
    let unavailable = |why: String, cure: &str| HalError::Unavailable {
        what: "the HIP driver".to_owned(),
        why,
        cure: cure.to_owned(),
    };
    let Found { library, name } = search.open().map_err(|why| {
        unavailable(
            why,
            "install ROCm (ROCM_PATH says where it is), or name its library by ANTIPHON_HIP_LIB",
        )
    })?;
    // Never closed, also where it turns out to be of no use: the driver keeps threads and exit handlers.
    let library = ManuallyDrop::new(library);
    let symbols = Symbols::load(&library).map_err(|symbol| {
        unavailable(format!("{name} has no {symbol}"), "install ROCm 5.2 or newer")
    })?;
    let answers = |code: Code| {
        let (error, text) = describe(&symbols, code);
        let why = format!("{name} answers {error} ({}): {text}", code.0);
        unavailable(why, conv::cure_of_initialisation(code))
    };
    // SAFETY: initialising takes no pointers and may be repeated, by this library and by the application.
    let code = unsafe { (symbols.init)(0) };
    if code != Code::SUCCESS {
        return Err(answers(code));
    }
    let mut count = 0;
    // SAFETY: `count` is a valid place for the answer.
    let code = unsafe { (symbols.device_count)(&raw mut count) };
    if code != Code::SUCCESS {
        return Err(answers(code));
    }
    let mut version = 0;
    // SAFETY: `version` is a valid place for the answer.
    let code = unsafe { (symbols.runtime_version)(&raw mut version) };
    let version = if code == Code::SUCCESS { u32::try_from(version).unwrap_or(0) } else { 0 };
    Ok(Api { symbols, version, name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn named(path: &str) -> Search {
        Search { named: Some(path.into()), names: &["libamdhip64.so.7"], folders: Vec::new() }
    }

    #[test]
    fn without_a_driver_the_answer_names_the_places_and_the_cure() {
        let nowhere = Search {
            named: None,
            names: &["libamdhip64-of-nobody.so.7"],
            folders: vec![PathBuf::from("/nowhere/lib")],
        };
        for (search, place) in [(nowhere, "/nowhere/lib"), (named("/none.so"), "/none.so")] {
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
        assert!(text.contains("libc.so.6 has no hipInit"), "{text}");
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
