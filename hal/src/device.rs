//! Devices: what owns memory and runs work.

use crate::caps::Caps;
use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::kernel::{Kernel, KernelSource};
use crate::memory::{Memory, MemoryHandle};
use crate::multicast::Multicast;
use crate::stream::Stream;
use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open device.
///
/// Memory, streams and events keep what they need alive; they may outlive the `Arc<dyn Device>` they came from.
///
/// # Safety
/// Who implements it vouches that its streams and memory do what their traits say, and [`find`](Self::find) names memory that holds
/// what was asked for: callers pass addresses on without looking.
pub unsafe trait Device: Send + Sync + fmt::Debug {
    /// The backend.
    fn backend(&self) -> Backend;

    /// The number it was opened by.
    fn index(&self) -> u32;

    /// The name, for people.
    fn name(&self) -> &str;

    /// What the device has wired.
    fn caps(&self) -> &Caps;

    /// Allocates `bytes` of zeroed memory that can be exported. Zero bytes are refused.
    fn allocate(&self, bytes: u64) -> Result<Arc<dyn Memory>, HalError>;

    /// As [`allocate`](Self::allocate); kernels and copies of every other device of this process that reaches this one's memory
    /// may use it at its address, too, whoever's they are. For code of others that expects that of an allocator.
    fn allocate_for_all(&self, bytes: u64) -> Result<Arc<dyn Memory>, HalError> {
        self.allocate(bytes)
    }

    /// Allocates `bytes` of zeroed memory that the CPU and kernels of this device reach at the same address while
    /// kernels run: for words that one side polls. Slow for a GPU. It cannot always be exported. Zero bytes are
    /// refused.
    fn pinned(&self, bytes: u64) -> Result<Arc<dyn Memory>, HalError>;

    /// Pins memory of the host's device: while the result lives, kernels and copies of this device reach it at its address, as
    /// [`pinned`](Self::pinned) memory. The result is exported as the host's memory is.
    ///
    /// # Errors
    /// [`Invalid`](HalError::Invalid) for memory of another backend, [`Unsupported`](HalError::Unsupported) where the driver cannot;
    /// the driver's own for memory that is pinned already.
    fn pin(&self, memory: &Arc<dyn Memory>) -> Result<Arc<dyn Memory>, HalError>;

    /// Maps memory of a peer. Memory of this process is where it is already, as long as somebody has it; on a GPU also for other
    /// devices that reach it, except chunks of an application's allocator, which are mapped a second time. The handle may come
    /// from a process that is not trusted: one whose memory is shorter than it says, or could become so, is refused.
    fn import(&self, handle: &MemoryHandle) -> Result<Arc<dyn Memory>, HalError>;

    /// Maps memory whose peer exported it by [`crate::Memory::export_parts`]: one range of addresses, in which the parts
    /// follow each other in the order of `handles`. Otherwise as [`import`](Self::import).
    fn import_parts(&self, handles: &[MemoryHandle]) -> Result<Arc<dyn Memory>, HalError> {
        match handles {
            [one] => self.import(one),
            [] => Err(HalError::Invalid {
                what: "import memory",
                saw: "no handle".to_owned(),
                allowed: "1 or more".to_owned(),
                cure: "pass all handles that the peer exported",
            }),
            _ => {
                let op = "import memory of several parts";
                Err(HalError::Unsupported { op, backend: self.backend() })
            }
        }
    }

    /// The live memory of this device, allocated or imported from another process, that holds the `bytes` bytes at
    /// `address`, and the offset of `address` in it. `None` for a range that no single memory holds. Cheap, but not free: see
    /// [`epoch`](Self::epoch).
    ///
    /// On a GPU, memory of the device that the application allocated itself is found, too, and [borrowed](Memory::is_borrowed):
    /// its whole allocation, with the same number each time while somebody holds it. If an allocator put physical memory together
    /// at addresses that follow each other, it is all pieces that the range touches ([`crate::Memory::export_parts`]). Other
    /// backends find only memory that they allocated or imported.
    fn find(&self, address: *const u8, bytes: u64) -> Option<(Arc<dyn Memory>, u64)>;

    /// As [`find`](Self::find), with the reason where nothing is found.
    fn locate(&self, address: *const u8, bytes: u64) -> Result<(Arc<dyn Memory>, u64), HalError> {
        self.find(address, bytes).ok_or_else(|| HalError::Invalid {
            what: "find memory of a device",
            saw: format!("{bytes} bytes at {address:?}"),
            allowed: format!("a range within memory that {} allocated or imported", self.name()),
            cure: "allocate the buffer by the device",
        })
    }

