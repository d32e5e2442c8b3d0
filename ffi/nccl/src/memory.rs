//! Memory that peers map, and buffers that a program registers.

use crate::communicator::{Communicator, known, place, usable};
use crate::failure::{Failure, Result};
use crate::library::{Handle, library};
use crate::types::{Comm, Window};
use crate::way;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory that was allocated, by its address.
static ALLOCATED: Mutex<BTreeMap<usize, Allocated>> = Mutex::new(BTreeMap::new());

struct Allocated(Handle);

// SAFETY: the handle may be used by any thread, says `antiphon.h`.
unsafe impl Send for Allocated {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allocates memory that calls use without a copy, on the device that is current.
///
/// # Safety
/// As NCCL's.
pub unsafe fn allocate(out: *mut *mut c_void, bytes: usize) -> Result<()> {
    let (out, library) = (place(out, "ptr")?, library()?);
    let (mut memory, mut address) = (ptr::null_mut(), ptr::null_mut());
    let device = way::place().devices([way::place().current()?])?;
    // SAFETY: the places are writable, and the second call's handle is what the first one made.
    unsafe {
        library.outcome((library.antiphon_memory_allocate_on)(
            device.as_ptr(),
            bytes as u64,
            &mut memory,
        ))?;
        library.outcome((library.antiphon_memory_address)(memory, &mut address))?;
        out.write(address);
    }
    lock(&ALLOCATED).insert(address.addr(), Allocated(memory));
    Ok(())
}

/// Gives memory back; null is none.
///
/// # Safety
/// As NCCL's.
pub unsafe fn free(at: *mut c_void) -> Result<()> {
    if at.is_null() {
        return Ok(());
    }
    let library = library()?;
    let Some(Allocated(memory)) = lock(&ALLOCATED).remove(&at.addr()) else {
        let text = format!("cannot free {at:p}: allowed what ncclMemAlloc gave and was not freed");
        return Err(Failure::argument(text));
    };
    // SAFETY: the handle is one, and nobody else has it any more.
    library.outcome(unsafe { (library.antiphon_memory_free)(memory) })
}

/// What was registered with a communicator. Peers have heard of it, where they can map it; calls find out by themselves how each
/// buffer is reached best.
#[derive(Default)]
pub struct Registered(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    last: usize,
    /// Buffers by handle.
    buffers: BTreeMap<usize, usize>,
    /// Windows by handle.
    windows: BTreeMap<usize, usize>,
}

impl Kept {
    /// A handle that none had before: no address, and not null.
    fn handle(&mut self) -> usize {
        self.last += 1;
        self.last
    }
}

fn check(buffer: *mut c_void, bytes: usize) -> Result<()> {
    if !buffer.is_null() && bytes > 0 {
        return Ok(());
    }
    Err(Failure::argument(format!("cannot register {bytes} bytes at {buffer:p}: allowed a buffer")))
}

/// Has peers map a buffer before the first call that uses it, where they can.
fn tell(communicator: &Communicator, buffer: *mut c_void, bytes: usize) -> Result<()> {
    let (library, mut mapped) = (library()?, 0);
    // SAFETY: the handle lives, and the place is writable.
    library.outcome(unsafe {
        (library.antiphon_communicator_register)(
            communicator.end,
            buffer,
            bytes as u64,
            &mut mapped,
        )
    })
}

fn unknown(handle: *mut c_void) -> String {
    format!("cannot use {handle:p}: allowed what this communicator has registered")
}

/// # Safety
/// As NCCL's.
pub unsafe fn register(
    comm: Comm,
    buffer: *mut c_void,
    bytes: usize,
    out: *mut *mut c_void,
) -> Result<()> {
    let out = place(out, "handle")?;
    // SAFETY: as this function's.
    let communicator = unsafe { usable(comm)? };
    check(buffer, bytes)?;
    tell(&communicator, buffer, bytes)?;
    let mut kept = lock(&communicator.registered.0);
    let handle = kept.handle();
    kept.buffers.insert(handle, buffer.addr());
    // SAFETY: as this function's.
    unsafe { out.write(ptr::without_provenance_mut(handle)) };
    Ok(())
}

/// # Safety
/// As NCCL's.
pub unsafe fn deregister(comm: Comm, handle: *mut c_void) -> Result<()> {
    // SAFETY: as this function's.
    let communicator = unsafe { known(comm)? };
    let removed = lock(&communicator.registered.0).buffers.remove(&handle.addr());
    if removed.is_some() || handle.is_null() {
        return Ok(());
    }
    Err(Failure::usage(unknown(handle)))
}

/// # Safety
/// As NCCL's.
pub unsafe fn register_window(
    comm: Comm,
    buffer: *mut c_void,
    bytes: usize,
    out: *mut Window,
    flags: c_int,
) -> Result<()> {
    let out = place(out, "win")?;
    // SAFETY: as this function's.
    let communicator = unsafe { usable(comm)? };
    check(buffer, bytes)?;
    // Symmetric, in strict order; what is for certain network cards alone would be of no use.
    if flags & !3 != 0 {
        let text = format!("cannot register a window with flags {flags:#x}: allowed 0 to 3");
        return Err(Failure::usage(text));
    }
    tell(&communicator, buffer, bytes)?;
    let mut kept = lock(&communicator.registered.0);
    let handle = kept.handle();
    kept.windows.insert(handle, buffer.expose_provenance());
    // SAFETY: as this function's.
    unsafe { out.write(ptr::without_provenance_mut(handle)) };
    Ok(())
}

/// # Safety
/// As NCCL's.
pub unsafe fn deregister_window(comm: Comm, window: Window) -> Result<()> {
    // SAFETY: as this function's.
    let communicator = unsafe { known(comm)? };
    let removed = lock(&communicator.registered.0).windows.remove(&window.addr());
    if removed.is_some() || window.is_null() {
        return Ok(());
    }
    Err(Failure::argument(unknown(window)))
}

/// # Safety
/// As NCCL's.
pub unsafe fn window_address(comm: Comm, window: Window, out: *mut *mut c_void) -> Result<()> {
    let out = place(out, "outUserPtr")?;
    // SAFETY: as this function's.
    let communicator = unsafe { known(comm)? };
    let address = lock(&communicator.registered.0).windows.get(&window.addr()).copied();
    let address = address.ok_or_else(|| Failure::argument(unknown(window)))?;
    // SAFETY: as this function's.
    unsafe { out.write(ptr::with_exposed_provenance_mut(address)) };
    Ok(())
}
