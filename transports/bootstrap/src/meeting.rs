//! What the meetings over Unix sockets and over TCP have in common: who may be at the other end of a connection while a job
//! forms, and how long and for how many a rank waits.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use antiphon_transport::room::is_full;
use rustix::io::Errno;

use crate::MOST_RANKS;
use crate::error::{BootstrapError, PeerName, Result};
use crate::frame::Frame;
use crate::hello::Reader;
use crate::socket::accept;

pub(crate) const FORMING: &str = "forming the job";
/// First and longest pause between attempts to reach a rank that is not there yet.
pub(crate) const PAUSE: (Duration, Duration) =
    (Duration::from_millis(1), Duration::from_millis(50));
/// How long rank 0 of a job that cannot form tells so to ranks that come later.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// How long a listener rests at which accepting failed: it would be ready again at once.
pub(crate) const REST: Duration = Duration::from_millis(100);
/// For how long a rank may lack descriptors before it gives the job up: less than neighbours wait for each other's proofs, so that
/// none of them takes this rank for one of another node meanwhile.
const FULL: Duration = Duration::from_secs(2);
/// How long a failed try counts: if no other try fails in this time, nobody knows whether there is room again.
const STALE: Duration = Duration::from_millis(500);
/// Longer than any job waits, and short enough for every clock.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// How many connections whose other end is not known yet are kept beyond one for each rank; the oldest goes first.
pub(crate) const STRANGERS: usize = 64;

/// When a limit that begins `now` is over. A limit may be of any length: one that no clock reaches is never over.
pub(crate) fn deadline(now: Instant, limit: Duration) -> Instant {
    now + limit.min(FOR_EVER)
}

/// What a rank lacks while a job forms, descriptors mostly: it may lack them for a while, and the job forms none the less.
#[derive(Default)]
pub(crate) struct Lack {
    now: Option<Lacking>,
}

#[derive(Clone, Copy)]
struct Lacking {
    since: Instant,
    last: Instant,
    doing: &'static str,
    errno: Errno,
}

impl Lacking {
    fn error(self) -> BootstrapError {
        BootstrapError::Os { doing: self.doing, errno: self.errno }
    }
}

impl Lack {
    /// The next connection that waits at a listener, if any.
    pub fn accept(&mut self, listener: &OwnedFd) -> Option<OwnedFd> {
        if self.rest(Instant::now()).is_some() {
            return None;
        }
        match accept(listener) {
            Ok(next) => {
                if next.is_some() {
                    self.now = None;
                }
                next
            }
            Err(errno) => {
                self.note("accept ranks that come to this one", errno);
                None
            }
        }
    }

    /// What an attempt to reach another rank says about that rank; `None` if there is no room for it here, and it is to
    /// be made again.
    pub fn reached<T>(
        &mut self,
        attempt: std::result::Result<T, Errno>,
    ) -> Option<std::result::Result<T, Errno>> {
        match attempt {
            Err(errno) if is_full(errno) => {
                self.note("open a connection to another rank", errno);
                None
            }
            said => {
                self.now = None;
                Some(said)
            }
        }
    }

    fn note(&mut self, doing: &'static str, errno: Errno) {
        let last = Instant::now();
        let since = self.recent(last).map_or(last, |lacking| lacking.since);
        self.now = Some(Lacking { since, last, doing, errno });
    }

    fn recent(&self, now: Instant) -> Option<Lacking> {
        self.now.filter(|lacking| now.saturating_duration_since(lacking.last) < STALE)
    }

    /// Looks whether this has gone on for too long. It has not while connections that go by themselves may be all there is.
    ///
    /// # Errors
    /// What is lacking.
    pub fn check(&mut self, now: Instant, will_go: bool) -> Result<()> {
        let Some(lacking) = self.recent(now) else { return Ok(()) };
        if will_go {
            self.now = Some(Lacking { since: now, ..lacking });
        } else if now.saturating_duration_since(lacking.since) >= FULL {
            self.now = None;
            return Err(lacking.error());
        }
        Ok(())
    }

    /// How long the listeners are not looked at, if they are not.
    pub fn rest(&self, now: Instant) -> Option<Duration> {
        let left = REST.saturating_sub(now.saturating_duration_since(self.now?.last));
        Some(left).filter(|left| !left.is_zero())
    }

