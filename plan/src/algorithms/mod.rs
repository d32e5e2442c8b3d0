//! The built-in algorithms: one file per collective, each function writing the plan for any number of ranks. Those of
//! [`hierarchical`] reach over several nodes, the others need memory that all ranks share.
//!
//! Reductions add in rank order on every rank ([`allreduce::ring`], [`allreduce::switch`] and [`hierarchical`] say what
//! they do instead), so that results do not depend on the algorithm, the message size or the rank.
//!
//! Every plan is safe to launch again at once: a rank may start its next launch as soon as its own launch is
//! done, whatever the others are doing. The plans name `i` for the input and `o` for the output in place too.
//! There, the smaller buffer of an allgather or reducescatter is the rank's block of the larger one, and for all
//! others both are the same memory.
//!
//! [`alltoallv`] and [`allgatherv`] have runtime sizes: their calls need [counts](crate::counts::Counts), so they are
//! not among [`Algorithm::ALL`], which may be called with sizes alone.

pub mod allgather;
pub mod allgatherv;
pub mod allreduce;
pub mod alltoall;
pub mod alltoallv;
pub mod broadcast;
mod common;
pub mod examples;
pub mod hierarchical;
pub mod reduce;
pub mod reducescatter;
pub mod select;
pub mod sendrecv;
#[cfg(test)]
mod tests;

pub use examples::examples;
pub use select::{Choice, select};

use crate::builder::BuildError;
use crate::model::{Collective, Plan};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A built-in algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// [`allreduce::one_shot_packets`].
    AllReduceOneShotPackets,
    /// [`allreduce::two_shot_packets`].
    AllReduceTwoShotPackets,
    /// [`allreduce::zero_copy`].
    AllReduceZeroCopy,
    /// [`allreduce::hub`].
    AllReduceHub,
    /// [`allreduce::ring`].
    AllReduceRing,
    /// [`allgather::packets`].
    AllGatherPackets,
    /// [`allgather::zero_copy`].
    AllGatherZeroCopy,
    /// [`reducescatter::packets`].
    ReduceScatterPackets,
    /// [`reducescatter::zero_copy`].
    ReduceScatterZeroCopy,
    /// [`alltoall::packets`].
    AllToAllPackets,
    /// [`alltoall::zero_copy`].
    AllToAllZeroCopy,
    /// [`broadcast::packets`].
    BroadcastPackets,
    /// [`broadcast::zero_copy`].
    BroadcastZeroCopy,
    /// [`reduce::packets`].
    ReducePackets,
    /// [`reduce::zero_copy`].
    ReduceZeroCopy,
    /// [`sendrecv::packets`].
    SendRecvPackets,
    /// [`sendrecv::zero_copy`].
    SendRecvZeroCopy,
    /// [`hierarchical::allreduce::packets`].
    AllReduceHierarchicalPackets,
    /// [`hierarchical::allreduce::two_shot_packets`].
    AllReduceHierarchicalTwoShotPackets,
    /// [`hierarchical::allreduce::hub`].
    AllReduceHierarchicalHub,
    /// [`hierarchical::allreduce::zero_copy`].
    AllReduceHierarchicalZeroCopy,
    /// [`hierarchical::allgather::packets`].
    AllGatherHierarchicalPackets,
    /// [`hierarchical::allgather::zero_copy`].
    AllGatherHierarchicalZeroCopy,
    /// [`hierarchical::reducescatter::packets`].
    ReduceScatterHierarchicalPackets,
    /// [`hierarchical::reducescatter::zero_copy`].
    ReduceScatterHierarchicalZeroCopy,
    /// [`hierarchical::alltoall::packets`].
    AllToAllHierarchicalPackets,
    /// [`hierarchical::alltoall::zero_copy`].
    AllToAllHierarchicalZeroCopy,
}

