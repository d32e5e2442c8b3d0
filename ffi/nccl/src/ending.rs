//! How communicators end, but for [`finalize`]: destroyed, aborted, or revoked.

use crate::communicator::{Closed, Communicator, known};
use crate::counterpart::PAUSE;
use crate::failure::{Failure, Result};
use crate::finalize;
use crate::handle::{self, Used};
use crate::library::library;
use crate::types::Comm;
use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long an abort waits for calls to count as complete and for users to leave: as a rule, completion on devices becomes known
/// no later than this, and a thread that only looks at a communicator keeps it no longer.
const KNOWN_LATE: Duration = Duration::from_millis(100);

/// Destroys a communicator: waits for everybody who uses it, even only to look at it, and for its calls. Accepts null,
/// which is what a rank without a color gets from a split.
///
/// # Safety
/// As NCCL's.
pub unsafe fn destroy(comm: Comm) -> Result<()> {
    if comm.is_null() {
        return Ok(());
    }
    // SAFETY: as this function's.
    if let Some(Err(_)) = unsafe { handle::awaited(comm) } {
        // SAFETY: as this function's.
        unsafe { handle::give_up(comm) };
        return Ok(());
    }
    // SAFETY: as this function's.
    let communicator = unsafe { known(comm)? };
    communicator.destroy()?;
    communicator.wait_for_others();
    // Other threads may have launched its calls, in groups; they were told what failed.
    let _ = finalize::settle(&communicator);
    Ok(())
}

/// Ends the waits of all ranks in a communicator.
pub fn abort_end(communicator: &Communicator, why: &CStr) -> Result<()> {
    let library = library()?;
    if let Some(real) = &communicator.real {
        real.abort();
    }
    let why: *const c_char = why.as_ptr();
    // SAFETY: the handle lives, and the text ends with a zero.
    library.outcome(unsafe { (library.antiphon_communicator_abort)(communicator.end, why) })
}

/// Ends the waits of all ranks, unlike NCCL's abort, which concerns the calling rank alone. Therefore a rank that waits for
/// nothing leaves as if it destroyed the communicator, and its peers finish what they have under way. A communicator that is
/// still being made goes once it is made.
///
/// # Safety
/// As NCCL's.
pub unsafe fn abort(comm: Comm) -> Result<()> {
    // SAFETY: as this function's.
    if comm.is_null() || unsafe { handle::give_up(comm) } {
        return Ok(());
    }
    // A thread that waits in one of its calls returns and then lets go of it; so does one that destroys it and waits
    // for such threads.
    // SAFETY: as this function's.
    let communicator = unsafe { Used::also_leaving(comm)? };
    if communicator.destroy().is_err() {
        return abort_end(&communicator, c"ncclCommAbort was called");
    }
    if !waits_for_nothing(&communicator) {
        return abort_end(&communicator, c"ncclCommAbort was called");
    }
    if let Some(real) = &communicator.real {
        real.abort();
    }
    Ok(())
}

/// Whether nobody else uses the communicator of a destroyed handle, and its calls are complete without a failure.
fn waits_for_nothing(communicator: &Used) -> bool {
    let since = Instant::now();
    loop {
        // This also counts those who hold it without its handle, as a split in a group does.
        let alone = communicator.is_last() && Arc::strong_count(communicator) == 1;
        match finalize::is_through(communicator) {
            Ok(true) if alone => return true,
            Ok(_) if since.elapsed() < KNOWN_LATE => thread::sleep(PAUSE),
            _ => return false,
        }
    }
}

/// Ends the waits of all ranks, and leaves the communicator to be shrunk or destroyed.
///
/// # Safety
/// As NCCL's.
pub unsafe fn revoke(comm: Comm, flags: c_int) -> Result<()> {
    if comm.is_null() {
        return Ok(());
    }
    // SAFETY: as this function's.
    let communicator = unsafe { known(comm)? };
    if flags != 0 {
        return Err(Failure::argument(format!("cannot revoke with flags {flags}: allowed 0")));
    }
    if communicator.closed() == Some(Closed::Finalized) {
        return Err(Failure::argument("cannot revoke a communicator: it is finalized"));
    }
    communicator.set_revoked()?;
    abort_end(&communicator, c"ncclCommRevoke was called")
}
