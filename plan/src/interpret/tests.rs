//! Hand-made plans run to their post-conditions, or get stuck where they must.

use super::{BlockedOn, InterpretError, Interpreter, Memory, interpret};
use crate::model::{Buffer, ChannelTable, ChannelType, Collective, Op, OpKind, Plan, RankGroup};
use crate::program::{CallSizes, Layout};
use crate::samples::*;
use antiphon_types::ReduceOp;
use proptest::prelude::*;

fn sizes(input: u64, output: u64, element: u64) -> CallSizes {
    CallSizes { input: input * element, output: output * element, element, strict: false }
}

/// Element `at` of rank `rank`'s input: different for every rank and position, and sums stay telling.
fn seed(rank: usize, at: usize) -> i128 {
    (at as i128 + 1) * 1_000_003_i128.pow(rank as u32 % 4) + rank as i128
}

fn memories(plan: &Plan, input: u64, output: u64) -> Vec<Memory<i128>> {
    let memory = |rank| {
        let values = (0..input as usize).map(|at| seed(rank, at)).collect();
        Memory::separate(values, vec![-1; output as usize])
    };
    (0..plan.gpus.len()).map(memory).collect()
}

/// What element `at` of rank `rank`'s output must be.
fn wanted(collective: &Collective, ranks: usize, input: usize, rank: usize, at: usize) -> i128 {
    let sum = |at| (0..ranks).map(|rank| seed(rank, at)).sum();
    match collective {
        Collective::AllGather => seed(at / input, at % input),
        Collective::ReduceScatter => sum(rank * (input / ranks) + at),
        Collective::AllReduce => sum(at),
        Collective::AllToAll => {
            let block = input / ranks;
            seed(at / block, rank * block + at % block)
        }
        other => panic!("no post-condition for {other}"),
    }
}

fn holds(plan: &Plan, input: u64, output: u64, element: u64) {
    let layout = Layout::new(plan).unwrap();
    let outcome = interpret(&layout, sizes(input, output, element), memories(plan, input, output));
    for (rank, memory) in outcome.unwrap().iter().enumerate() {
        for (at, &saw) in memory.output().iter().enumerate() {
            let ranks = plan.gpus.len();
            let expected = wanted(&plan.collective, ranks, input as usize, rank, at);
            assert_eq!(saw, expected, "{} rank {rank} element {at}", plan.collective);
        }
    }
}

proptest! {
    #[test]
    fn collectives_of_any_element_count_meet_their_post_conditions(
        ranks in 2usize..6, f in 1u64..5, count in 0u64..100, together: bool, element in 0u32..4,
    ) {
        let n = ranks as u64;
        let element = 1 << element;
        holds(&allgather(ranks, f, together), count, n * count, element);
        holds(&reduce_scatter(ranks, f, together), n * count, count, element);
        holds(&alltoall(ranks, f, together), n * count, n * count, element);
        holds(&allreduce(ranks, f, together), count, count, element);
    }

    #[test]
    fn packets_reduce_any_element_count_in_place_launch_after_launch(
        counts in prop::collection::vec(0usize..70, 1..6), element in 0u32..4,
    ) {
        let layout = Layout::new(&packet_allreduce()).unwrap();
        let mut machine = Interpreter::new(&layout);
        for count in counts {
            let values = |rank| (0..count).map(|at| seed(rank, at)).collect::<Vec<_>>();
            let mut memories =
                [0, 1].map(|rank| Memory::in_place(values(rank), 0..count, 0..count).unwrap());
            let sizes = sizes(count as u64, count as u64, 1 << element);
            machine.launch(sizes, &mut memories).unwrap();
            for memory in &memories {
                let sums: Vec<_> = (0..count).map(|at| seed(0, at) + seed(1, at)).collect();
                prop_assert_eq!(memory.output(), &sums);
            }
        }
    }

    #[test]
    fn pipelines_move_everything_in_windows(
        chunks in 1u64..4, unit in 1u64..40, count in 0u64..200,
    ) {
        let plan = pipelined_exchange(chunks, unit * 4);
        let layout = Layout::new(&plan).unwrap();
        let outcome = interpret(&layout, sizes(count, count, 4), memories(&plan, count, count));
        let outcome = outcome.unwrap();
        for (rank, memory) in outcome.iter().enumerate() {
            prop_assert_eq!(memory.output(), outcome[1 - rank].input());
        }
    }

    #[test]
    fn slices_of_a_group_copy_everything(parts in 1u64..6, chunks in 1u64..4, count in 0u64..300) {
        let mut plan = plan(Collective::Test, 1, [chunks, chunks, 0]);
        for part in 0..parts {
            let all = |buffer| local(buffer, 0, chunks);
            let copy = data(OpKind::Copy, &[all(Buffer::Input)], &[all(Buffer::Output)]);
            block(&mut plan, 0, vec![sliced(copy, part, parts)]);
        }
        let layout = Layout::new(&plan).unwrap();
        let outcome = interpret(&layout, sizes(count, count, 2), memories(&plan, count, count));
        let outcome = outcome.unwrap();
        prop_assert_eq!(outcome[0].output(), outcome[0].input());
    }
}

