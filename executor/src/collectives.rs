//! Collectives by name: the built-in algorithm for a call is chosen, its plan loaded once, and run.
//!
//! This is the one way from a collective's name to a launch: typed slices, the C interface and whatever comes above them
//! end here.

mod group;
mod parts;
mod prepared;
mod scaled;
mod together;
mod transfers;

use crate::communicator::Communicator;
use crate::error::ExecutorError;
use crate::executor::Executor;
use crate::plan_cache::LoadedPlan;
use crate::selection::{Selected, SelectionError, Spread, Wish, select};
use antiphon_hal::Stream;
use antiphon_plan::algorithms::Algorithm;
use antiphon_plan::counts::Counts;
use antiphon_types::{DataType, ReduceOp};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use group::Group;
pub use scaled::Factor;
use transfers::Way;

/// A collective of blocks that are as long on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// Everyone gets the reduction of all inputs.
    AllReduce,
    /// Everyone gets all inputs.
    AllGather,
    /// Rank r gets block r of the reduction.
    ReduceScatter,
    /// Block r of rank s becomes block s of rank r.
    AllToAll,
    /// Everyone gets the root's input.
    Broadcast {
        /// The root.
        root: u32,
    },
    /// The root gets the reduction of all inputs.
    Reduce {
        /// The root.
        root: u32,
    },
    /// The root gets all inputs.
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

/// One call of a collective, on one rank. All ranks pass the same collective, count, types and, where it has one,
/// reduction.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The collective.
    pub what: What,
    /// The send buffer, of `count` elements, or of `count` for each rank (reducescatter, alltoall, and scatter at its
    /// root). Who sends nothing (broadcast and scatter but for the root) may pass null.
    pub input: *const u8,
    /// The receive buffer, of `count` elements, or of `count` for each rank (allgather, alltoall, and gather at its
    /// root). Who receives nothing (reduce and gather but for the root) may pass null.
    ///
    /// In place it is the send buffer, or the smaller of the two is the rank's block of the larger. Of alltoall all ranks
    /// are in place, or none; of the others each rank as it likes.
    pub output: *mut u8,
    /// Elements; as NCCL counts them.
    pub count: u64,
    /// Their type.
    pub dtype: DataType,
    /// The reduction, for those that reduce.
    pub op: ReduceOp,
    /// What this rank's input is multiplied by before a sum; every rank of such a call has a factor, of its own if it
    /// likes. On the host.
    pub factor: Option<Factor>,
}

/// The collectives of a communicator.
///
/// All ranks make the same calls in the same order, as they do with an [`Executor`], whose calls may be among them. A
/// choice's plan is loaded, and verified, at its first call. Clones are the same.
#[derive(Clone, Debug)]
pub struct Collectives(Arc<Shared>);

/// What clones share.
#[derive(Debug)]
struct Shared {
    executor: Executor,
    spread: Result<Spread, SelectionError>,
    loaded: Mutex<BTreeMap<Key, Arc<LoadedPlan>>>,
    pairs: Mutex<BTreeMap<Way, Collectives>>,
}

/// What tells plans of one communicator apart, in an order that is quick to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Sized(Algorithm, bool, usize),
    AllToAllV,
    AllGatherV(bool),
}