    /// Changes whenever memory of this device comes or goes; when it goes, before it is unmapped. An answer of
    /// [`find`](Self::find) may be kept (as a `Weak`, or it would keep the memory) while the number read *before* asking is still
    /// the current one. Not so an answer with [borrowed](Memory::is_borrowed) memory, which the application frees without a word.
    fn epoch(&self) -> u64 {
        self.epoch_cell().load(Ordering::Acquire)
    }

    /// Where [`epoch`](Self::epoch) is counted, for callers that look at it in every launch. Only the device
    /// writes it.
    fn epoch_cell(&self) -> &AtomicU64;

    /// Makes a stream.
    fn stream(&self) -> Result<Arc<dyn Stream>, HalError>;

    /// A stream of the application, by the vendor's handle (`CUstream`, `cudaStream_t`). Dropping the result leaves
    /// the stream as it is. Backends without foreign streams answer [`HalError::Unsupported`].
    ///
    /// # Safety
    ///
    /// `raw` must be a live stream of the backend's driver, or one of the driver's numbers for default streams, and
    /// outlive the result.
    unsafe fn adopt_stream(&self, raw: *mut c_void) -> Result<Arc<dyn Stream>, HalError>;

    /// Makes a stream of the highest priority that there is, so that its work does not stand behind that of others in a queue of
    /// the hardware. For copies beside kernels that wait for them.
    fn urgent_stream(&self) -> Result<Arc<dyn Stream>, HalError> {
        self.stream()
    }

    /// Lets kernels of this device use all memory of the device with the number `index`, what it has now and later. Importing
    /// such memory in this process then makes no driver call that may wait for kernels; the first call of this for a device may
    /// wait for them. A device out of reach is [`HalError::NotShareable`].
    fn enable_peer(&self, index: u32) -> Result<(), HalError> {
        let _ = index;
        Ok(())
    }

    /// Makes the device current on the calling thread and leaves it so, as `cudaSetDevice` and `hipSetDevice` do: for code of
    /// others that the thread runs. Calls of this layer do not need it.
    fn make_current(&self) -> Result<(), HalError> {
        Ok(())
    }

    /// Makes an event.
    fn event(&self) -> Result<Arc<dyn Event>, HalError>;

    /// Takes the objects that graphs recorded on this device have kept ([`crate::Stream::keep`]), once these graphs are gone.
    /// Dropping the objects unmaps and unloads, which may wait for kernels.
    fn take_abandoned(&self) -> Vec<Arc<dyn Any + Send + Sync>> {
        Vec::new()
    }

    /// Compiles source to what [`load`](Self::load) takes as [`KernelCode::Binary`](crate::KernelCode::Binary), for this device.
    /// Asks no driver anything that waits for kernels, as loading may. Needs [`Caps::kernels`], and a run-time compiler.
    fn compile(&self, text: &str, options: &[&str]) -> Result<Vec<u8>, HalError> {
        let _ = (text, options);
        Err(HalError::Unsupported { op: "compile a kernel", backend: self.backend() })
    }

    /// Compiles (where it is source) and loads a kernel. Needs [`Caps::kernels`].
    fn load(&self, source: KernelSource<'_>) -> Result<Arc<dyn Kernel>, HalError>;

    /// Makes a multicast group of `members` devices that bind `bytes` each, this one the first. Needs
    /// [`Caps::multicast`].
    fn multicast(&self, members: u32, bytes: u64) -> Result<Arc<dyn Multicast>, HalError>;

    /// Joins a multicast group that another device made and exported. Needs [`Caps::multicast`].
    fn import_multicast(&self, handle: &MemoryHandle) -> Result<Arc<dyn Multicast>, HalError>;

    /// Reads `bytes` at the address `source` of process `process` into `destination`. Needs
    /// [`Caps::process_access`], and the system's permission for that process: [`HalError::System`] says so where
    /// it is missing. On an error, part of the bytes may have arrived.
    ///
    /// # Safety
    ///
    /// `destination` must be mapped and writable for `bytes`, and nothing else may touch it during the call.
    unsafe fn read_process(
        &self,
        process: u32,
        source: u64,
        destination: *mut u8,
        bytes: u64,
    ) -> Result<(), HalError>;

    /// Writes `bytes` at `source` to the address `destination` of process `process`; otherwise as
    /// [`read_process`](Self::read_process).
    ///
    /// # Safety
    ///
    /// `source` must be mapped and readable for `bytes`, and nothing may write it during the call; the other
    /// process must have given `destination` for writing, as anything of it can be overwritten.
    unsafe fn write_process(
        &self,
        process: u32,
        destination: u64,
        source: *const u8,
        bytes: u64,
    ) -> Result<(), HalError>;
}
