//! The host's driver: one device, always there.

use crate::device::Device;
use crate::driver::{Backend, DeviceInfo, Driver};
use crate::error::HalError;
use crate::host::device::{HostDevice, Options};
use crate::host::{caps, lock};
use std::sync::{Arc, Mutex};

/// The name of the one device.
pub(super) const DEVICE_NAME: &str = "host";

/// The driver of the host backend.
#[derive(Clone, Copy, Debug)]
pub struct HostDriver;

impl Driver for HostDriver {
    fn backend(&self) -> Backend {
        Backend::Host
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, HalError> {
        Ok(vec![DeviceInfo {
            backend: Backend::Host,
            index: 0,
            name: DEVICE_NAME.to_owned(),
            memory_bytes: caps::memory_bytes(),
        }])
    }

    fn open(&self, index: u32) -> Result<Arc<dyn Device>, HalError> {
        static OPENED: Mutex<Option<Arc<HostDevice>>> = Mutex::new(None);
        if index != 0 {
            return Err(HalError::Invalid {
                what: "open a host device",
                saw: format!("number {index}"),
                allowed: "number 0".to_owned(),
                cure: "the whole machine is one host device",
            });
        }
        let mut opened = lock(&OPENED);
        if let Some(device) = &*opened {
            return Ok(Arc::clone(device) as Arc<dyn Device>);
        }
        let device = Arc::new(HostDevice::new(Options::default())?);
        *opened = Some(Arc::clone(&device));
        Ok(device)
    }

    fn current(&self) -> Result<Option<u32>, HalError> {
        Ok(Some(0))
    }
}
