//! Gather: the root ends with the concatenation of all inputs; the others' outputs stay as they are.

use super::common::*;
use crate::builder::BuildError;
use crate::model::{Collective::Gather, Plan};

/// Everyone sends its input to the root as packets.
///
/// The others hear from nobody otherwise, so the root tells them that it has begun: that keeps them from being
/// two launches ahead, where they would overwrite packets that the root has not read. `blocks` thread blocks (at least 1)
/// share each input; the first of each rank tells and listens, since a launch is over when all its blocks are.
///
/// Right in place, too: what stays on the root is copied onto itself then.
pub fn packets(ranks: usize, root: usize, blocks: usize) -> Result<Plan, BuildError> {
    let p = packet_program("packets", Gather, ranks);
    if root >= ranks {
        return without_root(p, root);
    }
    if ranks == 1 {
        return alone(p, false);
    }
    let channels = star(&p, root);
    let inbox = p.scratch(root, ranks - 1);
    let blocks = blocks.max(1);
    for block in 0..blocks {
        let tb = p.block(root).slice(block, blocks);
        if block == 0 {
            tb.signal(&channels);
        }
        tb.copy(p.input(root).all(), p.output(root).chunk(root));
        for peer in p.peers(root) {
            tb.unpack_packets(inbox.chunk(position(root, peer)), p.output(root).chunk(peer));
        }
        for (me, &channel) in p.peers(root).zip(&channels) {
            let tb = p.block(me).slice(block, blocks);
            tb.put_packets(p.input(me).all(), inbox.chunk(position(root, me)));
            if block == 0 {
                tb.wait(&[channel]);
            }
        }
    }
    p.build()
}

/// Everyone writes its input into the root's output. `blocks` thread blocks (at least 1) share each input. Right in place,
/// as [`packets`].
pub fn zero_copy(ranks: usize, root: usize, blocks: usize) -> Result<Plan, BuildError> {
    let p = zero_copy_program("zero_copy", Gather, ranks);
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
        tb.copy(p.input(root).all(), p.output(root).chunk(root));
        tb.wait(&channels);
        for (me, &channel) in p.peers(root).zip(&channels) {
            let tb = p.block(me).slice(block, blocks);
            tb.wait_relaxed(&[channel]);
            tb.put(p.input(me).all(), p.output(root).chunk(me));
            tb.signal(&[channel]);
        }
    }
    p.build()
}
