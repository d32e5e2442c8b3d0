//! Groups of calls: gathered first, launched together, so that none waits for another that comes later.

use super::in_turn::{InTurn, Step, finish};
use super::pairs::Formed;
use super::prepared::Ready;
use super::queued::Queued;
use super::streams::Streams;
use super::task_set::{Expected, TaskSet};
use super::transfers::{Direction, Purpose, Transfer, TransferLaunch, Way};
use super::uneven::{Means, Uneven};
use super::{Collectives, Request, argument, check_address, length};
use crate::error::ExecutorError;
use crate::executor::own_error;
use antiphon_hal::{Effort, HalError, Stream, Task, TaskError, TaskState, kernels};
use antiphon_plan::counts::{Counts, Extent};
use antiphon_types::DataType;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Calls that are launched together.
///
/// Collectives of one communicator run in the order in which they were gathered. Transfers run beside them and beside each
/// other, except that those from one rank to another come in order; so no order of sends and receives is a deadlock. Several
/// communicators may take part: one thread can drive many ranks, and a rank can send to itself. A rank may gather calls that
/// others make one by one, with the exceptions below.
///
/// **Code.** A call that registered code serves runs when the group ends, after the calls of its communicator before it; those
/// behind it wait for it. Each communicator with such calls has a thread of its own, on which the code runs. On a stream, what
/// code launches comes after all else that the group has on that stream; so there a rank's peers must gather the same calls,
/// and ranks that one thread drives need streams of their own.
///
/// **Several streams.** A group with calls on several streams of one device is as if each call were on all of these: it begins
/// when what is before it in all of them is over, and what follows in any of them waits for all of it. Calls without a stream
/// have no part in that.
///
/// **Devices.** The calls are put into streams, and one thread may drive ranks of several devices. Ranks that share a device
/// and make the same call are one kernel, except in calls after one that code serves. A rank's transfers run beside each other
/// in streams of their own, which branch off from the callers' streams and come back to them. A device may run them one after
/// the other, so a rank's peers must gather the same calls.
///
/// A group that is dropped without [`end`](Self::end) makes none of its calls.
#[derive(Debug, Default)]
pub struct Group {
    calls: Vec<Gathered>,
    /// For each call whose blocks have lengths of their own, what makes it.
    uneven: Vec<(Collectives, Means)>,
}

#[derive(Debug)]
pub(super) struct Gathered {
    pub on: Collectives,
    pub work: Work,
    pub stream: Option<Arc<dyn Stream>>,
}

#[derive(Debug)]
pub(super) enum Work {
    Step(Step),
    Transfer(Transfer),
}

/// Sends, or receives, in the order of their calls.
type Sides<'a> = VecDeque<(&'a Gathered, &'a Transfer)>;

/// A launch's queue.
type Queue = VecDeque<Arc<dyn Task>>;

impl Group {
    /// A group without calls.
    pub fn new() -> Self {
        Group::default()
    }

    /// Whether nothing was gathered.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Gathers a call, as [`Collectives::call`] makes it. Without a stream it is complete when [`end`](Self::end) returns.
    ///
    /// # Errors
    /// What is wrong with the call, which then is not part of the group.
    ///
    /// # Safety
    /// As [`Collectives::call`]; a call begins when the group ends.
    pub unsafe fn call(
        &mut self,
        on: &Collectives,
        request: &Request,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let step = || match request.factor {
            None => Ok(match on.prepare(request)? {
                Ready::Launch(call) => Step::Launch(call),
                Ready::Code(coded) => Step::Code(coded),
            }),
            Some(_) => {
                let (scaling, call) = on.prepare_scaled(request, stream)?;
                Ok(Step::Scaled(scaling, call))
            }
        };
        let gathered = step().and_then(|step| self.gather(on, Work::Step(step), stream));
        gathered.map_err(|error| on.names(error))
    }

