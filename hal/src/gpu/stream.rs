//! Streams: our own, and the application's.

use crate::driver::Backend;
use crate::error::HalError;
use crate::event::Event;
use crate::gpu::calls::RawStream;
use crate::gpu::code::{Code, NON_BLOCKING, is_capturing};
use crate::gpu::event::GpuEvent;
use crate::gpu::keep::Kept;
use crate::gpu::recording;
use crate::gpu::recording::Unrecorded;
use crate::gpu::vendor::{Context, Vendor, unsupported};
use crate::id::next_id;
use crate::stream::{Stream, Submitted};
use crate::task::{Effort, Task};
use std::any::Any;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// A driver stream.
#[derive(Debug)]
pub(crate) struct GpuStream<V: Vendor> {
    id: u64,
    raw: RawStream,
    /// Whether it is destroyed with this object.
    owned: bool,
    /// For a thread's own default stream, the number of that thread: on another thread the handle stands for another stream.
    thread: Option<u64>,
    context: Arc<V::Context>,
}

// SAFETY: the driver synchronises access to its streams; the handle never changes.
unsafe impl<V: Vendor> Send for GpuStream<V> {}
// SAFETY: as above.
unsafe impl<V: Vendor> Sync for GpuStream<V> {}

/// The handle by which each thread knows its own default stream (`CU_STREAM_PER_THREAD`, `hipStreamPerThread`).
pub(crate) const PER_THREAD: usize = 2;

/// The handle that stands for the same stream as null (`CU_STREAM_LEGACY`, `hipStreamLegacy`).
const LEGACY: usize = 1;

/// A number for a stream to which the driver gives none: a stream with the handle of one that is gone counts as the same.
pub(crate) fn number_of_handle(raw: RawStream) -> u64 {
    if raw.addr() == LEGACY { 0 } else { raw.addr() as u64 }
}

/// The calling thread's number.
fn this_thread() -> u64 {
    thread_local!(static NUMBER: u64 = next_id());
    NUMBER.with(|number| *number)
}

impl<V: Vendor> GpuStream<V> {
    /// A new stream, which does not wait for the default stream.
    pub(crate) fn new(context: &Arc<V::Context>) -> Result<Self, HalError> {
        let _entered = context.enter()?;
        let _unrecorded = Unrecorded::new(context.api());
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a valid place for the answer.
        let code = unsafe { (context.api().stream_create)(&raw mut raw, NON_BLOCKING) };
        context.api().check("make a stream", code)?;
        Ok(Self::owned(context, raw))
    }

    /// The same with the highest priority, where the driver has priorities.
    pub(crate) fn urgent(context: &Arc<V::Context>) -> Result<Self, HalError> {
        let api = context.api();
        let (Some(create), Some(ask)) = (api.stream_create_priority, api.stream_priorities) else {
            return Self::new(context);
        };
        let _entered = context.enter()?;
        let _unrecorded = Unrecorded::new(api);
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both are valid places for the answers.
        let code = unsafe { ask(&raw mut least, &raw mut greatest) };
        api.check("ask for the priorities of streams", code)?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a valid place for the answer.
        let code = unsafe { create(&raw mut raw, NON_BLOCKING, greatest) };
        api.check("make a stream", code)?;
        Ok(Self::owned(context, raw))
    }

    /// One that was just made, and is destroyed with the object.
    fn owned(context: &Arc<V::Context>, raw: RawStream) -> Self {
        let context = Arc::clone(context);
        GpuStream { id: next_id(), raw, owned: true, thread: None, context }
    }

    /// A stream of the application.
    ///
    /// # Safety
    ///
    /// `raw` must be a stream of the driver, or one of its numbers for a default stream, and live as long as the
    /// result.
    pub(crate) unsafe fn adopt(
        context: &Arc<V::Context>,
        raw: RawStream,
    ) -> Result<Self, HalError> {
        // SAFETY: the caller vouches for the stream.
        let (of, number) = unsafe { V::number_of_stream(context, raw)? };
        let thread = (raw.addr() == PER_THREAD).then(this_thread);
        let id = V::process().adopted.id((of, number, thread));
        Ok(GpuStream { id, raw, owned: false, thread, context: Arc::clone(context) })
    }

