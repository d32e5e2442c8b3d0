//! When a rank that waits long says so: without a time limit it would never say why.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::DEFAULT_TIMEOUT;
use crate::error::{Names, PeerName};

/// Milliseconds after which it is said first.
static FIRST: AtomicU64 = AtomicU64::new(DEFAULT_TIMEOUT.as_millis() as u64);

/// For tests that cannot wait for minutes: waits of this process that begin from now on are said to go on after `first`.
#[doc(hidden)]
pub fn say_after(first: Duration) {
    FIRST.store(first.as_millis() as u64, Ordering::Relaxed);
}

/// When a rank says that it still waits: once it has waited for [`DEFAULT_TIMEOUT`], and each time it has waited twice as long.
#[derive(Clone, Copy, Debug)]
pub struct Late {
    begun: Instant,
    next: Duration,
}

impl Late {
    /// Of a wait that has begun then.
    pub fn new(begun: Instant) -> Late {
        let next = Duration::from_millis(FIRST.load(Ordering::Relaxed));
        Late { begun, next }
    }

    /// How long it has been.
    pub fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.begun)
    }

    /// How long until it is to be said again.
    pub fn left(&self, now: Instant) -> Duration {
        self.next.saturating_sub(self.waited(now))
    }

    /// How long it has been, in whole seconds, if that is to be said now.
    pub fn due(&mut self, now: Instant) -> Option<Duration> {
        if !self.left(now).is_zero() {
            return None;
        }
        let waited = Duration::from_secs(self.waited(now).as_secs());
        self.next = waited.saturating_mul(2);
        Some(waited)
    }
}

/// What a rank, which is called `who`, says when it has waited this long for others in an operation of this name; `missing` must not be empty.
pub fn overdue(who: impl Display, doing: &str, waited: Duration, missing: &[PeerName]) -> String {
    let (seconds, missing) = (waited.as_secs(), Names(missing));
    format!(
        "{who} has waited {seconds} s in the {doing} and goes on waiting for {missing}; see whether they come there, too"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_waits_says_so_after_the_default_limit_and_ever_more_rarely() {
        let begun = Instant::now();
        let mut late = Late::new(begun);
        let after = |seconds| begun + Duration::from_secs(seconds);
        let said: Vec<u64> = (0..2000).filter(|&at| late.due(after(at)).is_some()).collect();
        assert_eq!(said, [120, 240, 480, 960, 1920]);
        assert_eq!(late.left(after(3800)), Duration::from_secs(40));
    }
}
