//! Collectives by name: what serves a call is chosen, loaded once, and run.
//!
//! This is the one way from a collective's name to a launch: typed slices, the C interface and whatever comes above them
//! end here.

mod coded;
mod group;
mod in_turn;
mod pairs;
mod parts;
mod prepared;
mod queued;
mod relay;
mod scaled;
mod served;
mod streams;
mod task_set;
mod transfers;
mod uneven;

use crate::communicator::{Communicator, nodes};
use crate::error::ExecutorError;
use crate::executor::{Executor, NOWHERE, OrderOf};
use crate::plan_cache::LoadedPlan;
use crate::selection::{Question, Spread, Tuning, Wish, even};
use crate::sync::lock;
use antiphon_hal::{Event, HalError, Stream};
use antiphon_plan::counts::{Counts, Extent};
use antiphon_types::{DataType, ReduceOp};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Once};

pub use group::Group;
use pairs::Pair;
use prepared::Ready;
pub use scaled::Factor;
use served::{Found, Service};
use transfers::Way;
use uneven::Uneven;

/// A collective whose blocks are equally long on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// Every rank gets the reduction of all inputs.
    AllReduce,
    /// Every rank gets all inputs, in rank order.
    AllGather,
    /// Rank r gets block r of the reduction.
    ReduceScatter,
    /// Block r of rank s becomes block s of rank r.
    AllToAll,
    /// Every rank gets the root's input.
    Broadcast {
        /// The root.
        root: u32,
    },
    /// The root gets the reduction of all inputs.
    Reduce {
        /// The root.
        root: u32,
    },
    /// The root gets all inputs, in rank order.
    Gather {
        /// The root.
        root: u32,
    },
    /// Rank r gets block r of the root's input.
    Scatter {
        /// The root.
        root: u32,
    },
}

/// One call of a collective, on one rank. All ranks pass the same collective (with the same root), count, type and, if it
/// reduces, reduction.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The collective.
    pub what: What,
    /// The send buffer: of `count` elements, or of `count` elements for each rank in a reducescatter, an alltoall, and at
    /// the root of a scatter. A rank that sends nothing (of a broadcast or scatter every rank but the root) may pass null.
    pub input: *const u8,
    /// The receive buffer: of `count` elements, or of `count` elements for each rank in an allgather, an alltoall, and at
    /// the root of a gather. A rank that receives nothing (of a reduce or gather every rank but the root) may pass null.
    ///
    /// In place it is the send buffer, or the smaller of the two is the rank's block of the larger; buffers that share bytes in
    /// another way are refused. In an alltoall all ranks
    /// are in place, or none; in the others each rank may do as it likes.
    pub output: *mut u8,
    /// The number of elements, as NCCL counts them: those of the smaller of the two buffers; in an alltoall, those for each rank.
    pub count: u64,
    /// The type of the elements.
    pub dtype: DataType,
    /// The reduction; collectives that do not reduce ignore it.
    pub op: ReduceOp,
    /// What this rank's input is multiplied by before a sum. Either every rank of a call has a factor, which may differ, or
    /// none has.
    pub factor: Option<Factor>,
}

/// The collectives of a communicator, by name and on addresses.
///
/// All ranks make the same calls in the same order; calls of an [`Executor`] on the same communicator may come between them.
/// The plan that serves a kind of call is loaded, and verified, at the first such call. Clones are the same object. Several
/// of these, made of one communicator or its clones, may be used together; each loads plans for itself.
#[derive(Clone, Debug)]
pub struct Collectives(Arc<Shared>);

/// What clones share.
#[derive(Debug)]
struct Shared {
    executor: Executor,
    service: Service,
    /// Plans by which ranks meet before code runs, by its name and version.
    meetings: Mutex<BTreeMap<String, Arc<LoadedPlan>>>,
}

/// The transfers of a rank beside its communicator's launches. The communicator has one of these for all [`Collectives`] made of it.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pairs: Mutex<BTreeMap<Way, Pair>>,
    /// By stream, the event behind work of this rank that is no launch: a copy to itself on a device, or what code put there.
    copies: Mutex<BTreeMap<u64, Arc<dyn Event>>>,
}

fn argument(what: &'static str, saw: impl ToString, allowed: &'static str) -> ExecutorError {
    ExecutorError::Argument { what, saw: saw.to_string(), allowed }
}

/// Warns, once in this process, if the ranks have a tuning table that decides none of their calls. Only rank 0 does: all find the
/// same.
fn warn_of_tuning(communicator: &Communicator) {
    static WARNED: Once = Once::new();
    let (rank, ranks) = (communicator.rank(), communicator.world());
    if let Some(why) = communicator.shared.tuning.passed_over(ranks).filter(|_| rank == 0) {
        WARNED.call_once(|| {
            log::warn!(
                "{}: no call of these {ranks} ranks is decided by the tuning table: {why}; ANTIPHON_TUNING=off is for none",
                communicator.shared.whose
            );
        });
    }
}

