//! Communicators: what NCCL's handles stand for.

use crate::counterpart::{self, Counterpart};
use crate::failure::{self, Failure, Progress, Result};
use crate::finalize;
use crate::group;
use crate::handle::{self, Used, issue};
use crate::id::{self, Unused};
use crate::library::{Config as Options, Handle, library};
use crate::limit::limit;
use crate::making::{Ask, Making};
use crate::memory::Registered;
use crate::naming::{named, pointer};
use crate::numbers;
use crate::scaled::Sums;
use crate::types::{Comm, Config, Header, MAGIC, UNDEFINED, UniqueId, result};
use crate::way;
use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Why no calls of a communicator begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Closed {
    /// For good.
    Finalized = 1,
    /// Others are being made of it behind the program's back.
    Divided = 2,
}

/// Calls may begin.
const OPEN: u8 = 0;

/// A communicator.
pub struct Communicator {
    pub end: Handle,
    pub rank: u32,
    pub world: u32,
    /// The number of its device; on the host, the one that `ncclCommInitAll` was given.
    pub device: c_int,
    /// Whether who ends it waits for its calls.
    pub blocking: bool,
    /// A [`Closed`], or [`OPEN`].
    closed: AtomicU8,
    /// Whether this rank has revoked it.
    revoked: AtomicBool,
    /// Whether this rank has shrunk it since it broke.
    outlived: AtomicBool,
    /// What is being made of it.
    pub making: Arc<Making>,
    /// Why another communicator could not be made of it, where no handle of this rank can tell; kept for the next that asks.
    untold: Mutex<Option<Failure>>,
    pub registered: Registered,
    /// Where calls go that nothing here serves.
    pub real: Option<Counterpart>,
    /// The premultiplied sums that the program made, for calls that go to the real library.
    pub sums: Sums,
}

// SAFETY: the handle may be used by any thread, says `antiphon.h`.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

impl Drop for Communicator {
    fn drop(&mut self) {
        if let Ok(library) = library() {
            // SAFETY: the handle's last user lets go of it.
            unsafe { (library.antiphon_communicator_destroy)(self.end) };
        }
    }
}

#[cfg(test)]
impl Communicator {
    /// One without an end.
    pub fn nobodys() -> Self {
        Communicator::bare(ptr::null_mut(), 0)
    }
}

impl Communicator {
    /// One that knows neither its rank nor its ranks, and has nothing in the real library.
    fn bare(end: Handle, device: c_int) -> Self {
        Communicator {
            end,
            rank: 0,
            world: 0,
            device,
            blocking: true,
            closed: AtomicU8::new(OPEN),
            revoked: AtomicBool::default(),
            outlived: AtomicBool::default(),
            making: Arc::default(),
            untold: Mutex::default(),
            registered: Registered::default(),
            real: None,
            sums: Sums::default(),
        }
    }

    /// Why no calls begin, if they do not.
    pub fn closed(&self) -> Option<Closed> {
        match self.closed.load(Ordering::Acquire) {
            OPEN => None,
            closed if closed == Closed::Finalized as u8 => Some(Closed::Finalized),
            _ => Some(Closed::Divided),
        }
    }

    /// Checks that calls may begin.
    #[inline]
    pub fn is_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) == OPEN { Ok(()) } else { Err(self.refusal()) }
    }

    #[cold]
    fn refusal(&self) -> Failure {
        match self.closed() {
            Some(Closed::Divided) => Failure::argument(
                "cannot use a communicator: others are being made of it; ask ncclCommGetAsyncError until that is over",
            ),
            _ => Failure::usage("cannot use a communicator: it is finalized"),
        }
    }

    /// Keeps a failure for who asks next.
    pub fn tell_later(&self, failure: Failure) {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }

    fn untold(&self) -> Option<Failure> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Lets no more calls begin.
    ///
    /// # Errors
    /// If somebody else did so before.
    pub fn close(&self, why: Closed) -> Result<()> {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let closed = self.closed.compare_exchange(OPEN, why as u8, success, failure);
        closed.map(drop).map_err(|_| self.refusal())
    }

    /// Whether this rank has revoked it.
    pub fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// Checks that this rank has not revoked it.
    #[inline]
    pub fn is_not_revoked(&self) -> Result<()> {
        if self.is_revoked() { Err(revoked()) } else { Ok(()) }
    }

    /// Has it revoked by this rank.
    ///
    /// # Errors
    /// If it is by now.
    pub fn set_revoked(&self) -> Result<()> {
        if self.revoked.swap(true, Ordering::AcqRel) {
            return Err(Failure::argument("cannot revoke a communicator twice"));
        }
        Ok(())
    }

    /// Whether this rank has shrunk it since it broke: what did so is of no interest any more.
    pub fn is_outlived(&self) -> bool {
        self.outlived.load(Ordering::Acquire)
    }

    /// Has it shrunk by this rank since it broke.
    pub fn outlive(&self) {
        self.outlived.store(true, Ordering::Release);
    }

    /// Fails with what broke it, even where [`async_error`] would no longer report that.
    pub fn what_broke(&self) -> Result<()> {
        let (library, mut code) = (library()?, 0);
        let ask = library.antiphon_communicator_async_error;
        // SAFETY: the handle lives, and the place is writable.
        library.outcome(unsafe { ask(self.end, &mut code) })?;
        library.outcome(code)
    }

    /// Lets calls begin again. Only whoever closed it calls this.
    pub fn reopen(&self) {
        self.closed.store(OPEN, Ordering::Release);
    }
}

