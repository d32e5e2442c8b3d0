//! What the simulator says of hosts: the algorithm that is the fastest for ranks with a core each, by size.
//!
//! Each size is simulated as `antiphon tune` would measure it, and steps are made of the times as of measured ones.

use super::{Place, Step, Timed, derive, derive_rooted};
use crate::algorithms::common::{among, zero_copy_program};
use crate::algorithms::devices::sizes;
use crate::algorithms::meeting::met;
use crate::algorithms::{Algorithm, Handshake, Rooted, Shape};
use crate::builder::BuildError;
use crate::model::{Collective, Plan};
use crate::program::Layout;
use crate::simulate::{SimulateError, Topology, TopologyError, simulate};

/// Places of ranks that nobody has measured, and that are simulated.
pub const SIMULATED: [Place; 3] = [own(1, 4), own(1, 8), own(2, 4)];
/// The smallest and the largest message that is simulated; between them each is twice as large as the one before.
const SIZES: (u64, u64) = (1 << 4, 1 << 26);
/// One node of the machine that stands for hosts.
const HOST: &str = include_str!("host/fitted.json");

/// Ranks with a core each.
const fn own(nodes: usize, per_node: usize) -> Place {
    Place { crowded: false, nodes, per_node }
}

/// The machine that stands for hosts: its numbers were measured, and then fitted to measured times; its `source` says of what.
///
/// # Errors
/// The file in the repository makes no sense.
pub fn host() -> Result<Topology, TopologyError> {
    Topology::parse(HOST)
}

/// As many such machines as a place has nodes, each with a core for each of its ranks. If ranks share cores, the nodes are
/// parts of one machine instead, and divide its cores evenly.
#[must_use]
pub fn placed(host: &Topology, place: Place) -> Topology {
    let Place { crowded, nodes, per_node } = place;
    let mut topology = host.clone();
    topology.nodes = nodes as u32;
    topology.ranks_per_node = per_node as u32;
    let shared = host.device.cores.map(|cores| (cores / topology.nodes.max(1)).max(1));
    topology.device.cores = if crowded { shared } else { Some(per_node as u32) };
    topology
}

/// What the plans of a topology's ranks are written for.
fn shape(topology: &Topology) -> Shape {
    let crowded = topology.device.cores.is_some_and(|cores| cores < topology.ranks_per_node);
    let handshake = if crowded { Handshake::Hub } else { Handshake::Everyone };
    Shape { nodes: topology.nodes as usize, handshake, ..Shape::new(topology.ranks()) }
}

/// The steps of a choice for all ranks of a topology, as [`derive()`] makes them of what is simulated.
///
/// # Errors
/// What the simulator refuses.
pub fn predict(topology: &Topology, collective: &Collective) -> Result<Vec<Step>, SimulateError> {
    let near = topology.nodes == 1;
    let all = Algorithm::all_for(collective).filter(|one| one.is_hierarchical() != near);
    Ok(derive(&timed(topology, collective, all, Algorithm::plan)?))
}

/// As [`predict`], of a gather or a scatter, whose root is rank 0; inside a node `None` stands for its blocks, as in
/// [`derive_rooted()`].
///
/// # Errors
/// As [`predict`].
pub fn predict_rooted(
    topology: &Topology,
    collective: &Collective,
) -> Result<Vec<Step<Option<Rooted>>>, SimulateError> {
    let near = topology.nodes == 1;
    let own = Rooted::all_for(collective).filter(|one| one.is_hierarchical() != near).map(Some);
    let plan = |one: Option<Rooted>, shape| match one {
        Some(own) => own.plan(shape),
        None => blocks(collective, shape),
    };
    Ok(derive_rooted(&timed(topology, collective, own.chain(near.then_some(None)), plan)?))
}

/// A gather or a scatter by the blocks that [`alltoallv`](crate::algorithms::alltoallv) moves for it. The plan of that would be
/// simulated with blocks between all ranks; this one leaves out those that are empty here.
fn blocks(collective: &Collective, shape: Shape) -> Result<Plan, BuildError> {
    let Shape { ranks, root, blocks, handshake, .. } = shape;
    let gathers = *collective == Collective::Gather;
    among(zero_copy_program("blocks", collective.clone(), ranks), false, |p| {
        met(p, blocks, handshake, |tb, me| match (gathers, me == root) {
            (true, true) => tb.copy(p.input(root).all(), p.output(root).chunk(root)),
            (true, false) => tb.put(p.input(me).all(), p.output(root).chunk(me)),
            (false, true) => {
                for peer in p.peers(root) {
                    tb.put(p.input(root).chunk(peer), p.output(peer).all());
                }
                tb.copy(p.input(root).chunk(root), p.output(root).all());
            }
            (false, false) => {}
        });
    })
}