/// What a built-in algorithm is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Number of ranks, at least 1.
    pub ranks: usize,
    /// Number of nodes that the ranks are spread over, at least 1, which must divide the ranks; ranks of a node are
    /// consecutive. Only [hierarchical](Algorithm::is_hierarchical) algorithms reach over several nodes; others ignore
    /// it.
    pub nodes: usize,
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// The rank that broadcasts or receives the reduction; other collectives ignore it.
    pub root: usize,
    /// Thread blocks that share each rank's work, at least 1 (0 counts as 1); packet algorithms use one.
    pub blocks: usize,
    /// How ranks meet in zero-copy algorithms where everyone touches everyone's buffers.
    pub handshake: Handshake,
}

/// In which order an algorithm's reductions add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SumOrder {
    /// In rank order; trivially so where nothing is reduced.
    Ranks,
    /// Round the ring of ranks, each slice from a rank of its own.
    Ring,
    /// In rank order on each node, and then the nodes' sums in node order; on one node, in rank order.
    Nodes,
}

/// How ranks meet before and after they touch each other's buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Handshake {
    /// Everyone tells everyone: one step, `ranks * (ranks - 1)` signals. For ranks with cores of their own.
    #[default]
    Everyone,
    /// Everyone tells rank 0, which tells everyone: two steps, `2 * (ranks - 1)` signals. For ranks that share
    /// cores, where work counts and steps do not.
    Hub,
}

impl Shape {
    /// One node, out of place, root 0, one thread block.
    pub const fn new(ranks: usize) -> Self {
        Shape {
            ranks,
            nodes: 1,
            in_place: false,
            root: 0,
            blocks: 1,
            handshake: Handshake::Everyone,
        }
    }
}

/// A name that is no built-in algorithm's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot find algorithm `{found}`: allowed {}", allowed_names())]
pub struct UnknownAlgorithm {
    /// The name asked for.
    pub found: String,
}

fn allowed_names() -> String {
    Algorithm::ALL.map(Algorithm::name).join(", ")
}

impl Algorithm {
    /// Every built-in algorithm, in declaration order.
    pub const ALL: [Algorithm; 27] = {
        use Algorithm::*;
        [
            AllReduceOneShotPackets,
            AllReduceTwoShotPackets,
            AllReduceZeroCopy,
            AllReduceHub,
            AllReduceRing,
            AllGatherPackets,
            AllGatherZeroCopy,
            ReduceScatterPackets,
            ReduceScatterZeroCopy,
            AllToAllPackets,
            AllToAllZeroCopy,
            BroadcastPackets,
            BroadcastZeroCopy,
            ReducePackets,
            ReduceZeroCopy,
            SendRecvPackets,
            SendRecvZeroCopy,
            AllReduceHierarchicalPackets,
            AllReduceHierarchicalTwoShotPackets,
            AllReduceHierarchicalHub,
            AllReduceHierarchicalZeroCopy,
            AllGatherHierarchicalPackets,
            AllGatherHierarchicalZeroCopy,
            ReduceScatterHierarchicalPackets,
            ReduceScatterHierarchicalZeroCopy,
            AllToAllHierarchicalPackets,
            AllToAllHierarchicalZeroCopy,
        ]
    };

    /// The built-in algorithms of a collective; none for collectives that Antiphon does not know.
    pub fn all_for(collective: &Collective) -> impl Iterator<Item = Algorithm> + use<> {
        let collective = collective.clone();
        Algorithm::ALL.into_iter().filter(move |algorithm| algorithm.collective() == collective)
    }

