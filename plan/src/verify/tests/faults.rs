//! One fault each, and the plan without it.

use super::*;
use crate::builder::ProgramBuilder;
use crate::model::Buffer::{Input, Output, Scratch};
use antiphon_types::ReduceOp;

const SIGNAL: OpKind = OpKind::Signal;
const WAIT: OpKind = OpKind::Wait;

/// Two ranks swap their inputs through scratch: what rank `rank` does.
fn swap(rank: usize) -> Vec<Op> {
    let peer = 1 - rank;
    vec![
        data(OpKind::Put, &[local(Input, 0, 1)], &[remote(rank, peer, Scratch, 0, 1)]),
        nop(),
        sync(SIGNAL, &[0]),
        sync(WAIT, &[0]),
        nop(),
        data(OpKind::Copy, &[local(Scratch, 0, 1)], &[local(Output, 0, 1)]),
        nop(),
        sync(SIGNAL, &[0]),
        sync(WAIT, &[0]),
        nop(),
    ]
}

fn swaps(change: impl Fn(Vec<Op>) -> Vec<Op>) -> Plan {
    pair([1, 1, 1], &[&[change(swap(0))], &[swap(1)]])
}

#[test]
fn what_is_missing_from_a_swap_through_scratch_shows() {
    let both =
        |change: fn(Vec<Op>) -> Vec<Op>| pair([1, 1, 1], &[&[change(swap(0))], &[change(swap(1))]]);
    let replaced = |at: usize, op: Op| {
        swaps(move |mut ops| {
            ops[at] = op.clone();
            ops
        })
    };
    let relaxed = |at, kind| replaced(at, sync(kind, &[0]));
    expect(&[
        ("intact", swaps(|ops| ops), "proven"),
        ("no nop before the signal", swaps(|ops| without(ops, 1)), "race"),
        ("no nop after the wait", swaps(|ops| without(ops, 4)), "race"),
        ("no nop before the last signal", swaps(|ops| without(ops, 6)), "race"),
        ("no nop at the end, where the launch ends", swaps(|ops| without(ops, 9)), "proven"),
        ("no signal", swaps(|ops| without(ops, 2)), "deadlock"),
        ("no last handshake", both(|ops| ops[..7].to_vec()), "race"),
        // It runs behind by one signal more with every launch.
        ("no wait", swaps(|ops| without(ops, 3)), "race"),
        ("a relaxed signal is made to order", relaxed(2, OpKind::RelaxedSignal), "proven"),
        ("a relaxed wait is made to order", relaxed(3, OpKind::RelaxedWait), "proven"),
        ("a relaxed last wait", relaxed(8, OpKind::RelaxedWait), "proven"),
        (
            "both wait before they signal",
            both(|mut ops| {
                ops.swap(2, 3);
                ops
            }),
            "deadlock",
        ),
        (
            "one waits before it signals",
            swaps(|mut ops| {
                ops.swap(2, 3);
                ops
            }),
            "proven",
        ),
    ]);
}

#[test]
fn wrong_results_show() {
    let gather = allgather(2, 1, true);
    let mut chunk = gather.clone();
    chunk.gpus[0].threadblocks[0].ops[4].dst[0].index = 1;
    let reduce = allreduce(2, 1, true);
    let mut op = reduce.clone();
    op.gpus[0].threadblocks[0].ops[3].reduce_op = Some(ReduceOp::Max);
    let mut twice = reduce.clone();
    let sources = &mut twice.gpus[0].threadblocks[0].ops[3].src;
    sources.push(sources[0]);
    let mut both = reduce.clone();
    for gpu in &mut both.gpus {
        let op = &mut gpu.threadblocks[0].ops[3];
        op.reduce_op = Some(ReduceOp::Max);
        op.src.push(op.src[0]);
    }
    let mut block = alltoall(2, 1, true);
    block.gpus[1].threadblocks[0].ops[3].src[0].index = 1;
    expect(&[
        ("all gather", gather, "proven"),
        // Two ranks write the same place.
        ("wrong chunk", chunk, "race"),
        ("all reduce", reduce, "proven"),
        ("another operation on one rank", op, "wrong"),
        ("reduced twice", twice, "wrong"),
        ("a maximum of the same twice", both, "proven"),
        ("all to all", alltoall(2, 1, true), "proven"),
        ("wrong block", block, "wrong"),
    ]);
}

