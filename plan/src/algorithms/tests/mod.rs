//! Every built-in algorithm, run symbolically over many interleavings, and the text of a few plans.

mod hierarchical;
mod rooted;
mod simulator;
mod text;
mod values;

use super::*;
use crate::model::{OpKind, RefBase};
use proptest::prelude::*;
use simulator::{Setting, is_packets, simulate};
use values::{Value, input, sum};

/// What the collective promises for an output cell, with sums in this order.
fn promised(
    plan: &Plan,
    shape: Shape,
    order: SumOrder,
    cells: usize,
) -> impl Fn(u32, usize, usize) -> Value {
    let Shape { ranks, nodes, in_place, root, .. } = shape;
    let collective = plan.collective.clone();
    let block = match collective {
        Collective::AllGather => plan.gpus[0].input_chunks as usize * cells,
        Collective::AllToAll => plan.gpus[0].output_chunks as usize / ranks * cells,
        Collective::ReduceScatter => plan.gpus[0].output_chunks as usize * cells,
        _ => 0,
    };
    move |launch, rank, cell| {
        let from = |rank, cell| input((launch, rank, cell));
        let sum = |cell: usize| match order {
            SumOrder::Ranks | SumOrder::Hardware => sum((0..ranks).map(|r| from(r, cell))),
            SumOrder::Ring => sum((0..ranks).map(|r| from((cell / cells + r) % ranks, cell))),
            SumOrder::Nodes => {
                let size = ranks / nodes;
                let node = |node| sum((node * size..(node + 1) * size).map(|r| from(r, cell)));
                sum((0..nodes).map(node))
            }
        };
        match collective {
            Collective::AllReduce => sum(cell),
            Collective::AllGather => from(cell / block, cell % block),
            Collective::ReduceScatter => sum(rank * block + cell),
            Collective::AllToAll => from(cell / block, rank * block + cell % block),
            Collective::Broadcast => from(root, cell),
            Collective::Reduce if rank == root => sum(cell),
            Collective::Reduce if in_place => from(rank, cell),
            Collective::SendRecv => from((rank + ranks - 1) % ranks, cell),
            _ => None,
        }
    }
}

fn run(plan: &Plan, shape: Shape, order: SumOrder, setting: Setting) -> Result<(), String> {
    let promise = promised(plan, shape, order, setting.cells);
    simulate(plan, setting, &promise)
}

fn setting(in_place: bool, seed: u64) -> Setting {
    Setting { in_place, cells: 3, window: 2, threads: 2, launches: 3, seed }
}

