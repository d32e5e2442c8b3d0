//! Allreduce: every rank ends with the reduction of all inputs.

use super::Shape;
use super::common::*;
use super::meeting::*;
use super::star::{Star, rooted};
use crate::builder::{Block, BuildError};
use crate::model::{Buffer, Collective::AllReduce, Plan};

/// Everyone sends its whole input to everyone, as packets, and everyone reduces everything in rank order.
///
/// One network step, `ranks - 1` times the traffic: for the smallest messages. `blocks` thread blocks (at least 1) share
/// the message.
pub fn one_shot_packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, blocks, .. } = shape;
    let p = packet_program("one_shot_packets", AllReduce, ranks).chunk_counts(1, 1);
    among(p, in_place, |p| {
        let inboxes = Inboxes::new(p);
        let reductions = Reduction::of_all(p, &inboxes);
        for team in teams(p, blocks) {
            for (tb, reduction) in team.iter().zip(reductions.iter()) {
                let me = tb.rank();
                for peer in p.peers(me) {
                    tb.put_packets(p.input(me).all(), inboxes.slot(peer, me));
                }
                reduction.reduce(tb, p.input(me).all(), p.output(me).all());
            }
        }
    })
}

/// Rank r collects slice r of all inputs, reduces it in rank order and sends the result to everyone; all as packets.
///
/// Two network steps, twice the traffic of the message: for small messages of many ranks. `blocks` thread blocks (at least
/// 1) share each slice.
pub fn two_shot_packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, blocks, .. } = shape;
    let p = packet_program("two_shot_packets", AllReduce, ranks);
    among(p, in_place, |p| {
        let inputs = Inboxes::new(p);
        let results = Inboxes::new(p);
        let reductions = Reduction::of_all(p, &inputs);
        for team in teams(p, blocks) {
            for (tb, reduction) in team.iter().zip(reductions.iter()) {
                let me = tb.rank();
                for peer in p.peers(me) {
                    tb.put_packets(p.input(me).chunk(peer), inputs.slot(peer, me));
                }
                reduction.reduce(tb, p.input(me).chunk(me), p.output(me).chunk(me));
                for peer in p.peers(me) {
                    tb.put_packets(p.output(me).chunk(me), results.slot(peer, me));
                }
                for peer in p.peers(me) {
                    tb.unpack_packets(results.slot(me, peer), p.output(me).chunk(peer));
                }
            }
        }
    })
}

/// Rank r reads slice r of all inputs, reduces it in rank order and writes it to all outputs.
///
/// Every byte moves once, without staging. `blocks` thread blocks (at least 1) share each rank's slice.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, blocks, handshake, .. } = shape;
    let p = zero_copy_program("zero_copy", AllReduce, ranks);
    among(p, in_place, |p| {
        met(p, blocks, handshake, |tb, me| {
            let inputs: Vec<_> = (0..ranks).map(|rank| p.input(rank).chunk(me)).collect();
            let outputs: Vec<_> = p.peers(me).map(|peer| p.output(peer).chunk(me)).collect();
            tb.reduce_send(&inputs, p.output(me).chunk(me), &outputs);
        });
    })
}

/// Rank 0 reads all inputs, reduces them in rank order and writes all outputs.
///
/// The fewest operations of all allreduces, one after the other: for small messages where ranks share cores, so that
/// one of them does the work in any case.
pub fn hub(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, .. } = shape;
    let p = zero_copy_program("hub", AllReduce, ranks).chunk_counts(1, 1);
    rooted(p, 0, in_place, |p| {
        let inputs: Vec<_> = (0..ranks).map(|rank| p.input(rank).all()).collect();
        let outputs: Vec<_> = p.peers(0).map(|peer| p.output(peer).all()).collect();
        let transfer = |tb: &Block<'_>| tb.reduce_send(&inputs, p.output(0).all(), &outputs);
        Star::new(p, 0, 1).root_transfers(transfer);
    })
}

/// Partial sums travel once round the ring of ranks, then the results do.
///
/// Each rank talks to its neighbours only. Slice k starts at rank k and is summed in ring order from there
/// (k, k+1, …, wrapping round), by one rank at a time: all ranks get the same bits, but not those of rank order.
/// `blocks` thread blocks (at least 1) each run a ring over their part of every slice.
///
/// Nobody touches another rank's input, and outputs are written only after all ranks have contributed to the
/// slice, that is, have entered the launch and read the input that may share the output's memory. A rank that
/// is done has results with every rank's contribution, so every rank has read all its scratch: the next launch
/// may write it again.
pub fn ring(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, blocks, .. } = shape;
    let p = zero_copy_program("ring", AllReduce, ranks);
    among(p, in_place, |p| {
        // Slot s takes the partial sums of step s.
        let partial: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, ranks - 1)).collect();
        for team in teams(p, blocks) {
            let to_next: Vec<_> =
                (0..ranks).map(|rank| p.channel(rank, (rank + 1) % ranks)).collect();
            for tb in &team {
                let me = tb.rank();
                let next = (me + 1) % ranks;
                let from_previous = to_next[(me + ranks - 1) % ranks];
                // What this rank received in the step before is what it sends on.
                let slice_sent_in = |step: usize| (me + 2 * ranks - step) % ranks;

                tb.put(p.input(me).chunk(slice_sent_in(0)), partial[next].chunk(0));
                for step in 1..ranks {
                    tb.signal(&[to_next[me]]);
                    tb.wait(&[from_previous]);
                    let slice = slice_sent_in(step);
                    let received = partial[me].chunk(step - 1);
                    let sources = [received, p.input(me).chunk(slice)];
                    if step < ranks - 1 {
                        tb.reduce_send(&sources, received, &[partial[next].chunk(step)]);
                    } else {
                        let output = p.output(me).chunk(slice);
                        tb.reduce_send(&sources, output, &[p.output(next).chunk(slice)]);
                    }
                }
                for step in ranks..2 * ranks - 1 {
                    tb.signal(&[to_next[me]]);
                    tb.wait(&[from_previous]);
                    if step < 2 * ranks - 2 {
                        let slice = slice_sent_in(step);
                        tb.put(p.output(me).chunk(slice), p.output(next).chunk(slice));
                    }
                }
            }
        }
    })
}

/// Rank r reduces slice r through a multicast of all inputs and stores it through one of all outputs.
///
/// Reduces in the order of the hardware, or in rank order where the multicast is made of single accesses. `blocks` thread
/// blocks (at least 1) share each rank's slice.
pub fn switch(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, blocks, .. } = shape;
    let p = zero_copy_program("switch", AllReduce, ranks);
    among(p, in_place, |p| {
        let all: Vec<usize> = (0..ranks).collect();
        let inputs = p.switch(&all, Buffer::Input);
        // In place there is one buffer, which goes by the name of the input.
        let outputs = if in_place { inputs.clone() } else { p.switch(&all, Buffer::Output) };
        for team in teams(p, blocks) {
            let mesh = Mesh::new(p);
            for tb in &team {
                let me = tb.rank();
                ready(tb, &mesh.of(me));
                tb.switch_reduce_store(&inputs, &outputs, me, 1);
                done(tb, &mesh.of(me));
            }
        }
    })
}
