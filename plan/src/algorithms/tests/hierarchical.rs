//! The algorithms over several nodes, run symbolically: what they compute, and that each step is needed.

use super::*;
use crate::model::{ChannelType, Op};

/// Nodes, and ranks of each.
const PLACES: [(usize, usize); 8] =
    [(2, 1), (2, 2), (2, 3), (3, 2), (2, 4), (4, 2), (4, 4), (8, 1)];

fn hierarchical() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.into_iter().filter(|algorithm| algorithm.is_hierarchical())
}

#[test]
fn hierarchical_algorithms_keep_their_promise_over_nodes() {
    for algorithm in hierarchical() {
        for (nodes, per_node) in PLACES {
            let ranks = nodes * per_node;
            for in_place in [false, true] {
                // Roots of the first node and of the last, of both ends of their node.
                for (blocks, root) in [(1, 0), (2, ranks - 1), (1, ranks - per_node)] {
                    let shape = Shape { nodes, in_place, blocks, root, ..Shape::new(ranks) };
                    let plan = algorithm.plan(shape).unwrap_or_else(|error| panic!("{error}"));
                    let rooted =
                        matches!(plan.collective, Collective::Broadcast | Collective::Reduce);
                    let one_block = [
                        Algorithm::AllReduceHierarchicalHub,
                        Algorithm::AllToAllHierarchicalPackets,
                    ];
                    let repeats = blocks > 1 && one_block.contains(&algorithm);
                    if !rooted && root != 0 && blocks == 1 || repeats {
                        continue;
                    }
                    for seed in 1..=if ranks > 8 { 2 } else { 6 } {
                        let setting = setting(in_place, seed);
                        let result = run(&plan, shape, algorithm.sum_order(), setting);
                        assert_eq!(result, Ok(()), "{algorithm} {shape:?} seed {seed}");
                    }
                }
            }
        }
    }
}

/// The simulator must see what proxies do late, or its approval means nothing.
#[test]
fn what_proxies_need_is_seen_to_be_missing() {
    use Algorithm::*;
    let port = |op: &Op| op.channel_type == ChannelType::Port;
    let flush = |op: &Op| op.kind == OpKind::Flush;
    let wait = |op: &Op| port(op) && op.kind == OpKind::Wait;
    let packets = |op: &Op| port(op) && op.kind == OpKind::PutPackets;
    type Broken<'a> = (Algorithm, (usize, usize), &'a dyn Fn(&Op) -> bool);
    let start = |op: &Op| port(op) && matches!(op.kind, OpKind::Signal | OpKind::Wait);
    let cases: [Broken<'_>; 13] = [
        (AllReduceHierarchicalZeroCopy, (2, 2), &flush),
        (AllGatherHierarchicalZeroCopy, (2, 2), &flush),
        (ReduceScatterHierarchicalZeroCopy, (2, 2), &flush),
        (AllToAllHierarchicalZeroCopy, (2, 2), &flush),
        (AllGatherHierarchicalZeroCopy, (3, 1), &wait),
        (AllReduceHierarchicalPackets, (2, 2), &packets),
        (AllReduceHierarchicalHub, (2, 2), &packets),
        (BroadcastHierarchicalPackets, (2, 2), &start),
        (ReduceHierarchicalPackets, (2, 2), &start),
        (SendRecvHierarchicalPackets, (2, 2), &start),
        (BroadcastHierarchicalZeroCopy, (2, 2), &flush),
        (ReduceHierarchicalZeroCopy, (2, 1), &flush),
        (SendRecvHierarchicalZeroCopy, (2, 2), &flush),
    ];
    for (algorithm, (nodes, per_node), drop) in cases {
        let shape = Shape { nodes, ..Shape::new(nodes * per_node) };
        let mut plan = algorithm.plan(shape).expect("a valid shape");
        for tb in plan.gpus.iter_mut().flat_map(|gpu| &mut gpu.threadblocks) {
            tb.ops.retain(|op| !drop(op));
        }
        let found = (1..=200).any(|seed| {
            let setting = Setting { launches: 6, ..setting(false, seed) };
            run(&plan, shape, algorithm.sum_order(), setting).is_err()
        });
        assert!(found, "{algorithm} passed");
    }
}

#[test]
fn ranks_that_do_not_fill_their_nodes_are_refused() {
    for algorithm in hierarchical() {
        for nodes in [0, 4, 7] {
            let error =
                algorithm.plan(Shape { nodes, ..Shape::new(6) }).expect_err("no such nodes");
            let text = error.to_string();
            let expected = format!("cannot place 6 ranks on {nodes} nodes: allowed");
            assert!(text.contains(&expected), "{text}");
        }
    }
}

#[test]
fn small_hierarchical_plans_read_like_this() {
    for algorithm in hierarchical() {
        let plan = algorithm.plan(Shape { nodes: 2, ..Shape::new(4) }).expect("a valid shape");
        insta::assert_snapshot!(algorithm.name(), text::render(&plan, 0));
    }
}
