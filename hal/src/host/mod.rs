//! The host backend: CPUs, and memory that processes of one machine share.
//!
//! | noun | here |
//! |---|---|
//! | device | the whole machine, as far as this process may use it; there is one, number 0 |
//! | memory | a sealed memory file (`memfd`), or a nameless file of the POSIX shared-memory file system |
//! | handle | the file's descriptor and the length |
//! | stream | a queue of [`crate::Task`]s, driven by its callers and by one worker thread per process |
//! | event | a ticket that a stream reaches |
//!
//! It lacks kernels and multicast. It is a real backend, the default of embedded use, and never silently takes
//! the place of a device that was asked for.

mod caps;
mod cores;
mod device;
mod driver;
mod event;
mod memory;
mod process;
mod progress;
mod queue;
mod stream;

pub use cores::{cpu_model, usable_cores};
pub use device::{HostDevice, Options, SharedMemory};
pub use driver::HostDriver;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. Nothing of a caller's runs under any lock of this backend, so that a panic cannot leave the data
/// half changed and poisoning carries no information.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
