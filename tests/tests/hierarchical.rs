//! The built-in algorithms over several nodes give the right result: on one node, where ports are copies, and across
//! nodes, where they are sockets.

use antiphon::DataType;
use antiphon::executor::{Communicator, ExecutorError};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon_tests::harness::plans::{buffers, sizes};
use antiphon_tests::harness::{Case, Source, on_hosts, options, run_case, seed};
use std::time::Instant;

/// Nodes and ranks of each.
const SHAPES: [(usize, usize); 5] = [(2, 1), (2, 2), (3, 1), (2, 3), (3, 2)];
/// Launches of each case, back to back.
const LAUNCHES: u32 = 12;

fn hierarchical() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.into_iter().filter(|algorithm| algorithm.is_hierarchical())
}

/// Runs an algorithm on every size as one rank; what is wrong.
fn run_all(
    communicator: &Communicator,
    algorithm: Algorithm,
    shape: Shape,
    seed: u64,
) -> Result<Vec<String>, ExecutorError> {
    let plan = algorithm.plan(shape).expect("a plan for the shape");
    let mut wrong = Vec::new();
    for (position, (what, elements)) in (0u32..).zip(sizes(&plan, 4)) {
        let odd = position % 2 == 1;
        let case = Case {
            name: algorithm.name(),
            plan: &plan,
            buffers: buffers(&plan, elements, 4),
            dtype: if odd { DataType::F32 } else { DataType::I32 },
            op: None,
            root: shape.root as u32,
            in_place: shape.in_place,
            launches: LAUNCHES,
            mover: Some(position % plan.gpus.len() as u32),
            source: if odd { Source::Plain } else { Source::Own },
            mixed: true,
            reuse: position >= 2,
            seed: seed + u64::from(position),
        };
        wrong.extend(run_case(communicator, &case)?.wrong.map(|text| format!("{text} ({what})")));
    }
    Ok(wrong)
}

/// Runs all algorithms of all shapes, in place with two thread blocks that share the work; `apart` puts nodes on hosts of their
/// own.
fn check(apart: bool) {
    let seed = seed();
    println!("seed {seed}");
    for (nodes, ranks) in SHAPES {
        let names: Vec<String> = (0..nodes * ranks)
            .map(|rank| (rank / ranks * usize::from(apart)).to_string())
            .collect();
        let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
        let start = Instant::now();
        let found = on_hosts(&hosts, &options(), |communicator| {
            let mut wrong = Vec::new();
            for algorithm in hierarchical() {
                for in_place in [false, true] {
                    let root = nodes * ranks - 1;
                    let blocks = 1 + usize::from(in_place);
                    let shape =
                        Shape { nodes, in_place, root, blocks, ..Shape::new(nodes * ranks) };
                    let found = run_all(&communicator, algorithm, shape, seed);
                    let fail = |error| format!("{algorithm} in place {in_place}: {error}");
                    match found.map_err(fail) {
                        Ok(found) => wrong.extend(found),
                        Err(text) => {
                            wrong.push(text);
                            return wrong;
                        }
                    }
                }
            }
            for link in communicator.links() {
                let near = hosts[link.peer as usize] == hosts[communicator.rank() as usize];
                assert_eq!(link.wire == "local", near, "{link:?}");
            }
            wrong
        });
        let wrong: Vec<String> = found.unwrap().into_iter().flatten().collect();
        assert!(wrong.is_empty(), "{nodes} x {ranks}:\n{}", wrong.join("\n"));
        println!("{:>8.1?} {nodes} nodes of {ranks}", start.elapsed());
    }
}

#[test]
fn on_one_node_ports_are_copies() {
    check(false);
}

#[test]
fn across_nodes_ports_are_sockets() {
    check(true);
}
