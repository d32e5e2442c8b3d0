//! Alltoall: block r of rank s's input becomes block s of rank r's output.

use super::Shape;
use super::common::*;
use super::meeting::*;
use crate::builder::BuildError;
use crate::model::{Collective::AllToAll, Plan};

/// Everyone sends everyone its block as packets. `blocks` thread blocks (at least 1) share each block of data.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, blocks, .. } = shape;
    let p = packet_program("packets", AllToAll, ranks);
    among(p, in_place, |p| {
        exchange_packets(p, blocks, in_place, |me, peer| p.input(me).chunk(peer))
    })
}

/// Everyone writes its blocks into the others' outputs; in place, into their scratch, because a peer may not
/// have sent yet what its output would overwrite.
///
/// `blocks` thread blocks (at least 1) share each block of data.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, blocks, handshake, .. } = shape;
    let p = zero_copy_program("zero_copy", AllToAll, ranks);
    among(p, in_place, |p| {
        if !in_place {
            return met(p, blocks, handshake, |tb, me| {
                let (input, output) = (p.input(me), p.output(me));
                for peer in p.peers(me) {
                    tb.put(input.chunk(peer), p.output(peer).chunk(me));
                }
                tb.copy(input.chunk(me), output.chunk(me));
            });
        }
        let inboxes = Inboxes::new(p);
        for team in teams(p, blocks) {
            let meeting = Meeting::new(p, handshake);
            for tb in &team {
                let me = tb.rank();
                meeting.ready_to_receive(tb, me);
                for peer in p.peers(me) {
                    tb.put(p.input(me).chunk(peer), inboxes.slot(peer, me));
                }
                meeting.done(tb, me);
                for peer in p.peers(me) {
                    tb.copy(inboxes.slot(me, peer), p.output(me).chunk(peer));
                }
            }
        }
    })
}
