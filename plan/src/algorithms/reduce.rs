//! Reduce: the root ends with the reduction of all inputs; the others' outputs stay as they are.

use super::common::*;
use crate::builder::BuildError;
use crate::model::{Collective::Reduce, Plan};

/// Everyone sends its input to the root as packets; the root reduces them in rank order.
///
/// The others hear from nobody otherwise, so the root tells them that it has begun: that keeps them from being
/// two launches ahead, where they would overwrite packets that the root has not read. `blocks` thread blocks (at least 1)
/// share the message; the first of each rank tells and listens, since a launch is over when all its blocks are.
pub fn packets(
    ranks: usize,
    in_place: bool,
    root: usize,
    blocks: usize,
) -> Result<Plan, BuildError> {
    let p = packet_program("packets", Reduce, ranks);
    if root >= ranks {
        return without_root(p, root);
    }
    if ranks == 1 {
        return alone(p, in_place);
    }
    let channels = star(&p, root);
    let inboxes = Inboxes::new(&p);
    let reduction = Reduction::new(&p, &inboxes, root);
    let blocks = blocks.max(1);
    for block in 0..blocks {
        let tb = p.block(root).slice(block, blocks);
        if block == 0 {
            tb.signal(&channels);
        }
        reduction.reduce(&tb, blocks, p.input(root).all(), p.output(root).all());
        for (me, &channel) in p.peers(root).zip(&channels) {
            let tb = p.block(me).slice(block, blocks);
            tb.put_packets(p.input(me).all(), inboxes.slot(root, me));
            if block == 0 {
                tb.wait(&[channel]);
            }
        }
    }
    p.in_place(in_place).build()
}

/// The root reads all inputs and reduces them in rank order. `blocks` thread blocks (at least 1) share the message.
pub fn zero_copy(
    ranks: usize,
    in_place: bool,
    root: usize,
    blocks: usize,
) -> Result<Plan, BuildError> {
    let p = zero_copy_program("zero_copy", Reduce, ranks);
    if root >= ranks {
        return without_root(p, root);
    }
    if ranks == 1 {
        return alone(p, in_place);
    }
    let blocks = blocks.max(1);
    for block in 0..blocks {
        let channels = star(&p, root);
        let tb = p.block(root).slice(block, blocks);
        let inputs: Vec<_> = (0..ranks).map(|rank| p.input(rank).all()).collect();
        tb.wait_relaxed(&channels);
        tb.reduce(&inputs, p.output(root).all());
        tb.signal(&channels);
        for (me, &channel) in p.peers(root).zip(&channels) {
            let tb = p.block(me).slice(block, blocks);
            tb.signal_relaxed(&[channel]);
            tb.wait(&[channel]);
        }
    }
    p.in_place(in_place).build()
}
