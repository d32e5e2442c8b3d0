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

/// One call that code serves, on one rank.
#[derive(Debug)]
#[non_exhaustive]
pub struct CodeCall<'a> {
    /// What runs plans on the communicator; its [`communicator`](Executor::communicator) has barriers and exchanges.
    pub executor: &'a Executor,
    /// Whether input and output are the same memory, by the collective's convention. Of collectives with a root, ranks may
    /// differ, and this is false.
    pub in_place: bool,
    /// The send buffer, of `input_bytes`; not null. Of a scatter, it has no bytes but at the root.
    pub input: *const u8,
    /// The receive buffer, of `output_bytes`; not null. Of a reduce and a gather, it has no bytes but at the root; of a broadcast,
    /// it is the send buffer as well but there.
    pub output: *mut u8,
    /// Bytes of the send buffer.
    pub input_bytes: u64,
    /// Bytes of the receive buffer.
    pub output_bytes: u64,
    /// Of an alltoallv and an allgatherv the blocks, in elements, by rank: those of the send buffer that go there, and those of the
    /// receive buffer that come from there. Of an allgatherv one is sent, the whole send buffer. They are within their buffers, and
    /// those received apart from each other; that sender and receiver agree on a length nobody has looked at. `None` of other
    /// collectives.
    pub counts: Option<Counts<'a>>,
    /// Element type.
    pub dtype: DataType,
    /// The reduction, of collectives that reduce.
    pub op: Option<ReduceOp>,
    /// The rank that has what all get, or gets what all have; collectives without one ignore it.
    pub root: u32,
    /// The stream that the call is on. What the code launches on it comes in order; what it does otherwise must come after
    /// what is before it on the stream, so that code that does so synchronises it first. Without one the call is complete
    /// when the code returns.
    ///
    /// On devices there always is one, whose vendor's handle [`Stream::native`] has: a call that has none is put into one of the
    /// communicator's own, which is waited for once the code has returned. One that is recorded into a graph cannot be
    /// synchronised ([`Stream::is_capturing`]): all that the code does with the buffers, it puts into the stream then.
    pub stream: Option<&'a Arc<dyn Stream>>,
}

/// An algorithm that is code: it moves data by plans of its own that it launches, or as it likes.
///
/// Each rank's call runs it once, on the thread that calls, or, in a group, on one that has this communicator's calls, when all
/// ranks have come to the call and chosen this code in this version; so ranks that disagree are told so before any of them enters it. A failure, or a panic, aborts the
/// communicator: others may wait for what this rank would have done.
///
/// It is for ranks on the host, unless it says that it [serves devices](Self::serves_devices). There the ranks meet on the host,
/// and their streams go on meanwhile. What the code puts into a stream that is recorded into a graph becomes part of the
/// graph; replays do not run the code again.
pub trait Code: Send + Sync {
    /// The collective it computes.
    fn collective(&self) -> Collective;

    /// Whether it serves ranks on devices, too: the buffers are the device's then, and the stream is one of it. The device is
    /// that of the executor's [`communicator`](Executor::communicator); on the threads of a group it is current, on one that
    /// calls what the caller left there. Asked when the code is registered.
    fn serves_devices(&self) -> bool {
        false
    }

    /// Whether it serves a call that is within its [`Terms`]. All ranks must answer alike: code that looks at
    /// [`Question::in_place`] serves programs alone whose ranks are all in place, or all not. Of collectives whose blocks have lengths of
    /// their own it is false.
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

    /// The collective that it computes.
    pub fn collective(&self) -> &Collective {
        &self.collective
    }

    /// What was said of it.
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
        // Ranks differ in it where blocks have lengths of their own, and must answer alike.
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
