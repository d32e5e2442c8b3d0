//! Graphs that applications record: objects that live as long as they do.

use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::keep::{Object, hand_over, release, take_back};
use crate::rocm::conv;
use crate::rocm::library::Api;
use hip_sys::hiprt as sys;
use std::ptr;

pub(super) use crate::gpu::keep::let_go;

/// Keeps `object` while the graph lives that `stream` is being recorded into. The stream's device must be current.
pub(super) fn keep(api: &Api, stream: sys::hipStream_t, object: Object) -> Result<(), HalError> {
    let what = "keep an object for a HIP graph";
    let (Some(info), Some(create), Some(retain), Some(release_object)) =
        (api.capture_info, api.object_create, api.object_retain, api.object_release)
    else {
        return Err(HalError::Unsupported {
            op: "keep an object for a graph",
            backend: Backend::Rocm,
        });
    };
    let (mut status, mut id, mut graph) = (0, 0, ptr::null_mut());
    // SAFETY: all three are valid places for the answers; the nodes are not asked for.
    let code = unsafe {
        info(stream, &raw mut status, &raw mut id, &raw mut graph, ptr::null_mut(), ptr::null_mut())
    };
    api.check(what, code)?;
    if !conv::is_capturing(status) || graph.is_null() {
        return Err(HalError::Invalid {
            what,
            saw: "a stream that is not being recorded".to_owned(),
            allowed: "one that is".to_owned(),
            cure: "ask whether the stream is being recorded first",
        });
    }
    let data = hand_over(object);
    let mut raw = ptr::null_mut();
    // SAFETY: `raw` is a valid place for the answer; `release` takes the data back, once.
    let code = unsafe { create(&raw mut raw, data, Some(release), 1, conv::NO_DESTRUCTOR_SYNC) };
    if let Err(error) = api.check(what, code) {
        // SAFETY: the driver did not take it.
        drop(unsafe { take_back(data) });
        return Err(error);
    }
    // SAFETY: the driver gave the graph, which lives while it is recorded; the one count of the object goes to it.
    let code = unsafe { retain(graph, raw, 1, conv::MOVE_TO_GRAPH) };
    if let Err(error) = api.check(what, code) {
        // SAFETY: the count is still ours.
        let _ = unsafe { release_object(raw, 1) };
        return Err(error);
    }
    Ok(())
}