/// What each of these takes at each size; without those that have no plan for so many ranks.
fn timed<A: Copy>(
    topology: &Topology,
    collective: &Collective,
    all: impl Iterator<Item = A>,
    plan: impl Fn(A, Shape) -> Result<Plan, BuildError>,
) -> Result<Vec<Timed<A>>, SimulateError> {
    let shape = shape(topology);
    let laid = |one| Some((one, Layout::new(&plan(one, shape).ok()?).ok()?));
    let layouts: Vec<(A, Layout)> = all.filter_map(laid).collect();
    let mut rows = Vec::new();
    let mut bytes = SIZES.0;
    while bytes <= SIZES.1 {
        let sizes = sizes(collective, bytes, topology.ranks());
        let time = |(one, layout): &(A, Layout)| {
            let seconds = simulate(layout, sizes, topology)?.end;
            Ok((*one, (seconds * 1e9).round() as u64))
        };
        let times = layouts.iter().map(time).collect::<Result<_, SimulateError>>()?;
        rows.push(Timed { bytes, times });
        bytes *= 2;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::hosts::{Rule, predicted, predicted_rooted};

    /// The places and collectives of rules.
    fn known<A>(rules: &[Rule<A>]) -> Vec<(Place, Collective)> {
        rules.iter().map(|rule| (rule.place, rule.collective.clone())).collect()
    }

    #[test]
    fn the_rules_are_what_is_predicted() {
        let host = host().expect("a topology");
        for rule in predicted() {
            let steps = predict(&placed(&host, rule.place), &rule.collective).expect("steps");
            assert_eq!(steps, rule.steps, "run `cargo xtask defaults --predict`: {rule:?}");
        }
        for rule in predicted_rooted() {
            let steps = predict_rooted(&placed(&host, rule.place), &rule.collective);
            let steps = steps.expect("steps");
            assert_eq!(steps, rule.steps, "run `cargo xtask defaults --predict`: {rule:?}");
        }
    }

    #[test]
    fn all_that_nobody_has_measured_is_predicted() {
        let (sized, rooted) = (known(predicted()), known(predicted_rooted()));
        for place in SIMULATED {
            for collective in Algorithm::ALL.map(Algorithm::collective) {
                assert!(sized.contains(&(place, collective.clone())), "{place:?} {collective}");
            }
            for collective in Rooted::ALL.map(Rooted::collective) {
                assert!(rooted.contains(&(place, collective.clone())), "{place:?} {collective}");
            }
        }
    }

    #[test]
    fn a_place_is_as_many_machines_with_as_many_cores() {
        let host = host().expect("a topology");
        let two = placed(&host, own(2, 4));
        assert_eq!((two.ranks(), two.nodes, two.device.cores), (8, 2, Some(4)));
        assert!(two.validate().is_ok() && two.between.is_some());
        assert_eq!(shape(&two).handshake, Handshake::Everyone);
        let cores = host.device.cores.expect("cores");
        let shared = |nodes, per_node| placed(&host, Place { crowded: true, nodes, per_node });
        let (one, two) = (shared(1, 8), shared(2, 8));
        assert_eq!((one.device.cores, two.device.cores), (Some(cores), Some(cores / 2)));
        assert_eq!(shape(&two).handshake, Handshake::Hub);
    }

    #[test]
    fn blocks_are_those_of_a_gather_or_a_scatter_alone() {
        for collective in [Collective::Gather, Collective::Scatter] {
            let plan = blocks(&collective, Shape::new(4)).expect("a plan");
            let moves = |gpu: &crate::model::Gpu| {
                let blocks = gpu.threadblocks.iter();
                blocks.map(|tb| tb.ops.len()).sum::<usize>()
            };
            let counts: Vec<usize> = plan.gpus.iter().map(moves).collect();
            let busier = |rank: usize| counts[0].cmp(&counts[rank]);
            let expected = match collective {
                Collective::Scatter => std::cmp::Ordering::Greater,
                _ => std::cmp::Ordering::Equal,
            };
            assert!((1..4).all(|rank| busier(rank) == expected), "{collective}: {counts:?}");
        }
    }
}
