//! Links that end while the job forms.
//!
//! A rank that dies ends its links, and so does one that leaves because another died. Rank 0 can tell the two apart, for it has a
//! connection with every rank, over which nobody leaves without a word. So rank 0 is the one to say who is lost, and the end of a
//! link says nothing.

use std::time::{Duration, Instant};

use super::Meeting;
use crate::error::{BootstrapError, Result};

/// How long rank 0 may take to say why a link has ended, which it does at once unless the machine is overloaded. Where it does not, the
/// rank at the other end has closed it, and stays.
const WORD: Duration = Duration::from_secs(5);

/// That a link has ended, for rank 0 to say why.
pub(super) struct Doubt {
    error: BootstrapError,
    /// When the error counts after all, if rank 0 has said nothing.
    until: Instant,
}

impl Meeting<'_> {
    /// A link has ended, of which this would be the error.
    pub(super) fn doubt(&mut self, error: BootstrapError) {
        let until = self.deadline.min(Instant::now() + WORD);
        self.doubt.get_or_insert(Doubt { error, until });
    }

    /// How long rank 0 may still take to say why a link has ended.
    ///
    /// # Errors
    /// That it has ended, when that time is up.
    pub(super) fn doubted(&mut self, now: Instant) -> Result<Duration> {
        let Some(doubt) = &self.doubt else { return Ok(Duration::MAX) };
        let left = doubt.until.saturating_duration_since(now);
        if left.is_zero() { Err(doubt.error.clone()) } else { Ok(left) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::frame::{Frame, Kind};
    use crate::hello::{Introduction, passed_token, passing};
    use crate::pipe::Pipe;
    use crate::socket::{accept, connect, listen};
    use crate::unix::Rendezvous;
    use crate::unix::card::Card;

    const WORLD: u32 = 4;
    const PATIENCE: Duration = Duration::from_secs(60);

    /// What comes of asking again and again.
    fn awaited<T>(mut ask: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            assert!(began.elapsed() < PATIENCE, "nothing comes");
            std::thread::yield_now();
        }
    }

    /// The connection of a rank that has joined, whose door has this name.
    fn join(job: &Rendezvous, door: &str) -> Pipe {
        let mut pipe = Pipe::new(awaited(|| connect(&job.address).ok())).unwrap();
        let (rank, process) = (job.rank, [job.rank as u8; 16]);
        let (door, host) = (door.to_owned(), "here".to_owned());
        let card = Card { rank, world: WORLD, process, door, host };
        pipe.send_bytes(Kind::Join, card.encode());
        pipe
    }

    fn hear(pipe: &mut Pipe, kind: Kind) -> Frame {
        awaited(|| match pipe.next() {
            Ok(frame) => frame.filter(|frame| frame.kind == kind),
            Err(_) => panic!("the connection ends before a {kind:?} frame"),
        })
    }

    fn caller(door: &OwnedFd) -> Pipe {
        Pipe::new(awaited(|| accept(door).unwrap())).unwrap()
    }

    /// Ranks 0 and 1 form a job with two that have joined, whose doors are these and which do this; their errors.
    fn fails(
        timeout: Duration,
        doors: [&str; 2],
        act: impl FnOnce([&mut Pipe; 2]),
    ) -> [BootstrapError; 2] {
        let address = Rendezvous::unique().unwrap();
        let job = |rank| Rendezvous { timeout, ..Rendezvous::new(&address, rank, WORLD) };
        std::thread::scope(|scope| {
            let form = |rank| {
                let formed = crate::unix::connect_as(&job(rank), "here");
                formed.map(drop).unwrap_err()
            };
            let ranks = [0, 1].map(|rank| scope.spawn(move || form(rank)));
            let [mut second, mut third] =
                [2, 3].map(|rank| join(&job(rank), doors[rank as usize - 2]));
            act([&mut second, &mut third]);
            ranks.map(|rank| rank.join().unwrap())
        })
    }

    fn door(name: &str) -> (String, OwnedFd) {
        let name = format!("{}-{name}", Rendezvous::unique().unwrap());
        let listener = listen(&name).unwrap();
        (name, listener)
    }

    const CAUSE: &str = "cannot finish forming the job: rank 2 is lost";

    fn all_name_the_cause(errors: [BootstrapError; 2]) {
        let [first, second] = errors;
        let by = |error: &BootstrapError| match error {
            BootstrapError::Refused { by, text } if text.ends_with(CAUSE) => by.rank,
            other => panic!("{other}"),
        };
        assert_eq!([by(&first), by(&second)], [3, 0]);
    }

    /// Rank 3 has left since rank 2 died, which it has told rank 0, as whoever leaves does before its links end.
    #[test]
    fn who_died_is_named_and_not_who_left_for_it() {
        let ((open, listener), gone) = (door("open"), door("gone").0);
        // Nobody listens at its door any more.
        all_name_the_cause(fails(PATIENCE, [&open, &gone], |[_, third]| {
            hear(third, Kind::Table);
            third.send_bytes(Kind::Reject, CAUSE.as_bytes().to_vec());
        }));
        drop(listener);
        // It has closed its links: the two have seen that when they answer rank 2, in whose place they look at that first.
        let (doors, listeners): (Vec<_>, Vec<_>) =
            ["second", "third"].map(door).into_iter().unzip();
        all_name_the_cause(fails(PATIENCE, [&doors[0], &doors[1]], |[_, third]| {
            let [mut links, ended] =
                [&listeners[0], &listeners[1]].map(|listener| [(); 2].map(|()| caller(listener)));
            drop(ended);
            for link in &mut links {
                let answer = passed_token(&mut hear(link, Kind::Link)).unwrap();
                link.send(passing(&[2; 16], Kind::Welcome, answer.to_vec()).unwrap());
            }
            links.iter_mut().for_each(|link| drop(hear(link, Kind::Proof)));
            third.send_bytes(Kind::Reject, CAUSE.as_bytes().to_vec());
        }));
    }

    #[test]
    fn who_ends_a_link_and_stays_is_named_in_the_end() {
        let ((open, _listener), gone) = (door("open"), door("gone").0);
        let errors = fails(PATIENCE, [&open, &gone], |[second, third]| {
            for rank in [second, third] {
                hear(rank, Kind::Reject);
            }
        });
        let pid = std::process::id();
        let reason = format!("rank 3 (pid {pid}) is lost: nobody listens at its address");
        // Whichever of the two was first has told the other.
        for error in errors {
            assert!(error.to_string().contains(&reason), "{error}");
        }
    }
}
