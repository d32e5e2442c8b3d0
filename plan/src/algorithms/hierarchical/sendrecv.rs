//! Sendrecv over several nodes: rank r's input becomes the output of the next rank, round the ring of ranks. The last rank
//! of a node sends to the first of the next.

use super::*;
use crate::model::{Collective::SendRecv, Plan};

/// Everyone sends its input to the next rank as packets.
///
/// A rank hears from the one before only, so the next one tells it that it has begun: that keeps it from being two
/// launches ahead, where it would overwrite packets that the next rank has not read. `blocks` thread blocks (at least 1)
/// share each message.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, blocks, .. } = shape;
    let (p, places) = packet_program("packets", SendRecv, (ranks, nodes))?;
    among(p, in_place, |p| {
        let ring = Ring { places };
        let inboxes: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, 1)).collect();
        let packed = |rank| p.scratch(rank, usize::from(ring.leaves(rank)));
        let packed: Vec<_> = (0..ranks).map(packed).collect();
        for team in teams(p, blocks) {
            let to_next = ring.channels(p);
            for tb in &team {
                let me = tb.rank();
                let (input, there) = (p.input(me).all(), inboxes[ring.next(me)].all());
                tb.signal(&[to_next[ring.previous(me)]]);
                if ring.leaves(me) {
                    tb.copy_packets(input, packed[me].all());
                    tb.put_packets_over(&to_next[me], packed[me].all(), there);
                } else {
                    tb.put_packets(input, there);
                }
                tb.unpack_packets(inboxes[me].all(), p.output(me).all());
                tb.wait(&[to_next[me]]);
            }
        }
    })
}

/// Everyone writes its input into the next rank's output; in place, into its scratch, because the next rank may
/// not have sent yet what its output would overwrite.
///
/// `blocks` thread blocks (at least 1) share each message.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, blocks, .. } = shape;
    let (p, places) = zero_copy_program("zero_copy", SendRecv, (ranks, nodes))?;
    among(p, in_place, |p| {
        let ring = Ring { places };
        let staged = usize::from(in_place);
        let inboxes: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, staged)).collect();
        for team in teams(p, blocks) {
            let to_next = ring.channels(p);
            for tb in &team {
                let me = tb.rank();
                let (next, previous) = (ring.next(me), ring.previous(me));
                let target = if in_place { inboxes[next] } else { p.output(next) };
                tb.signal(&[to_next[previous]]);
                tb.wait(&[to_next[me]]);
                if ring.leaves(me) {
                    tb.put_with_signal(&to_next[me], p.input(me).all(), target.all());
                    // In place the input is overwritten below, and in any case the caller's again when the launch ends.
                    tb.flush(&[to_next[me]]);
                } else {
                    tb.put(p.input(me).all(), target.all());
                    tb.signal(&[to_next[me]]);
                }
                tb.wait(&[to_next[previous]]);
                if in_place {
                    tb.copy(inboxes[me].all(), p.output(me).all());
                }
            }
        }
    })
}

/// The ring of ranks.
#[derive(Clone, Copy)]
struct Ring {
    places: Places,
}

impl Ring {
    fn next(self, rank: usize) -> usize {
        (rank + 1) % self.places.ranks()
    }

    fn previous(self, rank: usize) -> usize {
        (rank + self.places.ranks() - 1) % self.places.ranks()
    }

    /// Whether the next rank is on another node.
    fn leaves(self, rank: usize) -> bool {
        self.places.node(rank) != self.places.node(self.next(rank))
    }

    /// A channel from each rank to the next.
    fn channels(self, p: &ProgramBuilder) -> Vec<Channel> {
        let channel = |rank| match self.leaves(rank) {
            true => p.port(rank, self.next(rank)),
            false => p.channel(rank, self.next(rank)),
        };
        (0..self.places.ranks()).map(channel).collect()
    }
}
