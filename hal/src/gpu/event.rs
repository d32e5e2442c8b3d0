//! Events of GPUs.

use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::gpu::calls::RawEvent;
use crate::gpu::code::{Code, NO_TIMING};
use crate::gpu::recording::Unrecorded;
use crate::gpu::vendor::{Context, Vendor};
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
pub(crate) struct GpuEvent<V: Vendor> {
    raw: RawEvent,
    /// Where its latest record went ([`NOWHERE`], [`STREAM`], [`GRAPH`]). To ask the driver about one that went into a
    /// graph would end the recording.
    place: AtomicU8,
    context: Arc<V::Context>,
}

// SAFETY: the driver synchronises access to its events; the handle never changes.
unsafe impl<V: Vendor> Send for GpuEvent<V> {}
// SAFETY: as above.
unsafe impl<V: Vendor> Sync for GpuEvent<V> {}

impl<V: Vendor> GpuEvent<V> {
    /// An event that was not recorded yet.
    pub(crate) fn new(context: &Arc<V::Context>) -> Result<Self, HalError> {
        let _entered = context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a valid place for the answer.
        let code = unsafe { (context.api().event_create)(&raw mut raw, NO_TIMING) };
        context.api().check("make an event", code)?;
        Ok(GpuEvent { raw, place: AtomicU8::new(NOWHERE), context: Arc::clone(context) })
    }

    /// The driver's event.
    pub(crate) fn raw(&self) -> RawEvent {
        self.raw
    }

    /// Notes whether its latest record went into a graph.
    pub(crate) fn note(&self, graph: bool) {
        self.place.store(if graph { GRAPH } else { STREAM }, Ordering::Release);
    }

    /// Whether it stands for work of a stream, and not for a point of a graph.
    pub(crate) fn is_of_stream(&self) -> bool {
        self.place.load(Ordering::Acquire) == STREAM
    }

    /// The event behind `event`, if it is one of this backend.
    pub(crate) fn of<'a>(event: &'a dyn Event, what: &'static str) -> Result<&'a Self, HalError> {
        let any: &dyn std::any::Any = event;
        any.downcast_ref().ok_or_else(|| HalError::Invalid {
            what,
            saw: format!("an event of the {} backend", event.backend()),
            allowed: format!("one of the {} backend", V::BACKEND),
            cure: "make the event on the stream's own device",
        })
    }
}

impl<V: Vendor> Event for GpuEvent<V> {
    fn backend(&self) -> Backend {
        V::BACKEND
    }

    fn query(&self) -> Result<bool, HalError> {
        if self.place.load(Ordering::Acquire) == GRAPH {
            return Ok(false);
        }
        let _entered = self.context.enter()?;
        // A question is no part of a graph that another thread records.
        let _unrecorded = Unrecorded::new(self.context.api());
        // SAFETY: the event lives until this object is dropped.
        let code = unsafe { (self.context.api().event_query)(self.raw) };
        match code {
            Code::NOT_READY => Ok(false),
            code => self.context.api().check("ask whether work is done", code).map(|()| true),
        }
    }

    fn synchronize(&self) -> Result<(), HalError> {
        if self.place.load(Ordering::Acquire) == GRAPH {
            return Err(HalError::Invalid {
                what: "wait for an event",
                saw: "an event that was recorded into a graph".to_owned(),
                allowed: "one that stands for work of a stream".to_owned(),
                cure: "launch the graph, and record an event behind it",
            });
        }
        let _entered = self.context.enter()?;
        let _unrecorded = Unrecorded::new(self.context.api());
        // SAFETY: as above.
        let code = unsafe { (self.context.api().event_synchronize)(self.raw) };
        self.context.api().check("wait for an event", code)
    }
}

impl<V: Vendor> Drop for GpuEvent<V> {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: made by `new`, destroyed here alone; the driver frees it when the last wait for it is over.
            let _ = unsafe { (self.context.api().event_destroy)(self.raw) };
        }
    }
}
