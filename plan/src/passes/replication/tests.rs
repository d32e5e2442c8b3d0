//! Every rule by itself, what replicated plans compute, and real plans of one program with one and four instances.

use super::*;
use crate::interpret::{Memory, interpret};
use crate::json;
use crate::model::{Buffer, ChannelType, Collective, OpKind, RankGroup, RemoteBuffer};
use crate::passes::Step;
use crate::passes::notation::{steps, text};
use crate::program::{CallSizes, Layout};
use crate::real_samples::real_plans;
use crate::samples;

/// A rank whose blocks do these programs, and a second rank that does nothing.
fn plan(programs: &[&str]) -> Plan {
    let mut plan = samples::plan(Collective::Test, 2, [2, 4, 8]);
    plan.gpus[0].threadblocks = (0..)
        .zip(programs)
        .map(|(id, program)| ThreadBlock {
            id,
            ops: steps(program).into_iter().map(Step::into_op).collect(),
            ..ThreadBlock::default()
        })
        .collect();
    plan
}

/// The blocks of a plan's first rank, as text.
fn blocks(plan: &Plan) -> String {
    let steps = |ops: &[Op]| {
        let step = |op: &Op| {
            let inner = op.pipeline.iter().flat_map(|p| &p.ops).cloned().map(Step::new);
            Step { body: inner.collect(), ..Step::new(op.clone()) }
        };
        ops.iter().map(step).collect::<Vec<_>>()
    };
    let blocks = plan.gpus[0].threadblocks.iter();
    blocks.map(|block| format!("tb {}\n{}", block.id, text(&steps(&block.ops)))).collect()
}

#[test]
fn every_reference_is_shifted() {
    let mut plan = plan(&[
        "copy o1+3 <- i0+3
         put @0.2+2, @1.0 <- o2+2, s1
         get s0+2 <- @0.3+2
         rres i1, @0.2 <- i1, @0.0
         pipeline {
           put @0.1 <- i1
           signal none
         }",
        "nop",
    ]);
    replicate(&mut plan, 3, Policy::Interleaved);
    insta::assert_snapshot!(blocks(&plan));
    assert_eq!((plan.gpus[0].input_chunks, plan.gpus[0].output_chunks), (6, 12));
    assert_eq!(plan.gpus[0].scratch_chunks, 24);
    assert_eq!(plan.gpus[1].scratch_chunks, 24);
}

/// The format's own DSL leaves local packet destinations where they are, and all instances write to the same.
#[test]
fn local_packets_of_reductions_are_shifted_too() {
    let mut plan = plan(&["recpkt i0, s1 <- i0, s0\nrecspkt i1, s3, @0.3 <- i1, s2"]);
    replicate(&mut plan, 2, Policy::Interleaved);
    insta::assert_snapshot!(blocks(&plan));
}

/// The format's own DSL writes the source's index for both sides of a switch operation.
#[test]
fn both_sides_of_switch_operations_are_shifted() {
    let mut plan = plan(&["glres %0.2 <- %0.1\ngstore %0.3+2 <- o1+2\nglre o1 <- %0.0"]);
    replicate(&mut plan, 2, Policy::Interleaved);
    insta::assert_snapshot!(blocks(&plan));
}

#[test]
fn a_pipeline_keeps_its_windows() {
    let mut plan = plan(&["pipeline {\n copy o0 <- i0\n}"]);
    let of = |plan: &Plan| {
        let pipeline = |block: &ThreadBlock| {
            let pipeline = block.ops[0].pipeline.as_ref().unwrap();
            (pipeline.unit_size, pipeline.num_chunks)
        };
        plan.gpus[0].threadblocks.iter().map(pipeline).collect::<Vec<_>>()
    };
    let before = of(&plan);
    replicate(&mut plan, 2, Policy::Interleaved);
    assert_eq!(of(&plan), [before[0]; 2]);
}

