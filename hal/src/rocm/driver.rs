//! What HIP has in its own way.

use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::calls::{Address, AllocationProperties, Device, Location, RawModule, RawStream};
use crate::gpu::code::Code;
use crate::gpu::core::Core;
use crate::gpu::export::Buffer;
use crate::gpu::library::{Api, Words, text_at};
use crate::gpu::memory::GpuMemory;
use crate::gpu::process::Process;
use crate::gpu::search::Search;
use crate::gpu::stream::number_of_handle;
use crate::gpu::vendor::{Context as _, Owner, Vendor};
use crate::memory::MemoryHandle;
use crate::rocm::caps::{self, Traits};
use crate::rocm::context::Context;
use crate::rocm::library::Symbols;
use crate::rocm::memory::{self, Own};
use crate::rocm::{conv, export, hiprtc, image, places};
use crate::uuid::DeviceUuid;
use hip_sys::hiprt::hipPointer_attribute as Attribute;
use libloading::os::unix::Library;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// The variable that names another driver library, the only one then.
const VARIABLE: &str = "ANTIPHON_HIP_LIB";

/// The driver of the ROCm backend. Devices have the numbers that HIP gives them (`HIP_VISIBLE_DEVICES` counts).
///
/// A device is used as the run-time library does, and stays open for the life of the process; which one is current
/// for a thread of the application is never changed for longer than a call.
#[derive(Clone, Copy, Debug)]
pub struct RocmDriver;

impl Vendor for RocmDriver {
    const BACKEND: Backend = Backend::Rocm;
    const WORDS: Words = Words {
        driver: "the ROCm driver",
        missing: "install ROCm (ROCM_PATH says where it is), or name its library by ANTIPHON_HIP_LIB",
        newer: "install ROCm 5.2 or newer",
        hidden: "look at rocminfo and HIP_VISIBLE_DEVICES",
        visible: "HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES",
        allocator: "hipMalloc",
    };
    const REFUSALS: &'static [Code] =
        &[Code::INVALID_VALUE, Code::INVALID_HANDLE, Code::OUT_OF_MEMORY, conv::INVALID_POINTER];
    const PINNED: u32 = conv::PINNED;
    const REGISTERED: u32 = conv::REGISTERED;
    // HIP says nothing of a thread that has no device.
    const MAPS_WITHOUT_CONTEXT: bool = false;
    const EVENTS_END_RECORDINGS: bool = true;
    const LINK: (u32, u32) = (conv::LINK_ATOMICS, conv::LINK_RANK);
    // Some releases count and some do not, and to give back a count that is not ours would take the memory from the
    // application. Where it was counted, the memory stays until the process ends.
    const COUNTS_RETAINED: bool = false;

    type Symbols = Symbols;
    type Context = Context;
    type Traits = Traits;
    type Own = Own;

