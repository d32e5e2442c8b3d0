//! The built-in algorithms.

use super::*;
use antiphon_plan::algorithms::{Algorithm, Handshake, Rooted, Shape, allgatherv, alltoallv};
use antiphon_plan::model::Collective;

fn shapes() -> impl Iterator<Item = Shape> {
    let both = [false, true];
    (2..=4).flat_map(move |ranks| {
        both.into_iter().flat_map(move |in_place| {
            let hub = Shape { in_place, handshake: Handshake::Hub, ..Shape::new(ranks) };
            [
                Shape { in_place, ..Shape::new(ranks) },
                Shape { in_place, blocks: 2, ..Shape::new(ranks) },
                hub,
            ]
        })
    })
}

#[test]
fn built_in_algorithms_keep_their_promise_in_every_schedule() {
    for algorithm in Algorithm::ALL {
        for shape in shapes() {
            let plan = algorithm.plan(shape).unwrap();
            for chunk in [16, 20, 64] {
                let found = fault(&plan, chunk, 3, 100);
                assert_eq!(found, None, "{algorithm} {shape:?}, chunks of {chunk} bytes");
            }
        }
    }
}

#[test]
fn hierarchical_algorithms_keep_their_promise_over_nodes_in_every_schedule() {
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.is_hierarchical()) {
        for (nodes, per_node) in [(2, 1), (2, 2), (3, 1), (2, 3), (3, 2)] {
            for (in_place, blocks) in [(false, 1), (true, 2)] {
                let shape = Shape { nodes, in_place, blocks, ..Shape::new(nodes * per_node) };
                let plan = algorithm.plan(shape).unwrap();
                for chunk in [20, 64] {
                    let found = fault(&plan, chunk, 3, 50);
                    assert_eq!(found, None, "{algorithm} {shape:?}, chunks of {chunk} bytes");
                }
            }
        }
    }
}

#[test]
fn gathers_and_scatters_over_nodes_keep_their_promise_in_every_schedule() {
    for one in Rooted::ALL.into_iter().filter(|one| one.is_hierarchical()) {
        for (nodes, per_node) in [(2, 1), (2, 2), (3, 1), (2, 3), (3, 2)] {
            let ranks = nodes * per_node;
            for (root, blocks) in [(0, 2), (ranks - 1, 1)] {
                let plan = one.plan(Shape { nodes, root, blocks, ..Shape::new(ranks) }).unwrap();
                for chunk in [20, 64] {
                    let found = fault(&plan, chunk, 3, 50);
                    assert_eq!(found, None, "{}, root {root}, chunks of {chunk}", plan.name);
                }
            }
        }
    }
}

#[test]
fn plans_with_runtime_sizes_run_with_equal_blocks() {
    for ranks in 2..=4u64 {
        for plan in [
            alltoallv::zero_copy(Shape {
                blocks: 2,
                handshake: Handshake::Hub,
                ..Shape::new(ranks as usize)
            })
            .unwrap(),
            allgatherv::zero_copy(Shape { blocks: 2, ..Shape::new(ranks as usize) }).unwrap(),
        ] {
            let gathers = plan.collective == Collective::AllGatherV;
            let input = if gathers { 52 } else { 52 * ranks };
            let sizes = CallSizes { input, output: 52 * ranks, element: 4, strict: false };
            let case = Case { sizes, in_place: false, launches: 3 };
            let layout = Layout::new(&plan).unwrap();
            let mut machine = Machine::new(&layout, case, LANES).unwrap();
            assert_eq!(search(&mut machine, 100, 1), None, "{} of {ranks} ranks", plan.name);
        }
    }
}

#[test]
fn any_rank_may_be_the_root() {
    for algorithm in [Algorithm::BroadcastZeroCopy, Algorithm::ReducePackets] {
        for root in 0..3 {
            let plan = algorithm.plan(Shape { root, ..Shape::new(3) }).unwrap();
            assert_eq!(fault(&plan, 16, 3, 100), None, "{algorithm} from root {root}");
        }
    }
}
