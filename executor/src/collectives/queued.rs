//! Groups on devices: their calls are put into streams. The host waits only to form pairs of ranks, and for calls without a stream.
//!
//! Collectives of a communicator follow each other in its ranks' streams; ranks of this process that make the same call on one
//! device are one kernel ([`Executor::execute_together`]). A pair of ranks has a stream of its own on each side, in which its
//! transfers follow each other: it branches off from the callers' streams, and these wait for it. So a rank's transfers run
//! beside each other. Where a driver runs them one after the other all the same, that ends as well, as all ranks put them into
//! streams in one order.

use super::Collectives;
use super::group::{Copy, Gathered, Work};
use super::in_turn::Step;
use super::pairs::Formed;
use super::prepared::Prepared;
use super::scaled::Scaling;
use super::transfers::{Direction, Purpose, Told, Transfer, Way};
use crate::error::ExecutorError;
use crate::executor::RankCall;
use crate::executor::{Executor, OrderOf};
use crate::sync::{lock, shielded};
use antiphon_hal::{Event, Stream};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// A collective of a rank, in the stream it belongs to.
struct Ranked {
    on: Collectives,
    scaling: Option<Scaling>,
    call: Prepared,
    stream: Arc<dyn Stream>,
}

/// A transfer and its stream; without a stream the group's end waits for it.
struct Sent {
    transfer: Transfer,
    stream: Option<Arc<dyn Stream>>,
}

/// One rank's side of a queue of transfers.
struct Side {
    on: Collectives,
    way: Way,
    sent: Vec<Sent>,
}

/// Which queue of transfers it is, in an order that is the same on all ranks: the communicator, the ranks from which and to
/// which, and what for.
type Queue = (u64, u32, u32, Purpose);

impl Side {
    fn queue(&self) -> Queue {
        let own = self.on.communicator().rank();
        let Way { peer, direction, purpose } = self.way;
        let (from, to) = if direction == Direction::Out { (own, peer) } else { (peer, own) };
        (self.on.communicator().shared.identity, from, to, purpose)
    }
}

/// A stream that the group's end waits for.
struct Wait {
    executor: Executor,
    stream: Arc<dyn Stream>,
    /// Of a pair's stream, its transfers.
    transfers: Option<Told>,
}

/// What a group puts into streams of devices.
#[derive(Default)]
pub(super) struct Queued {
    /// By communicator and rank, in the order of the calls.
    collectives: BTreeMap<u64, BTreeMap<u32, Vec<Ranked>>>,
    /// From ranks to themselves.
    copies: Vec<Copied>,
    sides: Vec<Side>,
    waits: Vec<Wait>,
    error: Option<ExecutorError>,
}

/// A copy from a rank to itself and its stream; without a stream the group's end waits for it.
struct Copied {
    on: Collectives,
    copy: Copy,
    stream: Option<Arc<dyn Stream>>,
}

impl Queued {
    /// Takes a call of the group; transfers from a rank to itself are not among them.
    pub fn take(&mut self, Gathered { on, work, stream }: Gathered) {
        let (scaling, call) = match work {
            Work::Step(Step::Launch(call)) => (None, call),
            Work::Step(Step::Scaled(scaling, call)) => (Some(scaling), call),
            Work::Step(Step::Code(_)) => unreachable!("code has its turn on another thread"),
            Work::Transfer(transfer) => return self.take_transfer(on, transfer, stream),
        };
        let stream = match stream.map_or_else(|| self.own_stream(&on), Ok) {
            Ok(stream) => stream,
            Err(error) => return self.failed(&on, error),
        };
        let (identity, rank) = (on.communicator().shared.identity, on.communicator().rank());
        let ranks = self.collectives.entry(identity).or_default();
        ranks.entry(rank).or_default().push(Ranked { on, scaling, call, stream });
    }

    fn take_transfer(
        &mut self,
        on: Collectives,
        transfer: Transfer,
        stream: Option<Arc<dyn Stream>>,
    ) {
        let (own, way) = (on.communicator().rank(), transfer.way);
        let identity = on.communicator().shared.identity;
        let of = |side: &&mut Side| {
            let communicator = side.on.communicator();
            (communicator.shared.identity, communicator.rank(), side.way) == (identity, own, way)
        };
        let sent = Sent { transfer, stream };
        match self.sides.iter_mut().find(of) {
            Some(side) => side.sent.push(sent),
            None => self.sides.push(Side { on, way, sent: vec![sent] }),
        }
    }

    /// Takes a copy from a rank to itself.
    pub fn take_copy(&mut self, on: &Collectives, copy: Copy, stream: Option<&Arc<dyn Stream>>) {
        if copy.bytes > 0 {
            self.copies.push(Copied { on: on.clone(), copy, stream: stream.cloned() });
        }
    }

