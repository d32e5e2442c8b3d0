//! Launches: from a call to what is in its stream.

use super::buffers::Buffers;
use super::calls::Shown;
use super::compiled::KernelKind;
use super::context::{Awaited, Called, Context, PerLaunch, Reader};
use super::words::Words;
use super::{Gpu, Recent};
use crate::communicator::{CallSeries, Lane, Shared};
use crate::error::ExecutorError;
use crate::executor::{Call, OrderOf};
use crate::shared::arena::BlockBytes;
use crate::shared::control::CallType;
use antiphon_codegen::abi::Launch;
use antiphon_hal::{Event, HalError, Stream};
use antiphon_plan::program::CallSizes;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Elements that one block divides or multiplies before a launch or behind it, and the most blocks that do so.
const ELEMENTS_OF_BLOCK: u64 = 4096;
const ELEMENT_BLOCKS: u64 = 64;

/// Thread blocks for a kernel that goes over so many elements by itself.
pub(super) fn blocks_over(elements: u64) -> u32 {
    elements.div_ceil(ELEMENTS_OF_BLOCK).clamp(1, ELEMENT_BLOCKS) as u32
}

/// What distinguishes calls that need another context, kernel or other byte ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    pub plan: usize,
    pub sizes: CallSizes,
    pub kind: KernelKind,
    pub lane: Lane,
    pub order: OrderOf,
}

impl Shape {
    /// That of a call which comes in this order, in a lane.
    pub fn of((order, call): (OrderOf, &Call<'_>), sizes: CallSizes, lane: Lane) -> Self {
        let plan = Arc::as_ptr(call.plan).addr();
        Shape { plan, sizes, kind: KernelKind::of(call), lane, order }
    }
}

/// Where a launch is put.
#[derive(Clone, Copy)]
pub struct LaunchTarget<'a> {
    /// The stream.
    pub stream: &'a dyn Stream,
    /// The stream is recorded into a graph.
    pub recorded: bool,
}

impl<'a> LaunchTarget<'a> {
    /// A stream as it is now.
    ///
    /// # Errors
    /// What the driver says when it is asked whether the stream is recorded.
    pub fn of(stream: &'a dyn Stream) -> Result<Self, HalError> {
        Ok(LaunchTarget { stream, recorded: stream.is_capturing()? })
    }
}

/// The event that was put behind a launch.
pub type Behind = Result<Arc<dyn Event>, ExecutorError>;

/// What one launch of a call uses.
pub struct Ready {
    /// It is recorded into a graph.
    pub recorded: bool,
    /// Where the kernel finds the call's buffers.
    pub buffers: Buffers,
    /// Its runtime blocks.
    blocks: Option<Arc<Words>>,
    /// What it is, to the kernels of peers.
    fingerprint: u64,
    /// Whom its end waits for.
    awaited: Awaited,
}