    /// Why ranks may be missing.
    pub fn hint(&self, now: Instant) -> Option<String> {
        Some(self.recent(now)?.error().to_string())
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

/// Whether a rank that comes to rank 0 of a job of `expected` ranks fits there: how many it counts itself, and which process
/// came first as this rank, if one did.
///
/// # Errors
/// Why it does not.
pub(crate) fn check_newcomer(
    newcomer: PeerName,
    world: u32,
    expected: u32,
    first: Option<u32>,
) -> Result<()> {
    let PeerName { rank, pid } = newcomer;
    if world != expected {
        return Err(BootstrapError::WrongWorld { peer: newcomer, saw: world, expected });
    }
    check_shape(rank, expected)?;
    match first {
        Some(first) => Err(BootstrapError::DuplicateRank { rank, first, second: pid }),
        None => Ok(()),
    }
}

/// Whether a peer's answer begins with the token of the memory that was passed to it.
///
/// # Errors
/// That it does not.
pub(crate) fn check_answer(peer: PeerName, answer: &Frame, token: [u8; 16]) -> Result<()> {
    if Reader(&answer.payload).token() == Some(token) {
        return Ok(());
    }
    Err(nonsense(peer, "another token than the memory passed to it holds"))
}

/// The error by which a job does not form, since a rank refuses, in that one's words.
pub(crate) fn refused(by: PeerName, frame: &Frame) -> BootstrapError {
    let text = String::from_utf8_lossy(&frame.payload).into_owned();
    BootstrapError::Refused { by, text }
}

/// The error by which a job does not form, since a rank says what makes no sense.
pub(crate) fn nonsense(peer: PeerName, saw: impl Into<String>) -> BootstrapError {
    BootstrapError::Protocol { peer, saw: saw.into() }
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
        let mut lack = Lack::default();
        assert!(lack.accept(&deaf).is_none());
        let failed = lack.now.unwrap();
        assert_eq!(lack.rest(failed.last), Some(REST));
        assert_eq!(lack.rest(failed.last + REST), None);
        let hint = lack.hint(failed.last).unwrap();
        assert!(hint.starts_with("cannot accept ranks that come to this one"), "{hint}");
        lack.now = Some(Lacking { last: failed.last.checked_sub(REST).unwrap(), ..failed });
        assert!(lack.accept(&listener).is_some());
        assert_eq!(lack.hint(failed.last), None);
    }

    #[test]
    fn a_rank_gives_up_what_it_lacks_for_long_and_not_what_is_about_to_come() {
        let begun = Instant::now();
        let lacking = |since, last| Lack {
            now: Some(Lacking { since, last, doing: "go on", errno: Errno::MFILE }),
        };
        let text = |checked: Result<()>| checked.map_err(|error| error.to_string());
        let mut lack = lacking(begun, begun + FULL);
        assert_eq!(text(lack.check(begun + FULL / 2, false)), Ok(()));
        let given_up = text(lack.check(begun + FULL, false)).unwrap_err();
        assert!(
            given_up.starts_with("cannot go on: ") && given_up.contains("ulimit -n"),
            "{given_up}"
        );
        // Whoever ends for it does not say it twice.
        assert_eq!(lack.hint(begun + FULL), None);
        let mut stale = lacking(begun, begun);
        assert_eq!(text(stale.check(begun + FULL, false)), Ok(()));
        let mut held = lacking(begun, begun + FULL);
        assert_eq!(text(held.check(begun + FULL, true)), Ok(()));
        assert_eq!(text(held.check(begun + FULL, false)), Ok(()), "its time begins anew");
    }

    #[test]
    fn what_a_rank_lacks_says_nothing_of_the_other_end() {
        let mut lack = Lack::default();
        assert!(lack.reached::<()>(Err(Errno::MFILE)).is_none());
        let failed = lack.now.unwrap().last;
        let hint = lack.hint(failed).unwrap();
        assert!(hint.starts_with("cannot open a connection to another rank"), "{hint}");
        let refused = lack.reached::<()>(Err(Errno::CONNREFUSED)).unwrap();
        assert_eq!((refused.unwrap_err(), lack.hint(failed)), (Errno::CONNREFUSED, None));
    }
}
