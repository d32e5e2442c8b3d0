//! Virtual memory management: physical allocations, reserved addresses, and what is mapped where.

use super::device::{charge, discharge};
use super::multicast::{self, Group};
use super::registry::{self, Kind, Range, Rights};
use super::shared::{self, Physical};
use crate::abi::{HANDLE_TYPE_POSIX_FD, In, MemAccessDesc, MemAllocationProp, MemLocation, Out};
use crate::device::{ordinal, peers};
use crate::status::Status;
use crate::stream::capture;
use crate::table::{fresh, lock};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::{Arc, LazyLock, Mutex};

/// Bytes that sizes, offsets and addresses are multiples of. NVIDIA's GPUs say 2 MiB: tests would spend most of their time
/// clearing what nobody asked for.
pub const GRANULARITY: usize = 64 << 10;

const PINNED: u32 = 1;
const ON_DEVICE: u32 = 1;

/// A generic allocation handle: how often it is held, and what it stands for.
struct Held {
    count: u32,
    charged: bool,
    what: Allocation,
}

/// What a generic allocation handle stands for.
#[derive(Clone)]
pub enum Allocation {
    Memory(Arc<Physical>),
    Multicast(Arc<Group>),
}

static HELD: LazyLock<Mutex<HashMap<u64, Held>>> = LazyLock::new(Mutex::default);
/// Reserved addresses, and how many follow each.
static RESERVED: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

/// Gives an allocation a handle.
pub fn hold(what: Allocation, charged: bool) -> u64 {
    let handle = fresh();
    lock(&HELD).insert(handle, Held { count: 1, charged, what });
    handle
}

/// What a handle stands for.
pub fn held(handle: u64) -> Result<Allocation, Status> {
    lock(&HELD).get(&handle).map(|held| held.what.clone()).ok_or(Status::INVALID_VALUE)
}

fn check(prop: &MemAllocationProp) -> Result<usize, Status> {
    if prop.kind != PINNED || prop.location.kind != ON_DEVICE {
        return Err(Status::INVALID_VALUE);
    }
    if prop.handle_types & !HANDLE_TYPE_POSIX_FD != 0 {
        return Err(Status::NOT_SUPPORTED);
    }
    ordinal(prop.location.id)
}

