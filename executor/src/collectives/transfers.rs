//! Transfers between two ranks: each direction of a pair is a communicator of its own, whose launches come in order.

use super::group::{Gathered, Work};
use super::prepared::Prepared;
use super::queued::Queued;
use super::{Collectives, NOWHERE, lock};
pub(super) use crate::communicator::{Direction, Purpose, Way};
use crate::error::ExecutorError;
use crate::registry::{Installed, Registry};
use antiphon_hal::{Stream, Task};
use antiphon_plan::counts::Extent;
use antiphon_types::DataType;
use std::sync::Arc;

/// One side of a transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    /// To or from which rank.
    pub way: Way,
    /// What is read or written.
    pub at: *mut u8,
    /// Elements.
    pub count: u64,
    pub dtype: DataType,
}

impl Collectives {
    /// Sends `count` elements to a peer, which calls [`receive`](Self::receive) with the same count and type; the others
    /// have no part in it. Transfers from one rank to another come in order. The first one waits until both have come, also
    /// on a stream.
    ///
    /// # Errors
    /// As [`call`](Self::call); a peer that is this rank.
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
        let way = Way { peer, direction: Direction::Out, purpose: Purpose::Calls };
        // SAFETY: as this function's.
        unsafe { self.transfer(&Transfer { way, at: input.cast_mut(), count, dtype }, stream) }
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
        let way = Way { peer, direction: Direction::In, purpose: Purpose::Calls };
        // SAFETY: as this function's.
        unsafe { self.transfer(&Transfer { way, at: output, count, dtype }, stream) }
    }

    /// # Safety
    /// As [`call`](Self::call).
    unsafe fn transfer(
        &self,
        transfer: &Transfer,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        if self.on_device() {
            let mut queued = Queued::default();
            let (work, stream) = (Work::Transfer(*transfer), stream.cloned());
            queued.take(Gathered { on: self.clone(), work, stream });
            return queued.launch().wait();
        }
        let pair = self.pair(transfer.way)?;
        let call = pair.prepare_transfer(transfer)?;
        let Some(stream) = stream else {
            // SAFETY: as this function's.
            return unsafe { pair.launch(&call.call(), stream) };
        };
        // Whatever stream either side takes, it is the same queue of transfers.
        let launch: Arc<dyn Task> = Arc::new(pair.executor().queued(&call.call(), None)?);
        pair.executor().submit(&launch, stream)
    }

    /// Checks one side of a transfer, on the pair that it goes through.
    pub(super) fn prepare_transfer(&self, transfer: &Transfer) -> Result<Prepared, ExecutorError> {
        let &Transfer { way: Way { direction, .. }, at, count, dtype } = transfer;
        let rank = self.communicator().rank();
        if !self.together() {
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
        Ok(self.prepare_v(buffers, sizes, dtype)?.with_blocks(send, receive))
    }

    /// The pair of this rank and a peer for a queue of transfers, formed where there is none yet.
    pub(super) fn pair(&self, way: Way) -> Result<Collectives, ExecutorError> {
        if let Some(failure) = self.communicator().failure() {
            return Err(failure);
        }
        if let Some(pair) = self.formed(way) {
            return Ok(pair);
        }
        // Not under the lock: another thread may be on its way to another peer.
        let end = self.communicator().pair_end(way)?;
        // What is registered or installed for alltoallv is no transfer.
        let (registry, installed) = (Registry::new(), Installed::none("transfers use none"));
        let formed = self.communicator().form(end)?;
        let pair = Collectives::served_by(&formed, registry, installed)?;
        Ok(lock(&self.0.pairs).entry(way).or_insert(pair).clone())
    }

    /// The pair of this rank and a peer for a queue of transfers, if it is formed.
    pub(super) fn formed(&self, way: Way) -> Option<Collectives> {
        lock(&self.0.pairs).get(&way).cloned()
    }

    /// Aborts the pairs that are formed, and those that are being formed or would be.
    pub(super) fn abort_pairs(&self, reason: &str) {
        let communicator = self.communicator();
        let peers = (0..communicator.world()).filter(|&peer| peer != communicator.rank());
        let ways = peers.flat_map(|peer| {
            let both = [Purpose::Calls, Purpose::Blocks].into_iter();
            both.flat_map(move |purpose| {
                [Direction::Out, Direction::In].map(|direction| Way { peer, direction, purpose })
            })
        });
        for way in ways {
            match self.formed(way) {
                Some(pair) => pair.communicator().abort(reason),
                // Who waits for this rank to form it hears of the abort.
                None => {
                    if let Ok(end) = communicator.pair_end(way) {
                        end.abort(reason);
                    }
                }
            }
        }
    }

    /// Whether buffers are on a GPU.
    pub(super) fn on_device(&self) -> bool {
        self.communicator().shared.gpu.is_some()
    }
}
