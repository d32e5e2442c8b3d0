//! What can go wrong between ranks, and who is to blame.
//!
//! Every variant that speaks of a rank names its process as well, so that a log line leads to a culprit.

use std::fmt;
use std::time::Duration;

use rustix::io::Errno;

/// The result of a bootstrap operation.
pub type Result<T> = std::result::Result<T, BootstrapError>;

/// A rank and its process, as error messages name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerName {
    /// The rank, in the numbering of the group whose operation failed.
    pub rank: u32,
    /// Its process id as seen from this process's pid namespace; 0 where it is not known (yet).
    pub pid: u32,
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            0 => write!(f, "rank {}", self.rank),
            pid => write!(f, "rank {} (pid {pid})", self.rank),
        }
    }
}

/// Why a peer is gone: what the links to it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The peer's process id; 0 where it is not visible from this pid namespace.
    pub pid: u32,
    /// What was seen, as a clause: "its connection closed without a goodbye …".
    pub reason: String,
    /// This rank has given the peer up: other ranks may have nothing to complain of it.
    pub alone: bool,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}: {}", self.pid, self.reason)
    }
}

/// Writes a list of peers with the total where it is long.
pub(crate) struct Names<'a>(pub &'a [PeerName]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        for (at, peer) in self.0.iter().take(SHOWN).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{peer}")?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Why a bootstrap operation did not succeed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// A peer's process ended, or its link broke or carried garbage.
    #[error(
        "cannot finish {doing}: {peer} is lost: {reason}; go on without it in a group of the others, or start the job again"
    )]
    PeerLost {
        /// The operation that cannot finish.
        doing: &'static str,
        /// The lost peer.
        peer: PeerName,
        /// What its link saw.
        reason: String,
    },
    /// A peer left in good order, the group or all of the job, before it took part in this operation.
    #[error(
        "cannot finish {doing}: {peer} has left without taking part; make every rank call it before one leaves"
    )]
    PeerLeft {
        /// The operation that cannot finish.
        doing: &'static str,
        /// The peer that left.
        peer: PeerName,
    },
    /// A rank called abort.
    #[error("cannot finish {doing}: aborted by {by}: {reason}")]
    Aborted {
        /// The operation that was cut short.
        doing: &'static str,
        /// Who aborted.
        by: PeerName,
        /// The reason it gave.
        reason: String,
    },
    /// The time limit passed.
    #[error(
        "cannot finish {doing}: no answer within {limit:?} from {}; see what those ranks do instead, or raise the time limit",
        Names(missing)
    )]
    Timeout {
        /// The operation that ran out of time.
        doing: &'static str,
        /// The time limit.
        limit: Duration,
        /// The ranks that have not answered.
        missing: Vec<PeerName>,
    },
    /// Two ranks are in different collective calls.
    #[error(
        "cannot finish {doing}: {peer} called {theirs} as its collective number {sequence} of this group; make all ranks call the same ones in the same order"
    )]
    Mismatch {
        /// The operation of this rank.
        doing: &'static str,
        /// The rank that is elsewhere.
        peer: PeerName,
        /// What that rank called.
        theirs: &'static str,
        /// Position of the call among the collective calls of the group, from 0.
        sequence: u64,
    },
    /// A rank that the group does not have.
    #[error("cannot address rank {rank}: the group has ranks 0..{world}; pass one of those")]
    NoSuchRank {
        /// The rank asked for.
        rank: u32,
        /// The number of ranks.
        world: u32,
    },
    /// A message above the fixed limits.
    #[error("cannot send {what}: saw {saw}, allowed at most {limit}; send it in parts")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size (bytes or descriptors).
        saw: usize,
        /// The limit.
        limit: usize,
    },
    /// A member list that makes no group.
    #[error(
        "cannot make a group of {members:?}: {problem}; list distinct ranks of 0..{world}, this one ({rank}) among them"
    )]
    BadGroup {
        /// The list given.
        members: Vec<u32>,
        /// What is wrong with it.
        problem: &'static str,
        /// The size of the group it was to be taken from.
        world: u32,
        /// The calling rank.
        rank: u32,
    },
    /// Two handlers for one channel.
    #[error(
        "cannot subscribe to channel {channel}: it has a handler already; unsubscribe that one first or use another channel"
    )]
    Subscribed {
        /// The channel.
        channel: u64,
    },
    /// A blocking call inside a handler.
    #[error(
        "cannot wait for {doing} inside a handler: the control thread that would finish it runs the handler; hand the work to another thread"
    )]
    InsideHandler {
        /// The call.
        doing: &'static str,
    },
    /// A job with an impossible shape.
    #[error(
        "cannot join as rank {rank} of {world}: ranks run from 0 to world - 1; correct the launcher's arguments"
    )]
    BadShape {
        /// The rank given.
        rank: u32,
        /// The world size given.
        world: u32,
    },
    /// A job of more ranks than there can be.
    #[error(
        "cannot join a job of {world} ranks: allowed up to {}; correct the launcher's arguments",
        crate::MOST_RANKS
    )]
    TooManyRanks {
        /// The world size given.
        world: u32,
    },
    /// An address that is not one `Rendezvous::unique` made.
    #[error(
        "cannot use the rendezvous address {address:?}: {problem}; pass the text of Rendezvous::unique()"
    )]
    BadAddress {
        /// The address given.
        address: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A rank was started for a job of another size.
    #[error(
        "cannot form the job: {peer} says the world has {saw} ranks, rank 0 says {expected}; start all ranks with the same world size"
    )]
    WrongWorld {
        /// Who joined.
        peer: PeerName,
        /// What it said.
        saw: u32,
        /// The world size of rank 0.
        expected: u32,
    },
    /// Two processes claim the same rank.
    #[error(
        "cannot form the job: rank {rank} is claimed by pid {first} and by pid {second}; give every process its own rank"
    )]
    DuplicateRank {
        /// The rank.
        rank: u32,
        /// Who came first.
        first: u32,
        /// Who came second.
        second: u32,
    },
    /// A process speaks another version of the protocol.
    #[error(
        "cannot form the job: pid {pid} speaks bootstrap protocol version {saw}, this process version {expected}; use the same build of Antiphon everywhere"
    )]
    WrongVersion {
        /// The other process.
        pid: u32,
        /// Its version.
        saw: u16,
        /// Ours.
        expected: u16,
    },
    /// Another rank found that the job cannot form and said so.
    #[error("cannot form the job: {by} reports: {text}")]
    Refused {
        /// Who said so.
        by: PeerName,
        /// The whole text of its error.
        text: String,
    },
    /// Descriptors for a rank of another node.
    #[error("cannot send descriptors to {peer}: it runs on another node; send bytes instead")]
    NoDescriptors {
        /// The peer.
        peer: PeerName,
    },
    /// Two ranks were given different secrets.
    #[error(
        "cannot form the job: this rank ({rank}) and rank {other} at {address} have different secrets; give all ranks of the job the same one"
    )]
    WrongSecret {
        /// This rank.
        rank: u32,
        /// The rank at the other end.
        other: u32,
        /// Its address.
        address: String,
    },
    /// The process at an address speaks another version of the protocol.
    #[error(
        "cannot form the job: the process at {address} speaks bootstrap protocol version {saw}, this process version {expected}; use the same build of Antiphon everywhere"
    )]
    OtherVersion {
        /// Its address.
        address: String,
        /// Its version.
        saw: u16,
        /// Ours.
        expected: u16,
    },
    /// The time limit passed while the job formed, and something was seen that may tell why: connections that were turned away, or an
    /// address where nobody listens.
    #[error(
        "cannot finish forming the job: no answer within {limit:?} from {}; {hints}",
        Names(missing)
    )]
    Incomplete {
        /// The time limit.
        limit: Duration,
        /// The ranks that have not come.
        missing: Vec<PeerName>,
        /// What came instead, and what to do about it.
        hints: String,
    },
    /// Nobody answers at the address of a unique id.
    #[error("cannot meet at {address}: saw nobody who answers for {waited:?}; {hints}")]
    Unmet {
        /// The address in the id.
        address: String,
        /// For how long nobody has answered.
        waited: Duration,
        /// What was seen instead, and what to do about it.
        hints: String,
    },
    /// The job could not form, and rank 0 had turned connections away before that may tell why.
    #[error("{cause}; {hints}")]
    TurnedAway {
        /// What ended the forming.
        cause: Box<BootstrapError>,
        /// What was turned away, and what to do about it.
        hints: String,
    },
    /// A place of rendezvous, a unique id or a secret that cannot be read.
    #[error("cannot use the rendezvous {text:?}: {problem}")]
    BadPlace {
        /// The text given (of a secret: what it should have been).
        text: String,
        /// What is wrong with it, and what to write instead.
        problem: String,
    },
    /// A network interface or address that this host does not have.
    #[error("cannot use the network interface {asked:?}: this host has {known}; name one of those")]
    NoInterface {
        /// The interface, address or address prefix given.
        asked: String,
        /// The interfaces that are up, with their addresses.
        known: String,
    },
    /// A system call on a network address failed.
    #[error("cannot {doing} {address}: {errno}; {}", cure(*errno))]
    Network {
        /// What was tried.
        doing: &'static str,
        /// The address.
        address: String,
        /// The system's answer.
        errno: Errno,
    },
    /// A peer said something that the protocol does not allow, while the job was forming.
    #[error("cannot form the job: {peer} sent {saw}; use the same build of Antiphon everywhere")]
    Protocol {
        /// The peer.
        peer: PeerName,
        /// What came.
        saw: String,
    },
    /// A system call failed.
    #[error("cannot {doing}: {errno}; {}", cure(*errno))]
    Os {
        /// What was tried.
        doing: &'static str,
        /// The system's answer.
        errno: Errno,
    },
}

