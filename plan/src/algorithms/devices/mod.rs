//! Which built-in algorithm to use on GPUs, and with how many thread blocks, by message size: as the simulator predicts, for
//! the built-in topology that stands for a class of devices. Nothing here was measured.
//!
//! [`predict`] asks the simulator, `cargo xtask defaults --predict` writes what it says into the table, and [`select`] reads
//! that; gathers and scatters have a table of their own, with [`predict_rooted`] and [`select_rooted`].

mod predict;
mod table;

use super::select::{counted, nearest};
use super::{Algorithm, Choice, Rooted, Shape};
use crate::model::Collective;
use crate::simulate::{Topology, TopologyError};

pub use predict::{AS_GOOD, predict, predict_rooted, sizes};

/// Devices that are told apart, each with the built-in topology that stands for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceClass {
    /// NVIDIA's that take part in multicast groups (NVLS): `h100x8`.
    NvidiaMulticast,
    /// NVIDIA's that do not: `a100x8`.
    Nvidia,
    /// AMD's: `mi300x8`.
    Amd,
}

/// An algorithm and its thread blocks, and the messages they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<A = Algorithm> {
    /// Bytes of the largest message, as [`select`] counts them.
    pub up_to: u64,
    /// The algorithm.
    pub algorithm: A,
    /// Thread blocks of each rank.
    pub blocks: usize,
}

/// What is predicted for a collective of ranks like these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction<A: 'static = Algorithm> {
    /// The devices.
    pub class: DeviceClass,
    /// Nodes that the ranks are spread over.
    pub nodes: usize,
    /// Ranks of each node.
    pub per_node: usize,
    /// The collective.
    pub collective: Collective,
    /// The steps, from the smallest messages on; the last one is for all larger messages.
    pub steps: &'static [Step<A>],
}

/// Ranks of a node that are simulated, and the nodes they are simulated on.
pub const SIMULATED: [(usize, &[usize]); 2] = [(1, &[2, 4, 8]), (2, &[1, 2, 4, 8])];

impl DeviceClass {
    /// Every class.
    pub const ALL: [DeviceClass; 3] =
        [DeviceClass::NvidiaMulticast, DeviceClass::Nvidia, DeviceClass::Amd];

    /// The name of the built-in topology that stands for it.
    pub const fn topology_name(self) -> &'static str {
        match self {
            DeviceClass::NvidiaMulticast => "h100x8",
            DeviceClass::Nvidia => "a100x8",
            DeviceClass::Amd => "mi300x8",
        }
    }

    /// That topology, with so many ranks on each of its nodes, each with a network card of its own.
    ///
    /// # Errors
    /// There is none of so many nodes.
    pub fn topology(self, nodes: usize, per_node: usize) -> Result<Topology, TopologyError> {
        let mut topology = Topology::built_in(&format!("{}-{nodes}", self.topology_name()))?;
        topology.ranks_per_node = per_node as u32;
        if let Some(between) = &mut topology.between {
            between.nics_per_node = per_node as u32;
        }
        topology.validate()?;
        Ok(topology)
    }

    /// The same devices for calls that may not be left to a switch.
    #[must_use]
    pub const fn without_multicast(self) -> Self {
        match self {
            DeviceClass::NvidiaMulticast => DeviceClass::Nvidia,
            other => other,
        }
    }
}

/// The predictions that [`select`] reads.
pub fn predictions() -> &'static [Prediction] {
    table::PREDICTIONS
}

/// Those of gather and scatter, that [`select_rooted`] reads.
pub fn predictions_rooted() -> &'static [Prediction<Rooted>] {
    table::ROOTED
}

/// What is predicted for a collective of so many nodes with so many ranks each; `None` where that was not simulated.
pub fn prediction(
    class: DeviceClass,
    nodes: usize,
    per_node: usize,
    collective: &Collective,
) -> Option<&'static Prediction> {
    find(predictions(), class, (nodes, per_node), collective)
}

/// As [`prediction`], of gather and scatter.
pub fn prediction_rooted(
    class: DeviceClass,
    nodes: usize,
    per_node: usize,
    collective: &Collective,
) -> Option<&'static Prediction<Rooted>> {
    find(predictions_rooted(), class, (nodes, per_node), collective)
}

