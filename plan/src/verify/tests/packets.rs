//! Packets: all who write one write the same, and it is seen before it is written again.

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
fn all_who_write_a_packet_write_the_same() {
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

fn put_packets(rank: usize, to: &[(usize, u64)]) -> Op {
    let sources = vec![local(Input, 0, 1); to.len()];
    let slot = |&(peer, slot): &(usize, u64)| remote(rank, peer, Scratch, slot, 1);
    data(OpKind::PutPackets, &sources, &to.iter().map(slot).collect::<Vec<_>>())
}

/// Hands a packet on from a slot of its own to one of a peer.
fn hand_on(rank: usize, from: u64, (peer, slot): (usize, u64)) -> Op {
    let to = remote(rank, peer, Scratch, slot, 1);
    data(OpKind::ReadPutPackets, &[local(Scratch, from, 1)], &[to])
}

fn unpack(slot: u64, chunk: u64) -> Op {
    data(OpKind::UnpackPackets, &[local(Scratch, slot, 1)], &[local(Output, chunk, 1)])
}

fn signal(rank: usize, peers: &[usize]) -> Op {
    let ids: Vec<u64> = peers.iter().map(|&peer| channel(rank, peer)).collect();
    sync(OpKind::Signal, &ids)
}

fn wait(rank: usize, peers: &[usize]) -> Op {
    let ids: Vec<u64> = peers.iter().map(|&peer| channel(rank, peer)).collect();
    sync(OpKind::Wait, &ids)
}

#[test]
fn two_ranks_may_write_a_packet_if_they_write_the_same() {
    // Rank 2 hands on to rank 1 what it has from rank 0, which sends it there too.
    let plan = |second: Op, slots: u64| {
        let zero = vec![put_packets(0, &[(1, 0), (2, 0)]), wait(0, &[1, 2])];
        let mut one: Vec<Op> = (0..slots).map(|slot| unpack(slot, slot)).collect();
        one.extend([nop(), signal(1, &[0, 2])]);
        let two = vec![unpack(0, 0), second, nop(), signal(2, &[0]), wait(2, &[1])];
        doubled(of_ranks(3, [2, 2, 2], &[&[zero], &[one], &[two]]))
    };
    expect(&[
        ("a slot each", plan(hand_on(2, 0, (1, 1)), 2), "proven"),
        ("one slot", plan(hand_on(2, 0, (1, 0)), 1), "proven"),
        ("one slot, other contents", plan(put_packets(2, &[(1, 0)]), 1), "race"),
    ]);
}

#[test]
fn a_packet_from_two_ranks_tells_of_neither_alone() {
    // Rank 2 sends to both others, and rank 0 hands it on to rank 1. Rank 1 keeps something for rank 0 that it may only
    // replace when it has heard that rank 0 has it, two launches before.
    let plan = |shared: bool, answer: bool| {
        let slot = if shared { 1 } else { 2 };
        let mut zero = vec![
            hand_on(0, 1, (1, slot)),
            nop(),
            signal(0, &[2]),
            wait(0, &[1]),
            nop(),
            data(OpKind::Get, &[remote(0, 1, Scratch, 0, 1)], &[local(Output, 0, 1)]),
        ];
        let mut one = vec![
            data(OpKind::Copy, &[local(Input, 0, 1)], &[local(Scratch, 0, 1)]),
            nop(),
            signal(1, &[0]),
            unpack(1, 0),
        ];
        if !shared {
            one.push(unpack(2, 1));
        }
        one.extend([nop(), signal(1, &[2])]);
        if answer {
            zero.extend([nop(), signal(0, &[1])]);
            one.push(wait(1, &[0]));
        }
        let two = vec![put_packets(2, &[(0, 1), (1, 1)]), wait(2, &[0, 1])];
        doubled(of_ranks(3, [1, 2, 3], &[&[zero], &[one], &[two]]))
    };
    expect(&[
        ("a slot each", plan(false, false), "proven"),
        ("one slot", plan(true, false), "race"),
        ("one slot and an answer", plan(true, true), "proven"),
    ]);
}

#[test]
fn a_late_write_of_a_packet_must_not_meet_the_next_use_of_its_slot() {
    // Rank 2 sends to ranks 0 and 1, and rank 0 sends it to rank 1 once more. Rank 3 tells rank 2 a launch later what rank 0
    // told it.
    let plan = |late: bool| {
        let again =
            data(OpKind::PutPackets, &[local(Output, 0, 1)], &[remote(0, 1, Scratch, 0, 1)]);
        let mut zero = vec![unpack(0, 0), nop()];
        if late {
            zero.extend([signal(0, &[3]), again]);
        } else {
            zero.extend([again, nop(), signal(0, &[3])]);
        }
        let one = vec![unpack(0, 0), nop(), signal(1, &[2])];
        let two = vec![put_packets(2, &[(0, 0), (1, 0)]), wait(2, &[1, 3])];
        let three = vec![signal(3, &[2]), wait(3, &[0])];
        doubled(of_ranks(4, [1, 1, 1], &[&[zero], &[one], &[two], &[three]]))
    };
    expect(&[
        ("sent before rank 0 says so", plan(false), "proven"),
        ("sent after", plan(true), "race"),
    ]);
}

#[test]
fn a_packet_may_come_back_to_where_it_was() {
    // From rank 2 to rank 1, from there to rank 0, and back to rank 1.
    let plan = |answer: bool| {
        let mut zero = vec![hand_on(0, 0, (1, 0))];
        let mut one = vec![hand_on(1, 0, (0, 0)), unpack(0, 0), nop(), signal(1, &[2])];
        let mut two = vec![put_packets(2, &[(1, 0)]), wait(2, &[1])];
        if answer {
            zero.extend([nop(), signal(0, &[1, 2])]);
            one.push(wait(1, &[0]));
            two.push(wait(2, &[0]));
        }
        doubled(of_ranks(3, [1, 1, 1], &[&[zero], &[one], &[two]]))
    };
    expect(&[("with an answer", plan(true), "proven"), ("without", plan(false), "race")]);
}

#[test]
fn packets_of_several_in_pipelines_are_not_looked_into() {
    let plan = |blocks: usize| {
        let send = data(OpKind::PutPackets, &[local(Input, 0, 1)], &[remote(0, 1, Scratch, 0, 1)]);
        let mut sends = vec![vec![pipeline(64, 1, vec![send])]; blocks];
        sends[0].push(wait(0, &[1]));
        let receive = vec![pipeline(64, 1, vec![unpack(0, 0)]), nop(), signal(1, &[0])];
        doubled(pair([1, 1, 1], &[&sends, &[receive]]))
    };
    expect(&[("one block", plan(1), "proven"), ("two", plan(2), "not proven")]);
}
