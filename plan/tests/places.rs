//! Which plans are right both in place and out of place, so that ranks need not agree on it.

use antiphon_plan::algorithms::{Algorithm, Handshake, Shape};
use antiphon_plan::program::Layout;
use antiphon_plan::verify::{Options, Verdict, verify};

/// The verdict on the plan that is written for apart buffers, run with those of every rank in one.
fn in_place(algorithm: Algorithm, shape: Shape) -> Verdict {
    let mut plan = algorithm.plan(shape).expect("a valid shape");
    assert!(!plan.in_place);
    plan.in_place = true;
    let layout = Layout::new(&plan).expect("a valid plan");
    verify(&plan, &layout, Options::default()).verdict
}

// What a rank touches hangs on no data. So which accesses to one rank's memory race, and what they find, hangs on how that
// rank's buffers lie, and not on the others': plans that are right both ways are right where ranks differ.
#[test]
fn plans_for_apart_buffers_are_right_in_place_but_for_alltoall_and_sendrecv() {
    // These write where a rank's input still is. The others' packets land in scratch first.
    let wrong = [
        Algorithm::AllToAllZeroCopy,
        Algorithm::AllToAllHierarchicalZeroCopy,
        Algorithm::SendRecvZeroCopy,
        Algorithm::SendRecvHierarchicalZeroCopy,
    ];
    for algorithm in Algorithm::ALL {
        for handshake in [Handshake::Everyone, Handshake::Hub] {
            for (ranks, nodes) in [(1, 1), (2, 1), (3, 1), (4, 2), (3, 3)] {
                if nodes > 1 && !algorithm.is_hierarchical() {
                    continue;
                }
                let shape = Shape { nodes, handshake, ..Shape::new(ranks) };
                let (verdict, name) = (in_place(algorithm, shape), algorithm.name());
                let right = verdict == Verdict::Proven;
                assert_eq!(
                    right,
                    ranks == 1 || !wrong.contains(&algorithm),
                    "{name} {ranks} {nodes}: {verdict:?}"
                );
            }
        }
    }
}