/// A plan of three ranks of which the first two share a switch channel over their outputs.
fn switched(kind: OpKind) -> Plan {
    let mut plan = plan(Collective::Test, 3, [1, 1, 1]);
    let group = || RankGroup { size: 2, ranks: vec![0, 1] };
    for gpu in &mut plan.gpus[..2] {
        let buffer =
            if kind == OpKind::GroupStorePackets { Buffer::Scratch } else { Buffer::Output };
        gpu.channels.push(ChannelTable::Switch { buffer, groups: vec![group()] });
    }
    let own = local(Buffer::Input, 0, 1);
    let ops = |rank: usize| match (kind, rank) {
        (OpKind::GroupStore, 0) => vec![data(kind, &[own], &[switch(0, 0, 1)])],
        (OpKind::GroupStorePackets, 0) => {
            let packets = local(Buffer::Scratch, 0, 1);
            vec![
                data(OpKind::CopyPackets, &[own], &[packets]),
                data(kind, &[packets], &[switch(0, 0, 1)]),
            ]
        }
        (OpKind::GroupStorePackets, 1) => {
            let packets = local(Buffer::Scratch, 0, 1);
            vec![data(OpKind::UnpackPackets, &[packets], &[local(Buffer::Output, 0, 1)])]
        }
        (OpKind::GroupLoadReduceStore, 0) => {
            vec![data(kind, &[switch(0, 0, 1)], &[switch(0, 0, 1)])]
        }
        (OpKind::GroupLoadReduce, 0) => vec![data(kind, &[switch(0, 0, 1)], &[own])],
        _ => vec![],
    };
    for rank in 0..3 {
        block(&mut plan, rank, ops(rank));
    }
    plan
}

#[test]
fn switch_operations_reach_the_members_and_nobody_else() {
    // (operation, inputs after, outputs after); input of rank r is 10 + r, output 20 + r.
    let table = [
        (OpKind::GroupStore, [10, 11, 12], [10, 10, 22]),
        (OpKind::GroupStorePackets, [10, 11, 12], [20, 10, 22]),
        (OpKind::GroupLoadReduceStore, [10, 11, 12], [41, 41, 22]),
        (OpKind::GroupLoadReduce, [41, 11, 12], [20, 21, 22]),
    ];
    for (kind, inputs, outputs) in table {
        let layout = Layout::new(&switched(kind)).unwrap();
        let memories = (0..3).map(|rank| Memory::separate(vec![10 + rank; 5], vec![20 + rank; 5]));
        let outcome = interpret(&layout, sizes(5, 5, 2), memories.collect()).unwrap();
        for rank in 0..3 {
            assert_eq!(outcome[rank].input(), [inputs[rank]; 5], "{kind} rank {rank}");
            assert_eq!(outcome[rank].output(), [outputs[rank]; 5], "{kind} rank {rank}");
        }
    }
}

