//! Communicators that are made of others. The parent decides whether the call waits until the new one is made; the configuration
//! that is passed for the new one is for its own calls.

use crate::communicator::{Closed, blocks, known, list, vacant, whole};
use crate::ending::abort_end;
use crate::failure::{Failure, Progress, Result};
use crate::group;
use crate::library::library;
use crate::making::Ask;
use crate::naming::{named, pointer};
use crate::numbers;
use crate::types::{Comm, Config};
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

/// Divides a communicator, now or when the thread's group ends.
///
/// # Safety
/// As NCCL's.
pub unsafe fn split(
    comm: Comm,
    color: c_int,
    key: c_int,
    out: *mut Comm,
    config: *const Config,
) -> Result<Progress> {
    // SAFETY: as this function's.
    let (out, parent) = unsafe { (vacant(out, "newcomm")?, group::parent(comm)?) };
    // SAFETY: as this function's.
    let (own, name) = unsafe { (blocks(config, parent.blocking)?, named(config)) };
    parent.is_not_revoked()?;
    if color < -1 {
        return Err(Failure::argument(format!(
            "cannot split by color {color}: allowed 0 and more, and -1"
        )));
    }
    let joins = color >= 0;
    let blocking = parent.blocking;
    let under_way = (!blocking).then(|| parent.making.begin(false));
    let whose = Some(Arc::clone(&parent));
    let ask = Ask { out, parent: whose, blocking, joins, under_way, divides: true };
    let make = move || {
        let library = library()?;
        let mut end = ptr::null_mut();
        // SAFETY: the parent and the name live, and the place is writable.
        let code = unsafe {
            let (key, name) = (key.cast_unsigned(), pointer(name.as_deref()));
            (library.antiphon_communicator_split_as)(parent.end, color, key, name, &mut end)
        };
        library.outcome(code)?;
        if end.is_null() { Ok(None) } else { whole(end, parent.device, own).map(Some) }
    };
    // SAFETY: the place is writable until the group ends, as NCCL's contract has it.
    unsafe { group::join(ask, make) }
}

/// Makes a communicator of those that are not listed, now or when the thread's group ends.
///
/// # Safety
/// As NCCL's.
pub unsafe fn shrink(
    comm: Comm,
    excluded: *const c_int,
    count: c_int,
    out: *mut Comm,
    config: *const Config,
    flags: c_int,
) -> Result<Progress> {
    // SAFETY: as this function's.
    let out = unsafe { vacant(out, "newcomm")? };
    // Keeps the communicator without a use of its handle, so that a destroy meanwhile does not wait for this.
    // SAFETY: as this function's.
    let parent = Arc::clone(&*unsafe { known(comm)? });
    // SAFETY: as this function's.
    let (own, name) = unsafe { (blocks(config, parent.blocking)?, named(config)) };
    if ![0, 1].contains(&flags) {
        return Err(Failure::argument(format!(
            "cannot shrink with flags {flags}: allowed 0 and 1"
        )));
    }
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the list is as long as said.
    let excluded = unsafe { list(excluded, count, "ranks to exclude")? }.unwrap_or_default();
    if excluded.is_empty() {
        return Err(Failure::argument("cannot shrink: saw no ranks to exclude, allowed 1 or more"));
    }
    let mut gone = BTreeSet::new();
    for &rank in excluded {
        let number = numbers::rank(rank, "a rank to exclude")?;
        if number >= parent.world || number == parent.rank {
            return Err(Failure::argument(format!(
                "cannot exclude rank {rank}: allowed ranks of the communicator other than the caller, {}",
                parent.rank
            )));
        }
        gone.insert(number);
    }
    // With an abort the parent may be closed by a division in which others are stuck: that one is left alone.
    let divides = flags == 0;
    if divides || parent.closed() == Some(Closed::Finalized) {
        // SAFETY: as this function's.
        unsafe { group::parent(comm)? };
    }
    // Begun before the abort, so that whoever asks what broke it hears that it is being shrunk.
    let blocking = parent.blocking;
    let under_way = (!blocking).then(|| parent.making.begin(true));
    if !divides {
        abort_end(&parent, c"the communicator is shrunk")?;
    }
    let whose = Some(Arc::clone(&parent));
    let ask = Ask { out, parent: whose, blocking, joins: true, under_way, divides };
    let rest: Vec<u32> = (0..parent.world).filter(|rank| !gone.contains(rank)).collect();
    let make = move || {
        let library = library()?;
        let mut end = ptr::null_mut();
        let count = rest.len() as u32;
        // SAFETY: the parent and the name live, the list is as long as said, and the place is writable.
        let code = unsafe {
            let (rest, name) = (rest.as_ptr(), pointer(name.as_deref()));
            (library.antiphon_communicator_subset_as)(parent.end, rest, count, name, &mut end)
        };
        library.outcome(code)?;
        let shrunk = whole(end, parent.device, own)?;
        // One that is as it was goes on, and tells what breaks it later.
        if !divides || parent.what_broke().is_err() {
            parent.outlive();
        }
        Ok(Some(shrunk))
    };
    // SAFETY: the place is writable until the group ends, as NCCL's contract has it.
    unsafe { group::join(ask, make) }
}
