//! Broadcast over several nodes: every rank ends with the root's input.

use super::*;
use crate::model::{Collective::Broadcast, Plan};

/// The root sends its input to its neighbours and its counterparts, and these send it on to their neighbours; all as
/// packets.
///
/// A sender hears from nobody otherwise, so its receivers tell it that they have begun: that keeps it from running two
/// launches ahead, where it would overwrite packets that nobody has read. It sends first and listens then. `blocks` thread
/// blocks (at least 1) share the message.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, root, blocks, .. } = shape;
    let (p, places) = packet_program("packets", Broadcast, (ranks, nodes))?;
    rooted(p, root, in_place, |p| {
        let number = places.number(root);
        // The root's slot holds what its proxies send, the others' slots what they receive.
        let slot = |rank| p.scratch(rank, usize::from(rank != root || nodes > 1));
        let slots: Vec<_> = (0..ranks).map(slot).collect();
        for team in teams(p, blocks) {
            let (spokes, ports) =
                (Links::spokes(p, places, number), Links::root_across(p, places, root));
            for tb in &team {
                let me = tb.rank();
                let (input, output, slot) = (p.input(me).all(), p.output(me).all(), slots[me]);
                let near = spokes.to(me, places.spokes(me, number));
                let below =
                    || places.neighbours(me).map(|peer| slots[peer].all()).collect::<Vec<_>>();
                if me == root {
                    let far = ports.to(me, places.counterparts(me));
                    if nodes > 1 {
                        tb.copy_packets(input, slot.all());
                    }
                    for (port, peer) in far.iter().zip(places.counterparts(me)) {
                        tb.put_packets_over(port, slot.all(), slots[peer].all());
                    }
                    below().into_iter().for_each(|to| tb.put_packets(input, to));
                    keep(tb, input, output, in_place);
                    wait(tb, &near);
                    wait(tb, &far);
                } else if places.number(me) == number {
                    tb.signal(&[ports.between(me, root)]);
                    if !near.is_empty() {
                        tb.read_put_packets(slot.all(), &below());
                    }
                    tb.unpack_packets(slot.all(), output);
                    wait(tb, &near);
                } else {
                    tb.signal(&near);
                    tb.unpack_packets(slot.all(), output);
                }
            }
        }
    })
}

/// The root's neighbours read its input. Number k of that node sends slice k to its counterparts' outputs, and these pass
/// it on to their neighbours. `blocks` thread blocks (at least 1) share each slice.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, nodes, in_place, root, blocks, .. } = shape;
    let (p, places) = zero_copy_program("zero_copy", Broadcast, (ranks, nodes))?;
    let p = p.chunk_counts(places.per_node, places.per_node);
    rooted(p, root, in_place, |p| {
        let at_root = |rank| places.node(rank) == places.node(root);
        for team in teams(p, blocks) {
            let near = |rank| {
                let through_root = move |peer: &usize| rank == root || *peer == root;
                places.neighbours(rank).filter(move |peer| !at_root(rank) || through_root(peer))
            };
            let memory = Links::new(places, near, |a, b| p.channel(a, b));
            let ports = Links::node_across(p, places, root);
            for tb in team {
                let me = tb.rank();
                let seat = Seat {
                    near: memory.to(me, near(me)),
                    far: ports.among(me, places.counterparts(me)),
                    tb,
                    me,
                };
                if at_root(me) {
                    send(p, places, root, in_place, &seat);
                } else {
                    receive(p, places, &seat);
                }
            }
        }
    })
}

/// What a rank of the root's node does: its slice goes out before the rest is read.
fn send(p: &ProgramBuilder, places: Places, root: usize, in_place: bool, seat: &Seat<'_>) {
    let Seat { tb, me, near, far } = seat;
    let (from, to, number) = (p.input(root), p.output(*me), places.number(*me));
    let post = |slice: Chunks| {
        for (port, peer) in far.iter().zip(places.counterparts(*me)) {
            tb.wait_relaxed(&[*port]);
            tb.put_with_signal(port, slice, p.output(peer).chunk(number));
        }
    };
    if *me == root {
        signal_relaxed(tb, near);
        post(from.chunk(number));
        keep(tb, from.all(), to.all(), in_place);
        wait(tb, near);
    } else {
        wait_relaxed(tb, near);
        tb.get(from.chunk(number), to.chunk(number));
        post(to.chunk(number));
        let others = [0..number, number + 1..places.per_node];
        for other in others.into_iter().filter(|other| !other.is_empty()) {
            tb.get(from.chunks(other.clone()), to.chunks(other));
        }
        signal(tb, near);
    }
    flush(tb, far);
}

/// What a rank of another node does: its slice comes over the wire, the others from its neighbours.
fn receive(p: &ProgramBuilder, places: Places, seat: &Seat<'_>) {
    let Seat { tb, me, near, far } = seat;
    let number = places.number(*me);
    signal_relaxed(tb, far);
    signal_relaxed(tb, near);
    wait_relaxed(tb, near);
    wait(tb, far);
    for peer in places.neighbours(*me) {
        tb.put(p.output(*me).chunk(number), p.output(peer).chunk(number));
    }
    signal(tb, near);
    wait(tb, near);
}
