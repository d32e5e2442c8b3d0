//! Scatter: rank r ends with block r of the root's input.

use super::common::*;
use crate::builder::BuildError;
use crate::model::{Collective::Scatter, Plan};

/// The root sends everyone its block as packets.
///
/// The root hears from nobody otherwise, so the others tell it that they have begun: that keeps it from being two
/// launches ahead, where it would overwrite packets that nobody has read. It sends first and listens then. `blocks` thread
/// blocks (at least 1) share each block of data; the first of each rank tells and listens, since a launch is over when all
/// its blocks are.
///
/// Right in place, too: what stays on the root is copied onto itself then.
pub fn packets(ranks: usize, root: usize, blocks: usize) -> Result<Plan, BuildError> {
    let p = packet_program("packets", Scatter, ranks);
    if root >= ranks {
        return without_root(p, root);
    }
    if ranks == 1 {
        return alone(p, false);
    }
    let channels = star(&p, root);
    let inboxes: Vec<_> =
        (0..ranks).map(|rank| p.scratch(rank, usize::from(rank != root))).collect();
    let blocks = blocks.max(1);
    for block in 0..blocks {
        let tb = p.block(root).slice(block, blocks);
        for peer in p.peers(root) {
            tb.put_packets(p.input(root).chunk(peer), inboxes[peer].all());
        }
        tb.copy(p.input(root).chunk(root), p.output(root).all());
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
    p.build()
}

/// Everyone reads its block of the root's input. `blocks` thread blocks (at least 1) share each block of data. Right in
/// place, as [`packets`].
pub fn zero_copy(ranks: usize, root: usize, blocks: usize) -> Result<Plan, BuildError> {
    let p = zero_copy_program("zero_copy", Scatter, ranks);
    if root >= ranks {
        return without_root(p, root);
    }
    if ranks == 1 {
        return alone(p, false);
    }
    let blocks = blocks.max(1);
    for block in 0..blocks {
        let channels = star(&p, root);
        let tb = p.block(root).slice(block, blocks);
        tb.signal_relaxed(&channels);
        tb.copy(p.input(root).chunk(root), p.output(root).all());
        tb.wait(&channels);
        for (me, &channel) in p.peers(root).zip(&channels) {
            let tb = p.block(me).slice(block, blocks);
            tb.wait_relaxed(&[channel]);
            tb.get(p.input(root).chunk(me), p.output(me).all());
            tb.signal(&[channel]);
        }
    }
    p.build()
}
