//! Collectives by name: the built-in algorithm for a call is chosen, its plan loaded once, and run.
//!
//! This is the one way from a collective's name to a launch: typed slices, the C interface and whatever comes above them
//! end here.

use crate::communicator::Communicator;
use crate::error::ExecutorError;
use crate::executor::{Call, Executor};
use crate::plan_cache::LoadedPlan;
use crate::selection::{Selected, SelectionError, Spread, Wish, select};
use antiphon_hal::Stream;
use antiphon_plan::algorithms::Algorithm;
use antiphon_plan::counts::{Counts, Extent};
use antiphon_plan::model::Collective;
use antiphon_types::{DataType, ReduceOp};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// In place it is the send buffer, or the smaller of the two is the rank's block of the larger. Of allreduce,
    /// allgather, reducescatter and alltoall all ranks are in place, or none; of the others each rank as it likes.
    pub output: *mut u8,
    /// Elements; as NCCL counts them.
    pub count: u64,
    /// Their type.
    pub dtype: DataType,
    /// The reduction, for those that reduce.
    pub op: ReduceOp,
}

/// The collectives of a communicator.
///
/// All ranks make the same calls in the same order, as they do with an [`Executor`], whose calls may be among them. A
/// choice's plan is loaded, and verified, at its first call.
#[derive(Debug)]
pub struct Collectives {
    executor: Executor,
    spread: Result<Spread, SelectionError>,
    loaded: Mutex<BTreeMap<Key, Arc<LoadedPlan>>>,
    pairs: Mutex<BTreeMap<u32, Arc<Collectives>>>,
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
        Ok(Collectives {
            executor: Executor::new(communicator),
            spread: Spread::over(&nodes, communicator.crowded_anywhere()),
            loaded: Mutex::default(),
            pairs: Mutex::default(),
        })
    }

    /// The communicator.
    pub fn communicator(&self) -> &Communicator {
        self.executor.communicator()
    }

    /// What runs the calls.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// The plan that serves a call, loaded once.
    ///
    /// # Errors
    /// [`Selection`](ExecutorError::Selection), and what [`Executor::load`] reports.
    pub fn plan(&self, wish: Wish<'_>) -> Result<Arc<LoadedPlan>, ExecutorError> {
        let spread = self.spread.as_ref().map_err(Clone::clone)?;
        let selected = select(*spread, wish)?;
        let key = Key::of(&selected);
        if let Some(plan) = lock(&self.loaded).get(&key) {
            return Ok(Arc::clone(plan));
        }
        // Not under the lock: loading may wait for another process that verifies the same plan.
        let plan = self.executor.load(&selected.plan()?)?;
        Ok(Arc::clone(lock(&self.loaded).entry(key).or_insert(plan)))
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
        let Request { what, input, output, count, dtype, op } = *request;
        let (rank, world) = (self.communicator().rank(), self.communicator().world());
        let element = dtype.size() as u64;
        let too_much =
            || argument("make a call", format!("{count} elements"), "what fits the address space");
        let block = count.checked_mul(element).ok_or_else(too_much)?;
        let whole = block.checked_mul(world.into()).ok_or_else(too_much)?;
        if whole > isize::MAX as u64 {
            return Err(too_much());
        }
        let own_block = u64::from(rank) * block;
        let (collective, input_bytes, output_bytes, root) = match what {
            What::AllReduce => (Collective::AllReduce, block, block, 0),
            What::AllGather => (Collective::AllGather, block, whole, 0),
            What::ReduceScatter => (Collective::ReduceScatter, whole, block, 0),
            What::AllToAll => (Collective::AllToAll, whole, whole, 0),
            What::Broadcast { root } => (Collective::Broadcast, block, block, root),
            What::Reduce { root } => (Collective::Reduce, block, block, root),
            // SAFETY: as this function's.
            What::Gather { root } => return unsafe { self.gather(request, root, stream) },
            // SAFETY: as this function's.
            What::Scatter { root } => return unsafe { self.scatter(request, root, stream) },
        };
        self.check_root(root)?;
        let at_root = rank == root;
        // Plans do not touch what a rank has no part in, so that any buffer of the right length will do.
        let (input, output) = match what {
            What::Broadcast { .. } if !at_root => (output.cast_const(), output),
            What::Reduce { .. } if !at_root => (input, input.cast_mut()),
            _ => (input, output),
        };
        check_address(input, input_bytes, "a send buffer")?;
        check_address(output, output_bytes, "a receive buffer")?;
        let offset = |base: *const u8| base.wrapping_add(own_block as usize);
        let in_place = block > 0
            && match what {
                What::AllReduce | What::AllToAll => input == output.cast_const(),
                What::AllGather => input == offset(output.cast_const()),
                What::ReduceScatter => output.cast_const() == offset(input),
                // These plans are right either way, so ranks need not agree.
                _ => false,
            };
        let bytes = input_bytes.max(output_bytes);
        let plan = self.plan(Wish { collective: &collective, bytes, in_place, root })?;
        let reduces = matches!(
            collective,
            Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce
        );
        let sides = [(input, input_bytes), (output.cast_const(), output_bytes)];
        let [input, output] = sides
            .map(|(at, bytes)| if bytes == 0 { (NOWHERE.cast_const(), 0) } else { (at, bytes) });
        let mut call = Call::new(&plan, dtype, input, (output.0.cast_mut(), output.1));
        call.op = reduces.then_some(op);
        // SAFETY: as this function's; a rank without a part in one of the buffers has the other one stand in for it, which
        // is as long, and which its plan does not touch by that name.
        unsafe { self.launch(&call, stream) }
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
        (input, output): (*const u8, *mut u8),
        sizes: (u64, u64),
        Counts { send, receive }: Counts<'_>,
        dtype: DataType,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let bytes = |elements: u64| {
            let bytes = elements.checked_mul(dtype.size() as u64);
            bytes.filter(|&bytes| bytes <= isize::MAX as u64).ok_or_else(|| {
                argument(
                    "make a call",
                    format!("{elements} elements"),
                    "what fits the address space",
                )
            })
        };
        let (input_bytes, output_bytes) = (bytes(sizes.0)?, bytes(sizes.1)?);
        check_address(input, input_bytes, "a send buffer")?;
        check_address(output, output_bytes, "a receive buffer")?;
        let wish = Wish { collective: &Collective::AllToAllV, bytes: 0, in_place: false, root: 0 };
        let plan = self.plan(wish)?;
        let input = if input_bytes == 0 { NOWHERE.cast_const() } else { input };
        let output = if output_bytes == 0 { NOWHERE } else { output };
        let call = Call::new(&plan, dtype, (input, input_bytes), (output, output_bytes));
        // SAFETY: as this function's.
        unsafe { self.launch(&call.with_counts(Counts { send, receive }), stream) }
    }

    /// Sends `count` elements to a peer, which calls [`receive`](Self::receive) with the same count and type; the others
    /// have no part in it. The first transfer between two ranks waits until both have come, also on a stream.
    ///
    /// # Errors
    /// As [`call`](Self::call); a peer that is this rank, or on another node.
    ///
    /// # Safety
    /// As [`call`](Self::call).
    pub unsafe fn send(
        &self,
        input: *const u8,
        count: u64,
        dtype: DataType,
        peer: u32,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let pair = self.pair(peer)?;
        let other = 1 - pair.communicator().rank() as usize;
        let mut send = [Extent::default(); 2];
        send[other].count = count;
        let counts = Counts { send: &send, receive: &[Extent::default(); 2] };
        // SAFETY: as this function's.
        unsafe { pair.all_to_all_v((input, NOWHERE), (count, 0), counts, dtype, stream) }
    }

    /// Receives `count` elements from a peer, which calls [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Safety
    /// As [`call`](Self::call).
    pub unsafe fn receive(
        &self,
        output: *mut u8,
        count: u64,
        dtype: DataType,
        peer: u32,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let pair = self.pair(peer)?;
        let other = 1 - pair.communicator().rank() as usize;
        let mut receive = [Extent::default(); 2];
        receive[other].count = count;
        let counts = Counts { send: &[Extent::default(); 2], receive: &receive };
        // SAFETY: as this function's.
        unsafe {
            pair.all_to_all_v((NOWHERE.cast_const(), output), (0, count), counts, dtype, stream)
        }
    }

    /// Ends every wait of every rank, those of transfers between two ranks included.
    pub fn abort(&self, reason: &str) {
        for pair in lock(&self.pairs).values() {
            pair.communicator().abort(reason);
        }
        self.communicator().abort(reason);
    }

    /// The error that broke the communicator, or a transfer between this rank and another.
    pub fn failure(&self) -> Option<ExecutorError> {
        let own = self.communicator().failure();
        own.or_else(|| lock(&self.pairs).values().find_map(|pair| pair.communicator().failure()))
    }

    /// The group of this rank and a peer.
    fn pair(&self, peer: u32) -> Result<Arc<Collectives>, ExecutorError> {
        if let Some(failure) = self.communicator().failure() {
            return Err(failure);
        }
        if let Some(pair) = lock(&self.pairs).get(&peer) {
            return Ok(Arc::clone(pair));
        }
        // Not under the lock: another thread may be on its way to another peer.
        let pair = Arc::new(Collectives::new(&self.communicator().pair(peer)?)?);
        Ok(Arc::clone(lock(&self.pairs).entry(peer).or_insert(pair)))
    }

    /// # Safety
    /// As [`call`](Self::call).
    unsafe fn gather(
        &self,
        request: &Request,
        root: u32,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let Request { input, output, count, dtype, .. } = *request;
        self.check_root(root)?;
        let (rank, world) = (self.communicator().rank(), self.communicator().world());
        let mut send = vec![Extent::default(); world as usize];
        let mut receive = send.clone();
        send[root as usize].count = count;
        let at_root = rank == root;
        if at_root {
            receive = Extent::packed(&vec![count; world as usize]);
            let own = output.wrapping_add(rank as usize * count as usize * dtype.size());
            if count > 0 && input == own.cast_const() {
                (send[rank as usize], receive[rank as usize]) = Default::default();
            }
        }
        let kept = at_root && send[rank as usize].count == 0;
        let input = if kept { (NOWHERE.cast_const(), 0) } else { (input, count) };
        let output = if at_root { (output, count * u64::from(world)) } else { (NOWHERE, 0) };
        let counts = Counts { send: &send, receive: &receive };
        // SAFETY: as this function's.
        unsafe {
            self.all_to_all_v((input.0, output.0), (input.1, output.1), counts, dtype, stream)
        }
    }

    /// # Safety
    /// As [`call`](Self::call).
    unsafe fn scatter(
        &self,
        request: &Request,
        root: u32,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let Request { input, output, count, dtype, .. } = *request;
        self.check_root(root)?;
        let (rank, world) = (self.communicator().rank(), self.communicator().world());
        let mut send = vec![Extent::default(); world as usize];
        let mut receive = send.clone();
        receive[root as usize].count = count;
        let at_root = rank == root;
        if at_root {
            send = Extent::packed(&vec![count; world as usize]);
            let own = input.wrapping_add(rank as usize * count as usize * dtype.size());
            if count > 0 && output.cast_const() == own {
                (send[rank as usize], receive[rank as usize]) = Default::default();
            }
        }
        let kept = at_root && receive[rank as usize].count == 0;
        let output = if kept { (NOWHERE, 0) } else { (output, count) };
        let input =
            if at_root { (input, count * u64::from(world)) } else { (NOWHERE.cast_const(), 0) };
        let counts = Counts { send: &send, receive: &receive };
        // SAFETY: as this function's.
        unsafe {
            self.all_to_all_v((input.0, output.0), (input.1, output.1), counts, dtype, stream)
        }
    }

    /// # Safety
    /// As [`Executor::execute`].
    unsafe fn launch(
        &self,
        call: &Call<'_>,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        match stream {
            // SAFETY: as this function's.
            Some(stream) => unsafe { self.executor.execute(call, stream) },
            // SAFETY: as this function's.
            None => unsafe { self.executor.run(call) },
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
