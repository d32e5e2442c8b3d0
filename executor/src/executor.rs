//! Executors: load plans and launch them.

mod again;
mod order;
mod queue;
mod recent;
mod together;

use crate::communicator::{Communicator, Whose};
use crate::error::ExecutorError;
use crate::gpu::Gpu;
use crate::launch::Launch;
use crate::plan_cache::LoadedPlan;
use crate::reach;
use crate::shared::arena::BlockBytes;
use crate::shared::control::CallType;
use crate::sync::lock;
use crate::verification::{Door, Judgement, Scope, Verdict};
use antiphon_hal::{Effort, Stream};
use antiphon_plan::LowerError;
use antiphon_plan::counts::{Counts, CountsError, Fit};
use antiphon_plan::model::Plan;
use antiphon_plan::program::CallSizes;
use antiphon_types::{DataType, ReduceOp};
use std::sync::{Arc, Mutex};

pub(crate) use again::{Asked, Buffers};
pub(crate) use order::OrderOf;
pub(crate) use queue::own_error;
use recent::{Recent, add_runtime_blocks};
pub use together::RankCall;

/// Stands for the address of a buffer without bytes, aligned for every type. A call by name also passes it, with as many bytes as
/// the other ranks' buffers have, for a buffer that its rank has no part in and its plan does not touch there.
pub(crate) const NOWHERE: *mut u8 = std::ptr::without_provenance_mut(64);

/// Bytes of a buffer that is somewhere: none of one that is not.
pub(crate) fn there(at: *const u8, bytes: u64) -> u64 {
    if std::ptr::eq(at, NOWHERE) { 0 } else { bytes }
}

/// One call of a loaded plan, on one rank.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The plan, loaded by an [`Executor`] of the same communicator.
    pub plan: &'a Arc<LoadedPlan>,
    /// The send buffer; aligned to the element size. On a rank of a GPU, memory of that device.
    pub input: *const u8,
    /// The receive buffer; aligned to the element size. On a rank of a GPU, memory of that device. It shares no byte with the send
    /// buffer, or is in place: the same memory, or the smaller of both is the rank's own block of the larger. Others are refused,
    /// unless verification is off.
    pub output: *mut u8,
    /// Bytes of the send buffer, a multiple of the element size; equal on all ranks, unless the plan has runtime sizes.
    pub input_bytes: u64,
    /// Bytes of the receive buffer, a multiple of the element size; equal on all ranks, unless the plan has runtime
    /// sizes.
    pub output_bytes: u64,
    /// Element type.
    pub dtype: DataType,
    /// The reduction to use in the place of the plan's own; `None` leaves the plan's. All ranks pass the same.
    pub op: Option<ReduceOp>,
    /// This rank's runtime blocks, in elements; for plans with runtime sizes, and for those only. Receive blocks must overlap
    /// neither each other nor what is sent, except that in place a block sent is exactly the rank's own of those received.
    pub counts: Option<Counts<'a>>,
}

impl<'a> Call<'a> {
    /// A call with buffers that hold `input_bytes` and `output_bytes`, with the plan's own reduction and no counts.
    pub fn new(
        plan: &'a Arc<LoadedPlan>,
        dtype: DataType,
        (input, input_bytes): (*const u8, u64),
        (output, output_bytes): (*mut u8, u64),
    ) -> Self {
        Call { plan, input, output, input_bytes, output_bytes, dtype, op: None, counts: None }
    }

