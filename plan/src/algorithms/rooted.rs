//! Gathers and scatters. Beside [`Algorithm`](super::Algorithm), since their ranks do not all have both buffers:
//! a plan of these touches none of a buffer in which a rank has no part, so that a call may come without it.

use super::{Shape, gather, hierarchical, scatter};
use crate::builder::BuildError;
use crate::model::{Collective, Plan};
use std::fmt;

/// A built-in gather or scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rooted {
    /// [`gather::packets`].
    GatherPackets,
    /// [`gather::zero_copy`].
    GatherZeroCopy,
    /// [`scatter::packets`].
    ScatterPackets,
    /// [`scatter::zero_copy`].
    ScatterZeroCopy,
    /// [`hierarchical::gather::packets`].
    GatherHierarchicalPackets,
    /// [`hierarchical::gather::zero_copy`].
    GatherHierarchicalZeroCopy,
    /// [`hierarchical::scatter::packets`].
    ScatterHierarchicalPackets,
    /// [`hierarchical::scatter::zero_copy`].
    ScatterHierarchicalZeroCopy,
}

impl Rooted {
    /// All of them, those of one node first.
    pub const ALL: [Rooted; 8] = [
        Rooted::GatherPackets,
        Rooted::GatherZeroCopy,
        Rooted::ScatterPackets,
        Rooted::ScatterZeroCopy,
        Rooted::GatherHierarchicalPackets,
        Rooted::GatherHierarchicalZeroCopy,
        Rooted::ScatterHierarchicalPackets,
        Rooted::ScatterHierarchicalZeroCopy,
    ];

    /// Those of a collective, over one node and over several.
    pub fn all_for(collective: &Collective) -> impl Iterator<Item = Rooted> + use<> {
        let collective = collective.clone();
        Rooted::ALL.into_iter().filter(move |one| one.collective() == collective)
    }

    /// The name used on the command line and in messages, e.g. `gather_packets`.
    pub const fn name(self) -> &'static str {
        match self {
            Rooted::GatherPackets => "gather_packets",
            Rooted::GatherZeroCopy => "gather_zero_copy",
            Rooted::ScatterPackets => "scatter_packets",
            Rooted::ScatterZeroCopy => "scatter_zero_copy",
            Rooted::GatherHierarchicalPackets => "gather_hierarchical_packets",
            Rooted::GatherHierarchicalZeroCopy => "gather_hierarchical_zero_copy",
            Rooted::ScatterHierarchicalPackets => "scatter_hierarchical_packets",
            Rooted::ScatterHierarchicalZeroCopy => "scatter_hierarchical_zero_copy",
        }
    }

    /// What it computes.
    pub const fn collective(self) -> Collective {
        match self {
            Rooted::GatherPackets
            | Rooted::GatherZeroCopy
            | Rooted::GatherHierarchicalPackets
            | Rooted::GatherHierarchicalZeroCopy => Collective::Gather,
            Rooted::ScatterPackets
            | Rooted::ScatterZeroCopy
            | Rooted::ScatterHierarchicalPackets
            | Rooted::ScatterHierarchicalZeroCopy => Collective::Scatter,
        }
    }

    /// Whether it reaches over several nodes, by port channels.
    pub const fn is_hierarchical(self) -> bool {
        match self {
            Rooted::GatherPackets
            | Rooted::GatherZeroCopy
            | Rooted::ScatterPackets
            | Rooted::ScatterZeroCopy => false,
            Rooted::GatherHierarchicalPackets
            | Rooted::GatherHierarchicalZeroCopy
            | Rooted::ScatterHierarchicalPackets
            | Rooted::ScatterHierarchicalZeroCopy => true,
        }
    }

    /// The plan for this shape, which is right in place, too, whatever the shape says of that.
    ///
    /// # Errors
    /// On 0 ranks, on a root that is not a rank, and where nodes matter on a number of them that does not divide the ranks.
    pub fn plan(self, shape: Shape) -> Result<Plan, BuildError> {
        match self {
            Rooted::GatherPackets => gather::packets(shape),
            Rooted::GatherZeroCopy => gather::zero_copy(shape),
            Rooted::ScatterPackets => scatter::packets(shape),
            Rooted::ScatterZeroCopy => scatter::zero_copy(shape),
            Rooted::GatherHierarchicalPackets => hierarchical::gather::packets(shape),
            Rooted::GatherHierarchicalZeroCopy => hierarchical::gather::zero_copy(shape),
            Rooted::ScatterHierarchicalPackets => hierarchical::scatter::packets(shape),
            Rooted::ScatterHierarchicalZeroCopy => hierarchical::scatter::zero_copy(shape),
        }
    }
}

impl fmt::Display for Rooted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
