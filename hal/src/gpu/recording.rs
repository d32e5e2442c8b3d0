//! Graphs that applications record: work of ours that is no part of them, and objects that live as long as they do.

use crate::error::HalError;
use crate::gpu::calls::RawStream;
use crate::gpu::code::{Code, MOVE_TO_GRAPH, NO_DESTRUCTOR_SYNC, RELAXED, is_capturing};
use crate::gpu::keep::{Kept, hand_over, release, take_back};
use crate::gpu::library::Api;
use crate::gpu::vendor::{Vendor, unsupported};
use std::ffi::c_uint;
use std::marker::PhantomData;
use std::ptr;

/// Lifts, for the calling thread, the rule that nothing is allocated while any stream of the process is recorded
/// into a graph: what is done here is not part of such a graph.
#[derive(Debug)]
pub(crate) struct Unrecorded {
    /// The call that changes the rule, with what it was before.
    before: Option<(unsafe extern "C" fn(*mut c_uint) -> Code, c_uint)>,
    thread: PhantomData<*const ()>,
}

impl Unrecorded {
    /// Until the result is dropped.
    pub(crate) fn new<V: Vendor>(api: &Api<V>) -> Self {
        let mut mode = RELAXED;
        let before = api.capture_mode.and_then(|exchange| {
            // SAFETY: `mode` holds one of the driver's modes, and takes the one before.
            (unsafe { exchange(&raw mut mode) } == Code::SUCCESS).then_some((exchange, mode))
        });
        Unrecorded { before, thread: PhantomData }
    }
}

impl Drop for Unrecorded {
    fn drop(&mut self) {
        if let Some((exchange, mut mode)) = self.before {
            // SAFETY: `mode` is what the driver answered before.
            let _ = unsafe { exchange(&raw mut mode) };
        }
    }
}

/// Keeps an object while the graph lives that `stream` is being recorded into. The stream's context must be current.
pub(crate) fn keep<V: Vendor>(api: &Api<V>, stream: RawStream, kept: Kept) -> Result<(), HalError> {
    let what = "keep an object for a graph";
    let (Some(info), Some(create), Some(retain), Some(release_object)) =
        (api.capture_info, api.object_create, api.object_retain, api.object_release)
    else {
        return unsupported::<V, _>(what);
    };
    let (mut status, mut id, mut graph) = (0, 0, ptr::null_mut());
    // SAFETY: all three are valid places for the answers; the nodes are not asked for.
    let code = unsafe {
        info(stream, &raw mut status, &raw mut id, &raw mut graph, ptr::null_mut(), ptr::null_mut())
    };
    api.check(what, code)?;
    if !is_capturing(status) || graph.is_null() {
        return Err(HalError::Invalid {
            what,
            saw: "a stream that is not being recorded".to_owned(),
            allowed: "one that is".to_owned(),
            cure: "ask whether the stream is being recorded first",
        });
    }
    let data = hand_over(kept);
    let mut raw = ptr::null_mut();
    // SAFETY: `raw` is a valid place for the answer; `release` takes the data back, once.
    let code = unsafe { create(&raw mut raw, data, Some(release), 1, NO_DESTRUCTOR_SYNC) };
    if let Err(error) = api.check(what, code) {
        // SAFETY: the driver did not take it.
        drop(unsafe { take_back(data) });
        return Err(error);
    }
    // SAFETY: the driver gave the graph, which lives while it is recorded; the one count of the object goes to it.
    let code = unsafe { retain(graph, raw, 1, MOVE_TO_GRAPH) };
    if let Err(error) = api.check(what, code) {
        // SAFETY: the count is still ours.
        let _ = unsafe { release_object(raw, 1) };
        return Err(error);
    }
    Ok(())
}
