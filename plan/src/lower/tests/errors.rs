//! What lowering refuses, and the words it says it with.

use crate::lower::LowerError;
use crate::model::{Buffer, ChannelTable, ChannelType, Collective, Op, OpKind, Plan, RankGroup};
use crate::program::{CallSizes, Layout};
use crate::samples::*;

fn sizes(input: u64, output: u64, element: u64) -> CallSizes {
    CallSizes { input, output, element, strict: false }
}

#[test]
fn the_first_port_operation_is_named() {
    let mut plan = allgather(2, 1, true);
    let mut port = sync(OpKind::Signal, &[0]);
    port.channel_type = ChannelType::Port;
    let body = vec![Op::new(OpKind::Nop), port];
    block(&mut plan, 1, vec![pipeline(16, 1, body)]);
    for gpu in &mut plan.gpus {
        let connected_to = vec![1 - gpu.id];
        gpu.channels.push(ChannelTable::Peers { channel_type: ChannelType::Port, connected_to });
    }
    plan.gpus[1].threadblocks[1].channels.push((ChannelType::Port, vec![0]));
    let site = Layout::new(&plan).unwrap().port.unwrap();
    assert_eq!(site.to_string(), "rank 1 tb 1 op 0.1 (signal)");
}

#[test]
fn plans_that_contradict_themselves_are_refused_without_a_panic() {
    let i = |index, size| local(Buffer::Input, index, size);
    let o = |index, size| local(Buffer::Output, index, size);
    let s = |index, size| local(Buffer::Scratch, index, size);
    let far = u64::MAX;
    let mut no_body = Op::new(OpKind::Pipeline);
    no_body.channel_type = ChannelType::Memory;
    let mut untyped = sync(OpKind::Signal, &[0]);
    untyped.channel_type = ChannelType::None;
    let mut unnumbered = barrier(0, 2);
    unnumbered.barrier_id = None;
    let table = [
        data(OpKind::Copy, &[i(0, 3)], &[o(0, 3)]),
        data(OpKind::Copy, &[i(far, 1)], &[o(0, 1)]),
        data(OpKind::Copy, &[i(0, 1)], &[o(0, 2)]),
        data(OpKind::Copy, &[i(0, 1)], &[s(1, 1)]),
        data(OpKind::Copy, &[i(0, 1), i(0, 1)], &[o(0, 1)]),
        data(OpKind::Put, &[i(0, 1)], &[]),
        data(OpKind::Put, &[i(0, 1)], &[remote(0, 3, Buffer::Input, 0, 1)]),
        data(OpKind::Reduce, &[], &[o(0, 1)]),
        data(OpKind::ReducePackets, &[], &[]),
        data(OpKind::CopyPackets, &[i(0, 1)], &[o(0, 1)]),
        data(OpKind::GroupStore, &[i(0, 1)], &[switch(1, 0, 1)]),
        data(OpKind::GroupStore, &[i(0, 1)], &[switch(0, 0, 1)]),
        sliced(data(OpKind::Copy, &[i(0, 1)], &[o(0, 1)]), 2, 2),
        sliced(data(OpKind::Copy, &[i(0, 1)], &[o(0, 1)]), 0, 0),
        sync(OpKind::Signal, &[1]),
        sync(OpKind::Wait, &[far]),
        untyped,
        semaphore(OpKind::SemaphoreAcquire, 0),
        barrier(0, 0),
        barrier(0, far),
        unnumbered,
        no_body,
        pipeline(0, 1, vec![]),
        pipeline(16, 1, vec![pipeline(16, 1, vec![])]),
    ];
    for op in table {
        let mut plan = plan(Collective::Test, 2, [2, 2, 1]);
        connect(&mut plan);
        let groups = vec![RankGroup { size: 0, ranks: vec![] }];
        plan.gpus[0].channels.push(ChannelTable::Switch { buffer: Buffer::Input, groups });
        let shown = format!("{op:?}");
        block(&mut plan, 0, vec![op]);
        match Layout::new(&plan) {
            Err(LowerError::Malformed { site, .. }) => assert_eq!((site.rank, site.op), (0, 0)),
            other => panic!("{shown}: saw {other:?}"),
        }
    }
}

