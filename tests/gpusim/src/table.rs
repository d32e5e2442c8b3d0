//! Handles: numbers that stand for objects, so that a stale or invented one is told so instead of followed.

use crate::status::Status;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Locks, whatever happened to the last holder: a panic has been answered as an unknown error already.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle that no other object of the process has had or will have.
pub fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Far from the numbers 0, 1 and 2 that name special streams, and no address that can be followed.
    0x51C0_0000_0000_0000 + 16 * NEXT.fetch_add(1, Ordering::Relaxed)
}

/// All objects of one kind.
pub struct Table<T>(LazyLock<Mutex<HashMap<u64, Arc<T>>>>);

impl<T> Table<T> {
    pub const fn new() -> Self {
        Self(LazyLock::new(Mutex::default))
    }

    /// Adds an object under a fresh handle.
    pub fn add(&self, object: Arc<T>) -> u64 {
        let handle = fresh();
        self.put(handle, object);
        handle
    }

    /// Adds an object under a handle it knows itself.
    pub fn put(&self, handle: u64, object: Arc<T>) {
        lock(&self.0).insert(handle, object);
    }

    pub fn get(&self, handle: u64) -> Result<Arc<T>, Status> {
        lock(&self.0).get(&handle).cloned().ok_or(Status::INVALID_HANDLE)
    }

    pub fn take(&self, handle: u64) -> Result<Arc<T>, Status> {
        lock(&self.0).remove(&handle).ok_or(Status::INVALID_HANDLE)
    }
}
