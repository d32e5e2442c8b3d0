//! CUDA streams: our own, and the application's.

use crate::cuda::context::Context;
use crate::cuda::conv;
use crate::cuda::event::CudaEvent;
use crate::cuda::graph;
use crate::cuda::library::Code;
use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::id::next_id;
use crate::stream::{Stream, Submitted};
use crate::task::{Effort, Task};
use cudarc::driver::sys;
use std::any::Any;
use std::ptr;
use std::sync::Arc;

/// A driver stream.
#[derive(Debug)]
pub(super) struct CudaStream {
    id: u64,
    raw: sys::CUstream,
    /// Whether it is destroyed with this object.
    owned: bool,
    context: Arc<Context>,
}

// SAFETY: the driver synchronises access to its streams; the handle never changes.
unsafe impl Send for CudaStream {}
// SAFETY: as above.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    /// A new stream, which does not wait for the legacy default stream.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, HalError> {
        let _entered = context.enter()?;
        let mut raw = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `raw` is a valid place for the answer.
        let code = unsafe { (context.api().stream_create)(&raw mut raw, flags) };
        context.api().check("make a CUDA stream", code)?;
        Ok(CudaStream { id: next_id(), raw, owned: true, context: Arc::clone(context) })
    }

    /// A stream of the application.
    ///
    /// # Safety
    ///
    /// `raw` must be a stream of the driver, or one of its numbers for a default stream, and live as long as the
    /// result.
    pub(super) unsafe fn adopt(
        context: &Arc<Context>,
        raw: sys::CUstream,
    ) -> Result<Self, HalError> {
        let _entered = context.enter()?;
        let mut its_context = ptr::null_mut();
        // SAFETY: the caller vouches for the stream; `its_context` is a valid place for the answer.
        let code = unsafe { (context.api().stream_context)(raw, &raw mut its_context) };
        context.api().check("adopt a CUDA stream", code)?;
        if its_context != context.raw() {
            return Err(HalError::Invalid {
                what: "adopt a CUDA stream",
                saw: "a stream of another context".to_owned(),
                allowed: "one of the context that the device was opened on".to_owned(),
                cure: "open the device of the stream's GPU while the stream's context is current",
            });
        }
        Ok(CudaStream { id: next_id(), raw, owned: false, context: Arc::clone(context) })
    }

    /// The driver's stream.
    pub(super) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// The stream behind `stream`, if it is one of this backend.
    pub(super) fn of<'a>(
        stream: &'a dyn Stream,
        what: &'static str,
    ) -> Result<&'a CudaStream, HalError> {
        let any: &dyn std::any::Any = stream;
        any.downcast_ref().ok_or_else(|| HalError::Invalid {
            what,
            saw: format!("a stream of the {} backend", stream.backend()),
            allowed: "one of the cuda backend".to_owned(),
            cure: "make or adopt the stream on the kernel's own device",
        })
    }

    /// Whether it is being recorded into a graph. The context must be current.
    fn is_recorded(&self) -> bool {
        let mut status = 0;
        // SAFETY: the stream lives as long as this object; `status` is a valid place for the answer.
        let code = unsafe { (self.context.api().stream_capturing)(self.raw, &raw mut status) };
        // A default stream that another stream's recording covers answers an error of its own.
        code == Code::CAPTURE_IMPLICIT || (code == Code::SUCCESS && conv::is_capturing(status))
    }

    /// Sets `bytes` bytes at `address` to zero, and waits until that is done.
    ///
    /// # Safety
    ///
    /// The range must be mapped for this device, and nothing else may touch it during the call.
    pub(super) unsafe fn clear(&self, address: u64, bytes: usize) -> Result<(), HalError> {
        let api = self.context.api();
        let _entered = self.context.enter()?;
        // SAFETY: the caller vouches for the range.
        let code = unsafe { (api.memory_fill)(address, 0, bytes, self.raw) };
        api.check("clear CUDA memory", code)?;
        // SAFETY: the stream lives as long as this object.
        let code = unsafe { (api.stream_synchronize)(self.raw) };
        api.check("clear CUDA memory", code)
    }
}

impl Stream for CudaStream {
    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn submit(&self, _task: &Arc<dyn Task>, _effort: Effort) -> Result<Submitted, HalError> {
        Err(HalError::Unsupported { op: "run a task in a stream", backend: Backend::Cuda })
    }

