//! Operations as they are recorded.

use super::chunk::{Buffer, Ref};
use crate::dsl::Transfer;
use crate::model::{self, ChannelType, OpKind};
use crate::passes::pairing::SourceLine;

/// One recorded call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The rank that runs it.
    pub rank: u64,
    /// The thread block that runs it; of a barrier, the first.
    pub block: u64,
    /// What it does.
    pub what: What,
    /// The line of the program.
    pub line: Option<SourceLine>,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Moves chunks to a peer, or from it for [`Transfer::Get`].
    Transfer { transfer: Transfer, kind: ChannelType, from: Ref, to: Ref },
    /// Tells the owner of `to`. Only the buffer of `to` matters.
    Signal { kind: ChannelType, from: Ref, to: Ref },
    /// Waits until what was sent to the owner of `to` has left.
    Flush { from: Ref, to: Ref },
    /// Waits for the owner of `from`. Only the buffer of `from` matters.
    Wait { kind: ChannelType, from: Ref, to: Ref },
    /// Copies, packs or unpacks within the rank.
    Copy { op: OpKind, from: Ref, to: Ref },
    /// Adds `other` of the same rank to `to`; `other` may be packets.
    Reduce { to: Ref, other: Ref, packets: bool },
    /// Adds `other` of a peer to `to`.
    ReadReduce { to: Ref, other: Ref },
    /// Reduces the chunks with the name of `to` on these ranks, the own among them, into `to`.
    GroupLoadReduce { to: Ref, ranks: Vec<u64> },
    /// Stores `from` in the chunks of its name on these ranks, the own among them.
    GroupStore { from: Ref, ranks: Vec<u64> },
    /// Makes these blocks meet.
    Barrier { blocks: Vec<u64> },
}

/// What a channel of this stage belongs to, seen from the rank that uses it: a channel is for one peer, one pair of
/// buffers (of the rank that sends, of the one that receives) and one thread block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub peer: u64,
    pub kind: ChannelType,
    pub source: model::Buffer,
    pub destination: model::Buffer,
}

impl Operation {
    /// The channel it uses, if any.
    pub fn key(&self) -> Option<Key> {
        let key = |peer, kind, source: Buffer, destination: Buffer| {
            Some(Key { peer, kind, source: source.model(), destination: destination.model() })
        };
        match &self.what {
            What::Transfer { transfer: Transfer::Get, kind, from, to } => {
                key(from.rank, *kind, to.buffer, from.buffer)
            }
            What::Transfer { kind, from, to, .. } | What::Signal { kind, from, to } => {
                key(to.rank, *kind, from.buffer, to.buffer)
            }
            What::Flush { from, to } => key(to.rank, ChannelType::Port, from.buffer, to.buffer),
            What::Wait { kind, from, to } => key(from.rank, *kind, from.buffer, to.buffer),
            What::ReadReduce { to, other } => {
                key(other.rank, ChannelType::Memory, to.buffer, other.buffer)
            }
            What::Copy { .. }
            | What::Reduce { .. }
            | What::GroupLoadReduce { .. }
            | What::GroupStore { .. }
            | What::Barrier { .. } => None,
        }
    }

    /// Whether it signals or waits.
    pub fn synchronises(&self) -> bool {
        matches!(self.what, What::Signal { .. } | What::Wait { .. } | What::Flush { .. })
            || self.signals()
    }

    /// Whether it signals.
    pub fn signals(&self) -> bool {
        use Transfer::{PutWithSignal, PutWithSignalAndFlush};
        match self.what {
            What::Signal { .. } => true,
            What::Transfer { transfer, .. } => {
                matches!(transfer, PutWithSignal | PutWithSignalAndFlush)
            }
            _ => false,
        }
    }

    /// The blocks that run it.
    pub fn blocks(&self) -> &[u64] {
        match &self.what {
            What::Barrier { blocks } => blocks,
            _ => std::slice::from_ref(&self.block),
        }
    }

    /// The chunks it reads and those it writes, of all ranks; empty for what moves nothing.
    pub fn accesses(&self) -> (Vec<Ref>, Vec<Ref>) {
        let on = |chunk: &Ref, ranks: &[u64]| {
            ranks.iter().map(|&rank| Ref { rank, ..*chunk }).collect::<Vec<_>>()
        };
        match &self.what {
            What::Transfer { from, to, .. } | What::Copy { from, to, .. } => {
                (vec![*from], vec![*to])
            }
            What::Reduce { to, other, .. } | What::ReadReduce { to, other } => {
                (vec![*to, *other], vec![*to])
            }
            What::GroupLoadReduce { to, ranks } => (on(to, ranks), vec![*to]),
            What::GroupStore { from, ranks } => (vec![*from], on(from, ranks)),
            What::Signal { .. } | What::Flush { .. } | What::Wait { .. } | What::Barrier { .. } => {
                (Vec::new(), Vec::new())
            }
        }
    }

    /// The packets it waits for.
    pub fn packets_read(&self) -> Option<Ref> {
        match self.what {
            What::Transfer { transfer: Transfer::ReadPutPackets, from, .. }
            | What::Transfer {
                transfer: Transfer::PutPackets,
                kind: ChannelType::Port,
                from,
                ..
            }
            | What::Copy { op: OpKind::UnpackPackets, from, .. }
            | What::Reduce { other: from, packets: true, .. } => Some(from),
            _ => None,
        }
    }

    /// Whether what it writes is packets.
    pub fn writes_packets(&self) -> bool {
        match self.what {
            What::Transfer { transfer, .. } => {
                matches!(transfer, Transfer::PutPackets | Transfer::ReadPutPackets)
            }
            What::Copy { op, .. } => op == OpKind::CopyPackets,
            _ => false,
        }
    }
}
