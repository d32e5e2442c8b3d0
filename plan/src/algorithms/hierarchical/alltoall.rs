//! Alltoall over several nodes: block r of rank s's input becomes block s of rank r's output.

use super::*;
use crate::model::{Collective::AllToAll, Plan};

/// Everyone gives its neighbour of number k the blocks for the ranks of that number, which the neighbour sends on to
/// them, a node's blocks in one put; all as packets.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, .. } = shape;
    let (p, places) = packet_program("packets", AllToAll, (ranks, nodes))?;
    among(p, in_place, |p| {
        let ports = Links::across(p, places);
        let near = Inboxes::near(p, places, 1);
        // Slots by counterpart, with one chunk for every rank of the sending node.
        let relays = Inboxes::far(p, places, places.per_node);
        let far = Inboxes::far(p, places, places.per_node);
        for me in 0..ranks {
            let tb = p.block(me);
            let (input, output) = (p.input(me), p.output(me));
            for step in 1..nodes {
                for relay in places.of_node(me) {
                    let to = places.counterpart(relay, step);
                    let slot = relays.chunk(relay, to, places.number(me));
                    if relay == me {
                        tb.copy_packets(input.chunk(to), slot);
                    } else {
                        tb.put_packets(input.chunk(to), slot);
                    }
                }
            }
            for peer in places.neighbours(me) {
                tb.put_packets(input.chunk(peer), near.slot(peer, me));
            }
            keep(&tb, input.chunk(me), output.chunk(me), in_place);
            for peer in places.counterparts(me) {
                let port = ports.between(me, peer);
                tb.read_put_packets_over(&port, relays.slot(me, peer), far.slot(peer, me));
            }
            for peer in places.neighbours(me) {
                tb.unpack_packets(near.slot(me, peer), output.chunk(peer));
            }
            for peer in places.counterparts(me) {
                tb.unpack_packets(far.slot(me, peer), output.chunks(places.range_of(peer)));
            }
            // The neighbours write into the relay again when this rank has answered them, which it may before its
            // counterparts have: what they received comes round by packets that are forwarded, and those order nothing.
            flush(&tb, &ports.to(me, places.counterparts(me)));
        }
    })
}

/// As [`packets`], with plain stores and one signal for each node's blocks; the counterparts' blocks go straight
/// into outputs, or, in place, into scratch first, because what they would overwrite may not have been sent.
///
/// `blocks` thread blocks (at least 1) share each block of data.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, blocks, .. } = shape;
    let (p, places) = zero_copy_program("zero_copy", AllToAll, (ranks, nodes))?;
    among(p, in_place, |p| {
        let relays = Inboxes::far(p, places, places.per_node);
        let inboxes = in_place
            .then(|| (Inboxes::near(p, places, 1), Inboxes::far(p, places, places.per_node)));
        for Seat { tb, me, near, far } in seats(p, places, blocks) {
            let (input, output) = (p.input(me), p.output(me));
            // Relays and inboxes are scratch, which the launch before has read.
            signal(&tb, &far);
            signal(&tb, &near);
            wait(&tb, &near);
            for step in 1..nodes {
                for relay in places.of_node(me) {
                    let to = places.counterpart(relay, step);
                    let slot = relays.chunk(relay, to, places.number(me));
                    if relay == me {
                        tb.copy(input.chunk(to), slot);
                    } else {
                        tb.put(input.chunk(to), slot);
                    }
                }
            }
            for peer in places.neighbours(me) {
                let to = match &inboxes {
                    Some((near, _)) => near.slot(peer, me),
                    None => p.output(peer).chunk(me),
                };
                tb.put(input.chunk(peer), to);
            }
            keep(&tb, input.chunk(me), output.chunk(me), in_place);
            signal(&tb, &near);
            wait(&tb, &near);
            for (port, peer) in far.iter().zip(places.counterparts(me)) {
                tb.wait(&[*port]);
                let mut pairs = Vec::new();
                for (position, from) in places.of_node(me).enumerate() {
                    let to = match &inboxes {
                        Some((_, far)) => far.chunk(peer, me, position),
                        None => p.output(peer).chunk(from),
                    };
                    pairs.push((relays.chunk(me, peer, position), to));
                }
                if blocks <= 1 {
                    let to = match &inboxes {
                        Some((_, far)) => far.slot(peer, me),
                        None => p.output(peer).chunks(places.range_of(me)),
                    };
                    pairs = vec![(relays.slot(me, peer), to)];
                }
                // A block has its slice of every chunk, so that what it sends is in pieces.
                let Some((last, first)) = pairs.split_last() else { continue };
                for &(from, to) in first {
                    tb.put_over(port, from, to);
                    // One thread posts all, in this order: puts that became one would be posted by several.
                    tb.nop();
                }
                tb.put_with_signal(port, last.0, last.1);
            }
            if let Some((near, _)) = &inboxes {
                for peer in places.neighbours(me) {
                    tb.copy(near.slot(me, peer), output.chunk(peer));
                }
            }
            for (port, peer) in far.iter().zip(places.counterparts(me)) {
                tb.wait(&[*port]);
                if let Some((_, inbox)) = &inboxes {
                    for (position, from) in places.of_node(peer).enumerate() {
                        tb.copy(inbox.chunk(me, peer, position), output.chunk(from));
                    }
                }
            }
            flush(&tb, &far);
        }
    })
}
