//! The context of a device: whose it is, and making it current for the length of a call.

use crate::cuda::CudaDriver;
use crate::error::HalError;
use crate::gpu::calls::{Device, RawStream};
use crate::gpu::code::Code;
use crate::gpu::library::Api;
use crate::gpu::vendor;
use cudarc::driver::sys;
use std::marker::PhantomData;
use std::ptr;

/// A context that this process may use.
#[derive(Debug)]
pub(crate) struct Context {
    api: &'static Api<CudaDriver>,
    raw: sys::CUcontext,
    device: Device,
    /// Whether it is the primary one, held by a count of ours.
    retained: bool,
}

// SAFETY: a context may be used from any thread that makes it current, by several at once.
unsafe impl Send for Context {}
// SAFETY: as above; the pointer never changes.
unsafe impl Sync for Context {}

impl Context {
    fn new(
        api: &'static Api<CudaDriver>,
        raw: sys::CUcontext,
        device: Device,
        retained: bool,
    ) -> Self {
        Context { api, raw, device, retained }
    }

    /// The driver's pointer.
    pub(super) fn raw(&self) -> sys::CUcontext {
        self.raw
    }
}

impl vendor::Context<CudaDriver> for Context {
    type Entered<'a> = Entered<'a>;

    fn as_peer(&self) -> usize {
        self.raw.expose_provenance()
    }

    /// The calling thread's current context if it is one on `device`, otherwise the device's primary one. The primary one also
    /// takes the place of a green context, which has only a part of the device, and one thread at a time.
    ///
    /// The primary context is what the CUDA run-time library uses, PyTorch with it: it is retained, so that it
    /// lives while this does. A context that the application made itself is used and never destroyed.
    fn open(api: &'static Api<CudaDriver>, device: Device) -> Result<Self, HalError> {
        let adopted = current_on(api, device)?;
        if let Some(raw) = adopted
            && !primary_is_active(api, device)?
        {
            return Ok(Context::new(api, raw, device, false));
        }
        let mut primary = ptr::null_mut();
        // SAFETY: `primary` is a valid place for the answer.
        let code = unsafe { (api.primary_retain)(&raw mut primary, device) };
        api.check("retain the primary context of a CUDA device", code)?;
        // Dropped again, with the count, where the application uses another.
        let retained = Context::new(api, primary, device, true);
        match adopted {
            Some(raw) if raw != primary => Ok(Context::new(api, raw, device, false)),
            _ => Ok(retained),
        }
    }

    fn api(&self) -> &'static Api<CudaDriver> {
        self.api
    }

    fn device(&self) -> Device {
        self.device
    }

    fn enter(&self) -> Result<Entered<'_>, HalError> {
        let mut current = ptr::null_mut();
        // SAFETY: `current` is a valid place for the answer.
        let code = unsafe { (self.api.context_current)(&raw mut current) };
        self.api.check("ask for the current CUDA context", code)?;
        let pushed = current != self.raw;
        if pushed {
            // SAFETY: the context is alive: retained by this object, or the application's, which promised to
            // keep it (`CudaDriver`).
            let code = unsafe { (self.api.context_push)(self.raw) };
            self.api.check("make a CUDA context current", code)?;
        }
        Ok(Entered { context: self, pushed, thread: PhantomData })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.retained {
            // SAFETY: gives back the count that `open` took. At the end of the process the driver may be gone
            // and say so, which is of no consequence.
            let _ = unsafe { (self.api.primary_release)(self.device) };
        }
    }
}

/// A context is current on this thread.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    context: &'a Context,
    pushed: bool,
    /// Bound to the thread that entered.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = ptr::null_mut();
            // SAFETY: takes back what `enter` pushed on this thread; calls in between are balanced as well.
            let code = unsafe { (self.context.api.context_pop)(&raw mut popped) };
            debug_assert!(code != Code::SUCCESS || popped == self.context.raw);
        }
    }
}

/// The calling thread's current context, if it is one on `device`; in the place of a green one the primary one.
fn current_on(
    api: &'static Api<CudaDriver>,
    device: Device,
) -> Result<Option<sys::CUcontext>, HalError> {
    let current = current(api)?.filter(|(_, its_device)| *its_device == device);
    let Some((raw, _)) = current else { return Ok(None) };
    // SAFETY: the default stream of the current context.
    match unsafe { of_stream(api, ptr::null_mut()) } {
        Ok(StreamOwner::Green { primary }) => Ok(Some(primary)),
        // Whatever it answers, the context is current.
        Ok(StreamOwner::Plain(_)) | Err(_) => Ok(Some(raw)),
    }
}

/// Whose a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamOwner {
    /// A context's. A driver that does not know better says so of a green one, too.
    Plain(sys::CUcontext),
    /// A green context's, which shares all but its part of the device with the primary one.
    Green {
        /// The device's primary context.
        primary: sys::CUcontext,
    },
}

impl StreamOwner {
    /// The context that has the stream's memory, code and events.
    pub(super) fn context(self) -> sys::CUcontext {
        match self {
            StreamOwner::Plain(context) | StreamOwner::Green { primary: context } => context,
        }
    }
}

/// Whose a stream is; a default stream is the current context's.
///
/// # Safety
///
/// `raw` must be a stream of the driver, or one of its numbers for a default stream.
pub(super) unsafe fn of_stream(
    api: &'static Api<CudaDriver>,
    raw: RawStream,
) -> Result<StreamOwner, Code> {
    let (mut context, mut green) = (ptr::null_mut(), ptr::null_mut());
    let Some(ask) = api.stream_contexts else {
        // SAFETY: the caller vouches for the stream; `context` is a valid place for the answer.
        unsafe { (api.stream_context)(raw, &raw mut context) }.ok()?;
        return Ok(StreamOwner::Plain(context));
    };
    // SAFETY: as above, for both places.
    unsafe { ask(raw, &raw mut context, &raw mut green) }.ok()?;
    let plain = green.is_null();
    Ok(if plain { StreamOwner::Plain(context) } else { StreamOwner::Green { primary: context } })
}

/// The calling thread's current context, if there is one, and its device.
pub(super) fn current(
    api: &'static Api<CudaDriver>,
) -> Result<Option<(sys::CUcontext, Device)>, HalError> {
    let mut raw = ptr::null_mut();
    // SAFETY: `raw` is a valid place for the answer.
    let code = unsafe { (api.context_current)(&raw mut raw) };
    api.check("ask for the current CUDA context", code)?;
    if raw.is_null() {
        return Ok(None);
    }
    let mut its_device = -1;
    // SAFETY: `its_device` is a valid place for the answer.
    let code = unsafe { (api.context_device)(&raw mut its_device) };
    api.check("ask for the device of the current CUDA context", code)?;
    Ok(Some((raw, its_device)))
}

/// Whether somebody in this process has the primary context of `device`. Making one takes hundreds of megabytes.
fn primary_is_active(api: &'static Api<CudaDriver>, device: Device) -> Result<bool, HalError> {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both are valid places for the answers.
    let code = unsafe { (api.primary_state)(device, &raw mut flags, &raw mut active) };
    api.check("ask for the state of a primary CUDA context", code)?;
    Ok(active != 0)
}
