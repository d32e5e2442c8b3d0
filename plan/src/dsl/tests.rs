//! Programs as they are recorded: what may be said, what not, and where it lands in the plan.

use super::*;
use crate::model::{ChannelTable, Collective, OpKind, Plan, RefBase};
use crate::passes::DataSync;
use antiphon_types::ReduceOp;

/// A program of three ranks with four chunks of input and output each.
fn program() -> Program {
    let settings = Settings::new("p", Collective::Test, 3).chunks(4, 4);
    Program::new(settings).unwrap()
}

fn chunk(p: &Program, rank: u64, run: Range<u64>) -> Chunk {
    p.chunk(rank, Buffer::Input, run).unwrap()
}

fn kinds(plan: &Plan, rank: usize, block: usize) -> Vec<OpKind> {
    plan.gpus[rank].threadblocks[block].ops.iter().map(|op| op.kind).collect()
}

const ON: On<'static> = On::block(0);

#[test]
fn what_a_program_says_of_itself_may_change() {
    let mut p = program();
    p.amend(|settings| settings.name = "q".to_owned()).unwrap();
    let refused = p.amend(|settings| settings.instances = 0).unwrap_err();
    assert!(refused.to_string().contains("saw 0 instances"), "{refused}");
    assert_eq!((p.settings().name.as_str(), p.settings().instances), ("q", 1));
    assert_eq!(p.finish().unwrap().plan.name, "q");
}

#[test]
fn mistakes_are_refused_where_they_are_made() {
    let mut p = program();
    let over = p.channel(ChannelType::Memory, 1, 0).unwrap();
    let port = p.channel(ChannelType::Port, 1, 0).unwrap();
    let (own, far, third) = (chunk(&p, 0, 0..1), chunk(&p, 1, 0..1), chunk(&p, 2, 0..1));
    let wide = chunk(&p, 0, 0..2);
    let semaphore = Semaphore { rank: 0, id: 0 };
    let foreign = Channel { id: 9, ..over };
    let sum = ReduceOp::Sum;
    let none = On { block: None, group: None };
    let mut cases: Vec<(Result<(), Misuse>, &str)> = vec![
        (p.put(over, far, far, ON), "saw a source chunk of rank 1, allowed rank 0"),
        (p.put(over, own, own, ON), "saw a destination chunk of rank 0, allowed rank 1"),
        (p.put(over, third, own, ON), "saw a destination chunk of rank 2, allowed rank 1"),
        (p.put(over, far, wide, ON), "saw runs of 2 and 1 chunks"),
        (p.put(over, far, own, none), "saw neither a thread block nor a thread-block group"),
        (p.put(over, far, own, On::block(1 << 20)), "cannot use thread block 1048576"),
        (p.put(foreign, far, own, ON), "cannot use this channel on rank 0"),
        (p.transfer(Transfer::Get, over, far, far, ON), "saw a destination chunk of rank 1"),
        (p.transfer(Transfer::Get, port, own, far, ON), "cannot get over a port channel"),
        (
            p.transfer(Transfer::PutWithSignal, over, far, own, ON),
            "cannot put_with_signal over a memory channel",
        ),
        (
            p.transfer(Transfer::PutPackets, over, far, own, ON),
            "cannot put_packets with packets in buffer i",
        ),
        (
            p.copy(OpKind::Copy, 1, own, own, ON),
            "saw a destination chunk of rank 0, allowed rank 1",
        ),
        (
            p.copy(OpKind::UnpackPackets, 0, own, own, ON),
            "cannot unpack_packets with packets in buffer i",
        ),
        (
            p.copy(OpKind::CopyPackets, 0, own, own, ON),
            "cannot copy_packets with packets in buffer i",
        ),
        (p.copy(OpKind::Copy, 7, own, own, ON), "cannot use rank 7: allowed 0 to 2"),
        (p.copy(OpKind::Copy, -1, own, own, ON), "cannot use rank -1: allowed 0 to 2"),
        (p.reduce(0, own, own, &[], sum, false, ON), "Other chunk empty."),
        (p.reduce(0, own, own, &[far], sum, false, ON), "saw a source chunk of rank 1"),
        (
            p.reduce(0, own, own, &[own], sum, true, ON),
            "cannot reduce_packets with packets in buffer i",
        ),
        (p.read_reduce(over, own, own, &[third], sum, ON), "of rank 2, allowed rank 1"),
        (p.read_reduce(port, own, own, &[far], sum, ON), "cannot reduce over a port channel"),
        (p.flush(over, ON, DataSync::BOTH), "cannot flush over a memory channel"),
        (p.acquire(semaphore, ON, DataSync::BOTH), "cannot use this semaphore on rank 0"),
        (p.barrier(0, &[]), "Barrier requires at least thread block."),
        (p.barrier(0, &[1, 1]), "saw a block twice"),
        (p.end_pipeline(), "none is open"),
        (p.begin_pipeline(0, 1), "in windows of 0 bytes"),
    ];
    p.begin_pipeline(64, 1).unwrap();
    cases.push((p.begin_pipeline(64, 1), "Nested Pipelines are not Supported."));
    cases.push((p.barrier_of_everyone(0), "inside a pipeline"));
    cases.push((p.finish().map(drop), "a pipeline is still open"));
    for (outcome, expected) in cases {
        let text = outcome.expect_err(expected).to_string();
        assert!(text.contains(expected), "`{expected}` is missing in: {text}");
    }
}

