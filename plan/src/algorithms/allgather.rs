//! Allgather: every rank ends with the concatenation of all inputs.

use super::Shape;
use super::common::*;
use super::meeting::*;
use crate::builder::BuildError;
use crate::model::{Collective::AllGather, Plan};

/// Everyone sends its input to everyone as packets. `blocks` thread blocks (at least 1) share each input.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, blocks, .. } = shape;
    let p = packet_program("packets", AllGather, ranks);
    among(p, in_place, |p| exchange_packets(p, blocks, in_place, |me, _| p.input(me).all()))
}

/// Everyone writes its input into everyone's output. `blocks` thread blocks (at least 1) share each input.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, blocks, handshake, .. } = shape;
    let p = zero_copy_program("zero_copy", AllGather, ranks);
    among(p, in_place, |p| {
        met(p, blocks, handshake, |tb, me| {
            for peer in p.peers(me) {
                tb.put(p.input(me).all(), p.output(peer).chunk(me));
            }
            keep(tb, p.input(me).all(), p.output(me).chunk(me), in_place);
        });
    })
}
