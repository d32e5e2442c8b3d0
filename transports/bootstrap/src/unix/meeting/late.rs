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
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

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

    #[test]
    fn ranks_that_cannot_be_accepted_are_missing_in_the_end_and_not_before() {
        let timeout = Duration::from_millis(300);
        let job = Rendezvous { timeout, ..Rendezvous::new(Rendezvous::unique().unwrap(), 0, 2) };
        let mut meeting = Meeting::new(&job, "here", Instant::now()).unwrap();
        meeting.desk = Some(UnixStream::pair().unwrap().0.into());
        let text = meeting.run().unwrap_err().to_string();
        for part in ["within 300ms from rank 1", "cannot accept ranks that come to this one"] {
            assert!(text.contains(part), "no {part:?} in: {text}");
        }
    }
}
