//! Threads of one operation, and of neighbouring ones that do not meet in between.

use super::*;
use crate::model::Buffer::{Input, Output, Scratch};

#[test]
fn a_read_that_may_still_go_on_is_not_forgotten_when_the_next_operation_reads_and_writes() {
    let ops = vec![
        data(OpKind::Copy, &[local(Input, 0, 1)], &[local(Scratch, 0, 1)]),
        nop(),
        data(OpKind::Copy, &[local(Scratch, 0, 1)], &[local(Output, 0, 1)]),
        nop(),
        data(OpKind::Reduce, &[local(Scratch, 0, 1), local(Input, 0, 1)], &[local(Scratch, 0, 1)]),
    ];
    let plan = |ops: Vec<Op>| pair([1, 1, 1], &[&[ops], &[]]);
    expect(&[("met", plan(ops.clone()), "proven"), ("not met", plan(without(ops, 3)), "race")]);
}

#[test]
fn destinations_of_one_operation_that_overlap_askew_race() {
    let plan = |second| {
        let op = data(
            OpKind::ReduceSend,
            &[local(Input, 0, 2), local(Input, 2, 2)],
            &[local(Scratch, 0, 2), remote(0, 1, Output, 0, 2), remote(0, 1, Output, second, 2)],
        );
        let tell = vec![op, nop(), sync(OpKind::Signal, &[0])];
        pair([4, 4, 2], &[&[tell], &[vec![sync(OpKind::Wait, &[0]), nop()]]])
    };
    expect(&[
        ("apart", plan(2), "proven"),
        ("the same", plan(0), "proven"),
        ("askew", plan(1), "race"),
    ]);
}

#[test]
fn an_operation_that_reads_where_it_writes_elsewhere_races() {
    let plan = |to| {
        let op = data(OpKind::Copy, &[local(Scratch, 0, 2)], &[local(Scratch, to, 2)]);
        pair([1, 1, 4], &[&[vec![op]], &[]])
    };
    expect(&[
        ("apart", plan(2), "proven"),
        ("in place", plan(0), "proven"),
        ("askew", plan(1), "race"),
    ]);
}

#[test]
fn in_place_an_input_is_an_output() {
    // Rank 1's input is the second half of its output.
    let plan = |at| {
        let mut plan = plan(Collective::AllGather, 2, [1, 2, 0]);
        plan.in_place = true;
        connect(&mut plan);
        for rank in 0..2 {
            let put = data(
                OpKind::Put,
                &[local(Input, 0, 1)],
                &[remote(rank, 1 - rank, Output, if rank == 0 { at } else { 1 }, 1)],
            );
            let mut ops = vec![put, nop()];
            ops.extend(meet(rank, 2, [OpKind::Signal, OpKind::Wait]));
            block(&mut plan, rank, ops);
        }
        plan
    };
    expect(&[("own block", plan(0), "proven"), ("the other's input", plan(1), "race")]);
}
