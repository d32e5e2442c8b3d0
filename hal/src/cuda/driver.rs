//! CUDA's driver: the GPUs that it shows to this process.

use crate::cuda::context::Context;
use crate::cuda::device::CudaDevice;
use crate::cuda::library::{Api, api};
use crate::cuda::{caps, lock};
use crate::device::Device;
use crate::driver::{Backend, DeviceInfo, Driver};
use crate::error::HalError;
use cudarc::driver::sys;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The driver of the CUDA backend. Devices have the numbers that the CUDA driver gives them
/// (`CUDA_VISIBLE_DEVICES` counts).
///
/// A device is opened on the context that the calling thread has current, where that is one on the same GPU, and
/// on the GPU's primary context otherwise, and keeps it for the life of the process. An application that made a
/// context of its own keeps it alive as long as it uses the device.
#[derive(Clone, Copy, Debug)]
pub struct CudaDriver;

impl Driver for CudaDriver {
    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, HalError> {
        let api = api()?;
        (0..count(api)?)
            .map(|index| {
                let device = device(api, index)?;
                Ok(DeviceInfo {
                    backend: Backend::Cuda,
                    index,
                    name: caps::name(api, device)?,
                    memory_bytes: caps::memory_bytes(api, device)?,
                })
            })
            .collect()
    }

    fn open(&self, index: u32) -> Result<Arc<dyn Device>, HalError> {
        static OPENED: Mutex<Option<HashMap<u32, Arc<CudaDevice>>>> = Mutex::new(None);
        let api = api()?;
        let mut opened = lock(&OPENED);
        let opened = opened.get_or_insert_default();
        if let Some(device) = opened.get(&index) {
            return Ok(Arc::clone(device) as Arc<dyn Device>);
        }
        let count = count(api)?;
        if index >= count {
            return Err(HalError::Invalid {
                what: "open a CUDA device",
                saw: format!("number {index}"),
                allowed: match count {
                    0 => "none, as the driver shows no device".to_owned(),
                    1 => "number 0".to_owned(),
                    count => format!("numbers 0 to {}", count - 1),
                },
                cure: "look at nvidia-smi and CUDA_VISIBLE_DEVICES",
            });
        }
        let context = Context::open(api, device(api, index)?)?;
        let device = Arc::new(CudaDevice::new(index, context)?);
        opened.insert(index, Arc::clone(&device));
        Ok(device)
    }
}

/// How many devices the driver shows.
pub(super) fn count(api: &Api) -> Result<u32, HalError> {
    let mut count = 0;
    // SAFETY: `count` is a valid place for the answer.
    let code = unsafe { (api.device_count)(&raw mut count) };
    api.check("count the CUDA devices", code)?;
    Ok(u32::try_from(count).unwrap_or(0))
}

/// The driver's handle of device `index`, which is below the count.
pub(super) fn device(api: &Api, index: u32) -> Result<sys::CUdevice, HalError> {
    let mut device = 0;
    // SAFETY: `device` is a valid place for the answer.
    let code = unsafe { (api.device_get)(&raw mut device, index.cast_signed()) };
    api.check("find a CUDA device by its number", code)?;
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn without_a_driver_every_answer_is_unavailable() {
        let Err(missing) = api() else {
            // Written past the harness's capture, which hides what the print macros print.
            let _ = writeln!(std::io::stderr(), "SKIP cuda::driver: this machine has a driver");
            return;
        };
        assert!(matches!(missing, HalError::Unavailable { .. }), "{missing}");
        for answer in [CudaDriver.devices().err(), CudaDriver.open(0).err()] {
            let error = answer.expect("the driver answers without its library");
            assert!(matches!(error, HalError::Unavailable { .. }), "{error}");
            assert_eq!(error.to_string(), missing.to_string());
        }
    }

    #[test]
    fn the_build_contains_the_driver() {
        assert_eq!(crate::driver(Backend::Cuda).unwrap().backend(), Backend::Cuda);
    }
}