    /// Gathers a call, as [`Collectives::all_to_all_v`] makes it.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    ///
    /// # Safety
    /// As [`call`](Self::call).
    pub unsafe fn all_to_all_v(
        &mut self,
        on: &Collectives,
        buffers: (*const u8, *mut u8),
        sizes: (u64, u64),
        Counts { send, receive }: Counts<'_>,
        dtype: DataType,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let counts = Counts { send, receive };
        let prepared = on.prepare_all_to_all_v((buffers, sizes), counts, dtype);
        let uneven = prepared.map(|uneven| match uneven {
            Uneven::Launch(call) => {
                Uneven::Launch(call.with_blocks(send.to_vec(), receive.to_vec()))
            }
            other => other,
        });
        let gathered = uneven.and_then(|uneven| self.uneven(on, uneven, stream));
        gathered.map_err(|error| on.names(error))
    }

    /// Gathers a call, as [`Collectives::all_gather_v`] makes it.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    ///
    /// # Safety
    /// As [`call`](Self::call).
    pub unsafe fn all_gather_v(
        &mut self,
        on: &Collectives,
        buffers: (*const u8, *mut u8),
        sizes: (u64, u64),
        receive: &[Extent],
        dtype: DataType,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let uneven = on.prepare_all_gather_v((buffers, sizes), receive, dtype);
        let gathered = uneven.and_then(|uneven| self.uneven(on, uneven, stream));
        gathered.map_err(|error| on.names(error))
    }

    /// Gathers a call with blocks of lengths of their own.
    pub(super) fn uneven(
        &mut self,
        on: &Collectives,
        uneven: Uneven,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let means = match uneven {
            Uneven::Launch(call) => {
                return self.gather(on, Work::Step(Step::Launch(call)), stream);
            }
            Uneven::Code(coded) => {
                let means = Means::Code(Arc::clone(&coded.code));
                self.gather(on, Work::Step(Step::Code(coded)), stream)?;
                means
            }
            Uneven::Parts(parts) => {
                self.parts(on, parts, stream)?;
                Means::Transfers
            }
        };
        self.uneven.push((on.clone(), means));
        Ok(())
    }

    /// Gathers the transfers that a call comes to: all, or none.
    fn parts(
        &mut self,
        on: &Collectives,
        parts: Vec<Transfer>,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let known = self.calls.len();
        let gathered = parts.into_iter().try_for_each(|part| self.transfer(on, part, stream));
        gathered.inspect_err(|_| self.calls.truncate(known))
    }

    /// Gathers a transfer, as [`Collectives::send`] makes it, or one to this rank itself, which a
    /// [`receive`](Self::receive) of the group takes.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    ///
    /// # Safety
    /// As [`call`](Self::call).
    pub unsafe fn send(
        &mut self,
        on: &Collectives,
        input: *const u8,
        count: u64,
        dtype: DataType,
        peer: u32,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let gathered = self.transfer(on, Transfer::send(input, count, dtype, peer), stream);
        gathered.map_err(|error| on.names(error))
    }

    /// Gathers a transfer, as [`Collectives::receive`] makes it.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    ///
    /// # Safety
    /// As [`call`](Self::call).
    pub unsafe fn receive(
        &mut self,
        on: &Collectives,
        output: *mut u8,
        count: u64,
        dtype: DataType,
        peer: u32,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let gathered = self.transfer(on, Transfer::receive(output, count, dtype, peer), stream);
        gathered.map_err(|error| on.names(error))
    }

    pub(super) fn transfer(
        &mut self,
        on: &Collectives,
        transfer: Transfer,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let Transfer { way: Way { peer, direction, .. }, at, count, dtype, .. } = transfer;
        let world = on.communicator().world();
        if peer >= world {
            let saw = format!("rank {peer} of {world}");
            return Err(argument("use a peer", saw, "ranks of the communicator"));
        }
        // Checked before anything of the group is launched, since a group is launched whole or not at all. It looks at any two
        // ranks, not only at this peer, so that all ranks find the same, also those that have no such peer.
        if on.on_device()
            && peer != on.communicator().rank()
            && let Some(saw) = on.communicator().shared.neighbours.refusal()
        {
            return Err(ExecutorError::Apart {
                saw: format!("a transfer in a communicator of {saw}"),
            });
        }
        let bytes = length(count, dtype)?;
        let which = match direction {
            Direction::Out => "a send buffer",
            Direction::In => "a receive buffer",
        };
        check_address(at, bytes, which)?;
        if bytes > 0 && !at.addr().is_multiple_of(dtype.size()) {
            let saw = format!("address {:#x} for {dtype} elements", at.addr());
            let allowed = "addresses that are multiples of the element size";
            return Err(argument("use a buffer", saw, allowed));
        }
        self.gather(on, Work::Transfer(transfer), stream)
    }

