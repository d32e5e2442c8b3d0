//! The grids of plans whose every size is covered.

use super::super::{Cases, Grid, cases, slices};
use crate::algorithms::{Algorithm, Shape};
use crate::interpret::{Interpreter, Memory};
use crate::model::{Buffer, Collective, Op, OpKind, Plan};
use crate::program::Layout;
use crate::real_samples::real_plans;
use crate::samples::*;
use proptest::prelude::*;

pub(super) fn cases_of(plan: &Plan) -> Cases {
    cases(&Layout::new(plan).unwrap(), false)
}

/// Grids of plans, as strides with their first rank's iterations.
fn outline(grids: &[Grid]) -> Vec<(u64, Option<u64>)> {
    grids.iter().map(|grid| (grid.stride, grid.programs[0].loops.first().copied())).collect()
}

#[test]
fn real_plans_are_covered() {
    let window = 524_288;
    for (name, bytes) in real_plans() {
        let plan = crate::json::read(&bytes).unwrap().plan;
        let Cases { grids, doubts } = cases_of(&plan);
        assert_eq!(doubts, Vec::<String>::new(), "{name}");
        assert!(grids.iter().all(|grid| grid.valid), "{name}");
        let found = outline(&grids);
        if name.contains("alltoall_pipeline") {
            let iterations: Vec<_> =
                found.iter().map(|&(_, iterations)| iterations.unwrap()).collect();
            assert_eq!(iterations, [1, 2, 3, 6, 0], "{name}");
            assert!(found[0].0 <= window && found[1].0 <= 2 * window, "{name}");
        } else if name.contains("pipeline_test") {
            assert_eq!(found.len(), 5, "{name}: {found:?}");
        } else {
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            let cuts = &grids[0].cuts;
            let parts = if name.contains("allgather_tbg-ns4") || name.contains("allgather_tbg-ns8")
            {
                2
            } else if name.contains("tbg_") && name.starts_with("unit") {
                4
            } else {
                1
            };
            assert_eq!(cuts.len(), parts + 1, "{name}: {cuts:?}");
        }
    }
}

#[test]
fn built_in_plans_take_one_grid_or_few() {
    for algorithm in Algorithm::ALL {
        for (ranks, blocks) in [(2, 1), (3, 1), (4, 3), (8, 4)] {
            let plan = algorithm.plan(Shape { blocks, ..Shape::new(ranks) }).unwrap();
            let Cases { grids, doubts } = cases_of(&plan);
            assert_eq!(doubts, Vec::<String>::new(), "{algorithm} {ranks} {blocks}");
            // Slices of ranks are cut again by blocks, where there are several.
            let cut_twice = algorithm == Algorithm::BroadcastHierarchicalZeroCopy && blocks > 1;
            // Short packet messages leave blocks without a part, which take no part in what is padded.
            let packets = algorithm.name().ends_with("packets");
            let few = if cut_twice {
                1..=3
            } else if packets {
                1..=blocks
            } else {
                1..=1
            };
            let found = outline(&grids);
            assert!(few.contains(&grids.len()), "{algorithm} {ranks} {blocks}: {found:?}");
        }
    }
}

#[test]
fn limits_choose_the_size() {
    let of = |min, max| {
        let mut plan = allgather(4, 2, true);
        (plan.min_message_size, plan.max_message_size) = (min, max);
        let Cases { grids, doubts } = cases_of(&plan);
        assert_eq!((grids.len(), &doubts[..]), (1, &[][..]));
        (grids[0].sizes.output, grids[0].valid)
    };
    assert_eq!(of(0, u64::MAX), (128, true));
    assert_eq!(of(1 << 20, 1 << 21), (1 << 20, true));
    assert_eq!(of(1000, 2000), (1024, true));
    // Only clipped sizes: one stands for them that no call may have.
    assert_eq!(of(1000, 1020), (1024, false));
    assert_eq!(of(4, 4), (128, false));
}

#[test]
fn units_of_larger_elements_count() {
    // With elements of 8 bytes the unit is 8, so that 8 bytes are one unit and not 8: one slice is empty.
    let mut plan = two_kinds([2, 2], [1, 1], true);
    (plan.buffer_alignment, plan.min_message_size, plan.max_message_size) = (1, 8, 8);
    let raw = |kind| if kind == OpKind::CopyPackets { OpKind::Copy } else { kind };
    for op in plan.gpus[0].threadblocks.iter_mut().flat_map(|block| &mut block.ops) {
        op.kind = raw(op.kind);
    }
    let of = |plan: &Plan| {
        let Cases { grids, doubts } = cases_of(plan);
        assert_eq!(doubts, Vec::<String>::new());
        let sizes: Vec<_> = grids.iter().map(|grid| (grid.sizes.input, grid.valid)).collect();
        sizes
    };
    // Halves of 8 units stand for those of 1, 2 and 4.
    assert_eq!(of(&plan), [(8, true)]);
    // In thirds, 4 units and 1 have empty pieces where 8 have none; 2 units too.
    let thirds = two_kinds([3, 2], [1, 1], false);
    let thirds = Plan { buffer_alignment: 1, min_message_size: 8, max_message_size: 8, ..thirds };
    assert!(of(&thirds).iter().any(|&(bytes, valid)| bytes == 8 && valid));
}