    /// The call with these runtime blocks.
    ///
    /// ```
    /// use antiphon_executor::plan::algorithms::{Shape, alltoallv};
    /// use antiphon_executor::{Call, Communicator, Counts, DataType, Executor, Extent, Options};
    ///
    /// let ranks = Communicator::in_process(2, &Options::default())?;
    /// let plan = alltoallv::zero_copy(Shape::new(2))?;
    /// // Rank 0 keeps one element and sends two; rank 1 sends nothing and keeps three.
    /// let sent = [[1, 2], [0, 3]];
    /// std::thread::scope(|scope| {
    ///     for (rank, communicator) in ranks.iter().enumerate() {
    ///         let plan = &plan;
    ///         scope.spawn(move || {
    ///             let executor = Executor::new(communicator);
    ///             let plan = executor.load(plan).unwrap();
    ///             let send = Extent::packed(&sent[rank]);
    ///             let receive = Extent::packed(&[sent[0][rank], sent[1][rank]]);
    ///             let (input, mut output) = ([rank as u32; 8], [u32::MAX; 8]);
    ///             let from = (input.as_ptr().cast(), 32);
    ///             let to = (output.as_mut_ptr().cast(), 32);
    ///             let call = Call::new(&plan, DataType::U32, from, to);
    ///             let call = call.with_counts(Counts { send: &send, receive: &receive });
    ///             // SAFETY: both buffers hold 32 bytes and outlive the call.
    ///             unsafe { executor.run(&call) }.unwrap();
    ///             if rank == 1 {
    ///                 assert_eq!(output[..6], [0, 0, 1, 1, 1, u32::MAX]);
    ///             }
    ///         });
    ///     }
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_counts(self, counts: Counts<'a>) -> Self {
        Call { counts: Some(counts), ..self }
    }

    /// Checks the runtime blocks of the call against its plan and its buffers.
    fn check_counts(&self, whose: &Whose) -> Result<(), ExecutorError> {
        let (plan, rank) = (self.plan, whose.rank());
        let error = |source| ExecutorError::Counts { plan: plan.name().to_owned(), source };
        let counts = match (plan.layout().runtime_sizes, &self.counts) {
            (false, None) => return Ok(()),
            (false, Some(_)) => return Err(error(CountsError::Unexpected)),
            (true, None) => return Err(error(CountsError::Missing)),
            (true, Some(counts)) => counts,
        };
        let element = self.dtype.size() as u64;
        let buffers = [("an input", self.input_bytes), ("an output", self.output_bytes)];
        if let Some((buffer, bytes)) = buffers.into_iter().find(|(_, b)| !b.is_multiple_of(element))
        {
            return Err(plan.lower_error(&LowerError::Element { buffer, bytes, element }));
        }
        let addresses = [self.input.addr() as u64, self.output.addr() as u64];
        let fit = Fit {
            blocks: plan.layout().ranks[rank as usize].runtime_blocks,
            elements: buffers.map(|(_, bytes)| bytes / element),
            starts: self.shares().then(|| addresses.map(|address| address / element)),
            in_place: plan.layout().in_place,
            rank,
        };
        counts.check(&fit).map_err(error)?;
        plan.scope().admit_blocks(plan, whose, counts.places(&fit))
    }

    /// Whether input and output have memory in common.
    pub(crate) fn shares(&self) -> bool {
        let (input, output) = self.bytes_there();
        let (from, to) = (self.input.addr() as u64, self.output.addr() as u64);
        from < to.saturating_add(output) && to < from.saturating_add(input)
    }

    /// The fingerprint of this call, from that of its plan, sizes, types and stream ([`alike`]). It also tells whether the call is
    /// in place, on which ranks must agree; not for collectives with a root, and not if it makes no difference to the plan.
    pub(crate) fn fingerprint(&self, alike: u64) -> u64 {
        let told = self.plan.is_sensitive() && !self.plan.collective().has_root();
        alike ^ u64::from(told && !self.plan.layout().runtime_sizes && self.shares())
    }

    /// Whether buffers that share memory do so as calls in place have it.
    pub(crate) fn is_in_place(&self, rank: u32) -> bool {
        let behind = (self.output.addr() as u64).wrapping_sub(self.input.addr() as u64);
        let sizes = CallSizes {
            input: self.input_bytes,
            output: self.output_bytes,
            element: self.dtype.size() as u64,
            strict: false,
        };
        self.plan.layout().lies_in_place(rank, sizes, behind)
    }

    /// Whether one of the buffers is nowhere.
    pub(crate) fn is_empty(&self) -> bool {
        let (input, output) = self.bytes_there();
        input == 0 || output == 0
    }

    /// Bytes of input and output; none for a buffer that is nowhere, since nothing of it is to be found, mapped or copied.
    pub(crate) fn bytes_there(&self) -> (u64, u64) {
        (there(self.input, self.input_bytes), there(self.output, self.output_bytes))
    }
}