    fn gather(
        &mut self,
        on: &Collectives,
        work: Work,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        // What is refused is refused now: a group is launched whole or not at all.
        if let Some(stream) = stream {
            on.communicator().shared.takes(&**stream)?;
        }
        match &work {
            Work::Step(Step::Launch(call) | Step::Scaled(_, call)) => {
                on.executor().check(&call.call())?;
            }
            Work::Step(Step::Code(coded)) => coded.check(on)?,
            // Checked by its caller.
            Work::Transfer(_) => {}
        }
        self.calls.push(Gathered { on: on.clone(), work, stream: stream.cloned() });
        Ok(())
    }

    /// Launches what was gathered. Calls without a stream are complete on return; those on a stream go on by themselves. On
    /// devices the first transfer from one rank to another waits until both ranks have formed their ends of its queue; the peer
    /// does that without making a call.
    ///
    /// # Errors
    /// Nothing is launched if the group has sends to this rank itself that none of its receives takes, or streams of a device
    /// of which some are being recorded into a graph and some are not.
    ///
    /// Streams of a device that are recorded into several graphs: the driver refuses these, and thereby ends their recordings.
    ///
    /// Otherwise the first failure of a launch, after the others have ended. A launch on a stream that fails later is reported
    /// by [`Executor::synchronize`](crate::Executor::synchronize) on that stream.
    pub fn end(self) -> Result<(), ExecutorError> {
        let (mut launches, mut queued) = (Launches::default(), Queued::default());
        let (kept, streams) = (self.kept()?, Streams::of(&self.calls)?);
        streams.iter().try_for_each(Streams::meet)?;
        self.uneven.iter().for_each(|(on, means)| on.count(means));
        for Kept { on, copy, stream } in kept {
            if on.on_device() {
                queued.take_copy(on, copy, stream);
            } else {
                launches.set(stream).add(Queue::from([arc(copy)]));
            }
        }
        for call in self.calls.into_iter().filter(|call| !call.is_kept()) {
            if call.on.on_device() && !launches.has_turn(&call) {
                queued.take(call);
            } else {
                launches.take(call);
            }
        }
        let queued = queued.launch();
        let here = launches.run();
        // Behind what code has launched, too.
        let met = streams.iter().try_for_each(Streams::meet);
        here.and(met).and(queued.wait())
    }

    /// The copies that transfers from a rank to itself come to.
    fn kept(&self) -> Result<Vec<Kept<'_>>, ExecutorError> {
        let mut own: BTreeMap<(usize, Purpose), [Sides<'_>; 2]> = BTreeMap::new();
        for call in self.calls.iter().filter(|call| call.is_kept()) {
            if let Work::Transfer(transfer) = &call.work {
                let Way { direction, purpose, .. } = transfer.way;
                let own = own.entry((call.on.identity(), purpose)).or_default();
                own[direction as usize].push_back((call, transfer));
            }
        }
        let mut kept = Vec::new();
        for [sends, receives] in own.into_values() {
            let unequal = |saw: String| {
                argument("send to this rank itself", saw, "equal sends and receives in one group")
            };
            if sends.len() != receives.len() {
                let (sends, receives) = (sends.len(), receives.len());
                return Err(unequal(format!("{sends} sends and {receives} receives")));
            }
            for ((from, send), (to, receive)) in sends.into_iter().zip(receives) {
                let what = |transfer: &Transfer| (transfer.count, transfer.dtype);
                if what(send) != what(receive) {
                    let [sent, received] = [send, receive]
                        .map(|transfer| format!("{} of {}", transfer.count, transfer.dtype.name()));
                    return Err(unequal(format!("{sent} for {received}")));
                }
                let bytes = send.count as usize * send.dtype.size();
                if from.stream.is_some() != to.stream.is_some() {
                    return Err(unequal("one of them without a stream".to_owned()));
                }
                let copy = Copy { source: send.at, destination: receive.at, bytes };
                kept.push(Kept { on: &to.on, copy, stream: to.stream.as_ref() });
            }
        }
        Ok(kept)
    }
}