#[test]
fn handles_that_cannot_be_are_not_made() {
    let text = |outcome: Misuse| outcome.to_string();
    assert_eq!(
        text(Program::new(Settings::new("p", Collective::Test, 0)).unwrap_err()),
        text(Misuse::NoRanks)
    );
    let zero = Settings { instances: 0, ..Settings::new("p", Collective::Test, 1) };
    assert!(text(Program::new(zero).unwrap_err()).contains("saw 0 instances"));
    let none =
        Settings { instances: 2, policy: Policy::None, ..Settings::new("p", Collective::Test, 1) };
    assert!(text(Program::new(none).unwrap_err()).contains("cannot replicate 2 instances"));
    let mut p = program();
    assert!(text(p.channel(ChannelType::Memory, 3, 0).unwrap_err()).contains("cannot use rank 3"));
    assert!(text(p.switch(&[0, 0], Buffer::Input).unwrap_err()).contains("different ranks"));
    assert!(text(p.switch(&[], Buffer::Input).unwrap_err()).contains("1 or more"));
    assert!(text(p.scratch(9, 1).unwrap_err()).contains("cannot use rank 9"));
    assert!(text(p.semaphore(-3, 1).unwrap_err()).contains("cannot use rank -3"));
    let beyond = p.chunk(0, Buffer::Output, 3..5).unwrap_err();
    assert!(text(beyond).contains("chunks 3 to 5 (exclusive) of buffer o of rank 0"));
    assert!(text(BlockGroup::new(vec![1, 2, 1]).unwrap_err()).contains("saw block 1 twice"));
}

#[test]
fn instances_are_bounded_by_the_blocks_a_rank_can_have() {
    let settings = Settings::new("p", Collective::Test, 1).chunks(1, 1);
    let mut p = Program::new(Settings { instances: 40_000, ..settings }).unwrap();
    let (from, to) = (chunk(&p, 0, 0..1), p.chunk(0, Buffer::Output, 0..1).unwrap());
    p.copy(OpKind::Copy, 0, to, from, On::block(1)).unwrap();
    let text = p.finish().unwrap_err().to_string();
    assert!(text.contains("cannot replicate 2 blocks of rank 0 in 40000 instances"), "{text}");
}

