//! Memory of a device: `cuMemAlloc`.

use super::registry::{self, Kind, Range};
use super::shared::{self, Physical};
use crate::abi::Out;
use crate::context;
use crate::device::TOTAL_BYTES;
use crate::status::Status;
use crate::stream::capture;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The type of handle for network cards.
const DMA_BUF: u32 = 1;

static USED: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

/// Counts `bytes` of a device as used, if it has them.
pub fn charge(device: usize, bytes: usize) -> Result<(), Status> {
    let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= TOTAL_BYTES);
    let charged = USED[device].fetch_update(Ordering::AcqRel, Ordering::Acquire, fits);
    charged.map(drop).map_err(|_| Status::OUT_OF_MEMORY)
}

/// Counts `bytes` of a device as free again.
pub fn discharge(device: usize, bytes: usize) {
    USED[device].fetch_sub(bytes, Ordering::AcqRel);
}

/// The file behind an allocation, and where in it the `bytes` bytes at `address` begin.
pub fn file_of_allocation(address: u64, bytes: usize) -> Result<(OwnedFd, u64), Status> {
    let range = registry::find(address).ok_or(Status::INVALID_VALUE)?;
    let Kind::Device(physical) = &range.kind else { return Err(Status::NOT_SUPPORTED) };
    let start = address - range.base;
    if bytes > range.mapped - start as usize {
        return Err(Status::INVALID_VALUE);
    }
    let file = physical.file.try_clone().map_err(|_| Status::OPERATING_SYSTEM)?;
    Ok((file.into(), start))
}

driver_calls! {
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let device = context::current()?.device;
        free.set(TOTAL_BYTES - USED[device].load(Ordering::Acquire))?;
        total.set(TOTAL_BYTES)
    }

    fn cuMemAlloc_v2(out: Out<u64>, bytes: usize) {
        let context = context::current()?;
        capture::refuse()?;
        if bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let mapped = bytes.checked_next_multiple_of(4096).ok_or(Status::OUT_OF_MEMORY)?;
        charge(context.device, mapped)?;
        let physical = Physical::new(mapped, context.device, 0);
        let (physical, base) = physical
            .and_then(|p| p.map().map(|base| (p, base)))
            .inspect_err(|_| discharge(context.device, mapped))?;
        let kind = Kind::Device(Arc::new(physical));
        registry::add(Range::new(&context, base, bytes, mapped, kind));
        out.set(base)
    }

    fn cuMemFree_v2(address: u64) {
        context::current()?;
        if address == 0 {
            return Ok(());
        }
        capture::refuse()?;
        let range = registry::take(address, |range| matches!(range.kind, Kind::Device(_)));
        let range = range.ok_or(Status::INVALID_VALUE)?;
        // As the real call does: what has been launched may still use it.
        crate::stream::finish_device(range.device);
        discharge(range.device, range.mapped);
        shared::unmap(range.base, range.mapped)
    }

    fn cuMemGetHandleForAddressRange(
        out: Out<i32>,
        address: u64,
        bytes: usize,
        kind: u32,
        flags: u64,
    ) {
        if kind != DMA_BUF || !(address | bytes as u64).is_multiple_of(4096) || bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let range = registry::find(address).ok_or(Status::INVALID_VALUE)?;
        let (Kind::Device(physical) | Kind::Mapped(physical, _)) = &range.kind else {
            return Err(Status::NOT_SUPPORTED);
        };
        // The file stands for the buffer, so that what begins or ends elsewhere is beyond this driver.
        if address != range.base || bytes > range.mapped || flags != 0 {
            return Err(Status::NOT_SUPPORTED);
        }
        let file = physical.file.try_clone().map_err(|_| Status::OPERATING_SYSTEM)?;
        out.set(file.into_raw_fd())
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, bytes: Out<usize>, address: u64) {
        let range = registry::find(address).filter(|range| !matches!(range.kind, Kind::Registered));
        let range = range.ok_or(Status::NOT_FOUND)?;
        base.offer(range.base);
        bytes.offer(range.bytes);
        Ok(())
    }
}