impl Key {
    fn of(selected: &Selected) -> Key {
        match selected {
            Selected::Sized(choice) => {
                Key::Sized(choice.algorithm, choice.shape.in_place, choice.shape.root)
            }
            Selected::AllToAllV(_) => Key::AllToAllV,
            Selected::AllGatherV(_, in_place) => Key::AllGatherV(*in_place),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What stands for the address of an empty buffer, aligned for every type.
const NOWHERE: *mut u8 = std::ptr::without_provenance_mut(64);

fn argument(what: &'static str, saw: impl ToString, allowed: &'static str) -> ExecutorError {
    ExecutorError::Argument { what, saw: saw.to_string(), allowed }
}

impl Collectives {
    /// The collectives of a communicator.
    ///
    /// # Errors
    /// What the communicator reports.
    pub fn new(communicator: &Communicator) -> Result<Self, ExecutorError> {
        let nodes = (0..communicator.world()).map(|rank| communicator.node_of(rank));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        Ok(Collectives(Arc::new(Shared {
            executor: Executor::new(communicator),
            spread: Spread::over(&nodes, communicator.crowded_anywhere()),
            loaded: Mutex::default(),
            pairs: Mutex::default(),
        })))
    }

    /// The communicator.
    pub fn communicator(&self) -> &Communicator {
        self.executor().communicator()
    }

    /// Whether all ranks are on one node.
    fn together(&self) -> bool {
        self.0.spread.as_ref().is_ok_and(|spread| spread.nodes == 1)
    }

    /// What runs the calls.
    pub fn executor(&self) -> &Executor {
        &self.0.executor
    }

    /// The plan that serves a call, loaded once.
    ///
    /// # Errors
    /// [`Selection`](ExecutorError::Selection), and what [`Executor::load`] reports.
    pub fn plan(&self, wish: Wish<'_>) -> Result<Arc<LoadedPlan>, ExecutorError> {
        let spread = self.0.spread.as_ref().map_err(Clone::clone)?;
        let selected = select(*spread, wish)?;
        let key = Key::of(&selected);
        if let Some(plan) = lock(&self.0.loaded).get(&key) {
            return Ok(Arc::clone(plan));
        }
        // Not under the lock: loading may wait for another process that verifies the same plan.
        let plan = self.executor().load(&selected.plan()?)?;
        Ok(Arc::clone(lock(&self.0.loaded).entry(key).or_insert(plan)))
    }

    /// Makes a call: with a stream it goes on by itself and completes in stream order, without one it is complete on
    /// return.
    ///
    /// # Errors
    /// What is wrong with the call, or why it could not be completed; of a call on a stream that fails later, the stream's
    /// [`synchronize`](Executor::synchronize) tells.
    ///
    /// # Safety
    /// The buffers are valid for what the request says of them until the call is complete, the receive buffer for writes;
    /// nobody else writes the send buffer, or touches the receive buffer, meanwhile. They overlap in place only.
    pub unsafe fn call(
        &self,
        request: &Request,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        if request.factor.is_some() {
            // SAFETY: as this function's.
            return unsafe { self.call_scaled(request, stream) };
        }
        if let Some(parts) = self.parts(request)? {
            return self.run_parts(parts, stream);
        }
        // SAFETY: as this function's.
        unsafe { self.launch(&self.prepare(request)?.call(), stream) }
    }

    /// Makes a call whose blocks have lengths of their own: extent r of `send` goes to rank r, extent r of `receive`
    /// comes from there. Extents are in elements, `sizes` the elements of both buffers.
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
        if !self.together() {
            let parts = self.parts_v(buffers, sizes, Counts { send, receive }, dtype)?;
            return self.run_parts(parts, stream);
        }
        let call = self.prepare_v(buffers, sizes, dtype)?;
        // SAFETY: as this function's.
        unsafe { self.launch(&call.call().with_counts(Counts { send, receive }), stream) }
    }

    /// Ends every wait of every rank, those of transfers between two ranks included.
    pub fn abort(&self, reason: &str) {
        self.abort_pairs(reason);
        self.communicator().abort(reason);
    }

    /// The error that broke the communicator, or a transfer between this rank and another.
    pub fn failure(&self) -> Option<ExecutorError> {
        let own = self.communicator().failure();
        own.or_else(|| lock(&self.0.pairs).values().find_map(|pair| pair.communicator().failure()))
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
            Some(stream) => unsafe { self.executor().execute(call, stream) },
            // SAFETY: as this function's.
            None => unsafe { self.executor().run(call) },
        }
    }

    fn check_root(&self, root: u32) -> Result<(), ExecutorError> {
        if root < self.communicator().world() {
            return Ok(());
        }
        Err(argument("use a root", format!("rank {root}"), "ranks of the communicator"))
    }
}

/// Whether there is a buffer where there must be one.
fn check_address(at: *const u8, bytes: u64, which: &'static str) -> Result<(), ExecutorError> {
    if bytes == 0 || !at.is_null() {
        return Ok(());
    }
    Err(argument("make a call", format!("null for {which} of {bytes} bytes"), "its address"))
}
