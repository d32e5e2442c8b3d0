//! Gather: the root ends with the concatenation of all inputs; the others' outputs stay as they are.

use super::Shape;
use super::common::*;
use super::star::{Star, rooted};
use crate::builder::BuildError;
use crate::model::{Collective::Gather, Plan};

/// Everyone sends its input to the root as packets. `blocks` thread blocks (at least 1) share each input.
///
/// Right in place, too: what stays on the root is copied onto itself then.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, root, blocks, .. } = shape;
    rooted(packet_program("packets", Gather, ranks), root, false, |p| {
        let inbox = p.scratch(root, ranks - 1);
        let slot = |peer| inbox.chunk(position(root, peer));
        Star::new(p, root, blocks).others_send_packets(slot, |tb| {
            tb.copy(p.input(root).all(), p.output(root).chunk(root));
            for peer in p.peers(root) {
                tb.unpack_packets(slot(peer), p.output(root).chunk(peer));
            }
        });
    })
}

/// Everyone writes its input into the root's output. `blocks` thread blocks (at least 1) share each input. Right in place,
/// as [`packets`].
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, root, blocks, .. } = shape;
    rooted(zero_copy_program("zero_copy", Gather, ranks), root, false, |p| {
        let output = p.output(root);
        Star::new(p, root, blocks).others_transfer(
            |tb| tb.copy(p.input(root).all(), output.chunk(root)),
            |tb, me| tb.put(p.input(me).all(), output.chunk(me)),
        );
    })
}
