//! What graphs keep that applications record: objects that live as long as they do.

use crate::gpu::lock;
use std::any::Any;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// What a graph keeps.
pub(crate) type Object = Arc<dyn Any + Send + Sync>;

/// What graphs that are gone have kept. The driver tells on a thread of its own that may not call it, and to let go of
/// memory does: so another thread does it.
static GONE: Mutex<Vec<Object>> = Mutex::new(Vec::new());

/// Lets go of what graphs have kept that are gone.
pub(crate) fn let_go() {
    let gone = std::mem::take(&mut *lock(&GONE));
    drop(gone);
}

/// The pointer for a driver that calls [`release`] with it, or for [`take_back`].
pub(crate) fn hand_over(object: Object) -> *mut c_void {
    Box::into_raw(Box::new(object)).cast()
}

/// The object of a pointer that no driver took.
///
/// # Safety
///
/// [`hand_over`] made the pointer, and nothing else uses it.
pub(crate) unsafe fn take_back(data: *mut c_void) -> Object {
    // SAFETY: the caller vouches for the pointer.
    *unsafe { Box::from_raw(data.cast::<Object>()) }
}

/// Called by the driver when nothing needs the object any more.
///
/// # Safety
///
/// As for [`take_back`].
pub(crate) unsafe extern "C" fn release(data: *mut c_void) {
    // SAFETY: the driver calls once for each object.
    let object = unsafe { take_back(data) };
    lock(&GONE).push(object);
}
