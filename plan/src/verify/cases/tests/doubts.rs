//! Every reason why some size is not covered.

use super::grids::cases_of;
use crate::algorithms::{Shape, alltoallv};
use crate::model::{Buffer, Collective, GroupSlice, Op, OpKind, Plan};
use crate::samples::*;

fn body(plan: &mut Plan, rank: usize, tb: usize) -> &mut crate::model::Pipeline {
    plan.gpus[rank].threadblocks[tb].ops[0].pipeline.as_mut().unwrap()
}

/// An exchange in windows, changed.
fn exchange(change: impl Fn(&mut Plan)) -> Plan {
    let mut plan = pipelined_exchange(2, 64);
    change(&mut plan);
    plan
}

/// Copies of one chunk, each a slice of a group of so many blocks.
fn slices(groups: &[u64]) -> Plan {
    let mut plan = plan(Collective::Test, 1, [1, 1, 1]);
    for &parts in groups {
        let [from, to] = [Buffer::Input, Buffer::Scratch].map(|buffer| local(buffer, 0, 1));
        block(&mut plan, 0, vec![sliced(data(OpKind::Copy, &[from], &[to]), 0, parts)]);
    }
    plan
}

/// An exchange of blocks whose sizes come with the call, by thread blocks of rank 0 that are of groups of so many.
fn blocks(groups: [u64; 2]) -> Plan {
    let mut plan = alltoallv::zero_copy(Shape { blocks: 2, ..Shape::new(2) }).unwrap();
    for (block, parts) in plan.gpus[0].threadblocks.iter_mut().zip(groups) {
        for op in block.ops.iter_mut().filter(|op| op.group.is_some()) {
            op.group = Some(GroupSlice { tb_id: 0, tbg_size: parts });
        }
    }
    plan
}

