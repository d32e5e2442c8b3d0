//! What NVIDIA's driver has in its own way.

use crate::cuda::caps::{self, Traits};
use crate::cuda::context::{self, Context, StreamOwner, of_stream};
use crate::cuda::conv::{self, Sharing};
use crate::cuda::library::Symbols;
use crate::cuda::multicast::{CudaMulticast, Member};
use crate::cuda::{export, image, nvrtc};
use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::calls::{
    Address, AllocationProperties, Device, RawFunction, RawModule, RawStream, Virtual,
};
use crate::gpu::code::Code;
use crate::gpu::core::Core;
use crate::gpu::export::{Buffer, not_shareable};
use crate::gpu::library::{Api, Words, text_at};
use crate::gpu::memory::{self, GpuMemory};
use crate::gpu::process::Process;
use crate::gpu::search::Search;
use crate::gpu::stream::{PER_THREAD, number_of_handle};
use crate::gpu::vendor::{Context as _, Owner, Vendor, unsupported};
use crate::gpu::vmm::{self, Physical};
use crate::memory::MemoryHandle;
use crate::multicast::Multicast;
use crate::uuid::DeviceUuid;
use cudarc::driver::sys;
use libloading::os::unix::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

/// The variable that names another driver library, the only one then.
const VARIABLE: &str = "ANTIPHON_CUDA_LIB";

/// Bytes of text that the driver may write about an image that it does not load.
const LOG_BYTES: usize = 8 << 10;

/// The driver of the CUDA backend. Devices have the numbers that the CUDA driver gives them
/// (`CUDA_VISIBLE_DEVICES` counts).
///
/// A device is opened on the context that the calling thread has current, where that is one on the same GPU and no green
/// one, and on the GPU's primary context otherwise, and keeps it for the life of the process. An application that made a
/// context of its own keeps it alive as long as it uses the device.
#[derive(Clone, Copy, Debug)]
pub struct CudaDriver;

impl Vendor for CudaDriver {
    const BACKEND: Backend = Backend::Cuda;
    const WORDS: Words = Words {
        driver: "the CUDA driver",
        missing: "install NVIDIA's driver (in a container: start it with the GPUs), or name its library by \
                  ANTIPHON_CUDA_LIB",
        newer: "install a driver for CUDA 11.4 or newer",
        hidden: "look at nvidia-smi and CUDA_VISIBLE_DEVICES",
        visible: "CUDA_VISIBLE_DEVICES",
        allocator: "cudaMalloc",
    };
    const REFUSALS: &'static [Code] = &[Code::INVALID_VALUE, Code::INVALID_HANDLE];
    const PINNED: u32 = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
    const REGISTERED: u32 = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
    const MAPS_WITHOUT_CONTEXT: bool = true;
    const EVENTS_END_RECORDINGS: bool = false;
    const LINK: (u32, u32) = (
        sys::CUdevice_P2PAttribute_enum::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED as u32,
        sys::CUdevice_P2PAttribute_enum::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK as u32,
    );
    const COUNTS_RETAINED: bool = true;

    type Symbols = Symbols;
    type Context = Context;
    type Traits = Traits;
    type Own = Member;