/// Warns, once in this process, if every rank counts as a node of its own: calls are slower then, and nothing else says why.
fn warn_of_nodes(communicator: &Communicator, nodes: &[u32]) {
    static WARNED: Once = Once::new();
    if communicator.rank() == 0 && even(nodes).is_none() {
        WARNED.call_once(|| {
            log::warn!(
                "{}: each of {} ranks counts as a node of its own, which is slower, since they are on nodes {nodes:?}; start consecutive \
                 ranks on each node, and equally many (for mpirun: --map-by ppr:N:node)",
                communicator.shared.whose,
                nodes.len()
            );
        });
    }
}

impl Collectives {
    /// The collectives of a communicator, served by what its options' registry has and by the built-in algorithms.
    ///
    /// # Errors
    /// What the communicator reports.
    pub fn new(communicator: &Communicator) -> Result<Self, ExecutorError> {
        let registry = communicator.shared.options.registry.clone();
        let installed = communicator.shared.installed.clone();
        warn_of_tuning(communicator);
        let made = Collectives::served_by(communicator, |spread, tuning| {
            Service::new(spread, registry, tuning, installed)
        })?;
        communicator.accept_invitations();
        Ok(made)
    }

    fn served_by(
        communicator: &Communicator,
        service: impl FnOnce(Spread, Tuning) -> Service,
    ) -> Result<Self, ExecutorError> {
        let nodes = nodes(&*communicator.shared.bootstrap)?;
        warn_of_nodes(communicator, &nodes);
        let devices = communicator.shared.neighbours.devices(&nodes);
        let spread = Spread::over(&nodes, communicator.crowded_anywhere());
        let spread = Spread { devices, ..spread };
        Ok(Collectives(Arc::new(Shared {
            executor: Executor::new(communicator),
            service: service(spread, communicator.shared.tuning.clone()),
            meetings: Mutex::default(),
        })))
    }

    /// The communicator.
    pub fn communicator(&self) -> &Communicator {
        self.executor().communicator()
    }

    /// Whether all ranks are on one node.
    fn on_one_node(&self) -> bool {
        self.0.service.spread.nodes == 1
    }

    /// An error as the caller gets it.
    fn names(&self, error: ExecutorError) -> ExecutorError {
        self.executor().names(error)
    }

    /// What runs the calls.
    pub fn executor(&self) -> &Executor {
        &self.0.executor
    }

    /// What serves a call; `addresses` are those of its buffers.
    fn serve(
        &self,
        wish: Wish<'_>,
        (dtype, op, premultiplied): (DataType, Option<ReduceOp>, bool),
        addresses: [usize; 2],
    ) -> Result<Found, ExecutorError> {
        let Wish { collective, bytes, in_place, root } = wish;
        let question = self.question(collective, bytes, dtype);
        let question = Question { op, in_place, root, premultiplied, ..question };
        self.0.service.serve(self.executor(), &question, addresses)
    }

    /// Makes a call. Without a stream it is complete on return. With one the call goes on by itself after the return, and
    /// completes in stream order. A call on a device's stream is recorded into a graph on all ranks, or on none.
    ///
    /// # Errors
    /// What is wrong with the call, or why it could not be completed. If a call on a stream fails later,
    /// [`synchronize`](Executor::synchronize) on that stream returns the error.
    ///
    /// # Safety
    /// The buffers are valid for what the request says of them until the call is complete, the receive buffer for writes;
    /// nobody else writes the send buffer, or touches the receive buffer, meanwhile.
    #[inline]
    pub unsafe fn call(
        &self,
        request: &Request,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        // SAFETY: as this function's.
        unsafe { self.make_call(request, stream) }.map_err(|error| self.names(error))
    }

    /// # Safety
    /// As [`call`](Self::call).
    unsafe fn make_call(
        &self,
        request: &Request,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        if request.factor.is_some() {
            // SAFETY: as this function's.
            return unsafe { self.call_scaled(request, stream) };
        }
        if stream.is_none()
            // SAFETY: as this function's.
            && let Some(outcome) = unsafe { self.again(request) }
        {
            return outcome;
        }
        match self.prepare(request)? {
            // SAFETY: as this function's; who asks the same runs it again.
            Ready::Launch(prepared) if stream.is_none() && !self.on_device() => unsafe {
                self.executor().run_asked(&prepared.call(), prepared.asked)
            },
            // SAFETY: as this function's.
            Ready::Launch(prepared) => unsafe { self.launch(&prepared.call(), stream) },
            // SAFETY: as this function's.
            Ready::Code(coded) => unsafe { self.run_checked_code(&coded, stream) },
        }
    }