#[test]
fn every_doubt_names_its_place() {
    let nop = || Op::new(OpKind::Nop);
    let mut divided = plan(Collective::Test, 2, [2, 2, 2]);
    divided.gpus[1].input_chunks = 4;
    let mut in_place = plan(Collective::Test, 1, [2, 4, 0]);
    in_place.in_place = true;
    let mut open = plan(Collective::AllReduce, 1, [0, 2, 0]);
    open.in_place = true;
    block(
        &mut open,
        0,
        vec![data(OpKind::Copy, &[local(Buffer::Input, 0, 1)], &[local(Buffer::Output, 0, 1)])],
    );
    let mut long = slices(&[13, 17]);
    block(&mut long, 0, vec![pipeline(8, 1 << 14, vec![nop()])]);
    let mut windows = plan(Collective::Test, 1, [1, 1, 2]);
    for unit in [8, 1 << 40] {
        block(&mut windows, 0, vec![pipeline(unit, 1, vec![nop()])]);
    }
    let mut barriers = plan(Collective::Test, 1, [1, 1, 1]);
    block(&mut barriers, 0, vec![barrier(0, 2), pipeline(64, 1, vec![barrier(0, 2)])]);
    block(&mut barriers, 0, vec![pipeline(64, 1, vec![barrier(0, 2)]), barrier(0, 2)]);
    let mut apart = plan(Collective::Test, 2, [1, 1, 0]);
    (apart.gpus[0].output_chunks, apart.gpus[1].input_chunks) = (0, 0);
    block(&mut apart, 1, vec![pipeline(64, 1, vec![nop()])]);
    let cases: Vec<(Plan, &str)> = vec![
        (apart, "some ranks have an input alone and others an output"),
        (divided, "ranks divide their inputs differently: rank 1 in 4 chunks, another in 2"),
        (
            plan(Collective::AllReduce, 2, [2, 4, 0]),
            "there is no size at which 2 input and 4 output chunks",
        ),
        (in_place, "in place, 2 input chunks lie on 4 output chunks differently"),
        (open, "in place, nothing says where an input is"),
        (slices(&[199, 211, 223, 227]), "slices of groups of so many sizes"),
        (
            slices(&[23, 29]),
            "sizes differ in how accesses meet, and no more than 64 were looked at",
        ),
        (long, "slices of groups make pipelines too long to look at"),
        (
            blocks([2, 3]),
            "of rank 0 is moved in slices of 2 and of 3, which meet differently at other lengths",
        ),
        (blocks([256, 257]), "blocks are moved in too many different slices to look at them all"),
        (windows, "pipelines take 412316860418 iterations at the same size as one takes 3"),
        (
            barriers,
            "rank 0 tb 1 op 0.0 (barrier): when the pipelines begin, it is 1 ahead of what it meets at rank 0 tb 0",
        ),
        (
            exchange(|plan| body(plan, 0, 1).unit_size = 128),
            "rank 0 tb 1 op 0.1 (wait): its pipeline has 2 chunks in windows of 128 bytes, and what it meets at rank 1 tb 0 is in one of 2 in 64",
        ),
        (
            exchange(|plan| body(plan, 0, 1).ops.insert(2, sync(OpKind::Wait, &[0]))),
            "rank 0 tb 1 op 0.1 (wait): 2 an iteration meet 1 of rank 1 tb 0",
        ),
        (
            exchange(|plan| plan.gpus[0].threadblocks[1].ops.insert(0, sync(OpKind::Wait, &[0]))),
            "rank 0 tb 1 op 1.1 (wait): when the pipelines begin, it is 1 ahead of what it meets at rank 1 tb 0",
        ),
        (
            exchange(|plan| {
                body(plan, 0, 1).ops.remove(1);
                plan.gpus[0].threadblocks[1].ops.push(sync(OpKind::Wait, &[0]));
            }),
            "rank 1 tb 0 op 0.2 (signal): it is in a pipeline, and what it meets is not",
        ),
        (
            exchange(|plan| plan.gpus[0].semaphores[0] = -1),
            "rank 0 tb 1 op 0.0 (sem_acquire): its semaphore starts below 0",
        ),
        (
            exchange(|plan| {
                plan.gpus[0].semaphores[0] = 3;
                body(plan, 0, 0).ops.pop();
            }),
            "rank 0 tb 1 op 0.0 (sem_acquire): nobody releases the semaphore, which starts above or below 0",
        ),
        (
            exchange(|plan| block(plan, 0, vec![sync(OpKind::Wait, &[0])])),
            "2 blocks share its waits, and some of them are in pipelines",
        ),
        (
            exchange(|plan| body(plan, 0, 1).ops[3].dst[0].index = 1).tap(|plan| {
                plan.gpus[0].output_chunks = 3;
                let extra = data(
                    OpKind::Copy,
                    &[local(Buffer::Scratch, 0, 2)],
                    &[local(Buffer::Output, 0, 2)],
                );
                body(plan, 0, 1).ops.push(extra);
                for gpu in &mut plan.gpus {
                    gpu.output_chunks = 3;
                }
            }),
            "touch the same bytes in different iterations",
        ),
        (
            exchange(|plan| {
                let pipeline = body(plan, 0, 1);
                pipeline.num_chunks = 1;
                pipeline.ops[3] = sliced(pipeline.ops[3].clone(), 0, 2);
            }),
            "rank 0 tb 1 op 0.3 (copy): a slice of 2 chunks in a pipeline over 1",
        ),
    ];
    for (plan, wanted) in cases {
        let doubts = cases_of(&plan).doubts;
        assert!(
            doubts.iter().any(|doubt| doubt.contains(wanted)),
            "wanted {wanted}\n  saw {doubts:#?}"
        );
    }
}

trait Tap {
    fn tap(self, change: impl Fn(&mut Self)) -> Self;
}

impl Tap for Plan {
    fn tap(mut self, change: impl Fn(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

#[test]
fn plans_without_canonical_sizes_are_looked_at_once() {
    let mut plan = plan(Collective::Test, 2, [2, 2, 2]);
    plan.gpus[1].input_chunks = 4;
    let ends = [Buffer::Input, Buffer::Scratch].map(|buffer| local(buffer, 1, 1));
    block(&mut plan, 0, vec![data(OpKind::Copy, &ends[..1], &ends[1..])]);
    let cases = cases_of(&plan);
    assert_eq!(cases.grids.len(), 1);
    let grid = &cases.grids[0];
    assert!(grid.valid && grid.stride >= grid.sizes.input);
    // Everything of a buffer is in its one chunk.
    let segment = grid.programs[0].segments[0];
    let start = grid.programs[0].offsets[segment.offsets as usize];
    assert!(grid.cuts.contains(&start) && grid.cuts.contains(&(start + segment.len)));
}
