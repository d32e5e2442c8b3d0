//! Passing memory on to network cards as buffers of the kernel.

use crate::error::HalError;
use crate::gpu::code::Code;
use crate::gpu::export::{Buffer, no_buffer, single};
use crate::gpu::memory::{GpuMemory, Kind};
use crate::gpu::vendor::{Context as _, unsupported};
use crate::rocm::RocmDriver;
use crate::rocm::driver::pointer_to;
use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};

/// The buffer that has the `bytes` bytes at `address` of `memory`.
pub(super) fn dma_buf(
    memory: &GpuMemory<RocmDriver>,
    address: u64,
    bytes: u64,
) -> Result<Buffer, HalError> {
    let core = &memory.core;
    // The descriptor of physical memory is such a buffer, of all of it; that of allocations is asked for by address.
    if let Kind::Mapped(mapping) = &memory.kind {
        let descriptor = single(&mapping.physicals)?.export_descriptor()?;
        return Ok((descriptor, address - memory.address));
    }
    let Some(export) = core.context.api().dma_buf else {
        return unsupported::<RocmDriver, _>("export memory for network cards");
    };
    let (mut descriptor, mut offset): (c_int, _) = (-1, 0);
    // SAFETY: both are valid places for the answers; the library looks the address up among what it has allocated.
    let code = unsafe {
        export(pointer_to(address), bytes as usize, &raw mut descriptor, &raw mut offset)
    };
    // Not an error of HIP's, which has no words for it.
    if code != Code::SUCCESS || descriptor < 0 {
        return Err(no_buffer(core, format_args!("the run-time library answers {:#x}", code.0)));
    }
    // SAFETY: the library made the descriptor for us alone.
    Ok((unsafe { OwnedFd::from_raw_fd(descriptor) }, offset))
}