#[test]
fn tables_grow_with_first_use() {
    let mut p = program();
    let sum = ReduceOp::Sum;
    let unused = p.channel(ChannelType::Memory, 1, 0).unwrap();
    let over = p.channel(ChannelType::Memory, 2, 0).unwrap();
    let back = p.channel(ChannelType::Memory, 0, 2).unwrap();
    assert_eq!((unused.id, over.id, back.id), (0, 1, 0));
    let (own, far) = (chunk(&p, 0, 1..2), chunk(&p, 2, 3..4));
    p.put(over, far, own, On::block(1)).unwrap();
    p.read_reduce(over, own, own, &[far], sum, On::block(1)).unwrap();
    p.signal(over, On::block(1), DataSync::BOTH, false).unwrap();
    p.wait(back, ON, DataSync::BOTH, true).unwrap();
    let plan = p.finish().unwrap().plan;
    let rank = &plan.gpus[0];
    assert_eq!(rank.threadblocks.len(), 2, "blocks up to the one named");
    assert!(rank.threadblocks[0].ops.is_empty());
    let put = &rank.threadblocks[1].ops[0];
    assert_eq!((put.kind, put.dst[0].base, put.dst[0].index), (OpKind::Put, RefBase::Remote(0), 3));
    assert!(put.channel_ids.is_empty(), "memory needs none");
    assert_eq!(rank.remote_buffers[0].rank, 2);
    let ChannelTable::Peers { connected_to, .. } = &rank.channels[0] else { panic!("no peers") };
    assert_eq!(*connected_to, [1, 2]);
    assert_eq!(rank.threadblocks[1].channels, [(ChannelType::Memory, vec![1])]);
    p.signal(unused, ON, DataSync::BOTH, false).unwrap();
    let text = p.finish().unwrap_err().to_string();
    assert!(text.contains("has no pair on rank 1: saw 1 signals and 0 waits"), "{text}");
}

#[test]
fn a_group_shares_an_operation() {
    let mut p = program();
    let group = BlockGroup::new(vec![2, 0]).unwrap();
    let (from, to) = (chunk(&p, 0, 0..1), chunk(&p, 0, 1..2));
    let everyone = On { block: None, group: Some(&group) };
    p.copy(OpKind::Copy, 0, to, from, everyone).unwrap();
    let plan = p.finish().unwrap().plan;
    let slices: Vec<_> = plan.gpus[0]
        .threadblocks
        .iter()
        .map(|block| {
            block.ops.first().and_then(|op| op.group).map(|slice| (slice.tb_id, slice.tbg_size))
        })
        .collect();
    assert_eq!(slices, [Some((1, 2)), None, Some((0, 2))]);
    let mut p = program();
    let outside = On { block: Some(1), group: Some(&group) };
    let text = p.copy(OpKind::Copy, 0, to, from, outside).unwrap_err().to_string();
    assert!(text.contains("cannot take block 1 of the thread-block group [2, 0]"), "{text}");
    let one = On { block: Some(0), group: Some(&group) };
    p.copy(OpKind::Copy, 0, to, from, one).unwrap();
    let plan = p.finish().unwrap().plan;
    assert_eq!(plan.gpus[0].threadblocks.len(), 1);
    assert_eq!(plan.gpus[0].threadblocks[0].ops[0].group.unwrap().tb_id, 1);
}

#[test]
fn barriers_are_numbered_by_program() {
    for _ in 0..2 {
        let mut p = program();
        for blocks in [&[0, 1][..], &[1, 0], &[0, 1], &[0]] {
            p.barrier(1, blocks).unwrap();
        }
        let plan = p.finish().unwrap().plan;
        let ids: Vec<_> = plan.gpus[1].threadblocks[0].ops.iter().map(|op| op.barrier_id).collect();
        assert!(
            ids.starts_with(&[Some(0), Some(1), Some(0)]),
            "in the order of first use: {ids:?}"
        );
    }
}

#[test]
fn a_barrier_of_everyone_counts_the_blocks_that_the_program_uses() {
    let mut p = program();
    let (from, to) = (chunk(&p, 0, 0..1), chunk(&p, 0, 1..2));
    p.copy(OpKind::Copy, 0, to, from, ON).unwrap();
    p.barrier_of_everyone(0).unwrap();
    // Block 1 comes to be, but does nothing.
    p.copy(OpKind::Copy, 0, from, to, On::block(2)).unwrap();
    let plan = p.finish().unwrap().plan;
    assert_eq!(kinds(&plan, 0, 0), [OpKind::Copy, OpKind::Barrier]);
    assert_eq!(kinds(&plan, 0, 1), []);
    assert_eq!(kinds(&plan, 0, 2), [OpKind::Barrier, OpKind::Copy]);
    assert_eq!(plan.gpus[0].threadblocks[2].ops[0].num_threadblocks, Some(2));
}

