//! Memory for network cards: of the library below HIP's, whose names are found by way of HIP's, as it needs that library.
//!
//! Its statuses are not HIP's.

use super::{release, version};
use crate::abi::{Out, answer};
use crate::memory::device::file_of_allocation;
use crate::status::Status;
use std::os::fd::IntoRawFd;

const INVALID_ARGUMENT: i32 = 0x1001;
const INVALID_ALLOCATION: i32 = 0x1003;

/// Whether the kernel's driver makes such buffers.
const DMA_BUF_SUPPORTED: u32 = 0x204;

#[unsafe(no_mangle)]
pub extern "C" fn hsa_system_get_info(which: u32, out: Out<bool>) -> i32 {
    let code = answer("hsa_system_get_info", || {
        if which != DMA_BUF_SUPPORTED {
            return Err(Status::INVALID_VALUE);
        }
        out.set(version() >= release(6, 0))
    });
    if code == 0 { 0 } else { INVALID_ARGUMENT }
}

#[unsafe(no_mangle)]
pub extern "C" fn hsa_amd_portable_export_dmabuf(
    address: u64,
    bytes: usize,
    descriptor: Out<i32>,
    offset: Out<u64>,
) -> i32 {
    let code = answer("hsa_amd_portable_export_dmabuf", || {
        // Of allocations alone: the library has mapped memory in another table.
        let (file, start) = file_of_allocation(address, bytes)?;
        descriptor.set(file.into_raw_fd())?;
        offset.set(start)
    });
    if code == 0 { 0 } else { INVALID_ALLOCATION }
}
