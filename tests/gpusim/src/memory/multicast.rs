//! Multicast groups: tables of members, in a file that the members' processes share.
//!
//! No plain mapping has several memories behind it. So a multicast address has none: the prelude that kernels are
//! compiled with asks for the members of an address ([`antiphon_gpusim_members`]) and goes to each itself.

use super::ipc::reach;
use super::registry::{self, Kind};
use super::shared::Physical;
use super::virtual_memory::{Allocation, GRANULARITY, held, hold};
use crate::abi::{Answer, HANDLE_TYPE_POSIX_FD, In, MulticastObjectProp, Out};
use crate::device::ordinal;
use crate::status::Status;
use crate::stream::capture;
use crate::table::lock;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

const MAGIC: u64 = u64::from_le_bytes(*b"APHNMCG1");
const FREE: u32 = 0;
const BEING_WRITTEN: u32 = 1;
const BOUND: u32 = 2;

/// The shared table. Zeros, as in a fresh file, are a table with no member.
#[repr(C)]
struct Sheet {
    magic: AtomicU64,
    bytes: AtomicU64,
    /// Devices that must be added before memory can be bound.
    devices: AtomicU32,
    added: AtomicU32,
    members: [Member; 64],
}

#[repr(C)]
struct Member {
    state: AtomicU32,
    device: AtomicU32,
    process: AtomicU32,
    descriptor: AtomicU32,
    inode: AtomicU64,
    group_offset: AtomicU64,
    memory_offset: AtomicU64,
    bytes: AtomicU64,
}

/// One process's view of a group.
pub struct Group {
    physical: Physical,
    sheet: u64,
    /// Memory that this process bound, whose descriptors must stay open.
    kept: Mutex<Vec<Arc<Physical>>>,
}

impl Group {
    pub fn file(&self) -> &File {
        &self.physical.file
    }

    pub fn bytes(&self) -> usize {
        self.sheet().bytes.load(Ordering::Acquire) as usize
    }

    fn sheet(&self) -> &Sheet {
        // SAFETY: `open` mapped a file of at least this size here, which stays mapped while the group lives, and
        // every field is an atomic, for which any bytes are valid.
        unsafe { &*(self.sheet as *const Sheet) }
    }

    fn open(physical: Physical) -> Result<Self, Status> {
        let sheet = physical.map()?;
        Ok(Self { physical, sheet, kept: Mutex::default() })
    }

