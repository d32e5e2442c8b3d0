//! What serves a call: one choice for every caller, made from what all ranks know alike.
//!
//! [`order`] has the whole order, in which what is [registered](crate::registry) goes before what is built in. Below is the
//! built-in rule.

mod devices;
mod explain;
pub mod order;
pub(crate) mod question;
pub(crate) mod reproducible;
pub mod table;
pub(crate) mod transfers;
mod tuning;

use crate::registry::Misfit;
use antiphon_plan::algorithms::{
    self, Algorithm, Choice, Handshake, Rooted, Shape, SumOrder, allgatherv, alltoallv, hosts,
};
use antiphon_plan::builder::BuildError;
use antiphon_plan::model::{Collective, Plan};
use std::collections::BTreeSet;

pub use devices::Devices;
pub(crate) use devices::combined;
pub use order::{Candidate, Choice as Chosen, Offer, Rule};
pub use question::Question;
pub use tuning::Tuning;

/// Where ranks run, as far as the choice of an algorithm goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spread {
    /// Number of ranks.
    pub ranks: u32,
    /// Nodes that they are spread over, each with as many, in rank order; as many as ranks where [that](Self::over) is not so.
    pub nodes: u32,
    /// Some machine has more of them than cores; of no effect on GPUs.
    pub crowded: bool,
    /// What they run on.
    pub devices: Devices,
}

/// Why no algorithm could be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// The nodes have different numbers of ranks.
    #[error(
        "cannot spread {ranks} ranks evenly over {nodes} nodes: every node needs equally many ranks"
    )]
    Uneven {
        /// Number of ranks.
        ranks: u32,
        /// Number of nodes.
        nodes: u32,
    },
    /// Nothing built in does this.
    #[error(
        "cannot choose an algorithm for `{collective}` over {nodes} nodes: there are built-in algorithms for {known}; use one of these, or run a plan of your own"
    )]
    None {
        /// What was asked for.
        collective: Collective,
        /// Number of nodes.
        nodes: u32,
        /// The collectives that have built-in algorithms there.
        known: String,
    },
    /// The algorithm cannot be written for these ranks.
    #[error(transparent)]
    Build(BuildError),
    /// The selector answered what does not serve the call.
    #[error(
        "cannot serve {call} as the selector says: `{name}` {misfit}; answer what fits, or nothing"
    )]
    Unfit {
        /// Its answer.
        name: String,
        /// The call.
        call: String,
        /// Why it does not.
        misfit: Misfit,
    },
    /// The selector answered what there is not, or what does another thing.
    #[error(
        "cannot serve {call} as the selector says: there is no `{name}` for it; fitting are {fitting}"
    )]
    Unknown {
        /// Its answer.
        name: String,
        /// The call.
        call: String,
        /// The names that it may answer.
        fitting: String,
    },
    /// The selector failed, or panicked.
    #[error("cannot choose an algorithm: the selector failed: {0}")]
    Selector(String),
}

impl Spread {
    /// Ranks on this machine's processors, however many nodes it stands for.
    pub fn here(ranks: u32, nodes: u32) -> Self {
        let crowded = ranks > antiphon_hal::host::usable_cores();
        Spread { ranks, nodes, crowded, devices: Devices::Host }
    }

    /// Ranks on the processors of these nodes, in rank order. Unless consecutive ranks are on each node, equally many, every
    /// rank counts as a node of its own: what goes between nodes also goes between ranks of one.
    pub fn over(nodes: &[u32], crowded: bool) -> Self {
        let counted = even(nodes).unwrap_or(nodes.len());
        let (ranks, nodes) = (nodes.len() as u32, counted as u32);
        Spread { ranks, nodes, crowded, devices: Devices::Host }
    }

    /// Ranks on each node.
    pub(crate) fn per_node(self) -> u32 {
        self.ranks / self.nodes.max(1)
    }

    fn handshake(self) -> Handshake {
        // Kernels share no cores with each other, nor with the threads that launch them.
        let shared = self.crowded && self.devices == Devices::Host;
        if shared { Handshake::Hub } else { Handshake::Everyone }
    }
}

