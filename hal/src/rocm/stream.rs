//! ROCm streams: our own, and the application's.

use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::id::next_id;
use crate::rocm::context::Context;
use crate::rocm::event::RocmEvent;
use crate::rocm::library::Code;
use crate::rocm::{conv, graph};
use crate::stream::{Stream, Submitted};
use crate::task::{Effort, Task};
use hip_sys::hiprt as sys;
use std::any::Any;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// A driver stream.
#[derive(Debug)]
pub(super) struct RocmStream {
    id: u64,
    raw: sys::hipStream_t,
    /// Whether it is destroyed with this object.
    owned: bool,
    context: Arc<Context>,
}

// SAFETY: the driver synchronises access to its streams; the handle never changes.
unsafe impl Send for RocmStream {}
// SAFETY: as above.
unsafe impl Sync for RocmStream {}

impl RocmStream {
    /// A new stream, which does not wait for the default stream.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, HalError> {
        let _entered = context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a valid place for the answer.
        let code = unsafe { (context.api().stream_create)(&raw mut raw, conv::NON_BLOCKING) };
        context.api().check("make a HIP stream", code)?;
        Ok(RocmStream { id: next_id(), raw, owned: true, context: Arc::clone(context) })
    }

    /// A stream of the application.
    ///
    /// # Safety
    ///
    /// `raw` must be a stream of the driver, or one of its numbers for a default stream, and live as long as the
    /// result.
    pub(super) unsafe fn adopt(
        context: &Arc<Context>,
        raw: sys::hipStream_t,
    ) -> Result<Self, HalError> {
        let _entered = context.enter()?;
        // Older releases do not tell.
        if let Some(ask) = context.api().stream_device {
            let mut device = context.device();
            // SAFETY: the caller vouches for the stream; `device` is a valid place for the answer.
            let code = unsafe { ask(raw, &raw mut device) };
            context.api().check("adopt a HIP stream", code)?;
            if device != context.device() {
                return Err(HalError::Invalid {
                    what: "adopt a HIP stream",
                    saw: format!("a stream of device {device}"),
                    allowed: format!("one of device {}", context.device()),
                    cure: "pass streams of the rank's own device",
                });
            }
        }
        Ok(RocmStream { id: next_id(), raw, owned: false, context: Arc::clone(context) })
    }

    /// The driver's stream.
    pub(super) fn raw(&self) -> sys::hipStream_t {
        self.raw
    }

    /// The stream behind `stream`, if it is one of this backend.
    pub(super) fn of<'a>(
        stream: &'a dyn Stream,
        what: &'static str,
    ) -> Result<&'a RocmStream, HalError> {
        let any: &dyn std::any::Any = stream;
        any.downcast_ref().ok_or_else(|| HalError::Invalid {
            what,
            saw: format!("a stream of the {} backend", stream.backend()),
            allowed: "one of the rocm backend".to_owned(),
            cure: "make or adopt the stream on the kernel's own device",
        })
    }

    /// Sets `bytes` bytes at `address` to zero, and waits until that is done.
    ///
    /// # Safety
    ///
    /// The range must be mapped for this device, and nothing else may touch it during the call.
    pub(super) unsafe fn clear(&self, address: u64, bytes: usize) -> Result<(), HalError> {
        let api = self.context.api();
        let _entered = self.context.enter()?;
        let pointer = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the caller vouches for the range.
        let code = unsafe { (api.memory_fill)(pointer, 0, bytes, self.raw) };
        api.check("clear HIP memory", code)?;
        // SAFETY: the stream lives as long as this object.
        let code = unsafe { (api.stream_synchronize)(self.raw) };
        api.check("clear HIP memory", code)
    }

    /// What the driver says of recording. The device must be current.
    fn capture_status(&self) -> Result<u32, Code> {
        let mut status = 0;
        // SAFETY: the stream lives as long as this object; `status` is a valid place for the answer.
        let code = unsafe { (self.context.api().stream_capturing)(self.raw, &raw mut status) };
        if code == Code::SUCCESS { Ok(status) } else { Err(code) }
    }

    /// Whether it is being recorded into a graph, as far as the driver tells. The device must be current.
    fn is_recorded(&self) -> bool {
        self.capture_status().is_ok_and(conv::is_capturing)
    }
}

