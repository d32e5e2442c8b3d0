//! What one vendor's driver has that the other's has not, or has in another way: all that a backend says of itself.

use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::calls::{
    Address, AllocationProperties, Calls, Device, RawFunction, RawModule, RawStream, Virtual,
};
use crate::gpu::code::Code;
use crate::gpu::core::{Core, Traits};
use crate::gpu::export::Buffer;
use crate::gpu::library::{Api, Words};
use crate::gpu::memory::GpuMemory;
use crate::gpu::process::Process;
use crate::gpu::search::Search;
use crate::gpu::vmm::Physical;
use crate::memory::MemoryHandle;
use crate::multicast::Multicast;
use crate::uuid::DeviceUuid;
use libloading::os::unix::Library;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A vendor of GPUs.
pub(crate) trait Vendor: Copy + fmt::Debug + Send + Sync + Sized + 'static {
    /// The backend.
    const BACKEND: Backend;
    /// What is said to people.
    const WORDS: Words;
    /// Codes by which the driver refuses to import or map what a peer sent.
    const REFUSALS: &'static [Code];
    /// Flags of pinned memory that all devices reach, while kernels run.
    const PINNED: u32;
    /// The same of memory that is registered.
    const REGISTERED: u32;
    /// The attribute of a link that says whether atomic operations over it are single steps, and the one that says how
    /// fast it is, 0 the fastest.
    const LINK: (u32, u32);
    /// Whether memory is mapped without a current context, since the calls for it name their device themselves. Making one
    /// current may wait for a thread that loads code, and that thread for kernels which wait for the memory.
    const MAPS_WITHOUT_CONTEXT: bool;
    /// Whether asking the driver about an event ends a recording that has begun on the event's stream since the event was recorded.
    const EVENTS_END_RECORDINGS: bool;

    /// The functions of the driver.
    type Symbols: Deref<Target = Calls> + Send + Sync;
    /// What makes a device current.
    type Context: Context<Self>;
    /// What is asked of a device when it is opened.
    type Traits: Deref<Target = Traits> + fmt::Debug + Send + Sync;
    /// Kinds of memory that only this vendor has, with what each owns.
    type Own: fmt::Debug + Send + Sync;

    /// What there is one of in a process.
    fn process() -> &'static Process<Self>;

    /// Where the driver library may be.
    fn search() -> Search;

    /// Its functions, or the name of the first that is required and missing.
    fn symbols(library: &Library) -> Result<Self::Symbols, &'static str>;

    /// The name and the text of a code.
    fn describe(symbols: &Self::Symbols, code: Code) -> (Option<String>, Option<String>);

    /// What helps where the driver cannot be initialised.
    fn cure_of_initialisation(code: Code) -> &'static str;

    /// The driver's handle of device `index`, which is below the count.
    fn device(api: &'static Api<Self>, index: u32) -> Result<Device, HalError>;

    /// What tells a device from all others; `None` where the driver does not tell.
    fn uuid(api: &Api<Self>, device: Device) -> Option<DeviceUuid>;

    /// The driver's handle of the device that is current on the calling thread, if the application has made one so.
    fn current(api: &'static Api<Self>) -> Result<Option<Device>, HalError>;

    /// What the device has.
    fn probe(context: &Self::Context) -> Result<Self::Traits, HalError>;

    /// What tells a stream of the application from others: a number of its context, and one of the stream. Refuses one
    /// that is none of the context's. What is current is as the application has it.
    ///
    /// # Safety
    ///
    /// `raw` must be a stream of the driver, or one of its numbers for a default stream.
    unsafe fn number_of_stream(
        context: &Self::Context,
        raw: RawStream,
    ) -> Result<(usize, u64), HalError>;

    /// Sets `bytes` bytes at `address` to zero, in a stream.
    ///
    /// # Safety
    ///
    /// The range must be mapped, and nothing else may touch it until that is done.
    unsafe fn clear(api: &Api<Self>, address: Address, bytes: usize, stream: RawStream) -> Code;

    /// Copies in a stream.
    ///
    /// # Safety
    ///
    /// As for [`crate::Stream::copy`].
    unsafe fn copy(
        api: &Api<Self>,
        to: *mut u8,
        from: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> Code;

    /// Machine code for a source, of the compiler that goes with a driver of this version, if there is one.
    fn compile(
        driver_version: Option<u32>,
        source: &str,
        architecture: &str,
        options: &[&str],
    ) -> Result<Vec<u8>, HalError>;

    /// Loads an image. The context must be current.
    fn load_module(api: &Api<Self>, image: &[u8]) -> Result<RawModule, HalError>;

    /// Lets blocks of a function have so much shared memory, where they have less without asking
    /// ([`Traits::shared_bytes`]).
    fn allow_shared(_api: &Api<Self>, _function: RawFunction, _bytes: u32) -> Code {
        Code::SUCCESS
    }

    /// What physical memory is asked for, of those that the device may grant, the best first.
    fn wanted(core: &Core<Self>) -> Vec<AllocationProperties>;

    /// Memory of `bytes` bytes (`length` in whole units), not cleared. The context must be current.
    fn allocate(
        core: &Arc<Core<Self>>,
        bytes: u64,
        length: usize,
    ) -> Result<Arc<GpuMemory<Self>>, HalError>;

    /// The handle of memory of a kind of its own. The context must be current.
    fn export_own(memory: &GpuMemory<Self>, own: &Self::Own) -> Result<MemoryHandle, HalError>;

    /// A fabric handle of memory.
    fn export_fabric(_memory: &GpuMemory<Self>) -> Result<MemoryHandle, HalError> {
        unsupported::<Self, _>("export memory as a fabric handle")
    }

    /// The buffer of the kernel that has the `bytes` bytes at `address` of memory, whole pages, for network cards; asked for where
    /// the device has [such](crate::Caps::dma_buf). The context must be current.
    fn dma_buf(memory: &GpuMemory<Self>, address: Address, bytes: u64) -> Result<Buffer, HalError>;

    /// What the driver knows of an address; `None` where it is not on any device. The context must be current.
    fn owner(core: &Core<Self>, address: Address) -> Result<Option<Owner>, HalError>;

    /// Whether the call for the physical memory at an address may be made: some releases follow a null pointer for
    /// other memory.
    fn may_hold(_context: &Self::Context, _address: Address) -> bool {
        true
    }

    /// Whether that call takes a count that is to be given back.
    const COUNTS_RETAINED: bool;

    /// The driver's "pointer" to a descriptor, given its number and a place with it.
    fn descriptor(api: &Api<Self>, number: &mut i32) -> *mut std::ffi::c_void;

    /// What the driver says of physical memory, where it tells.
    fn properties(_physical: &Physical<Self>) -> Option<AllocationProperties> {
        None
    }

    /// Physical memory by a fabric handle, where there are such.
    fn import_fabric(
        _context: &Arc<Self::Context>,
        _calls: Virtual,
        _handle: &[u8; 64],
    ) -> Option<Result<Physical<Self>, Code>> {
        None
    }

    /// A fabric handle of physical memory that can have no other, given what the driver says of it.
    fn fabric_only(
        _physical: &Physical<Self>,
        _properties: &AllocationProperties,
    ) -> Option<Result<[u8; 64], HalError>> {
        None
    }

    /// Memory of this process by an IPC handle that it made itself, unless the memory is the application's.
    fn by_own_handle(
        _core: &Arc<Core<Self>>,
        _handle: &[u8; 64],
        _bytes: u64,
    ) -> Result<Option<Arc<GpuMemory<Self>>>, HalError> {
        Ok(None)
    }

    /// What the driver knows the owner of the memory at `address` on `other` by, as [`Context::as_peer`].
    fn peer_at(core: &Core<Self>, address: Address, other: Device) -> Result<usize, HalError>;

    /// Lets kernels of the device, which must be current, use the memory of a [peer](Context::as_peer); `None` where the
    /// driver has no such call.
    fn enable_peer(core: &Core<Self>, peer: usize) -> Option<Code>;

    /// As [`crate::Device::multicast`].
    fn multicast(
        _core: &Arc<Core<Self>>,
        _members: u32,
        _bytes: u64,
    ) -> Result<Arc<dyn Multicast>, HalError> {
        unsupported::<Self, _>("make a multicast group")
    }

    /// As [`crate::Device::import_multicast`].
    fn import_multicast(
        _core: &Arc<Core<Self>>,
        _handle: &MemoryHandle,
    ) -> Result<Arc<dyn Multicast>, HalError> {
        unsupported::<Self, _>("join a multicast group")
    }
}

/// What makes a device current for the length of a call.
pub(crate) trait Context<V: Vendor>: fmt::Debug + Send + Sync + Sized {
    /// Current on this thread until it is dropped.
    type Entered<'a>
    where
        Self: 'a;

    /// The context in which `device` is used.
    fn open(api: &'static Api<V>, device: Device) -> Result<Self, HalError>;

    /// The driver.
    fn api(&self) -> &'static Api<V>;

    /// The device.
    fn device(&self) -> Device;

    /// What the driver knows it by where other devices are let use its memory.
    fn as_peer(&self) -> usize;

    /// Makes it the calling thread's current one until the result is dropped.
    fn enter(&self) -> Result<Self::Entered<'_>, HalError>;
}

/// What no other allocation has: the driver's number of it, and of the physical memory that is mapped in it, where the driver
/// numbers that by itself.
pub(crate) type Numbers = [u64; 2];

/// Whose memory is at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    /// Its device.
    pub(crate) device: Device,
    /// Which allocation it is.
    pub(crate) numbers: Numbers,
    /// Whether IPC handles can be made of it; `None` where that is found out by trying.
    pub(crate) classic: Option<bool>,
}

/// That the backend has no such operation.
pub(crate) fn unsupported<V: Vendor, T>(op: &'static str) -> Result<T, HalError> {
    Err(HalError::Unsupported { op, backend: V::BACKEND })
}
