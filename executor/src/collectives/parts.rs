//! Calls that are made as several transfers: those over nodes whose blocks have lengths of their own.
//!
//! Plans move runtime blocks only between ranks that map each other's memory. Over nodes every block is a transfer by itself,
//! whose two ranks agree on its length, and the transfers of a call go on together. They have queues apart from those of sends
//! and receives, so that a call of the one kind never takes what the other has sent.
//!
//! An allgatherv sends a block once to each other node: to the rank of the same number there, its counterpart, which passes it on
//! to its neighbours once it has come. Only ranks on hosts pass blocks on: on devices a transfer is put into a stream before it
//! is known whether the block that it would pass on has come.

use super::Collectives;
use super::group::Group;
use super::prepared::{Blocks, check_sizes};
use super::relay::Arrives;
use super::transfers::{Direction, Purpose, Relay, Transfer, Way};
use super::uneven::{Uneven, UnevenCall, UnevenKind};
use crate::error::ExecutorError;
use crate::selection::transfers::passes_on;
use antiphon_hal::Stream;
use antiphon_plan::counts::{Counts, CountsError, Extent, Fit};
use antiphon_types::DataType;
use std::sync::Arc;

impl Collectives {
    /// Checks a caller's blocks: that they are as many as there must be, lie in their buffers, and do not overlap. An allgatherv
    /// sends one block, which in place is the rank's own among those received.
    pub(super) fn check_blocks(&self, call: &UnevenCall) -> Result<(), ExecutorError> {
        let &UnevenCall { kind, in_place, dtype, ref blocks } = call;
        let &Blocks { buffers, sizes, ref send, ref receive } = blocks;
        let bytes = check_sizes(buffers, sizes, dtype)?;
        let (rank, world) = (self.communicator().rank(), self.communicator().world());
        let starts = [buffers.0.addr() as u64, buffers.1.addr() as u64];
        let ends = [starts[0].saturating_add(bytes.0), starts[1].saturating_add(bytes.1)];
        let share = starts[0] < ends[1] && starts[1] < ends[0];
        let element = dtype.size() as u64;
        let fit = Fit {
            blocks: match kind {
                UnevenKind::AllToAllV => [world, world],
                UnevenKind::AllGatherV => [1, world],
            },
            elements: [sizes.0, sizes.1],
            starts: share.then(|| starts.map(|start| start / element)),
            in_place,
            rank,
        };
        let checked = Counts { send, receive }.check(&fit);
        checked.map_err(|source| kind.wrong_blocks(source))
    }

    /// The transfers that make a call whose blocks were checked.
    pub(super) fn parts(&self, call: &UnevenCall) -> Vec<Transfer> {
        let &UnevenCall { kind, in_place, dtype, ref blocks } = call;
        let (rank, world) = (self.communicator().rank(), self.communicator().world());
        let parts = Parts { what: kind.name(), dtype, rank };
        match kind {
            UnevenKind::AllToAllV => parts.exchanged(blocks),
            UnevenKind::AllGatherV => {
                let spread = self.0.service.spread;
                let per_node = if passes_on(spread) { spread.per_node() } else { 1 };
                parts.gathered(blocks, in_place, Nodes { world, per_node })
            }
        }
    }

    /// Whether the input of an allgatherv is the rank's own block of its output. An empty input is so wherever it points into the
    /// output, since the offset of an empty block does not count.
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
            return Err(UnevenKind::AllGatherV.wrong_blocks(source));
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
        group.uneven(self, Uneven::Parts(parts), stream)?;
        group.end()
    }
}

/// What the transfers of a call of a rank have in common.
struct Parts {
    what: &'static str,
    dtype: DataType,
    rank: u32,
}

/// Nodes with equally many consecutive ranks on each. For ranks that pass nothing on, one rank on each is assumed.
#[derive(Clone, Copy)]
struct Nodes {
    world: u32,
    per_node: u32,
}

impl Nodes {
    /// The other ranks of a rank's node.
    fn neighbours(self, rank: u32) -> impl Iterator<Item = u32> {
        let first = rank - rank % self.per_node;
        (first..first + self.per_node).filter(move |&other| other != rank)
    }

    /// The ranks of the same number on the other nodes, the next node's first, so that not all send to one node first.
    fn counterparts(self, rank: u32) -> impl Iterator<Item = u32> {
        let Nodes { world, per_node } = self;
        (1..world / per_node).map(move |step| (rank + step * per_node) % world)
    }
}

impl Parts {
    /// One side of a transfer of a block, which lies in a buffer.
    fn side(&self, peer: u32, direction: Direction, base: *mut u8, block: Extent) -> Transfer {
        let &Parts { what, dtype, .. } = self;
        let way = Way { peer, direction, purpose: Purpose::Blocks };
        let at = base.wrapping_add((block.offset as usize).wrapping_mul(dtype.size()));
        Transfer { what, way, at, count: block.count, dtype, relay: Relay::None }
    }

    /// The transfers of an alltoallv: one for each block, also for empty ones, so that a peer that expects elements is told. The
    /// rank sends the block that it keeps to itself, unless it is empty.
    fn exchanged(&self, blocks: &Blocks) -> Vec<Transfer> {
        let Blocks { buffers: (input, output), ref send, ref receive, .. } = *blocks;
        let mut parts = Vec::new();
        for (peer, (&sent, &received)) in (0..).zip(send.iter().zip(receive)) {
            if peer != self.rank || sent.count > 0 || received.count > 0 {
                parts.push(self.side(peer, Direction::Out, input.cast_mut(), sent));
                parts.push(self.side(peer, Direction::In, output, received));
            }
        }
        parts
    }

    /// The transfers of an allgatherv: the rank's own block goes to neighbours and counterparts, and what these send to the
    /// neighbours.
    fn gathered(&self, blocks: &Blocks, in_place: bool, nodes: Nodes) -> Vec<Transfer> {
        let Blocks { buffers: (input, output), ref send, ref receive, .. } = *blocks;
        let (own, block) = (send[0], |rank: u32| receive[rank as usize]);
        let mut parts = Vec::new();
        if own.count > 0 && !in_place {
            parts.push(self.side(self.rank, Direction::Out, input.cast_mut(), own));
            parts.push(self.side(self.rank, Direction::In, output, block(self.rank)));
        }
        let mut passed = Vec::new();
        for peer in nodes.counterparts(self.rank) {
            let (arrives, received) = (Arrives::default(), block(peer));
            for neighbour in nodes.neighbours(self.rank) {
                let relay = Relay::On(arrives.awaited());
                let sent = self.side(neighbour, Direction::Out, output, received);
                passed.push(Transfer { relay, ..sent });
            }
            let relay = Relay::From(Arc::new(arrives));
            parts.push(self.side(peer, Direction::Out, input.cast_mut(), own));
            parts.push(Transfer { relay, ..self.side(peer, Direction::In, output, received) });
        }
        for neighbour in nodes.neighbours(self.rank) {
            parts.push(self.side(neighbour, Direction::Out, input.cast_mut(), own));
            parts.push(self.side(neighbour, Direction::In, output, block(neighbour)));
        }
        // In each queue these come after the rank's own blocks, in an order of nodes that is the same on both sides.
        parts.append(&mut passed);
        for neighbour in nodes.neighbours(self.rank) {
            for from in nodes.counterparts(neighbour) {
                parts.push(self.side(neighbour, Direction::In, output, block(from)));
            }
        }
        parts
    }
}
