//! Allgatherv: every rank ends with the inputs of all ranks, and every input has a length of its own.

use super::Shape;
use super::common::*;
use super::meeting::*;
use crate::builder::BuildError;
use crate::model::{Collective::AllGatherV, Plan};

/// Everyone writes its input into everyone's output. In place, a rank's input is its own block of its output.
///
/// A call says how many elements the rank sends, as one block, and for every rank how many come from it; `blocks`
/// thread blocks (at least 1) share each of them.
///
/// # Errors
/// On 0 ranks.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, blocks, handshake, .. } = shape;
    let p = zero_copy_program("zero_copy", AllGatherV, ranks).runtime_blocks(1, ranks);
    among(p, in_place, |p| {
        met(p, blocks, handshake, |tb, me| {
            for peer in p.peers(me) {
                tb.put(p.input(me).all(), p.output(peer).chunk(me));
            }
            // In place this moves nothing, but sees that both lengths agree.
            tb.copy(p.input(me).all(), p.output(me).chunk(me));
        });
    })
}
