//! What the simulator says: the algorithm and the number of thread blocks that are fastest, by size.

use super::Step;
use crate::algorithms::{Algorithm, Rooted, Shape, SumOrder};
use crate::builder::BuildError;
use crate::model::{Collective, Plan};
use crate::program::{CallSizes, Layout};
use crate::simulate::{SimulateError, Topology, simulate};

/// Numbers of thread blocks that are looked at.
const BLOCKS: [usize; 3] = [1, 4, 16];
/// The smallest and the largest message that is simulated; between them each is twice as large as the one before.
const SIZES: (u64, u64) = (1 << 8, 1 << 30);
/// Choices that take at most this many times as long as the fastest count as equally good: among them, the choice of the
/// size before stays, or else the one with the fewest thread blocks is taken.
pub const AS_GOOD: f64 = 1.1;
/// Bytes of an element.
const ELEMENT: u64 = 4;

/// What may be chosen, with its layout.
struct Candidate<A> {
    algorithm: A,
    blocks: usize,
    layout: Layout,
}

/// The steps of a choice for all ranks of a topology: each algorithm and number of thread blocks with the largest message it
/// is for, from the smallest on; the last one is for all larger ones.
///
/// It looks at the built-in algorithms that add in rank or node order and, where the topology has multicast, at those
/// that leave the order to a switch. For each algorithm, it tries more thread blocks as long as they help.
///
/// # Errors
/// What the simulator refuses.
pub fn predict(topology: &Topology, collective: &Collective) -> Result<Vec<Step>, SimulateError> {
    let near = topology.nodes == 1;
    let fit = |algorithm: &Algorithm| {
        algorithm.is_hierarchical() != near
            && match algorithm.sum_order() {
                SumOrder::Ring => false,
                SumOrder::Hardware => topology.inside.multicast,
                SumOrder::Ranks | SumOrder::Nodes => true,
            }
    };
    let all = Algorithm::all_for(collective).filter(fit);
    steps(topology, collective, &candidates(topology, all, Algorithm::plan))
}

/// As [`predict`], of a gather or a scatter, whose root is rank 0.
///
/// # Errors
/// As [`predict`].
pub fn predict_rooted(
    topology: &Topology,
    collective: &Collective,
) -> Result<Vec<Step<Rooted>>, SimulateError> {
    let near = topology.nodes == 1;
    let all = Rooted::all_for(collective).filter(|one| one.is_hierarchical() != near);
    steps(topology, collective, &candidates(topology, all, Rooted::plan))
}

/// The steps of a choice among candidates.
fn steps<A: Copy + PartialEq>(
    topology: &Topology,
    collective: &Collective,
    candidates: &[Candidate<A>],
) -> Result<Vec<Step<A>>, SimulateError> {
    let mut steps: Vec<Step<A>> = Vec::new();
    let mut bytes = SIZES.0;
    while bytes <= SIZES.1 {
        let sizes = sizes(collective, bytes, topology.ranks());
        if let Some((algorithm, blocks)) = best(topology, candidates, steps.last(), sizes)? {
            match steps.last_mut() {
                Some(last) if (last.algorithm, last.blocks) == (algorithm, blocks) => {
                    last.up_to = bytes;
                }
                _ => steps.push(Step { up_to: bytes, algorithm, blocks }),
            }
        }
        bytes *= 2;
    }
    if let Some(last) = steps.last_mut() {
        last.up_to = u64::MAX;
    }
    Ok(steps)
}

/// What may be chosen for all ranks of a topology: those of an algorithm together, by rising numbers of thread blocks.
fn candidates<A: Copy>(
    topology: &Topology,
    algorithms: impl Iterator<Item = A>,
    plan: impl Fn(A, Shape) -> Result<Plan, BuildError>,
) -> Vec<Candidate<A>> {
    let nodes = topology.nodes as usize;
    let mut all = Vec::new();
    for algorithm in algorithms {
        let mut fewer = None;
        for blocks in BLOCKS {
            let shape = Shape { nodes, blocks, ..Shape::new(topology.ranks()) };
            let plan = plan(algorithm, shape).ok();
            // Some use one block whatever they are given.
            if plan.is_none() || plan == fewer {
                break;
            }
            if let Some(layout) = plan.as_ref().and_then(|plan| Layout::new(plan).ok()) {
                all.push(Candidate { algorithm, blocks, layout });
            }
            fewer = plan;
        }
    }
    all
}

/// What to choose at one size, where `before` was chosen at the size before.
fn best<A: Copy + PartialEq>(
    topology: &Topology,
    candidates: &[Candidate<A>],
    before: Option<&Step<A>>,
    sizes: CallSizes,
) -> Result<Option<(A, usize)>, SimulateError> {
    let mut times: Vec<(A, usize, f64)> = Vec::new();
    for one in candidates.chunk_by(|a, b| a.algorithm == b.algorithm) {
        let mut least = f64::INFINITY;
        for Candidate { algorithm, blocks, layout } in one {
            let time = simulate(layout, sizes, topology)?.end;
            times.push((*algorithm, *blocks, time));
            if time > least {
                break;
            }
            least = time;
        }
    }
    let least = times.iter().map(|&(.., time)| time).fold(f64::INFINITY, f64::min);
    times.retain(|&(.., time)| time <= least * AS_GOOD);
    let as_before = |&&(algorithm, blocks, _): &&(A, usize, f64)| {
        before.is_some_and(|before| (before.algorithm, before.blocks) == (algorithm, blocks))
    };
    let fewest = || times.iter().min_by_key(|&&(_, blocks, _)| blocks);
    let found = times.iter().find(as_before).or_else(fewest);
    Ok(found.map(|&(algorithm, blocks, _)| (algorithm, blocks)))
}

/// Bytes of both buffers of a call whose larger one has `bytes` bytes, as [`predict`] simulates it.
pub fn sizes(collective: &Collective, bytes: u64, ranks: usize) -> CallSizes {
    let block = (bytes / ELEMENT / ranks as u64).max(1) * ELEMENT;
    let whole = block * ranks as u64;
    let (input, output) = match collective {
        Collective::AllGather | Collective::Gather => (block, whole),
        Collective::ReduceScatter | Collective::Scatter => (whole, block),
        Collective::AllToAll => (whole, whole),
        _ => (bytes, bytes),
    };
    CallSizes { input, output, element: ELEMENT, strict: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_rise_and_the_last_is_for_all_larger_messages() {
        let topology = Topology { ranks_per_node: 2, ..Topology::built_in("a100x8").unwrap() };
        let steps = predict(&topology, &Collective::AllReduce).unwrap();
        assert!(steps.windows(2).all(|pair| pair[0].up_to < pair[1].up_to), "{steps:?}");
        assert_eq!(steps.last().map(|step| step.up_to), Some(u64::MAX));
        // Small messages wait for others, large ones for links: these take several thread blocks.
        assert_eq!(steps[0].blocks, 1);
        assert!(steps.last().is_some_and(|step| step.blocks > 1), "{steps:?}");
        assert_eq!(predict(&topology, &Collective::AllReduce).unwrap(), steps);
    }

    #[test]
    fn what_no_algorithm_serves_has_no_steps() {
        let topology = Topology::built_in("h100x8").unwrap();
        assert_eq!(predict(&topology, &Collective::AllToAllV).unwrap(), []);
        assert_eq!(predict_rooted(&topology, &Collective::AllGather).unwrap(), []);
    }
}
