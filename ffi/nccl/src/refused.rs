//! What is not done here, and why; and parameters, of which there are none.

use crate::communicator::{known, place};
use crate::failure::{Failure, Result};
use crate::types::{Comm, Param};
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

/// Memory of a communicator on GPUs: there is none.
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
