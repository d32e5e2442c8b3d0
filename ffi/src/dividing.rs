//! Communicators of some ranks of others, and which ranks are lost.

use crate::communicator::{antiphon_communicator, handle};
use crate::entry::{Out, entry, list, text};
use crate::handle::borrow;
use crate::result::{Failure, antiphon_result};
use antiphon_executor::Collectives;
use std::ffi::c_char;
use std::ptr;

/// Divides the ranks into groups: ranks of one color form a new one, ordered by key, then by rank. The bits of a key are read
/// as an `int32_t`, so it may be negative. Every rank calls it; one that passes a negative color joins none, and gets null. If the
/// communicator is called "dp", the new one of color 2 is called "dp/2".
///
/// Any thread may call it, in the same order among a communicator's calls on all ranks.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_communicator` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_split(
    communicator: *const antiphon_communicator,
    color: i32,
    key: u32,
    out_communicator: *mut *mut antiphon_communicator,
) -> antiphon_result {
    // SAFETY: as this function's; there is no name.
    unsafe {
        antiphon_communicator_split_as(communicator, color, key, ptr::null(), out_communicator)
    }
}

/// As antiphon_communicator_split, with a name for the new communicator, as antiphon_config has it. Null takes the one that a split
/// gives. Ranks may differ.
///
/// Any thread may call it, in the same order among a communicator's calls on all ranks.
///
/// # Safety
/// As antiphon_communicator_split; the name is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_split_as(
    communicator: *const antiphon_communicator,
    color: i32,
    key: u32,
    name: *const c_char,
    out_communicator: *mut *mut antiphon_communicator,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_communicator, "out_communicator")?;
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(communicator)? };
        // SAFETY: as this function's.
        let name = unsafe { name_of(name)? };
        let color = u32::try_from(color).ok();
        let group = collectives.communicator().split_as(color, key.cast_signed(), name)?;
        let handle = group.as_ref().map_or(Ok(ptr::null_mut()), handle)?;
        // SAFETY: as this function's.
        unsafe { out.set(handle) };
        Ok(())
    })
}

/// The name that a caller gives, if any.
///
/// # Safety
/// It is null, or ends with a zero and lives for `'a`.
unsafe fn name_of<'a>(name: *const c_char) -> Result<Option<&'a str>, Failure> {
    if name.is_null() {
        return Ok(None);
    }
    // SAFETY: as this function's.
    unsafe { text(name, "name") }.map(Some)
}

/// Makes a communicator of some ranks of another, in the order of the list: each of the `count` listed ranks calls it with the
/// same list, and the others take no part. It also works if the other communicator is broken, if the listed ranks are alive.
/// antiphon_communicator_lost tells which ranks are not. If a listed rank is lost meanwhile, it fails with
/// ANTIPHON_RESULT_PEER_LOST, or with ANTIPHON_RESULT_ABORTED where another rank found that out first. The new communicator has the
/// other one's name.
///
/// Any thread may call it, in the same order among calls with the same list on all ranks of the list.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; the list is null or as long as said;
/// `out_communicator` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_subset(
    communicator: *const antiphon_communicator,
    ranks: *const u32,
    count: u32,
    out_communicator: *mut *mut antiphon_communicator,
) -> antiphon_result {
    // SAFETY: as this function's; there is no name.
    unsafe {
        antiphon_communicator_subset_as(communicator, ranks, count, ptr::null(), out_communicator)
    }
}

/// As antiphon_communicator_subset, with a name for the new communicator, as antiphon_config has it. Null takes the other one's.
/// Ranks may differ.
///
/// Any thread may call it, in the same order among calls with the same list on all ranks of the list.
///
/// # Safety
/// As antiphon_communicator_subset; the name is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_subset_as(
    communicator: *const antiphon_communicator,
    ranks: *const u32,
    count: u32,
    name: *const c_char,
    out_communicator: *mut *mut antiphon_communicator,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_communicator, "out_communicator")?;
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(communicator)? };
        // SAFETY: as this function's.
        let ranks = unsafe { list(ranks, u64::from(count), "ranks")? };
        // SAFETY: as this function's.
        let name = unsafe { name_of(name)? };
        let handle = handle(&collectives.communicator().subset_as(ranks, name)?)?;
        // SAFETY: as this function's.
        unsafe { out.set(handle) };
        Ok(())
    })
}

/// Writes the ranks that this rank knows to be gone, in order, to an array that has room for `capacity` of them (that of the
/// communicator's ranks is enough), and their number to `out_count`: they have died, have left the communicator, or cannot be
/// reached any more. It tells them also when the communicator is broken, and of those that went later than what broke it; ranks
/// may come to know of a loss at different times. Does not wait.
///
/// With a null array and a capacity of 0 it writes only the number. If the array is too small, it fails with
/// ANTIPHON_RESULT_BUFFER_TOO_SMALL.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_ranks` is null or has room for
/// `capacity`, `out_count` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_lost(
    communicator: *const antiphon_communicator,
    out_ranks: *mut u32,
    capacity: u32,
    out_count: *mut u32,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_count, "out_count")?;
        // SAFETY: as this function's.
        let lost = unsafe { borrow::<Collectives>(communicator)? }.communicator().lost();
        if capacity > 0 || !out_ranks.is_null() {
            Out::new(out_ranks, "out_ranks")?;
            if lost.len() > capacity as usize {
                let needed = lost.len();
                return Err(Failure::new(
                    antiphon_result::BufferTooSmall,
                    format!(
                        "cannot write the lost ranks: saw room for {capacity}, needed {needed}"
                    ),
                ));
            }
            for (at, &rank) in lost.iter().enumerate() {
                // SAFETY: there is room for as many as the capacity.
                unsafe { out_ranks.wrapping_add(at).write(rank) };
            }
        }
        // SAFETY: as this function's.
        unsafe { out.set(lost.len() as u32) };
        Ok(())
    })
}