#[test]
fn tables_that_point_nowhere_are_refused() {
    let changes: [fn(&mut Plan); 5] = [
        |plan| plan.gpus[0].remote_buffers[0].rank = 2,
        |plan| plan.gpus[0].threadblocks[0].channels[0].1.push(1),
        |plan| plan.gpus[0].threadblocks[0].remote_buffer_refs[0].1.push(u64::MAX),
        |plan| {
            let channel_type = ChannelType::Memory;
            let connected_to = vec![2];
            plan.gpus[1].channels.push(ChannelTable::Peers { channel_type, connected_to });
        },
        |plan| {
            let groups = vec![RankGroup { size: 1, ranks: vec![0, 7] }];
            plan.gpus[1].channels.push(ChannelTable::Switch { buffer: Buffer::Input, groups });
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut plan = allgather(2, 1, true);
        change(&mut plan);
        let error = Layout::new(&plan).unwrap_err();
        assert!(matches!(error, LowerError::Tables { .. }), "change {number}: saw {error}");
    }
}

#[test]
fn barriers_of_one_number_agree_on_their_blocks() {
    let mut plan = plan(Collective::Test, 1, [1, 1, 0]);
    block(&mut plan, 0, vec![barrier(3, 2)]);
    block(&mut plan, 0, vec![barrier(3, 3)]);
    let error = Layout::new(&plan).unwrap_err();
    assert!(matches!(error, LowerError::Malformed { .. }), "saw {error}");
}

#[test]
fn sizes_that_cannot_work_are_refused_in_words() {
    let mut small = allreduce(2, 1, true);
    (small.min_message_size, small.max_message_size) = (16, 64);
    let uneven = {
        let mut plan = plan(Collective::AllReduce, 1, [2, 3, 0]);
        block(&mut plan, 0, vec![]);
        plan
    };
    let shifted = {
        let mut plan = plan(Collective::Test, 1, [2, 2, 0]);
        let (from, to) = (local(Buffer::Input, 0, 1), local(Buffer::Output, 1, 1));
        block(&mut plan, 0, vec![data(OpKind::Copy, &[from], &[to])]);
        plan
    };
    let unconstrained = {
        let mut plan = plan(Collective::Test, 1, [1, 0, 0]);
        let (from, to) = (local(Buffer::Input, 0, 1), local(Buffer::Output, 1, 1));
        block(&mut plan, 0, vec![data(OpKind::Copy, &[from], &[to])]);
        plan
    };
    let mut packets = packet_allreduce();
    for gpu in &mut packets.gpus {
        let ops = std::mem::take(&mut gpu.threadblocks[0].ops);
        gpu.threadblocks[0].ops = vec![pipeline(12, 2, ops)];
    }
    let strict = |sizes| CallSizes { strict: true, ..sizes };
    let table = [
        (allreduce(2, 1, true), sizes(6, 6, 4)),
        (allreduce(2, 1, true), sizes(8, 8, 0)),
        (allreduce(2, 1, true), sizes(8, 16, 4)),
        (small.clone(), sizes(8, 8, 4)),
        (small, sizes(128, 128, 4)),
        (allgather(3, 1, true), sizes(8, 16, 4)),
        (reduce_scatter(3, 1, true), sizes(8, 8, 4)),
        (alltoall(3, 1, true), sizes(16, 16, 4)),
        (uneven, sizes(240, 240, 4)),
        (shifted, sizes(20, 20, 4)),
        (unconstrained, sizes(32, 48, 4)),
        (pipelined_exchange(1, 18), sizes(64, 64, 4)),
        (packets, sizes(64, 64, 4)),
        (allreduce(2, 1, true), strict(sizes(24, 24, 4))),
        (allreduce(2, 1, true), strict(sizes(48, 48, 4))),
        (plan(Collective::Test, 1, [0, 0, 1]), strict(sizes(48, 48, 4))),
        (allreduce(2, 1, true), sizes(u64::MAX, u64::MAX, 1)),
        (plan(Collective::Test, 1, [1, 1, u64::MAX]), sizes(64, 64, 1)),
    ];
    let mut saw = String::new();
    for (plan, sizes) in table {
        let error = Layout::new(&plan).unwrap().program(0, sizes).unwrap_err();
        saw += &format!("{error}\n");
    }
    insta::assert_snapshot!(saw);
    let error = Layout::new(&allgather(2, 1, true)).unwrap().program(2, sizes(8, 16, 4));
    assert_eq!(error, Err(LowerError::Rank { rank: 2, ranks: 2 }));
}
