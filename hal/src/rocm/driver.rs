//! ROCm's driver: the GPUs that it shows to this process.

use crate::device::Device;
use crate::driver::{Backend, DeviceInfo, Driver};
use crate::error::HalError;
use crate::rocm::context::Context;
use crate::rocm::device::RocmDevice;
use crate::rocm::library::{Api, api};
use crate::rocm::{caps, lock};
use hip_sys::hiprt as sys;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The driver of the ROCm backend. Devices have the numbers that HIP gives them (`HIP_VISIBLE_DEVICES` counts).
///
/// A device is used as the run-time library does, and stays open for the life of the process; which one is current
/// for a thread of the application is never changed for longer than a call.
#[derive(Clone, Copy, Debug)]
pub struct RocmDriver;

impl Driver for RocmDriver {
    fn backend(&self) -> Backend {
        Backend::Rocm
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, HalError> {
        let api = api()?;
        (0..count(api)?)
            .map(|index| {
                let device = device(index);
                Ok(DeviceInfo {
                    backend: Backend::Rocm,
                    index,
                    name: caps::name(api, device)?,
                    memory_bytes: caps::memory_bytes(api, device)?,
                })
            })
            .collect()
    }

    fn open(&self, index: u32) -> Result<Arc<dyn Device>, HalError> {
        static OPENED: Mutex<Option<HashMap<u32, Arc<RocmDevice>>>> = Mutex::new(None);
        let api = api()?;
        let mut opened = lock(&OPENED);
        let opened = opened.get_or_insert_default();
        if let Some(device) = opened.get(&index) {
            return Ok(Arc::clone(device) as Arc<dyn Device>);
        }
        let count = count(api)?;
        if index >= count {
            return Err(HalError::Invalid {
                what: "open a ROCm device",
                saw: format!("number {index}"),
                allowed: match count {
                    0 => "none, as the driver shows no device".to_owned(),
                    1 => "number 0".to_owned(),
                    count => format!("numbers 0 to {}", count - 1),
                },
                cure: "look at rocminfo and HIP_VISIBLE_DEVICES",
            });
        }
        let device = Arc::new(RocmDevice::new(index, Context::new(api, device(index)))?);
        opened.insert(index, Arc::clone(&device));
        Ok(device)
    }
}

/// How many devices the driver shows.
pub(super) fn count(api: &Api) -> Result<u32, HalError> {
    let mut count = 0;
    // SAFETY: `count` is a valid place for the answer.
    let code = unsafe { (api.device_count)(&raw mut count) };
    api.check("count the HIP devices", code)?;
    Ok(u32::try_from(count).unwrap_or(0))
}

/// The driver's handle of device `index`: the number.
pub(super) fn device(index: u32) -> sys::hipDevice_t {
    index.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn without_a_driver_every_answer_is_unavailable() {
        let Err(missing) = api() else {
            // Written past the harness's capture, which hides what the print macros print.
            let _ = writeln!(std::io::stderr(), "SKIP rocm::driver: this machine has a driver");
            return;
        };
        assert!(matches!(missing, HalError::Unavailable { .. }), "{missing}");
        for answer in [RocmDriver.devices().err(), RocmDriver.open(0).err()] {
            let error = answer.expect("the driver answers without its library");
            assert!(matches!(error, HalError::Unavailable { .. }), "{error}");
            assert_eq!(error.to_string(), missing.to_string());
        }
    }

    #[test]
    fn the_build_contains_the_driver() {
        assert_eq!(crate::driver(Backend::Rocm).unwrap().backend(), Backend::Rocm);
    }
}
