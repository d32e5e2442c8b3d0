//! Broadcast: every rank ends with the root's input.

use super::common::*;
use crate::builder::BuildError;
use crate::model::{Collective::Broadcast, Plan};

/// The root sends its input to everyone as packets.
///
/// The root hears from nobody otherwise, so the others tell it that they have begun: that keeps it from being two
/// launches ahead, where it would overwrite packets that nobody has read. It sends first and listens then. `blocks` thread
/// blocks (at least 1) share the message; the first of each rank tells and listens, since a launch is over when all its
/// blocks are.
pub fn packets(
    ranks: usize,
    in_place: bool,
    root: usize,
    blocks: usize,
) -> Result<Plan, BuildError> {
    let p = packet_program("packets", Broadcast, ranks);
    if root >= ranks {
        return without_root(p, root);
    }
    if ranks == 1 {
        return alone(p, in_place);
    }
    let channels = star(&p, root);
    let inboxes: Vec<_> =
        (0..ranks).map(|rank| p.scratch(rank, usize::from(rank != root))).collect();
    let blocks = blocks.max(1);
    for block in 0..blocks {
        let tb = p.block(root).slice(block, blocks);
        for peer in p.peers(root) {
            tb.put_packets(p.input(root).all(), inboxes[peer].all());
        }
        keep(&tb, p.input(root).all(), p.output(root).all(), in_place);
        if block == 0 {
            tb.wait(&channels);
        }
        for (me, &channel) in p.peers(root).zip(&channels) {
            let tb = p.block(me).slice(block, blocks);
            if block == 0 {
                tb.signal(&[channel]);
            }
            tb.unpack_packets(inboxes[me].all(), p.output(me).all());
        }
    }
    p.in_place(in_place).build()
}

/// Everyone reads the root's input. `blocks` thread blocks (at least 1) share the message.
pub fn zero_copy(
    ranks: usize,
    in_place: bool,
    root: usize,
    blocks: usize,
) -> Result<Plan, BuildError> {
    let p = zero_copy_program("zero_copy", Broadcast, ranks);
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
        tb.signal_relaxed(&channels);
        keep(&tb, p.input(root).all(), p.output(root).all(), in_place);
        tb.wait(&channels);
        for (me, &channel) in p.peers(root).zip(&channels) {
            let tb = p.block(me).slice(block, blocks);
            tb.wait_relaxed(&[channel]);
            tb.get(p.input(root).all(), p.output(me).all());
            tb.signal(&[channel]);
        }
    }
    p.in_place(in_place).build()
}
