//! Transfers between two ranks: each direction of a pair is a communicator of its own, whose launches come in order.

use super::group::Group;
use super::prepared::Prepared;
use super::relay::{Arrival, Arrives, Awaited};
use super::{Collectives, NOWHERE};
use crate::communicator::Communicator;
pub(super) use crate::communicator::{Direction, Purpose, Way};
use crate::error::ExecutorError;
use crate::executor::own_error;
use crate::launch::QueuedLaunch;
use crate::sync::or_panicked;
use antiphon_hal::{Effort, HalError, Stream, Task, TaskState};
use antiphon_plan::counts::Extent;
use antiphon_types::DataType;
use std::sync::Arc;

/// One side of a transfer.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    /// The call that it is, or is part of, as its caller knows it.
    pub what: &'static str,
    /// To or from which rank.
    pub way: Way,
    /// What is read or written.
    pub at: *mut u8,
    /// Elements.
    pub count: u64,
    pub dtype: DataType,
    pub relay: Relay,
}

/// How a transfer of a host hangs together with others of its rank and call.
#[derive(Clone, Debug, Default)]
pub(super) enum Relay {
    /// Not at all.
    #[default]
    None,
    /// Others pass on what it receives.
    From(Arc<Arrives>),
    /// It sends what another receives.
    On(Awaited),
}

// SAFETY: the buffer belongs to the call until it is complete (the contract of `Collectives::send` and the like), whichever
// thread launches it.
unsafe impl Send for Transfer {}

impl Transfer {
    /// How errors on a rank name it.
    pub fn told(&self, on: &Collectives) -> Told {
        Told { what: self.what, ..Told::of(on.communicator(), self.way) }
    }

    /// Checks this side of a transfer, which rank `on` makes on a pair.
    ///
    /// # Errors
    /// What is wrong with it, with the caller's name for the transfer and numbers of ranks. Unless an argument is wrong, it
    /// breaks the pair.
    pub fn prepare(&self, on: &Collectives, pair: &Collectives) -> Result<Prepared, ExecutorError> {
        pair.prepare_transfer(self).map_err(|error| self.unmatched(on, pair, error))
    }

    /// The error of a side that cannot be launched. The peer waits for this side, and would take that of a later transfer for it.
    fn unmatched(
        &self,
        on: &Collectives,
        pair: &Collectives,
        error: ExecutorError,
    ) -> ExecutorError {
        if !matches!(error.cause(), ExecutorError::Argument { .. }) {
            pair.communicator().shared.end(error.clone());
        }
        self.told(on).error(error)
    }
}

/// How errors name a transfer.
#[derive(Clone, Debug)]
pub(super) struct Told {
    what: &'static str,
    on: Communicator,
    way: Way,
}

impl Told {
    /// Names a transfer of which only the queue is known.
    pub fn of(on: &Communicator, way: Way) -> Self {
        let what = match (way.purpose, way.direction) {
            (Purpose::Calls, Direction::Out) => SEND,
            (Purpose::Calls, Direction::In) => RECEIVE,
            (Purpose::Blocks, _) => "a collective",
        };
        Told { what, on: on.clone(), way }
    }

    /// Names a transfer that may be any of several in a queue: by the call that all of them belong to, if it is one.
    pub fn of_all<'t>(
        on: &Collectives,
        way: Way,
        mut transfers: impl Iterator<Item = &'t Transfer>,
    ) -> Self {
        let Some(first) = transfers.next().map(|transfer| transfer.told(on)) else {
            return Told::of(on.communicator(), way);
        };
        let same = transfers.all(|transfer| transfer.told(on).what == first.what);
        if same { first } else { Told::of(on.communicator(), way) }
    }

    /// Gives an error of the pair the caller's name for the transfer and numbers of ranks. If the whole communicator is broken,
    /// its failure takes the error's place, since it says more than what it did to the pair.
    pub fn error(&self, error: ExecutorError) -> ExecutorError {
        let &Told { what, ref on, way: Way { peer, direction, .. } } = self;
        let own = || error.renumbered(&on.pair_names(peer));
        let source = Arc::new(on.broken().unwrap_or_else(own));
        let (rank, sends) = (on.rank(), direction == Direction::Out);
        ExecutorError::Transfer { what, rank, peer, sends, source }
    }
}

