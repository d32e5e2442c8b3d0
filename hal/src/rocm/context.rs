//! The device of a call: HIP has one current device a thread, and one context a device, which the driver keeps.

use crate::error::HalError;
use crate::rocm::conv;
use crate::rocm::library::{Api, Code};
use hip_sys::hiprt as sys;
use std::marker::PhantomData;

/// A device that this process may use.
#[derive(Debug)]
pub(super) struct Context {
    api: &'static Api,
    device: sys::hipDevice_t,
}

impl Context {
    /// The device with this number.
    pub(super) fn new(api: &'static Api, device: sys::hipDevice_t) -> Self {
        Context { api, device }
    }

    /// The driver.
    pub(super) fn api(&self) -> &'static Api {
        self.api
    }

    /// The device.
    pub(super) fn device(&self) -> sys::hipDevice_t {
        self.device
    }

    /// Makes it the calling thread's current device until the result is dropped.
    pub(super) fn enter(&self) -> Result<Entered, HalError> {
        let quiet = Quiet::new(self.api);
        let mut current = 0;
        // SAFETY: `current` is a valid place for the answer.
        let code = unsafe { (self.api.device_current)(&raw mut current) };
        self.api.check("ask for the current HIP device", code)?;
        let before = (current != self.device).then_some(current);
        if before.is_some() {
            // SAFETY: takes no pointers; the device exists.
            let code = unsafe { (self.api.device_set)(self.device) };
            self.api.check("make a HIP device current", code)?;
        }
        Ok(Entered { before, quiet, thread: PhantomData })
    }
}

/// A device is current on this thread.
#[derive(Debug)]
pub(super) struct Entered {
    before: Option<sys::hipDevice_t>,
    quiet: Quiet,
    /// Bound to the thread that entered.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: takes no pointers; the device was current before.
            let _ = unsafe { (self.quiet.api.device_set)(before) };
        }
    }
}

/// Keeps errors of this backend's calls from the application: HIP remembers a thread's last one, and applications ask
/// for it after their own calls.
#[derive(Debug)]
struct Quiet {
    api: &'static Api,
    /// Whether the application had none of its own.
    clean: bool,
}

impl Quiet {
    fn new(api: &'static Api) -> Self {
        // SAFETY: only looks at a number of the thread.
        let clean = unsafe { (api.error_peek)() } == Code::SUCCESS;
        Quiet { api, clean }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if self.clean {
            // SAFETY: forgets a number of the thread.
            let _ = unsafe { (self.api.error_forget)() };
        }
    }
}

/// Lifts, for the calling thread, the rule that nothing is allocated while any stream of the process is recorded
/// into a graph: what is done here is not part of such a graph.
#[derive(Debug)]
pub(super) struct Unrecorded {
    api: &'static Api,
    before: Option<u32>,
    thread: PhantomData<*const ()>,
}

impl Unrecorded {
    /// Until the result is dropped.
    pub(super) fn new(api: &'static Api) -> Self {
        let mut mode = conv::RELAXED;
        let before = api.capture_mode.and_then(|exchange| {
            // SAFETY: `mode` holds one of the driver's modes, and takes the one before.
            (unsafe { exchange(&raw mut mode) } == Code::SUCCESS).then_some(mode)
        });
        Unrecorded { api, before, thread: PhantomData }
    }
}

impl Drop for Unrecorded {
    fn drop(&mut self) {
        if let (Some(exchange), Some(mut mode)) = (self.api.capture_mode, self.before) {
            // SAFETY: `mode` is what the driver answered before.
            let _ = unsafe { exchange(&raw mut mode) };
        }
    }
}
