//! Reducescatter: rank r ends with block r of the reduction of all inputs.

use super::Handshake;
use super::common::*;
use crate::builder::BuildError;
use crate::model::{Collective::ReduceScatter, Plan};

/// Everyone sends block r to rank r as packets; rank r reduces them in rank order. `blocks` thread blocks (at least 1)
/// share it.
pub fn packets(ranks: usize, in_place: bool, blocks: usize) -> Result<Plan, BuildError> {
    let p = packet_program("packets", ReduceScatter, ranks);
    if ranks == 1 {
        return alone(p, in_place);
    }
    let inboxes = Inboxes::new(&p);
    let reductions = Reduction::of_all(&p, &inboxes);
    let blocks = blocks.max(1);
    for block in 0..blocks {
        for (me, reduction) in reductions.iter().enumerate() {
            let tb = p.block(me).slice(block, blocks);
            for peer in p.peers(me) {
                tb.put_packets(p.input(me).chunk(peer), inboxes.slot(peer, me));
            }
            reduction.reduce(&tb, blocks, p.input(me).chunk(me), p.output(me).all());
        }
    }
    p.in_place(in_place).build()
}

/// Rank r reads block r of all inputs and reduces it in rank order. `blocks` thread blocks (at least 1) share it.
pub fn zero_copy(
    ranks: usize,
    in_place: bool,
    blocks: usize,
    handshake: Handshake,
) -> Result<Plan, BuildError> {
    let p = zero_copy_program("zero_copy", ReduceScatter, ranks);
    if ranks == 1 {
        return alone(p, in_place);
    }
    let blocks = blocks.max(1);
    for block in 0..blocks {
        let meeting = Meeting::new(&p, handshake);
        for me in 0..ranks {
            let tb = p.block(me).slice(block, blocks);
            let inputs: Vec<_> = (0..ranks).map(|rank| p.input(rank).chunk(me)).collect();
            meeting.ready(&tb, me);
            tb.reduce(&inputs, p.output(me).all());
            meeting.done(&tb, me);
        }
    }
    p.in_place(in_place).build()
}
