//! HIP's virtual memory management.

use super::{cu, release, version};
use crate::abi::{Answer, In, MemAccessDesc, MemAllocationProp, MemLocation, Out};
use crate::device::ordinal;
use crate::memory::rights_at;
use crate::memory::virtual_memory::{
    cuMemAddressFree, cuMemAddressReserve, cuMemCreate, cuMemExportToShareableHandle,
    cuMemGetAllocationGranularity, cuMemImportFromShareableHandle, cuMemMap, cuMemRelease,
    cuMemRetainAllocationHandle, cuMemSetAccess, cuMemUnmap,
};
use crate::status::Status;

const PINNED: u32 = 1;
const UNCACHED: u32 = 0x4000_0000;

/// Refuses everything in releases without it.
fn supported() -> Answer {
    if version() >= release(6, 1) { Ok(()) } else { Err(Status::NOT_SUPPORTED) }
}

/// The properties in CUDA's terms, which has no memory without caches.
fn plain(prop: In<MemAllocationProp>) -> Result<MemAllocationProp, Status> {
    supported()?;
    // The structure has two fields less at its end.
    let mut prop = prop.get()?;
    if prop.kind == UNCACHED && version() >= release(7, 2) {
        prop.kind = PINNED;
    }
    Ok(prop)
}

hip_calls! {
    fn hipMemGetAllocationGranularity(out: Out<usize>, prop: In<MemAllocationProp>, option: u32) {
        cu(cuMemGetAllocationGranularity(out, In::at(&plain(prop)?), option))
    }

    fn hipMemCreate(out: Out<u64>, bytes: usize, prop: In<MemAllocationProp>, flags: u64) {
        cu(cuMemCreate(out, bytes, In::at(&plain(prop)?), flags))
    }

    fn hipMemRelease(handle: u64) {
        cu(cuMemRelease(handle))
    }

    fn hipMemRetainAllocationHandle(out: Out<u64>, address: u64) {
        supported()?;
        cu(cuMemRetainAllocationHandle(out, address))
    }

    fn hipMemExportToShareableHandle(out: Out<i32>, handle: u64, kind: u32, flags: u64) {
        supported()?;
        cu(cuMemExportToShareableHandle(out, handle, kind, flags))
    }

    fn hipMemImportFromShareableHandle(out: Out<u64>, handle: usize, kind: u32) {
        supported()?;
        // Older releases take the descriptor's address.
        let descriptor = if version() >= release(7, 1) {
            handle
        } else {
            let place: Out<i32> = Out::at(handle);
            usize::try_from(place.get()?).map_err(|_| Status::INVALID_VALUE)?
        };
        cu(cuMemImportFromShareableHandle(out, descriptor, kind))
    }

    fn hipMemAddressReserve(out: Out<u64>, bytes: usize, alignment: usize, wish: u64, flags: u64) {
        supported()?;
        cu(cuMemAddressReserve(out, bytes, alignment, wish, flags))
    }

    fn hipMemAddressFree(address: u64, bytes: usize) {
        cu(cuMemAddressFree(address, bytes))
    }

    fn hipMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) {
        // As the real call, which maps from the beginning only.
        if offset != 0 {
            return Err(Status::INVALID_VALUE);
        }
        cu(cuMemMap(address, bytes, offset, handle, flags))
    }

    fn hipMemUnmap(address: u64, bytes: usize) {
        cu(cuMemUnmap(address, bytes))
    }

    fn hipMemSetAccess(address: u64, bytes: usize, access: In<MemAccessDesc>, count: usize) {
        cu(cuMemSetAccess(address, bytes, access, count))
    }

    fn hipMemGetAccess(flags: Out<u64>, location: In<MemLocation>, address: u64) {
        supported()?;
        let device = ordinal(location.get()?.id)?;
        flags.set(rights_at(device, address).ok_or(Status::INVALID_VALUE)?.into())
    }
}
