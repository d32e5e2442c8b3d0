//! How far apart the cores are: the time a cache line takes from one to the other.
//!
//! On a virtual machine the two cores may share a physical one at one minute and lie apart at the next, and every
//! figure of a small collective then changes by a factor of four. So each run of a subject is bracketed by this probe, and only runs of the same
//! [`Distance`] are compared.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use super::antiphon::pin;

const BATCHES: usize = 15;
const TRIPS: u32 = 500;

/// How runs are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// The shortest that was seen, or not far from it.
    Near,
    /// Much longer than the shortest.
    Far,
    /// Whatever it was: it does not matter.
    Any,
}

/// One way of a cache line between the first two cores, in nanoseconds: the median of several batches. 0 where it
/// cannot be told, as on one core.
pub fn line_ns() -> u64 {
    let ball = AtomicU32::new(0);
    let play = |side: u32| {
        let pinned = pin(side as usize).is_ok();
        let mut batches = [0; BATCHES];
        for batch in &mut batches {
            let started = Instant::now();
            for _ in 0..TRIPS {
                while ball.load(Ordering::Acquire) % 2 != side {
                    std::hint::spin_loop();
                }
                ball.fetch_add(1, Ordering::Release);
            }
            *batch = started.elapsed().as_nanos() as u64 / u64::from(2 * TRIPS);
        }
        batches.sort_unstable();
        if pinned { batches[BATCHES / 2] } else { 0 }
    };
    if super::machine::cores() < 2 {
        return 0;
    }
    thread::scope(|scope| {
        let other = scope.spawn(|| play(1));
        // A thread of its own too, so that this one keeps its affinity.
        let one = scope.spawn(|| play(0));
        one.join().unwrap_or(0).max(other.join().unwrap_or(0))
    })
}

/// The limit between near and far among all that was seen: 2.2 times the shortest.
pub fn limit(seen: impl IntoIterator<Item = u64>) -> u64 {
    seen.into_iter().min().unwrap_or(0) * 11 / 5
}

/// Which distance a run had, from the probes before and after it; `None` where it changed meanwhile.
pub fn distance(line: [u64; 2], limit: u64) -> Option<Distance> {
    match line.map(|ns| ns > limit) {
        [false, false] => Some(Distance::Near),
        [true, true] => Some(Distance::Far),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_during_which_the_cores_moved_has_no_distance() {
        let limit = limit([110, 30, 33, 120]);
        assert_eq!(limit, 66);
        assert_eq!(distance([30, 33], limit), Some(Distance::Near));
        assert_eq!(distance([110, 120], limit), Some(Distance::Far));
        assert_eq!(distance([30, 120], limit), None);
    }

    #[test]
    fn the_probe_ends_and_is_plausible() {
        assert!(line_ns() < 1_000_000_000);
    }
}
