//! Scatter: rank r ends with block r of the root's input.

use super::Shape;
use super::common::*;
use super::star::{Star, rooted};
use crate::builder::BuildError;
use crate::model::{Collective::Scatter, Plan};

/// The root sends everyone its block as packets. `blocks` thread blocks (at least 1) share each block of data.
///
/// Right in place, too: what stays on the root is copied onto itself then.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, root, blocks, .. } = shape;
    rooted(packet_program("packets", Scatter, ranks), root, false, |p| {
        let input = p.input(root);
        Star::new(p, root, blocks).root_sends_packets(
            |peer| input.chunk(peer),
            |tb| tb.copy(input.chunk(root), p.output(root).all()),
        );
    })
}

/// Everyone reads its block of the root's input. `blocks` thread blocks (at least 1) share each block of data. Right in
/// place, as [`packets`].
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, root, blocks, .. } = shape;
    rooted(zero_copy_program("zero_copy", Scatter, ranks), root, false, |p| {
        let input = p.input(root);
        Star::new(p, root, blocks).others_transfer(
            |tb| tb.copy(input.chunk(root), p.output(root).all()),
            |tb, me| tb.get(input.chunk(me), p.output(me).all()),
        );
    })
}
