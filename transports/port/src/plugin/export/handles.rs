//! What the program's pointers to ends, registrations, openings and links point to, and all that is done with them.
//!
//! Each kind of pointer is a [`Handle`], whose object is in a [`Box`] that [`give_handle`] made and that [`close`] or [`take`]
//! ends; no other pointer of that type leaves this plugin. What the program does with them, `antiphon_wire.h` says, and the
//! functions here rely on three of its promises:
//! - *Handles.* A pointer to an object is one that this plugin gave, and that was not closed or connected since.
//! - *Threads.* Any thread may call any function at any time, but the call that ends an object is the last one with it, and no
//!   other is under way then. So an object is shared by reference until it is ended by value; every one is `Sync`.
//! - *Arguments.* What else pointers point to (arguments, room for results, for texts and for an error) is there for the call, and
//!   no other thread uses it meanwhile. Where it begins with its size it is as long as that says.

use super::guarded;
use crate::WireError;
use crate::plugin::abi;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A kind of pointer that the program holds.
pub(super) trait Handle: Sized {
    /// What is behind it. Any thread may use it, and any may end it.
    type Object: Send + Sync;
}

/// Puts an object where the program finds it.
///
/// # Safety
/// `place` is room for a pointer.
pub(super) unsafe fn give_handle<H: Handle>(place: *mut *mut H, object: H::Object) {
    // SAFETY: the caller's promise.
    unsafe { place.write(Box::into_raw(Box::new(object)).cast()) }
}

/// Puts a result where the program finds it.
///
/// # Safety
/// `place` is room for it.
pub(super) unsafe fn give_result<T>(place: *mut T, result: T) {
    // SAFETY: the caller's promise.
    unsafe { place.write(result) }
}

/// Runs a function of the plugin's on an object, and tells what went wrong.
///
/// # Safety
/// `handle` keeps the promises on handles and threads, and `error` that on arguments.
pub(super) unsafe fn with<H: Handle>(
    handle: *mut H,
    error: *mut abi::Error,
    function: impl FnOnce(&H::Object) -> Result<i32, WireError>,
) -> i32 {
    // SAFETY: the object is in a box until the call that ends it, which does not come before this one has returned; the
    // reference does not outlive this call, for `function` takes one of any lifetime.
    let run = || function(unsafe { &*handle.cast::<H::Object>() });
    // SAFETY: the caller's promise.
    unsafe { guarded(error, run) }
}

/// Runs a function that cannot report an error on an object; a panic gives `otherwise`.
///
/// # Safety
/// `handle` keeps the promises on handles and threads.
pub(super) unsafe fn quietly_with<H: Handle, T>(
    handle: *mut H,
    otherwise: T,
    function: impl FnOnce(&H::Object) -> T,
) -> T {
    // SAFETY: as in `with`.
    let run = || function(unsafe { &*handle.cast::<H::Object>() });
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(otherwise)
}

/// Takes an object back: the handle is none from now on.
///
/// # Safety
/// `handle` keeps the promises on handles and threads, and this is the call that ends it.
pub(super) unsafe fn take<H: Handle>(handle: *mut H) -> Box<H::Object> {
    // SAFETY: `give_handle` made it from such a box; nobody takes it back twice, or uses it meanwhile or afterwards.
    unsafe { Box::from_raw(handle.cast::<H::Object>()) }
}

/// Ends an object.
///
/// # Safety
/// As [`take`].
pub(super) unsafe fn close<H: Handle>(handle: *mut H) {
    // SAFETY: the caller's promise.
    let object = unsafe { take(handle) };
    // A panic in a wire's drop ends here; nobody could be told.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(object)));
}
