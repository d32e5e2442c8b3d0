//! The ranges of addresses that the driver knows, and what is behind each.

use super::multicast::Group;
use super::shared::Physical;
use crate::context::Context;
use crate::status::Status;
use crate::table::{fresh, lock};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What a range of addresses is.
#[derive(Clone)]
pub enum Kind {
    /// Memory of a device, from `cuMemAlloc`.
    Device(Arc<Physical>),
    /// Memory of another process, through an IPC handle; how often it has been opened.
    Opened(Arc<Physical>, u32),
    /// A part of a virtual range with memory behind it, and the allocation's handle.
    Mapped(Arc<Physical>, u64),
    /// A part of a virtual range with a multicast group behind it.
    Multicast(Arc<Group>, usize),
    /// Pinned host memory, from `cuMemHostAlloc`.
    Pinned,
    /// Host memory of the application's that it registered.
    Registered,
}

/// Which devices may touch a virtual range: for each the flags that `cuMemSetAccess` gave it last, none at first. Other memory
/// has no such rights.
#[derive(Clone, Copy, Default)]
pub struct Rights([u8; 8]);

impl Rights {
    pub const READ: u8 = 1;
    pub const WRITE: u8 = 2;

    /// Gives a device the rights of some flags, and no others.
    pub fn set(&mut self, device: usize, flags: u32) {
        self.0[device] = flags as u8 & (Self::READ | Self::WRITE);
    }

    /// What a device may do.
    pub fn of(self, device: usize) -> u8 {
        self.0[device]
    }

    /// What any device may do.
    pub fn any(self) -> u8 {
        self.0.iter().fold(0, |all, one| all | one)
    }
}

/// A range of addresses.
#[derive(Clone)]
pub struct Range {
    pub base: u64,
    pub bytes: usize,
    /// What is mapped in all, which is more than `bytes` where the system maps whole pages.
    pub mapped: usize,
    pub context: u64,
    pub device: usize,
    /// Unlike that of any other allocation of the process.
    pub buffer: u64,
    pub kind: Kind,
    pub rights: Rights,
}

impl Range {
    /// A new allocation of a context.
    pub fn new(context: &Context, base: u64, bytes: usize, mapped: usize, kind: Kind) -> Self {
        let (device, context) = (context.device, context.handle);
        Range {
            base,
            bytes,
            mapped,
            context,
            device,
            buffer: fresh(),
            kind,
            rights: Rights::default(),
        }
    }

    pub fn end(&self) -> u64 {
        self.base + self.bytes as u64
    }

    pub fn is_host(&self) -> bool {
        matches!(self.kind, Kind::Pinned | Kind::Registered)
    }

    pub fn is_virtual(&self) -> bool {
        matches!(self.kind, Kind::Mapped(..) | Kind::Multicast(..))
    }

    /// What a device may do with it: of memory that is not virtual the driver itself takes care.
    pub fn rights_of(&self, device: usize) -> u8 {
        if self.is_virtual() { self.rights.of(device) } else { Rights::READ | Rights::WRITE }
    }
}

static RANGES: Mutex<BTreeMap<u64, Range>> = Mutex::new(BTreeMap::new());

/// Adds a range.
pub fn add(range: Range) {
    lock(&RANGES).insert(range.base, range);
}

/// The range that an address lies in.
pub fn find(address: u64) -> Option<Range> {
    let ranges = lock(&RANGES);
    let (_, range) = ranges.range(..=address).next_back()?;
    (address < range.end()).then(|| range.clone())
}

/// Takes out the range that starts at `base`, if `wanted` agrees.
pub fn take(base: u64, wanted: impl Fn(&Range) -> bool) -> Option<Range> {
    let mut ranges = lock(&RANGES);
    if !ranges.get(&base).is_some_and(wanted) {
        return None;
    }
    ranges.remove(&base)
}

/// Changes the first range that `change` answers for.
pub fn change<T>(change: impl FnMut(&mut Range) -> Option<T>) -> Option<T> {
    lock(&RANGES).values_mut().find_map(change)
}

/// Whether any byte of the given addresses is known.
pub fn overlaps(base: u64, bytes: usize) -> bool {
    let end = base + bytes as u64;
    lock(&RANGES).range(..end).next_back().is_some_and(|(_, range)| range.end() > base)
}

/// The ranges that lie wholly inside the given addresses, in order.
pub fn inside(base: u64, bytes: usize) -> Vec<Range> {
    let end = base + bytes as u64;
    lock(&RANGES)
        .range(base..end)
        .map(|(_, range)| range.clone())
        .filter(|range| range.end() <= end)
        .collect()
}

/// Refuses addresses that are not wholly known; a multicast range has no bytes to copy.
pub fn covered(address: u64, bytes: usize) -> Result<(), Status> {
    let mut at = address;
    let end = address.checked_add(bytes as u64).ok_or(Status::INVALID_VALUE)?;
    while at < end {
        let range = find(at).ok_or(Status::INVALID_VALUE)?;
        if matches!(range.kind, Kind::Multicast(..)) {
            return Err(Status::INVALID_VALUE);
        }
        at = range.end();
    }
    Ok(())
}

/// Refuses addresses that hold virtual memory which a device lacks a right to, as the hardware would. What the driver does not
/// know is memory of the host.
pub fn allowed(device: usize, address: u64, bytes: usize, right: u8) -> Result<(), Status> {
    let end = address.checked_add(bytes as u64).ok_or(Status::INVALID_VALUE)?;
    let ranges = lock(&RANGES);
    let below = ranges.range(..end).rev().map(|(_, range)| range);
    let mut touched = below.take_while(|range| range.end() > address);
    let refused = touched.find(|range| range.rights_of(device) & right == 0);
    let Some(range) = refused else { return Ok(()) };
    eprintln!(
        "antiphon-gpusim: device {device} touches {bytes} bytes at {address:#x}, memory of device {} that it was given no \
         access to",
        range.device
    );
    Err(Status::INVALID_VALUE)
}

/// What a device may do with the physical memory that is mapped at the address; nothing where there is none.
pub fn rights_at(device: usize, address: u64) -> Option<u8> {
    let mapped = find(address).filter(|range| matches!(range.kind, Kind::Mapped(..)));
    mapped.map(|range| range.rights_of(device))
}

/// The device whose memory is at the address; `None` for the host's, and where nothing is known.
pub fn device_of(address: u64) -> Option<usize> {
    find(address).filter(|range| !range.is_host()).map(|range| range.device)
}

/// Whether the driver knows the address at all.
pub fn is_known(address: u64) -> bool {
    find(address).is_some()
}
