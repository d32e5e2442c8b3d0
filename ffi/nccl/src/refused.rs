//! Functions that are refused here, with the reason; and those for parameters, of which there are none.

use crate::communicator::{known, place, vacant};
use crate::failure::{Failure, Result};
use crate::types::{Comm, Param};
use crate::way;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;

/// Why a function does nothing.
pub fn because(what: &str, why: &str) -> Failure {
    Failure::usage(format!("cannot {what}: {why}"))
}

/// Refuses something of a communicator.
///
/// # Safety
/// As NCCL's.
pub unsafe fn of(comm: Comm, what: &str, why: &str) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { known(comm)? };
    Err(because(what, why))
}

/// Refuses to add ranks to a communicator: it makes none.
///
/// # Safety
/// As NCCL's.
pub unsafe fn grow(out: *mut Comm, why: &str) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { vacant(out, "newcomm")? };
    Err(because("add ranks to a communicator", why))
}

/// Refuses to give a communicator's memory back for a time.
///
/// # Safety
/// As NCCL's.
pub unsafe fn suspend(comm: Comm) -> Result<()> {
    let why = match way::place().is_device() {
        true => {
            "its memory on devices stays as long as it does; destroy it, and make another later"
        }
        false => "it has no memory on GPUs to release",
    };
    // SAFETY: as this function's.
    unsafe { of(comm, "suspend a communicator", why) }
}

/// Memory of a communicator on GPUs: on the host there is none, and on devices nobody counts it.
///
/// # Safety
/// As NCCL's.
pub unsafe fn memory(comm: Comm, which: c_int, out: *mut u64) -> Result<()> {
    let out = place(out, "value")?;
    // SAFETY: as this function's.
    unsafe { known(comm)? };
    if !(0..=3).contains(&which) {
        let text = format!("cannot tell of memory: saw {which}, allowed 0 to 3");
        return Err(Failure::argument(text));
    }
    if way::place().is_device() {
        return Err(because(
            "tell of memory",
            "what a communicator has on devices is not counted here; ask the driver",
        ));
    }
    // SAFETY: as this function's.
    unsafe { out.write(0) };
    Ok(())
}

/// Refuses a parameter by its name.
///
/// # Safety
/// The name is null, or ends with a zero.
pub unsafe fn parameter(name: *const c_char) -> Result<()> {
    if name.is_null() {
        return Err(Failure::argument("cannot find a parameter: saw null, allowed a name"));
    }
    // SAFETY: as this function's.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    Err(Failure::argument(format!("cannot find the parameter {name}: there are none here")))
}

/// Refuses a parameter's handle: there are none.
pub fn parameter_handle(handle: Param) -> Result<()> {
    Err(Failure::argument(format!("cannot read a parameter: {handle:p} is none's handle")))
}

/// Writes the names of all parameters: none.
///
/// # Safety
/// As NCCL's.
pub unsafe fn parameters(table: *mut *mut *const c_char, length: *mut c_int) -> Result<()> {
    let (table, length) = (place(table, "table")?, place(length, "tableLen")?);
    // SAFETY: as this function's.
    unsafe {
        table.write(ptr::null_mut());
        length.write(0);
    }
    Ok(())
}