/// How many nodes these are, if consecutive ranks are on each, equally many.
pub(crate) fn even(nodes: &[u32]) -> Option<usize> {
    let runs: Vec<&[u32]> = nodes.chunk_by(|a, b| a == b).collect();
    let distinct: BTreeSet<u32> = nodes.iter().copied().collect();
    let equal = runs.windows(2).all(|pair| pair[0].len() == pair[1].len());
    (equal && distinct.len() == runs.len()).then_some(runs.len())
}

/// What the choice hangs on beside the [`Spread`]. All ranks of a call must say the same, but for
/// [`in_place`](Wish::in_place).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish<'a> {
    /// The collective.
    pub collective: &'a Collective,
    /// Bytes of the larger of the call's two buffers: the output of an allgather, the input of a reducescatter. Those with
    /// runtime sizes do not look at it.
    pub bytes: u64,
    /// Whether input and output are the same memory, by the collective's convention. Ranks of an allreduce, allgather or
    /// reducescatter may say different things: what is built in for these is right either way.
    pub in_place: bool,
    /// The rank that broadcasts or receives the reduction; other collectives ignore it.
    pub root: u32,
}

/// A built-in algorithm, and what its plan is written for. Cheap to make, and to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selected {
    /// One of those that may be called with sizes alone.
    Sized(Choice),
    /// [`alltoallv`], which every call brings counts for; those of a gather or scatter are of the blocks between the root and the
    /// others.
    AllToAllV(Spread),
    /// One of gather's or scatter's own.
    Rooted(Choice<Rooted>),
    /// [`allgatherv`], likewise, and whether it is in place.
    AllGatherV(Spread, bool),
}

/// Whether what serves a call hangs on its being in place, so that all ranks must agree. Built-in plans for apart buffers of
/// the other collectives are right where the two are one as well. Calls of broadcast by name never say that they are in place;
/// transfers do, so that what is sent is only read.
pub(crate) fn place_counts(collective: &Collective) -> bool {
    matches!(collective, Collective::AllToAll | Collective::SendRecv | Collective::Broadcast)
}

/// What plans are written for, with one thread block.
fn shape(spread: Spread, Wish { collective, in_place, root, .. }: Wish<'_>) -> Shape {
    Shape {
        in_place: in_place && place_counts(collective),
        root: root as usize,
        handshake: spread.handshake(),
        nodes: spread.nodes as usize,
        ..Shape::new(spread.ranks as usize)
    }
}

/// Chooses among the built-in algorithms.
///
/// # Errors
/// [`Uneven`](SelectionError::Uneven), and [`None`](SelectionError::None) where nothing built in serves.
pub fn select(spread: Spread, wish: Wish<'_>) -> Result<Selected, SelectionError> {
    let Spread { ranks, nodes, .. } = spread;
    let Wish { collective, bytes, in_place, .. } = wish;
    if nodes == 0 || !ranks.is_multiple_of(nodes) {
        return Err(SelectionError::Uneven { ranks, nodes });
    }
    let shape = shape(spread, wish);
    match collective {
        Collective::AllToAllV if nodes == 1 => return Ok(Selected::AllToAllV(spread)),
        Collective::AllGatherV if nodes == 1 => return Ok(Selected::AllGatherV(spread, in_place)),
        Collective::Gather | Collective::Scatter => {
            let own = match spread.devices {
                Devices::Host => hosts::select_rooted(collective, bytes, shape),
                Devices::Gpus { class, most_blocks } => {
                    let most = most_blocks as usize;
                    algorithms::devices::select_rooted(class, collective, bytes, shape, most)
                }
            };
            let by_blocks = (nodes == 1).then_some(Selected::AllToAllV(spread));
            if let Some(selected) = own.map(Selected::Rooted).or(by_blocks) {
                return Ok(selected);
            }
        }
        _ => {}
    }
    let choice = match spread.devices {
        Devices::Host => algorithms::select(collective, bytes, shape),
        Devices::Gpus { class, most_blocks } => {
            algorithms::devices::select(class, collective, bytes, shape, most_blocks as usize)
        }
    };
    choice.map(Selected::Sized).ok_or_else(|| {
        let sized = Algorithm::ALL.map(|one| (one.collective(), one.is_hierarchical()));
        let rooted = Rooted::ALL.map(|one| (one.collective(), one.is_hierarchical()));
        let known: BTreeSet<String> = sized
            .into_iter()
            .chain(rooted)
            .filter(|(_, is_hierarchical)| nodes == 1 || *is_hierarchical)
            .map(|(collective, _)| collective.to_string())
            .collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        SelectionError::None { collective: collective.clone(), nodes, known }
    })
}

