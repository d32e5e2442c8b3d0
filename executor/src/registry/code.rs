//! Algorithms that are code.

use super::terms::{Misfit, Terms};
use crate::error::ExecutorError;
use crate::executor::Executor;
use crate::selection::order::panicked;
use crate::selection::question::brings_sizes;
use crate::selection::{Devices, Question, reproducible};
use antiphon_hal::Stream;
use antiphon_plan::counts::Counts;
use antiphon_plan::model::Collective;
use antiphon_types::{DataType, ReduceOp};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// One call that code serves, as one rank makes it.
#[derive(Debug)]
#[non_exhaustive]
pub struct CodeCall<'a> {
    /// An executor, to run plans on the communicator; its [`communicator`](Executor::communicator) has barriers and exchanges.
    pub executor: &'a Executor,
    /// Whether input and output are the same memory, by the collective's convention. Of collectives with a root, ranks may
    /// differ, and this is false.
    pub in_place: bool,
    /// The send buffer, of `input_bytes`; not null. In a scatter it has no bytes except at the root.
    pub input: *const u8,
    /// The receive buffer, of `output_bytes`; not null. In a reduce and a gather it has no bytes except at the root; in a
    /// broadcast it is the send buffer as well, except at the root.
    pub output: *mut u8,
    /// Bytes of the send buffer.
    pub input_bytes: u64,
    /// Bytes of the receive buffer.
    pub output_bytes: u64,
    /// The blocks of an alltoallv or allgatherv, in elements, by rank: those of the send buffer that go to the rank, and those of
    /// the receive buffer that come from it. In an allgatherv one block is sent, the whole send buffer. Blocks lie within their
    /// buffers, and received ones do not overlap; nobody has checked that sender and receiver agree on a length. `None` for other
    /// collectives.
    pub counts: Option<Counts<'a>>,
    /// Element type.
    pub dtype: DataType,
    /// The reduction, of collectives that reduce.
    pub op: Option<ReduceOp>,
    /// The root: the rank that has what all get, or gets what all have. Collectives without a root ignore it.
    pub root: u32,
    /// The stream that the call is on. What the code launches on it comes in order. Code that touches the buffers in another way
    /// must synchronise the stream first, since that has to come after what is in the stream already. Without a stream the call
    /// must be complete when the code returns.
    ///
    /// On devices there always is a stream, whose vendor's handle is [`Stream::native`]: a call that has none is put into one of
    /// the communicator's own, which is waited for once the code has returned. A stream that is being recorded into a graph
    /// ([`Stream::is_capturing`]) cannot be synchronised: then the code must put all that it does with the buffers into the stream.
    pub stream: Option<&'a Arc<dyn Stream>>,
}

/// An algorithm that is code: it moves data by plans of its own that it launches, or as it likes.
///
/// It runs once for each rank's call, when all ranks have come to the call and chosen this code in this version, so that ranks
/// which disagree are told so before any of them enters it. It runs on the thread that calls; in a group, on a thread that runs
/// this communicator's calls. A failure or a panic aborts the communicator, since others may wait for what this rank would have
/// done.
///
/// It is for ranks on the host, unless it says that it [serves devices](Self::serves_devices). There the ranks meet on the host,
/// and their streams go on meanwhile. What the code puts into a stream that is recorded into a graph becomes part of the
/// graph; replays do not run the code again.
pub trait Code: Send + Sync {
    /// The collective it computes.
    fn collective(&self) -> Collective;

    /// Whether it serves ranks on devices, too; asked once, when the code is registered. Buffers and stream are then those of the
    /// device of the executor's [`communicator`](Executor::communicator). On the threads of a group that device is the current
    /// one; on a thread that makes a single call, it is whatever the caller has made current.
    fn serves_devices(&self) -> bool {
        false
    }

    /// Whether it serves a call that is within its [`Terms`]. All ranks must answer alike: so code that looks at
    /// [`Question::in_place`] works only for programs whose ranks are all in place, or all not. (In collectives whose blocks
    /// have lengths of their own, it is always false.)
    ///
    /// # Errors
    /// Why not, in a few words.
    fn fits(&self, question: &Question<'_>) -> Result<(), String> {
        let _ = question;
        Ok(())
    }

    /// Makes a call.
    ///
    /// # Errors
    /// Why it could not be completed.
    ///
    /// # Safety
    /// The buffers are valid for what the call says of them until it is complete, the receive buffer for writes; nobody
    /// else writes the send buffer, or touches the receive buffer, meanwhile.
    unsafe fn run(&self, call: &CodeCall<'_>) -> Result<(), ExecutorError>;
}

/// Code that calls by name may be served by.
pub struct RegisteredCode {
    name: String,
    version: u64,
    collective: Collective,
    devices: bool,
    terms: Terms,
    code: Arc<dyn Code>,
}

impl fmt::Debug for RegisteredCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, collective, .. } = self;
        write!(f, "code `{name}` {version} for {collective}")
    }
}

impl RegisteredCode {
    pub(super) fn new(name: String, version: u64, code: Arc<dyn Code>, terms: Terms) -> Self {
        let (collective, devices) = (code.collective(), code.serves_devices());
        RegisteredCode { name, version, collective, devices, terms, code }
    }

    /// What selectors, tables and messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its version, which ranks compare.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Name and version, for messages.
    pub(crate) fn with_version(&self) -> String {
        format!("`{}` {}", self.name, self.version)
    }

    /// The collective that it computes.
    pub fn collective(&self) -> &Collective {
        &self.collective
    }

    /// The terms under which it was registered.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The code.
    pub fn code(&self) -> &Arc<dyn Code> {
        &self.code
    }

    /// Whether the code may serve a call.
    ///
    /// # Errors
    /// Why not.
    pub fn fits(&self, question: &Question<'_>) -> Result<(), Misfit> {
        if self.collective != *question.collective {
            return Err(Misfit::collective(&self.collective, question));
        }
        // If blocks have lengths of their own, ranks may differ in this, but they must answer alike.
        let in_place = question.in_place && !brings_sizes(question.collective);
        let question = &Question { in_place, ..*question };
        if question.spread.devices != Devices::Host && !self.devices {
            return Err(Misfit::Devices);
        }
        if question.premultiplied {
            return Err(Misfit::Premultiplied);
        }
        if reproducible::demands(question) {
            return Err(Misfit::Unshown);
        }
        self.terms.admit(question)?;
        // A panic of one rank alone is a disagreement, which the launches tell of.
        catch_unwind(AssertUnwindSafe(|| self.code.fits(question)))
            .unwrap_or_else(|panic| Err(format!("it panicked: {}", panicked(&*panic))))
            .map_err(Misfit::Code)
    }
}
