//! What a rank says that waits long.

use std::time::Instant;

use super::{Meeting, Role};
use crate::error::Names;

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
        self.check_own_name();
        let missing = self.missing();
        let hints = self.all_hints();
        let hints = if hints.is_empty() { "see whether they run".into() } else { hints.join("; ") };
        Some(format!(
            "rank {rank} has waited {waited} s at {place} and goes on waiting for {}; {hints}",
            Names(&missing)
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::DEFAULT_TIMEOUT;
    use crate::tcp::{Place, Rendezvous, Secret};

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