    unsafe fn copy(
        &self,
        destination: *mut u8,
        source: *const u8,
        bytes: u64,
    ) -> Result<Submitted, HalError> {
        let bytes = usize::try_from(bytes).map_err(|_| HalError::Invalid {
            what: "copy CUDA memory",
            saw: format!("{bytes} bytes"),
            allowed: format!("up to {}, the address space", usize::MAX),
            cure: "pass ranges that are mapped",
        })?;
        let _entered = self.context.enter()?;
        let (to, from) = (destination.addr() as u64, source.addr() as u64);
        // SAFETY: `Stream::copy` asks its caller for mapped ranges that do not overlap and that nothing else
        // touches; the driver tells by the addresses on which side each is.
        let code = unsafe { (self.context.api().memory_copy)(to, from, bytes, self.raw) };
        self.context.api().check("copy CUDA memory", code)?;
        Ok(Submitted::Queued)
    }

    fn record(&self, event: &dyn Event) -> Result<(), HalError> {
        let event = CudaEvent::of(event, "record an event on a CUDA stream")?;
        let _entered = self.context.enter()?;
        // SAFETY: the event lives as long as the reference, the stream as long as this object.
        let code = unsafe { (self.context.api().event_record)(event.raw(), self.raw) };
        self.context.api().check("record an event on a CUDA stream", code)?;
        event.note(self.is_recorded());
        Ok(())
    }

    fn wait(&self, event: &dyn Event) -> Result<(), HalError> {
        let event = CudaEvent::of(event, "wait for an event on a CUDA stream")?;
        let _entered = self.context.enter()?;
        // As for `synchronize`.
        if event.is_of_stream() && self.is_recorded() {
            return Err(HalError::Invalid {
                what: "wait for an event on a CUDA stream",
                saw:
                    "a stream that is being recorded into a graph, and an event of work outside it"
                        .to_owned(),
                allowed: "events of the same recording".to_owned(),
                cure: "wait before the recording begins, or record the other work as well",
            });
        }
        // SAFETY: as above; the driver keeps what the wait needs when the event is destroyed before.
        let code = unsafe { (self.context.api().stream_wait)(self.raw, event.raw(), 0) };
        self.context.api().check("wait for an event on a CUDA stream", code)
    }

    fn query(&self) -> bool {
        let Ok(_entered) = self.context.enter() else { return true };
        let mut status = 0;
        // SAFETY: the stream lives as long as this object; `status` is a valid place for the answer.
        let code = unsafe { (self.context.api().stream_capturing)(self.raw, &raw mut status) };
        if code != Code::SUCCESS {
            // Work that failed is over; a default stream that another stream's recording covers is not.
            return code != Code::CAPTURE_IMPLICIT;
        }
        // To ask a stream that is being recorded would end the recording.
        if conv::is_capturing(status) {
            return false;
        }
        // SAFETY: as above.
        let code = unsafe { (self.context.api().stream_query)(self.raw) };
        code != Code::NOT_READY
    }

    fn synchronize(&self) -> Result<(), HalError> {
        let _entered = self.context.enter()?;
        // The call would end the recording, and the application would learn of it much later.
        if self.is_recorded() {
            return Err(HalError::Invalid {
                what: "wait for a CUDA stream",
                saw: "a stream that is being recorded into a graph".to_owned(),
                allowed: "one that is not".to_owned(),
                cure: "end the recording, launch the graph, and wait for that",
            });
        }
        // SAFETY: as above.
        let code = unsafe { (self.context.api().stream_synchronize)(self.raw) };
        self.context.api().check("wait for a CUDA stream", code)
    }

    fn is_capturing(&self) -> Result<bool, HalError> {
        let _entered = self.context.enter()?;
        let mut status = 0;
        // SAFETY: as above; `status` is a valid place for the answer.
        let code = unsafe { (self.context.api().stream_capturing)(self.raw, &raw mut status) };
        self.context.api().check("ask whether a CUDA stream is being recorded", code)?;
        Ok(conv::is_capturing(status))
    }

    fn keep(&self, object: Arc<dyn Any + Send + Sync>) -> Result<(), HalError> {
        graph::let_go();
        let _entered = self.context.enter()?;
        graph::keep(self.context.api(), self.raw, object)
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.owned
            && let Ok(_entered) = self.context.enter()
        {
            // SAFETY: made by `new`, destroyed here alone; what is queued still runs to its end.
            let _ = unsafe { (self.context.api().stream_destroy)(self.raw) };
        }
    }
}