impl Gathered {
    /// Whether it is a transfer from a rank to itself.
    fn is_kept(&self) -> bool {
        let own = self.on.communicator().rank();
        matches!(&self.work, Work::Transfer(transfer) if transfer.way.peer == own)
    }
}

impl Collectives {
    /// What tells communicators of this process apart.
    fn identity(&self) -> usize {
        Arc::as_ptr(&self.communicator().shared).addr()
    }
}

/// A transfer from a rank to itself, and where it belongs.
struct Kept<'a> {
    on: &'a Collectives,
    copy: Copy,
    stream: Option<&'a Arc<dyn Stream>>,
}

/// The copy that it comes to.
pub(super) struct Copy {
    pub source: *const u8,
    pub destination: *mut u8,
    pub bytes: usize,
}

// SAFETY: the buffers belong to the calls until they are complete (the contract of `Group::send` and `Group::receive`),
// whichever thread copies, and one does.
unsafe impl Send for Copy {}
// SAFETY: as above.
unsafe impl Sync for Copy {}

impl Task for Copy {
    fn poll(&self, _effort: Effort) -> TaskState {
        if self.bytes > 0 {
            // SAFETY: the send and the receive buffer are as long as both calls say.
            unsafe { kernels::copy(self.destination, self.source, self.bytes) };
        }
        TaskState::Done(Ok(()))
    }
}

/// The transfers of a group that go through one queue, in order.
struct Transfers {
    on: Collectives,
    way: Way,
    /// The [`TaskSet`]s that expect them.
    sets: Vec<Expected>,
    /// Each with the place of the set that drives it.
    all: Vec<(usize, Transfer)>,
}

impl Transfers {
    fn new(on: Collectives, way: Way) -> Self {
        Transfers { on, way, sets: Vec::new(), all: Vec::new() }
    }

    fn push(&mut self, set: &Arc<TaskSet>, transfer: Transfer) {
        let known = self.sets.iter().position(|known| known.is_for(set));
        let at = known.unwrap_or_else(|| {
            // Announced before any of it begins, so that the set is not over before this queue arrives.
            self.sets.push(set.expect());
            self.sets.len() - 1
        });
        self.all.push((at, transfer));
    }

    /// Hands the transfers to the [`TaskSet`]s, which expect them, once their pair is formed or could not be.
    fn begin(self) {
        let communicator = self.on.communicator().clone();
        communicator.with_pair(self.way, move |formed| self.launch(formed));
    }

    fn launch(self, formed: &Formed) {
        let Transfers { on, sets, all, .. } = self;
        let launch = |transfer| {
            let pair = formed.as_ref().map_err(Clone::clone)?;
            TransferLaunch::new(&on, pair, transfer).map(arc)
        };
        let mut queues: Vec<(Queue, Option<TaskError>)> = Vec::new();
        queues.resize_with(sets.len(), Default::default);
        let mut error: Option<TaskError> = None;
        for (at, transfer) in &all {
            let (queue, failure) = &mut queues[*at];
            // Launches are numbered in the order in which transfers were gathered, and nothing is launched behind one that could
            // not be. A set fails only if a transfer of its own was not launched.
            if error.is_none() {
                match launch(transfer) {
                    Ok(launch) => queue.push_back(launch),
                    Err(failed) => error = Some(Arc::new(on.names(failed))),
                }
            }
            failure.clone_from(&error);
        }
        for (set, (queue, failure)) in sets.into_iter().zip(queues) {
            set.arrive(queue, failure);
        }
    }
}

/// The collectives of a communicator on a stream.
struct Line {
    set: Arc<TaskSet>,
    queue: Queue,
}

