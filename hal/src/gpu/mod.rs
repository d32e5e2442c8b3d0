//! What the backends of GPU vendors share: finding their libraries, compiling at run time, keeping the results.
//!
//! Nothing here knows a vendor's calls or numbers; those are in the backends.

pub(crate) mod cache;
pub(crate) mod compiler;
pub(crate) mod image;
pub(crate) mod keep;
pub(crate) mod packages;
pub(crate) mod search;
pub(crate) mod spans;
pub(crate) mod symbols;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Locks `mutex`. Nothing of a caller's runs under any lock of a GPU backend, so that a panic cannot leave the data
/// half changed and poisoning carries no information.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number of this process that no other process has, but by a chance of one in 2^64.
pub(crate) fn process_number() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    // The standard library seeds its hashers from the system's randomness.
    *NUMBER.get_or_init(|| RandomState::new().hash_one(std::process::id()))
}