    fn process() -> &'static Process<Self> {
        static PROCESS: Process<RocmDriver> = Process::new();
        &PROCESS
    }

    fn search() -> Search {
        Search {
            named: std::env::var_os(VARIABLE).filter(|path| !path.is_empty()),
            // The last as Python packages call it.
            names: &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"],
            folders: places::folders(|name| std::env::var_os(name)),
        }
    }

    fn symbols(library: &Library) -> Result<Symbols, &'static str> {
        Symbols::load(library)
    }

    fn describe(symbols: &Symbols, code: Code) -> (Option<String>, Option<String>) {
        // SAFETY: any code may be asked for; the driver answers strings that end with a zero byte and live as long as
        // the library.
        unsafe { (text_at((symbols.error_name)(code)), text_at((symbols.error_text)(code))) }
    }

    fn cure_of_initialisation(code: Code) -> &'static str {
        conv::cure_of_initialisation(code)
    }

    fn device(_api: &'static Api<Self>, index: u32) -> Result<Device, HalError> {
        Ok(index.cast_signed())
    }

    fn uuid(_: &Api<Self>, _: Device) -> Option<DeviceUuid> {
        // `hipDeviceGetUuid` is zero, or the same for all partitions of a GPU, with some devices and releases.
        None
    }

    fn current(api: &'static Api<Self>) -> Result<Option<Device>, HalError> {
        let mut current = 0;
        // SAFETY: `current` is a valid place for the answer.
        let code = unsafe { (api.device_current)(&raw mut current) };
        api.check("ask for the current HIP device", code)?;
        // Device 0 is current from the start, so it does not tell that the application has made it so.
        Ok(Some(current).filter(|&device| device != 0))
    }

    fn probe(context: &Context) -> Result<Traits, HalError> {
        caps::probe(context)
    }

    unsafe fn number_of_stream(
        context: &Context,
        raw: RawStream,
    ) -> Result<(usize, u64), HalError> {
        let _entered = context.enter()?;
        let number = (context.device() as usize, number_of_handle(raw));
        // Older releases do not tell.
        let Some(ask) = context.api().stream_device else { return Ok(number) };
        let mut device = context.device();
        // SAFETY: the caller vouches for the stream; `device` is a valid place for the answer.
        let code = unsafe { ask(raw, &raw mut device) };
        context.api().check("adopt a HIP stream", code)?;
        if device == context.device() {
            return Ok(number);
        }
        Err(HalError::Invalid {
            what: "adopt a HIP stream",
            saw: format!("a stream of device {device}"),
            allowed: format!("one of device {}", context.device()),
            cure: "pass streams of the rank's own device",
        })
    }

    unsafe fn clear(api: &Api<Self>, address: Address, bytes: usize, stream: RawStream) -> Code {
        // SAFETY: the caller vouches for the range.
        unsafe { (api.memory_fill)(pointer_to(address), 0, bytes, stream) }
    }

    unsafe fn copy(
        api: &Api<Self>,
        to: *mut u8,
        from: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> Code {
        // SAFETY: the caller vouches for both ranges.
        unsafe { (api.memory_copy)(to.cast(), from.cast(), bytes, conv::ANYWHERE, stream) }
    }

    fn compile(
        driver_version: Option<u32>,
        source: &str,
        architecture: &str,
        options: &[&str],
    ) -> Result<Vec<u8>, HalError> {
        hiprtc::HIPRTC.compile(hiprtc::row(driver_version), source, architecture, options)
    }

    fn load_module(api: &Api<Self>, image: &[u8]) -> Result<RawModule, HalError> {
        image::check(image).map_err(|saw| HalError::Invalid {
            what: "load a kernel",
            saw,
            allowed: "machine code or a bundle, whole".to_owned(),
            cure: "compile the kernel again",
        })?;
        let mut raw = ptr::null_mut();
        // SAFETY: what the image says of its own length was checked, and the driver copies what it keeps.
        let code = unsafe { (api.module_load)(&raw mut raw, image.as_ptr().cast()) };
        if code == Code::SUCCESS { Ok(raw) } else { Err(api.not_loaded(code, "")) }
    }

    fn wanted(core: &Core<Self>) -> Vec<AllocationProperties> {
        vec![conv::allocation(core.context.device())]
    }

    fn allocate(
        core: &Arc<Core<Self>>,
        bytes: u64,
        length: usize,
    ) -> Result<Arc<GpuMemory<Self>>, HalError> {
        memory::allocate(core, bytes, length)
    }

    fn export_own(memory: &GpuMemory<Self>, own: &Own) -> Result<MemoryHandle, HalError> {
        memory::export(memory, own)
    }

    fn dma_buf(memory: &GpuMemory<Self>, address: Address, bytes: u64) -> Result<Buffer, HalError> {
        export::dma_buf(memory, address, bytes)
    }

    fn owner(core: &Core<Self>, address: Address) -> Result<Option<Owner>, HalError> {
        let api = core.context.api();
        let ask = |attribute: Attribute| {
            // Zeroed: the driver writes four or eight bytes, the lowest first.
            let mut value = 0u64;
            let place = (&raw mut value).cast::<c_void>();
            // SAFETY: there is room for the widest answer; any address may be asked for.
            match unsafe { (api.pointer_attribute)(place, attribute as u32, pointer_to(address)) } {
                Code::SUCCESS => Ok(Some(value)),
                Code::INVALID_VALUE | conv::INVALID_POINTER => Ok(None),
                code => Err(api.error("ask what is at an address", code)),
            }
        };
        let kind = ask(Attribute::HIP_POINTER_ATTRIBUTE_MEMORY_TYPE)?;
        if !kind.is_some_and(|kind| conv::is_device_memory(kind as u32, api.version)) {
            return Ok(None);
        }
        let number = ask(Attribute::HIP_POINTER_ATTRIBUTE_BUFFER_ID)?;
        let device = ask(Attribute::HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL)?;
        // The driver writes the device as an int, and does not say by which of its ways the memory came.
        Ok(number.zip(device).map(|(number, device)| Owner {
            device: device as u32 as i32,
            numbers: [number, 0],
            classic: None,
        }))
    }

    fn may_hold(context: &Context, address: Address) -> bool {
        let (location, mut flags) = (Location::of(context.device()), 0);
        context.api().range_access.is_some_and(|ask| {
            // SAFETY: `flags` is a valid place for the answer; any address may be asked for.
            let code = unsafe { ask(&raw mut flags, &raw const location, pointer_to(address)) };
            code == Code::SUCCESS
        })
    }

    fn descriptor(api: &Api<Self>, number: &mut i32) -> *mut c_void {
        if conv::takes_descriptor_by_value(api.version) {
            return ptr::without_provenance_mut(usize::try_from(*number).unwrap_or(usize::MAX));
        }
        (&raw mut *number).cast()
    }

    fn by_own_handle(
        core: &Arc<Core<Self>>,
        handle: &[u8; 64],
        bytes: u64,
    ) -> Result<Option<Arc<GpuMemory<Self>>>, HalError> {
        memory::by_own_handle(core, handle, bytes)
    }

    fn peer_at(_core: &Core<Self>, _address: Address, other: Device) -> Result<usize, HalError> {
        Ok(other as usize)
    }

    fn enable_peer(core: &Core<Self>, peer: usize) -> Option<Code> {
        // SAFETY: takes no pointers.
        core.context.api().peer_enable.map(|enable| unsafe { enable(peer as Device, 0) })
    }
}

/// The pointer for an address of a device.
pub(super) fn pointer_to(address: Address) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{library, process};
    use crate::rocm::library::symbol_names;

    #[test]
    fn without_a_driver_the_answer_names_the_places_and_the_cure() {
        library::tests::check::<RocmDriver>(VARIABLE, "hipInit", symbol_names());
        process::tests::check_missing(RocmDriver);
    }
}