#[cold]
fn revoked() -> Failure {
    Failure::usage("cannot use a communicator: it is revoked; shrink or destroy it")
}

/// The communicator of a handle.
///
/// # Safety
/// As [`Used::of`].
#[inline]
pub unsafe fn known(comm: Comm) -> Result<Used> {
    // SAFETY: as this function's.
    unsafe { Used::of(comm) }
}

/// The communicator of a handle, for calls.
///
/// # Safety
/// As [`Used::of`].
#[inline]
pub unsafe fn usable(comm: Comm) -> Result<Used> {
    // SAFETY: as this function's.
    let communicator = unsafe { known(comm)? };
    communicator.is_open()?;
    communicator.is_not_revoked()?;
    Ok(communicator)
}

/// A place for an output.
pub fn place<T>(at: *mut T, name: &str) -> Result<*mut T> {
    if at.is_null() || !at.is_aligned() {
        return Err(Failure::argument(format!(
            "cannot write `{name}`: saw {at:p}, allowed its address"
        )));
    }
    Ok(at)
}

/// A list of the caller's; none for null.
///
/// # Safety
/// It is null or has as many elements, and lives for `'a`.
pub unsafe fn list<'a>(at: *const c_int, count: usize, name: &str) -> Result<Option<&'a [c_int]>> {
    if at.is_null() {
        return Ok(None);
    }
    if !at.is_aligned() {
        return Err(Failure::argument(format!(
            "cannot read {name}: saw {count} at {at:p}, allowed their address"
        )));
    }
    // SAFETY: as this function's.
    Ok(Some(unsafe { std::slice::from_raw_parts(at, count) }))
}

/// A place for a handle of a communicator: null until there is one, also where none comes to be.
///
/// # Safety
/// It is null, or writable.
pub unsafe fn vacant(at: *mut Comm, name: &str) -> Result<*mut Comm> {
    let at = place(at, name)?;
    // SAFETY: as this function's.
    unsafe { at.write(ptr::null_mut()) };
    Ok(at)
}

/// Checks a configuration's beginning.
pub fn check_header(header: &Header, least: usize) -> Result<()> {
    if header.magic == MAGIC && header.size >= least {
        return Ok(());
    }
    let Header { size, magic, version } = *header;
    Err(Failure::argument(format!(
        "cannot read a configuration: saw {size} bytes, magic {magic:#x}, version {version}, allowed what NCCL's initializer sets"
    )))
}

/// Whether a communicator blocks, by its configuration; `otherwise` where there is none.
///
/// # Safety
/// There is none, or it is as long as it says.
pub unsafe fn blocks(config: *const Config, otherwise: bool) -> Result<bool> {
    // SAFETY: as this function's.
    let Some(header) = (unsafe { config.cast::<Header>().as_ref() }) else {
        return Ok(otherwise);
    };
    check_header(header, size_of::<Config>())?;
    // SAFETY: as long as it says.
    let blocking = unsafe { (*config).blocking };
    // A communicator that need not block may still have its calls complete on return.
    if ![0, 1, UNDEFINED].contains(&blocking) {
        return Err(Failure::argument(format!(
            "cannot read a configuration: saw blocking {blocking}, allowed 0 and 1"
        )));
    }
    Ok(blocking != 0)
}

/// Tells `libantiphon.so` that calls run one after another whatever their streams, as NCCL's do; `ffi/src/config.rs` has the
/// same number.
const ONE_LANE: i32 = 0x4e43_434c;

