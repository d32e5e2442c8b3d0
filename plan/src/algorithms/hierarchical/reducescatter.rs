//! Reducescatter over several nodes: rank r ends with block r of the reduction of all inputs.

use super::*;
use crate::model::{Collective::ReduceScatter, Plan};

/// Rank number k of each node adds up its node's blocks for the ranks of that number, sends the sums to its counterparts
/// and adds up theirs; all as packets. `blocks` thread blocks (at least 1) share each block of data.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, blocks, .. } = shape;
    let (p, places) = packet_program("packets", ReduceScatter, (ranks, nodes))?;
    among(p, in_place, |p| {
        // A slot has the blocks for one number's ranks, by node.
        let near = Inboxes::near(p, places, nodes);
        let packed = Inboxes::far(p, places, 1);
        let far = Inboxes::far(p, places, 1);
        let others = places.per_node - 1;
        // The sums for the counterparts, the unpacked blocks of the neighbours, and the unpacked sums of counterparts.
        let sizes = [
            if others > 0 { nodes - 1 } else { 0 },
            if others > 1 { others * nodes } else { 0 },
            if nodes > 2 { nodes - 1 } else { 0 },
        ];
        let raws: Vec<_> = (0..ranks).map(|me| raw(p, me, sizes.iter().sum())).collect();
        for team in teams(p, blocks) {
            let ports = Links::across(p, places);
            for (tb, raw) in team.iter().zip(raws.iter()) {
                let me = tb.rank();
                let (input, output) = (p.input(me), p.output(me).all());
                for peer in places.neighbours(me) {
                    for node in 0..nodes {
                        let block = input.chunk(places.rank(node, places.number(peer)));
                        tb.put_packets(block, near.chunk(peer, me, node));
                    }
                }
                let unpacked = sizes[0];
                if others > 1 {
                    unpack(tb, near.all(me), raw.part(unpacked..unpacked + sizes[1]));
                }
                let sum = |of: usize, to: Chunks| {
                    let (own, node) = (input.chunk(of), places.node(of));
                    match others {
                        0 => return own,
                        // A sum of two is the same either way round (but for which of two NaNs it is).
                        1 => {
                            let slots =
                                places.neighbours(me).map(|peer| near.chunk(me, peer, node));
                            tb.reduce_packets(own, &slots.collect::<Vec<_>>(), to);
                        }
                        _ => {
                            let block = |other| raw.chunk(unpacked + other * nodes + node);
                            let mut sources: Vec<_> = (0..others).map(block).collect();
                            sources.insert(places.number(me), own);
                            tb.reduce(&sources, to);
                        }
                    }
                    to
                };
                for (position, peer) in places.counterparts(me).enumerate() {
                    let room = if others > 0 { raw.chunk(position) } else { output };
                    let packed = packed.slot(me, peer);
                    tb.copy_packets(sum(peer, room), packed);
                    tb.put_packets_over(&ports.between(me, peer), packed, far.slot(peer, me));
                }
                let own = sum(me, output);
                if nodes > 1 {
                    let first = sizes[0] + sizes[1];
                    let raw = raw.part(first..first + sizes[2]);
                    reduce_packets(tb, far.all(me), places.node(me), own, raw, output);
                }
            }
        }
    })
}

/// Rank number k of each node reads its node's blocks for the ranks of that number, sends the sums to its counterparts
/// and adds up theirs. `blocks` thread blocks (at least 1) share each block of data.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, blocks, .. } = shape;
    let (p, places) = zero_copy_program("zero_copy", ReduceScatter, (ranks, nodes))?;
    among(p, in_place, |p| {
        let sums = (places.per_node > 1).then(|| Inboxes::far(p, places, 1));
        let inboxes = Inboxes::far(p, places, 1);
        for Seat { tb, me, near, far } in seats(p, places, blocks) {
            let output = p.output(me).all();
            let inputs = |of: usize| {
                places.of_node(me).map(|rank| p.input(rank).chunk(of)).collect::<Vec<_>>()
            };
            // The inbox is scratch, which the launch before has read.
            signal(&tb, &far);
            signal_relaxed(&tb, &near);
            wait_relaxed(&tb, &near);
            for (port, peer) in far.iter().zip(places.counterparts(me)) {
                let mut sum = p.input(me).chunk(peer);
                if let Some(sums) = &sums {
                    sum = sums.slot(me, peer);
                    tb.reduce(&inputs(peer), sum);
                }
                tb.wait(&[*port]);
                tb.put_with_signal(port, sum, inboxes.slot(peer, me));
            }
            let mut own = p.input(me).chunk(me);
            if sums.is_some() {
                own = output;
                tb.reduce(&inputs(me), own);
            }
            if nodes > 1 {
                tb.wait(&far);
                let of = |node| inboxes.slot(me, places.rank(node, places.number(me)));
                tb.reduce(&places.in_node_order(me, own, of).collect::<Vec<_>>(), output);
            }
            flush(&tb, &far);
            signal(&tb, &near);
            wait(&tb, &near);
        }
    })
}
