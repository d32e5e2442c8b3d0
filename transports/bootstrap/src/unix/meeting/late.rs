//! What a rank says that waits long.

use std::time::Instant;

use super::Meeting;
use crate::error::Names;

impl Meeting<'_> {
    /// What a rank that goes on waiting says now, if anything.
    pub(super) fn word(&mut self, now: Instant) -> Option<String> {
        let waited = self.late.due(now)?.as_secs();
        let missing = self.missing();
        Some(format!(
            "rank {} has waited {waited} s at {} and goes on waiting for {}; see whether they run",
            self.job.rank,
            self.job.address,
            Names(&missing)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DEFAULT_TIMEOUT;
    use crate::unix::Rendezvous;

    #[test]
    fn whom_a_rank_waits_for_is_said_while_it_waits() {
        let address = Rendezvous::unique().unwrap();
        let begun = Instant::now();
        for (rank, missing) in [(0, "for rank 1, rank 2;"), (1, "for rank 0;")] {
            let job = Rendezvous::new(&address, rank, 3);
            let mut meeting = Meeting::new(&job, "here", begun).unwrap();
            // Rank 0 has opened the address, and gone.
            meeting.arrive().unwrap();
            assert_eq!(meeting.word(begun), None);
            let word = meeting.word(begun + DEFAULT_TIMEOUT).unwrap();
            for part in [&format!("rank {rank} has waited 120 s at {address}"), missing] {
                assert!(word.contains(part), "no {part:?} in: {word}");
            }
            assert_eq!(meeting.word(begun + DEFAULT_TIMEOUT), None, "it was said");
        }
    }
}
