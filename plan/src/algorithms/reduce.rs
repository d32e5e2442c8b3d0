//! Reduce: the root ends with the reduction of all inputs; the others' outputs stay as they are.

use super::Shape;
use super::common::*;
use super::star::{Star, rooted};
use crate::builder::BuildError;
use crate::model::{Collective::Reduce, Plan};

/// Everyone sends its input to the root as packets; the root reduces them in rank order. `blocks` thread blocks (at least 1)
/// share the message.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, root, blocks, .. } = shape;
    rooted(packet_program("packets", Reduce, ranks), root, in_place, |p| {
        let inboxes = Inboxes::new(p);
        let reduction = Reduction::new(p, &inboxes, root);
        Star::new(p, root, blocks).others_send_packets(
            |me| inboxes.slot(root, me),
            |tb| reduction.reduce(tb, p.input(root).all(), p.output(root).all()),
        );
    })
}

/// The root reads all inputs and reduces them in rank order. `blocks` thread blocks (at least 1) share the message.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, root, blocks, .. } = shape;
    rooted(zero_copy_program("zero_copy", Reduce, ranks), root, in_place, |p| {
        let inputs: Vec<_> = (0..ranks).map(|rank| p.input(rank).all()).collect();
        Star::new(p, root, blocks).root_transfers(|tb| tb.reduce(&inputs, p.output(root).all()));
    })
}
