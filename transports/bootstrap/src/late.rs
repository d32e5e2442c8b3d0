//! When a rank that waits long says so: without a time limit it would never say why.

use std::time::{Duration, Instant};

use crate::DEFAULT_TIMEOUT;

/// When a rank says that it still waits: once it has waited for [`DEFAULT_TIMEOUT`], and each time it has waited twice as long.
pub(crate) struct Late {
    begun: Instant,
    next: Duration,
}

impl Late {
    pub fn new(begun: Instant) -> Late {
        Late { begun, next: DEFAULT_TIMEOUT }
    }

    /// How long until it is to be said again.
    pub fn left(&self, now: Instant) -> Duration {
        self.next.saturating_sub(now.saturating_duration_since(self.begun))
    }

    /// How long it has been, if that is to be said now.
    pub fn due(&mut self, now: Instant) -> Option<Duration> {
        if !self.left(now).is_zero() {
            return None;
        }
        let waited = now.saturating_duration_since(self.begun);
        self.next = waited.saturating_mul(2);
        Some(waited)
    }
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
