//! Allgather over several nodes: every rank ends with the concatenation of all inputs.

use super::*;
use crate::model::{Collective::AllGather, Plan};

/// Everyone sends its input to its counterparts and its neighbours, and forwards to its neighbours what its counterparts
/// sent; all as packets. `blocks` thread blocks (at least 1) share each input.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, blocks, .. } = shape;
    let (p, places) = packet_program("packets", AllGather, (ranks, nodes))?;
    among(p, in_place, |p| {
        let packed: Vec<_> =
            (0..ranks).map(|rank| p.scratch(rank, usize::from(nodes > 1))).collect();
        let near = Inboxes::near(p, places, 1);
        let far = Inboxes::far(p, places, 1);
        // By the node that it comes from, then by neighbour.
        let forwarded: Vec<_> = (1..nodes).map(|_| Inboxes::near(p, places, 1)).collect();
        for team in teams(p, blocks) {
            let ports = Links::across(p, places);
            for (tb, packed) in team.iter().zip(packed.iter()) {
                let me = tb.rank();
                let (input, output) = (p.input(me).all(), p.output(me));
                if nodes > 1 {
                    tb.copy_packets(input, packed.all());
                }
                for peer in places.counterparts(me) {
                    tb.put_packets_over(&ports.between(me, peer), packed.all(), far.slot(peer, me));
                }
                for peer in places.neighbours(me) {
                    tb.put_packets(input, near.slot(peer, me));
                }
                keep(tb, input, output.chunk(me), in_place);
                for (from, forwarded) in places.counterparts(me).zip(&forwarded) {
                    let slots = places.neighbours(me).map(|peer| forwarded.slot(peer, me));
                    let slots: Vec<_> = slots.collect();
                    if !slots.is_empty() {
                        tb.read_put_packets(far.slot(me, from), &slots);
                    }
                    tb.unpack_packets(far.slot(me, from), output.chunk(from));
                }
                for peer in places.neighbours(me) {
                    tb.unpack_packets(near.slot(me, peer), output.chunk(peer));
                    for (from, forwarded) in places.counterparts(peer).zip(&forwarded) {
                        tb.unpack_packets(forwarded.slot(me, peer), output.chunk(from));
                    }
                }
            }
        }
    })
}

/// Everyone writes its input into the outputs of its counterparts and its neighbours, and passes on to its neighbours
/// what its counterparts sent. `blocks` thread blocks (at least 1) share each input.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, blocks, .. } = shape;
    let (p, places) = zero_copy_program("zero_copy", AllGather, (ranks, nodes))?;
    among(p, in_place, |p| {
        for Seat { tb, me, near, far } in seats(p, places, blocks) {
            let (input, output) = (p.input(me).all(), p.output(me));
            signal_relaxed(&tb, &far);
            signal_relaxed(&tb, &near);
            wait_relaxed(&tb, &near);
            for (port, peer) in far.iter().zip(places.counterparts(me)) {
                tb.wait_relaxed(&[*port]);
                tb.put_with_signal(port, input, p.output(peer).chunk(me));
            }
            for peer in places.neighbours(me) {
                tb.put(input, p.output(peer).chunk(me));
            }
            keep(&tb, input, output.chunk(me), in_place);
            for (port, from) in far.iter().zip(places.counterparts(me)) {
                tb.wait(&[*port]);
                for peer in places.neighbours(me) {
                    tb.put(output.chunk(from), p.output(peer).chunk(from));
                }
            }
            flush(&tb, &far);
            signal(&tb, &near);
            wait(&tb, &near);
        }
    })
}