/// The prediction for so many nodes with so many ranks each.
fn find<A>(
    all: &'static [Prediction<A>],
    class: DeviceClass,
    ranks: (usize, usize),
    collective: &Collective,
) -> Option<&'static Prediction<A>> {
    all.iter().find(|one| {
        (one.class, (one.nodes, one.per_node)) == (class, ranks) && one.collective == *collective
    })
}

/// Choose an algorithm and its thread blocks for a message of `bytes` bytes on devices, in the given shape, whose blocks are
/// at most `most` (at least 1).
///
/// `bytes` is counted as [`select`](super::select()) does. A number of ranks that was not simulated is served like the
/// simulated one that is nearest by ratio, or the larger of two equally near; several nodes are served like two. Where the
/// larger buffer has a block for each rank, the size of the block counts. All ranks of a call must give the same arguments.
/// `None` for collectives without built-in algorithms, or, with several nodes, without hierarchical ones.
pub fn select(
    class: DeviceClass,
    collective: &Collective,
    bytes: u64,
    shape: Shape,
    most: usize,
) -> Option<Choice> {
    choose(predictions(), class, (collective, bytes), shape, most)
}

/// As [`select`], of a gather or a scatter, whose larger buffer, the root's, has so many bytes.
pub fn select_rooted(
    class: DeviceClass,
    collective: &Collective,
    bytes: u64,
    shape: Shape,
    most: usize,
) -> Option<Choice<Rooted>> {
    choose(predictions_rooted(), class, (collective, bytes), shape, most)
}

