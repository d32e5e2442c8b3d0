//! What can go wrong with a call, grouped by what must be rebuilt: the call, or the communicator.

mod advice;
mod numbering;

use crate::communicator::CallSeries;
use crate::selection::SelectionError;
use antiphon_bootstrap::launcher::LauncherError;
use antiphon_bootstrap::{BootstrapError, PeerName};
use antiphon_hal::HalError;
use antiphon_plan::LowerError;
use antiphon_plan::check::Faults;
use antiphon_plan::counts::CountsError;
use antiphon_port::WireError;
use antiphon_transport::TransportError;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

pub(crate) use advice::SAME_CALLS;
use advice::{ANEW, MORE_TIME, OTHERS, anew, within_reach};

/// The error of communicators, executors and launches.
///
/// After an error for which [`breaks_communicator`](Self::breaks_communicator) holds, and after any that ends a launch
/// that was under way, every later call on the communicator returns the same error at once; after any other (the call
/// was refused), the next call may succeed. [`Communicator::failure`](crate::Communicator::failure) tells.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutorError {
    /// The plan is not valid.
    #[error("cannot load plan `{plan}`: {faults}")]
    Plan {
        /// The plan's name.
        plan: String,
        /// Everything that is wrong with it.
        faults: Arc<Faults>,
    },
    /// The plan is shown to deadlock, to race or to compute something else than its collective promises.
    #[error(
        "cannot load plan `{plan}`: it is refuted: {text}\nmend the plan, with the help of `antiphon plan verify`; or turn verification off to see it fail (`--no-verify`; in Rust `Options::with_verification(false)`, in C the configuration's `verification`, in Python `verification=False`)"
    )]
    Refuted {
        /// The plan's name.
        plan: String,
        /// The first fault, and where it is.
        text: Arc<str>,
    },
    /// The plan cannot be lowered, or not for these sizes.
    #[error("cannot run plan `{plan}`: {source}")]
    Lower {
        /// The plan's name.
        plan: String,
        /// Why.
        source: Arc<LowerError>,
    },
    /// The plan is for another number of ranks.
    #[error(
        "cannot run plan `{plan}` on {world} ranks: it is written for {ranks}; use a communicator of {ranks} ranks"
    )]
    World {
        /// The plan's name.
        plan: String,
        /// Ranks of the plan.
        ranks: u32,
        /// Ranks of the communicator.
        world: u32,
    },
    /// The plan cannot be made a kernel of the device.
    #[error(transparent)]
    Generate(#[from] antiphon_codegen::Unsupported),
    /// An argument of a call is wrong.
    #[error("cannot {what}: saw {saw}, allowed {allowed}")]
    Argument {
        /// What was asked for.
        what: &'static str,
        /// What was passed.
        saw: String,
        /// What would be right.
        allowed: &'static str,
    },
    /// No plan goes over the ranks' devices.
    #[error(
        "cannot run a plan on a GPU: saw {saw}, allowed devices of one vendor, and memory channels between those that map each other's memory or are one; join others by port channels or by calls by name, which go over a wire, or run it on the host"
    )]
    Apart {
        /// What was called, between which ranks and devices, and what is missing there.
        saw: String,
    },
    /// Nothing serves the call.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// Registered code failed; the communicator is aborted.
    #[error("code `{name}` failed on rank {rank}: {reason}")]
    Code {
        /// The code's name.
        name: String,
        /// The rank.
        rank: u32,
        /// What it said.
        reason: String,
    },
    /// A transfer between two ranks failed, which is the call or a part of it. Ranks are numbered as in the caller's communicator.
    #[error("{what} on rank {rank}, {} rank {peer}: {source}", if *.sends { "to" } else { "from" })]
    Transfer {
        /// The call, such as `send` or `gather`.
        what: &'static str,
        /// The rank that reports.
        rank: u32,
        /// The rank at the other end.
        peer: u32,
        /// Whether data goes to the peer.
        sends: bool,
        /// How it failed.
        source: Arc<ExecutorError>,
    },
    /// A call failed because of the installed plan that was to serve it.
    #[error(
        "{source}; plan `{plan}`, which is installed, was to serve the call: `antiphon install --remove {plan}` removes it, ANTIPHON_INSTALLED=off does without installed plans"
    )]
    Installed {
        /// What the plan is installed as.
        plan: String,
        /// How it failed.
        source: Arc<ExecutorError>,
    },
    /// In a pair of ranks that transfers go through: an error of the communicator whose transfers they are, with that one's
    /// numbers of ranks. A caller that makes a transfer gets that error itself.
    #[error("{source}")]
    OfWhole {
        /// The error. What this rank was doing it did in the pair.
        source: Arc<ExecutorError>,
    },
    /// An error of a communicator that has a name.
    #[error("{whose}: {source}")]
    Named {
        /// The communicator, and the rank that reports if it was made: "communicator `dp` rank 2 of 8".
        whose: Arc<str>,
        /// The error.
        source: Arc<ExecutorError>,
    },
    /// The environment does not say who this rank is, or how ranks meet.
    #[error(transparent)]
    Launcher(Arc<LauncherError>),
    /// The runtime blocks of a call are not what the plan or the buffers allow.
    #[error("cannot run plan `{plan}`: {source}")]
    Counts {
        /// The plan's name.
        plan: String,
        /// What is wrong with them.
        source: CountsError,
    },
    /// Two ranks disagree on how much one sends to the other.
    #[error(
        "{} of plan `{plan}` has counts that differ: rank {sender} sends {sent} elements ({source_block}), rank {receiver} expects {expected} ({destination}); pass equal counts on both ranks",
        launch(.seq)
    )]
    Unequal {
        /// Launch number on the communicator; 0 for one that a graph has.
        seq: u64,
        /// The plan's name.
        plan: String,
        /// The rank whose block is read.
        sender: u32,
        /// Its elements.
        sent: u64,
        /// Which block it is.
        source_block: String,
        /// The rank whose block is written.
        receiver: u32,
        /// Its elements.
        expected: u64,
        /// Which block it is.
        destination: String,
    },
    /// A launch made no progress for the time limit.
    #[error("{}; {SAME_CALLS}; {MORE_TIME}", standstill((.rank, .seq), .call, .limit, .waits))]
    Stalled {
        /// The rank that reports.
        rank: u32,
        /// Launch number on the communicator; 0 for one that a graph has.
        seq: u64,
        /// This rank's call: its plan, and if they are known its bytes and types.
        call: String,
        /// The limit.
        limit: Duration,
        /// Who waits for whom, on all ranks.
        waits: Waits,
    },
    /// A rank freed a buffer of a launch before a peer that touches it had mapped it.
    #[error(
        "{} of plan `{plan}` on rank {rank} waits for a buffer of rank {peer}, which rank {peer} freed before rank {rank} had mapped it; keep the buffers of a call until it is complete on the stream",
        launch(.seq)
    )]
    Freed {
        /// The rank that reports, and waits.
        rank: u32,
        /// Launch number on the communicator; 0 for one that a graph has.
        seq: u64,
        /// The plan's name.
        plan: String,
        /// The rank whose buffer it was.
        peer: u32,
    },
    /// Ranks made different calls.
    #[error(
        "{} differs between ranks: rank {rank} called {own}, rank {peer} called {theirs}; make the same calls in the same order on every rank",
        launch(.seq)
    )]
    Mismatch {
        /// The rank that reports.
        rank: u32,
        /// Launch number on the communicator; 0 for one that a graph has.
        seq: u64,
        /// This rank's call.
        own: String,
        /// The other rank.
        peer: u32,
        /// Its call.
        theirs: String,
    },
    /// For a call some ranks chose code, and others what never meets code.
    #[error(
        "call {number} of those {series} differs between ranks: rank {rank} makes it by {}, rank {peer} by code {code}; register the same code and selector on every rank, and make the same calls in the same order",
        .series.otherwise()
    )]
    Diverged {
        /// What kind of call it is.
        series: CallSeries,
        /// The rank that reports.
        rank: u32,
        /// Which of the communicator's calls of that kind it is, counted from 1.
        number: u64,
        /// The other rank.
        peer: u32,
        /// What serves the call there.
        code: String,
    },
    /// A peer's process ended.
    #[error("rank {peer} (pid {pid}) is lost: {reason}; {doing}; {OTHERS}")]
    PeerLost {
        /// The lost rank.
        peer: u32,
        /// Its process.
        pid: u32,
        /// How it was noticed.
        reason: String,
        /// What this rank was doing.
        doing: Doing,
    },
    /// The link for port channels to a peer could not be made, or is lost.
    #[error("no link for port channels to rank {peer}: {reason}; {doing}; {ANEW}")]
    Link {
        /// The rank at the other end.
        peer: u32,
        /// Why.
        reason: String,
        /// What this rank was doing.
        doing: Doing,
    },
    /// The wire that was asked for cannot be used.
    #[error("cannot use the wire that was asked for: {source}")]
    Wire {
        /// Why, and what would help.
        source: WireError,
    },
    /// Some rank aborted the communicator.
    #[error("the communicator was aborted by rank {by}: {reason}; {doing}{}", anew(.reason))]
    Aborted {
        /// The rank that aborted.
        by: u32,
        /// Why.
        reason: String,
        /// What this rank was doing.
        doing: Doing,
    },
    /// Another process's memory could not be reached.
    #[error(
        "cannot {what} memory of rank {peer} in {} of plan `{plan}` on rank {rank}: {}; {}",
        launch(.seq), io::Error::from_raw_os_error(*.errno), within_reach(*.errno)
    )]
    Reach {
        /// The rank that reports.
        rank: u32,
        /// Launch number on the communicator.
        seq: u64,
        /// The plan's name.
        plan: String,
        /// The rank whose memory it is.
        peer: u32,
        /// `read` or `write`.
        what: &'static str,
        /// System error number.
        errno: i32,
    },
    /// A peer's shared page is not what this build expects.
    #[error(
        "cannot use the {what} of rank {peer}: found {found}; use the same build of Antiphon on every rank"
    )]
    Layout {
        /// Which structure.
        what: &'static str,
        /// Whose.
        peer: u32,
        /// What was there.
        found: String,
    },
    /// Ranks run different builds.
    #[error(
        "cannot form a communicator: rank {peer} runs {theirs}, and rank {rank} {own}; install the same build of Antiphon on every rank"
    )]
    Build {
        /// The rank that reports.
        rank: u32,
        /// Its version.
        own: String,
        /// The other rank.
        peer: u32,
        /// Its version.
        theirs: String,
    },
    /// The device failed.
    #[error(transparent)]
    Hal(Arc<HalError>),
    /// No transport serves a channel of the plan, or a peer's memory cannot be reached.
    #[error(transparent)]
    Transport(Arc<TransportError>),
    /// The ranks could not talk to each other.
    #[error(transparent)]
    Bootstrap(BootstrapError),
}

