//! Which built-in algorithm to use on GPUs, and with how many thread blocks, by message size: as the simulator predicts, for
//! the built-in topology that stands for a class of devices. Nothing here was measured.
//!
//! [`predict`] asks the simulator, `cargo xtask defaults --predict` writes what it says into the table, and [`select`] reads
//! that.

mod predict;
mod table;

use super::select::{counted, nearest};
use super::{Algorithm, Choice, Shape};
use crate::model::Collective;
use crate::simulate::{Topology, TopologyError};

pub use predict::{AS_GOOD, predict, sizes};

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
pub struct Step {
    /// Bytes of the largest message, as [`select`] counts them.
    pub up_to: u64,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Thread blocks of each rank.
    pub blocks: usize,
}

/// What is predicted for a collective of ranks like these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The devices.
    pub class: DeviceClass,
    /// Nodes that the ranks are spread over.
    pub nodes: usize,
    /// Ranks of each node.
    pub per_node: usize,
    /// The collective.
    pub collective: Collective,
    /// The steps, from the smallest messages on; the last one is for all larger messages.
    pub steps: &'static [Step],
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

/// What is predicted for a collective of so many nodes with so many ranks each; `None` where that was not simulated.
pub fn prediction(
    class: DeviceClass,
    nodes: usize,
    per_node: usize,
    collective: &Collective,
) -> Option<&'static Prediction> {
    predictions().iter().find(|one| {
        (one.class, one.nodes, one.per_node) == (class, nodes, per_node)
            && one.collective == *collective
    })
}

/// Choose an algorithm and its thread blocks for a message of `bytes` bytes on devices, in the given shape, whose blocks are
/// at most `most` (at least 1).
///
/// `bytes` is counted as [`select`](super::select()) does. Ranks that were not simulated are served as those simulated that
/// are next to them by ratio, the larger of two equally near; several nodes as two. Where the larger buffer has a block for
/// each rank, what counts is the block. All ranks of a call must give the same arguments. `None` for collectives without
/// built-in algorithms, or, with several nodes, without hierarchical ones.
pub fn select(
    class: DeviceClass,
    collective: &Collective,
    bytes: u64,
    shape: Shape,
    most: usize,
) -> Option<Choice> {
    let nodes = shape.nodes.max(1);
    let simulated = if nodes > 1 { SIMULATED[1].1 } else { SIMULATED[0].1 };
    let per_node = nearest(shape.ranks / nodes, simulated.iter().copied())?;
    let prediction = prediction(class, nodes.min(2), per_node, collective)?;
    let ranks = prediction.nodes * prediction.per_node;
    let bytes = counted(collective, bytes, (ranks, shape.ranks));
    let step = prediction.steps.iter().find(|step| bytes <= step.up_to)?;
    let blocks = step.blocks.min(most.max(1));
    Some(Choice { algorithm: step.algorithm, shape: Shape { blocks, ..shape } })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The larger ones take the same code to simulate, and too long for a test.
    const QUICK: usize = 4;

    #[test]
    fn the_table_is_what_the_simulator_predicts() {
        let mut held = 0;
        for one in predictions().iter().filter(|one| one.nodes * one.per_node <= QUICK) {
            let topology = one.class.topology(one.nodes, one.per_node).unwrap();
            let steps = predict(&topology, &one.collective).unwrap();
            let what = format!("{:?}, {} x {}", one.class, one.nodes, one.per_node);
            assert_eq!(
                steps, one.steps,
                "{} of {what}: run `cargo xtask defaults --predict`",
                one.collective
            );
            held += 1;
        }
        assert_eq!(
            held,
            DeviceClass::ALL.len() * 4 * 7,
            "two and four ranks, on one node and on two"
        );
    }

    #[test]
    fn there_is_a_prediction_of_every_collective_on_all_that_is_simulated() {
        let mut keys: Vec<String> = Vec::new();
        for one in predictions() {
            let Prediction { class, nodes, per_node, collective, steps } = one;
            keys.push(format!("{class:?} {nodes} {per_node} {collective}"));
            assert!(steps.windows(2).all(|pair| pair[0].up_to < pair[1].up_to), "{one:?}");
            assert_eq!(steps.last().map(|step| step.up_to), Some(u64::MAX), "{one:?}");
            for Step { algorithm, blocks, .. } in *steps {
                assert_eq!(algorithm.collective(), *collective);
                assert_eq!(algorithm.is_hierarchical(), *nodes > 1);
                assert!(*blocks >= 1);
            }
        }
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        let simulated: usize = SIMULATED.iter().map(|(_, per_node)| per_node.len()).sum();
        assert_eq!((all, keys.len()), (DeviceClass::ALL.len() * simulated * 7, all));
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
