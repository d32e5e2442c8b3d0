//! Events of GPUs.

use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::gpu::calls::{RawEvent, RawStream};
use crate::gpu::code::{Code, NO_TIMING, is_capturing};
use crate::gpu::recording::Unrecorded;
use crate::gpu::vendor::{Context, Vendor};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

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
    /// Where its latest record went ([`NOWHERE`], [`STREAM`], [`GRAPH`]). Asking the driver about a record that went into a graph
    /// would end the recording.
    place: AtomicU8,
    /// The stream of its latest record, which may be gone.
    stream: AtomicPtr<c_void>,
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
        let (place, stream) = (AtomicU8::new(NOWHERE), AtomicPtr::default());
        Ok(GpuEvent { raw, place, stream, context: Arc::clone(context) })
    }

    /// The driver's event.
    pub(crate) fn raw(&self) -> RawEvent {
        self.raw
    }

    /// Notes the stream of its latest record, and whether that went into a graph.
    pub(crate) fn note(&self, stream: RawStream, graph: bool) {
        self.stream.store(stream, Ordering::Release);
        self.place.store(if graph { GRAPH } else { STREAM }, Ordering::Release);
    }

    /// Whether it stands for work of a stream, and not for a point of a graph.
    pub(crate) fn is_of_stream(&self) -> bool {
        self.place.load(Ordering::Acquire) == STREAM
    }

    /// Whether asking the driver about it would end a recording. The context must be current.
    fn is_out_of_bounds(&self) -> bool {
        match self.place.load(Ordering::Acquire) {
            GRAPH => true,
            STREAM if V::EVENTS_END_RECORDINGS => {
                let (stream, mut status) = (self.stream.load(Ordering::Acquire), 0);
                // SAFETY: such a driver follows the handle itself when it is asked about the event; `status` is a valid place for
                // the answer.
                let code =
                    unsafe { (self.context.api().stream_capturing)(stream, &raw mut status) };
                code.is_of_recording() || (code == Code::SUCCESS && is_capturing(status))
            }
            _ => false,
        }
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
        let _entered = self.context.enter()?;
        // A question is no part of a graph that another thread records.
        let _unrecorded = Unrecorded::new(self.context.api());
        if self.is_out_of_bounds() {
            return Ok(false);
        }
        // SAFETY: the event lives until this object is dropped.
        let code = unsafe { (self.context.api().event_query)(self.raw) };
        match code {
            Code::NOT_READY => Ok(false),
            // A recording has begun meanwhile. The code says nothing of the device, and the next query finds the recording.
            code if code.is_of_recording() => Ok(false),
            code => self.context.api().check("ask whether work is done", code).map(|()| true),
        }
    }

    fn synchronize(&self) -> Result<(), HalError> {
        let _entered = self.context.enter()?;
        let _unrecorded = Unrecorded::new(self.context.api());
        if self.is_out_of_bounds() {
            return Err(HalError::Invalid {
                what: "wait for an event",
                saw:
                    "an event that was recorded into a graph, or whose stream is being recorded now"
                        .to_owned(),
                allowed: "one that stands for work of a stream".to_owned(),
                cure: "launch the graph, and record an event behind it",
            });
        }
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
