//! Scatter over several nodes: rank r ends with block r of the root's input.

use super::*;
use crate::model::{Collective::Scatter, Plan};

/// The root sends each counterpart the blocks of its node in one put, and these pass them on to their neighbours; all as packets.
/// `blocks` thread blocks (at least 1) share each block of data, and put it by itself if they are several.
///
/// A sender hears from nobody otherwise, so its receivers tell it that they have begun: that keeps it from running two
/// launches ahead, where it would overwrite packets that nobody has read. It sends first and listens then.
///
/// Right in place, too: what stays on the root is copied onto itself then.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, root, blocks, .. } = shape;
    let (p, places) = packet_program("packets", Scatter, (ranks, nodes))?;
    rooted(p, root, false, |p| {
        let (number, per_node) = (places.number(root), places.per_node);
        // What proxies send.
        let packed = Inboxes::new(p, places, (nodes, per_node), Places::node, |rank| rank == root);
        let passes_on = |rank| places.number(rank) == number && rank != root;
        let slots = |rank| match (rank == root, passes_on(rank)) {
            (true, _) => 0,
            (_, true) => per_node,
            _ => 1,
        };
        let inboxes: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, slots(rank))).collect();
        for team in teams(p, blocks) {
            let (spokes, ports) =
                (Links::spokes(p, places, number), Links::root_across(p, places, root));
            for tb in &team {
                let me = tb.rank();
                let (input, output, inbox) = (p.input(me), p.output(me).all(), inboxes[me]);
                let near = spokes.to(me, places.spokes(me, number));
                if me == root {
                    let far = ports.to(me, places.counterparts(me));
                    for (port, peer) in far.iter().zip(places.counterparts(me)) {
                        let (from, packed) =
                            (input.part(places.range_of(peer)), packed.slots(me, peer));
                        let copied = pieces(tb, from, packed).into_iter();
                        // Put one by one: puts that became one would be posted by several threads.
                        for ((from, packed), (_, to)) in
                            copied.zip(pieces(tb, packed, inboxes[peer]))
                        {
                            tb.copy_packets(from, packed);
                            tb.put_packets_over(port, packed, to);
                        }
                    }
                    for peer in places.neighbours(me) {
                        tb.put_packets(input.chunk(peer), inboxes[peer].all());
                    }
                    tb.copy(input.chunk(me), output);
                    wait(tb, &near);
                    wait(tb, &far);
                } else if passes_on(me) {
                    tb.signal(&[ports.between(me, root)]);
                    for peer in places.neighbours(me) {
                        let from = inbox.chunk(places.number(peer));
                        tb.read_put_packets(from, &[inboxes[peer].all()]);
                    }
                    tb.unpack_packets(inbox.chunk(number), output);
                    wait(tb, &near);
                } else {
                    signal(tb, &near);
                    tb.unpack_packets(inbox.all(), output);
                }
            }
        }
    })
}

/// Rank number k of the root's node reads the blocks for all ranks of that number, and puts them to its counterparts' outputs.
/// `blocks` thread blocks (at least 1) share each block of data. Right in place, as [`packets`].
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, root, blocks, .. } = shape;
    let (p, places) = zero_copy_program("zero_copy", Scatter, (ranks, nodes))?;
    rooted(p, root, false, |p| {
        let at_root = |rank| places.node(rank) == places.node(root);
        // What proxies send; from the root they send its input.
        let read = Inboxes::far_among(p, places, |rank| at_root(rank) && rank != root);
        let (input, number) = (p.input(root), places.number(root));
        for team in teams(p, blocks) {
            let spokes = Links::spokes_of(p, places, root);
            let ports = Links::node_across(p, places, root);
            for tb in &team {
                let me = tb.rank();
                let output = p.output(me).all();
                let near = spokes.among(me, places.spokes(me, number));
                let far = ports.among(me, places.counterparts(me));
                if !at_root(me) {
                    signal_relaxed(tb, &far);
                    wait(tb, &far);
                    continue;
                }
                if me == root {
                    signal_relaxed(tb, &near);
                } else {
                    wait_relaxed(tb, &near);
                }
                for (port, peer) in far.iter().zip(places.counterparts(me)) {
                    let mut block = input.chunk(peer);
                    if me != root {
                        tb.get(block, read.slot(me, peer));
                        block = read.slot(me, peer);
                    }
                    tb.wait_relaxed(&[*port]);
                    tb.put_with_signal(port, block, p.output(peer).all());
                }
                if me == root {
                    tb.copy(input.chunk(me), output);
                    wait(tb, &near);
                } else {
                    tb.get(input.chunk(me), output);
                    signal(tb, &near);
                }
                flush(tb, &far);
            }
        }
    })
}