/// The choice by a table.
fn choose<A: Copy>(
    all: &'static [Prediction<A>],
    class: DeviceClass,
    (collective, bytes): (&Collective, u64),
    shape: Shape,
    most: usize,
) -> Option<Choice<A>> {
    let nodes = shape.nodes.max(1);
    let simulated = if nodes > 1 { SIMULATED[1].1 } else { SIMULATED[0].1 };
    let per_node = nearest(shape.ranks / nodes, simulated.iter().copied())?;
    let prediction = find(all, class, (nodes.min(2), per_node), collective)?;
    let ranks = prediction.nodes * prediction.per_node;
    let bytes = counted(collective, bytes, (ranks, shape.ranks));
    let step = prediction.steps.iter().find(|step| bytes <= step.up_to)?;
    let blocks = step.blocks.min(most.max(1));
    Some(Choice { algorithm: step.algorithm, shape: Shape { blocks, ..shape } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::SimulateError;
    use std::fmt::Debug;

    /// The larger ones take the same code to simulate, and too long for a test.
    const QUICK: usize = 4;

    #[test]
    fn the_table_is_what_the_simulator_predicts() {
        // Two and four ranks, on one node and on two.
        let places = DeviceClass::ALL.len() * 4;
        assert_eq!(held(predictions(), predict), places * 7);
        assert_eq!(held(predictions_rooted(), predict_rooted), places * 2);
    }

    /// How many predictions were held against the simulator.
    fn held<A: PartialEq + Debug>(
        all: &[Prediction<A>],
        predict: impl Fn(&Topology, &Collective) -> Result<Vec<Step<A>>, SimulateError>,
    ) -> usize {
        let quick = all.iter().filter(|one| one.nodes * one.per_node <= QUICK);
        let hold = |one: &Prediction<A>| {
            let topology = one.class.topology(one.nodes, one.per_node).unwrap();
            let steps = predict(&topology, &one.collective).unwrap();
            let what = format!("{:?}, {} x {}", one.class, one.nodes, one.per_node);
            assert_eq!(
                steps, one.steps,
                "{} of {what}: run `cargo xtask defaults --predict`",
                one.collective
            );
        };
        quick.map(hold).count()
    }

    #[test]
    fn there_is_a_prediction_of_every_collective_on_all_that_is_simulated() {
        let mut all =
            keys(predictions(), |algorithm| (algorithm.collective(), algorithm.is_hierarchical()));
        let rooted = keys(predictions_rooted(), |one| (one.collective(), one.is_hierarchical()));
        assert_eq!(all.len() * 2, rooted.len() * 7);
        all.extend(rooted);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        let simulated: usize = SIMULATED.iter().map(|(_, per_node)| per_node.len()).sum();
        assert_eq!((count, all.len()), (DeviceClass::ALL.len() * simulated * 9, count));
    }

    /// What each prediction is for; its steps serve all messages with algorithms that are for that.
    fn keys<A: Debug>(all: &[Prediction<A>], of: impl Fn(&A) -> (Collective, bool)) -> Vec<String> {
        let key = |one: &Prediction<A>| {
            let Prediction { class, nodes, per_node, collective, steps } = one;
            assert!(steps.windows(2).all(|pair| pair[0].up_to < pair[1].up_to), "{one:?}");
            assert_eq!(steps.last().map(|step| step.up_to), Some(u64::MAX), "{one:?}");
            for Step { algorithm, blocks, .. } in *steps {
                assert_eq!(of(algorithm), (collective.clone(), *nodes > 1), "{one:?}");
                assert!(*blocks >= 1);
            }
            format!("{class:?} {nodes} {per_node} {collective}")
        };
        all.iter().map(key).collect()
    }

    #[test]
    fn gathers_and_scatters_count_by_the_block_too_and_have_no_more_blocks_than_allowed() {
        let at = |collective: &Collective, bytes, (ranks, nodes), most| {
            let shape = Shape { nodes, root: 1, ..Shape::new(ranks) };
            let choice = select_rooted(DeviceClass::Amd, collective, bytes, shape, most).unwrap();
            assert_eq!((choice.shape.root, choice.shape.nodes), (1, nodes));
            assert_eq!(choice.plan().unwrap().gpus.len(), ranks);
            (choice.algorithm, choice.shape.blocks)
        };
        for collective in [Collective::Gather, Collective::Scatter] {
            for bytes in (6..30).map(|power| 1 << power) {
                let simulated = at(&collective, 8 * bytes, (8, 1), usize::MAX);
                assert_eq!(at(&collective, 6 * bytes, (6, 1), usize::MAX), simulated);
                assert!(at(&collective, 6 * bytes, (6, 1), 2).1 <= 2);
                let simulated = at(&collective, 4 * bytes, (4, 2), usize::MAX);
                assert_eq!(at(&collective, 6 * bytes, (6, 3), usize::MAX), simulated);
                assert!(simulated.0.is_hierarchical());
            }
        }
        let none = |collective| select_rooted(DeviceClass::Amd, &collective, 4, Shape::new(2), 1);
        assert_eq!(none(Collective::AllGather), None);
    }

    #[test]
    fn where_each_rank_has_a_block_the_block_counts() {
        let at = |collective: &Collective, bytes, ranks, nodes| {
            let shape = Shape { nodes, ..Shape::new(ranks) };
            let choice = select(DeviceClass::Nvidia, collective, bytes, shape, usize::MAX).unwrap();
            (choice.algorithm, choice.shape.blocks)
        };
        for bytes in (6..30).map(|power| 1 << power) {
            for collective in
                [Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll]
            {
                let simulated = at(&collective, 8 * bytes, 8, 1);
                assert_eq!(at(&collective, 6 * bytes, 6, 1), simulated, "{collective} {bytes}");
                let simulated = at(&collective, 16 * bytes, 16, 2);
                assert_eq!(at(&collective, 32 * bytes, 32, 4), simulated, "{collective} {bytes}");
            }
            let simulated = at(&Collective::AllReduce, bytes, 8, 1);
            assert_eq!(at(&Collective::AllReduce, bytes, 6, 1), simulated, "{bytes}");
        }
        let none = |collective| select(DeviceClass::Amd, &collective, 4, Shape::new(2), 1);
        assert_eq!(none(Collective::AllToAllV), None);
        assert_eq!(none(Collective::Test), None);
        assert!(at(&Collective::AllGather, u64::MAX, 3, 1).1 > 1, "the largest there is");
    }

    #[test]
    fn a_device_that_runs_few_blocks_gets_few() {
        let shape = Shape::new(8);
        let blocks = |most| {
            let choice = select(DeviceClass::Amd, &Collective::AllReduce, 1 << 30, shape, most);
            choice.map(|choice| choice.shape.blocks)
        };
        assert_eq!((blocks(0), blocks(1), blocks(3)), (Some(1), Some(1), Some(3)));
        assert_eq!(blocks(usize::MAX), blocks(16));
    }

    #[test]
    fn only_switches_that_multicast_combine() {
        for one in predictions() {
            let switch = one.steps.iter().any(|step| step.algorithm == Algorithm::AllReduceSwitch);
            assert!(!switch || one.class == DeviceClass::NvidiaMulticast, "{one:?}");
        }
        assert_eq!(DeviceClass::NvidiaMulticast.without_multicast(), DeviceClass::Nvidia);
        assert_eq!(DeviceClass::Amd.without_multicast(), DeviceClass::Amd);
    }
}
