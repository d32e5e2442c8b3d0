//! The built-in algorithms over several nodes give the right result: on one node, where ports are copies, and across
//! nodes, where they are sockets.

use antiphon::DataType;
use antiphon::executor::{Communicator, ExecutorError};
use antiphon::plan::algorithms::{Algorithm, Rooted, Shape};
use antiphon::plan::model::Plan;
use antiphon_tests::harness::plans::{buffers, sizes};
use antiphon_tests::harness::{Case, Source, on_hosts, options, run_case, seed};
use std::time::Instant;

/// Nodes and ranks of each.
const SHAPES: [(usize, usize); 5] = [(2, 1), (2, 2), (3, 1), (2, 3), (3, 2)];
/// Launches of each case, back to back.
const LAUNCHES: u32 = 12;

/// The plans of this shape, by the names of their algorithms.
fn plans(shape: Shape) -> Vec<(&'static str, Plan)> {
    let plan = "a plan for the shape";
    let sized = Algorithm::ALL.into_iter().filter(|one| one.is_hierarchical());
    let sized = sized.map(|one| (one.name(), one.plan(shape).expect(plan)));
    // These are for apart buffers, whatever the shape says.
    let rooted = Rooted::ALL.into_iter().filter(|one| one.is_hierarchical());
    sized.chain(rooted.map(|one| (one.name(), one.plan(shape).expect(plan)))).collect()
}

/// Runs an algorithm on every size as one rank; what is wrong.
fn run_all(
    communicator: &Communicator,
    (name, plan): (&'static str, &Plan),
    shape: Shape,
    seed: u64,
) -> Result<Vec<String>, ExecutorError> {
    let mut wrong = Vec::new();
    for (position, (what, elements)) in (0u32..).zip(sizes(plan, 4)) {
        let odd = position % 2 == 1;
        let case = Case {
            dtype: if odd { DataType::F32 } else { DataType::I32 },
            root: shape.root as u32,
            launches: LAUNCHES,
            mover: Some(position % plan.gpus.len() as u32),
            source: if odd { Source::Plain } else { Source::Own },
            mixed: true,
            reuse: position >= 2,
            seed: seed + u64::from(position),
            ..Case::new(name, plan, buffers(plan, elements, 4))
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
            for in_place in [false, true] {
                let (root, blocks) = (nodes * ranks - 1, 1 + usize::from(in_place));
                let shape = Shape { nodes, in_place, root, blocks, ..Shape::new(nodes * ranks) };
                for (name, plan) in plans(shape) {
                    let found = run_all(&communicator, (name, &plan), shape, seed);
                    let fail = |error| format!("{name} in place {in_place}: {error}");
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
