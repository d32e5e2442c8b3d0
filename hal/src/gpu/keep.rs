//! Objects that graphs keep which applications record: they live as long as the graphs.

use crate::driver::Backend;
use crate::gpu::calls::Device;
use crate::gpu::lock;
use std::any::Any;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// What a graph keeps.
pub(crate) type Object = Arc<dyn Any + Send + Sync>;

/// An object, and the device on which its graph was recorded.
pub(crate) struct Kept {
    pub(crate) object: Object,
    pub(crate) device: (Backend, Device),
}

/// Objects of graphs that are gone. The driver tells of them on a thread of its own, which must not call the driver; dropping
/// memory does, and may also wait for kernels. So a thread that knows of no kernels takes them.
static GONE: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// Takes the objects that graphs of a device have kept, once these graphs are gone.
pub(crate) fn take(device: (Backend, Device)) -> Vec<Object> {
    let mut gone = lock(&GONE);
    gone.extract_if(.., |kept| kept.device == device).map(|kept| kept.object).collect()
}

/// The pointer for a driver that calls [`release`] with it, or for [`take_back`].
pub(crate) fn hand_over(kept: Kept) -> *mut c_void {
    Box::into_raw(Box::new(kept)).cast()
}

/// The object of a pointer that no driver took.
///
/// # Safety
///
/// [`hand_over`] made the pointer, and nothing else uses it.
pub(crate) unsafe fn take_back(data: *mut c_void) -> Kept {
    // SAFETY: the caller vouches for the pointer.
    *unsafe { Box::from_raw(data.cast::<Kept>()) }
}

/// Called by the driver when nothing needs the object any more.
///
/// # Safety
///
/// As for [`take_back`].
pub(crate) unsafe extern "C" fn release(data: *mut c_void) {
    // SAFETY: the driver calls once for each object.
    let kept = unsafe { take_back(data) };
    lock(&GONE).push(kept);
}
