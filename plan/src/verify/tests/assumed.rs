//! What proofs take for granted: plans that are proven, and that someone who does otherwise could break.
//!
//! The executor keeps launches of unequal sizes apart; threads of equal position in an operation's list are one thread, to
//! every engine.

use super::*;
use crate::model::Buffer::{Input, Output, Scratch};

#[test]
fn launches_that_follow_each_other_have_equal_sizes() {
    // Each rank keeps a chunk in a slot of its own in rank 1's scratch and never hears of the other. Where chunks of the
    // next launch are larger, rank 0's slot reaches into what rank 1's was.
    let zero = vec![
        data(OpKind::Put, &[local(Input, 0, 1)], &[remote(0, 1, Scratch, 0, 1)]),
        nop(),
        data(OpKind::Get, &[remote(0, 1, Scratch, 0, 1)], &[local(Output, 0, 1)]),
    ];
    let one = vec![
        data(OpKind::Copy, &[local(Input, 0, 1)], &[local(Scratch, 1, 1)]),
        nop(),
        data(OpKind::Copy, &[local(Scratch, 1, 1)], &[local(Output, 0, 1)]),
    ];
    expect(&[("a slot each", pair([1, 1, 2], &[&[zero], &[one]]), "proven")]);
}

#[test]
fn an_output_is_its_users_after_the_launch() {
    // Rank 1 takes rank 0's output.
    let plan = |answer: bool| {
        let copy = data(OpKind::Copy, &[local(Input, 0, 1)], &[local(Output, 0, 1)]);
        let mut zero = vec![copy, nop(), sync(OpKind::Signal, &[0])];
        let get = data(OpKind::Get, &[remote(1, 0, Output, 0, 1)], &[local(Output, 0, 1)]);
        let mut one = vec![sync(OpKind::Wait, &[0]), nop(), get];
        if answer {
            one.extend([nop(), sync(OpKind::Signal, &[0])]);
            zero.push(sync(OpKind::Wait, &[0]));
        }
        pair([1, 1, 0], &[&[zero], &[one]])
    };
    expect(&[("says when it has it", plan(true), "proven"), ("does not", plan(false), "race")]);
    let text = judge(&plan(false)).to_string();
    assert!(text.contains("the user of rank 0 after launch 1 writes"), "{text}");
}

#[test]
fn signals_of_a_block_on_one_channel_come_in_the_order_in_which_they_are_written() {
    // Were the relaxed signal to come first, nothing would be released when rank 1 goes on.
    let zero = vec![
        data(OpKind::Put, &[local(Input, 0, 1)], &[remote(0, 1, Output, 0, 1)]),
        nop(),
        sync(OpKind::Signal, &[0]),
        sync(OpKind::RelaxedSignal, &[0]),
    ];
    let wait = || sync(OpKind::Wait, &[0]);
    let one = vec![
        wait(),
        nop(),
        data(OpKind::Copy, &[local(Output, 0, 1)], &[local(Output, 1, 1)]),
        wait(),
    ];
    expect(&[("a release first", pair([2, 2, 0], &[&[zero], &[one]]), "proven")]);
}

#[test]
fn who_sees_a_packet_that_was_handed_on_has_heard_of_the_first_sender() {
    // Rank 0 sends to rank 1, which hands on to rank 2. Rank 2 replaces what rank 0 fetched two launches before, and hears of
    // rank 0 in no other way.
    let plan = |handed_on: bool| {
        let put = |from: usize, to: usize| {
            data(OpKind::PutPackets, &[local(Input, 0, 1)], &[remote(from, to, Scratch, 1, 1)])
        };
        let unpack =
            || data(OpKind::UnpackPackets, &[local(Scratch, 1, 1)], &[local(Output, 0, 1)]);
        let signal = |from, to| sync(OpKind::Signal, &[channel(from, to)]);
        let wait = |rank, peers: &[usize]| {
            let ids: Vec<u64> = peers.iter().map(|&peer| channel(rank, peer)).collect();
            sync(OpKind::Wait, &ids)
        };
        let fetch = data(OpKind::Get, &[remote(0, 2, Scratch, 0, 1)], &[local(Output, 0, 1)]);
        let zero = vec![put(0, 1), wait(0, &[1, 2]), nop(), fetch];
        let slot = local(Scratch, 1, 1);
        let mut one = vec![data(OpKind::ReadPutPackets, &[slot], &[remote(1, 2, Scratch, 1, 1)])];
        if !handed_on {
            one = vec![unpack(), put(1, 2)];
        }
        one.extend([nop(), signal(1, 0), wait(1, &[2])]);
        let keep = data(OpKind::Copy, &[local(Input, 0, 1)], &[local(Scratch, 0, 1)]);
        let two = vec![keep, nop(), signal(2, 0), unpack(), nop(), signal(2, 1)];
        let mut plan = of_ranks(3, [1, 1, 2], &[&[zero], &[one], &[two]]);
        plan.use_double_scratch_buffer = true;
        plan
    };
    expect(&[("handed on", plan(true), "proven"), ("another packet", plan(false), "race")]);
}

#[test]
fn any_rank_may_be_the_root() {
    use crate::algorithms::{Algorithm, Shape};
    for algorithm in [Algorithm::BroadcastZeroCopy, Algorithm::ReducePackets] {
        for root in 0..3 {
            let plan = algorithm.plan(Shape { root, ..Shape::new(3) }).expect("three ranks");
            let report = judge(&plan);
            assert_eq!(report.status(), 0, "{algorithm} root {root}: {report}");
            assert_eq!(report.root, Some(root as u32), "{algorithm}");
            let text = format!("the root is rank {root}");
            assert_eq!(report.notes.iter().any(|note| note.text == text), root > 0);
        }
    }
}

#[test]
fn a_plan_that_is_right_with_no_rank_as_its_root_says_so() {
    // Each rank keeps what it has.
    let mut plan = crate::samples::plan(Collective::Broadcast, 3, [1, 1, 0]);
    let keep = || data(OpKind::Copy, &[local(Input, 0, 1)], &[local(Output, 0, 1)]);
    for rank in 0..3 {
        block(&mut plan, rank, vec![keep()]);
    }
    let report = judge(&plan);
    let text = report.to_string();
    assert_eq!(report.status(), 1, "{text}");
    assert!(text.contains("right with no rank as the root; what is shown is of rank 0"), "{text}");
}

#[test]
fn any_rank_may_scatter() {
    for root in 0..3_usize {
        let mut plan = crate::samples::plan(Collective::Scatter, 3, [3, 1, 0]);
        connect(&mut plan);
        let own = local(Input, root as u64, 1);
        let mut ops = vec![data(OpKind::Copy, &[own], &[local(Output, 0, 1)])];
        for peer in (0..3).filter(|&peer| peer != root) {
            let sent = local(Input, peer as u64, 1);
            ops.push(data(OpKind::Put, &[sent], &[remote(root, peer, Output, 0, 1)]));
        }
        ops.extend([nop(), sync(OpKind::Signal, &[0, 1])]);
        for rank in 0..3 {
            // A rank has no channel to itself.
            let to_root = root.saturating_sub(usize::from(root > rank)) as u64;
            let waits = vec![sync(OpKind::Wait, &[to_root]), nop()];
            block(&mut plan, rank, if rank == root { ops.clone() } else { waits });
        }
        let report = judge(&plan);
        assert_eq!(report.status(), 0, "root {root}: {report}");
    }
}