impl Gpu {
    /// Launches a call on a stream.
    ///
    /// # Safety
    /// As `Executor::execute`.
    pub unsafe fn launch(
        &self,
        shared: &Arc<Shared>,
        (order, call): (OrderOf, &Call<'_>),
        (sizes, blocks): (CallSizes, &[BlockBytes]),
        stream: &Arc<dyn Stream>,
    ) -> Result<(), ExecutorError> {
        shared.takes(&**stream)?;
        let lacking = |error| shared.lacking(error);
        let watch = self.watch(shared).map_err(lacking)?;
        let target = LaunchTarget::of(&**stream)?;
        let shape = Shape::of((order, call), sizes, shared.lane(stream.id(), target.recorded));
        let recent = &self.recall(shared, call, shape).map_err(lacking)?;
        let turn = recent.context.turn();
        let ready = self.ready(shared, recent, call, blocks, target).map_err(lacking)?;
        let mut lane = self.lane_turn();
        if let Some(lane) = &mut lane {
            lane.enter(target).map_err(lacking)?;
        }
        let launching = self.underway.launching();
        // Its making may have taken as long as the time limit, and its context may have come too late to be closed after a failure.
        recent.context.note_use();
        shared.check()?;
        let number = self.number(shared, recent, call, ready.recorded);
        let launch = self.kernel_parameter(shared, recent, &ready, number);
        let sent = (&ready.buffers, stream);
        // SAFETY: as this function's.
        let enqueued = unsafe { self.enqueue(recent, &launch, sent) };
        // Also where what follows the kernel fails: the kernel is in the stream.
        let is_followed = enqueued.is_ok() && number > 0;
        // SAFETY: as this function's.
        let finish = |()| unsafe { self.finish_call(shared, recent, call, sent) };
        let launched = enqueued.and_then(finish);
        let behind = is_followed.then(|| recent.context.put_own_end(&**stream));
        let event = behind.as_ref().and_then(|behind| behind.clone().ok());
        self.settle(shared, recent, number, behind, launched)?;
        if let Some(lane) = &mut lane {
            lane.leave(shared, target, event)?;
        }
        drop(launching);
        drop(lane);
        drop(turn);
        watch.look();
        Ok(())
    }

    /// Finds or makes what a call needs that is made once.
    fn recall(
        &self,
        shared: &Arc<Shared>,
        call: &Call<'_>,
        shape: Shape,
    ) -> Result<Arc<Recent>, ExecutorError> {
        // Apart from what follows: it is locked for a moment only.
        let recent = self.recent().find(shape, &[]);
        if let Some(recent) = recent {
            return Ok(recent);
        }
        let demand = self.demand(shared, call, shape)?;
        let known = || self.find_parts(&demand, |context| context.known_kernel(demand.kind));
        let parts = match self.family.making_unless(known) {
            Err(known) => known,
            Ok(making) => {
                let kernel = |context: &Context| context.kernel(shared, self, demand.kind);
                let parts = self.make_parts(shared, &demand, kernel)?;
                self.make_for_others(shared, &demand, &making);
                parts
            }
        };
        Ok(self.keep_call(call, shape, &[], parts))
    }

    /// Finds or makes what a launch uses on its target; nobody counts on it yet.
    pub(super) fn ready(
        &self,
        shared: &Shared,
        recent: &Recent,
        call: &Call<'_>,
        blocks: &[BlockBytes],
        target: LaunchTarget<'_>,
    ) -> Result<Ready, ExecutorError> {
        let LaunchTarget { stream, recorded } = target;
        let context = &recent.context;
        let reader = if recorded { Reader::Graph(stream) } else { Reader::Launch(context.next()) };
        if recorded {
            self.keep_for_graph(stream, Arc::clone(&self.graphs) as _)?;
        }
        let buffers = self.place(shared, context, call, &reader)?;
        self.tell_regions(shared, context, [buffers.input.region, buffers.output.region])?;
        let blocks = context.keep_blocks(self, &reader, blocks)?;
        context.read(self, &recent.tables, &reader)?;
        if recorded && recent.shape.order == OrderOf::Communicator {
            shared.count_otherwise(CallSeries::Recorded);
            shared.check()?;
        }
        let fingerprint = call.fingerprint(recent.fingerprint);
        let awaited = match buffers.copies_back() {
            _ if !call.plan.keeps_to_itself(call.shares()) => Awaited::Guests,
            true => Awaited::LateWriters,
            false => Awaited::Nobody,
        };
        Ok(Ready { recorded, buffers, blocks, fingerprint, awaited })
    }

    /// Numbers a launch, 0 for one that is recorded. After all that may be refused: the peers count on a launch that has a
    /// number.
    pub(super) fn number(
        &self,
        shared: &Shared,
        recent: &Recent,
        call: &Call<'_>,
        recorded: bool,
    ) -> u64 {
        if !recorded {
            return self.count(shared, recent, call);
        }
        let context = &recent.context;
        shared.log().record_on(context.stream);
        context.record();
        context.recorded_element.store(call.dtype.size() as u64, Ordering::Relaxed);
        0
    }

    /// The parameter of the kernel of a launch.
    pub(super) fn kernel_parameter(
        &self,
        shared: &Shared,
        recent: &Recent,
        ready: &Ready,
        number: u64,
    ) -> Launch {
        let per_launch = PerLaunch {
            input: ready.buffers.input,
            output: ready.buffers.output,
            fingerprint: ready.fingerprint,
            number,
            awaited: ready.awaited,
            blocks: ready.blocks.clone(),
        };
        let sized = (&*recent.tables, recent.shape.sizes);
        recent.context.kernel_parameter(shared, self, &recent.compiled, sized, &per_launch)
    }

    /// Follows a launch by the event that was put behind it, or takes its number back, if it is in no stream; what became of it.
    pub(super) fn settle(
        &self,
        shared: &Shared,
        recent: &Recent,
        number: u64,
        behind: Option<Behind>,
        launched: Result<(), ExecutorError>,
    ) -> Result<(), ExecutorError> {
        let context = &recent.context;
        if number == 0 {
            // It may be replayed at once.
            if let Some(proxy) = context.queue.as_ref().and(self.proxy.get()) {
                proxy.ring();
            }
            return launched;
        }
        if let Some(behind) = behind {
            // Also behind a kernel whose copies failed.
            let followed = behind.map(|behind| context.follow(behind, number));
            launched.and(followed).inspect_err(|error| shared.fail(error.clone()))?;
        } else if let Err(error) = launched {
            context.given.store(number - 1, Ordering::Release);
            shared.fail(error.clone());
            return Err(error);
        }
        if let Some(proxy) = context.queue.as_ref().and(self.proxy.get()) {
            proxy.ring();
        }
        Ok(())
    }

    /// Puts the kernel of a launch into a stream, with the copies before it.
    ///
    /// # Errors
    /// What the driver says. The kernel is not in the stream then.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    unsafe fn enqueue(
        &self,
        recent: &Recent,
        launch: &Launch,
        (buffers, stream): (&Buffers, &Arc<dyn Stream>),
    ) -> Result<(), ExecutorError> {
        buffers.copy_in(&**stream)?;
        let arguments = [std::ptr::from_ref(launch).cast::<c_void>()];
        let shape = self.shape(&recent.plan, recent.compiled.blocks);
        // SAFETY: the kernel's one parameter is a `Launch`; what it points to belongs to the context and to the call, whose
        // buffers are valid until it is complete by the caller's contract.
        unsafe { recent.compiled.kernel.launch(&**stream, shape, &arguments)? };
        Ok(())
    }

