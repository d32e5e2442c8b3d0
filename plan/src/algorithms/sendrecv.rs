//! Sendrecv: rank r's input becomes the output of the next rank, round the ring of ranks.

use super::Shape;
use super::common::*;
use super::meeting::*;
use crate::builder::BuildError;
use crate::model::{Collective::SendRecv, Plan};

/// Everyone sends its input to the next rank as packets.
///
/// A rank hears from the one before only, so the next one tells it that it has begun: that keeps it from being two
/// launches ahead, where it would overwrite packets that the next rank has not read. `blocks` thread blocks (at least 1)
/// share each message; the first of each rank tells and listens, since a launch is over when all its blocks are.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, blocks, .. } = shape;
    let p = packet_program("packets", SendRecv, ranks);
    among(p, in_place, |p| {
        let to_next: Vec<_> = (0..ranks).map(|rank| p.channel(rank, (rank + 1) % ranks)).collect();
        let inboxes: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, 1)).collect();
        for team in teams(p, blocks) {
            for tb in &team {
                let me = tb.rank();
                let (next, previous) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
                if tb.id() == 0 {
                    tb.signal(&[to_next[previous]]);
                }
                tb.put_packets(p.input(me).all(), inboxes[next].all());
                tb.unpack_packets(inboxes[me].all(), p.output(me).all());
                if tb.id() == 0 {
                    tb.wait(&[to_next[me]]);
                }
            }
        }
    })
}

/// Everyone writes its input into the next rank's output; in place, into its scratch, because the next rank may
/// not have sent yet what its output would overwrite.
///
/// `blocks` thread blocks (at least 1) share each message.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, blocks, .. } = shape;
    let p = zero_copy_program("zero_copy", SendRecv, ranks);
    among(p, in_place, |p| {
        let staged = usize::from(in_place);
        let inboxes: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, staged)).collect();
        for team in teams(p, blocks) {
            let to_next: Vec<_> =
                (0..ranks).map(|rank| p.channel(rank, (rank + 1) % ranks)).collect();
            for tb in &team {
                let me = tb.rank();
                let (next, previous) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
                let target = if in_place { inboxes[next] } else { p.output(next) };
                ready_to_receive(tb, &[to_next[previous]], &[to_next[me]]);
                tb.put(p.input(me).all(), target.all());
                tb.signal(&[to_next[me]]);
                tb.wait(&[to_next[previous]]);
                if in_place {
                    tb.copy(inboxes[me].all(), p.output(me).all());
                }
            }
        }
    })
}