    /// Puts a copy from a rank to itself into its stream.
    fn copy(&mut self, Copied { on, copy, stream }: Copied) {
        let Copy { source, destination, bytes } = copy;
        let stream = stream.map_or_else(|| self.own_stream(&on), Ok);
        let copied = stream.and_then(|stream| {
            // SAFETY: both buffers are the calls' until they are complete, and apart, as the contract of `Group::send` and
            // `Group::receive` has it.
            let _ = unsafe { stream.copy(destination, source, bytes as u64)? };
            on.note_copy(&*stream)
        });
        if let Err(error) = copied {
            self.failed(&on, error);
        }
    }

    /// Keeps the first error, as its communicator's caller gets it.
    fn failed(&mut self, on: &Collectives, error: ExecutorError) {
        self.error.get_or_insert_with(|| on.names(error));
    }

    /// The stream of calls without one, for which the group's end waits.
    fn own_stream(&mut self, on: &Collectives) -> Result<Arc<dyn Stream>, ExecutorError> {
        let stream = on.own_stream()?;
        if self.waits.iter().all(|known| known.stream.id() != stream.id()) {
            let (executor, stream) = (on.executor().clone(), Arc::clone(&stream));
            self.waits.push(Wait { executor, stream, transfers: None });
        }
        Ok(stream)
    }

    /// Puts everything into streams. What is left to do is to wait for calls without one.
    pub fn launch(mut self) -> Self {
        let collectives = std::mem::take(&mut self.collectives);
        for ranks in collectives.into_values() {
            let ranks: Vec<_> = ranks.into_values().collect();
            self.rounds(&ranks);
        }
        // Behind the collectives, as all transfers.
        std::mem::take(&mut self.copies).into_iter().for_each(|copied| self.copy(copied));
        let sides = std::mem::take(&mut self.sides);
        self.transfers(&sides);
        self
    }

    /// Launches the collectives of the ranks of one communicator: the first of each together, then the second of each.
    fn rounds(&mut self, ranks: &[Vec<Ranked>]) {
        let most = ranks.iter().map(Vec::len).max().unwrap_or(0);
        for round in 0..most {
            let mut calls: Vec<RankCall<'_>> = Vec::with_capacity(ranks.len());
            for Ranked { on, scaling, call, stream } in
                ranks.iter().filter_map(|calls| calls.get(round))
            {
                let call = call.call();
                if let Some(scaling) = scaling {
                    // SAFETY: who gathered the calls vouches for their buffers until they are complete.
                    if let Err(error) = unsafe { scaling.enqueue(on, &call, stream) } {
                        self.failed(on, error);
                        continue;
                    }
                }
                calls.push(RankCall { executor: on.executor(), call, stream });
            }
            // SAFETY: as above.
            let launched = unsafe { Executor::execute_together_as(OrderOf::Communicator, &calls) };
            if let (Err(error), Some(first)) =
                (launched, ranks.first().and_then(|calls| calls.first()))
            {
                self.failed(&first.on, error);
            }
        }
    }

    /// Launches transfers, each queue in streams of its own. What cannot be launched is kept as an error, and the others go on:
    /// their peers are in them.
    fn transfers(&mut self, sides: &[Side]) {
        let mut lines = Vec::with_capacity(sides.len());
        for (side, formed) in sides.iter().zip(form_all(sides)) {
            match formed.and_then(|pair| self.line(side, pair)) {
                Ok(line) => lines.push(line),
                Err(error) => self.failed(&side.on, error),
            }
        }
        lines.sort_by_key(|line| line.queue);
        // All branch off before any comes back, so that none waits for another.
        let mut branches = Branches::default();
        lines.retain(|line| {
            let branched = branches.branch(line);
            branched.map_err(|error| self.failed(&line.side.on, line.told.error(error))).is_ok()
        });
        // If something panics, the group's end waits for all of them.
        let others = self.waits.len();
        self.waits.extend(lines.iter().map(Line::wait));
        for same in lines.chunk_by(|one, other| one.queue == other.queue) {
            let most = same.iter().map(|line| line.calls.len()).max().unwrap_or(0);
            for round in 0..most {
                let calls: Vec<RankCall<'_>> = same
                    .iter()
                    .filter_map(|line| Some((line, line.calls.get(round)?)))
                    .map(|(line, call)| RankCall {
                        executor: line.pair.executor(),
                        call: call.call(),
                        stream: &line.stream,
                    })
                    .collect();
                // SAFETY: as for collectives.
                let launched =
                    unsafe { Executor::execute_together_as(OrderOf::Communicator, &calls) };
                if let Err(error) = launched {
                    // The error names one of the transfers that failed together.
                    let one = same.iter().find_map(|line| Some((line, line.side.sent.get(round)?)));
                    let told = one.map(|(line, sent)| sent.transfer.told(&line.side.on));
                    let error = told.as_ref().unwrap_or(&same[0].told).error(error);
                    self.failed(&same[0].side.on, error);
                }
            }
        }
        for (line, wait) in lines.iter().zip(self.waits.split_off(others)) {
            let joined = line.join();
            // No caller's stream waits for these, so the group's end does: the buffers are in use until then.
            if joined.is_err() || line.side.sent.iter().any(|sent| sent.stream.is_none()) {
                self.waits.push(wait);
            }
            if let Err(error) = joined {
                self.failed(&line.side.on, error);
            }
        }
    }

