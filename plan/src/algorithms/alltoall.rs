//! Alltoall: block r of rank s's input becomes block s of rank r's output.

use super::Handshake;
use super::common::*;
use crate::builder::BuildError;
use crate::model::{Collective::AllToAll, Plan};

/// Everyone sends everyone its block as packets. `blocks` thread blocks (at least 1) share each block of data.
pub fn packets(ranks: usize, in_place: bool, blocks: usize) -> Result<Plan, BuildError> {
    let p = packet_program("packets", AllToAll, ranks);
    if ranks == 1 {
        return alone(p, in_place);
    }
    let inboxes = Inboxes::new(&p);
    let blocks = blocks.max(1);
    for block in 0..blocks {
        for me in 0..ranks {
            let tb = p.block(me).slice(block, blocks);
            for peer in p.peers(me) {
                tb.put_packets(p.input(me).chunk(peer), inboxes.slot(peer, me));
            }
            keep(&tb, p.input(me).chunk(me), p.output(me).chunk(me), in_place);
            for peer in p.peers(me) {
                tb.unpack_packets(inboxes.slot(me, peer), p.output(me).chunk(peer));
            }
        }
    }
    p.in_place(in_place).build()
}

/// Everyone writes its blocks into the others' outputs; in place, into their scratch, because a peer may not
/// have sent yet what its output would overwrite.
///
/// `blocks` thread blocks (at least 1) share each block of data.
pub fn zero_copy(
    ranks: usize,
    in_place: bool,
    blocks: usize,
    handshake: Handshake,
) -> Result<Plan, BuildError> {
    let p = zero_copy_program("zero_copy", AllToAll, ranks);
    if ranks == 1 {
        return alone(p, in_place);
    }
    let blocks = blocks.max(1);
    let inboxes = in_place.then(|| Inboxes::new(&p));
    for block in 0..blocks {
        let meeting = Meeting::new(&p, handshake);
        for me in 0..ranks {
            let tb = p.block(me).slice(block, blocks);
            let (input, output) = (p.input(me), p.output(me));
            if let Some(inboxes) = &inboxes {
                meeting.ready_to_receive(&tb, me);
                for peer in p.peers(me) {
                    tb.put(input.chunk(peer), inboxes.slot(peer, me));
                }
                meeting.done(&tb, me);
                for peer in p.peers(me) {
                    tb.copy(inboxes.slot(me, peer), output.chunk(peer));
                }
            } else {
                meeting.ready(&tb, me);
                for peer in p.peers(me) {
                    tb.put(input.chunk(peer), p.output(peer).chunk(me));
                }
                tb.copy(input.chunk(me), output.chunk(me));
                meeting.done(&tb, me);
            }
        }
    }
    p.in_place(in_place).build()
}
