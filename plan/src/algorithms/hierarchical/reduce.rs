//! Reduce over several nodes: the root ends with the reduction of all inputs; the others' outputs stay as they are.

use super::*;
use crate::model::{Collective::Reduce, Plan};

/// The rank of the root's number on each node collects its node's inputs and sends their sum to the root; all as packets.
///
/// A sender hears from nobody otherwise, so its receivers tell it that they have begun: that keeps it from running two
/// launches ahead, where it would overwrite packets that nobody has read. `blocks` thread blocks (at least 1) share the
/// message.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, root, blocks, .. } = shape;
    let (p, places) = packet_program("packets", Reduce, (ranks, nodes))?;
    rooted(p, root, in_place, |p| {
        let number = places.number(root);
        let collects = |rank| places.number(rank) == number;
        let group = (places.per_node, 1);
        let inputs = Inboxes::new(p, places, group, Places::number, collects);
        let sums = Inboxes::far_among(p, places, |rank| rank == root);
        // What proxies send.
        let packed = |rank| p.scratch(rank, usize::from(collects(rank) && rank != root));
        let packed: Vec<_> = (0..ranks).map(packed).collect();
        let others = places.per_node - 1;
        // The unpacked inputs, and behind them their sum.
        let room = if others > 1 { others } else { 0 };
        let raw = |me| match (me == root, collects(me) && others > 0) {
            (true, _) => raw_for(p, me, others, nodes - 1),
            (false, true) => raw(p, me, room + 1),
            (false, false) => raw(p, me, 0),
        };
        let raws: Vec<_> = (0..ranks).map(raw).collect();
        for team in teams(p, blocks) {
            let (spokes, ports) =
                (Links::spokes(p, places, number), Links::root_across(p, places, root));
            for (tb, (packed, &raw)) in team.iter().zip(packed.iter().zip(&raws)) {
                let me = tb.rank();
                let (input, near) = (p.input(me).all(), spokes.to(me, places.spokes(me, number)));
                if me == root {
                    let far = ports.to(me, places.counterparts(me));
                    signal(tb, &near);
                    signal(tb, &far);
                    let (mut sum, output) = (input, p.output(me).all());
                    if others > 0 {
                        reduce_packets(tb, inputs.all(me), number, sum, raw, output);
                        sum = output;
                    }
                    if nodes > 1 {
                        reduce_packets(tb, sums.all(me), places.node(me), sum, raw, output);
                    }
                } else if collects(me) {
                    signal(tb, &near);
                    let mut sum = input;
                    if others > 0 {
                        let to = raw.chunk(room);
                        reduce_packets(tb, inputs.all(me), number, sum, raw.part(0..room), to);
                        sum = to;
                    }
                    let port = ports.between(me, root);
                    tb.copy_packets(sum, packed.all());
                    tb.put_packets_over(&port, packed.all(), sums.slot(root, me));
                    tb.wait(&[port]);
                } else {
                    let to = inputs.slot(places.rank(places.node(me), number), me);
                    tb.put_packets(input, to);
                    tb.wait(&near);
                }
            }
        }
    })
}

/// Rank number k of each node reads slice k of its node's inputs. On the root's node it adds to that what its counterparts
/// send, and writes the result to the root's output. `blocks` thread blocks (at least 1) share each slice.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, root, blocks, .. } = shape;
    let (p, places) = zero_copy_program("zero_copy", Reduce, (ranks, nodes))?;
    let p = p.chunk_counts(places.per_node, places.per_node);
    rooted(p, root, in_place, |p| {
        let at_root = |rank| places.node(rank) == places.node(root);
        let inboxes = Inboxes::far_among(p, places, at_root);
        // The outputs of all but the root stay as they are.
        let sum = |rank| p.scratch(rank, usize::from(rank != root && places.per_node > 1));
        let sums: Vec<_> = (0..ranks).map(sum).collect();
        for team in teams(p, blocks) {
            let memory = Links::inside(p, places);
            let ports = Links::node_across(p, places, root);
            for (tb, sum) in team.iter().zip(sums.iter()) {
                let me = tb.rank();
                let number = places.number(me);
                let near = memory.to(me, places.neighbours(me));
                let far = ports.among(me, places.counterparts(me));
                let inputs: Vec<_> =
                    places.of_node(me).map(|rank| p.input(rank).chunk(number)).collect();
                if at_root(me) {
                    // The inbox is scratch, which the launch before has read.
                    signal(tb, &far);
                }
                signal_relaxed(tb, &near);
                wait_relaxed(tb, &near);
                if at_root(me) {
                    let result = p.output(root).chunk(number);
                    let to = if me == root { result } else { sum.all() };
                    let mut sources = inputs;
                    if nodes > 1 {
                        let own = match sources[..] {
                            [own] => own,
                            _ => {
                                tb.reduce(&sources, to);
                                to
                            }
                        };
                        tb.wait(&far);
                        let of = |node| inboxes.slot(me, places.rank(node, number));
                        sources = places.in_node_order(me, own, of).collect();
                    }
                    if me == root {
                        tb.reduce(&sources, result);
                    } else {
                        tb.reduce_send(&sources, to, &[result]);
                    }
                } else {
                    let own = match inputs[..] {
                        [own] => own,
                        _ => {
                            tb.reduce(&inputs, sum.all());
                            sum.all()
                        }
                    };
                    let to = inboxes.slot(places.rank(places.node(root), number), me);
                    tb.wait(&far);
                    far.iter().for_each(|port| tb.put_with_signal(port, own, to));
                    flush(tb, &far);
                }
                signal(tb, &near);
                wait(tb, &near);
            }
        }
    })
}