    /// The transfers of a side, ready to be launched, up to the first that cannot be.
    fn line<'a>(&mut self, side: &'a Side, pair: Collectives) -> Result<Line<'a>, ExecutorError> {
        let told = Told::of_all(&side.on, side.way, side.sent.iter().map(|sent| &sent.transfer));
        let stream = pair.own_stream().map_err(|error| told.error(error))?;
        let mut calls = Vec::with_capacity(side.sent.len());
        for sent in &side.sent {
            match sent.transfer.prepare(&side.on, &pair) {
                Ok(call) => calls.push(call),
                Err(error) => {
                    self.failed(&side.on, error);
                    break;
                }
            }
        }
        Ok(Line { queue: side.queue(), pair, calls, stream, side, told })
    }

    /// Waits for calls without a stream.
    ///
    /// # Errors
    /// The first failure.
    pub fn wait(mut self) -> Result<(), ExecutorError> {
        let mut error = self.error.take();
        // Taken one by one, the first first: if one panics, those behind it are still waited for.
        self.waits.reverse();
        while let Some(Wait { executor, stream, transfers }) = self.waits.pop() {
            let failed = executor.synchronize(&stream).err();
            error = error.or(failed.map(|error| match transfers {
                Some(told) => told.named(error),
                None => error,
            }));
        }
        error.map_or(Ok(()), Err)
    }
}

impl Drop for Queued {
    /// After a panic, too, as code that is called may, the caller has its buffers back.
    fn drop(&mut self) {
        for Wait { executor, stream, .. } in &self.waits {
            if let Err(error) = executor.synchronize(stream) {
                shielded(|| log::warn!("calls of a group that panicked have failed: {error}"));
            }
        }
    }
}

/// A queue of transfers, ready to be launched.
struct Line<'a> {
    queue: Queue,
    pair: Collectives,
    calls: Vec<Prepared>,
    stream: Arc<dyn Stream>,
    side: &'a Side,
    told: Told,
}

impl Line<'_> {
    fn wait(&self) -> Wait {
        let (executor, stream) = (self.pair.executor().clone(), Arc::clone(&self.stream));
        Wait { executor, stream, transfers: Some(self.told.clone()) }
    }

    /// Has the callers' streams wait for the transfers.
    fn join(&self) -> Result<(), ExecutorError> {
        let event = self.pair.communicator().device().event()?;
        self.stream.record(&*event)?;
        self.callers().into_iter().try_for_each(|stream| Ok(stream.wait(&*event)?))
    }

    /// The callers' streams, each once.
    fn callers(&self) -> Vec<&Arc<dyn Stream>> {
        let mut streams: Vec<&Arc<dyn Stream>> = Vec::new();
        for stream in self.side.sent.iter().filter_map(|sent| sent.stream.as_ref()) {
            if streams.iter().all(|known| known.id() != stream.id()) {
                streams.push(stream);
            }
        }
        streams
    }
}

/// The pairs for queues of transfers. Those not formed yet are formed side by side, since one may wait for what another has to do.
fn form_all(sides: &[Side]) -> Vec<Formed> {
    let pair = |side: &Side| side.on.communicator().pair(side.way);
    let begun: Vec<_> = sides.iter().map(pair).collect();
    begun.into_iter().map(|formed| formed()).collect()
}

/// By caller's stream, the event for what was in it when transfers branched off.
#[derive(Default)]
struct Branches(BTreeMap<u64, Arc<dyn Event>>);

impl Branches {
    /// Lets the stream of a queue wait for what is in its callers' streams.
    fn branch(&mut self, line: &Line<'_>) -> Result<(), ExecutorError> {
        for stream in line.callers() {
            let event = match self.0.entry(stream.id()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let event = line.pair.communicator().device().event()?;
                    stream.record(&*event)?;
                    new.insert(event)
                }
            };
            line.stream.wait(&**event)?;
        }
        Ok(())
    }
}

impl Collectives {
    /// Remembers that a copy was put into a stream, unless it is part of a graph.
    pub(super) fn note_copy(&self, stream: &dyn Stream) -> Result<(), ExecutorError> {
        if stream.is_capturing()? {
            return Ok(());
        }
        let known =
            lock(&self.communicator().shared.queues.copies).get(&stream.id()).map(Arc::clone);
        let event = known.map_or_else(|| self.communicator().device().event(), Ok)?;
        stream.record(&*event)?;
        lock(&self.communicator().shared.queues.copies).insert(stream.id(), event);
        Ok(())
    }

    /// The stream of calls without one, on a device.
    pub(super) fn own_stream(&self) -> Result<Arc<dyn Stream>, ExecutorError> {
        match &self.communicator().shared.gpu {
            Some(gpu) => gpu.own_stream(),
            None => self.communicator().stream(),
        }
    }
}
