//! Signals, semaphores and barriers that are given more often than taken, or less, or by several.

use super::*;
use crate::model::Buffer::{Input, Output, Scratch};
use OpKind::{SemaphoreAcquire as ACQUIRE, SemaphoreRelease as RELEASE};

#[test]
fn a_surplus_refutes_only_what_relies_on_the_waits() {
    let plan = |surplus: usize, scratch: bool| {
        let into = if scratch { Scratch } else { Output };
        let put = data(OpKind::Put, &[local(Input, 0, 1)], &[remote(0, 1, into, 0, 1)]);
        let mut one = vec![put, nop(), sync(OpKind::Signal, &[0])];
        let mut two = vec![sync(OpKind::Wait, &[0]), nop()];
        if scratch {
            two.push(data(OpKind::Copy, &[local(Scratch, 0, 1)], &[local(Output, 0, 1)]));
            two.extend([nop(), sync(OpKind::Signal, &[0])]);
            one.extend([sync(OpKind::Wait, &[0]), nop()]);
        }
        one.extend(vec![sync(OpKind::Signal, &[0]); surplus]);
        pair([1, 1, 1], &[&[one], &[two]])
    };
    let idle = |extra: usize| {
        let mut one = vec![sync(OpKind::Signal, &[0])];
        one.extend(vec![sync(OpKind::Signal, &[0]); extra]);
        pair([1, 1, 1], &[&[one], &[vec![sync(OpKind::Wait, &[0])]]])
    };
    expect(&[
        ("even, into the output", plan(0, false), "proven"),
        ("even, through scratch", plan(0, true), "proven"),
        ("surplus, into the output", plan(1, false), "race"),
        ("surplus, through scratch", plan(1, true), "race"),
        ("nothing relies on it", idle(1), "proven"),
        ("far too many, and nothing relies on them", idle(40), "proven"),
    ]);
}

/// Rank 0 has blocks that pass one semaphore; rank 1 does nothing.
fn semaphores(initial: i64, blocks: &[&[OpKind]]) -> Plan {
    let blocks: Vec<Vec<Op>> =
        blocks.iter().map(|kinds| kinds.iter().map(|&kind| semaphore(kind, 0)).collect()).collect();
    let mut plan = pair([1, 1, 1], &[&[], &[]]);
    plan.gpus[0].semaphores = vec![initial];
    for ops in blocks {
        block(&mut plan, 0, ops);
    }
    plan
}

#[test]
fn semaphores_that_run_dry_or_are_never_given_stop_their_blocks() {
    expect(&[
        ("one each", semaphores(0, &[&[RELEASE], &[ACQUIRE]]), "proven"),
        ("own token back", semaphores(1, &[&[ACQUIRE, RELEASE]]), "proven"),
        ("dry in launch 1", semaphores(0, &[&[ACQUIRE]]), "deadlock"),
        ("dry in launch 6", semaphores(5, &[&[ACQUIRE]]), "deadlock"),
        ("dry in launch 101", semaphores(100, &[&[ACQUIRE]]), "deadlock"),
        ("dry too late to look at", semaphores(1_000_000, &[&[ACQUIRE]]), "not proven"),
        ("dry with two", semaphores(3, &[&[ACQUIRE, RELEASE, ACQUIRE], &[ACQUIRE]]), "deadlock"),
        // Whoever comes after the release waits for a value of 0.
        ("below zero", semaphores(-1, &[&[RELEASE], &[ACQUIRE]]), "deadlock"),
        ("two of each", semaphores(0, &[&[RELEASE], &[RELEASE], &[ACQUIRE], &[ACQUIRE]]), "proven"),
        ("more given", semaphores(0, &[&[RELEASE, RELEASE], &[ACQUIRE]]), "proven"),
    ]);
}