#[test]
fn instances_have_resources_of_their_own() {
    let mut plan = plan(&["nop", "nop"]);
    let group = |ranks: &[u64]| RankGroup { size: ranks.len() as u64, ranks: ranks.to_vec() };
    let gpu = &mut plan.gpus[0];
    let peers = |channel_type, peers: &[u64]| ChannelTable::Peers {
        channel_type,
        connected_to: peers.to_vec(),
    };
    gpu.channels = vec![
        peers(ChannelType::Memory, &[1, 2]),
        peers(ChannelType::Port, &[3]),
        ChannelTable::Switch {
            buffer: Buffer::Input,
            groups: vec![group(&[0, 1]), group(&[0, 2])],
        },
        ChannelTable::Switch { buffer: Buffer::Output, groups: vec![group(&[0, 3])] },
    ];
    gpu.semaphores = vec![5, 7];
    let access = vec![ChannelType::Memory];
    gpu.remote_buffers = vec![RemoteBuffer { rank: 1, buffer: Buffer::Output, access }];
    let block = &mut gpu.threadblocks[1];
    block.channels = vec![(ChannelType::Memory, vec![1, 0]), (ChannelType::Switch, vec![2])];
    block.remote_buffer_refs = vec![(ChannelType::Memory, vec![0])];
    let mut signal = Op::new(OpKind::Signal);
    signal.channel_ids = vec![0, 1];
    let mut acquire = Op::new(OpKind::SemaphoreAcquire);
    acquire.semaphore_ids = vec![1, 0];
    let mut barrier = Op::new(OpKind::Barrier);
    (barrier.barrier_id, barrier.num_threadblocks) = (Some(3), Some(2));
    block.ops = vec![signal.clone(), acquire, barrier, samples::pipeline(64, 1, vec![signal])];
    let before = plan.gpus[0].clone();

    replicate(&mut plan, 2, Policy::Interleaved);
    let gpu = &plan.gpus[0];
    let switch =
        |buffer, ranks: &[u64]| ChannelTable::Switch { buffer, groups: vec![group(ranks)] };
    let expected = [
        peers(ChannelType::Memory, &[1, 1, 2, 2]),
        peers(ChannelType::Port, &[3, 3]),
        switch(Buffer::Input, &[0, 1]),
        switch(Buffer::Input, &[0, 1]),
        switch(Buffer::Input, &[0, 2]),
        switch(Buffer::Input, &[0, 2]),
        switch(Buffer::Output, &[0, 3]),
        switch(Buffer::Output, &[0, 3]),
    ];
    assert_eq!(gpu.channels, expected);
    assert_eq!(gpu.semaphores, [5, 5, 7, 7]);
    assert_eq!(gpu.remote_buffers, before.remote_buffers);
    let ids: Vec<u64> = gpu.threadblocks.iter().map(|block| block.id).collect();
    assert_eq!(ids, [0, 1, 2, 3]);
    for (i, block) in [(0, &gpu.threadblocks[2]), (1, &gpu.threadblocks[3])] {
        let expected = [(ChannelType::Memory, vec![2 + i, i]), (ChannelType::Switch, vec![4 + i])];
        assert_eq!(block.channels, expected);
        assert_eq!(block.remote_buffer_refs, before.threadblocks[1].remote_buffer_refs);
        assert_eq!(block.ops[0].channel_ids, [0, 1]);
        assert_eq!(block.ops[1].semaphore_ids, [2 + i, i]);
        assert_eq!(
            (block.ops[2].barrier_id, block.ops[2].num_threadblocks),
            (Some(6 + i), Some(2))
        );
        assert_eq!(block.ops[3].pipeline.as_ref().unwrap().ops[0].channel_ids, [0, 1]);
    }
}

#[test]
fn one_instance_changes_nothing() {
    for policy in [Policy::Interleaved, Policy::None] {
        let plan = samples::allreduce(2, 1, true);
        let mut same = plan.clone();
        replicate(&mut same, 1, policy);
        assert_eq!(same, plan);
    }
}

#[test]
fn instances_compute_together_what_one_does() {
    let plans = [
        samples::allgather(3, 2, true),
        samples::reduce_scatter(3, 1, true),
        samples::allreduce(3, 2, false),
        samples::alltoall(3, 1, true),
        samples::packet_allreduce(),
        samples::pipelined_exchange(2, 16),
    ];
    for plan in plans {
        let run = |plan: &Plan| {
            let layout = Layout::new(plan).unwrap();
            let ranks = plan.gpus.len() as u64;
            let block = 2 * 3 * 16 * 4_u64;
            let (input, output) = match plan.collective {
                Collective::AllGather => (block, block * ranks),
                Collective::ReduceScatter => (block * ranks, block),
                _ => (block * ranks, block * ranks),
            };
            let sizes = CallSizes { input, output, element: 4, strict: false };
            let memories = (0..ranks).map(|rank| {
                let number = |i: u64| ((rank * 1000 + i * 7) % 4096) as f64;
                let input = (0..input / 4).map(number).collect();
                Memory::separate(input, vec![-1.0; (output / 4) as usize])
            });
            let memories = interpret(&layout, sizes, memories.collect()).unwrap();
            memories.iter().map(|m| (m.input().to_vec(), m.output().to_vec())).collect::<Vec<_>>()
        };
        let expected = run(&plan);
        for instances in [2, 3] {
            let mut replicated = plan.clone();
            replicate(&mut replicated, instances, Policy::Interleaved);
            crate::check(&replicated).unwrap();
            assert_eq!(run(&replicated), expected, "{} by {instances}", plan.name);
        }
    }
}

#[test]
fn as_the_formats_own_dsl_does() {
    let plans = real_plans();
    let mut pairs = 0;
    for (name, bytes) in &plans {
        let Some(stem) = name.strip_suffix("-is1.json") else { continue };
        let four = format!("{stem}-is4.json");
        let Some((_, expected)) = plans.iter().find(|(name, _)| *name == four) else { continue };
        let mut plan = json::read(bytes).unwrap().plan;
        let expected = json::read(expected).unwrap().plan;
        replicate(&mut plan, 4, Policy::Interleaved);
        plan.name.clone_from(&expected.name);
        assert_eq!(plan, expected, "{stem}");
        pairs += 1;
    }
    assert!(plans.is_empty() || pairs > 0, "no pair among the real plans");
}