#[test]
fn packet_reductions_add_the_packets_first_and_the_raw_chunk_last() {
    let mut plan = plan(Collective::Test, 1, [3, 1, 3]);
    let (i, s) = (|at| local(Buffer::Input, at, 1), |at| local(Buffer::Scratch, at, 1));
    let output = local(Buffer::Output, 0, 1);
    let ops = vec![
        data(OpKind::CopyPackets, &[i(1)], &[s(0)]),
        data(OpKind::CopyPackets, &[i(2)], &[s(1)]),
        data(OpKind::ReduceCopyPackets, &[i(0), s(0), s(1)], &[i(0), s(2)]),
        data(OpKind::UnpackPackets, &[s(2)], &[output]),
    ];
    block(&mut plan, 0, ops);
    let layout = Layout::new(&plan).unwrap();
    // In this order the large numbers cancel before the small one is added; in no other does it survive.
    let memory = Memory::separate(vec![1.0, 1e300, -1e300], vec![0.0]);
    let outcome = interpret(&layout, sizes(3, 1, 8), vec![memory]).unwrap();
    assert_eq!((outcome[0].input()[0], outcome[0].output()[0]), (1.0, 1.0));
}

#[test]
fn reductions_use_the_operator_of_the_plan() {
    for (reduce, wanted) in
        [(ReduceOp::Sum, 9), (ReduceOp::Prod, 20), (ReduceOp::Min, 4), (ReduceOp::Max, 5)]
    {
        let mut plan = plan(Collective::Test, 1, [2, 1, 0]);
        let mut op = data(
            OpKind::Reduce,
            &[local(Buffer::Input, 0, 1), local(Buffer::Input, 1, 1)],
            &[local(Buffer::Output, 0, 1)],
        );
        op.reduce_op = Some(reduce);
        block(&mut plan, 0, vec![op]);
        let layout = Layout::new(&plan).unwrap();
        let memory = Memory::separate(vec![4, 5], vec![0]);
        let outcome = interpret(&layout, sizes(2, 1, 4), vec![memory]).unwrap();
        assert_eq!(outcome[0].output(), [wanted], "{reduce:?}");
    }
}

#[test]
fn barriers_hold_every_block_until_the_last_arrives() {
    let mut plan = plan(Collective::Test, 1, [1, 1, 1]);
    let copy = |from, to| data(OpKind::Copy, &[local(from, 0, 1)], &[local(to, 0, 1)]);
    // The reader comes first in the round, and still sees what the writer wrote late.
    block(&mut plan, 0, vec![barrier(7, 2), copy(Buffer::Scratch, Buffer::Output), barrier(9, 2)]);
    let nop = || Op::new(OpKind::Nop);
    let ops =
        vec![nop(), nop(), copy(Buffer::Input, Buffer::Scratch), barrier(7, 2), barrier(9, 2)];
    block(&mut plan, 0, ops);
    let layout = Layout::new(&plan).unwrap();
    assert_eq!(layout.ranks[0].barriers, [2, 2]);
    let outcome = interpret(&layout, sizes(3, 3, 4), memories(&plan, 3, 3)).unwrap();
    assert_eq!(outcome[0].output(), outcome[0].input());
}

