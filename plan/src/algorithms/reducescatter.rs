//! Reducescatter: rank r ends with block r of the reduction of all inputs.

use super::Shape;
use super::common::*;
use super::meeting::*;
use crate::builder::BuildError;
use crate::model::{Collective::ReduceScatter, Plan};

/// Everyone sends block r to rank r as packets; rank r reduces them in rank order. `blocks` thread blocks (at least 1)
/// share it.
pub fn packets(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, blocks, .. } = shape;
    let p = packet_program("packets", ReduceScatter, ranks);
    among(p, in_place, |p| {
        let inboxes = Inboxes::new(p);
        let reductions = Reduction::of_all(p, &inboxes);
        for team in teams(p, blocks) {
            for (tb, reduction) in team.iter().zip(reductions.iter()) {
                let me = tb.rank();
                for peer in p.peers(me) {
                    tb.put_packets(p.input(me).chunk(peer), inboxes.slot(peer, me));
                }
                reduction.reduce(tb, p.input(me).chunk(me), p.output(me).all());
            }
        }
    })
}

/// Rank r reads block r of all inputs and reduces it in rank order. `blocks` thread blocks (at least 1) share it.
pub fn zero_copy(shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, in_place, blocks, handshake, .. } = shape;
    let p = zero_copy_program("zero_copy", ReduceScatter, ranks);
    among(p, in_place, |p| {
        met(p, blocks, handshake, |tb, me| {
            let inputs: Vec<_> = (0..ranks).map(|rank| p.input(rank).chunk(me)).collect();
            tb.reduce(&inputs, p.output(me).all());
        });
    })
}
