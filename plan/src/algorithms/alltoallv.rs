//! Alltoallv: block r of rank s's input becomes block s of rank r's output, and every block has a length of its own.

use super::Shape;
use super::common::*;
use super::meeting::*;
use crate::builder::BuildError;
use crate::model::{Collective::AllToAllV, Plan};

/// Everyone writes its blocks into the others' outputs. Out of place.
///
/// A call says for every rank how many elements go to it and come from it; `blocks` thread blocks (at least 1) share
/// each of them.
///
/// # Errors
/// On 0 ranks.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, blocks, handshake, .. } = shape;
    let p = zero_copy_program("zero_copy", AllToAllV, ranks).runtime_blocks(ranks, ranks);
    among(p, false, |p| {
        met(p, blocks, handshake, |tb, me| {
            for peer in p.peers(me) {
                tb.put(p.input(me).chunk(peer), p.output(peer).chunk(me));
            }
            tb.copy(p.input(me).chunk(me), p.output(me).chunk(me));
        });
    })
}