    /// Makes an alltoall whose blocks have lengths of their own: extent r of `send` goes to rank r, and extent r of `receive`
    /// comes from rank r. Extents and `sizes` (of the input and of the output) are in elements.
    ///
    /// # Errors
    /// As [`call`](Self::call); extents that are outside their buffer, that overlap, or that sender and receiver do not
    /// agree on.
    ///
    /// # Safety
    /// As [`call`](Self::call).
    pub unsafe fn all_to_all_v(
        &self,
        buffers: (*const u8, *mut u8),
        sizes: (u64, u64),
        Counts { send, receive }: Counts<'_>,
        dtype: DataType,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let counts = Counts { send, receive };
        let make = || match self.prepare_all_to_all_v((buffers, sizes), counts, dtype)? {
            // SAFETY: as this function's.
            Uneven::Launch(call) => unsafe {
                self.launch(&call.call().with_counts(counts), stream)
            },
            // SAFETY: as this function's.
            Uneven::Code(coded) => unsafe { self.run_checked_code(&coded, stream) },
            Uneven::Parts(parts) => self.run_parts(parts, stream),
        };
        make().map_err(|error| self.names(error))
    }

    /// Gives every rank the inputs of all ranks, which have lengths of their own: all of this rank's input goes to every rank,
    /// and extent r of `receive` comes from rank r. Extents and `sizes` (of the input and of the output) are in elements. In
    /// place the input is the rank's own block of the output; each rank may do as it likes, unless a registered or installed
    /// plan may serve the call: then all ranks call in place, or none.
    ///
    /// # Errors
    /// As [`all_to_all_v`](Self::all_to_all_v).
    ///
    /// # Safety
    /// As [`call`](Self::call).
    pub unsafe fn all_gather_v(
        &self,
        buffers: (*const u8, *mut u8),
        sizes: (u64, u64),
        receive: &[Extent],
        dtype: DataType,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let make = || match self.prepare_all_gather_v((buffers, sizes), receive, dtype)? {
            // SAFETY: as this function's.
            Uneven::Launch(call) => unsafe { self.launch(&call.call(), stream) },
            // SAFETY: as this function's.
            Uneven::Code(coded) => unsafe { self.run_checked_code(&coded, stream) },
            Uneven::Parts(parts) => self.run_parts(parts, stream),
        };
        make().map_err(|error| self.names(error))
    }

    /// As [`Communicator::abort`].
    pub fn abort(&self, reason: &str) {
        self.communicator().abort(reason);
    }

    /// The error that broke the communicator, or a transfer between this rank and another.
    pub fn failure(&self) -> Option<ExecutorError> {
        let own = self.communicator().failure();
        own.or_else(|| self.communicator().pair_failure().map(|error| self.names(error)))
    }

    /// Whether all calls of this rank are complete, on whatever streams, and all replays of graphs that have begun. Does not
    /// wait, and may say so a moment late. Failed calls count as complete: [`failure`](Self::failure) tells of them.
    pub fn is_complete(&self) -> bool {
        // The lock is not held here, since a driver may let a query wait. An event that cannot be queried counts as done: the
        // launches report a device that has failed.
        let copies: Vec<_> =
            lock(&self.communicator().shared.queues.copies).values().map(Arc::clone).collect();
        self.communicator().is_complete()
            && self.communicator().pairs_are_complete()
            && copies.iter().all(|behind| behind.query().unwrap_or(true))
    }

    /// # Safety
    /// As [`Executor::execute`].
    unsafe fn launch(
        &self,
        call: &crate::executor::Call<'_>,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        match stream {
            // SAFETY: as this function's.
            Some(stream) => unsafe {
                self.executor().execute_as(OrderOf::Communicator, call, stream)
            },
            // SAFETY: as this function's.
            None => unsafe { self.executor().run_as(OrderOf::Communicator, call) },
        }
    }

    fn check_root(&self, root: u32) -> Result<(), ExecutorError> {
        if root < self.communicator().world() {
            return Ok(());
        }
        Err(argument("use a root", format!("rank {root}"), "ranks of the communicator"))
    }
}

/// The error for a call that registered code serves where only a launch of a plan can be made.
fn code_unsupported(on: &Collectives, op: &'static str) -> ExecutorError {
    let backend = on.communicator().device().backend();
    HalError::Unsupported { op, backend }.into()
}

/// The bytes of so many elements.
#[inline]
fn length(elements: u64, dtype: DataType) -> Result<u64, ExecutorError> {
    let bytes = elements.checked_mul(dtype.size() as u64);
    let bytes = bytes.filter(|&bytes| bytes <= isize::MAX as u64);
    bytes.ok_or_else(|| {
        argument("make a call", format!("{elements} elements"), "what fits the address space")
    })
}

/// Whether there is a buffer where there must be one.
fn check_address(at: *const u8, bytes: u64, which: &'static str) -> Result<(), ExecutorError> {
    if bytes == 0 || !at.is_null() {
        return Ok(());
    }
    Err(argument("make a call", format!("null for {which} of {bytes} bytes"), "its address"))
}
