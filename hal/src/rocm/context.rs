//! The device of a call: HIP has one current device a thread, and one context a device, which the driver keeps.

use crate::error::HalError;
use crate::gpu::calls::Device;
use crate::gpu::code::Code;
use crate::gpu::library::Api;
use crate::gpu::vendor;
use crate::rocm::RocmDriver;
use std::marker::PhantomData;

/// A device that this process may use.
#[derive(Debug)]
pub(crate) struct Context {
    api: &'static Api<RocmDriver>,
    device: Device,
}

impl vendor::Context<RocmDriver> for Context {
    type Entered<'a> = Entered;

    fn open(api: &'static Api<RocmDriver>, device: Device) -> Result<Self, HalError> {
        Ok(Context { api, device })
    }

    fn api(&self) -> &'static Api<RocmDriver> {
        self.api
    }

    fn device(&self) -> Device {
        self.device
    }

    fn as_peer(&self) -> usize {
        self.device as usize
    }

    fn enter(&self) -> Result<Entered, HalError> {
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
pub(crate) struct Entered {
    before: Option<Device>,
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
    api: &'static Api<RocmDriver>,
    /// Whether the application had none of its own.
    clean: bool,
}

impl Quiet {
    fn new(api: &'static Api<RocmDriver>) -> Self {
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