/// What helps where the system refuses something.
fn cure(errno: Errno) -> &'static str {
    match errno {
        Errno::MFILE | Errno::NFILE => "raise the limit on open files (`ulimit -n`)",
        Errno::NOMEM | Errno::NOBUFS | Errno::AGAIN => {
            "free memory, or raise the limits on it and on processes (`ulimit -a`)"
        }
        Errno::FBIG => "raise the limit on the size of files (`ulimit -f`)",
        Errno::ACCESS | Errno::PERM => "run where that is permitted",
        Errno::ADDRINUSE => "choose another port, or end what uses this one",
        Errno::ADDRNOTAVAIL => "name an address that this host has",
        Errno::NOENT | Errno::NOTDIR => "see that its folder is there",
        Errno::CONNREFUSED => "see whether somebody listens there",
        Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::TIMEDOUT => {
            "see whether there is a way there from this host, and no firewall on it"
        }
        _ => "see what the system's log says of it",
    }
}

impl BootstrapError {
    /// Turns a system call's failure into an error that says what was tried.
    pub(crate) fn os(doing: &'static str) -> impl FnOnce(Errno) -> BootstrapError {
        move |errno| BootstrapError::Os { doing, errno }
    }

    /// What the other ranks are told of it: the first cause, and who has found it, for it may be that rank's own want.
    pub(crate) fn told(&self) -> String {
        match self {
            BootstrapError::Refused { by, text } => format!("{by} reports: {text}"),
            BootstrapError::TurnedAway { cause, hints } => format!("{}; {hints}", cause.told()),
            error => error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_told_the_first_cause_and_all_that_may_explain_it() {
        let text = "cannot form the job: no time".to_owned();
        let by = PeerName { rank: 2, pid: 0 };
        let refused = BootstrapError::Refused { by, text: text.clone() };
        let told = format!("rank 2 reports: {text}");
        assert_eq!(refused.told(), told);
        let hints = "rank 3 has another secret".to_owned();
        let cause = Box::new(refused);
        let explained = BootstrapError::TurnedAway { cause, hints };
        assert_eq!(explained.told(), format!("{told}; rank 3 has another secret"));
        assert!(explained.to_string().ends_with(&explained.told()), "{explained}");
        let own = BootstrapError::BadShape { rank: 2, world: 2 };
        assert_eq!(own.told(), own.to_string());
    }
}