    /// The name used on the command line and in messages, e.g. `allreduce_zero_copy`.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::AllReduceOneShotPackets => "allreduce_one_shot_packets",
            Algorithm::AllReduceTwoShotPackets => "allreduce_two_shot_packets",
            Algorithm::AllReduceZeroCopy => "allreduce_zero_copy",
            Algorithm::AllReduceHub => "allreduce_hub",
            Algorithm::AllReduceRing => "allreduce_ring",
            Algorithm::AllGatherPackets => "allgather_packets",
            Algorithm::AllGatherZeroCopy => "allgather_zero_copy",
            Algorithm::ReduceScatterPackets => "reducescatter_packets",
            Algorithm::ReduceScatterZeroCopy => "reducescatter_zero_copy",
            Algorithm::AllToAllPackets => "alltoall_packets",
            Algorithm::AllToAllZeroCopy => "alltoall_zero_copy",
            Algorithm::BroadcastPackets => "broadcast_packets",
            Algorithm::BroadcastZeroCopy => "broadcast_zero_copy",
            Algorithm::ReducePackets => "reduce_packets",
            Algorithm::ReduceZeroCopy => "reduce_zero_copy",
            Algorithm::SendRecvPackets => "sendrecv_packets",
            Algorithm::SendRecvZeroCopy => "sendrecv_zero_copy",
            Algorithm::AllReduceHierarchicalPackets => "allreduce_hierarchical_packets",
            Algorithm::AllReduceHierarchicalTwoShotPackets => {
                "allreduce_hierarchical_two_shot_packets"
            }
            Algorithm::AllReduceHierarchicalHub => "allreduce_hierarchical_hub",
            Algorithm::AllReduceHierarchicalZeroCopy => "allreduce_hierarchical_zero_copy",
            Algorithm::AllGatherHierarchicalPackets => "allgather_hierarchical_packets",
            Algorithm::AllGatherHierarchicalZeroCopy => "allgather_hierarchical_zero_copy",
            Algorithm::ReduceScatterHierarchicalPackets => "reducescatter_hierarchical_packets",
            Algorithm::ReduceScatterHierarchicalZeroCopy => "reducescatter_hierarchical_zero_copy",
            Algorithm::AllToAllHierarchicalPackets => "alltoall_hierarchical_packets",
            Algorithm::AllToAllHierarchicalZeroCopy => "alltoall_hierarchical_zero_copy",
        }
    }

    /// What the algorithm computes.
    pub const fn collective(self) -> Collective {
        use Algorithm::*;
        match self {
            AllReduceOneShotPackets
            | AllReduceTwoShotPackets
            | AllReduceZeroCopy
            | AllReduceHub
            | AllReduceRing
            | AllReduceHierarchicalPackets
            | AllReduceHierarchicalTwoShotPackets
            | AllReduceHierarchicalHub
            | AllReduceHierarchicalZeroCopy => Collective::AllReduce,
            AllGatherPackets
            | AllGatherZeroCopy
            | AllGatherHierarchicalPackets
            | AllGatherHierarchicalZeroCopy => Collective::AllGather,
            ReduceScatterPackets
            | ReduceScatterZeroCopy
            | ReduceScatterHierarchicalPackets
            | ReduceScatterHierarchicalZeroCopy => Collective::ReduceScatter,
            AllToAllPackets
            | AllToAllZeroCopy
            | AllToAllHierarchicalPackets
            | AllToAllHierarchicalZeroCopy => Collective::AllToAll,
            BroadcastPackets | BroadcastZeroCopy => Collective::Broadcast,
            ReducePackets | ReduceZeroCopy => Collective::Reduce,
            SendRecvPackets | SendRecvZeroCopy => Collective::SendRecv,
        }
    }

    /// Whether the algorithm reaches over several nodes, by port channels.
    pub const fn is_hierarchical(self) -> bool {
        use Algorithm::*;
        matches!(
            self,
            AllReduceHierarchicalPackets
                | AllReduceHierarchicalTwoShotPackets
                | AllReduceHierarchicalHub
                | AllReduceHierarchicalZeroCopy
                | AllGatherHierarchicalPackets
                | AllGatherHierarchicalZeroCopy
                | ReduceScatterHierarchicalPackets
                | ReduceScatterHierarchicalZeroCopy
                | AllToAllHierarchicalPackets
                | AllToAllHierarchicalZeroCopy
        )
    }

    /// In which order reductions add; the same on every rank.
    pub const fn sum_order(self) -> SumOrder {
        match self {
            Algorithm::AllReduceRing => SumOrder::Ring,
            _ if self.is_hierarchical() => SumOrder::Nodes,
            _ => SumOrder::Ranks,
        }
    }

    /// The plan for this shape. Fails on 0 ranks, on a root that is not a rank, and where nodes matter on a number of them
    /// that does not divide the ranks.
    pub fn plan(self, shape: Shape) -> Result<Plan, BuildError> {
        let Shape { ranks, nodes, in_place, root, blocks, handshake } = shape;
        match self {
            Algorithm::AllReduceOneShotPackets => allreduce::one_shot_packets(ranks, in_place),
            Algorithm::AllReduceTwoShotPackets => allreduce::two_shot_packets(ranks, in_place),
            Algorithm::AllReduceZeroCopy => {
                allreduce::zero_copy(ranks, in_place, blocks, handshake)
            }
            Algorithm::AllReduceHub => allreduce::hub(ranks, in_place),
            Algorithm::AllReduceRing => allreduce::ring(ranks, in_place, blocks),
            Algorithm::AllGatherPackets => allgather::packets(ranks, in_place),
            Algorithm::AllGatherZeroCopy => {
                allgather::zero_copy(ranks, in_place, blocks, handshake)
            }
            Algorithm::ReduceScatterPackets => reducescatter::packets(ranks, in_place),
            Algorithm::ReduceScatterZeroCopy => {
                reducescatter::zero_copy(ranks, in_place, blocks, handshake)
            }
            Algorithm::AllToAllPackets => alltoall::packets(ranks, in_place),
            Algorithm::AllToAllZeroCopy => alltoall::zero_copy(ranks, in_place, blocks, handshake),
            Algorithm::BroadcastPackets => broadcast::packets(ranks, in_place, root),
            Algorithm::BroadcastZeroCopy => broadcast::zero_copy(ranks, in_place, root, blocks),
            Algorithm::ReducePackets => reduce::packets(ranks, in_place, root),
            Algorithm::ReduceZeroCopy => reduce::zero_copy(ranks, in_place, root, blocks),
            Algorithm::SendRecvPackets => sendrecv::packets(ranks, in_place),
            Algorithm::SendRecvZeroCopy => sendrecv::zero_copy(ranks, in_place, blocks),
            Algorithm::AllReduceHierarchicalPackets => {
                hierarchical::allreduce::packets(ranks, nodes, in_place)
            }
            Algorithm::AllReduceHierarchicalTwoShotPackets => {
                hierarchical::allreduce::two_shot_packets(ranks, nodes, in_place)
            }
            Algorithm::AllReduceHierarchicalHub => {
                hierarchical::allreduce::hub(ranks, nodes, in_place)
            }
            Algorithm::AllReduceHierarchicalZeroCopy => {
                hierarchical::allreduce::zero_copy(ranks, nodes, in_place, blocks)
            }
            Algorithm::AllGatherHierarchicalPackets => {
                hierarchical::allgather::packets(ranks, nodes, in_place)
            }
            Algorithm::AllGatherHierarchicalZeroCopy => {
                hierarchical::allgather::zero_copy(ranks, nodes, in_place, blocks)
            }
            Algorithm::ReduceScatterHierarchicalPackets => {
                hierarchical::reducescatter::packets(ranks, nodes, in_place)
            }
            Algorithm::ReduceScatterHierarchicalZeroCopy => {
                hierarchical::reducescatter::zero_copy(ranks, nodes, in_place, blocks)
            }
            Algorithm::AllToAllHierarchicalPackets => {
                hierarchical::alltoall::packets(ranks, nodes, in_place)
            }
            Algorithm::AllToAllHierarchicalZeroCopy => {
                hierarchical::alltoall::zero_copy(ranks, nodes, in_place, blocks)
            }
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;
    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        let found = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == text);
        found.ok_or_else(|| UnknownAlgorithm { found: text.to_owned() })
    }
}