impl From<BootstrapError> for ExecutorError {
    /// What ends every wait is the same error wherever a rank hears of it first.
    fn from(error: BootstrapError) -> Self {
        let doing = Doing::default();
        match error {
            BootstrapError::Aborted { by, reason, .. } => {
                ExecutorError::Aborted { by: by.rank, reason, doing }
            }
            BootstrapError::PeerLost { peer, reason, .. } => {
                ExecutorError::PeerLost { peer: peer.rank, pid: peer.pid, reason, doing }
            }
            other => ExecutorError::Bootstrap(other),
        }
    }
}

impl From<LauncherError> for ExecutorError {
    /// Where the launcher did its part, what went wrong is what forming the job reports.
    fn from(error: LauncherError) -> Self {
        match error {
            LauncherError::Bootstrap(error) => error.into(),
            other => ExecutorError::Launcher(Arc::new(other)),
        }
    }
}

impl From<HalError> for ExecutorError {
    fn from(error: HalError) -> Self {
        ExecutorError::Hal(Arc::new(error))
    }
}

/// A launch, by its number.
fn launch(seq: &u64) -> String {
    if *seq == 0 { "a launch of a graph".to_owned() } else { format!("launch {seq}") }
}

impl From<TransportError> for ExecutorError {
    fn from(error: TransportError) -> Self {
        ExecutorError::Transport(Arc::new(error))
    }
}