#[test]
fn a_token_says_nothing_of_who_gave_another() {
    // Two blocks fill a half of scratch each and give a token; a third takes `taken` and reads both.
    let plan = |taken: usize| {
        let fill = |at| {
            vec![
                data(OpKind::Copy, &[local(Input, at, 1)], &[local(Scratch, at, 1)]),
                nop(),
                semaphore(RELEASE, 0),
                semaphore(ACQUIRE, 1),
                nop(),
            ]
        };
        let mut read = vec![semaphore(ACQUIRE, 0); taken];
        read.extend([
            nop(),
            data(OpKind::Copy, &[local(Scratch, 0, 2)], &[local(Output, 0, 2)]),
            nop(),
        ]);
        read.extend(vec![semaphore(ACQUIRE, 0); 2 - taken]);
        read.extend(vec![semaphore(RELEASE, 1); 2]);
        let mut plan = pair([2, 2, 2], &[&[], &[]]);
        plan.gpus[0].semaphores = vec![0, 0];
        for ops in [fill(0), fill(1), read] {
            block(&mut plan, 0, ops);
        }
        plan
    };
    expect(&[("both", plan(2), "proven"), ("one", plan(1), "race")]);
}

#[test]
fn barriers_count_blocks() {
    let plan = |blocks: u64, arrive: &[usize]| {
        let ops: Vec<Vec<Op>> = arrive
            .iter()
            .enumerate()
            .map(|(at, &times)| {
                let at = at as u64;
                let mut ops =
                    vec![data(OpKind::Copy, &[local(Input, at, 1)], &[local(Scratch, at, 1)])];
                ops.extend(vec![barrier(0, blocks); times]);
                let next = (at + 1) % arrive.len() as u64;
                ops.push(data(OpKind::Copy, &[local(Scratch, next, 1)], &[local(Output, at, 1)]));
                ops
            })
            .collect();
        let chunks = arrive.len() as u64;
        pair([chunks; 3], &[&ops, &[]])
    };
    expect(&[
        ("all", plan(2, &[1, 1]), "proven"),
        ("all twice", plan(2, &[2, 2]), "proven"),
        ("one arrives once more", plan(2, &[1, 2]), "deadlock"),
        ("nobody meets", plan(2, &[0, 0]), "race"),
    ]);
}

#[test]
fn signals_of_two_blocks_on_one_channel_come_in_any_order() {
    // Two blocks of rank 0 put a half each and signal on one channel; rank 1 reads after `waits` of two waits.
    let plan = |waits: usize| {
        let put = |at: u64| {
            vec![
                data(OpKind::Put, &[local(Input, at, 1)], &[remote(0, 1, Scratch, at, 1)]),
                nop(),
                sync(OpKind::Signal, &[0]),
                sync(OpKind::Wait, &[0]),
                nop(),
            ]
        };
        let mut read = vec![sync(OpKind::Wait, &[0]); waits];
        read.extend([nop(), data(OpKind::Copy, &[local(Scratch, 0, 2)], &[local(Output, 0, 2)])]);
        read.push(nop());
        read.extend(vec![sync(OpKind::Wait, &[0]); 2 - waits]);
        read.extend(vec![sync(OpKind::Signal, &[0]); 2]);
        pair([2, 2, 2], &[&[put(0), put(1)], &[read]])
    };
    expect(&[("both", plan(2), "proven"), ("one", plan(1), "race")]);
}

#[test]
fn windows_of_a_pipeline_need_a_credit_where_one_block_waits_for_another() {
    // One block fills scratch window by window, another empties it.
    let plan = |credit: i64, waits: bool| {
        let fill = vec![
            semaphore(ACQUIRE, 1),
            nop(),
            data(OpKind::Copy, &[local(Input, 0, 1)], &[local(Scratch, 0, 1)]),
            nop(),
            semaphore(RELEASE, 0),
        ];
        let mut empty = vec![
            semaphore(ACQUIRE, 0),
            nop(),
            data(OpKind::Copy, &[local(Scratch, 0, 1)], &[local(Output, 0, 1)]),
            nop(),
            semaphore(RELEASE, 1),
        ];
        if !waits {
            empty.drain(..2);
        }
        let mut plan = pair([1, 1, 1], &[&[], &[]]);
        plan.gpus[0].semaphores = vec![0, credit];
        for ops in [fill, empty] {
            block(&mut plan, 0, vec![pipeline(64, 1, ops)]);
        }
        plan
    };
    expect(&[
        ("a credit", plan(1, true), "proven"),
        ("two", plan(2, true), "proven"),
        ("none", plan(0, true), "deadlock"),
        ("the other does not wait", plan(1, false), "race"),
    ]);
}

