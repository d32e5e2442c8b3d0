//! NCCL's finalize: no more calls begin, and those that have begun come to their ends.

use crate::communicator::{Closed, Communicator, known};
use crate::counterpart::{Counterpart, PAUSE};
use crate::failure::{Failure, Progress, Result};
use crate::group;
use crate::library::library;
use crate::types::{Comm, result};
use std::sync::Arc;
use std::thread;

/// Lets no more calls of a communicator begin, and completes those that have: now, or when this thread's group ends, which
/// launches what it has gathered. With a communicator that need not block it returns at once, and the program asks whether
/// something is still under way.
///
/// # Safety
/// As NCCL's.
pub unsafe fn finalize(comm: Comm) -> Result<Progress> {
    if comm.is_null() {
        return Ok(Progress::Done);
    }
    // SAFETY: as this function's.
    let used = unsafe { known(comm)? };
    let communicator = Arc::clone(&used);
    if communicator.is_revoked() {
        return Err(Failure::argument(
            "cannot finalize a communicator: it is revoked; shrink or destroy it",
        ));
    }
    communicator.close(Closed::Finalized).map_err(|failure| match communicator.closed() {
        Some(Closed::Finalized) => Failure { code: result::INVALID_ARGUMENT, ..failure },
        _ => failure,
    })?;
    group::finally(communicator)
}

/// Lets calls begin again on communicators that their group did not finalize after all.
pub fn take_back(communicators: &[Arc<Communicator>]) {
    communicators.iter().for_each(|one| one.reopen());
}

/// Completes the calls of communicators that one thread finalizes together; if a communicator need not block, its calls may still
/// be under way on return.
pub fn complete(communicators: &[Arc<Communicator>]) -> Result<Progress> {
    // All begin before one waits: in the real library, ranks of a node may end together.
    let mut counterparts = communicators.iter().filter_map(|one| one.real.as_ref());
    counterparts.try_for_each(Counterpart::finalize)?;
    let (blocking, others): (Vec<_>, Vec<_>) = communicators.iter().partition(|one| one.blocking);
    let settled = |one: &Arc<Communicator>| match settle(one) {
        Err(_) if one.is_outlived() => Ok(()),
        outcome => outcome,
    };
    blocking.into_iter().try_for_each(settled)?;
    others.into_iter().try_fold(Progress::Done, |progress, one| {
        let under_way = is_under_way(one)?;
        Ok(progress.and(if under_way { Progress::UnderWay } else { Progress::Done }))
    })
}

/// Waits until the calls of a communicator are complete. It has no time limit of its own: the limit on their progress
/// is enforced elsewhere.
///
/// # Errors
/// What broke it.
pub fn settle(communicator: &Communicator) -> Result<()> {
    while !is_through(communicator)? {
        thread::sleep(PAUSE);
    }
    communicator.real.as_ref().map_or(Ok(()), Counterpart::settle)
}

/// Whether calls that Antiphon makes are complete.
///
/// # Errors
/// What broke their communicator.
pub fn is_through(communicator: &Communicator) -> Result<bool> {
    // Asked before what broke it: a call that failed counts as complete, and the later question then finds its failure.
    let is_complete = is_complete(communicator)?;
    let (library, mut code) = (library()?, 0);
    // SAFETY: the handle lives, and the place is writable.
    library.outcome(unsafe {
        (library.antiphon_communicator_async_error)(communicator.end, &mut code)
    })?;
    library.outcome(code)?;
    Ok(is_complete)
}

/// Whether all calls that Antiphon makes are complete; a call that failed counts as complete.
fn is_complete(communicator: &Communicator) -> Result<bool> {
    let (library, mut done) = (library()?, 0);
    // SAFETY: the handle lives, and the place is writable.
    let asked = unsafe { (library.antiphon_communicator_query)(communicator.end, &mut done) };
    library.outcome(asked)?;
    Ok(done != 0)
}

/// Whether others are being made of a communicator, or it is finalized or revoked and has calls under way.
pub fn is_under_way(communicator: &Communicator) -> Result<bool> {
    if communicator.making.is_under_way() {
        return Ok(true);
    }
    if communicator.closed().is_none() && !communicator.is_revoked() {
        return Ok(false);
    }
    let there = communicator.real.as_ref().is_some_and(Counterpart::is_under_way);
    Ok(there || !is_complete(communicator)?)
}
