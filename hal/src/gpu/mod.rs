//! What the backends of GPU vendors share, which is most of them: HIP was made in CUDA's image.
//!
//! Devices, memory, streams, events and kernels are written once, over a table of the driver's functions (`calls`) whose
//! names each backend gives, and over the trait [`vendor::Vendor`], by which each says what it has in its own way.

pub(crate) mod adopted;
pub(crate) mod cache;
pub(crate) mod calls;
pub(crate) mod code;
pub(crate) mod compiler;
pub(crate) mod core;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod export;
pub(crate) mod foreign;
pub(crate) mod image;
pub(crate) mod import;
pub(crate) mod keep;
pub(crate) mod kernel;
pub(crate) mod library;
pub(crate) mod memory;
pub(crate) mod packages;
pub(crate) mod peers;
pub(crate) mod pinned;
pub(crate) mod process;
pub(crate) mod recording;
pub(crate) mod search;
pub(crate) mod spans;
pub(crate) mod stream;
pub(crate) mod vendor;
pub(crate) mod vmm;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. Nothing of a caller's runs under any lock of a GPU backend, so that a panic cannot leave the data
/// half changed and poisoning carries no information.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
