//! What a rank says that waits long: without a time limit it would never say why.

use std::time::{Duration, Instant};

use super::{Meeting, Role};
use crate::DEFAULT_TIMEOUT;
use crate::error::Names;

/// When a rank says that it still waits: once it has waited for [`DEFAULT_TIMEOUT`], and each time it has waited twice as long.
pub(super) struct Late {
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
    fn due(&mut self, now: Instant) -> Option<Duration> {
        if !self.left(now).is_zero() {
            return None;
        }
        let waited = now.saturating_duration_since(self.begun);
        self.next = waited.saturating_mul(2);
        Some(waited)
    }
}

impl Meeting<'_> {
    /// What a rank that goes on waiting says now, if anything.
    pub(super) fn word(&mut self, now: Instant) -> Option<String> {
        // Whose time is up says why at once.
        let waited = self.late.due(now).filter(|_| !self.asked)?.as_secs();
        let (rank, place) = (self.job.rank, &self.job.place);
        if self.has(Role::Desk) {
            return Some(format!(
                "rank {rank} has waited {waited} s with rank 0, which it reached at {place}, for the other ranks"
            ));
        }
        let missing = self.missing();
        let hints: Vec<&str> = self.hints.iter().map(String::as_str).collect();
        let hints = if hints.is_empty() { "see whether they run".into() } else { hints.join("; ") };
        Some(format!(
            "rank {rank} has waited {waited} s at {place} and goes on waiting for {}; {hints}",
            Names(&missing)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{Place, Rendezvous, Secret};

    #[test]
    fn a_rank_that_waits_says_so_after_the_default_limit_and_ever_more_rarely() {
        let begun = Instant::now();
        let mut late = Late::new(begun);
        let after = |seconds| begun + Duration::from_secs(seconds);
        let said: Vec<u64> = (0..2000).filter(|&at| late.due(after(at)).is_some()).collect();
        assert_eq!(said, [120, 240, 480, 960, 1920]);
        assert_eq!(late.left(after(3800)), Duration::from_secs(40));
    }

    #[test]
    fn what_keeps_a_rank_waiting_is_said_while_it_waits() {
        let place = |host: &str| Place::Address { host: host.to_owned(), port: 9 };
        let job = |place, rank| Rendezvous::new(place, rank, 3, Secret::new([7; 32]));
        let (begun, limit) = (Instant::now(), DEFAULT_TIMEOUT);
        let job_of_guest = job(place("no-such-host.invalid"), 1);
        let mut guest = Meeting::new(&job_of_guest, "here", begun).unwrap();
        guest.arrive().unwrap();
        assert_eq!(guest.word(begun + limit - Duration::from_secs(1)), None);
        let word = guest.word(begun + limit).unwrap();
        for part in ["rank 1", "120 s", "for rank 0;", "no-such-host.invalid\" cannot be looked up"]
        {
            assert!(word.contains(part), "no {part:?} in: {word}");
        }
        assert_eq!(guest.word(begun + limit), None, "it was said");
        assert!(guest.word(begun + 2 * limit).is_some(), "it is still so");
        let job_of_host = job(place("localhost"), 0);
        let mut host = Meeting::new(&job_of_host, "here", begun).unwrap();
        let word = host.word(begun + limit).unwrap();
        assert!(word.contains("for rank 1, rank 2; see whether they run"), "{word}");
        host.asked = true;
        assert_eq!(host.word(begun + 2 * limit), None, "an error says it");
    }
}
