//! Broadcast: every rank ends with the root's input.

use super::Shape;
use super::common::*;
use super::star::{Star, rooted};
use crate::builder::BuildError;
use crate::model::{Collective::Broadcast, Plan};

/// The root sends its input to everyone as packets. `blocks` thread blocks (at least 1) share the message.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, root, blocks, .. } = shape;
    rooted(packet_program("packets", Broadcast, ranks), root, in_place, |p| {
        let input = p.input(root).all();
        Star::new(p, root, blocks)
            .root_sends_packets(|_| input, |tb| keep(tb, input, p.output(root).all(), in_place));
    })
}

/// Everyone reads the root's input. `blocks` thread blocks (at least 1) share the message.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, root, blocks, .. } = shape;
    rooted(zero_copy_program("zero_copy", Broadcast, ranks), root, in_place, |p| {
        let input = p.input(root).all();
        Star::new(p, root, blocks).others_transfer(
            |tb| keep(tb, input, p.output(root).all(), in_place),
            |tb, me| tb.get(input, p.output(me).all()),
        );
    })
}
