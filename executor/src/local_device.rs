//! Which device is a rank's own, among those of its host.

use crate::error::ExecutorError;
use antiphon_bootstrap::launcher::{self, Environment};
use antiphon_hal::{Backend, Device, DeviceName, driver};
use std::sync::Arc;

/// This process's number among the ranks of its host, as its launcher or the environment says it; where these say only the rank among
/// all ranks, that one. 0 where nothing started the process as a rank.
///
/// # Errors
/// `Launcher` for a variable that holds no number.
pub fn local_rank() -> Result<u32, ExecutorError> {
    Ok(launcher::local_rank(&Environment::of_process())?.unwrap_or(0))
}

/// The device of a kind for the `number`th rank of a host: ranks are dealt out to the devices in turn.
///
/// # Errors
/// What the driver reports.
pub fn dealt_device(backend: Backend, number: u32) -> Result<Arc<dyn Device>, ExecutorError> {
    let driver = driver(backend)?;
    let count = driver.devices()?.len().max(1) as u32;
    Ok(driver.open(number % count)?)
}

/// The device that a name means in this process. Without a number that is the one that the application has made current on the calling
/// thread (`cudaSetDevice`), else the one that is [dealt out](dealt_device) to its [number on this host](local_rank): ranks
/// that a launcher has started have a device each, as far as there are as many.
///
/// With HIP, whose device 0 is current from the start, only a device with another number counts as made current.
///
/// # Errors
/// What the driver reports, and as [`local_rank`].
pub fn local_device(name: DeviceName) -> Result<Arc<dyn Device>, ExecutorError> {
    let driver = driver(name.backend)?;
    let index = match name.index {
        None => driver.current()?,
        named => named,
    };
    match index {
        Some(index) => Ok(driver.open(index)?),
        None => dealt_device(name.backend, local_rank()?),
    }
}