/// The built-in algorithms that may serve a call, the one that [`select`] takes first.
///
/// # Errors
/// As [`select`].
pub fn candidates(spread: Spread, wish: Wish<'_>) -> Result<Vec<Selected>, SelectionError> {
    let first = select(spread, wish)?;
    let mut all = vec![first];
    if let Selected::Sized(choice) = first {
        let multicast = spread.devices.have_multicast();
        let others = Algorithm::all_for(wish.collective).filter(|&algorithm| {
            algorithm != choice.algorithm
                && algorithm.is_hierarchical() == (spread.nodes > 1)
                // Elsewhere it is made of single accesses, as others are.
                && (multicast || algorithm.sum_order() != SumOrder::Hardware)
        });
        all.extend(others.map(|algorithm| Selected::Sized(Choice { algorithm, ..choice })));
    } else if matches!(wish.collective, Collective::Gather | Collective::Scatter) {
        let near = spread.nodes == 1;
        let shape = match first {
            Selected::Rooted(choice) => choice.shape,
            _ => shape(spread, wish),
        };
        let own = Rooted::all_for(wish.collective).filter(|one| one.is_hierarchical() != near);
        let own = own.map(|algorithm| Selected::Rooted(Choice { algorithm, shape }));
        let by_blocks = near.then_some(Selected::AllToAllV(spread));
        all.extend(by_blocks.into_iter().chain(own).filter(|other| *other != first));
    }
    Ok(all)
}

/// The names of algorithms that are not among those of [`Algorithm`].
const ALL_TO_ALL_V: &str = "alltoallv_zero_copy";
const ALL_GATHER_V: &str = "allgatherv_zero_copy";

/// What serves calls that are made of transfers between pairs of ranks.
const TRANSFERS: &str = "transfers";

/// Whether a name is that of a built-in algorithm, or of what is there beside them.
pub(crate) fn is_built_in(name: &str) -> bool {
    [ALL_TO_ALL_V, ALL_GATHER_V, TRANSFERS].contains(&name)
        || Rooted::ALL.into_iter().any(|one| one.name() == name)
        || name.parse::<Algorithm>().is_ok()
}

