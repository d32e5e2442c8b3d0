//! The built-in algorithms that reach over several nodes.

use super::*;
use crate::algorithms::{Algorithm, Shape};
use crate::model::Collective;

/// Nodes, and ranks of each.
const PLACES: [(usize, usize); 8] =
    [(2, 1), (2, 2), (2, 3), (3, 2), (2, 4), (4, 2), (4, 4), (8, 1)];

/// The roots that are tried: all kinds of places on a first and on another node.
fn roots(algorithm: Algorithm, ranks: usize) -> Vec<usize> {
    let mut roots = match algorithm.collective() {
        Collective::Broadcast | Collective::Reduce => vec![0, 1, ranks - 1],
        _ => vec![0],
    };
    roots.dedup();
    roots
}

/// How many thread blocks share the work.
fn blocks(algorithm: Algorithm, ranks: usize) -> &'static [usize] {
    match algorithm {
        // These have one, whatever is asked for.
        Algorithm::AllReduceHierarchicalHub | Algorithm::AllToAllHierarchicalPackets => &[1],
        _ if ranks > 8 => &[1, 2],
        _ => &[1, 2, 3, 4],
    }
}

#[test]
fn hierarchical_algorithms_are_proven_for_all_sizes() {
    let mut refused = Vec::new();
    for algorithm in Algorithm::ALL.into_iter().filter(|a| a.is_hierarchical()) {
        for (nodes, per_node) in PLACES {
            for in_place in [false, true] {
                for &blocks in blocks(algorithm, nodes * per_node) {
                    let ranks = nodes * per_node;
                    let shape = Shape { nodes, in_place, blocks, ..Shape::new(ranks) };
                    for root in roots(algorithm, ranks) {
                        let shape = Shape { root, ..shape };
                        let plan = algorithm.plan(shape).unwrap_or_else(|error| panic!("{error}"));
                        let report = judge(&plan);
                        if word(&report) != "proven" {
                            refused.push(format!("{algorithm} {shape:?}: {report}"));
                        }
                    }
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n\n"));
}
