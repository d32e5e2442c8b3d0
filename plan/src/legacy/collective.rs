//! The collectives of this stage: their buffers, which of them are the same memory, and what must be where at the end.

use super::Misuse;
use crate::model::{self, Buffer};

/// What a collective computes, without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Every rank ends with the reduction of all inputs. The factor is the *total* number of chunks.
    AllReduce,
    /// Every rank ends with all inputs, one after another.
    AllGather,
    /// Rank r ends with the r-th part of the reduction of all inputs.
    ReduceScatter,
    /// Part r of rank s's input becomes part s of rank r's output.
    AllToAll,
    /// Two ranks exchange their inputs.
    SendRecv,
    /// Every rank ends with the input of this one.
    Broadcast {
        /// The rank.
        root: u64,
    },
}

/// A collective.
///
/// The groups of chunks that programs of this stage could ask for have no place here: plans divide a buffer evenly
/// without them, and where sizes divide the result is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Collective {
    /// What it computes.
    pub kind: Kind,
    /// Number of ranks.
    pub ranks: u64,
    /// Chunks: of the whole buffer for [`Kind::AllReduce`], [`Kind::SendRecv`] and [`Kind::Broadcast`], of one rank's
    /// part of it for the others.
    pub factor: u64,
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// Ranks that share a node, which group operations stay within; all of them if not given.
    pub ranks_per_node: Option<u64>,
}

/// A chunk of a rank's input, before anything has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The rank.
    pub rank: u64,
    /// Its chunk.
    pub index: u64,
}

impl Collective {
    /// A collective whose ranks share a node.
    pub fn new(kind: Kind, ranks: u64, factor: u64, in_place: bool) -> Self {
        Collective { kind, ranks, factor, in_place, ranks_per_node: None }
    }

    pub(super) fn validate(&self) -> Result<(), Misuse> {
        let &Collective { kind, ranks, factor, .. } = self;
        if ranks == 0 {
            return Err(Misuse::Recording(crate::dsl::Misuse::NoRanks));
        }
        match kind {
            Kind::SendRecv if ranks != 2 => return Err(Misuse::SendRecv { ranks }),
            Kind::Broadcast { root } if root >= ranks => return Err(Misuse::Root { root, ranks }),
            _ => {}
        }
        let chunks = if self.divided() { factor.checked_mul(ranks) } else { Some(factor) };
        match chunks {
            Some(1..=super::MOST_CHUNKS) => Ok(()),
            _ => Err(Misuse::Factor { factor, ranks }),
        }
    }

    /// Whether one of its buffers is divided among the ranks.
    fn divided(&self) -> bool {
        matches!(self.kind, Kind::AllGather | Kind::ReduceScatter | Kind::AllToAll)
    }

    /// What the plan computes.
    pub(super) fn model(&self) -> model::Collective {
        match self.kind {
            Kind::AllReduce => model::Collective::AllReduce,
            Kind::AllGather => model::Collective::AllGather,
            Kind::ReduceScatter => model::Collective::ReduceScatter,
            Kind::AllToAll => model::Collective::AllToAll,
            Kind::SendRecv => model::Collective::SendRecv,
            Kind::Broadcast { .. } => model::Collective::Broadcast,
        }
    }

    /// Chunks of the input.
    pub fn input_chunks(&self) -> u64 {
        match self.kind {
            Kind::ReduceScatter | Kind::AllToAll => self.factor * self.ranks,
            _ => self.factor,
        }
    }

    /// Chunks of the output.
    pub fn output_chunks(&self) -> u64 {
        match self.kind {
            Kind::AllGather | Kind::AllToAll => self.factor * self.ranks,
            _ => self.factor,
        }
    }

    /// Chunks of the output that the plan states: none where the program only ever names the input.
    pub(super) fn stated_output_chunks(&self) -> u64 {
        if self.in_place && self.kind != Kind::AllGather { 0 } else { self.output_chunks() }
    }

    /// Chunks of each part of a buffer, where the collective divides it among ranks.
    pub(super) fn part(&self, buffer: Buffer) -> Option<u64> {
        match (self.kind, buffer) {
            (Kind::AllGather, Buffer::Output)
            | (Kind::ReduceScatter, Buffer::Input)
            | (Kind::AllToAll, Buffer::Input | Buffer::Output) => Some(self.factor),
            _ => None,
        }
    }

    /// The name of a chunk in place: of two names of the same memory, the one that plans use.
    pub(super) fn alias(&self, rank: u64, buffer: Buffer, index: u64) -> (Buffer, u64) {
        let shift = rank * self.factor;
        match (self.in_place, self.kind, buffer) {
            (false, ..) | (.., Buffer::Scratch) => (buffer, index),
            (_, Kind::AllGather, Buffer::Input) => (Buffer::Output, index.saturating_add(shift)),
            (_, Kind::AllGather, _) => (buffer, index),
            (_, Kind::ReduceScatter, Buffer::Output) => {
                (Buffer::Input, index.saturating_add(shift))
            }
            (..) => (Buffer::Input, index),
        }
    }

    /// Whether the author may name a chunk of the input or output that no operation has written.
    pub(super) fn nameable(&self, rank: u64, buffer: Buffer) -> bool {
        match (self.kind, buffer) {
            (Kind::Broadcast { root }, Buffer::Input) => self.in_place || rank == root,
            (_, Buffer::Input) => true,
            (kind, Buffer::Output) => kind == Kind::AllGather,
            (_, Buffer::Scratch) => true,
        }
    }

    /// Every chunk of a rank's output by its name in the program, with what must be in it at the end.
    pub(super) fn wanted(&self, rank: u64) -> impl Iterator<Item = ((Buffer, u64), Vec<Origin>)> {
        let &Collective { kind, ranks, factor, .. } = self;
        (0..self.output_chunks()).map(move |index| {
            let sum = |index| (0..ranks).map(|rank| Origin { rank, index }).collect();
            let (part, offset) = (index / factor, index % factor);
            let wanted = match kind {
                Kind::AllReduce => sum(index),
                Kind::ReduceScatter => sum(rank * factor + index),
                Kind::AllGather => vec![Origin { rank: part, index: offset }],
                Kind::AllToAll => vec![Origin { rank: part, index: rank * factor + offset }],
                Kind::SendRecv => vec![Origin { rank: 1 - rank, index }],
                Kind::Broadcast { root } => vec![Origin { rank: root, index }],
            };
            (self.alias(rank, Buffer::Output, index), wanted)
        })
    }

    /// Where a chunk of an input has to go: the rank, none for all of them, and the chunk of its output.
    pub fn destination(&self, origin: Origin) -> (Option<u64>, u64) {
        let Origin { rank, index } = origin;
        let (part, offset) = (index / self.factor, index % self.factor);
        match self.kind {
            Kind::AllGather => (None, rank * self.factor + index),
            Kind::ReduceScatter => (Some(part), offset),
            Kind::AllToAll => (Some(part), rank * self.factor + offset),
            Kind::AllReduce | Kind::SendRecv | Kind::Broadcast { .. } => (None, index),
        }
    }
}