/// That a launch stands still, without what to do about it.
pub(crate) fn standstill(
    (rank, seq): (&u32, &u64),
    call: &str,
    limit: &Duration,
    waits: &Waits,
) -> String {
    let launch = launch(seq);
    format!("{launch} of {call} on rank {rank} made no progress for {limit:?}: {waits}")
}

/// What is refused where a call needs more scratch than can be addressed.
pub(crate) const TOO_LARGE: &str = "allocate scratch";

impl ExecutorError {
    /// What went wrong, whichever communicator's it is, whichever transfer of a call it was in, and whatever served the call.
    pub fn cause(&self) -> &ExecutorError {
        match self {
            ExecutorError::Transfer { source, .. }
            | ExecutorError::Installed { source, .. }
            | ExecutorError::Named { source, .. }
            | ExecutorError::OfWhole { source } => source.cause(),
            other => other,
        }
    }

    /// The rank that this error blames, if it is one: which is lost, has aborted (this one, if it did), has freed what a call needs, or
    /// called something else. Its number is that of the communicator on which the call was made.
    pub fn peer(&self) -> Option<u32> {
        use {BootstrapError as B, ExecutorError as E};
        match *self.cause() {
            E::PeerLost { peer, .. } | E::Link { peer, .. } | E::Reach { peer, .. } => Some(peer),
            E::Mismatch { peer, .. } | E::Diverged { peer, .. } | E::Layout { peer, .. } => {
                Some(peer)
            }
            E::Build { peer, .. } | E::Freed { peer, .. } => Some(peer),
            E::Aborted { by, .. }
            | E::Bootstrap(B::Aborted { by: PeerName { rank: by, .. }, .. }) => Some(by),
            E::Bootstrap(
                B::PeerLost { peer, .. } | B::PeerLeft { peer, .. } | B::Mismatch { peer, .. },
            ) => Some(peer.rank),
            _ => None,
        }
    }