#[test]
fn a_pipeline_collects_the_operations_of_every_block() {
    let mut p = program();
    let (a, b) = (chunk(&p, 0, 0..1), chunk(&p, 0, 1..2));
    let c = chunk(&p, 1, 0..1);
    p.begin_pipeline(1024, 2).unwrap();
    p.copy(OpKind::Copy, 0, b, a, On::block(1)).unwrap();
    p.copy(OpKind::Copy, 1, chunk(&p, 1, 1..2), c, ON).unwrap();
    p.end_pipeline().unwrap();
    let compiled = p.finish().unwrap();
    let pipeline = &compiled.plan.gpus[0].threadblocks[1].ops[0];
    let body = pipeline.pipeline.as_ref().unwrap();
    assert_eq!((body.unit_size, body.num_chunks, body.ops.len()), (1024, 2, 1));
    assert_eq!(kinds(&compiled.plan, 1, 0), [OpKind::Pipeline]);
    assert_eq!(compiled.report.recorded, 2);
}

#[test]
fn switch_chunks_are_checked_at_once_or_at_the_end() {
    let mut p = program();
    let switch = p.switch(&[0, 2], Buffer::Scratch).unwrap();
    let own = p.scratch(0, 1).unwrap();
    let store =
        |p: &mut Program, checked| p.switch_store(&switch, 0, own, 0, 1, false, checked, ON);
    let text = store(&mut p, MembersChecked::Now).unwrap_err().to_string();
    assert!(text.contains("of buffer s of rank 2: it has 0 chunks"), "{text}");
    store(&mut p, MembersChecked::AtEnd).unwrap();
    assert!(p.finish().unwrap_err().to_string().contains("of buffer s of rank 2"));
    p.scratch(2, 1).unwrap();
    let plan = p.finish().unwrap().plan;
    assert_eq!(kinds(&plan, 0, 0), [OpKind::GroupStore]);
    let input = p.chunk(1, Buffer::Input, 0..1).unwrap();
    let sum = ReduceOp::Sum;
    let alien = p.switch_reduce(&switch, 1, 0, 1, input, sum, MembersChecked::Now, ON);
    assert!(alien.unwrap_err().to_string().contains("it belongs to [0, 2]"));
}

#[test]
fn in_place_the_two_names_of_one_memory_keep_operations_apart() {
    for (in_place, expected) in [(false, 1), (true, 2)] {
        let settings = Settings::new("p", Collective::AllReduce, 1).chunks(1, 1);
        let mut p = Program::new(Settings { in_place, ..settings }).unwrap();
        let input = p.chunk(0, Buffer::Input, 0..1).unwrap();
        let output = p.chunk(0, Buffer::Output, 0..1).unwrap();
        let scratch = p.scratch(0, 1).unwrap();
        let sum = ReduceOp::Sum;
        p.reduce(0, input, input, &[scratch], sum, false, ON).unwrap();
        // In place this doubles what the first one made.
        p.reduce(0, input, input, &[output], sum, false, ON).unwrap();
        let plan = p.finish().unwrap().plan;
        let reductions = kinds(&plan, 0, 0).into_iter().filter(|&kind| kind == OpKind::Reduce);
        assert_eq!(reductions.count(), expected, "in place: {in_place}");
    }
}

#[test]
fn finishing_twice_gives_the_same_plan() {
    let mut p = program();
    let (a, b) = (chunk(&p, 0, 0..1), chunk(&p, 0, 1..2));
    p.copy(OpKind::Copy, 0, b, a, ON).unwrap();
    p.copy(OpKind::Copy, 0, a, b, ON).unwrap();
    assert_eq!(p.finish(), p.finish());
}
