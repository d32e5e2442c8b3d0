//! A GPU as a device.

use crate::caps::Caps;
use crate::device::Device;
use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::kernel::{Kernel, KernelSource};
use crate::memory::{Memory, MemoryHandle};
use crate::multicast::Multicast;
use crate::ranges::Ranges;
use crate::rocm::caps::Traits;
use crate::rocm::context::Context;
use crate::rocm::event::RocmEvent;
use crate::rocm::kernel::RocmKernel;
use crate::rocm::memory::{self, RocmMemory};
use crate::rocm::stream::RocmStream;
use crate::rocm::{caps, foreign, import};
use crate::stream::Stream;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};

/// A GPU. [`crate::Driver::open`] gives the process's one for each number.
#[derive(Debug)]
pub struct RocmDevice {
    index: u32,
    core: Arc<Core>,
}

/// What a device and its memory share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) name: String,
    pub(super) traits: Traits,
    /// What was allocated and imported, by address.
    pub(super) ranges: Ranges<RocmMemory>,
    /// Allocations of the application that were asked for, by the driver's number, which is never used again.
    pub(super) foreign: Mutex<HashMap<u64, Weak<RocmMemory>>>,
    /// Memory opened by IPC handles: opening one twice gives the same address.
    pub(super) opened: Mutex<HashMap<[u8; 64], Weak<RocmMemory>>>,
    /// Where memory is cleared.
    pub(super) upkeep: RocmStream,
    pub(super) context: Arc<Context>,
}

impl RocmDevice {
    pub(super) fn new(index: u32, context: Context) -> Result<Self, HalError> {
        let context = Arc::new(context);
        let (api, device) = (context.api(), context.device());
        let entered = context.enter()?;
        let traits = caps::probe(api, device)?;
        drop(entered);
        let core = Arc::new(Core {
            name: caps::name(api, device)?,
            traits,
            ranges: Ranges::default(),
            foreign: Mutex::default(),
            opened: Mutex::default(),
            upkeep: RocmStream::new(&context)?,
            context,
        });
        Ok(RocmDevice { index, core })
    }

    /// The architecture that kernels are compiled for, as the compiler names it, e.g. `gfx90a:sramecc+:xnack-`.
    pub fn architecture(&self) -> &str {
        &self.core.traits.architecture
    }

    fn unsupported<T>(&self, op: &'static str) -> Result<T, HalError> {
        Err(HalError::Unsupported { op, backend: Backend::Rocm })
    }
}

impl Device for RocmDevice {
    fn backend(&self) -> Backend {
        Backend::Rocm
    }

    fn index(&self) -> u32 {
        self.index
    }

    fn name(&self) -> &str {
        &self.core.name
    }

    fn caps(&self) -> &Caps {
        &self.core.traits.caps
    }

    fn allocate(&self, bytes: u64) -> Result<Arc<dyn Memory>, HalError> {
        Ok(memory::allocate(&self.core, bytes)?)
    }

    fn pinned(&self, bytes: u64) -> Result<Arc<dyn Memory>, HalError> {
        Ok(memory::pinned(&self.core, bytes)?)
    }

    fn import(&self, handle: &MemoryHandle) -> Result<Arc<dyn Memory>, HalError> {
        Ok(import::import(&self.core, handle)?)
    }

    fn find(&self, address: *const u8, bytes: u64) -> Option<(Arc<dyn Memory>, u64)> {
        self.locate(address, bytes).ok()
    }

    fn locate(&self, address: *const u8, bytes: u64) -> Result<(Arc<dyn Memory>, u64), HalError> {
        if let Some((memory, offset)) = self.core.ranges.find(address.addr(), bytes) {
            return Ok((memory, offset));
        }
        let (memory, offset) = foreign::locate(&self.core, address.addr() as u64, bytes)?;
        Ok((memory, offset))
    }

    fn epoch_cell(&self) -> &AtomicU64 {
        self.core.ranges.epoch()
    }

    fn stream(&self) -> Result<Arc<dyn Stream>, HalError> {
        Ok(Arc::new(RocmStream::new(&self.core.context)?))
    }

    unsafe fn adopt_stream(&self, raw: *mut c_void) -> Result<Arc<dyn Stream>, HalError> {
        // SAFETY: the caller vouches for the stream, as this method asks.
        Ok(Arc::new(unsafe { RocmStream::adopt(&self.core.context, raw.cast()) }?))
    }

    fn event(&self) -> Result<Arc<dyn Event>, HalError> {
        Ok(Arc::new(RocmEvent::new(&self.core.context)?))
    }

    fn load(&self, source: KernelSource<'_>) -> Result<Arc<dyn Kernel>, HalError> {
        Ok(Arc::new(RocmKernel::load(&self.core, source)?))
    }

    fn multicast(&self, _members: u32, _bytes: u64) -> Result<Arc<dyn Multicast>, HalError> {
        self.unsupported("make a multicast group")
    }

    fn import_multicast(&self, _handle: &MemoryHandle) -> Result<Arc<dyn Multicast>, HalError> {
        self.unsupported("join a multicast group")
    }

    unsafe fn read_process(
        &self,
        _process: u32,
        _source: u64,
        _destination: *mut u8,
        _bytes: u64,
    ) -> Result<(), HalError> {
        self.unsupported("read another process's memory")
    }

    unsafe fn write_process(
        &self,
        _process: u32,
        _destination: u64,
        _source: *const u8,
        _bytes: u64,
    ) -> Result<(), HalError> {
        self.unsupported("write another process's memory")
    }
}