    /// What went wrong with a call that an installed plan served, or was to serve: with the way to do without it, if it may be the
    /// plan's doing.
    pub(crate) fn of_installed(self, name: &str) -> Self {
        if !self.may_be_of_plan() {
            return self;
        }
        ExecutorError::Installed { plan: name.to_owned(), source: Arc::new(self) }
    }

    /// The error as the caller of a communicator gets it that is called this, unless it says so.
    pub(crate) fn named(self, whose: &Arc<str>) -> Self {
        if matches!(self, ExecutorError::Named { .. }) {
            return self;
        }
        ExecutorError::Named { whose: Arc::clone(whose), source: Arc::new(self) }
    }

    /// As an error in a pair that this communicator's transfers go through, where this rank has another number.
    pub(crate) fn of_whole(self) -> Self {
        ExecutorError::OfWhole { source: Arc::new(self.while_doing(Doing::default())) }
    }

    /// The error as this rank reports it, if nobody has said yet which rank does.
    pub(crate) fn on_rank(self, rank: u32) -> Self {
        use ExecutorError as E;
        let of_rank = |doing: Doing| Doing { rank: doing.rank.or(Some(rank)), ..doing };
        match self {
            E::PeerLost { peer, pid, reason, doing } => {
                E::PeerLost { peer, pid, reason, doing: of_rank(doing) }
            }
            E::Aborted { by, reason, doing } => E::Aborted { by, reason, doing: of_rank(doing) },
            E::Link { peer, reason, doing } => E::Link { peer, reason, doing: of_rank(doing) },
            E::OfWhole { source } => {
                E::OfWhole { source: Arc::new(Arc::unwrap_or_clone(source).on_rank(rank)) }
            }
            other => other,
        }
    }