#[test]
fn slices_that_overlap_at_some_sizes_only_show() {
    // With n units a chunk, the third third of one chunk starts at unit 2k + 1 for n = 3k + 1; the second sixth of two
    // chunks ends at 2k + 2 then, and nowhere else beyond.
    let plan = |sixth| {
        let third = sliced(data(OpKind::Copy, &[local(Input, 0, 1)], &[local(Output, 0, 1)]), 2, 3);
        let two = data(OpKind::Copy, &[local(Input, 1, 2)], &[local(Output, 0, 2)]);
        pair([3, 3, 0], &[&[vec![third], vec![sliced(two, sixth, 6)]], &[]])
    };
    expect(&[("apart", plan(0), "proven"), ("one unit", plan(1), "race")]);
}

#[test]
fn blocks_of_runtime_sizes_are_followed_too() {
    use crate::algorithms::{Handshake, Shape, allgatherv, alltoallv};
    let handshake = Handshake::Everyone;
    let right = alltoallv::zero_copy(Shape { blocks: 2, handshake, ..Shape::new(3) }).unwrap();
    let mut wrong = right.clone();
    let ops = &mut wrong.gpus[1].threadblocks[0].ops;
    let put = ops.iter_mut().find(|op| op.kind == OpKind::PutBlocks).unwrap();
    put.src[0].index = 1;
    let mut unsynced = right.clone();
    let ops = &mut unsynced.gpus[1].threadblocks[0].ops;
    let signal = ops.iter().rposition(|op| op.kind == OpKind::Signal).unwrap();
    let met = ops[..signal].iter().rposition(|op| op.kind == OpKind::Nop).unwrap();
    ops.remove(met);
    expect(&[
        ("all to all", right, "proven"),
        ("wrong block", wrong, "wrong"),
        ("no nop before the signal", unsynced, "race"),
        (
            "all gather",
            allgatherv::zero_copy(Shape { blocks: 2, handshake, ..Shape::new(3) }).unwrap(),
            "proven",
        ),
        (
            "all gather in place",
            allgatherv::zero_copy(Shape { in_place: true, blocks: 2, handshake, ..Shape::new(3) })
                .unwrap(),
            "proven",
        ),
    ]);
}

#[test]
fn a_promise_of_ones_own_is_proven_or_refuted() {
    use crate::postcondition::{PostCondition, Wanted};
    use crate::verify::{Options, Verdict, verify};
    // Rank 0 sends its input to rank 1's output.
    let zero = vec![
        data(OpKind::Put, &[local(Input, 0, 2)], &[remote(0, 1, Output, 0, 2)]),
        nop(),
        sync(OpKind::Signal, &[0]),
    ];
    let one = vec![sync(OpKind::Wait, &[0]), nop()];
    let mut plan = pair([2, 2, 0], &[&[zero], &[one]]);
    plan.collective = crate::model::Collective::Other("send".into());
    let layout = crate::program::Layout::new(&plan).unwrap();
    for (shift, status) in [(0, 0), (1, 1)] {
        let promise = PostCondition::custom(2, 2, |rank, chunk| match rank {
            1 => Wanted::Chunks(vec![(0, (chunk + shift) % 2)]),
            _ => Wanted::Anything,
        });
        let options = Options { promise: Some(&promise), ..Options::default() };
        let report = verify(&plan, &layout, options);
        assert_eq!(report.status(), status, "{report}");
        assert_eq!(matches!(report.verdict, Verdict::Refuted(_)), status == 1);
        // Users of tests leave the input as it is between launches.
        let test = Plan { collective: crate::model::Collective::Test, ..plan.clone() };
        let layout = crate::program::Layout::new(&test).unwrap();
        assert_eq!(verify(&test, &layout, options).status(), status);
        let options = Options { results: true, promise: None };
        let text = verify(&test, &layout, options).to_string();
        assert!(text.contains("= bytes") && !text.contains("in launch 1"), "{text}");
    }
}