/// A rank copies its input through scratch, in slices of two kinds.
fn two_kinds(parts: [u64; 2], chunks: [u64; 2], packets: bool) -> Plan {
    let most = chunks[0].max(chunks[1]);
    let mut plan = plan(Collective::Test, 1, [most, most, most]);
    for (parts, chunks) in parts.into_iter().zip(chunks) {
        for part in 0..parts {
            let [from, to] =
                [Buffer::Input, Buffer::Scratch].map(|buffer| local(buffer, 0, chunks));
            let kind = if packets { OpKind::CopyPackets } else { OpKind::Copy };
            block(&mut plan, 0, vec![sliced(data(kind, &[from], &[to]), part, parts)]);
        }
    }
    plan
}

/// Which slices meet which, and which are empty, by lowering: positions of slices among all of them.
fn meetings(layout: &Layout, units: u64) -> Vec<(u64, usize, u64, usize)> {
    let count = layout.geometry.rules.shapes[0].chunks[0];
    let stride = units * 16;
    let sizes = crate::program::CallSizes {
        input: count * stride,
        output: count * stride,
        element: 1,
        strict: false,
    };
    let program = layout.program_beyond(0, sizes).unwrap();
    let slice = |span: &crate::program::Span| match &program.segments[span.range()] {
        [one] => {
            let start = program.offsets[one.offsets as usize];
            (start, start + one.len)
        }
        _ => (u64::MAX, u64::MAX),
    };
    let slices: Vec<_> = program.moves.iter().map(slice).collect();
    let mut places: Vec<u64> =
        slices.iter().flat_map(|&(start, end)| [start % stride, end % stride]).collect();
    places.sort_unstable();
    places.dedup();
    let place = |at: u64| places.partition_point(|&place| place < at % stride);
    slices
        .iter()
        .map(|&(start, end)| (start / stride, place(start), end / stride, place(end)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn slices_meet_in_no_other_way_at_larger_sizes(
        parts in [2u64..7, 2u64..7], chunks in [1u64..5, 1u64..5], beyond in 1u64..500,
    ) {
        let layout = Layout::new(&two_kinds(parts, chunks, true)).unwrap();
        let period = parts[0] * parts[1] / slices::gcd(parts[0], parts[1]);
        let settled = period * parts[0].max(parts[1]) / 4;
        let units = settled + beyond;
        let early = settled + 1 + (beyond - 1) % period;
        prop_assert_eq!(meetings(&layout, units), meetings(&layout, early));
    }

    #[test]
    fn every_stride_is_one_of_the_grids_with_some_pieces_empty(
        parts in [1u64..6, 1u64..6], chunks in [1u64..4, 1u64..4], units in 1u64..200,
    ) {
        let plan = two_kinds(parts, chunks, false);
        let layout = Layout::new(&plan).unwrap();
        let Cases { grids, doubts } = cases(&layout, false);
        prop_assert!(doubts.is_empty());
        // Slices that meet at this stride meet in one of the grids, all of them in the same one.
        let pairs = |units: u64| {
            let count = layout.geometry.rules.shapes[0].chunks[0];
            let bytes = count * units * 16;
            let sizes = crate::program::CallSizes { input: bytes, output: bytes, element: 1, strict: false };
            let program = layout.program(0, sizes).unwrap();
            let mut met = std::collections::BTreeSet::new();
            for (one, first) in program.moves.iter().enumerate() {
                for (other, second) in program.moves.iter().enumerate() {
                    for a in &program.segments[first.range()] {
                        for b in &program.segments[second.range()] {
                            let [x, y] = [a, b].map(|at| program.offsets[at.offsets as usize]);
                            if x < y + b.len && y < x + a.len {
                                met.insert((one, other));
                            }
                        }
                    }
                }
            }
            met
        };
        let here = pairs(units);
        prop_assert!(grids.iter().any(|grid| pairs(grid.stride / 16).is_superset(&here)));
    }
}

#[test]
fn packets_keep_sizes_at_which_slices_are_empty() {
    let few = cases_of(&two_kinds([4, 1], [1, 1], false));
    assert_eq!(few.grids.len(), 1);
    let Cases { grids, doubts } = cases_of(&two_kinds([4, 1], [1, 1], true));
    assert!(doubts.is_empty());
    assert_eq!(outline(&grids).iter().map(|grid| grid.0).collect::<Vec<_>>(), [16, 32, 48, 128]);
}

#[test]
fn pipelines_run_no_time_and_up_to_as_often_as_matters() {
    let Cases { grids, doubts } = cases_of(&pipelined_exchange(1, 64));
    assert_eq!(doubts, Vec::<String>::new());
    let iterations: Vec<_> = outline(&grids).iter().map(|grid| grid.1.unwrap()).collect();
    assert_eq!(iterations, [1, 2, 3, 6, 0]);
    // Twice as many chunks: windows also end in the second one.
    let Cases { grids, doubts } = cases_of(&pipelined_exchange(2, 64));
    assert_eq!(doubts, Vec::<String>::new());
    assert!(grids.len() > 5 && grids.len() < 12, "{:?}", outline(&grids));
    for grid in &grids {
        assert!(
            grid.cuts.is_sorted() && grid.cuts[0] == 0 && grid.cuts.last() == Some(&grid.stride)
        );
    }
}

/// The numbers of iterations at which the plan deadlocks, of those that are looked at.
fn deadlocks(plan: &Plan) -> Vec<(u64, bool)> {
    let layout = Layout::new(plan).unwrap();
    let Cases { grids, doubts } = cases(&layout, false);
    assert_eq!(doubts, Vec::<String>::new());
    let stuck = |grid: &Grid| {
        let elements = |bytes: u64| vec![0.0; bytes as usize];
        let ranks = 0..layout.ranks.len();
        let mut memories: Vec<_> = ranks
            .map(|_| Memory::separate(elements(grid.sizes.input), elements(grid.sizes.output)))
            .collect();
        Interpreter::new(&layout).launch(grid.sizes, &mut memories).is_err()
    };
    grids.iter().map(|grid| (grid.programs[0].loops[0], stuck(grid))).collect()
}

#[test]
fn a_deadlock_that_needs_more_iterations_than_a_semaphore_holds_is_looked_at() {
    // Block 0 takes what block 1 gives, but starts block 1 only afterwards.
    let mut plan = plan(Collective::Test, 1, [1, 1, 1]);
    plan.gpus[0].semaphores = vec![4, 0];
    let take = semaphore(OpKind::SemaphoreAcquire, 0);
    let give = semaphore(OpKind::SemaphoreRelease, 0);
    block(&mut plan, 0, vec![pipeline(64, 1, vec![take]), semaphore(OpKind::SemaphoreRelease, 1)]);
    block(&mut plan, 0, vec![semaphore(OpKind::SemaphoreAcquire, 1), pipeline(64, 1, vec![give])]);
    for (iterations, stuck) in deadlocks(&plan) {
        assert_eq!(stuck, iterations > 4, "{iterations} iterations");
    }
    assert!(deadlocks(&plan).iter().any(|&(_, stuck)| stuck));
}

#[test]
fn a_deadlock_that_needs_as_many_iterations_as_blocks_is_looked_at() {
    // Each block gives before it takes, so that the first takes an iteration per block to reach the last.
    let blocks = 6;
    let mut plan = plan(Collective::Test, 1, [1, 1, 1]);
    plan.gpus[0].semaphores = vec![0; blocks];
    let acquire = |id: usize| semaphore(OpKind::SemaphoreAcquire, id as u64);
    let release = |id: usize| semaphore(OpKind::SemaphoreRelease, id as u64);
    let last = blocks - 1;
    block(&mut plan, 0, vec![acquire(last), pipeline(64, 1, vec![release(0)])]);
    for id in 1..last {
        block(&mut plan, 0, vec![pipeline(64, 1, vec![release(id), acquire(id - 1)])]);
    }
    let body: Vec<Op> = vec![acquire(last - 1)];
    block(&mut plan, 0, vec![pipeline(64, 1, body), release(last)]);
    for (iterations, stuck) in deadlocks(&plan) {
        assert_eq!(stuck, iterations > 4, "{iterations} iterations");
    }
    assert!(deadlocks(&plan).iter().any(|&(_, stuck)| stuck));
}

#[test]
fn slices_inside_pipelines_are_covered() {
    let mut plan = pipelined_exchange(2, 64);
    for gpu in &mut plan.gpus {
        for block in &mut gpu.threadblocks {
            for op in &mut block.ops[0].pipeline.as_mut().unwrap().ops {
                if matches!(op.kind, OpKind::Put | OpKind::Copy) {
                    *op = sliced(op.clone(), 0, 2);
                }
            }
        }
    }
    let Cases { grids, doubts } = cases_of(&plan);
    assert_eq!(doubts, Vec::<String>::new());
    assert!(grids.len() > 4, "{:?}", outline(&grids));
}

#[test]
fn runtime_blocks_are_one_chunk_in_as_many_pieces_as_slices() {
    for (blocks, pieces) in [(1, 1), (3, 3)] {
        let Shape { handshake, .. } = Shape::new(2);
        let plan =
            crate::algorithms::alltoallv::zero_copy(Shape { blocks, handshake, ..Shape::new(2) })
                .unwrap();
        let Cases { grids, doubts } = cases_of(&plan);
        assert_eq!(doubts, Vec::<String>::new());
        assert_eq!(grids.len(), 1);
        assert_eq!(grids[0].cuts, (0..=pieces).collect::<Vec<u64>>());
        assert_eq!(grids[0].stride, pieces);
    }
}