/// How communicators of `libantiphon.so` behave; `devices` names those of their buffers, and outlives the result, as their name does.
fn options(devices: &CStr, name: Option<&CStr>, limit: Option<Duration>) -> Options {
    let timeout_ms = limit.map_or(-1, |limit| limit.as_millis() as i64);
    let struct_size = size_of::<Options>() as u64;
    let (wire, network_interface) = (ptr::null(), ptr::null());
    Options {
        struct_size,
        timeout_ms,
        verification: 0,
        process_access: 0,
        wire,
        network_interface,
        reproducible: 0,
        reserved: ONE_LANE,
        device: devices.as_ptr(),
        block_threads: 0,
        tags: ptr::null(),
        tag_count: 0,
        kernels: ptr::null(),
        multicast: 0,
        legacy_ipc: 0,
        name: pointer(name),
    }
}

/// What has come of a handle of `libantiphon.so`.
pub fn whole(end: Handle, device: c_int, blocking: bool) -> Result<Arc<Communicator>> {
    let mut whole = alone(end, device)?;
    whole.blocking = blocking;
    whole.real = counterpart::meet(&whole);
    Ok(Arc::new(whole))
}

/// As [`whole`], without its counterpart in the real library. Where it fails, the handle is destroyed.
fn alone(end: Handle, device: c_int) -> Result<Communicator> {
    let mut alone = Communicator::bare(end, device);
    let library = library()?;
    // SAFETY: the handle was just made, and the places are writable.
    unsafe {
        library.outcome((library.antiphon_communicator_rank)(end, &mut alone.rank))?;
        library.outcome((library.antiphon_communicator_world)(end, &mut alone.world))?;
    }
    Ok(alone)
}

/// Joins a group by its id, now or when the thread's group ends, or behind its back from then on.
///
/// # Safety
/// As NCCL's.
pub unsafe fn init_rank(
    out: *mut Comm,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *const Config,
) -> Result<Progress> {
    // SAFETY: as this function's.
    unsafe { init_by(out, ranks, (id, Unused::default()), rank, config) }
}

/// As [`init_rank`], with further ids, which are given back once the communicator is made or has failed.
///
/// # Safety
/// As NCCL's.
unsafe fn init_by(
    out: *mut Comm,
    ranks: c_int,
    (id, unused): (UniqueId, Unused),
    rank: c_int,
    config: *const Config,
) -> Result<Progress> {
    // SAFETY: as this function's.
    let (out, blocking) = unsafe { (vacant(out, "comm")?, blocks(config, true)?) };
    // SAFETY: as this function's.
    let name = unsafe { named(config) };
    let world = numbers::rank(ranks, "a number of ranks")?;
    let rank = numbers::rank(rank, "a rank")?;
    if rank >= world {
        return Err(Failure::argument(format!("cannot join as rank {rank}: there are {world}")));
    }
    // Now: a group's end may make it on another thread, where another device is current.
    let device = way::place().current()?;
    let (devices, limit) = (way::place().devices([device])?, limit()?);
    let make = move || {
        let end = id::join(&id, rank, world, &options(&devices, name.as_deref(), limit))?;
        let made = whole(end, device, blocking).map(Some);
        drop(unused);
        made
    };
    // SAFETY: the place is writable until the group ends, as NCCL's contract has it.
    unsafe {
        group::join(
            Ask { out, parent: None, blocking, joins: true, under_way: None, divides: false },
            make,
        )
    }
}

/// Joins as NCCL does it with several ids, of which the first is enough.
///
/// # Safety
/// As NCCL's.
pub unsafe fn init_scalable(
    out: *mut Comm,
    ranks: c_int,
    rank: c_int,
    count: c_int,
    ids: *const UniqueId,
    config: *const Config,
) -> Result<Progress> {
    // SAFETY: as this function's.
    let out = unsafe { vacant(out, "newcomm")? };
    if count < 1 || ids.is_null() {
        return Err(Failure::argument(format!("cannot join by {count} ids, allowed 1 or more")));
    }
    // SAFETY: there are as many as said, and one at the least.
    let (first, others) = unsafe { (*ids, std::slice::from_raw_parts(ids, count as usize)) };
    let others = others.iter().filter(|id| id.internal != first.internal).copied().collect();
    // SAFETY: as this function's.
    unsafe { init_by(out, ranks, (first, Unused(others)), rank, config) }
}

