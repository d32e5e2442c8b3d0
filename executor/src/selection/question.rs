//! What a call asks for, as selection sees it.

use super::{Spread, Wish, combined, reproducible};
use antiphon_plan::model::Collective;
use antiphon_plan::program::CallSizes;
use antiphon_types::{DataType, ReduceOp};
use std::fmt;

/// A call, as far as it matters for the choice of what serves it. All ranks of a call ask the same question, except for
/// [`in_place`](Self::in_place), which may differ between the ranks of an allreduce, allgather or reducescatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// The collective.
    pub collective: &'a Collective,
    /// Where the ranks are.
    pub spread: Spread,
    /// Bytes, as [`Wish::bytes`] counts them.
    pub bytes: u64,
    /// Element type.
    pub dtype: DataType,
    /// The reduction, of collectives that reduce.
    pub op: Option<ReduceOp>,
    /// Whether input and output are the same memory, by the collective's convention. For collectives with a root it means
    /// nothing, since each rank may do as it likes.
    pub in_place: bool,
    /// The rank that has what all get, or gets what all have; collectives without one ignore it.
    pub root: u32,
    /// Whether every rank's input is multiplied by a factor of its own first.
    pub premultiplied: bool,
    /// Whether sums add in the one order of reproducible calls.
    pub reproducible: bool,
    /// Tags that registered plans, installed plans and registered code must have to be considered.
    pub tags: &'a [String],
}

impl<'a> Question<'a> {
    /// A call out of place, without a root and tags.
    pub fn new(collective: &'a Collective, spread: Spread, bytes: u64, dtype: DataType) -> Self {
        let op = reduces(collective).then_some(ReduceOp::Sum);
        Question {
            collective,
            spread,
            bytes,
            dtype,
            op,
            in_place: false,
            root: 0,
            premultiplied: false,
            reproducible: false,
            tags: &[],
        }
    }

    /// The part of the question that the built-in choice depends on.
    pub fn wish(&self) -> Wish<'a> {
        let Question { collective, bytes, in_place, root, .. } = *self;
        Wish { collective, bytes, in_place, root }
    }

    /// Where the ranks are, as the built-in choice sees it: without a switch where that does not combine such values, or
    /// where sums keep one order.
    pub fn built_in_spread(&self) -> Spread {
        let combined = self.op.is_none_or(|op| combined(op, self.dtype));
        if combined && !reproducible::demands(self) {
            return self.spread;
        }
        Spread { devices: self.spread.devices.without_multicast(), ..self.spread }
    }

    /// Bytes of input and output; `None` where every call brings its own.
    pub fn sizes(&self) -> Option<CallSizes> {
        let block = self.bytes / u64::from(self.spread.ranks.max(1));
        if brings_sizes(self.collective) {
            return None;
        }
        let (input, output) = match self.collective {
            Collective::AllGather | Collective::Gather => (block, self.bytes),
            Collective::ReduceScatter | Collective::Scatter => (self.bytes, block),
            _ => (self.bytes, self.bytes),
        };
        Some(CallSizes { input, output, element: self.dtype.size() as u64, strict: false })
    }

    /// What a plan of this collective is asked that may serve the call: the blocks of a gather or scatter move as an alltoallv's
    /// do, too.
    pub(crate) fn of_plan(&self, of: &Collective) -> Question<'a> {
        match (self.collective, of) {
            (Collective::Gather | Collective::Scatter, Collective::AllToAllV) => {
                let collective = &Collective::AllToAllV;
                Question { collective, bytes: 0, root: 0, in_place: false, ..*self }
            }
            _ => *self,
        }
    }

    /// Ranks on each node.
    pub fn ranks_per_node(&self) -> u32 {
        self.spread.per_node()
    }
}

impl fmt::Display for Question<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { ranks, nodes, .. } = self.spread;
        let name = self.collective.name();
        write!(f, "{name} of {} bytes of {}", self.bytes, self.dtype.name())?;
        if let Some(op) = self.op {
            write!(f, " ({})", op.name())?;
        }
        write!(f, " on {ranks} ranks")?;
        if nodes > 1 {
            write!(f, " of {nodes} nodes")?;
        }
        if self.in_place && !self.collective.has_root() {
            f.write_str(", in place")?;
        }
        if self.collective.has_root() {
            write!(f, ", root {}", self.root)?;
        }
        if self.premultiplied {
            f.write_str(", premultiplied")?;
        }
        if self.reproducible {
            f.write_str(", reproducible")?;
        }
        if !self.tags.is_empty() {
            write!(f, ", tagged {}", self.tags.join(", "))?;
        }
        Ok(())
    }
}

/// Whether a collective combines values.
pub(crate) fn reduces(collective: &Collective) -> bool {
    matches!(collective, Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce)
}

/// Whether the blocks of a collective have lengths of their own, which come with each call.
pub(crate) fn brings_sizes(collective: &Collective) -> bool {
    matches!(collective, Collective::AllToAllV | Collective::AllGatherV)
}
