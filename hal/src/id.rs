//! Numbers that identify objects for the life of the process.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that no other object of this process has had or will have; never 0. For whoever implements [`crate::Memory`] or
/// [`crate::Stream`].
pub fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
