//! Memory as HIP gives it: of devices, pinned, of other processes; and what it says of an address.

use super::{cu, release, version};
use crate::abi::Out;
use crate::copy::{cuMemcpy, cuMemcpyAsync, cuMemsetD8Async};
use crate::memory::attributes::cuPointerGetAttribute;
use crate::memory::device::{cuMemAlloc_v2, cuMemFree_v2, cuMemGetAddressRange_v2};
use crate::memory::host::{
    cuMemFreeHost, cuMemHostAlloc, cuMemHostGetDevicePointer_v2, cuMemHostRegister_v2,
    cuMemHostUnregister,
};
use crate::memory::ipc::{self, Handle, cuIpcCloseMemHandle, cuIpcGetMemHandle};
use crate::status::Status;

const UNCACHED: u32 = 3;

/// Asks for an attribute of an address, as the number that CUDA's call writes.
fn attribute(number: u32, address: u64) -> Result<u64, Status> {
    let mut value = 0_u64;
    cu(cuPointerGetAttribute(Out::to(&mut value).cast(), number, address))?;
    Ok(value)
}

hip_calls! {
    fn hipMalloc(out: Out<u64>, bytes: usize) {
        cu(cuMemAlloc_v2(out, bytes))
    }

    fn hipExtMallocWithFlags(out: Out<u64>, bytes: usize, flags: u32) {
        // Fine-grained, and for signals; without caches only in newer releases.
        let last = if version() >= release(6, 0) { UNCACHED } else { UNCACHED - 1 };
        if flags > last {
            return Err(Status::INVALID_VALUE);
        }
        cu(cuMemAlloc_v2(out, bytes))
    }

    fn hipFree(address: u64) {
        cu(cuMemFree_v2(address))
    }

    fn hipMemsetAsync(to: u64, value: i32, bytes: usize, stream: u64) {
        cu(cuMemsetD8Async(to, value as u8, bytes, stream))
    }

    fn hipMemcpy(to: u64, from: u64, bytes: usize, _kind: u32) {
        cu(cuMemcpy(to, from, bytes))
    }

    fn hipMemcpyAsync(to: u64, from: u64, bytes: usize, _kind: u32, stream: u64) {
        cu(cuMemcpyAsync(to, from, bytes, stream))
    }

    fn hipHostMalloc(out: Out<u64>, bytes: usize, flags: u32) {
        // Beside CUDA's, flags for the coherence of caches, which there are none of here.
        cu(cuMemHostAlloc(out, bytes, flags & 7))
    }

    fn hipHostFree(address: u64) {
        cu(cuMemFreeHost(address))
    }

    fn hipHostRegister(address: u64, bytes: usize, flags: u32) {
        cu(cuMemHostRegister_v2(address, bytes, flags))
    }

    fn hipHostUnregister(address: u64) {
        cu(cuMemHostUnregister(address))
    }

    fn hipHostGetDevicePointer(out: Out<u64>, address: u64, flags: u32) {
        cu(cuMemHostGetDevicePointer_v2(out, address, flags))
    }

    fn hipPointerGetAttribute(out: Out<u8>, number: u32, address: u64) {
        match number {
            // Host and device, which had other numbers once.
            2 => {
                let kind = attribute(number, address)? as u32;
                let first = u32::from(version() < release(6, 0));
                out.cast::<u32>().set(kind - first)
            }
            // The allocation's number, of four bytes: here that of physical memory, which has none of its own.
            7 => out.cast::<u32>().set(attribute(20, address)? as u32),
            9 => out.cast::<i32>().set(attribute(number, address)? as i32),
            // As the real call: what HIP has no answer for.
            1 | 5 | 10 | 14 | 15 | 17 => Err(Status::NOT_SUPPORTED),
            _ => cu(cuPointerGetAttribute(out, number, address)),
        }
    }

    fn hipMemGetAddressRange(base: Out<u64>, bytes: Out<usize>, address: u64) {
        cu(cuMemGetAddressRange_v2(base, bytes, address))
    }

    fn hipIpcGetMemHandle(out: Out<Handle>, address: u64) {
        cu(cuIpcGetMemHandle(out, address))
    }

    fn hipIpcOpenMemHandle(out: Out<u64>, handle: Handle, flags: u32) {
        // As the real call, which takes no other flags.
        if flags != 1 {
            return Err(Status::INVALID_VALUE);
        }
        // Unlike CUDA's it waits for no kernel here; whether a real one does is not known.
        ipc::open(out, handle)
    }

    fn hipIpcCloseMemHandle(address: u64) {
        cu(cuIpcCloseMemHandle(address))
    }
}