    /// The driver's stream. A thread's own default stream is refused on other threads.
    pub(crate) fn raw(&self) -> Result<RawStream, HalError> {
        if self.thread.is_none_or(|thread| thread == this_thread()) {
            return Ok(self.raw);
        }
        Err(HalError::Invalid {
            what: "use a stream",
            saw: "the default stream of another thread".to_owned(),
            allowed: "that of the calling thread, or one that is all threads'".to_owned(),
            cure: "adopt it on each thread that uses it, or make a stream",
        })
    }

    /// Makes the stream's context current.
    fn enter(&self) -> Result<<V::Context as Context<V>>::Entered<'_>, HalError> {
        self.raw().and_then(|_| self.context.enter())
    }

    /// The stream behind `stream`, if it is one of this backend.
    pub(crate) fn of<'a>(stream: &'a dyn Stream, what: &'static str) -> Result<&'a Self, HalError> {
        let any: &dyn std::any::Any = stream;
        any.downcast_ref().ok_or_else(|| HalError::Invalid {
            what,
            saw: format!("a stream of the {} backend", stream.backend()),
            allowed: format!("one of the {} backend", V::BACKEND),
            cure: "make or adopt the stream on the kernel's own device",
        })
    }

    /// Sets `bytes` bytes at `address` to zero, and waits until that is done. If there are `zeros` (an address of the host's, and
    /// a length) they are copied there; otherwise the driver sets the memory. It does so by kernels, for which kernels that fill
    /// the device leave no room; NVIDIA's copies from the host need none. AMD's short copies are kernels, too.
    ///
    /// # Safety
    ///
    /// The range must be mapped for this device, and nothing else may touch it during the call. Nobody writes the zeros.
    pub(crate) unsafe fn clear(
        &self,
        address: u64,
        bytes: usize,
        zeros: Option<(u64, usize)>,
    ) -> Result<(), HalError> {
        let api = self.context.api();
        let _entered = self.enter()?;
        let _unrecorded = Unrecorded::new(api);
        let Some((zeros, length)) = zeros else {
            // SAFETY: the caller vouches for the range.
            let code = unsafe { V::clear(api, address, bytes, self.raw) };
            api.check("clear memory", code)?;
            return self.finish("clear memory");
        };
        let from = ptr::with_exposed_provenance(zeros as usize);
        for start in (0..bytes).step_by(length) {
            let to = ptr::with_exposed_provenance_mut(address as usize + start);
            // SAFETY: as above; so many zeros are there.
            let code = unsafe { V::copy(api, to, from, length.min(bytes - start), self.raw) };
            api.check("clear memory", code)?;
        }
        self.finish("clear memory")
    }

    /// Waits for what is in it. The context must be current.
    fn finish(&self, what: &'static str) -> Result<(), HalError> {
        let api = self.context.api();
        // To wait for a stream of ours is no part of a graph that another thread records.
        let _unrecorded = Unrecorded::new(api);
        // SAFETY: the stream lives as long as this object.
        let code = unsafe { (api.stream_synchronize)(self.raw) };
        api.check(what, code)
    }

    /// What the driver says of recording. The context must be current.
    fn capture_status(&self) -> Result<u32, Code> {
        let mut status = 0;
        // SAFETY: the stream lives as long as this object; `status` is a valid place for the answer.
        let code = unsafe { (self.context.api().stream_capturing)(self.raw, &raw mut status) };
        if code == Code::SUCCESS { Ok(status) } else { Err(code) }
    }

    /// Whether it is being recorded into a graph, as far as the driver tells. The context must be current.
    fn is_recorded(&self) -> bool {
        match self.capture_status() {
            Ok(status) => is_capturing(status),
            // A default stream that another stream's recording covers answers an error of its own.
            Err(code) => code == Code::CAPTURE_IMPLICIT,
        }
    }
}

impl<V: Vendor> Stream for GpuStream<V> {
    fn backend(&self) -> Backend {
        V::BACKEND
    }

