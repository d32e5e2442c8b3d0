//! Calls that come to several transfers: over nodes, those whose blocks have lengths of their own.
//!
//! Runtime blocks move between ranks that map each other's memory. Over nodes every block is a transfer by itself, whose two
//! ranks agree on its length, and the transfers of a call go on together. They have queues apart from those of sends and
//! receives, so that a call of the one kind never takes what the other has sent.

use super::Collectives;
use super::group::Group;
use super::prepared::{Blocks, check_sizes};
use super::transfers::{Direction, Purpose, Transfer, Way};
use super::uneven::ALL_GATHER_V;
use crate::error::ExecutorError;
use antiphon_hal::Stream;
use antiphon_plan::counts::{Counts, CountsError, Extent, Fit};
use antiphon_types::DataType;
use std::sync::Arc;

impl Collectives {
    /// Checks blocks that come from a caller: that they are as many as there must be, in their buffers, and apart from each other.
    /// Of an allgatherv there is one to send, which in place is the rank's own of those received.
    pub(super) fn check_blocks(
        &self,
        what: &str,
        &Blocks { buffers, sizes, ref send, ref receive }: &Blocks,
        (in_place, dtype): (bool, DataType),
    ) -> Result<(), ExecutorError> {
        let bytes = check_sizes(buffers, sizes, dtype)?;
        let world = self.communicator().world();
        let starts = [buffers.0.addr() as u64, buffers.1.addr() as u64];
        let ends = [starts[0].saturating_add(bytes.0), starts[1].saturating_add(bytes.1)];
        let share = starts[0] < ends[1] && starts[1] < ends[0];
        let element = dtype.size() as u64;
        let fit = Fit {
            blocks: [if what == ALL_GATHER_V { 1 } else { world }, world],
            elements: [sizes.0, sizes.1],
            starts: share.then(|| starts.map(|start| start / element)),
            in_place,
        };
        let checked = Counts { send, receive }.check(&fit);
        checked.map_err(|source| ExecutorError::Counts { plan: what.to_owned(), source })
    }

    /// The transfers that a call comes to, whose blocks were checked: an allgatherv is an alltoallv that sends the same to all.
    pub(super) fn parts(
        &self,
        what: &'static str,
        mut blocks: Blocks,
        (in_place, dtype): (bool, DataType),
    ) -> Vec<Transfer> {
        let (rank, world) = (self.communicator().rank(), self.communicator().world());
        if what == ALL_GATHER_V {
            blocks.send = blocks.send.repeat(world as usize);
            if in_place {
                // It is where it belongs.
                blocks.send[rank as usize] = Extent::default();
                blocks.receive[rank as usize] = Extent::default();
            }
        }
        // Empty ones too, so that a peer that expects something is told.
        transfers(what, &blocks, dtype, rank)
    }

    /// Whether the input of an allgatherv is the rank's block of its output. One of no elements is that also wherever else it
    /// points into the output: of such a block the offset does not count.
    ///
    /// # Errors
    /// A block of the rank's own that is not as long as its input.
    pub(super) fn own_block(
        &self,
        (input, output): (*const u8, *mut u8),
        (count, whole): (u64, u64),
        receive: &[Extent],
        dtype: DataType,
    ) -> Result<bool, ExecutorError> {
        let block = self.communicator().rank() as usize;
        let Some(own) = receive.get(block) else { return Ok(false) };
        if own.count != count {
            let source = CountsError::Own { block, saw: own.count, allowed: count };
            return Err(ExecutorError::Counts { plan: ALL_GATHER_V.to_owned(), source });
        }
        let at = |element: u64| output.wrapping_add((element as usize).wrapping_mul(dtype.size()));
        let within = || (at(0)..at(whole)).contains(&input.cast_mut());
        Ok(whole > 0 && (input == at(own.offset).cast_const() || count == 0 && within()))
    }

    /// Makes the transfers of one call: with a stream they go on by themselves, without one they are complete on return.
    pub(super) fn run_parts(
        &self,
        parts: Vec<Transfer>,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let mut group = Group::new();
        group.parts(self, parts, stream)?;
        group.end()
    }
}

/// A transfer for each block that goes somewhere; what the rank keeps is sent and received by itself.
fn transfers(what: &'static str, blocks: &Blocks, dtype: DataType, rank: u32) -> Vec<Transfer> {
    let Blocks { buffers: (input, output), ref send, ref receive, .. } = *blocks;
    let place = |base: *mut u8, block: &Extent| {
        base.wrapping_add((block.offset as usize).wrapping_mul(dtype.size()))
    };
    let mut parts = Vec::new();
    for (peer, (sent, received)) in (0..).zip(send.iter().zip(receive)) {
        let kept = peer == rank && (sent.count > 0 || received.count > 0);
        let sides = [(Direction::Out, input.cast_mut(), sent), (Direction::In, output, received)];
        for (direction, base, block) in sides {
            let way = Way { peer, direction, purpose: Purpose::Blocks };
            if kept || peer != rank {
                let (at, count) = (place(base, block), block.count);
                parts.push(Transfer { what, way, at, count, dtype });
            }
        }
    }
    parts
}