    fn bind(&self, at: usize, memory: &Arc<Physical>, offset: usize, bytes: usize) -> Answer {
        let sheet = self.sheet();
        let fits = |at: usize, all: usize| at.checked_add(bytes).is_some_and(|end| end <= all);
        let even = [at, offset, bytes].iter().all(|value| value.is_multiple_of(GRANULARITY));
        if bytes == 0 || !even || !fits(at, self.bytes()) || !fits(offset, memory.bytes) {
            return Err(Status::INVALID_VALUE);
        }
        // As the real call: it waits until all devices are there. Not for ever, so that a test ends.
        let limit = Instant::now() + Duration::from_secs(60);
        while sheet.added.load(Ordering::Acquire).count_ones()
            < sheet.devices.load(Ordering::Acquire)
        {
            if Instant::now() > limit {
                return Err(Status::ILLEGAL_STATE);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let claim = |member: &&Member| {
            member
                .state
                .compare_exchange(FREE, BEING_WRITTEN, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let member = sheet.members.iter().find(claim).ok_or(Status::OUT_OF_MEMORY)?;
        member.device.store(memory.device as u32, Ordering::Relaxed);
        member.process.store(std::process::id(), Ordering::Relaxed);
        member.descriptor.store(memory.file.as_raw_fd() as u32, Ordering::Relaxed);
        member.inode.store(memory.identity()?, Ordering::Relaxed);
        member.group_offset.store(at as u64, Ordering::Relaxed);
        member.memory_offset.store(offset as u64, Ordering::Relaxed);
        member.bytes.store(bytes as u64, Ordering::Relaxed);
        member.state.store(BOUND, Ordering::Release);
        lock(&self.kept).push(memory.clone());
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A failure leaves a few pages mapped, which harms nobody.
        let _ = super::shared::unmap(self.sheet, self.physical.bytes);
    }
}

/// A group that another process exported, if `file` is one.
pub fn adopt(file: &File) -> Result<Option<Arc<Group>>, Status> {
    let copy = file.try_clone().map_err(|_| Status::OPERATING_SYSTEM)?;
    let physical = Physical::adopt(copy, 0, HANDLE_TYPE_POSIX_FD)?;
    if physical.bytes != size_of::<Sheet>() {
        return Ok(None);
    }
    let group = Group::open(physical)?;
    Ok((group.sheet().magic.load(Ordering::Acquire) == MAGIC).then(|| Arc::new(group)))
}

fn group(handle: u64) -> Result<Arc<Group>, Status> {
    match held(handle)? {
        Allocation::Multicast(group) => Ok(group),
        Allocation::Memory(_) => Err(Status::INVALID_VALUE),
    }
}

mapping_calls! {
    fn cuMulticastCreate(out: Out<u64>, prop: In<MulticastObjectProp>) {
        capture::refuse()?;
        let prop = prop.get()?;
        if prop.devices == 0
            || prop.devices > 8
            || prop.size == 0
            || !prop.size.is_multiple_of(GRANULARITY)
            || prop.flags != 0
        {
            return Err(Status::INVALID_VALUE);
        }
        let group = Group::open(Physical::new(size_of::<Sheet>(), 0, HANDLE_TYPE_POSIX_FD)?)?;
        group.sheet().bytes.store(prop.size as u64, Ordering::Relaxed);
        group.sheet().devices.store(prop.devices, Ordering::Relaxed);
        group.sheet().magic.store(MAGIC, Ordering::Release);
        out.set(hold(Allocation::Multicast(Arc::new(group)), false))
    }

    fn cuMulticastAddDevice(handle: u64, device: i32) {
        capture::refuse()?;
        let group = group(handle)?;
        let bit = 1 << ordinal(device)?;
        let sheet = group.sheet();
        let grow = |added: u32| {
            let more =
                added & bit == 0 && added.count_ones() < sheet.devices.load(Ordering::Acquire);
            more.then_some(added | bit)
        };
        let added = sheet.added.fetch_update(Ordering::AcqRel, Ordering::Acquire, grow);
        added.map(drop).map_err(|_| Status::INVALID_VALUE)
    }

    fn cuMulticastBindMem(
        handle: u64,
        at: usize,
        memory: u64,
        offset: usize,
        bytes: usize,
        flags: u64,
    ) {
        let Allocation::Memory(memory) = held(memory)? else {
            return Err(Status::INVALID_VALUE);
        };
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        group(handle)?.bind(at, &memory, offset, bytes)
    }

    fn cuMulticastUnbind(handle: u64, device: i32, at: usize, bytes: usize) {
        capture::refuse()?;
        let device = ordinal(device)? as u32;
        let group = group(handle)?;
        let mine = |member: &&Member| {
            member.state.load(Ordering::Acquire) == BOUND
                && member.device.load(Ordering::Relaxed) == device
                && member.group_offset.load(Ordering::Relaxed) == at as u64
                && member.bytes.load(Ordering::Relaxed) == bytes as u64
        };
        let member = group.sheet().members.iter().find(mine).ok_or(Status::INVALID_VALUE)?;
        member.state.store(FREE, Ordering::Release);
        Ok(())
    }

    fn cuMulticastGetGranularity(out: Out<usize>, prop: In<MulticastObjectProp>, _option: u32) {
        prop.get()?;
        out.set(GRANULARITY)
    }
}

/// Memory of other processes that is mapped here because it is a member of a group, by its file's number.
static MAPPED: LazyLock<Mutex<HashMap<u64, u64>>> = LazyLock::new(Mutex::default);

fn mapped(member: &Member) -> Result<u64, Status> {
    let inode = member.inode.load(Ordering::Relaxed);
    let mut all = lock(&MAPPED);
    if let Some(base) = all.get(&inode) {
        return Ok(*base);
    }
    let descriptor = member.descriptor.load(Ordering::Relaxed) as i32;
    let file = reach(member.process.load(Ordering::Relaxed), descriptor, inode)?;
    let base = Physical::adopt(file, 0, 0)?.map()?;
    all.insert(inode, base);
    Ok(base)
}

/// How often the members of a group were asked for.
static USES: AtomicU64 = AtomicU64::new(0);

/// How often kernels of this process have stored to a multicast address or loaded from one, 16 bytes at a time, for tests
/// that want to know whether they do.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_gpusim_multicasts() -> u64 {
    USES.load(Ordering::Relaxed)
}

/// The addresses, in this process, of the memories behind a multicast address: writes up to `room` of them to `out`,
/// and answers how many there are; 0 where the address is not a multicast one.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_gpusim_members(address: u64, out: Out<u64>, room: usize) -> usize {
    let Some(range) = registry::find(address) else {
        return 0;
    };
    let Kind::Multicast(group, offset) = &range.kind else {
        return 0;
    };
    let at = address - range.base + *offset as u64;
    let members = group.sheet().members.iter().filter_map(|member| {
        let start = member.group_offset.load(Ordering::Relaxed);
        let bound = member.state.load(Ordering::Acquire) == BOUND;
        if !bound || at < start || at - start >= member.bytes.load(Ordering::Relaxed) {
            return None;
        }
        Some(mapped(member).ok()? + member.memory_offset.load(Ordering::Relaxed) + at - start)
    });
    USES.fetch_add(1, Ordering::Relaxed);
    let mut count = 0;
    for (place, member) in members.enumerate() {
        if place < room {
            out.offset(place).offer(member);
        }
        count = place + 1;
    }
    count
}