impl Stream for RocmStream {
    fn backend(&self) -> Backend {
        Backend::Rocm
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn submit(&self, _task: &Arc<dyn Task>, _effort: Effort) -> Result<Submitted, HalError> {
        Err(HalError::Unsupported { op: "run a task in a stream", backend: Backend::Rocm })
    }

    unsafe fn copy(
        &self,
        destination: *mut u8,
        source: *const u8,
        bytes: u64,
    ) -> Result<Submitted, HalError> {
        let _entered = self.context.enter()?;
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the caller vouches for both ranges.
        let code = unsafe {
            (self.context.api().memory_copy)(
                destination.cast::<c_void>(),
                source.cast::<c_void>(),
                length,
                conv::ANYWHERE,
                self.raw,
            )
        };
        self.context.api().check("copy memory in a HIP stream", code)?;
        Ok(Submitted::Queued)
    }

    fn record(&self, event: &dyn Event) -> Result<(), HalError> {
        let event = RocmEvent::of(event, "record an event on a HIP stream")?;
        let _entered = self.context.enter()?;
        // SAFETY: the event lives as long as the reference, the stream as long as this object.
        let code = unsafe { (self.context.api().event_record)(event.raw(), self.raw) };
        self.context.api().check("record an event on a HIP stream", code)?;
        event.note(self.is_recorded());
        Ok(())
    }

    fn wait(&self, event: &dyn Event) -> Result<(), HalError> {
        let event = RocmEvent::of(event, "wait for an event on a HIP stream")?;
        let _entered = self.context.enter()?;
        // The call would end the recording, and the application would learn of it much later.
        if event.is_of_stream() && self.is_recorded() {
            return Err(HalError::Invalid {
                what: "wait for an event on a HIP stream",
                saw:
                    "a stream that is being recorded into a graph, and an event of work outside it"
                        .to_owned(),
                allowed: "events of the same recording".to_owned(),
                cure: "wait before the recording begins, or record the other work as well",
            });
        }
        // SAFETY: as above; the driver keeps what the wait needs when the event is destroyed before.
        let code = unsafe { (self.context.api().stream_wait)(self.raw, event.raw(), 0) };
        self.context.api().check("wait for an event on a HIP stream", code)
    }

    fn query(&self) -> bool {
        let Ok(_entered) = self.context.enter() else { return true };
        match self.capture_status() {
            // Work that failed is over; a default stream that another stream's recording covers is not.
            Err(code) => code != Code::CAPTURE_IMPLICIT,
            // To ask a stream that is being recorded would end the recording.
            Ok(status) if conv::is_capturing(status) => false,
            Ok(_) => {
                // SAFETY: the stream lives as long as this object.
                let code = unsafe { (self.context.api().stream_query)(self.raw) };
                code != Code::NOT_READY
            }
        }
    }

    fn synchronize(&self) -> Result<(), HalError> {
        let _entered = self.context.enter()?;
        // As for `wait`.
        if self.is_recorded() {
            return Err(HalError::Invalid {
                what: "wait for a HIP stream",
                saw: "a stream that is being recorded into a graph".to_owned(),
                allowed: "one that is not".to_owned(),
                cure: "end the recording, launch the graph, and wait for that",
            });
        }
        // SAFETY: the stream lives as long as this object.
        let code = unsafe { (self.context.api().stream_synchronize)(self.raw) };
        self.context.api().check("wait for a HIP stream", code)
    }

    fn is_capturing(&self) -> Result<bool, HalError> {
        let _entered = self.context.enter()?;
        let what = "ask whether a HIP stream is being recorded";
        let status = self.capture_status().map_err(|code| self.context.api().error(what, code))?;
        Ok(conv::is_capturing(status))
    }

    fn keep(&self, object: Arc<dyn Any + Send + Sync>) -> Result<(), HalError> {
        graph::let_go();
        let _entered = self.context.enter()?;
        graph::keep(self.context.api(), self.raw, object)
    }
}

impl Drop for RocmStream {
    fn drop(&mut self) {
        if self.owned
            && let Ok(_entered) = self.context.enter()
        {
            // SAFETY: made by `new`, destroyed here alone; what is queued still runs to its end.
            let _ = unsafe { (self.context.api().stream_destroy)(self.raw) };
        }
    }
}
