//! A GPU as a device.

use crate::caps::Caps;
use crate::device::Device;
use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::gpu::core::Core;
use crate::gpu::event::GpuEvent;
use crate::gpu::kernel::GpuKernel;
use crate::gpu::memory;
use crate::gpu::stream::GpuStream;
use crate::gpu::vendor::{Context, Vendor, unsupported};
use crate::gpu::{foreign, import, keep, peers, pinned};
use crate::kernel::{Kernel, KernelSource};
use crate::memory::{Memory, MemoryHandle};
use crate::multicast::Multicast;
use crate::stream::Stream;
use std::any::Any;
use std::ffi::c_void;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A GPU. [`crate::Driver::open`] gives the process's one for each number.
#[derive(Debug)]
pub(crate) struct GpuDevice<V: Vendor> {
    index: u32,
    core: Arc<Core<V>>,
}

impl<V: Vendor> GpuDevice<V> {
    pub(crate) fn new(index: u32, context: V::Context) -> Result<Self, HalError> {
        Ok(GpuDevice { index, core: Arc::new(Core::open(context)?) })
    }
}

// SAFETY: what the driver says of its streams and memory is passed on as it is.
unsafe impl<V: Vendor> Device for GpuDevice<V> {
    fn backend(&self) -> Backend {
        V::BACKEND
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

    fn allocate_for_all(&self, bytes: u64) -> Result<Arc<dyn Memory>, HalError> {
        let memory = memory::allocate(&self.core, bytes)?;
        peers::allow_all(&memory)?;
        Ok(memory)
    }

    fn pinned(&self, bytes: u64) -> Result<Arc<dyn Memory>, HalError> {
        Ok(pinned::pinned(&self.core, bytes)?)
    }

    fn pin(&self, memory: &Arc<dyn Memory>) -> Result<Arc<dyn Memory>, HalError> {
        Ok(pinned::register(&self.core, memory)?)
    }

    fn import(&self, handle: &MemoryHandle) -> Result<Arc<dyn Memory>, HalError> {
        Ok(import::import(&self.core, slice::from_ref(handle))?)
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
        Ok(Arc::new(GpuStream::<V>::new(&self.core.context)?))
    }

    fn urgent_stream(&self) -> Result<Arc<dyn Stream>, HalError> {
        Ok(Arc::new(GpuStream::<V>::urgent(&self.core.context)?))
    }

    fn enable_peer(&self, index: u32) -> Result<(), HalError> {
        let other = V::process().open(index)?;
        peers::enable_all(&self.core, &other.core)
    }

    fn make_current(&self) -> Result<(), HalError> {
        // Nothing ends it but who makes another one current.
        std::mem::forget(self.core.context.enter()?);
        Ok(())
    }

    unsafe fn adopt_stream(&self, raw: *mut c_void) -> Result<Arc<dyn Stream>, HalError> {
        // SAFETY: the caller vouches for the stream, as this method asks.
        Ok(Arc::new(unsafe { GpuStream::<V>::adopt(&self.core.context, raw.cast()) }?))
    }

    fn event(&self) -> Result<Arc<dyn Event>, HalError> {
        Ok(Arc::new(GpuEvent::<V>::new(&self.core.context)?))
    }

    fn take_abandoned(&self) -> Vec<Arc<dyn Any + Send + Sync>> {
        keep::take((V::BACKEND, self.core.context.device()))
    }

    fn compile(&self, text: &str, options: &[&str]) -> Result<Vec<u8>, HalError> {
        let version = self.core.context.api().version;
        V::compile(Some(version), text, &self.core.traits.architecture, options)
    }

    fn load(&self, source: KernelSource<'_>) -> Result<Arc<dyn Kernel>, HalError> {
        Ok(Arc::new(GpuKernel::load(&self.core, source)?))
    }

    fn multicast(&self, members: u32, bytes: u64) -> Result<Arc<dyn Multicast>, HalError> {
        V::multicast(&self.core, members, bytes)
    }

    fn import_multicast(&self, handle: &MemoryHandle) -> Result<Arc<dyn Multicast>, HalError> {
        V::import_multicast(&self.core, handle)
    }

    unsafe fn read_process(
        &self,
        _process: u32,
        _source: u64,
        _destination: *mut u8,
        _bytes: u64,
    ) -> Result<(), HalError> {
        unsupported::<V, _>("read another process's memory")
    }

    unsafe fn write_process(
        &self,
        _process: u32,
        _destination: u64,
        _source: *const u8,
        _bytes: u64,
    ) -> Result<(), HalError> {
        unsupported::<V, _>("write another process's memory")
    }
}
