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
//! not among [`Algorithm::ALL`], which may be called with sizes alone. Nor are [gathers and scatters](Rooted), whose ranks do not
//! all have both buffers.

pub mod allgather;
pub mod allgatherv;
pub mod allreduce;
pub mod alltoall;
pub mod alltoallv;
pub mod broadcast;
mod common;
pub mod devices;
pub mod examples;
pub mod gather;
pub mod hierarchical;
pub mod hosts;
mod meeting;
pub mod reduce;
pub mod reducescatter;
mod rooted;
pub mod scatter;
pub mod select;
pub mod sendrecv;
mod star;
#[cfg(test)]
mod tests;

pub use examples::examples;
pub use rooted::Rooted;
pub use select::{Choice, select};

use crate::builder::BuildError;
use crate::model::{Collective, Plan};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Makes [`Algorithm`] and what is known of each from one list: its variant, its name on the command line and in messages,
/// and its collective.
macro_rules! algorithms {
    (
        one_node { $($(#[$near_doc:meta])* $near:ident = $near_name:literal, $near_collective:ident;)* }
        several_nodes { $($(#[$far_doc:meta])* $far:ident = $far_name:literal, $far_collective:ident;)* }
    ) => {
        /// A built-in algorithm.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Algorithm {
            $($(#[$near_doc])* $near,)*
            $($(#[$far_doc])* $far,)*
        }

        const COUNT: usize = [$($near_name,)* $($far_name,)*].len();

        impl Algorithm {
            /// Every built-in algorithm, in declaration order.
            pub const ALL: [Algorithm; COUNT] = [$(Algorithm::$near,)* $(Algorithm::$far,)*];

            /// The name used on the command line and in messages, e.g. `allreduce_zero_copy`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Algorithm::$near => $near_name,)*
                    $(Algorithm::$far => $far_name,)*
                }
            }

            /// What the algorithm computes.
            pub const fn collective(self) -> Collective {
                match self {
                    $(Algorithm::$near => Collective::$near_collective,)*
                    $(Algorithm::$far => Collective::$far_collective,)*
                }
            }

            /// Whether the algorithm reaches over several nodes, by port channels.
            pub const fn is_hierarchical(self) -> bool {
                match self {
                    $(Algorithm::$near => false,)*
                    $(Algorithm::$far => true,)*
                }
            }
        }
    };
}

algorithms! {
    one_node {
        /// [`allreduce::one_shot_packets`].
        AllReduceOneShotPackets = "allreduce_one_shot_packets", AllReduce;
        /// [`allreduce::two_shot_packets`].
        AllReduceTwoShotPackets = "allreduce_two_shot_packets", AllReduce;
        /// [`allreduce::zero_copy`].
        AllReduceZeroCopy = "allreduce_zero_copy", AllReduce;
        /// [`allreduce::hub`].
        AllReduceHub = "allreduce_hub", AllReduce;
        /// [`allreduce::ring`].
        AllReduceRing = "allreduce_ring", AllReduce;
        /// [`allreduce::switch`].
        AllReduceSwitch = "allreduce_switch", AllReduce;
        /// [`allgather::packets`].
        AllGatherPackets = "allgather_packets", AllGather;
        /// [`allgather::zero_copy`].
        AllGatherZeroCopy = "allgather_zero_copy", AllGather;
        /// [`reducescatter::packets`].
        ReduceScatterPackets = "reducescatter_packets", ReduceScatter;
        /// [`reducescatter::zero_copy`].
        ReduceScatterZeroCopy = "reducescatter_zero_copy", ReduceScatter;
        /// [`alltoall::packets`].
        AllToAllPackets = "alltoall_packets", AllToAll;
        /// [`alltoall::zero_copy`].
        AllToAllZeroCopy = "alltoall_zero_copy", AllToAll;
        /// [`broadcast::packets`].
        BroadcastPackets = "broadcast_packets", Broadcast;
        /// [`broadcast::zero_copy`].
        BroadcastZeroCopy = "broadcast_zero_copy", Broadcast;
        /// [`reduce::packets`].
        ReducePackets = "reduce_packets", Reduce;
        /// [`reduce::zero_copy`].
        ReduceZeroCopy = "reduce_zero_copy", Reduce;
        /// [`sendrecv::packets`].
        SendRecvPackets = "sendrecv_packets", SendRecv;
        /// [`sendrecv::zero_copy`].
        SendRecvZeroCopy = "sendrecv_zero_copy", SendRecv;
    }
    several_nodes {
        /// [`hierarchical::allreduce::packets`].
        AllReduceHierarchicalPackets = "allreduce_hierarchical_packets", AllReduce;
        /// [`hierarchical::allreduce::two_shot_packets`].
        AllReduceHierarchicalTwoShotPackets = "allreduce_hierarchical_two_shot_packets", AllReduce;
        /// [`hierarchical::allreduce::hub`].
        AllReduceHierarchicalHub = "allreduce_hierarchical_hub", AllReduce;
        /// [`hierarchical::allreduce::zero_copy`].
        AllReduceHierarchicalZeroCopy = "allreduce_hierarchical_zero_copy", AllReduce;
        /// [`hierarchical::allgather::packets`].
        AllGatherHierarchicalPackets = "allgather_hierarchical_packets", AllGather;
        /// [`hierarchical::allgather::zero_copy`].
        AllGatherHierarchicalZeroCopy = "allgather_hierarchical_zero_copy", AllGather;
        /// [`hierarchical::reducescatter::packets`].
        ReduceScatterHierarchicalPackets = "reducescatter_hierarchical_packets", ReduceScatter;
        /// [`hierarchical::reducescatter::zero_copy`].
        ReduceScatterHierarchicalZeroCopy = "reducescatter_hierarchical_zero_copy", ReduceScatter;
        /// [`hierarchical::alltoall::packets`].
        AllToAllHierarchicalPackets = "alltoall_hierarchical_packets", AllToAll;
        /// [`hierarchical::alltoall::zero_copy`].
        AllToAllHierarchicalZeroCopy = "alltoall_hierarchical_zero_copy", AllToAll;
        /// [`hierarchical::broadcast::packets`].
        BroadcastHierarchicalPackets = "broadcast_hierarchical_packets", Broadcast;
        /// [`hierarchical::broadcast::zero_copy`].
        BroadcastHierarchicalZeroCopy = "broadcast_hierarchical_zero_copy", Broadcast;
        /// [`hierarchical::reduce::packets`].
        ReduceHierarchicalPackets = "reduce_hierarchical_packets", Reduce;
        /// [`hierarchical::reduce::zero_copy`].
        ReduceHierarchicalZeroCopy = "reduce_hierarchical_zero_copy", Reduce;
        /// [`hierarchical::sendrecv::packets`].
        SendRecvHierarchicalPackets = "sendrecv_hierarchical_packets", SendRecv;
        /// [`hierarchical::sendrecv::zero_copy`].
        SendRecvHierarchicalZeroCopy = "sendrecv_hierarchical_zero_copy", SendRecv;
    }
}

/// What a built-in algorithm is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Number of ranks, at least 1.
    pub ranks: usize,
    /// Number of nodes that the ranks are spread over, at least 1, which must divide the ranks; ranks of a node are
    /// consecutive. Only [hierarchical](Algorithm::is_hierarchical) algorithms reach over several nodes; others ignore
    /// it. Likewise of [`Rooted`].
    pub nodes: usize,
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// The rank that broadcasts, scatters, gathers or receives the reduction; other collectives ignore it.
    pub root: usize,
    /// Thread blocks that share each rank's work, at least 1 (0 counts as 1); hubs, and the packets of an
    /// alltoall over several nodes, use one.
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
    /// As a switch adds, where the ranks' devices have one that does; in rank order elsewhere.
    Hardware,
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
    /// The built-in algorithms of a collective; none for collectives that Antiphon does not know.
    pub fn all_for(collective: &Collective) -> impl Iterator<Item = Algorithm> + use<> {
        let collective = collective.clone();
        Algorithm::ALL.into_iter().filter(move |algorithm| algorithm.collective() == collective)
    }

    /// In which order reductions add; the same on every rank.
    pub const fn sum_order(self) -> SumOrder {
        match self {
            Algorithm::AllReduceRing => SumOrder::Ring,
            Algorithm::AllReduceSwitch => SumOrder::Hardware,
            _ if self.is_hierarchical() => SumOrder::Nodes,
            _ => SumOrder::Ranks,
        }
    }

    /// The plan for this shape. Fails on 0 ranks, on a root that is not a rank, and where nodes matter on a number of them
    /// that does not divide the ranks.
    pub fn plan(self, shape: Shape) -> Result<Plan, BuildError> {
        match self {
            Algorithm::AllReduceOneShotPackets => allreduce::one_shot_packets(shape),
            Algorithm::AllReduceTwoShotPackets => allreduce::two_shot_packets(shape),
            Algorithm::AllReduceZeroCopy => allreduce::zero_copy(shape),
            Algorithm::AllReduceHub => allreduce::hub(shape),
            Algorithm::AllReduceRing => allreduce::ring(shape),
            Algorithm::AllReduceSwitch => allreduce::switch(shape),
            Algorithm::AllGatherPackets => allgather::packets(shape),
            Algorithm::AllGatherZeroCopy => allgather::zero_copy(shape),
            Algorithm::ReduceScatterPackets => reducescatter::packets(shape),
            Algorithm::ReduceScatterZeroCopy => reducescatter::zero_copy(shape),
            Algorithm::AllToAllPackets => alltoall::packets(shape),
            Algorithm::AllToAllZeroCopy => alltoall::zero_copy(shape),
            Algorithm::BroadcastPackets => broadcast::packets(shape),
            Algorithm::BroadcastZeroCopy => broadcast::zero_copy(shape),
            Algorithm::ReducePackets => reduce::packets(shape),
            Algorithm::ReduceZeroCopy => reduce::zero_copy(shape),
            Algorithm::SendRecvPackets => sendrecv::packets(shape),
            Algorithm::SendRecvZeroCopy => sendrecv::zero_copy(shape),
            Algorithm::AllReduceHierarchicalPackets => hierarchical::allreduce::packets(shape),
            Algorithm::AllReduceHierarchicalTwoShotPackets => {
                hierarchical::allreduce::two_shot_packets(shape)
            }
            Algorithm::AllReduceHierarchicalHub => hierarchical::allreduce::hub(shape),
            Algorithm::AllReduceHierarchicalZeroCopy => hierarchical::allreduce::zero_copy(shape),
            Algorithm::AllGatherHierarchicalPackets => hierarchical::allgather::packets(shape),
            Algorithm::AllGatherHierarchicalZeroCopy => hierarchical::allgather::zero_copy(shape),
            Algorithm::ReduceScatterHierarchicalPackets => {
                hierarchical::reducescatter::packets(shape)
            }
            Algorithm::ReduceScatterHierarchicalZeroCopy => {
                hierarchical::reducescatter::zero_copy(shape)
            }
            Algorithm::AllToAllHierarchicalPackets => hierarchical::alltoall::packets(shape),
            Algorithm::AllToAllHierarchicalZeroCopy => hierarchical::alltoall::zero_copy(shape),
            Algorithm::BroadcastHierarchicalPackets => hierarchical::broadcast::packets(shape),
            Algorithm::BroadcastHierarchicalZeroCopy => hierarchical::broadcast::zero_copy(shape),
            Algorithm::ReduceHierarchicalPackets => hierarchical::reduce::packets(shape),
            Algorithm::ReduceHierarchicalZeroCopy => hierarchical::reduce::zero_copy(shape),
            Algorithm::SendRecvHierarchicalPackets => hierarchical::sendrecv::packets(shape),
            Algorithm::SendRecvHierarchicalZeroCopy => hierarchical::sendrecv::zero_copy(shape),
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