/// Makes all ranks of a group, in this process.
///
/// # Safety
/// As NCCL's.
pub unsafe fn init_all(out: *mut Comm, count: c_int, devices: *const c_int) -> Result<()> {
    let out = place(out, "comm")?;
    let world = numbers::rank(count, "a number of ranks")?;
    if world == 0 {
        return Err(Failure::argument("cannot make communicators: saw 0, allowed 1 or more"));
    }
    for rank in 0..world as usize {
        // SAFETY: there is room for as many.
        unsafe { vacant(out.add(rank), "comm")? };
    }
    let library = library()?;
    // SAFETY: the list is as long as there are ranks.
    let listed = unsafe { list(devices, world as usize, "a list of devices")? };
    let device = |rank: usize| listed.map_or(rank as c_int, |listed| listed[rank]);
    let names = way::place().devices((0..world as usize).map(device))?;
    let options = options(&names, None, limit()?);
    let mut ends = vec![ptr::null_mut(); world as usize];
    // SAFETY: there is room for as many.
    let code = unsafe {
        (library.antiphon_communicator_create_in_process)(world, &options, ends.as_mut_ptr())
    };
    library.outcome(code)?;
    // Each is somebody's before anything can fail.
    let own = |rank: usize| way::place().number(device(rank));
    let made = ends.into_iter().enumerate().map(|(rank, end)| alone(end, own(rank)));
    let made = made.collect::<Vec<_>>().into_iter().collect::<Result<Vec<_>>>()?;
    let numbers: Vec<c_int> = (0..world as usize).map(own).collect();
    let list = if way::place().is_device() { numbers.as_ptr() } else { devices };
    let mut counterparts = counterpart::meet_in_process(count, list);
    for (rank, mut communicator) in made.into_iter().enumerate() {
        communicator.real = counterparts.next();
        // SAFETY: there is room for as many as there are ranks.
        unsafe { out.add(rank).write(issue(Arc::new(communicator))) };
    }
    Ok(())
}

/// The function that tells what became of a communicator.
const ASYNC_ERROR: &str = "ncclCommGetAsyncError";

/// Writes what broke a communicator (`ncclGetLastError` then says why), or that its making, its end or the making of others of it
/// is under way. What broke it no longer counts once this rank has revoked it, has shrunk it since, or is shrinking it.
///
/// # Safety
/// As NCCL's.
pub unsafe fn async_error(comm: Comm, out: *mut c_int) -> Result<()> {
    let out = place(out, "asyncError")?;
    // SAFETY: as this function's.
    if let Some(making) = unsafe { handle::awaited(comm) } {
        let failed = |failure| failure::still_failed(ASYNC_ERROR, &failure);
        let code = making.map_or_else(failed, |()| result::IN_PROGRESS);
        // SAFETY: as this function's.
        unsafe { out.write(code) };
        return Ok(());
    }
    // SAFETY: as this function's.
    let communicator = unsafe { known(comm)? };
    // Asked before what broke it: a call that failed counts as complete, and the later question then finds its failure.
    let ending = finalize::is_under_way(&communicator)?;
    let broken = communicator.what_broke();
    // Asked after that: a shrink with an abort begins before it aborts, and marks the communicator as outlived before it ends.
    let shrinks = communicator.making.shrinks();
    let settled = communicator.is_revoked() || communicator.is_outlived();
    let own = if shrinks || settled { Ok(()) } else { broken };
    let own = own.and_then(|()| communicator.untold().map_or(Ok(()), Err));
    let code = match (own, &communicator.real) {
        (Err(broken), _) => failure::still_failed(ASYNC_ERROR, &broken),
        (Ok(()), Some(real)) if !shrinks && !settled => real.error(),
        (Ok(()), _) => result::SUCCESS,
    };
    let waits = ending || shrinks;
    let code = if code == result::SUCCESS && waits { result::IN_PROGRESS } else { code };
    // SAFETY: as this function's.
    unsafe { out.write(code) };
    Ok(())
}

/// Writes a number of a communicator.
///
/// # Safety
/// As NCCL's.
pub unsafe fn tell(
    comm: Comm,
    out: *mut c_int,
    name: &str,
    what: impl FnOnce(&Communicator) -> c_int,
) -> Result<()> {
    let out = place(out, name)?;
    // SAFETY: as this function's.
    let number = what(&*unsafe { known(comm)? });
    // SAFETY: as this function's.
    unsafe { out.write(number) };
    Ok(())
}

/// The number of a communicator's device.
pub fn device(communicator: &Communicator) -> c_int {
    communicator.device
}
