//! Waits with an end, so that what never comes fails a test and does not hang it.

use std::thread;
use std::time::{Duration, Instant};

/// How long something may take before a test calls it missing. Nothing waits that long when all is well.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `condition` holds.
///
/// # Panics
/// With `what`, where it does not within 20 seconds.
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(PATIENCE, what, condition);
}

/// As [`until`], for what may take another time.
///
/// # Panics
/// With `what`, where it does not hold within `limit`.
pub fn until_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "waited {limit:?} in vain: {what}");
        thread::yield_now();
    }
}