    fn device(&self) -> u32 {
        self.context.device().cast_unsigned()
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn submit(&self, _task: &Arc<dyn Task>, _effort: Effort) -> Result<Submitted, HalError> {
        unsupported::<V, _>("run a task in a stream")
    }

    unsafe fn copy(
        &self,
        destination: *mut u8,
        source: *const u8,
        bytes: u64,
    ) -> Result<Submitted, HalError> {
        let length = usize::try_from(bytes).map_err(|_| HalError::Invalid {
            what: "copy memory",
            saw: format!("{bytes} bytes"),
            allowed: format!("up to {}, the address space", usize::MAX),
            cure: "pass ranges that are mapped",
        })?;
        let _entered = self.enter()?;
        // SAFETY: the caller vouches for both ranges; the driver tells by the addresses on which side each is.
        let code = unsafe { V::copy(self.context.api(), destination, source, length, self.raw) };
        self.context.api().check("copy memory", code)?;
        Ok(Submitted::Queued)
    }

    unsafe fn write(&self, to: *mut u64, value: u64) -> Result<(), HalError> {
        let what = "write a word in a stream";
        let api = self.context.api();
        let Some(write) = api.stream_write else { return unsupported::<V, _>(what) };
        let _entered = self.enter()?;
        // Without a flag, what was done before is seen by all before the word is.
        // SAFETY: the caller vouches for the word; the stream lives as long as this object.
        match unsafe { write(self.raw, to.expose_provenance() as u64, value, 0) } {
            // The latter is said of memory that only copies reach, as HIP does: one is tried then, which says what else is wrong.
            Code::NOT_SUPPORTED | Code::INVALID_VALUE => unsupported::<V, _>(what),
            code => api.check(what, code),
        }
    }

    fn record(&self, event: &dyn Event) -> Result<(), HalError> {
        let event = GpuEvent::<V>::of(event, "record an event on a stream")?;
        let _entered = self.enter()?;
        // SAFETY: the event lives as long as the reference, the stream as long as this object.
        let code = unsafe { (self.context.api().event_record)(event.raw(), self.raw) };
        self.context.api().check("record an event on a stream", code)?;
        event.note(self.raw, self.is_recorded());
        Ok(())
    }

    fn wait(&self, event: &dyn Event) -> Result<(), HalError> {
        let event = GpuEvent::<V>::of(event, "wait for an event on a stream")?;
        let _entered = self.enter()?;
        // The call would end the recording, and the application would learn of it much later.
        if event.is_of_stream() && self.is_recorded() {
            return Err(HalError::Invalid {
                what: "wait for an event on a stream",
                saw:
                    "a stream that is being recorded into a graph, and an event of work outside it"
                        .to_owned(),
                allowed: "events of the same recording".to_owned(),
                cure: "wait before the recording begins, or record the other work as well",
            });
        }
        // SAFETY: as above; the driver keeps what the wait needs when the event is destroyed before.
        let code = unsafe { (self.context.api().stream_wait)(self.raw, event.raw(), 0) };
        self.context.api().check("wait for an event on a stream", code)
    }

    fn native(&self) -> Option<*mut c_void> {
        Some(self.raw)
    }

    fn query(&self) -> Result<bool, HalError> {
        let _entered = self.enter()?;
        // A question is no part of a graph that another thread records.
        let _unrecorded = Unrecorded::new(self.context.api());
        let code = match self.capture_status() {
            // To ask a stream that is being recorded would end the recording.
            Ok(status) if is_capturing(status) => return Ok(false),
            // SAFETY: the stream lives as long as this object.
            Ok(_) => unsafe { (self.context.api().stream_query)(self.raw) },
            Err(code) => code,
        };
        // Work that failed is over; of what a recording covers nobody is told.
        Ok(code != Code::NOT_READY && !code.is_of_recording())
    }

    fn synchronize(&self) -> Result<(), HalError> {
        let _entered = self.enter()?;
        // As for `wait`.
        if self.is_recorded() {
            return Err(HalError::Invalid {
                what: "wait for a stream",
                saw: "a stream that is being recorded into a graph".to_owned(),
                allowed: "one that is not".to_owned(),
                cure: "end the recording, launch the graph, and wait for that",
            });
        }
        self.finish("wait for a stream")
    }

    fn is_capturing(&self) -> Result<bool, HalError> {
        let _entered = self.enter()?;
        let what = "ask whether a stream is being recorded";
        let status = self.capture_status().map_err(|code| self.context.api().error(what, code))?;
        Ok(is_capturing(status))
    }

    fn keep(&self, object: Arc<dyn Any + Send + Sync>) -> Result<(), HalError> {
        let _entered = self.enter()?;
        let kept = Kept { object, device: (V::BACKEND, self.context.device()) };
        recording::keep(self.context.api(), self.raw, kept)
    }
}

impl<V: Vendor> Drop for GpuStream<V> {
    fn drop(&mut self) {
        if self.owned
            && let Ok(_entered) = self.context.enter()
        {
            // SAFETY: made by `new`, destroyed here alone; what is queued still runs to its end.
            let _ = unsafe { (self.context.api().stream_destroy)(self.raw) };
        }
    }
}