#[test]
fn a_plan_without_its_signals_says_who_waits_for_whom() {
    let mut plan = plan(Collective::Test, 2, [1, 1, 1]);
    connect(&mut plan);
    plan.gpus[0].semaphores = vec![0];
    let take = || semaphore(OpKind::SemaphoreAcquire, 0);
    block(&mut plan, 0, vec![Op::new(OpKind::Nop), sync(OpKind::Wait, &[0])]);
    let body = data(
        OpKind::UnpackPackets,
        &[local(Buffer::Scratch, 0, 1)],
        &[local(Buffer::Output, 0, 1)],
    );
    block(&mut plan, 0, vec![pipeline(16, 1, vec![Op::new(OpKind::Nop), body])]);
    block(&mut plan, 0, vec![barrier(3, 2)]);
    // Two acquirers of one unit that never comes: the second needs it to be paid back once less.
    block(&mut plan, 0, vec![take()]);
    let layout = Layout::new(&plan).unwrap();
    let error = interpret(&layout, sizes(4, 4, 4), memories(&plan, 4, 4)).unwrap_err();
    let InterpretError::Stuck(stuck) = error else { panic!("saw {error}") };
    let saw: Vec<_> = stuck.blocked.iter().map(|b| (b.site.tb, b.site.op, b.on)).collect();
    let channel_type = ChannelType::Memory;
    let signal = BlockedOn::Signal { channel_type, channel: 0, peer: 1, received: 0, needed: 1 };
    let barrier = BlockedOn::Barrier { barrier: 0, arrived: 1, blocks: 2 };
    assert_eq!(
        saw,
        [
            (0, 1, signal),
            (1, 0, BlockedOn::Packet { rank: 0, offset: 0 }),
            (2, 0, barrier),
            (3, 0, BlockedOn::Semaphore { semaphore: 0, value: -1, needed: 0 }),
        ]
    );
    assert_eq!(stuck.blocked[1].site.inner, Some(1));
    insta::assert_snapshot!(stuck);
}

#[test]
fn semaphores_keep_their_values_from_launch_to_launch() {
    let mut plan = plan(Collective::Test, 1, [1, 1, 0]);
    plan.gpus[0].semaphores = vec![2];
    block(&mut plan, 0, vec![semaphore(OpKind::SemaphoreAcquire, 0)]);
    let layout = Layout::new(&plan).unwrap();
    let mut machine = Interpreter::new(&layout);
    for _ in 0..2 {
        machine.launch(sizes(4, 4, 4), &mut memories(&plan, 4, 4)).unwrap();
    }
    // The third takes it from 0 to -1, and needs it back at 0.
    let error = machine.launch(sizes(4, 4, 4), &mut memories(&plan, 4, 4)).unwrap_err();
    let InterpretError::Stuck(stuck) = error else { panic!("saw {error}") };
    let on = BlockedOn::Semaphore { semaphore: 0, value: -1, needed: 0 };
    assert_eq!((stuck.launch, stuck.blocked[0].on), (3, on));
}

#[test]
fn packets_of_an_earlier_launch_do_not_count() {
    let mut plan = packet_allreduce();
    plan.gpus[1].threadblocks[0].ops.truncate(1);
    let layout = Layout::new(&plan).unwrap();
    let mut machine = Interpreter::new(&layout);
    for launch in 1..4 {
        // Rank 1 sends its first packets in every launch and its second ones in none.
        let error = machine.launch(sizes(8, 8, 4), &mut memories(&plan, 8, 8)).unwrap_err();
        let InterpretError::Stuck(stuck) = error else { panic!("saw {error}") };
        assert_eq!((stuck.launch, stuck.blocked[0].site.op), (launch, 3));
    }
}

#[test]
fn memories_must_fit_the_sizes() {
    let plan = allgather(2, 1, true);
    let layout = Layout::new(&plan).unwrap();
    for memories in
        [memories(&plan, 4, 7), memories(&plan, 3, 8), memories(&plan, 4, 8)[..1].to_vec()]
    {
        let error = interpret(&layout, sizes(4, 8, 4), memories).unwrap_err();
        assert!(matches!(error, InterpretError::Memories { .. }), "saw {error}");
    }
    assert_eq!(Memory::in_place(vec![0; 4], 0..4, 2..5), None);
}
