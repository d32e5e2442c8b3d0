//! A GPU as a device.

use crate::caps::Caps;
use crate::cuda::caps::Traits;
use crate::cuda::context::Context;
use crate::cuda::event::CudaEvent;
use crate::cuda::import;
use crate::cuda::kernel::CudaKernel;
use crate::cuda::memory::{self, CudaMemory};
use crate::cuda::multicast::CudaMulticast;
use crate::cuda::stream::CudaStream;
use crate::cuda::{caps, foreign};
use crate::device::Device;
use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::kernel::{Kernel, KernelSource};
use crate::memory::{Memory, MemoryHandle};
use crate::multicast::Multicast;
use crate::ranges::Ranges;
use crate::stream::Stream;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};

/// A GPU. [`crate::Driver::open`] gives the process's one for each number.
#[derive(Debug)]
pub struct CudaDevice {
    index: u32,
    core: Arc<Core>,
}

/// What a device and its memory share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) name: String,
    pub(super) traits: Traits,
    /// What was allocated and imported, by address.
    pub(super) ranges: Ranges<CudaMemory>,
    /// Allocations of the application that were asked for, by the driver's numbers of their pieces, which are never used
    /// again.
    pub(super) foreign: Mutex<HashMap<Vec<u64>, Weak<CudaMemory>>>,
    /// Memory opened by classic IPC handles: opening one twice gives the same address.
    pub(super) opened: Mutex<HashMap<[u8; 64], Weak<CudaMemory>>>,
    /// Where memory is cleared. Before the context, which it needs.
    pub(super) upkeep: CudaStream,
    pub(super) context: Arc<Context>,
}

impl CudaDevice {
    pub(super) fn new(index: u32, context: Context) -> Result<Self, HalError> {
        let context = Arc::new(context);
        let (api, device) = (context.api(), context.device());
        let traits = caps::probe(api, device)?;
        let core = Arc::new(Core {
            name: caps::name(api, device)?,
            traits,
            ranges: Ranges::default(),
            foreign: Mutex::default(),
            opened: Mutex::default(),
            upkeep: CudaStream::new(&context)?,
            context,
        });
        Ok(CudaDevice { index, core })
    }

    /// The architecture that kernels are compiled for, as the compiler names it, e.g. `sm_90`.
    pub fn architecture(&self) -> &str {
        &self.core.traits.architecture
    }

    fn unsupported<T>(&self, op: &'static str) -> Result<T, HalError> {
        Err(HalError::Unsupported { op, backend: Backend::Cuda })
    }
}

impl Device for CudaDevice {
    fn backend(&self) -> Backend {
        Backend::Cuda
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
        Ok(import::import_one(&self.core, handle)?)
    }

    fn import_parts(&self, handles: &[MemoryHandle]) -> Result<Arc<dyn Memory>, HalError> {
        Ok(import::import(&self.core, handles)?)
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
        Ok(Arc::new(CudaStream::new(&self.core.context)?))
    }

    unsafe fn adopt_stream(&self, raw: *mut c_void) -> Result<Arc<dyn Stream>, HalError> {
        // SAFETY: the caller vouches for the stream, as this method asks.
        Ok(Arc::new(unsafe { CudaStream::adopt(&self.core.context, raw.cast()) }?))
    }

    fn event(&self) -> Result<Arc<dyn Event>, HalError> {
        Ok(Arc::new(CudaEvent::new(&self.core.context)?))
    }

    fn load(&self, source: KernelSource<'_>) -> Result<Arc<dyn Kernel>, HalError> {
        Ok(Arc::new(CudaKernel::load(&self.core, source)?))
    }

    fn multicast(&self, members: u32, bytes: u64) -> Result<Arc<dyn Multicast>, HalError> {
        if !self.core.traits.caps.multicast {
            return self.unsupported("make a multicast group");
        }
        Ok(Arc::new(CudaMulticast::new(&self.core, members, bytes)?))
    }

    fn import_multicast(&self, handle: &MemoryHandle) -> Result<Arc<dyn Multicast>, HalError> {
        if !self.core.traits.caps.multicast {
            return self.unsupported("join a multicast group");
        }
        Ok(Arc::new(CudaMulticast::import(&self.core, handle)?))
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
