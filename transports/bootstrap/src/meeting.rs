//! What the meetings over Unix sockets and over TCP have in common: who may be at the other end of a connection while a job
//! forms, and how long and for how many a rank waits.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::MOST_RANKS;
use crate::error::{BootstrapError, Result};
use crate::socket::accept;

pub(crate) const FORMING: &str = "forming the job";
/// First and longest pause between attempts to reach a rank that is not there yet.
pub(crate) const PAUSE: (Duration, Duration) =
    (Duration::from_millis(1), Duration::from_millis(50));
/// How long rank 0 of a job that cannot form tells so to ranks that come later.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// How long a listener rests at which accepting failed: it would be ready again at once.
pub(crate) const REST: Duration = Duration::from_millis(100);
/// Longer than any job waits, and short enough for every clock.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Connections of which nobody knows yet whose they are, kept beyond one a rank; the oldest goes first.
pub(crate) const STRANGERS: usize = 64;

/// When a limit that begins `now` is over. A limit may be of any length: one that no clock reaches is never over.
pub(crate) fn deadline(now: Instant, limit: Duration) -> Instant {
    now + limit.min(FOR_EVER)
}

/// A rank's listeners while a job forms. Accepting may fail for a while, for want of descriptors mostly, and the job forms none the
/// less.
#[derive(Default)]
pub(crate) struct Accepting {
    /// When it failed, and why, until it has worked again.
    failed: Option<(Instant, Errno)>,
}

impl Accepting {
    /// The next connection that waits at a listener, if any.
    pub fn next(&mut self, listener: &OwnedFd) -> Option<OwnedFd> {
        if self.rest(Instant::now()).is_some() {
            return None;
        }
        match accept(listener) {
            Ok(next) => {
                self.failed = None;
                next
            }
            Err(errno) => {
                self.failed = Some((Instant::now(), errno));
                None
            }
        }
    }

    /// How long the listeners are not looked at, if they are not.
    pub fn rest(&self, now: Instant) -> Option<Duration> {
        let (since, _) = self.failed?;
        let left = REST.saturating_sub(now.saturating_duration_since(since));
        Some(left).filter(|left| !left.is_zero())
    }

    /// Why ranks may be missing.
    pub fn hint(&self) -> Option<String> {
        let (_, errno) = self.failed?;
        Some(BootstrapError::Os { doing: "accept ranks that come to this one", errno }.to_string())
    }
}

/// Whether there can be a job of so many ranks with this one among them: asked before room is made for each of them.
pub(crate) fn check_shape(rank: u32, world: u32) -> Result<()> {
    match world {
        _ if world > MOST_RANKS => Err(BootstrapError::TooManyRanks { world }),
        _ if rank >= world => Err(BootstrapError::BadShape { rank, world }),
        _ => Ok(()),
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role<Guest> {
    /// Came to rank 0 and has not joined; with what is known of it.
    Guest(Guest),
    /// Rank 0, as the others see it.
    Desk,
    /// The process that made the job's id, where rank 0 is not there. Over TCP alone.
    Keeper,
    /// A rank that has joined, as rank 0 sees it.
    Joined(u32),
    /// Came to this rank's door for links and has not said who it is.
    Caller,
    /// The link to a rank, being proven.
    Link(u32),
    /// The link to a rank. It is not read here any more: what comes now is for the mesh.
    Done(u32),
    /// A rank that knows why the job does not form.
    Told,
    Dropped,
}

/// Drops the oldest of those that count, until there are no more than `most`.
pub(crate) fn keep_newest<T>(all: &mut Vec<T>, most: usize, counts: impl Fn(&T) -> bool) {
    let mut excess = all.iter().filter(|one| counts(one)).count().saturating_sub(most);
    all.retain(|one| {
        let goes = excess > 0 && counts(one);
        excess -= usize::from(goes);
        !goes
    });
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_oldest_go_and_those_that_do_not_count_stay() {
        for (most, kept) in [(9, &[1, 2, 3, 4, 6][..]), (2, &[1, 3, 4, 6]), (0, &[1, 3])] {
            let mut all = vec![1, 2, 3, 4, 6];
            keep_newest(&mut all, most, |one| one % 2 == 0);
            assert_eq!(all, kept, "at most {most}");
        }
    }

    #[test]
    fn a_listener_that_fails_rests_and_is_asked_again() {
        let (deaf, _other) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _guest = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (deaf, listener) = (OwnedFd::from(deaf), OwnedFd::from(listener));
        let mut accepting = Accepting::default();
        assert!(accepting.next(&deaf).is_none());
        let (since, _) = accepting.failed.unwrap();
        assert_eq!(accepting.rest(since), Some(REST));
        assert_eq!(accepting.rest(since + REST), None);
        let hint = accepting.hint().unwrap();
        assert!(hint.starts_with("cannot accept ranks that come to this one"), "{hint}");
        accepting.failed = Some((since.checked_sub(REST).unwrap(), Errno::MFILE));
        assert!(accepting.next(&listener).is_some());
        assert_eq!(accepting.hint(), None);
    }
}
