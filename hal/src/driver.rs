//! Drivers: how devices are found and opened.

use crate::device::Device;
use crate::error::HalError;
use crate::host;
use std::fmt;
use std::sync::Arc;

/// A family of devices behind one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Backend {
    /// CPUs and shared memory. Always there.
    Host,
    /// NVIDIA GPUs.
    Cuda,
    /// AMD GPUs.
    Rocm,
}

impl Backend {
    /// Every backend.
    pub const ALL: [Backend; 3] = [Backend::Host, Backend::Cuda, Backend::Rocm];

    /// The name used in messages and test names, e.g. `host`.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Host => "host",
            Backend::Cuda => "cuda",
            Backend::Rocm => "rocm",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is known of a device before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The backend it belongs to.
    pub backend: Backend,
    /// Its number, for [`Driver::open`].
    pub index: u32,
    /// Its name, for people.
    pub name: String,
    /// Bytes of memory that this process may use on it.
    pub memory_bytes: u64,
}

/// Finds and opens the devices of one backend.
pub trait Driver: Send + Sync {
    /// Which backend this is.
    fn backend(&self) -> Backend;

    /// The devices, in the order of their numbers. [`HalError::Unavailable`] where the driver cannot work.
    fn devices(&self) -> Result<Vec<DeviceInfo>, HalError>;

    /// Opens a device. Opening it again returns the same device, as memory found through one handle must be
    /// found through all.
    fn open(&self, index: u32) -> Result<Arc<dyn Device>, HalError>;

    /// The number of the device that is current on the calling thread, `None` where the application has made none so: where a driver has
    /// its first device current from the start, as HIP does, also if that one is.
    fn current(&self) -> Result<Option<u32>, HalError>;

    /// Compiles a source to machine code for an architecture (e.g. `sm_90`), which devices of that architecture take as
    /// [`KernelCode::Binary`](crate::KernelCode::Binary). Needs a run-time compiler, but no device and no driver's library.
    /// [`HalError::Unavailable`] where there is no compiler, or it does not know the architecture.
    fn compile(&self, source: &str, architecture: &str) -> Result<Vec<u8>, HalError> {
        let _ = (source, architecture);
        Err(HalError::Unsupported { op: "compile a kernel", backend: self.backend() })
    }
}

/// The drivers that this build contains, the host's first.
pub fn drivers() -> &'static [&'static dyn Driver] {
    static DRIVERS: &[&dyn Driver] = &[
        &host::HostDriver,
        #[cfg(feature = "cuda")]
        &crate::cuda::CudaDriver,
        #[cfg(feature = "rocm")]
        &crate::rocm::RocmDriver,
    ];
    DRIVERS
}

/// The driver of `backend`, or [`HalError::Unavailable`] where this build lacks it. Never another backend's.
pub fn driver(backend: Backend) -> Result<&'static dyn Driver, HalError> {
    drivers().iter().copied().find(|driver| driver.backend() == backend).ok_or_else(|| {
        HalError::Unavailable {
            what: format!("the {backend} backend"),
            why: "this build does not contain it".to_owned(),
            cure: format!(
                "use one of those it contains ({})",
                drivers()
                    .iter()
                    .map(|driver| driver.backend().name())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_that_is_not_built_in_says_so_and_names_those_that_are() {
        for backend in Backend::ALL {
            match driver(backend) {
                Ok(driver) => assert_eq!(driver.backend(), backend),
                Err(error @ HalError::Unavailable { .. }) => {
                    let text = error.to_string();
                    assert!(text.contains(backend.name()) && text.contains("(host"), "{text}");
                }
                Err(other) => panic!("{backend}: {other}"),
            }
        }
        assert!(driver(Backend::Host).is_ok());
    }
}