#[test]
fn of_what_takes_an_input_twice_it_is_said_for_which_operators_it_holds() {
    use ReduceOp::{Max, Min, Prod, Sum};
    let plan = |op, twice: bool| {
        let p = ProgramBuilder::new("twice", Collective::AllReduce, 2).reduce_op(op);
        let channel = [p.channel(0, 1)];
        for rank in 0..2 {
            let (tb, output) = (p.block(rank), p.output(rank).all());
            let mut all = vec![p.input(0).all(), p.input(1).all()];
            if twice {
                all.push(p.input(0).all());
            }
            tb.signal_relaxed(&channel);
            tb.wait_relaxed(&channel);
            tb.reduce(&all, output);
            tb.signal(&channel);
            tb.wait(&channel);
        }
        p.build().unwrap()
    };
    for (op, twice, verdict, allowed) in [
        (Max, true, "proven", false),
        (Max, false, "proven", true),
        (Sum, false, "proven", true),
        (Sum, true, "wrong", true),
    ] {
        let report = judge(&plan(op, twice));
        assert_eq!(word(&report), verdict, "{op:?}, {twice}: {report}");
        assert_eq!([Sum, Prod].map(|op| report.allows(op)), [allowed; 2], "{op:?}, {twice}");
        assert!(report.allows(Min) && report.allows(Max));
        assert_eq!(report.to_string().contains("right with min and max alone"), !allowed);
    }
}

#[test]
fn it_is_said_whether_a_plan_is_right_where_its_buffers_lie_the_other_way() {
    // In place, a rank overwrites what the other may not have read yet.
    let plan = |wait: bool| {
        let p = ProgramBuilder::new("place", Collective::AllReduce, 2);
        let channel = [p.channel(0, 1)];
        let scratches = [0, 1].map(|rank| p.scratch(rank, 2));
        for (rank, scratch) in scratches.into_iter().enumerate() {
            let tb = p.block(rank);
            tb.signal_relaxed(&channel);
            tb.wait_relaxed(&channel);
            let both = [p.input(0).all(), p.input(1).all()];
            if wait {
                tb.reduce(&both, scratch.all());
                tb.signal(&channel);
                tb.wait(&channel);
                tb.copy(scratch.all(), p.output(rank).all());
            } else {
                tb.reduce(&both, p.output(rank).all());
                tb.signal(&channel);
                tb.wait(&channel);
            }
        }
        p.build().unwrap()
    };
    for right in [true, false] {
        let report = judge(&plan(right));
        assert_eq!((word(&report), report.elsewhere), ("proven", Some(right)), "{report}");
    }
}

/// A send to each other: in place each would overwrite what the other sends.
#[test]
fn where_nothing_is_promised_a_race_is_found_in_the_other_place_as_well() {
    for (collective, reads) in [(Collective::SendRecv, true), (Collective::SendRecv, false)] {
        let p = ProgramBuilder::new("exchange", collective, 2);
        let channel = [p.channel(0, 1)];
        for rank in 0..2 {
            let tb = p.block(rank);
            tb.signal_relaxed(&channel);
            tb.wait_relaxed(&channel);
            if reads {
                tb.put(p.input(rank).all(), p.output(1 - rank).all());
            }
            tb.signal(&channel);
            tb.wait(&channel);
        }
        let report = judge(&p.build().unwrap());
        assert_eq!(
            (word(&report), report.elsewhere),
            ("proven", reads.then_some(false)),
            "{report}"
        );
    }
}

#[test]
fn a_plan_that_writes_what_is_sent_says_so_unless_it_is_in_place() {
    for in_place in [false, true] {
        let p = ProgramBuilder::new("overwrites", Collective::AllReduce, 1);
        let block = p.block(0);
        block.copy(p.input(0).all(), p.output(0).all());
        block.copy(p.output(0).all(), p.input(0).all());
        let mut plan = p.build().unwrap();
        plan.in_place = in_place;
        let report = judge(&plan).to_string();
        let note = "note: reuse: rank 0 tb 0 op 2 (copy) writes an input";
        assert_eq!(report.contains(note), !in_place, "{report}");
    }
}
