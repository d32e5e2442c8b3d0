//! Passing memory on to other machines of an NVLink domain as fabric handles, and to network cards as buffers of the
//! kernel.

use crate::cuda::context::Context;
use crate::cuda::{CudaDriver, conv};
use crate::error::HalError;
use crate::gpu::calls::Virtual;
use crate::gpu::code::Code;
use crate::gpu::export::{Buffer, no_buffer, single};
use crate::gpu::memory::{GpuMemory, Kind};
use crate::gpu::recording::Unrecorded;
use crate::gpu::vendor::{Context as _, Vendor, unsupported};
use crate::gpu::vmm::{self, Physical};
use crate::memory::MemoryHandle;
use cudarc::driver::sys;
use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

/// Memory of this vendor's GPUs.
type CudaMemory = GpuMemory<CudaDriver>;

/// A call of virtual memory management.
fn call(context: &Context, made: impl FnMut() -> Code) -> Result<(), Code> {
    vmm::call::<CudaDriver>(context, made)
}

/// A fabric handle for `memory`.
pub(super) fn fabric(memory: &CudaMemory) -> Result<MemoryHandle, HalError> {
    let backend = CudaDriver::BACKEND;
    match &memory.kind {
        Kind::Mapped(mapping) if memory.core.traits.sharing.fabric => {
            let physical = single(&mapping.physicals)?;
            let _unrecorded = Unrecorded::new(memory.core.context.api());
            let handle = fabric_handle(physical)?;
            Ok(MemoryHandle::Fabric { backend, handle, bytes: memory.bytes })
        }
        _ => unsupported::<CudaDriver, _>("export memory as a fabric handle"),
    }
}

/// A fabric handle for physical memory.
pub(super) fn fabric_handle(physical: &Physical<CudaDriver>) -> Result<[u8; 64], HalError> {
    let mut handle = sys::CUmemFabricHandle { data: [0; 64] };
    // SAFETY: for this type of handle the driver writes this structure, for which there is a valid place.
    let exported = call(&physical.context, || unsafe {
        (physical.calls.export)((&raw mut handle).cast(), physical.raw, conv::FABRIC, 0)
    });
    let what = "export CUDA memory as a fabric handle";
    exported.map_err(|code| physical.context.api().error(what, code))?;
    Ok(handle.data)
}

/// What a fabric handle stands for.
pub(super) fn import_fabric(
    context: &Arc<Context>,
    calls: Virtual,
    handle: &[u8; 64],
) -> Result<Physical<CudaDriver>, Code> {
    let mut raw = 0;
    let mut handle = sys::CUmemFabricHandle { data: *handle };
    // SAFETY: both pointers are valid for the call; the driver checks the handle.
    call(context, || unsafe {
        (calls.import)(&raw mut raw, (&raw mut handle).cast(), conv::FABRIC)
    })?;
    Ok(Physical::own(context, calls, raw))
}

/// Whether a driver answers `code` where memory cannot be passed on.
fn refuses(code: i64) -> bool {
    [Code::INVALID_VALUE, Code::INVALID_HANDLE, Code::NOT_SUPPORTED, Code::NOT_PERMITTED]
        .iter()
        .any(|refusal| i64::from(refusal.0) == code)
}

/// The buffer that has the `bytes` bytes at `address` of `memory`.
pub(super) fn dma_buf(memory: &CudaMemory, address: u64, bytes: u64) -> Result<Buffer, HalError> {
    let core = &memory.core;
    let Some(export) = core.context.api().range_handle else {
        return unsupported::<CudaDriver, _>("export memory for network cards");
    };
    if let Kind::Own(own) = &memory.kind {
        CudaDriver::export_own(memory, own)?;
    }
    let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    let mut descriptor: c_int = -1;
    // SAFETY: for this type of handle the driver writes an int, for which there is a valid place.
    let code = unsafe { export((&raw mut descriptor).cast(), address, bytes as usize, kind, 0) };
    let what = "export CUDA memory for network cards";
    if refuses(i64::from(code.0)) {
        return Err(no_buffer(core, core.context.api().error(what, code)));
    }
    core.context.api().check(what, code)?;
    // SAFETY: the driver made the descriptor for us alone.
    Ok((unsafe { OwnedFd::from_raw_fd(descriptor) }, 0))
}
