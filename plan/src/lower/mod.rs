//! Lowering: from a checked plan to a [`Layout`], and from a layout and the sizes of a call to a
//! [`Program`](crate::program::Program).
//!
//! - `layout` resolves names: block-local channel and buffer ids, pairs, barriers, operations to instructions;
//! - `blocks` does so for the references of plans with runtime sizes;
//! - `ports` does so for transfers that proxies make;
//! - `order` strengthens relaxed signals and waits that data movement relies on;
//! - `even` tells whether moves suit all sizes that suit the buffers;
//! - `sizes` is the chunk arithmetic, `ranges` applies it to every move of a rank;
//! - `fingerprint` is the content hash that ranks compare before they run together.

mod blocks;
mod error;
mod even;
mod fingerprint;
mod layout;
mod order;
mod ports;
mod ranges;
mod sizes;
mod tables;

#[cfg(test)]
mod tests;

pub use error::{LowerError, Site};
pub(crate) use layout::site_of;
pub(crate) use ranges::slice_start;
pub(crate) use sizes::{message_side, ties};

use crate::model::{ChannelType, Plan};
use crate::program::{CallSizes, Layout, Span};
use crate::schedule::Case;

/// What the second step needs to know of the plan's chunk references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) rules: sizes::SizeRules,
    pub(crate) ranks: Vec<RankGeometry>,
    /// Ranks that may refuse sizes that suit all buffers, ascending.
    particular: Vec<u32>,
}

/// The chunk references of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RankGeometry {
    /// By the move's `index`.
    pub(crate) moves: Vec<MoveGeometry>,
    /// The chunks of each access, by its position in `RankLayout::accesses`.
    chunks: Vec<ChunkRange>,
    /// The first chunk of each access again, by itself.
    pub(crate) first: Vec<u64>,
    /// Positions inside moves where some reference meets the end of a block, in chunks from the move's start.
    cuts: Vec<u64>,
    /// By the loop's `index`.
    pub(crate) loops: Vec<LoopGeometry>,
}

/// What one move covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MoveGeometry {
    /// Sources, then destinations.
    pub(crate) accesses: Span,
    /// Chunks.
    pub(crate) size: u64,
    /// This block's slice of `parts` equal ones.
    pub(crate) part: u64,
    pub(crate) parts: u64,
    cuts: Span,
    /// Whether some access is packets.
    pub(crate) packets: bool,
    /// The pipeline it is in.
    pub(crate) in_loop: Option<u32>,
    /// Its position in `RankLayout::instructions`.
    pub(crate) instruction: u32,
}

/// The chunks of one access, split into whole blocks and the rest so that the second step need not divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkRange {
    /// Position in the call's table of slots.
    slot: u32,
    /// Whether this is an input or an output, whose chunks may be clipped.
    clipped: bool,
    start: sizes::Split,
    end: sizes::Split,
}

/// What one pipeline covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoopGeometry {
    pub(crate) unit: u64,
    pub(crate) chunks: u64,
    /// Whether its body moves packets.
    pub(crate) packets: bool,
    /// Its position in `RankLayout::instructions`.
    pub(crate) instruction: u32,
}

impl Layout {
    /// Resolves everything in `plan` that does not depend on sizes: the first step of lowering.
    ///
    /// # Errors
    /// [`LowerError::Malformed`] or [`LowerError::Tables`] if the plan contradicts itself, which `check` would have
    /// found.
    pub fn new(plan: &Plan) -> Result<Layout, LowerError> {
        let ranks = layout::lower_ranks(plan)?;
        let packets = ranks.iter().flat_map(|(_, geometry)| &geometry.moves).any(|m| m.packets);
        let mut rules = sizes::SizeRules::new(plan, packets);
        let (layouts, mut geometries): (Vec<_>, Vec<_>) = ranks.into_iter().unzip();
        layout::place_chunks(plan, &layouts, &mut geometries, &mut rules)?;
        let ranks = (0u32..).zip(&geometries);
        let particular = ranks.filter(|(_, own)| own.is_particular(&rules)).map(|(rank, _)| rank);
        let particular = particular.collect();
        Ok(Layout {
            name: plan.name.clone(),
            fingerprint: fingerprint::fingerprint(plan),
            collective: plan.collective.clone(),
            ranks: layouts,
            alignment: plan.buffer_alignment,
            packets,
            double_scratch: plan.use_double_scratch_buffer
                || packets
                || plan.protocol == crate::model::Protocol::LL,
            in_place: plan.in_place,
            runtime_sizes: plan.runtime_sizes,
            port: first_port(plan),
            geometry: Geometry { rules, ranks: geometries, particular },
        })
    }

    /// Whether a rank's input and output of these sizes, of which the output begins so many bytes behind the input (modulo
    /// 2^64), lie as those of calls in place do, which is what is proven of such calls.
    pub fn lies_in_place(&self, rank: u32, sizes: CallSizes, behind: u64) -> bool {
        let places = Case { sizes, in_place: true, launches: 1 }.places(rank);
        behind == places.output.wrapping_sub(places.input)
            && self.geometry.rules.keep_chunks(&self.collective, rank, sizes)
    }
}

/// The plan's first operation over a port channel, if there is one.
fn first_port(plan: &Plan) -> Option<Site> {
    for (rank, gpu) in (0u32..).zip(&plan.gpus) {
        for (tb, block) in (0u32..).zip(&gpu.threadblocks) {
            for (position, op) in (0u32..).zip(&block.ops) {
                let inner = op.pipeline.iter().flat_map(|pipeline| (0u32..).zip(&pipeline.ops));
                let all = std::iter::once((None, op)).chain(inner.map(|(at, op)| (Some(at), op)));
                for (inner, op) in all {
                    if op.channel_type == ChannelType::Port {
                        return Some(Site { rank, tb, op: position, inner, kind: op.kind });
                    }
                }
            }
        }
    }
    None
}