/// Launches plans on a communicator.
#[derive(Debug, Clone)]
pub struct Executor {
    communicator: Communicator,
    /// Contexts of blocking calls; held while one runs.
    blocking: Arc<Mutex<Vec<Recent>>>,
    /// Contexts of calls on streams.
    queued: Arc<Mutex<Vec<Recent>>>,
    strict: bool,
    door: Door,
}

impl Executor {
    /// An executor for a communicator.
    pub fn new(communicator: &Communicator) -> Self {
        Executor {
            communicator: communicator.clone(),
            blocking: Arc::default(),
            queued: Arc::default(),
            strict: false,
            door: Door::default(),
        }
    }

    /// The communicator.
    pub fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// An executor that refuses the sizes that the plan format's reference implementation refuses; others take any size.
    pub fn strict(communicator: &Communicator) -> Self {
        Executor { strict: true, ..Executor::new(communicator) }
    }

    /// Checks, lowers and verifies a plan.
    ///
    /// A local call: other ranks may load other plans, or this one at another time. If ranks of a node load the same plan at
    /// the same time, one of them verifies it for all. Verifying takes milliseconds to seconds, during which this rank does
    /// not come to launches that other ranks may be in already: load plans before you launch.
    ///
    /// # Errors
    /// [`Plan`](ExecutorError::Plan) lists every fault of the plan; [`Lower`](ExecutorError::Lower) and
    /// [`Transport`](ExecutorError::Transport) say what is not supported; [`World`](ExecutorError::World) if the plan is
    /// for another number of ranks; [`Refuted`](ExecutorError::Refuted) if it is shown to go wrong, unless
    /// [`Options::verification`](crate::Options::verification) is off.
    pub fn load(&self, plan: &Plan) -> Result<Arc<LoadedPlan>, ExecutorError> {
        self.loaded(plan).map(Arc::new).map_err(|error| self.names(error))
    }

