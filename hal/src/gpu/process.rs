//! What there is one of in a process for each vendor: its driver library, and the devices that were opened; and the
//! driver as callers see it.

use crate::device::Device;
use crate::driver::{Backend, DeviceInfo, Driver};
use crate::error::HalError;
use crate::gpu::adopted::Adopted;
use crate::gpu::calls;
use crate::gpu::code;
use crate::gpu::core::{memory_bytes, name};
use crate::gpu::device::GpuDevice;
use crate::gpu::foreign::Origin;
use crate::gpu::library::Api;
use crate::gpu::lock;
use crate::gpu::vendor::{Context, Vendor};
use crate::gpu::vmm::Mapping;
use crate::home::Exported;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

/// What there is one of in a process.
#[derive(Debug)]
pub(crate) struct Process<V: Vendor> {
    api: OnceLock<Api<V>>,
    loading: Mutex<()>,
    opened: Mutex<BTreeMap<u32, Arc<GpuDevice<V>>>>,
    /// The streams of the application.
    pub(crate) adopted: Adopted,
    /// Memory that others of this process may have handles of.
    pub(crate) exported: Exported<Mapping<V>>,
    /// The same of the application's.
    pub(crate) lent: Exported<Origin>,
}

impl<V: Vendor> Process<V> {
    /// Nothing loaded, nothing opened.
    pub(crate) const fn new() -> Self {
        Process {
            api: OnceLock::new(),
            loading: Mutex::new(()),
            opened: Mutex::new(BTreeMap::new()),
            adopted: Adopted::new(),
            exported: Exported::new(),
            lent: Exported::new(),
        }
    }

    /// The process's driver. Where it cannot work, the next call looks again.
    pub(crate) fn api(&self) -> Result<&Api<V>, HalError> {
        if let Some(api) = self.api.get() {
            return Ok(api);
        }
        let _loading = lock(&self.loading);
        if let Some(api) = self.api.get() {
            return Ok(api);
        }
        let api = Api::load(&V::search())?;
        Ok(self.api.get_or_init(|| api))
    }

    /// The device with a number, opened once.
    pub(crate) fn open(&'static self, index: u32) -> Result<Arc<GpuDevice<V>>, HalError> {
        let api = self.api()?;
        let mut opened = lock(&self.opened);
        if let Some(device) = opened.get(&index) {
            return Ok(Arc::clone(device));
        }
        let count = count(api)?;
        if index >= count {
            return Err(HalError::Invalid {
                what: "open a GPU",
                saw: format!("number {index} of the {} backend", V::BACKEND),
                allowed: match count {
                    0 => "none, as the driver shows no device".to_owned(),
                    1 => "number 0".to_owned(),
                    count => format!("numbers 0 to {}", count - 1),
                },
                cure: V::WORDS.hidden,
            });
        }
        let context = V::Context::open(api, V::device(api, index)?)?;
        let device = Arc::new(GpuDevice::new(index, context)?);
        opened.insert(index, Arc::clone(&device));
        Ok(device)
    }
}

impl<V: Vendor> Driver for V {
    fn backend(&self) -> Backend {
        V::BACKEND
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, HalError> {
        let api = V::process().api()?;
        (0..count(api)?)
            .map(|index| {
                let device = V::device(api, index)?;
                Ok(DeviceInfo {
                    backend: V::BACKEND,
                    index,
                    name: name(api, device)?,
                    memory_bytes: memory_bytes(api, device)?,
                })
            })
            .collect()
    }

    fn open(&self, index: u32) -> Result<Arc<dyn Device>, HalError> {
        Ok(V::process().open(index)?)
    }

    fn current(&self) -> Result<Option<u32>, HalError> {
        let api = V::process().api()?;
        let Some(current) = V::current(api)? else { return Ok(None) };
        for index in 0..count(api)? {
            if V::device(api, index)? == current {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    fn compile(&self, source: &str, architecture: &str) -> Result<Vec<u8>, HalError> {
        V::compile(None, source, architecture, &[])
    }
}

/// How many devices the driver shows.
pub(crate) fn count<V: Vendor>(api: &Api<V>) -> Result<u32, HalError> {
    let mut count: calls::Device = 0;
    // SAFETY: `count` is a valid place for the answer.
    let code = unsafe { (api.device_count)(&raw mut count) };
    api.check("count the devices", code)?;
    Ok(code::count(count))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::Write;

    /// What a vendor's driver must answer on a machine that has none.
    pub(crate) fn check_missing<V: Vendor>(vendor: V) {
        assert_eq!(crate::driver(V::BACKEND).unwrap().backend(), V::BACKEND);
        let Err(missing) = V::process().api() else {
            // Written past the harness's capture, which hides what the print macros print.
            let line = format!("SKIP gpu::process::{}: this machine has a driver\n", V::BACKEND);
            let _ = std::io::stderr().write_all(line.as_bytes());
            return;
        };
        assert!(matches!(missing, HalError::Unavailable { .. }), "{missing}");
        for answer in [vendor.devices().err(), vendor.open(0).err(), vendor.current().err()] {
            let error = answer.expect("the driver answers without its library");
            assert!(matches!(error, HalError::Unavailable { .. }), "{error}");
            assert_eq!(error.to_string(), missing.to_string());
        }
    }
}