#[test]
fn every_algorithm_keeps_its_promise_for_every_rank_count() {
    for algorithm in Algorithm::ALL {
        for ranks in 1..=9 {
            for in_place in [false, true] {
                let everyone = (0, 1, Handshake::Everyone);
                for (root, blocks, handshake) in [everyone, (ranks - 1, 2, Handshake::Hub)] {
                    let shape = Shape { root, in_place, blocks, handshake, ..Shape::new(ranks) };
                    let plan = algorithm.plan(shape).unwrap_or_else(|e| panic!("{e}"));
                    assert_eq!(plan.in_place, in_place);
                    for seed in 1..=8 {
                        let order = algorithm.sum_order();
                        let result = run(&plan, shape, order, setting(in_place, seed));
                        assert_eq!(result, Ok(()), "{algorithm} {shape:?} seed {seed}");
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_algorithm_keeps_its_promise_in_any_shape(
        which in 0..Algorithm::ALL.len(),
        ranks in 1..6_usize,
        in_place: bool,
        hub: bool,
        root in 0..6_usize,
        blocks in 1..4_usize,
        cells in 1..6_usize,
        threads in 1..4_usize,
        launches in 1..6_u32,
        seed: u64,
    ) {
        let algorithm = Algorithm::ALL[which];
        let handshake = if hub { Handshake::Hub } else { Handshake::Everyone };
        let shape = Shape { root: root % ranks, in_place, blocks, handshake, ..Shape::new(ranks) };
        let plan = algorithm.plan(shape).expect("a valid shape");
        let setting = Setting { in_place, cells, window: 2, threads, launches, seed };
        let result = run(&plan, shape, algorithm.sum_order(), setting);
        prop_assert_eq!(result, Ok(()), "{} {:?} {:?}", algorithm, shape, setting);
    }
}

#[test]
fn the_examples_keep_their_promises() {
    let mut names = Vec::new();
    for (file, plan) in examples().expect("valid examples") {
        let shape = Shape { in_place: plan.in_place, ..Shape::new(plan.gpus.len()) };
        let order = if file.contains("ring") { SumOrder::Ring } else { SumOrder::Ranks };
        for seed in 1..=5 {
            let setting = Setting { cells: 5, ..setting(plan.in_place, seed) };
            let result = run(&plan, shape, order, setting);
            assert_eq!(result, Ok(()), "{file} seed {seed}");
        }
        assert!(file.starts_with(plan.collective.name()), "{file}");
        names.push(file);
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), examples().expect("valid examples").len());
}

/// The simulator must see what is wrong, or its approval means nothing.
#[test]
fn the_simulator_finds_broken_plans() {
    let drop_ops = |plan: &mut Plan, drop: &dyn Fn(usize, usize, OpKind) -> bool| {
        for (rank, gpu) in plan.gpus.iter_mut().enumerate() {
            for tb in &mut gpu.threadblocks {
                let mut index = 0;
                tb.ops.retain(|op| {
                    index += 1;
                    !drop(rank, index - 1, op.kind)
                });
            }
        }
    };
    let is_handshake = |kind| matches!(kind, OpKind::RelaxedSignal | OpKind::RelaxedWait);
    let is_acknowledgement = |kind| matches!(kind, OpKind::Signal | OpKind::Wait);
    type Broken<'a> = (&'a str, Algorithm, bool, &'a dyn Fn(usize, usize, OpKind) -> bool);
    let cases: [Broken<'_>; 8] = [
        ("no ready", Algorithm::AllGatherZeroCopy, false, &|_, _, kind| is_handshake(kind)),
        ("no done", Algorithm::AllGatherZeroCopy, false, &|_, _, kind| is_acknowledgement(kind)),
        ("no done", Algorithm::ReduceScatterZeroCopy, false, &|_, _, k| is_acknowledgement(k)),
        ("no acknowledgement", Algorithm::BroadcastPackets, false, &|_, _, k| {
            is_acknowledgement(k)
        }),
        ("no acknowledgement", Algorithm::ReducePackets, false, &|_, _, k| is_acknowledgement(k)),
        ("no acknowledgement", Algorithm::SendRecvPackets, false, &|_, _, k| is_acknowledgement(k)),
        ("no nop", Algorithm::AllReduceRing, false, &|_, _, kind| kind == OpKind::Nop),
        ("one signal lost", Algorithm::AllReduceRing, true, &|rank, _, kind| {
            rank == 1 && kind == OpKind::Signal
        }),
    ];
    for (what, algorithm, in_place, drop) in cases {
        let shape = Shape { in_place, ..Shape::new(4) };
        let mut plan = algorithm.plan(shape).expect("a valid shape");
        drop_ops(&mut plan, drop);
        let order = algorithm.sum_order();
        let found = (1..=40).any(|seed| {
            let setting = Setting { launches: 6, ..setting(in_place, seed) };
            run(&plan, shape, order, setting).is_err()
        });
        assert!(found, "{algorithm} with {what} passed");
    }

    // Out-of-place plans that may not run in place, and one half of scratch where two are needed.
    for algorithm in [Algorithm::AllToAllZeroCopy, Algorithm::SendRecvZeroCopy] {
        let plan = algorithm.plan(Shape::new(3)).expect("a valid shape");
        let shape = Shape { in_place: true, ..Shape::new(3) };
        let wrong = |seed| run(&plan, shape, SumOrder::Ranks, setting(true, seed)).is_err();
        assert!((1..=40).any(wrong), "{algorithm}");
    }
    let mut plan = allreduce::one_shot_packets(Shape::new(3)).expect("a valid shape");
    plan.use_double_scratch_buffer = false;
    let wrong = |seed| run(&plan, Shape::new(3), SumOrder::Ranks, setting(false, seed)).is_err();
    assert!((1..=40).any(wrong), "single scratch passed");
}

#[test]
fn out_of_place_reductions_are_also_right_in_place() {
    let fit = [
        Algorithm::AllReduceOneShotPackets,
        Algorithm::AllReduceTwoShotPackets,
        Algorithm::AllReduceZeroCopy,
        Algorithm::AllReduceRing,
        Algorithm::ReduceScatterPackets,
        Algorithm::ReduceScatterZeroCopy,
        Algorithm::ReducePackets,
        Algorithm::ReduceZeroCopy,
    ];
    for algorithm in fit {
        let plan = algorithm.plan(Shape::new(5)).expect("a valid shape");
        let shape = Shape { in_place: true, ..Shape::new(5) };
        for seed in 1..=3 {
            let result = run(&plan, shape, algorithm.sum_order(), setting(true, seed));
            assert_eq!(result, Ok(()), "{algorithm} seed {seed}");
        }
    }
}

/// Raw scratch chunk k begins where packet chunk k / 2 does, where both share one address range.
#[test]
fn packets_and_raw_scratch_keep_apart() {
    for algorithm in Algorithm::ALL {
        let plan = algorithm.plan(Shape::new(5)).expect("a valid shape");
        let (mut packet_end, mut raw_start) = (0, u64::MAX);
        for op in plan.gpus.iter().flat_map(|gpu| &gpu.threadblocks).flat_map(|tb| &tb.ops) {
            let sources = op.src.iter().enumerate().map(|(i, r)| (true, i, r));
            let destinations = op.dst.iter().enumerate().map(|(i, r)| (false, i, r));
            for (source, position, chunks) in sources.chain(destinations) {
                if is_packets(op.kind, source, position) {
                    packet_end = packet_end.max(2 * (chunks.index + chunks.size));
                } else if chunks.base == RefBase::Local(crate::model::Buffer::Scratch) {
                    raw_start = raw_start.min(chunks.index);
                }
            }
        }
        assert!(packet_end <= raw_start, "{algorithm}: {packet_end} > {raw_start}");
    }
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    for algorithm in Algorithm::ALL {
        assert!(algorithm.plan(Shape::new(0)).is_err(), "{algorithm}");
        let rooted = matches!(algorithm.collective(), Collective::Broadcast | Collective::Reduce);
        let plan = algorithm.plan(Shape { root: 3, ..Shape::new(3) });
        assert_eq!(plan.is_err(), rooted, "{algorithm}");
        if let Err(error) = plan {
            let text = error.to_string();
            assert!(text.contains("cannot name rank 3: allowed 0..3"), "{text}");
        }
    }
}

#[test]
fn names_find_their_algorithms() {
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.name().parse(), Ok(algorithm));
        assert!(algorithm.name().starts_with(algorithm.collective().name()));
        assert!(Algorithm::all_for(&algorithm.collective()).any(|a| a == algorithm));
    }
    assert_eq!(Algorithm::all_for(&Collective::Test).count(), 0);
    let message = "ring".parse::<Algorithm>().unwrap_err().to_string();
    assert!(message.contains("`ring`") && message.contains("allreduce_ring"), "{message}");
}

#[test]
fn small_plans_read_like_this() {
    let plans = [
        ("one_shot_3", allreduce::one_shot_packets(Shape::new(3))),
        ("zero_copy_2", allreduce::zero_copy(Shape { blocks: 2, ..Shape::new(2) })),
        ("ring_3", allreduce::ring(Shape::new(3))),
        ("alltoall_in_place_2", alltoall::zero_copy(Shape { in_place: true, ..Shape::new(2) })),
        ("pipeline_2", examples::allgather_pipeline(2, 4096)),
    ];
    for (name, plan) in plans {
        insta::assert_snapshot!(name, text::render(&plan.expect("a valid shape"), 0));
    }
}
