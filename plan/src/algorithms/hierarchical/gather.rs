//! Gather over several nodes: the root ends with the concatenation of all inputs; the others' outputs stay as they are.

use super::*;
use crate::model::{Collective::Gather, Plan};

/// The rank of the root's number on each other node collects its node's inputs and sends them on to the root, in one put; all
/// as packets. `blocks` thread blocks (at least 1) share each input, and put it by itself if they are several.
///
/// A sender hears from nobody otherwise, so its receivers tell it that they have begun: that keeps it from running two
/// launches ahead, where it would overwrite packets that nobody has read.
///
/// Right in place, too: what stays on the root is copied onto itself then.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, root, blocks, .. } = shape;
    let (p, places) = packet_program("packets", Gather, (ranks, nodes))?;
    rooted(p, root, false, |p| {
        let (number, per_node) = (places.number(root), places.per_node);
        let (output, at_root) = (p.output(root), |rank| rank == root);
        let near = Inboxes::new(p, places, (per_node, 1), Places::number, at_root);
        let far = Inboxes::new(p, places, (nodes, per_node), Places::node, at_root);
        let collects = |rank| places.number(rank) == number && rank != root;
        let collected = |rank| p.scratch(rank, if collects(rank) { per_node } else { 0 });
        let collected: Vec<_> = (0..ranks).map(collected).collect();
        for team in teams(p, blocks) {
            let (spokes, ports) =
                (Links::spokes(p, places, number), Links::root_across(p, places, root));
            for tb in &team {
                let me = tb.rank();
                let input = p.input(me).all();
                let neighbours = spokes.to(me, places.spokes(me, number));
                if me == root {
                    signal(tb, &neighbours);
                    signal(tb, &ports.to(me, places.counterparts(me)));
                    tb.copy(input, output.chunk(me));
                    for peer in places.neighbours(me) {
                        tb.unpack_packets(near.slot(me, peer), output.chunk(peer));
                    }
                    for peer in places.counterparts(me) {
                        let to = output.part(places.range_of(peer));
                        for (from, to) in pieces(tb, far.slots(me, peer), to) {
                            tb.unpack_packets(from, to);
                        }
                    }
                } else if collects(me) {
                    let port = ports.between(me, root);
                    signal(tb, &neighbours);
                    tb.copy_packets(input, collected[me].chunk(number));
                    for (from, to) in pieces(tb, collected[me], far.slots(root, me)) {
                        tb.read_put_packets_over(&port, from, to);
                    }
                    tb.wait(&[port]);
                    // The neighbours write here again when this rank has answered them, which it may before the root has.
                    tb.flush(&[port]);
                } else {
                    let to = match places.node(me) == places.node(root) {
                        true => near.slot(root, me),
                        false => {
                            let relay = places.rank(places.node(me), number);
                            collected[relay].chunk(places.number(me))
                        }
                    };
                    tb.put_packets(input, to);
                    tb.wait(&neighbours);
                }
            }
        }
    })
}

/// Rank number k of each other node puts its input to number k of the root's node, which writes it into the root's output; that
/// of the root's number puts it there itself. `blocks` thread blocks (at least 1) share each input. Right in place, as
/// [`packets`].
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, root, blocks, .. } = shape;
    let (p, places) = zero_copy_program("zero_copy", Gather, (ranks, nodes))?;
    rooted(p, root, false, |p| {
        let at_root = |rank| places.node(rank) == places.node(root);
        let inboxes = Inboxes::far_among(p, places, |rank| at_root(rank) && rank != root);
        let (output, number) = (p.output(root), places.number(root));
        for team in teams(p, blocks) {
            let spokes = Links::spokes_of(p, places, root);
            let ports = Links::node_across(p, places, root);
            for tb in &team {
                let me = tb.rank();
                let input = p.input(me).all();
                let near = spokes.among(me, places.spokes(me, number));
                let far = ports.among(me, places.counterparts(me));
                if me == root {
                    signal_relaxed(tb, &far);
                    signal_relaxed(tb, &near);
                    tb.copy(input, output.chunk(me));
                    wait(tb, &far);
                    wait(tb, &near);
                } else if at_root(me) {
                    // The inbox is scratch, which the launch before has read.
                    signal(tb, &far);
                    wait_relaxed(tb, &near);
                    tb.put(input, output.chunk(me));
                    for (port, peer) in far.iter().zip(places.counterparts(me)) {
                        tb.wait(&[*port]);
                        tb.put(inboxes.slot(me, peer), output.chunk(peer));
                    }
                    signal(tb, &near);
                } else {
                    let relay = places.rank(places.node(root), places.number(me));
                    let to = match relay == root {
                        true => output.chunk(me),
                        false => inboxes.slot(relay, me),
                    };
                    wait(tb, &far);
                    far.iter().for_each(|port| tb.put_with_signal(port, input, to));
                    flush(tb, &far);
                }
            }
        }
    })
}