impl Selected {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Selected::Sized(choice) => choice.algorithm.name(),
            Selected::AllToAllV(_) => ALL_TO_ALL_V,
            Selected::AllGatherV(..) => ALL_GATHER_V,
            Selected::Rooted(choice) => choice.algorithm.name(),
        }
    }

    /// What serves calls by name in its place, of which each rank may be in place or not as it likes: the plan in place is right
    /// for the others as well, but for a rank alone, whose plan moves nothing then.
    pub(crate) fn in_either_place(self) -> Self {
        match self {
            Selected::AllGatherV(spread, false) => Selected::AllGatherV(spread, spread.ranks > 1),
            other => other,
        }
    }

    /// Its plan.
    ///
    /// # Errors
    /// [`Build`](SelectionError::Build) for a root that is not a rank.
    pub fn plan(&self) -> Result<Plan, SelectionError> {
        let built = match *self {
            Selected::Sized(choice) => choice.plan(),
            Selected::AllToAllV(spread) => alltoallv::zero_copy(Shape {
                handshake: spread.handshake(),
                ..Shape::new(spread.ranks as usize)
            }),
            Selected::AllGatherV(spread, in_place) => allgatherv::zero_copy(Shape {
                in_place,
                handshake: spread.handshake(),
                ..Shape::new(spread.ranks as usize)
            }),
            Selected::Rooted(choice) => choice.plan(),
        };
        built.map_err(SelectionError::Build)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(collective: &Collective, bytes: u64) -> Wish<'_> {
        Wish { collective, bytes, in_place: false, root: 0 }
    }

    #[test]
    fn ranks_meet_by_what_their_machines_have_cores_for() {
        let plan = |crowded| {
            let spread = Spread { ranks: 4, nodes: 2, crowded, devices: Devices::Host };
            select(spread, wish(&Collective::AllReduce, 4096)).unwrap().plan().unwrap().name
        };
        assert_ne!(plan(true), plan(false));
        let cores = antiphon_hal::host::usable_cores();
        for nodes in [1, 2] {
            assert!(!Spread::here(cores, nodes).crowded, "{nodes}");
            assert!(Spread::here(cores + 1, nodes).crowded, "{nodes} nodes share this machine");
        }
    }

    #[test]
    fn nodes_are_counted_where_they_are_even_and_else_ranks() {
        let cases: [(&[u32], u32); 6] = [
            (&[0], 1),
            (&[0, 0, 1, 1], 2),
            (&[0, 1, 2], 3),
            (&[0, 1, 0, 1], 4),
            (&[0, 0, 1], 3),
            (&[0, 1, 1, 0], 4),
        ];
        for (given, expected) in cases {
            let spread = Spread::over(given, false);
            assert_eq!((spread.ranks, spread.nodes), (given.len() as u32, expected), "{given:?}");
        }
    }

    #[test]
    fn a_collective_without_an_algorithm_over_nodes_is_refused_with_those_that_have_one() {
        let spread = Spread { ranks: 4, nodes: 2, crowded: false, devices: Devices::Host };
        let error = select(spread, wish(&Collective::AllToAllV, 4)).unwrap_err().to_string();
        for part in ["`alltoallv`", "allgather, allreduce, alltoall, broadcast", "2 nodes"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let uneven = Spread { ranks: 3, nodes: 2, crowded: false, devices: Devices::Host };
        let error = select(uneven, wish(&Collective::AllReduce, 4)).unwrap_err();
        assert_eq!(error, SelectionError::Uneven { ranks: 3, nodes: 2 });
    }

    #[test]
    fn gathers_and_scatters_have_several_candidates_of_which_the_rule_takes_the_first() {
        use antiphon_plan::algorithms::devices::DeviceClass;
        let names = |collective: &Collective, nodes, devices| {
            let spread = Spread { ranks: 4, nodes, crowded: false, devices };
            let all = candidates(spread, Wish { root: 1, ..wish(collective, 64) })?;
            for one in &all {
                assert_eq!(one.plan()?.gpus.len(), 4);
                assert!(is_built_in(one.name()));
            }
            let mut names: Vec<_> = all.iter().map(Selected::name).collect();
            let by_rule = select(spread, wish(collective, 64))?.name();
            assert_eq!(names[0], by_rule);
            names.sort_unstable();
            Ok::<_, SelectionError>(names)
        };
        let gathers = ["alltoallv_zero_copy", "gather_packets", "gather_zero_copy"];
        assert_eq!(names(&Collective::Gather, 1, Devices::Host).unwrap(), gathers);
        let scatters = ["alltoallv_zero_copy", "scatter_packets", "scatter_zero_copy"];
        assert_eq!(names(&Collective::Scatter, 1, Devices::Host).unwrap(), scatters);
        let gpus = Devices::of(DeviceClass::Amd);
        assert_eq!(names(&Collective::Gather, 1, gpus).unwrap(), gathers);
        assert_eq!(names(&Collective::AllToAllV, 1, Devices::Host).unwrap(), gathers[..1]);
        let far = ["gather_hierarchical_packets", "gather_hierarchical_zero_copy"];
        assert_eq!(names(&Collective::Gather, 2, Devices::Host).unwrap(), far);
        let far = ["scatter_hierarchical_packets", "scatter_hierarchical_zero_copy"];
        assert_eq!(names(&Collective::Scatter, 4, Devices::Host).unwrap(), far);
        assert_eq!(names(&Collective::Scatter, 2, gpus).unwrap(), far);
    }

    #[test]
    fn a_root_that_is_no_rank_is_an_error() {
        let spread = Spread { ranks: 2, nodes: 1, crowded: false, devices: Devices::Host };
        let wish = Wish { root: 2, ..wish(&Collective::Broadcast, 4) };
        assert!(matches!(select(spread, wish).unwrap().plan(), Err(SelectionError::Build(_))));
    }
}
