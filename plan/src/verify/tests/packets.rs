//! Packets: one writer each, seen before it is written again.

use super::*;
use crate::model::Buffer::{Input, Output, Scratch};

fn doubled(mut plan: Plan) -> Plan {
    plan.use_double_scratch_buffer = true;
    plan
}

#[test]
fn packets_go_one_way_only_with_a_word_back() {
    let send = data(OpKind::PutPackets, &[local(Input, 0, 1)], &[remote(0, 1, Scratch, 0, 1)]);
    let receive = data(OpKind::UnpackPackets, &[local(Scratch, 0, 1)], &[local(Output, 0, 1)]);
    let both = |back: bool| {
        let (mut one, mut other) = (vec![send.clone()], vec![receive.clone()]);
        if back {
            one.push(sync(OpKind::Wait, &[0]));
            other.extend([nop(), sync(OpKind::Signal, &[0])]);
        }
        doubled(pair([1, 1, 1], &[&[one], &[other]]))
    };
    let mutual = |rank: usize| {
        vec![
            data(
                OpKind::PutPackets,
                &[local(Input, 0, 1)],
                &[remote(rank, 1 - rank, Scratch, 0, 1)],
            ),
            receive.clone(),
        ]
    };
    let swap = pair([1, 1, 1], &[&[mutual(0)], &[mutual(1)]]);
    expect(&[
        ("the sender runs ahead", both(false), "race"),
        ("the sender waits", both(true), "proven"),
        ("both hear of each other", doubled(swap.clone()), "proven"),
        ("lowering doubles scratch for packets", swap, "proven"),
        ("nobody sends", doubled(pair([1, 1, 1], &[&[], &[vec![receive.clone()]]])), "deadlock"),
    ]);
}

#[test]
fn a_packet_has_one_writer() {
    let send =
        |chunk| data(OpKind::PutPackets, &[local(Input, chunk, 1)], &[remote(0, 1, Scratch, 0, 1)]);
    let plan = |sends: &[Vec<Op>]| {
        let receive = vec![
            data(OpKind::UnpackPackets, &[local(Scratch, 0, 1)], &[local(Output, 0, 1)]),
            nop(),
            sync(OpKind::Signal, &[0]),
        ];
        doubled(pair([2, 2, 1], &[sends, &[receive]]))
    };
    let wait = || sync(OpKind::Wait, &[0]);
    expect(&[
        ("one", plan(&[vec![send(0), wait()]]), "proven"),
        ("the same twice", plan(&[vec![send(0), send(0), wait()]]), "proven"),
        ("the same from two blocks", plan(&[vec![send(0), wait()], vec![send(0)]]), "proven"),
        ("two", plan(&[vec![send(0), send(1), wait()]]), "race"),
        ("two in order", plan(&[vec![send(0), nop(), send(1), wait()]]), "race"),
    ]);
}

#[test]
fn a_packet_from_two_ranks_tells_of_neither() {
    // Rank 2 hands on to rank 1 what it has from rank 0, which sends it there too.
    let plan = |to: u64| {
        let zero = vec![
            data(
                OpKind::PutPackets,
                &[local(Input, 0, 1), local(Input, 0, 1)],
                &[remote(0, 1, Scratch, 0, 1), remote(0, 2, Scratch, 0, 1)],
            ),
            sync(OpKind::Wait, &[channel(0, 1), channel(0, 2)]),
        ];
        let sources: Vec<_> = (0..=to).map(|slot| local(Scratch, slot, 1)).collect();
        let targets: Vec<_> = (0..=to).map(|chunk| local(Output, chunk, 1)).collect();
        let mut one: Vec<Op> = sources
            .iter()
            .zip(&targets)
            .map(|(&from, &to)| data(OpKind::UnpackPackets, &[from], &[to]))
            .collect();
        one.extend([nop(), sync(OpKind::Signal, &[channel(1, 0), channel(1, 2)])]);
        let two = vec![
            data(OpKind::ReadPutPackets, &[local(Scratch, 0, 1)], &[remote(2, 1, Scratch, to, 1)]),
            nop(),
            sync(OpKind::Signal, &[channel(2, 0)]),
            sync(OpKind::Wait, &[channel(2, 1)]),
        ];
        doubled(of_ranks(3, [2, 2, 2], &[&[zero], &[one], &[two]]))
    };
    expect(&[("a slot each", plan(1), "proven"), ("one slot", plan(0), "race")]);
}