    /// The error as it is found by who was `doing` something.
    pub(crate) fn while_doing(self, doing: Doing) -> Self {
        use ExecutorError as E;
        match self {
            E::PeerLost { peer, pid, reason, .. } => E::PeerLost { peer, pid, reason, doing },
            E::Aborted { by, reason, .. } => E::Aborted { by, reason, doing },
            E::Link { peer, reason, .. } => E::Link { peer, reason, doing },
            E::OfWhole { source } => {
                E::OfWhole { source: Arc::new(Arc::unwrap_or_clone(source).while_doing(doing)) }
            }
            other => other,
        }
    }

    /// Whether the plan that serves the call may be at fault, rather than the call's arguments or a peer.
    pub(crate) fn may_be_of_plan(&self) -> bool {
        use ExecutorError as E;
        match self.cause() {
            E::Hal(error) => !matches!(**error, HalError::Invalid { .. }),
            E::Plan { .. } | E::World { .. } | E::Lower { .. } | E::Generate(_) => true,
            E::Transport(_) | E::Stalled { .. } => true,
            E::Argument { what, .. } => *what == TOO_LARGE,
            _ => false,
        }
    }

    /// What a device said, if that is what went wrong.
    fn of_device(&self) -> Option<&HalError> {
        match self.cause() {
            ExecutorError::Hal(error) => Some(error),
            ExecutorError::Transport(error) => match &**error {
                TransportError::Hal(error) => Some(error),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether perhaps only this rank has it: the bootstrap failed, or the system or a device has no more memory, descriptors or
    /// the like.
    pub(crate) fn is_of_one_rank(&self) -> bool {
        let lacks = |error: &HalError| {
            matches!(error, HalError::OutOfMemory { .. } | HalError::System { .. })
        };
        matches!(self.cause(), ExecutorError::Bootstrap(_)) || self.of_device().is_some_and(lacks)
    }

    /// Whether memory cannot be passed on to peers.
    pub(crate) fn is_not_shareable(&self) -> bool {
        matches!(self.of_device(), Some(HalError::NotShareable { .. }))
    }

    /// Whether this error says by itself that the communicator is of no more use. A barrier, an exchange or a split that did not end
    /// well, and a device that failed, may have broken it, too: [`Communicator::failure`](crate::Communicator::failure) tells.
    pub fn breaks_communicator(&self) -> bool {
        matches!(
            self.cause(),
            ExecutorError::Stalled { .. }
                | ExecutorError::Freed { .. }
                | ExecutorError::Unequal { .. }
                | ExecutorError::Mismatch { .. }
                | ExecutorError::Diverged { .. }
                | ExecutorError::PeerLost { .. }
                | ExecutorError::Link { .. }
                | ExecutorError::Aborted { .. }
                | ExecutorError::Reach { .. }
                | ExecutorError::Layout { .. }
                | ExecutorError::Build { .. }
                | ExecutorError::Code { .. }
        )
    }
}

/// One block that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Its rank.
    pub rank: u32,
    /// The block.
    pub block: u32,
    /// Place of the operation, e.g. `op 3` or `op 3, inner op 1`.
    pub op: String,
    /// What it waits for, and for whom.
    pub what: String,
}

/// Who waits for whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits(pub Vec<Wait>);

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no block waits");
        }
        for (position, wait) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { "; " };
            let Wait { rank, block, op, what } = wait;
            write!(f, "{separator}rank {rank} block {block} waits at {op} {what}")?;
        }
        Ok(())
    }
}

/// What a rank was doing when its communicator broke.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doing {
    /// The rank, if it is known.
    pub rank: Option<u32>,
    /// The launch and its plan, if one was running.
    pub launch: Option<(u64, String)>,
    /// The rank's blocks that waited.
    pub waits: Waits,
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = self.rank.map_or_else(String::new, |rank| format!(" on rank {rank}"));
        match &self.launch {
            None => write!(f, "no launch was running{on}"),
            Some((seq, plan)) => {
                write!(f, "in {} of plan `{plan}`{on}: {}", launch(seq), self.waits)
            }
        }
    }
}

impl Doing {
    /// That this rank was in no launch.
    pub(crate) fn nothing_on(rank: u32) -> Self {
        Doing { rank: Some(rank), ..Doing::default() }
    }
}

#[cfg(test)]
mod tests;
