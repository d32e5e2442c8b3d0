//! Locks that a panic does not close.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also one whose holder has panicked: one panic is not to end the threads too that end launches and free memory.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