    /// Loads a plan that is right whichever ranks are in place, as those are that are built in for calls by name.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(crate) fn load_mixed(&self, plan: &Plan) -> Result<Arc<LoadedPlan>, ExecutorError> {
        self.loaded(plan).map(|loaded| Arc::new(loaded.with_mixtures()))
    }

    /// Loads a plan that is installed under this name, which errors of its launches tell.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(crate) fn load_installed(
        &self,
        plan: &Plan,
        name: &str,
    ) -> Result<Arc<LoadedPlan>, ExecutorError> {
        self.loaded(plan).map(|loaded| Arc::new(loaded.installed_as(name)))
    }

    /// Loads a plan; its errors do not name the communicator.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(crate) fn loaded(&self, plan: &Plan) -> Result<LoadedPlan, ExecutorError> {
        let loaded = LoadedPlan::new(plan)?;
        self.fits(&loaded)?;
        let shared = &self.communicator.shared;
        if shared.gpu.is_some() {
            Gpu::admits(shared, &loaded)?;
        }
        reach::prepare(shared, &loaded)?;
        let (verdict, scope) = self.judge(plan, &loaded)?;
        Ok(loaded.with_verdict(verdict, scope))
    }

    /// What is known of a plan; an error if it is refuted.
    fn judge(&self, plan: &Plan, loaded: &LoadedPlan) -> Result<(Verdict, Scope), ExecutorError> {
        let shared = &self.communicator.shared;
        if !shared.options.verification {
            return Ok((Verdict::NotVerified, Scope::default()));
        }
        match self.door.judge(shared, plan, loaded.layout()) {
            Judgement::Proven(scope) => Ok((Verdict::Proven, scope)),
            Judgement::NotProven(reasons, scope) => Ok((Verdict::NotProven(reasons), scope)),
            Judgement::Refuted(text) => {
                Err(ExecutorError::Refuted { plan: plan.name.clone(), text })
            }
        }
    }

    /// An executor that asks `door`.
    #[cfg(test)]
    pub(crate) fn behind(communicator: &Communicator, door: Door) -> Self {
        Executor { door, ..Executor::new(communicator) }
    }

    /// An error as the caller gets it.
    pub(crate) fn names(&self, error: ExecutorError) -> ExecutorError {
        self.communicator.shared.whose.names(error)
    }

    fn fits(&self, plan: &LoadedPlan) -> Result<(), ExecutorError> {
        let world = self.communicator.world();
        if plan.ranks() == world {
            return Ok(());
        }
        let plan_name = plan.name().to_owned();
        Err(ExecutorError::World { plan: plan_name, ranks: plan.ranks(), world })
    }

    /// Launches a call on a stream and returns: the launch goes on by itself, and completes in stream order. (A short
    /// launch whose peers are there may be complete on return.)
    ///
    /// # Errors
    /// What is wrong with the call, or an earlier failure of the communicator. If the launch fails later,
    /// [`synchronize`](Self::synchronize) on its stream returns the error.
    ///
    /// # Safety
    /// Both buffers are valid for their lengths until the launch is complete, the output for writes; nobody else
    /// writes the input, or touches the output, meanwhile.
    pub unsafe fn execute(
        &self,
        call: &Call<'_>,
        stream: &Arc<dyn Stream>,
    ) -> Result<(), ExecutorError> {
        // SAFETY: as this function's.
        let begun = unsafe { self.execute_as(OrderOf::Stream, call, stream) };
        begun.map_err(|error| self.names(error))
    }

    /// Runs a call and returns when it is complete on this rank.
    ///
    /// # Errors
    /// What is wrong with the call, or why it could not be completed.
    ///
    /// # Safety
    /// As [`execute`](Self::execute).
    pub unsafe fn run(&self, call: &Call<'_>) -> Result<(), ExecutorError> {
        // SAFETY: as this function's.
        unsafe { self.run_as(OrderOf::Stream, call) }.map_err(|error| self.names(error))
    }

    /// Runs a blocking call on the host, and keeps what it takes at hand, for calls that ask the same.
    ///
    /// # Safety
    /// As [`execute`](Self::execute).
    pub(crate) unsafe fn run_asked(
        &self,
        call: &Call<'_>,
        asked: Option<Asked>,
    ) -> Result<(), ExecutorError> {
        // Blocking calls of one rank share a context, so they take turns.
        let mut recent = lock(&self.blocking);
        loop {
            let recent = self.recent(&mut recent, call, None, asked)?;
            // SAFETY: as this function's.
            if let Some(outcome) = unsafe { self.complete(recent, call) } {
                return outcome;
            }
        }
    }

    /// Runs a call whose context is at hand to its end; `None` if that takes no more launches, and nothing was begun.
    ///
    /// # Safety
    /// As [`execute`](Self::execute).
    unsafe fn complete(
        &self,
        recent: &Recent,
        call: &Call<'_>,
    ) -> Option<Result<(), ExecutorError>> {
        let order = self.order(recent, call)?;
        let launch = Launch {
            shared: &self.communicator.shared,
            context: &recent.context,
            sized: &recent.sized,
            order: &order,
            runtime_blocks: &recent.runtime_blocks,
            waiting: &Mutex::default(),
        };
        loop {
            match launch.advance(Effort::Wait) {
                Ok(false) => {}
                Ok(true) => return Some(Ok(())),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Waits until everything on a stream is complete.
    ///
    /// # Errors
    /// The first error of the stream's launches since this was called last.
    pub fn synchronize(&self, stream: &Arc<dyn Stream>) -> Result<(), ExecutorError> {
        let ended = stream.synchronize().map_err(own_error);
        self.all_ended(ended).map_err(|error| self.names(error))
    }

    /// What came of what was on a stream, where that is known of its launches.
    fn all_ended(&self, ended: Result<(), ExecutorError>) -> Result<(), ExecutorError> {
        let communicator = &self.communicator;
        if communicator.shared.gpu.is_none() {
            return ended;
        }
        // A kernel that was ended early reports no error.
        let ended = ended.and_then(|()| communicator.shared.check_with_near());
        let ended = ended.and_then(|()| communicator.pair_failure().map_or(Ok(()), Err));
        // And proxies may still copy from and to the caller's buffers.
        ended.inspect_err(|_| communicator.settle_broken())
    }

    /// Whether everything on a stream is complete. Does not wait. On devices, calls that have failed are complete once the caller has
    /// their buffers back: nothing is copied for them any more, and no rank of the node uses them.
    ///
    /// # Errors
    /// What the driver reports. Errors of launches come from [`synchronize`](Self::synchronize).
    pub fn query(&self, stream: &Arc<dyn Stream>) -> Result<bool, ExecutorError> {
        let is_over = stream.query().map_err(|error| self.names(own_error(error)))?;
        let is_on_device = self.communicator.shared.gpu.is_some();
        Ok(is_over && (!is_on_device || self.communicator.has_settled()))
    }

    /// Launches a call on a device.
    ///
    /// # Safety
    /// As [`execute`](Self::execute).
    unsafe fn launch(
        &self,
        gpu: &Gpu,
        order: OrderOf,
        call: &Call<'_>,
        stream: &Arc<dyn Stream>,
    ) -> Result<(), ExecutorError> {
        let (sizes, blocks) = self.checked(call)?;
        let shared = &self.communicator.shared;
        // SAFETY: as this function's.
        let launched = unsafe { gpu.launch(shared, (order, call), (sizes, &blocks), stream) };
        launched.map_err(|error| call.plan.told(error))
    }

    /// The sizes and the runtime blocks of a call that a device can be asked for.
    pub(crate) fn checked(
        &self,
        call: &Call<'_>,
    ) -> Result<(CallSizes, Vec<BlockBytes>), ExecutorError> {
        let shared = &self.communicator.shared;
        shared.check()?;
        self.fits(call.plan)?;
        self.check(call)?;
        let mut blocks = Vec::new();
        add_runtime_blocks(call, &mut blocks);
        Ok((self.sizes(call), blocks))
    }

    /// What can be said of a call's buffers and runtime blocks before it is launched.
    pub(crate) fn check(&self, call: &Call<'_>) -> Result<(), ExecutorError> {
        self.aligned(call.dtype, [call.input.addr(), call.output.addr()])?;
        if call.op == Some(ReduceOp::Avg) && !call.plan.may_average() {
            let (name, collective) = (call.plan.name(), call.plan.collective());
            return Err(ExecutorError::Argument {
                what: "average",
                saw: format!("plan `{name}`, of collective `{collective}`"),
                allowed: "plans of a collective that says where its sums end",
            });
        }
        let whose = &self.communicator.shared.whose;
        call.plan.scope().admit(call, whose)?;
        call.check_counts(whose)
    }

    /// Whether buffers at these addresses are aligned to their elements.
    pub(crate) fn aligned(
        &self,
        dtype: DataType,
        addresses: [usize; 2],
    ) -> Result<(), ExecutorError> {
        let element = dtype.size();
        match addresses.into_iter().find(|address| !address.is_multiple_of(element)) {
            None => Ok(()),
            Some(address) => Err(ExecutorError::Argument {
                what: "use a buffer",
                saw: format!("address {address:#x} for {dtype} elements"),
                allowed: "addresses that are multiples of the element size",
            }),
        }
    }

    /// The sizes by which programs and contexts of a call differ.
    fn sizes(&self, call: &Call<'_>) -> CallSizes {
        let element = call.dtype.size() as u64;
        if call.plan.layout().runtime_sizes {
            // Programs and contexts are the same whatever the sizes.
            return CallSizes { input: 0, output: 0, element, strict: false };
        }
        let (input, output) = (call.input_bytes, call.output_bytes);
        CallSizes { input, output, element, strict: self.strict }
    }
}

/// The fingerprint that calls of a plan have in common if they are of these sizes and types and on this stream.
pub(crate) fn alike(plan: &LoadedPlan, sizes: CallSizes, types: CallType, stream: u32) -> u64 {
    let CallType { dtype, op } = types;
    let content = plan.layout().fingerprint;
    let what = [content, sizes.input, sizes.output, dtype.into(), op.into(), stream.into()];
    what.into_iter().fold(0xA17F_1BAD, mix)
}

/// Mixes a word into a hash (a 64-bit multiply-rotate; collisions only delay the report of a caller's mistake).
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) ^ word
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::communicator::Options;
    use crate::shared::control::RING;
    use antiphon_plan::builder::ProgramBuilder;
    use antiphon_plan::model::Collective;
    use std::sync::atomic::Ordering;

    /// Rank 1 copies its input; rank 0 has nothing to do.
    pub(crate) fn copy() -> Plan {
        let program = ProgramBuilder::new("copy", Collective::SendRecv, 2);
        program.block(1).copy(program.input(1).all(), program.output(1).all());
        program.build().unwrap()
    }

    #[test]
    fn a_launch_does_not_take_the_descriptor_of_one_that_has_not_begun() {
        let ranks = Communicator::in_process(2, &Options::default()).unwrap();
        let executors: Vec<_> = ranks.iter().map(Executor::new).collect();
        let plans: Vec<_> = executors.iter().map(|e| e.load(&copy()).unwrap()).collect();
        let (input, mut output) = ([7u32; 4], [0u32; 4]);
        let (from, to) = ((input.as_ptr().cast(), 16), (output.as_mut_ptr().cast(), 16));
        let [idle, busy] = [0, 1].map(|rank| Call::new(&plans[rank], DataType::U32, from, to));
        for seq in 1..=RING {
            let stream = if seq == 1 { 1 } else { 2 };
            assert!(
                executors[0].queued(&idle, Some(stream)).unwrap().advance(Effort::Try).unwrap()
            );
        }
        let first = executors[1].queued(&busy, Some(1)).unwrap();
        for _ in 2..=RING {
            let launch = executors[1].queued(&busy, Some(2)).unwrap();
            assert!(launch.advance(Effort::Try).unwrap());
        }
        let last = executors[1].queued(&busy, Some(2)).unwrap();
        assert!(!last.advance(Effort::Try).unwrap());
        assert!(first.advance(Effort::Try).unwrap());
        assert!(last.advance(Effort::Try).unwrap());
        assert!(ranks[0].shared.control(1).record(last.order.seq).is_some());
        assert_eq!(output, input);
    }

    #[test]
    fn a_launch_of_another_size_waits_until_nobody_uses_the_scratch_of_the_last() {
        let program = ProgramBuilder::new("through scratch", Collective::SendRecv, 2);
        let scratch = program.scratch(1, 1);
        let block = program.block(1);
        block.copy(program.input(1).all(), scratch.all());
        block.copy(scratch.all(), program.output(1).all());
        let plan = program.build().unwrap();
        for (bytes, begins) in [(16, true), (32, false)] {
            let ranks = Communicator::in_process(2, &Options::default()).unwrap();
            let executors: Vec<_> = ranks.iter().map(Executor::new).collect();
            let plans: Vec<_> = executors.iter().map(|e| e.load(&plan).unwrap()).collect();
            let (input, mut output) = ([7u32; 8], [0u32; 8]);
            let output = output.as_mut_ptr();
            let call = |rank: usize, bytes| {
                let from = (input.as_ptr().cast(), bytes);
                Call::new(&plans[rank], DataType::U32, from, (output.cast(), bytes))
            };
            // Rank 0 has nothing to do, and is through with the first launch before rank 1 has begun it.
            assert!(
                executors[0].queued(&call(0, 16), Some(1)).unwrap().advance(Effort::Try).unwrap()
            );
            let next = executors[0].queued(&call(0, bytes), Some(1)).unwrap();
            assert_eq!(next.advance(Effort::Try).unwrap(), begins, "{bytes} bytes");
            for size in [16, bytes] {
                let launch = executors[1].queued(&call(1, size), Some(1)).unwrap();
                assert!(launch.advance(Effort::Try).unwrap());
                if !begins && size == 16 {
                    assert!(next.advance(Effort::Try).unwrap());
                }
            }
        }
    }

    #[test]
    fn an_abort_makes_every_rank_quiet_and_tells_why() {
        let ranks = Communicator::in_process(3, &Options::default()).unwrap();
        ranks[1].abort("enough");
        let began = std::time::Instant::now();
        for rank in 0..3 {
            let quiet = || ranks[0].shared.control(rank).quiet.0.load(Ordering::Acquire) != 0;
            while !quiet() {
                assert!(began.elapsed().as_secs() < 10, "rank {rank} is not quiet");
                std::thread::yield_now();
            }
            let failure = ranks[rank as usize].failure().unwrap().to_string();
            assert!(failure.contains("rank 1") && failure.contains("enough"), "{failure}");
            let place = format!("no launch was running on rank {rank};");
            assert!(failure.contains(&place), "{failure}");
        }
    }
}
