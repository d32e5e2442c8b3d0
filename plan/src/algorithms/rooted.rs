//! Gathers and scatters of one node. Beside [`Algorithm`](super::Algorithm), since their ranks do not all have both buffers:
//! a plan of these touches none of a buffer in which a rank has no part, so that a call may come without it.

use super::{Shape, gather, scatter};
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
}

impl Rooted {
    /// All of them.
    pub const ALL: [Rooted; 4] = [
        Rooted::GatherPackets,
        Rooted::GatherZeroCopy,
        Rooted::ScatterPackets,
        Rooted::ScatterZeroCopy,
    ];

    /// Those of a collective.
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
        }
    }

    /// What it computes.
    pub const fn collective(self) -> Collective {
        match self {
            Rooted::GatherPackets | Rooted::GatherZeroCopy => Collective::Gather,
            Rooted::ScatterPackets | Rooted::ScatterZeroCopy => Collective::Scatter,
        }
    }

    /// The plan of so many ranks, whose every block of data `blocks` thread blocks (at least 1) share.
    ///
    /// # Errors
    /// On 0 ranks, and on a root that is not a rank.
    pub fn plan(self, ranks: usize, root: usize, blocks: usize) -> Result<Plan, BuildError> {
        let shape = Shape { root, blocks, ..Shape::new(ranks) };
        match self {
            Rooted::GatherPackets => gather::packets(shape),
            Rooted::GatherZeroCopy => gather::zero_copy(shape),
            Rooted::ScatterPackets => scatter::packets(shape),
            Rooted::ScatterZeroCopy => scatter::zero_copy(shape),
        }
    }
}

impl fmt::Display for Rooted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