#[test]
fn what_only_packets_keep_apart_meets_in_a_call_without_bytes() {
    // Two blocks take two tokens in opposite orders; a packet makes the second of them wait for the first.
    let plan = |least: u64, packet: bool| {
        let mut first = [(ACQUIRE, 0), (ACQUIRE, 1), (RELEASE, 0), (RELEASE, 1)]
            .map(|(kind, id)| semaphore(kind, id))
            .to_vec();
        let mut second = [(ACQUIRE, 1), (ACQUIRE, 0), (RELEASE, 1), (RELEASE, 0)]
            .map(|(kind, id)| semaphore(kind, id))
            .to_vec();
        if packet {
            first.extend([
                nop(),
                data(OpKind::CopyPackets, &[local(Input, 0, 1)], &[local(Scratch, 0, 1)]),
            ]);
            second.insert(
                0,
                data(OpKind::UnpackPackets, &[local(Scratch, 0, 1)], &[local(Output, 0, 1)]),
            );
            second.insert(1, nop());
        }
        let mut plan = pair([1, 1, 1], &[&[first, second], &[]]);
        plan.gpus[0].semaphores = vec![1, 1];
        plan.use_double_scratch_buffer = packet;
        plan.min_message_size = least;
        plan
    };
    expect(&[
        ("nothing keeps them apart", plan(1, false), "deadlock"),
        ("a packet does", plan(1, true), "proven"),
        ("a packet that may be empty", plan(0, true), "deadlock"),
    ]);
}

/// Rank 0's second block signals on the channel of its first one by another thread than the one that takes the token between them.
#[test]
fn a_thread_that_comes_early_to_what_blocks_contend_for_must_have_met_the_others() {
    use crate::model::Buffer::{Input, Output, Scratch};
    let plan = |met: bool| {
        let mut plan = plan(Collective::Broadcast, 2, [1, 1, 1]);
        connect(&mut plan);
        connect(&mut plan);
        plan.gpus[0].semaphores = vec![0];
        let mut second = vec![semaphore(ACQUIRE, 0)];
        second.extend(met.then(nop));
        second.push(sync(OpKind::Signal, &[1, 0]));
        let first = vec![
            data(OpKind::Put, &[local(Input, 0, 1)], &[remote(0, 1, Scratch, 0, 1)]),
            data(OpKind::Copy, &[local(Input, 0, 1)], &[local(Output, 0, 1)]),
            nop(),
            sync(OpKind::Signal, &[0]),
            semaphore(RELEASE, 0),
            sync(OpKind::Wait, &[0]),
        ];
        let takes = vec![
            sync(OpKind::Wait, &[0]),
            nop(),
            data(OpKind::Copy, &[local(Scratch, 0, 1)], &[local(Output, 0, 1)]),
            nop(),
            sync(OpKind::Wait, &[0]),
            sync(OpKind::Wait, &[1]),
            sync(OpKind::Signal, &[0]),
        ];
        block(&mut plan, 0, first);
        block(&mut plan, 0, second);
        block(&mut plan, 1, takes);
        plan
    };
    expect(&[("met", plan(true), "proven"), ("not met", plan(false), "not proven")]);
    let report = judge(&plan(false)).to_string();
    assert!(report.contains("put a nop before it"), "{report}");
}