fn even(values: &[usize]) -> Result<(), Status> {
    let even = values.iter().all(|value| value.is_multiple_of(GRANULARITY));
    if even { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

/// Refuses addresses that are not reserved, or where something is mapped already.
fn vacant(address: u64, bytes: usize) -> Result<(), Status> {
    let reserved = lock(&RESERVED);
    let (base, all) = reserved.range(..=address).next_back().ok_or(Status::INVALID_VALUE)?;
    if bytes == 0 || address - base + bytes as u64 > *all as u64 {
        return Err(Status::INVALID_VALUE);
    }
    if registry::overlaps(address, bytes) { Err(Status::ALREADY_MAPPED) } else { Ok(()) }
}

mapping_calls! {
    fn cuMemGetAllocationGranularity(out: Out<usize>, prop: In<MemAllocationProp>, _option: u32) {
        check(&prop.get()?)?;
        out.set(GRANULARITY)
    }

    fn cuMemCreate(out: Out<u64>, bytes: usize, prop: In<MemAllocationProp>, flags: u64) {
        capture::refuse()?;
        let prop = prop.get()?;
        let device = check(&prop)?;
        even(&[bytes])?;
        if bytes == 0 || flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        crate::stream::may_finish_device(device, "map");
        charge(device, bytes)?;
        let physical = Physical::new(bytes, device, prop.handle_types)
            .inspect_err(|_| discharge(device, bytes))?;
        out.set(hold(Allocation::Memory(Arc::new(physical)), true))
    }

    fn cuMemRelease(handle: u64) {
        capture::refuse()?;
        let mut all = lock(&HELD);
        let held = all.get_mut(&handle).ok_or(Status::INVALID_VALUE)?;
        held.count -= 1;
        if held.count == 0 {
            if let (true, Allocation::Memory(physical)) = (held.charged, &held.what) {
                discharge(physical.device, physical.bytes);
            }
            all.remove(&handle);
        }
        Ok(())
    }

    fn cuMemRetainAllocationHandle(out: Out<u64>, address: u64) {
        let range = registry::find(address).ok_or(Status::INVALID_VALUE)?;
        let Kind::Mapped(physical, handle) = range.kind else {
            return Err(Status::INVALID_VALUE);
        };
        let mut all = lock(&HELD);
        // What was released while it is still mapped comes back under its old handle.
        let revived = Held { count: 0, charged: false, what: Allocation::Memory(physical) };
        all.entry(handle).or_insert(revived).count += 1;
        out.set(handle)
    }

    fn cuMemGetAllocationPropertiesFromHandle(out: Out<MemAllocationProp>, handle: u64) {
        let Allocation::Memory(physical) = held(handle)? else {
            return Err(Status::INVALID_VALUE);
        };
        let location = MemLocation { kind: ON_DEVICE, id: physical.device as i32 };
        let handle_types = physical.handle_types;
        out.set(MemAllocationProp {
            kind: PINNED,
            handle_types,
            location,
            windows: 0,
            compression: 0,
            rdma_capable: 0,
            usage: 0,
            reserved: [0; 4],
        })
    }

    fn cuMemExportToShareableHandle(out: Out<i32>, handle: u64, kind: u32, flags: u64) {
        capture::refuse()?;
        if kind != HANDLE_TYPE_POSIX_FD || flags != 0 {
            return Err(Status::NOT_SUPPORTED);
        }
        let file = match held(handle)? {
            Allocation::Memory(physical) if physical.handle_types & kind == 0 => {
                return Err(Status::INVALID_VALUE);
            }
            Allocation::Memory(physical) => physical.file.try_clone(),
            Allocation::Multicast(group) => group.file().try_clone(),
        };
        out.set(file.map_err(|_| Status::OPERATING_SYSTEM)?.into_raw_fd())
    }

    fn cuMemImportFromShareableHandle(out: Out<u64>, handle: usize, kind: u32) {
        // The descriptor comes in the place of a pointer, and stays the application's.
        let descriptor = i32::try_from(handle).map_err(|_| Status::INVALID_VALUE)?;
        if kind != HANDLE_TYPE_POSIX_FD || descriptor < 0 {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the application keeps the descriptor open for the length of this call.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let file = File::from(borrowed.try_clone_to_owned().map_err(|_| Status::INVALID_VALUE)?);
        let device = Physical::owner(&file).ok_or(Status::INVALID_VALUE)?;
        let what = match multicast::adopt(&file)? {
            Some(group) => Allocation::Multicast(group),
            None => {
                Allocation::Memory(Arc::new(Physical::adopt(file, device, HANDLE_TYPE_POSIX_FD)?))
            }
        };
        out.set(hold(what, false))
    }

    fn cuMemAddressReserve(out: Out<u64>, bytes: usize, alignment: usize, _wish: u64, flags: u64) {
        even(&[bytes])?;
        let alignment = alignment.max(GRANULARITY);
        if bytes == 0 || flags != 0 || !alignment.is_power_of_two() {
            return Err(Status::INVALID_VALUE);
        }
        let wide = bytes.checked_add(alignment).ok_or(Status::OUT_OF_MEMORY)?;
        let start = shared::reserve(wide)?;
        let base = start.next_multiple_of(alignment as u64);
        let (before, after) = ((base - start) as usize, wide - bytes - (base - start) as usize);
        if before > 0 {
            shared::unmap(start, before)?;
        }
        if after > 0 {
            shared::unmap(base + bytes as u64, after)?;
        }
        lock(&RESERVED).insert(base, bytes);
        out.set(base)
    }

    fn cuMemAddressFree(address: u64, bytes: usize) {
        capture::refuse()?;
        let mut reserved = lock(&RESERVED);
        if reserved.get(&address) != Some(&bytes) || registry::overlaps(address, bytes) {
            return Err(Status::INVALID_VALUE);
        }
        reserved.remove(&address);
        shared::unmap(address, bytes)
    }

    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) {
        even(&[bytes, offset, address as usize])?;
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        vacant(address, bytes)?;
        let fits = |all: usize| offset.checked_add(bytes).is_some_and(|end| end <= all);
        let (kind, device) = match held(handle)? {
            Allocation::Memory(physical) => {
                if !fits(physical.bytes) {
                    return Err(Status::INVALID_VALUE);
                }
                crate::stream::may_finish_device(physical.device, "map");
                physical.map_at(address, offset, bytes)?;
                let device = physical.device;
                (Kind::Mapped(physical, handle), device)
            }
            // No plain mapping has several memories behind it: kernels go by the table of members.
            Allocation::Multicast(group) => {
                if !fits(group.bytes()) {
                    return Err(Status::INVALID_VALUE);
                }
                (Kind::Multicast(group, offset), 0)
            }
        };
        registry::add(Range {
            base: address,
            bytes,
            mapped: bytes,
            context: 0,
            device,
            buffer: fresh(),
            kind,
            rights: Rights::default(),
        });
        Ok(())
    }

    fn cuMemUnmap(address: u64, bytes: usize) {
        capture::refuse()?;
        even(&[bytes, address as usize])?;
        let parts = registry::inside(address, bytes);
        let virtual_only = parts.iter().all(Range::is_virtual);
        if parts.iter().map(|part| part.bytes).sum::<usize>() != bytes || !virtual_only {
            return Err(Status::INVALID_VALUE);
        }
        for part in parts {
            crate::stream::finish_device(part.device);
            registry::take(part.base, |_| true);
            shared::vacate(part.base, part.bytes)?;
        }
        Ok(())
    }

    fn cuMemSetAccess(address: u64, bytes: usize, access: In<MemAccessDesc>, count: usize) {
        even(&[bytes, address as usize])?;
        let access = access.list(count)?;
        for one in &access {
            ordinal(one.location.id)?;
        }
        let parts = registry::inside(address, bytes);
        if access.is_empty() || parts.iter().map(|part| part.bytes).sum::<usize>() != bytes {
            return Err(Status::INVALID_VALUE);
        }
        let reached = |part: &Range| {
            access.iter().all(|one| peers() || one.location.id as usize == part.device)
        };
        if !parts.iter().all(reached) {
            return Err(Status::INVALID_DEVICE);
        }
        if !parts.iter().all(Range::is_virtual) {
            return Err(Status::INVALID_VALUE);
        }
        for mut part in parts {
            access.iter().for_each(|one| part.rights.set(one.location.id as usize, one.flags));
            let (base, rights) = (part.base, part.rights);
            registry::change(|range| (range.base == base).then(|| range.rights = rights));
            // All devices share the process's pages: what one may touch, the system lets each.
            if matches!(part.kind, Kind::Mapped(..)) {
                let (read, write) = (rights.any() & Rights::READ, rights.any() & Rights::WRITE);
                shared::protect(base, part.bytes, read != 0, write != 0)?;
            }
        }
        Ok(())
    }
}
