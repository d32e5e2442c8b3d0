//! ROCm events.

use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::rocm::context::Context;
use crate::rocm::conv;
use crate::rocm::library::Code;
use hip_sys::hiprt as sys;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// It was not recorded yet.
const NOWHERE: u8 = 0;
/// It stands for work of a stream.
const STREAM: u8 = 1;
/// It stands for a point of a graph.
const GRAPH: u8 = 2;

/// A driver event without timing.
#[derive(Debug)]
pub(super) struct RocmEvent {
    raw: sys::hipEvent_t,
    /// Where its latest record went ([`NOWHERE`], [`STREAM`], [`GRAPH`]). To ask the driver about one that went into a
    /// graph would end the recording.
    place: AtomicU8,
    context: Arc<Context>,
}

// SAFETY: the driver synchronises access to its events; the handle never changes.
unsafe impl Send for RocmEvent {}
// SAFETY: as above.
unsafe impl Sync for RocmEvent {}

impl RocmEvent {
    /// An event that was not recorded yet.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, HalError> {
        let _entered = context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a valid place for the answer.
        let code = unsafe { (context.api().event_create)(&raw mut raw, conv::NO_TIMING) };
        context.api().check("make a HIP event", code)?;
        Ok(RocmEvent { raw, place: AtomicU8::new(NOWHERE), context: Arc::clone(context) })
    }

    /// The driver's event.
    pub(super) fn raw(&self) -> sys::hipEvent_t {
        self.raw
    }

    /// Notes whether its latest record went into a graph.
    pub(super) fn note(&self, graph: bool) {
        self.place.store(if graph { GRAPH } else { STREAM }, Ordering::Release);
    }

    /// Whether it stands for work of a stream, and not for a point of a graph.
    pub(super) fn is_of_stream(&self) -> bool {
        self.place.load(Ordering::Acquire) == STREAM
    }

    /// The event behind `event`, if it is one of this backend.
    pub(super) fn of<'a>(
        event: &'a dyn Event,
        what: &'static str,
    ) -> Result<&'a RocmEvent, HalError> {
        let any: &dyn std::any::Any = event;
        any.downcast_ref().ok_or_else(|| HalError::Invalid {
            what,
            saw: format!("an event of the {} backend", event.backend()),
            allowed: "one of the rocm backend".to_owned(),
            cure: "make the event on the stream's own device",
        })
    }
}

impl Event for RocmEvent {
    fn backend(&self) -> Backend {
        Backend::Rocm
    }

    fn query(&self) -> bool {
        if self.place.load(Ordering::Acquire) == GRAPH {
            return false;
        }
        let Ok(_entered) = self.context.enter() else { return true };
        // SAFETY: the event lives until this object is dropped.
        let code = unsafe { (self.context.api().event_query)(self.raw) };
        code != Code::NOT_READY
    }

    fn synchronize(&self) -> Result<(), HalError> {
        if self.place.load(Ordering::Acquire) == GRAPH {
            return Err(HalError::Invalid {
                what: "wait for a HIP event",
                saw: "an event that was recorded into a graph".to_owned(),
                allowed: "one that stands for work of a stream".to_owned(),
                cure: "launch the graph, and record an event behind it",
            });
        }
        let _entered = self.context.enter()?;
        // SAFETY: as above.
        let code = unsafe { (self.context.api().event_synchronize)(self.raw) };
        self.context.api().check("wait for a HIP event", code)
    }
}

impl Drop for RocmEvent {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: made by `new`, destroyed here alone; the driver frees it when the last wait for it is over.
            let _ = unsafe { (self.context.api().event_destroy)(self.raw) };
        }
    }
}
