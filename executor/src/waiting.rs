//! How a thread waits: what it does between two looks at memory that someone else will write.

use antiphon_hal::Effort;
use std::time::{Duration, Instant};

/// Looks before the clock is read for the first time.
const LOOKS_PER_CLOCK: u32 = 64;
/// How long a brief wait may spin.
const BRIEF: Duration = Duration::from_micros(20);
/// How long one poll may wait.
const POLL: Duration = Duration::from_millis(1);
/// After this long without progress a wait yields the CPU between looks.
const SPIN: Duration = Duration::from_millis(2);
/// After this long without progress a wait sleeps between looks.
const YIELD: Duration = Duration::from_millis(20);
/// The sleep between two looks of a long wait.
const NAP: Duration = Duration::from_micros(100);

/// One poll's waiting.
#[derive(Debug)]
pub struct Waiter {
    effort: Effort,
    yields: bool,
    looks: u32,
    began: Option<Instant>,
}

/// What to do after a look that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Look again.
    Again,
    /// Look again, and see whether the launch can still finish: time has passed.
    Check(Instant),
    /// Return to the caller.
    GiveUp,
}

impl Waiter {
    /// A poll with this effort; it `yields` at once where the node has more ranks than cores.
    pub fn new(effort: Effort, yields: bool) -> Self {
        Waiter { effort, yields, looks: 0, began: None }
    }

    /// Something moved: the next wait starts afresh.
    pub fn progressed(&mut self) {
        self.looks = 0;
    }

    /// Pauses after a look that found nothing. `stalled` is how long the launch has made no progress.
    pub fn pause(&mut self, stalled: Duration) -> Verdict {
        if self.effort == Effort::Try {
            return Verdict::GiveUp;
        }
        self.looks += 1;
        if self.yields {
            if stalled > YIELD {
                std::thread::sleep(NAP)
            } else {
                std::thread::yield_now()
            }
            if !self.looks.is_multiple_of(8) {
                return Verdict::Again;
            }
        } else {
            std::hint::spin_loop();
            if !self.looks.is_multiple_of(LOOKS_PER_CLOCK) {
                return Verdict::Again;
            }
            if stalled > YIELD {
                std::thread::sleep(NAP);
            } else if stalled > SPIN {
                std::thread::yield_now();
            }
        }
        let now = Instant::now();
        let spent = now.duration_since(*self.began.get_or_insert(now));
        let limit = if self.effort == Effort::Brief { BRIEF } else { POLL };
        if spent > limit { Verdict::GiveUp } else { Verdict::Check(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pauses until the waiter gives up, or `most` times.
    fn pauses(waiter: &mut Waiter, most: u32) -> (u32, bool) {
        for number in 1..=most {
            if waiter.pause(Duration::ZERO) == Verdict::GiveUp {
                return (number, true);
            }
        }
        (most, false)
    }

    #[test]
    fn a_try_gives_up_at_once() {
        for crowded in [false, true] {
            let mut waiter = Waiter::new(Effort::Try, crowded);
            assert_eq!(pauses(&mut waiter, 1), (1, true), "{crowded}");
        }
    }

    #[test]
    fn every_wait_checks_its_surroundings_and_gives_up_in_the_end() {
        for (effort, crowded) in [
            (Effort::Brief, false),
            (Effort::Brief, true),
            (Effort::Wait, false),
            (Effort::Wait, true),
        ] {
            let mut waiter = Waiter::new(effort, crowded);
            let checked = (0..10_000).any(|_| {
                waiter.progressed();
                (0..LOOKS_PER_CLOCK).any(|_| {
                    matches!(waiter.pause(Duration::ZERO), Verdict::Check(_) | Verdict::GiveUp)
                })
            });
            assert!(checked, "{effort:?} {crowded}");
            assert!(pauses(&mut waiter, u32::MAX).1, "{effort:?} {crowded}");
        }
    }
}