/// What a group launches, by stream.
#[derive(Default)]
struct Launches {
    /// What is complete when the group ends.
    here: Arc<TaskSet>,
    streams: BTreeMap<u64, (Arc<dyn Stream>, Arc<TaskSet>)>,
    /// By communicator and stream.
    collectives: BTreeMap<(usize, Option<u64>), Line>,
    transfers: BTreeMap<(usize, Way), Transfers>,
    /// By communicator, from the first call on that code serves.
    in_turn: BTreeMap<usize, InTurn>,
    error: Option<ExecutorError>,
}

impl Launches {
    /// What goes on together on a stream.
    fn set(&mut self, stream: Option<&Arc<dyn Stream>>) -> Arc<TaskSet> {
        let Some(stream) = stream else { return Arc::clone(&self.here) };
        let known = self.streams.entry(stream.id());
        Arc::clone(&known.or_insert_with(|| (Arc::clone(stream), Arc::default())).1)
    }

    /// Whether a call is one of those that are made one after the other, or becomes the first of them.
    fn has_turn(&self, Gathered { on, work, .. }: &Gathered) -> bool {
        match work {
            Work::Step(Step::Code(_)) => true,
            Work::Step(_) => self.in_turn.contains_key(&on.identity()),
            Work::Transfer(_) => false,
        }
    }

    /// Takes a call: numbers a collective, puts a transfer into its pair's queue, or adds the call to those that are made one
    /// after the other. Of calls on devices, only the last kind comes here.
    fn take(&mut self, Gathered { on, work, stream }: Gathered) {
        let id = stream.as_ref().map(|stream| stream.id());
        let step = match work {
            Work::Transfer(transfer) => {
                let way = transfer.way;
                let set = self.set(stream.as_ref());
                let transfers = self.transfers.entry((on.identity(), way));
                transfers.or_insert_with(|| Transfers::new(on, way)).push(&set, transfer);
                return;
            }
            Work::Step(step) => step,
        };
        if let Some(behind) = self.in_turn.get_mut(&on.identity()) {
            return behind.push(step, stream);
        }
        let whose = on.communicator().shared.whose.clone();
        let launch = match step {
            Step::Launch(call) => on.executor().queued(&call.call(), id).map(arc),
            Step::Scaled(scaling, call) => on.scaled_launch(scaling, &call, id),
            code @ Step::Code(_) => {
                let identity = on.identity();
                let first = self.in_turn.entry(identity).or_insert_with(|| InTurn::new(on));
                return first.push(code, stream);
            }
        };
        match launch {
            Ok(launch) => {
                let set = self.set(stream.as_ref());
                let line = self.collectives.entry((on.identity(), id));
                let new = || Line { set, queue: Queue::new() };
                line.or_insert_with(new).queue.push_back(launch);
            }
            Err(error) => self.error = self.error.take().or(Some(whose.names(error))),
        }
    }

    /// Launches everything, and drives the calls without a stream until they are complete.
    fn run(mut self) -> Result<(), ExecutorError> {
        for Line { set, queue } in std::mem::take(&mut self.collectives).into_values() {
            set.add(queue);
        }
        for (stream, set) in self.streams.values() {
            let task: Arc<dyn Task> = Arc::clone(set) as Arc<dyn Task>;
            if let Err(error) = stream.submit(&task, Effort::Try) {
                self.error = self.error.take().or(Some(own_error(error)));
            }
        }
        std::mem::take(&mut self.transfers).into_values().for_each(Transfers::begin);
        let in_turn = std::mem::take(&mut self.in_turn);
        let (error, ended) = std::thread::scope(|scope| {
            // Behind what was put into streams above.
            let started = in_turn.into_values().map(|calls| calls.start(scope)).collect();
            let error = loop {
                if let TaskState::Done(outcome) = self.here.poll(Effort::Wait) {
                    break outcome.err();
                }
            };
            (error, finish(started))
        });
        let error = error.map(|error| own_error(HalError::Task(error)));
        self.error.or(error).map_or(ended, Err)
    }
}

fn arc<T: Task + 'static>(task: T) -> Arc<dyn Task> {
    Arc::new(task)
}
