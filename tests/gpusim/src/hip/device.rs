//! Devices as HIP shows them.

use super::{DEVICE, cu, current, primary, release, version};
use crate::abi::Out;
use crate::context::{
    cuCtxEnablePeerAccess, cuCtxGetLimit, cuCtxGetStreamPriorityRange, cuCtxSetLimit,
};
use crate::device::{
    BLOCK_THREADS, DEFAULT_SHARED_BYTES, MULTIPROCESSORS, WARP, count, cuDeviceCanAccessPeer,
    cuDeviceGetName, cuDeviceGetP2PAttribute, cuDeviceGetPCIBusId, cuDeviceTotalMem_v2, ordinal,
};
use crate::status::Status;
use std::ffi::c_char;

/// The architecture that devices claim: one with 32 threads to a wave, as the simulated ones have.
const ARCHITECTURE: &[u8] = b"gfx1100\0";

/// Writes the properties of a device, in a layout of `bytes` bytes with the architecture at `at`. The rest is zero.
fn properties(out: Out<u8>, device: i32, bytes: usize, at: usize) -> Result<(), Status> {
    ordinal(device)?;
    (0..bytes).try_for_each(|k| out.offset(k).set(0))?;
    ARCHITECTURE.iter().enumerate().try_for_each(|(k, byte)| out.offset(at + k).set(*byte))
}

hip_calls! {
    fn hipInit(flags: u32) {
        if flags == 0 { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }

    fn hipRuntimeGetVersion(out: Out<i32>) {
        out.set(version() as i32)
    }

    fn hipGetDeviceCount(out: Out<i32>) {
        out.set(count() as i32)
    }

    fn hipGetDevice(out: Out<i32>) {
        out.set(current() as i32)
    }

    fn hipSetDevice(device: i32) {
        ordinal(device)?;
        DEVICE.set(device);
        Ok(())
    }

    fn hipDeviceGetLimit(out: Out<usize>, limit: u32) {
        cu(cuCtxGetLimit(out, limit))
    }

    fn hipDeviceSetLimit(limit: u32, value: usize) {
        cu(cuCtxSetLimit(limit, value))
    }

    fn hipDeviceGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        cu(cuCtxGetStreamPriorityRange(least, greatest))
    }

    fn hipDeviceGetName(out: Out<c_char>, length: i32, device: i32) {
        cu(cuDeviceGetName(out, length, device))
    }

    fn hipDeviceGetPCIBusId(out: Out<c_char>, length: i32, device: i32) {
        cu(cuDeviceGetPCIBusId(out, length, device))
    }

    fn hipDeviceTotalMem(out: Out<usize>, device: i32) {
        cu(cuDeviceTotalMem_v2(out, device))
    }

    fn hipDeviceGetAttribute(out: Out<i32>, attribute: u32, device: i32) {
        ordinal(device)?;
        out.set(match attribute {
            // Mapped host memory, concurrent kernels, cooperative launches.
            3 | 8 | 10 => 1,
            26 | 56 => BLOCK_THREADS as i32,
            63 => MULTIPROCESSORS as i32,
            74 => DEFAULT_SHARED_BYTES as i32,
            87 => WARP as i32,
            // Virtual memory management.
            89 => i32::from(version() >= release(6, 1)),
            _ => 0,
        })
    }

    fn hipGetDevicePropertiesR0600(out: Out<u8>, device: i32) {
        properties(out, device, 1472, 1160)
    }

    fn hipGetDeviceProperties(out: Out<u8>, device: i32) {
        properties(out, device, 792, 396)
    }

    fn hipDeviceCanAccessPeer(out: Out<i32>, device: i32, peer: i32) {
        cu(cuDeviceCanAccessPeer(out, device, peer))
    }

    fn hipDeviceGetP2PAttribute(out: Out<i32>, attribute: i32, device: i32, peer: i32) {
        // The same four, counted from 0.
        cu(cuDeviceGetP2PAttribute(out, attribute + 1, device, peer))
    }

    fn hipDeviceEnablePeerAccess(peer: i32, flags: u32) {
        cu(cuCtxEnablePeerAccess(primary(ordinal(peer)?)?, flags))
    }
}
