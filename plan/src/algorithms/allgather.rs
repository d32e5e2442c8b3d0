//! Allgather: every rank ends with the concatenation of all inputs.

use super::Handshake;
use super::common::*;
use crate::builder::BuildError;
use crate::model::{Collective::AllGather, Plan};

/// Everyone sends its input to everyone as packets. `blocks` thread blocks (at least 1) share each input.
pub fn packets(ranks: usize, in_place: bool, blocks: usize) -> Result<Plan, BuildError> {
    let p = packet_program("packets", AllGather, ranks);
    if ranks == 1 {
        return alone(p, in_place);
    }
    let inboxes = Inboxes::new(&p);
    let blocks = blocks.max(1);
    for block in 0..blocks {
        for me in 0..ranks {
            let tb = p.block(me).slice(block, blocks);
            for peer in p.peers(me) {
                tb.put_packets(p.input(me).all(), inboxes.slot(peer, me));
            }
            keep(&tb, p.input(me).all(), p.output(me).chunk(me), in_place);
            for peer in p.peers(me) {
                tb.unpack_packets(inboxes.slot(me, peer), p.output(me).chunk(peer));
            }
        }
    }
    p.in_place(in_place).build()
}

/// Everyone writes its input into everyone's output. `blocks` thread blocks (at least 1) share each input.
pub fn zero_copy(
    ranks: usize,
    in_place: bool,
    blocks: usize,
    handshake: Handshake,
) -> Result<Plan, BuildError> {
    let p = zero_copy_program("zero_copy", AllGather, ranks);
    if ranks == 1 {
        return alone(p, in_place);
    }
    let blocks = blocks.max(1);
    for block in 0..blocks {
        let meeting = Meeting::new(&p, handshake);
        for me in 0..ranks {
            let tb = p.block(me).slice(block, blocks);
            meeting.ready(&tb, me);
            for peer in p.peers(me) {
                tb.put(p.input(me).all(), p.output(peer).chunk(me));
            }
            keep(&tb, p.input(me).all(), p.output(me).chunk(me), in_place);
            meeting.done(&tb, me);
        }
    }
    p.in_place(in_place).build()
}
