//! Broadcast: every rank ends with the root's input.

use super::common::*;
use super::star::{Star, rooted};
use crate::builder::BuildError;
use crate::model::{Collective::Broadcast, Plan};

/// The root sends its input to everyone as packets. `blocks` thread blocks (at least 1) share the message.
pub fn packets(
    ranks: usize,
    in_place: bool,
    root: usize,
    blocks: usize,
) -> Result<Plan, BuildError> {
    rooted(packet_program("packets", Broadcast, ranks), root, in_place, |p| {
        let input = p.input(root).all();
        Star::new(p, root, blocks)
            .root_sends_packets(|_| input, |tb| keep(tb, input, p.output(root).all(), in_place));
    })
}

/// Everyone reads the root's input. `blocks` thread blocks (at least 1) share the message.
pub fn zero_copy(
    ranks: usize,
    in_place: bool,
    root: usize,
    blocks: usize,
) -> Result<Plan, BuildError> {
    rooted(zero_copy_program("zero_copy", Broadcast, ranks), root, in_place, |p| {
        let input = p.input(root).all();
        Star::new(p, root, blocks).others_transfer(
            |tb| keep(tb, input, p.output(root).all(), in_place),
            |tb, me| tb.get(input, p.output(me).all()),
        );
    })
}