    fn process() -> &'static Process<Self> {
        static PROCESS: Process<CudaDriver> = Process::new();
        &PROCESS
    }

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

    fn symbols(library: &Library) -> Result<Symbols, &'static str> {
        Symbols::load(library)
    }

    fn describe(symbols: &Symbols, code: Code) -> (Option<String>, Option<String>) {
        let ask = |function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text = ptr::null();
            // SAFETY: `text` is a valid place for the answer; any code may be asked for.
            let answer = unsafe { function(code, &raw mut text) };
            // SAFETY: the driver answers a string that ends with a zero byte and lives as long as the library.
            answer.ok().ok().and_then(|()| unsafe { text_at(text) })
        };
        (ask(symbols.error_name), ask(symbols.error_text))
    }

    fn cure_of_initialisation(code: Code) -> &'static str {
        conv::cure_of_initialisation(code)
    }

    fn device(api: &'static Api<Self>, index: u32) -> Result<Device, HalError> {
        let mut device = 0;
        // SAFETY: `device` is a valid place for the answer.
        let code = unsafe { (api.device_get)(&raw mut device, index.cast_signed()) };
        api.check("find a CUDA device by its number", code)?;
        Ok(device)
    }

    fn uuid(api: &Api<Self>, device: Device) -> Option<DeviceUuid> {
        // The older call has one number for all slices of a GPU.
        let ask = api.device_uuid.or(api.device_uuid_whole)?;
        let mut bytes = [0; 16];
        // SAFETY: `bytes` is a valid place for the answer.
        let code = unsafe { ask(&raw mut bytes, device) };
        DeviceUuid::new(bytes).filter(|_| code == Code::SUCCESS)
    }

    fn current(api: &'static Api<Self>) -> Result<Option<Device>, HalError> {
        context::current(api).map(|current| current.map(|(_, device)| device))
    }

    fn probe(context: &Context) -> Result<Traits, HalError> {
        caps::probe(context)
    }

    unsafe fn number_of_stream(
        context: &Context,
        raw: RawStream,
    ) -> Result<(usize, u64), HalError> {
        let what = "adopt a CUDA stream";
        let refused = |saw: &str, cure| HalError::Invalid {
            what,
            saw: saw.to_owned(),
            allowed: "one of the context that the device was opened on".to_owned(),
            cure,
        };
        // One of the numbers for the default streams of whatever is current.
        let is_default = raw.addr() <= PER_THREAD;
        // A default stream is the current context's. Calls are made with the device's own context current, so they would not go
        // to a green context's default stream.
        // SAFETY: the caller vouches for the stream.
        let asked = is_default.then(|| unsafe { of_stream(context.api(), raw) });
        if let Some(Ok(StreamOwner::Green { .. })) = asked {
            return Err(refused(
                "the default stream of a green context",
                "make a stream of the green context (cuGreenCtxStreamCreate), and pass that",
            ));
        }
        let _entered = context.enter()?;
        // SAFETY: as above.
        let owner = unsafe { of_stream(context.api(), raw) };
        let owner = owner.map_err(|code| context.api().error(what, code))?;
        if owner.context() != context.raw() {
            return Err(refused(
                "a stream of another context",
                "open the device of the stream's GPU while the stream's context is current",
            ));
        }
        let mut number = number_of_handle(raw);
        if let Some(ask) = context.api().stream_number {
            // SAFETY: as above.
            let code = unsafe { ask(raw, &raw mut number) };
            context.api().check(what, code)?;
        }
        Ok((context.raw().addr(), number))
    }

    unsafe fn clear(api: &Api<Self>, address: Address, bytes: usize, stream: RawStream) -> Code {
        // SAFETY: the caller vouches for the range.
        unsafe { (api.memory_fill)(address, 0, bytes, stream) }
    }

    unsafe fn copy(
        api: &Api<Self>,
        to: *mut u8,
        from: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> Code {
        // SAFETY: the caller vouches for both ranges.
        unsafe { (api.memory_copy)(to.addr() as u64, from.addr() as u64, bytes, stream) }
    }

    fn compile(
        driver_version: Option<u32>,
        source: &str,
        architecture: &str,
        options: &[&str],
    ) -> Result<Vec<u8>, HalError> {
        nvrtc::NVRTC.compile(nvrtc::row(driver_version), source, architecture, options)
    }

    fn load_module(api: &Api<Self>, image: &[u8]) -> Result<RawModule, HalError> {
        let image = image::checked(image).map_err(|saw| HalError::Invalid {
            what: "load a kernel",
            saw,
            allowed: "machine code, a bundle or PTX, whole".to_owned(),
            cure: "compile the kernel again",
        })?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values =
            [log.as_mut_ptr().cast(), ptr::without_provenance_mut::<c_void>(LOG_BYTES)];
        let mut raw = ptr::null_mut();
        let (image, options) = (image.as_ptr().cast(), options.as_mut_ptr());
        // SAFETY: what the image says of its own length was checked; the log is as long as the second option says; as
        // many options as values.
        let code =
            unsafe { (api.module_load)(&raw mut raw, image, 2, options, values.as_mut_ptr()) };
        if code == Code::SUCCESS {
            return Ok(raw);
        }
        let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
        Err(api.not_loaded(code, log.trim_end()))
    }

    fn allow_shared(api: &Api<Self>, function: RawFunction, bytes: u32) -> Code {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: takes no pointers but the function, which lives as long as its module.
        unsafe { (api.function_set)(function, attribute, bytes) }
    }

    fn wanted(core: &Core<Self>) -> Vec<AllocationProperties> {
        let (device, sharing) = (core.context.device(), core.traits.sharing);
        let mut wanted = vec![conv::allocation(device, sharing)];
        if sharing.fabric {
            wanted.push(conv::allocation(device, Sharing { fabric: false, ..sharing }));
        }
        wanted
    }

    fn allocate(
        core: &Arc<Core<Self>>,
        bytes: u64,
        length: usize,
    ) -> Result<Arc<GpuMemory<Self>>, HalError> {
        memory::map_new(core, bytes, length)
    }

    fn export_own(_memory: &GpuMemory<Self>, _own: &Member) -> Result<MemoryHandle, HalError> {
        Err(not_shareable("it is the mapping of a multicast group", "export the group"))
    }

    fn export_fabric(memory: &GpuMemory<Self>) -> Result<MemoryHandle, HalError> {
        export::fabric(memory)
    }

    fn dma_buf(memory: &GpuMemory<Self>, address: Address, bytes: u64) -> Result<Buffer, HalError> {
        export::dma_buf(memory, address, bytes)
    }

    fn owner(core: &Core<Self>, address: Address) -> Result<Option<Owner>, HalError> {
        use sys::CUpointer_attribute_enum as Attribute;
        let names = [
            Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID,
            Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        ];
        // All zero for an address that the driver does not know.
        let [kind, device, number, classic] = attributes(core, address, names)?;
        if !conv::is_device_memory(kind as u32) {
            return Ok(None);
        }
        // The driver writes the last as one byte.
        let classic = classic & 0xff != 0;
        // Other physical memory at the same addresses is other memory, but need not have another buffer number: the block's
        // number counts.
        // Older drivers do not know the attribute.
        let block = match classic {
            true => 0,
            false => attributes(core, address, [Attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID])
                .map_or(0, |[block]| block),
        };
        let (device, numbers) = (device as u32 as i32, [number, block]);
        Ok(Some(Owner { device, numbers, classic: Some(classic) }))
    }

    fn descriptor(_api: &Api<Self>, number: &mut i32) -> *mut c_void {
        ptr::without_provenance_mut(usize::try_from(*number).unwrap_or(usize::MAX))
    }

    fn properties(physical: &Physical<Self>) -> Option<AllocationProperties> {
        let ask = physical.context.api().memory_properties?;
        let mut properties = AllocationProperties::new(0, 0, 0);
        // SAFETY: `properties` is a valid place for the answer, and the object has a count on the handle.
        let told = vmm::call::<Self>(&physical.context, || unsafe {
            ask(&raw mut properties, physical.raw)
        });
        told.is_ok().then_some(properties)
    }

    fn import_fabric(
        context: &Arc<Context>,
        calls: Virtual,
        handle: &[u8; 64],
    ) -> Option<Result<Physical<Self>, Code>> {
        Some(export::import_fabric(context, calls, handle))
    }

    fn fabric_only(
        physical: &Physical<Self>,
        properties: &AllocationProperties,
    ) -> Option<Result<[u8; 64], HalError>> {
        conv::has_fabric(properties).then(|| export::fabric_handle(physical))
    }

    fn peer_at(core: &Core<Self>, address: Address, _other: Device) -> Result<usize, HalError> {
        let names = [sys::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_CONTEXT];
        let [context] = attributes(core, address, names)?;
        Ok(context as usize)
    }

    fn enable_peer(core: &Core<Self>, peer: usize) -> Option<Code> {
        let context = ptr::with_exposed_provenance_mut(peer);
        // SAFETY: the driver gave the context, for memory that is live or for a device that stays open, and checks it.
        core.context.api().peer_enable.map(|enable| unsafe { enable(context, 0) })
    }

    fn multicast(
        core: &Arc<Core<Self>>,
        members: u32,
        bytes: u64,
    ) -> Result<Arc<dyn Multicast>, HalError> {
        if !core.traits.caps.multicast {
            return unsupported::<Self, _>("make a multicast group");
        }
        Ok(Arc::new(CudaMulticast::new(core, members, bytes)?))
    }

    fn import_multicast(
        core: &Arc<Core<Self>>,
        handle: &MemoryHandle,
    ) -> Result<Arc<dyn Multicast>, HalError> {
        if !core.traits.caps.multicast {
            return unsupported::<Self, _>("join a multicast group");
        }
        Ok(Arc::new(CudaMulticast::import(core, handle)?))
    }
}

/// Attributes of `address`, each at most eight bytes.
fn attributes<const COUNT: usize>(
    core: &Core<CudaDriver>,
    address: Address,
    mut names: [sys::CUpointer_attribute; COUNT],
) -> Result<[u64; COUNT], HalError> {
    // Eight zeroed bytes each: the driver writes one, four or eight, the lowest first.
    let mut values = [0u64; COUNT];
    let mut places = values.each_mut().map(|value| (&raw mut *value).cast::<c_void>());
    let (count, places) = (COUNT as u32, places.as_mut_ptr());
    let api = core.context.api();
    // SAFETY: as many names as places, each with room for the widest answer; any address may be asked for.
    let code = unsafe { (api.pointer_attributes)(count, names.as_mut_ptr(), places, address) };
    api.check("ask what is at an address", code)?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::library::symbol_names;
    use crate::gpu::{library, process};

    #[test]
    fn without_a_driver_the_answer_names_the_places_and_the_cure() {
        library::tests::check::<CudaDriver>(VARIABLE, "cuInit", symbol_names());
        process::tests::check_missing(CudaDriver);
    }
}