impl Told {
    /// The same, as the caller of the transfer gets it.
    pub fn named(&self, error: ExecutorError) -> ExecutorError {
        self.on.shared.whose.names(self.error(error))
    }
}

/// The launch of a transfer.
pub(super) struct TransferLaunch {
    told: Told,
    launch: QueuedLaunch,
    relay: Relay,
    pair: Communicator,
}

impl TransferLaunch {
    /// The launch of one side of a transfer, which rank `on` makes on a pair, with its number in the pair's queue.
    ///
    /// # Errors
    /// As [`Transfer::prepare`].
    pub fn new(
        on: &Collectives,
        pair: &Collectives,
        transfer: &Transfer,
    ) -> Result<Self, ExecutorError> {
        let launch = or_panicked("launch a transfer", || {
            let call = pair.prepare_transfer(transfer)?;
            // Without a stream's number: whichever streams the two sides take, it is the same queue of transfers.
            pair.executor().queued(&call.call(), None)
        });
        let launch = launch.map_err(|error| transfer.unmatched(on, pair, error))?;
        let told = transfer.told(on);
        let (relay, pair) = (transfer.relay.clone(), pair.communicator().clone());
        Ok(TransferLaunch { told, launch, relay, pair })
    }
}

impl Task for TransferLaunch {
    fn poll(&self, effort: Effort) -> TaskState {
        if let Relay::On(awaited) = &self.relay {
            match awaited.look() {
                Arrival::There => {}
                Arrival::ToCome if self.pair.broken().is_none() => {
                    self.pair.passes_on(awaited.position());
                    return TaskState::Pending;
                }
                // The peer waits for what was lost.
                Arrival::Lost => self.pair.abort(LOST),
                // The pair ends with the communicator, on both sides.
                Arrival::LostToAll if self.pair.broken().is_none() => return TaskState::Pending,
                Arrival::LostToAll | Arrival::ToCome => {}
            }
        }
        match self.launch.poll(effort) {
            TaskState::Done(Ok(())) => {
                self.arrived(Arrival::There);
                TaskState::Done(Ok(()))
            }
            TaskState::Done(Err(error)) => {
                let error = self.told.error(own_error(HalError::Task(error)));
                self.arrived(match error.cause() {
                    ExecutorError::PeerLost { .. } => Arrival::LostToAll,
                    _ if self.told.on.broken().is_some() => Arrival::LostToAll,
                    _ => Arrival::Lost,
                });
                TaskState::Done(Err(Arc::new(self.told.on.shared.whose.names(error))))
            }
            TaskState::Pending => {
                if let Relay::From(arrives) = &self.relay {
                    arrives.moves(self.launch.position());
                }
                TaskState::Pending
            }
        }
    }
}

impl TransferLaunch {
    /// Says what has become of what others pass on.
    fn arrived(&self, arrival: Arrival) {
        if let Relay::From(arrives) = &self.relay {
            arrives.tell(arrival);
        }
    }
}

/// Why a peer does not get what was to be passed on to it.
const LOST: &str = "what this rank was to pass on did not come to it";

const SEND: &str = "send";
const RECEIVE: &str = "receive";

impl Transfer {
    /// What [`Collectives::send`] sends.
    pub fn send(input: *const u8, count: u64, dtype: DataType, peer: u32) -> Self {
        let way = Way { peer, direction: Direction::Out, purpose: Purpose::Calls };
        Transfer { what: SEND, way, at: input.cast_mut(), count, dtype, relay: Relay::None }
    }

    /// What [`Collectives::receive`] receives.
    pub fn receive(output: *mut u8, count: u64, dtype: DataType, peer: u32) -> Self {
        let way = Way { peer, direction: Direction::In, purpose: Purpose::Calls };
        Transfer { what: RECEIVE, way, at: output, count, dtype, relay: Relay::None }
    }
}