    /// Puts what follows the kernel of a launch into its stream: copies, and the division of an average.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    pub(super) unsafe fn finish_call(
        &self,
        shared: &Shared,
        recent: &Recent,
        call: &Call<'_>,
        (buffers, stream): (&Buffers, &Arc<dyn Stream>),
    ) -> Result<(), ExecutorError> {
        buffers.copy_out(&**stream)?;
        let in_place = call.input == call.output.cast_const();
        let divides = recent.plan.averages(shared.rank, in_place);
        let Some(divide) = recent.compiled.divide.as_ref().filter(|_| divides) else {
            return Ok(());
        };
        let output = call.output.expose_provenance() as u64;
        let elements = call.output_bytes / call.dtype.size() as u64;
        let arguments = [
            (&raw const output).cast::<c_void>(),
            (&raw const elements).cast(),
            (&raw const shared.world).cast(),
        ];
        let shape = self.shape(&recent.plan, blocks_over(elements));
        // SAFETY: the parameters are the output, its elements, and the divisor; the output is the call's.
        unsafe { divide.launch(&**stream, shape, &arguments)? };
        Ok(())
    }

    /// Gives a call its number among the context's, and says in the control page what it is, for the messages of peers.
    fn count(&self, shared: &Shared, recent: &Recent, call: &Call<'_>) -> u64 {
        let number = recent.context.next();
        let shown = Shown {
            fingerprint: call.fingerprint(recent.fingerprint),
            bytes: (call.input_bytes, call.output_bytes),
            call_type: CallType::new(call.dtype, call.op),
            name: recent.plan.name(),
            order: recent.shape.order,
        };
        let mut log = shared.log();
        let turn = self.show(shared, &mut log, recent.context.stream, &shown);
        let element = call.dtype.size() as u64;
        recent.context.note(Called { number, element, turn });
        // The caller has the context's turn, so nobody else counts.
        recent.context.given.store(number, Ordering::Release);
        number
    }
}