impl Collectives {
    /// Sends `count` elements to a peer, which calls [`receive`](Self::receive) with the same count and type; the others have no
    /// part in it. Transfers from one rank to another come in order. On a device the first transfer waits, even on a stream,
    /// until both ranks have formed their ends of the pair that it goes through: for the peer's process, not for its call.
    ///
    /// # Errors
    /// As [`call`](Self::call); a peer that is this rank. If the two ranks do not find each other in time for their first
    /// transfer, all later transfers in that direction fail with its error, on both ranks.
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
        // SAFETY: as this function's.
        unsafe { self.transfer(Transfer::send(input, count, dtype, peer), stream) }
            .map_err(|error| self.names(error))
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
        // SAFETY: as this function's.
        unsafe { self.transfer(Transfer::receive(output, count, dtype, peer), stream) }
            .map_err(|error| self.names(error))
    }

    /// # Safety
    /// As [`call`](Self::call).
    unsafe fn transfer(
        &self,
        transfer: Transfer,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let own = self.communicator().rank();
        if transfer.way.peer == own {
            // Outside of a group a rank would wait for itself: `pair_end` refuses it.
            return self.communicator().pair_end(transfer.way).map(drop);
        }
        let device = self.on_device();
        let pair = if device { None } else { self.communicator().usable(transfer.way)? };
        let Some(pair) = pair else {
            let mut group = Group::new();
            group.transfer(self, transfer, stream)?;
            return group.end();
        };
        let Some(stream) = stream else {
            let call = transfer.prepare(self, &pair)?;
            // SAFETY: as this function's.
            let ran = unsafe { pair.launch(&call.call(), stream) };
            return ran.map_err(|error| transfer.told(self).error(error));
        };
        self.communicator().shared.takes(&**stream)?;
        let launch: Arc<dyn Task> = Arc::new(TransferLaunch::new(self, &pair, &transfer)?);
        pair.executor().submit(&launch, stream)
    }

    /// Checks one side of a transfer, on the pair that it goes through.
    fn prepare_transfer(&self, transfer: &Transfer) -> Result<Prepared, ExecutorError> {
        let &Transfer { way: Way { direction, .. }, at, count, dtype, .. } = transfer;
        let rank = self.communicator().rank();
        if !self.on_one_node() {
            let from = if direction == Direction::Out { rank } else { 1 - rank };
            return self.prepare_from(from, at, count, dtype);
        }
        let other = 1 - rank as usize;
        let mut blocks = [vec![Extent::default(); 2], vec![Extent::default(); 2]];
        let (buffers, sizes) = match direction {
            Direction::Out => {
                blocks[0][other].count = count;
                ((at.cast_const(), NOWHERE), (count, 0))
            }
            Direction::In => {
                blocks[1][other].count = count;
                ((NOWHERE.cast_const(), at), (0, count))
            }
        };
        let [send, receive] = blocks;
        Ok(self.prepare_near((buffers, sizes), dtype)?.with_blocks(send, receive))
    }

    /// Whether buffers are on a GPU.
    pub(super) fn on_device(&self) -> bool {
        self.communicator().shared.gpu.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicator::Options;
    use std::time::Duration;

    #[test]
    fn a_side_that_cannot_be_launched_breaks_its_pair_unless_its_arguments_are_wrong() {
        let ends = ranks(2);
        let (mut byte, other) = (0u8, 7u8);
        let receive = Transfer::receive(&raw mut byte, 1, DataType::U8, 1);
        let send = Transfer::send(&raw const other, 1, DataType::U8, 0);
        let [(zero, here), (one, there)] = pair([(&ends[0], &receive), (&ends[1], &send)]);
        let saw = String::new();
        let wrong = ExecutorError::Argument { what: "try", saw, allowed: "nothing" };
        send.unmatched(&one, &there, wrong);
        assert!(there.communicator().broken().is_none());
        let source = std::io::Error::other("there is no room");
        let lacks = HalError::System { what: "try".to_owned(), source };
        let told = send.unmatched(&one, &there, lacks.into()).to_string();
        assert!(told.contains("rank 0") && told.contains("there is no room"), "{told}");
        // Rank 0 waits for a send that has not been made, nor will be.
        let launch = TransferLaunch::new(&zero, &here, &receive);
        let error = launch.map_or_else(|error| error, |launch| failure_of(&launch));
        let text = error.to_string();
        assert!(text.contains("aborted by rank 1") && text.contains("there is no room"), "{text}");
    }

    /// Rank 3 knows that a rank is lost which has no part in the transfer, and its program ends by that, though nothing has failed.
    #[test]
    fn of_a_loss_that_a_transfers_other_rank_left_for_the_lost_one_is_named() {
        for lost in [0, 2] {
            let mut ends = ranks(4);
            let (mut byte, other) = (0u8, 7u8);
            let receive = Transfer::receive(&raw mut byte, 1, DataType::U8, 3);
            let send = Transfer::send(&raw const other, 1, DataType::U8, 1);
            let [(one, here), (three, there)] = pair([(&ends[1], &receive), (&ends[3], &send)]);
            let launch = TransferLaunch::new(&one, &here, &receive).unwrap();

            ends[3].hears_of_a_loss(lost);
            drop((there, three, ends.pop()));
            let shared = &here.communicator().shared;
            until(|| shared.bootstrap.has_left(1) == Ok(true));
            assert!(!shared.has_left(1), "before this rank has heard why");
            ends[1].hears_of_a_loss(lost);
            assert!(shared.has_left(1));
            let error = failure_of(&launch);
            assert!(matches!(error.cause(), ExecutorError::PeerLost { peer, .. } if *peer == lost));
            let text = error.to_string();
            let (what, waits) = ("receive on rank 1, from rank 3", "rank 1 block 0 waits");
            let told =
                format!("{what}: rank {lost} (pid 7) is lost: its process ended; in launch 1 ");
            assert!(text.starts_with(&told) && text.contains(waits), "{text}");
        }
    }

    /// A rank has left before its first transfer with rank 2: for no reason, or since it knew that rank 3 is lost.
    #[test]
    fn who_is_not_there_to_form_a_pair_is_named_unless_it_left_for_a_loss() {
        for (peer, bereaved) in [(0, false), (1, false), (0, true), (1, true)] {
            let mut ends = ranks(4);
            if bereaved {
                ends[peer as usize].hears_of_a_loss(3);
            }
            drop(ends.remove(peer as usize));
            let two = &ends[1];
            until(|| two.shared.bootstrap.has_left(peer) == Ok(true));
            let (direction, purpose) = (Direction::In, Purpose::Calls);
            let formed = two.pair(Way { peer, direction, purpose });
            if bereaved {
                assert!(!two.shared.has_left(peer), "before this rank has heard why");
                two.hears_of_a_loss(3);
            }
            let error = formed().map(drop).unwrap_err();
            let named = if bereaved { 3 } else { peer };
            let what = format!("receive on rank 2, from rank {peer}: rank {named} ");
            assert!(error.to_string().starts_with(&what), "{error}");
        }
    }

    fn ranks(world: u32) -> Vec<Communicator> {
        let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
        Communicator::in_process(world, &options).unwrap()
    }

    /// The two ends of the pair that these transfers of two ranks go through, each behind its rank's collectives.
    fn pair(sides: [(&Communicator, &Transfer); 2]) -> [(Collectives, Collectives); 2] {
        let begun = sides.map(|(rank, transfer)| {
            let on = Collectives::new(rank).unwrap();
            let formed = on.communicator().pair(transfer.way);
            (on, formed)
        });
        begun.map(|(on, formed)| (on, formed().unwrap()))
    }

    fn until(holds: impl Fn() -> bool) {
        while !holds() {
            std::thread::yield_now();
        }
    }

    fn failure_of(launch: &TransferLaunch) -> ExecutorError {
        loop {
            match launch.poll(Effort::Wait) {
                TaskState::Pending => {}
                TaskState::Done(ended) => break own_error(HalError::Task(ended.unwrap_err())),
            }
        }
    }
}
