//! The plan under construction: the ranks' tables and the blocks' operation lists.

use super::handles::Chunks;
use super::sync::{LocalAccess, Pending, home};
use super::{Problem, ProblemKind};
use crate::model::{
    Buffer, ChannelTable, ChannelType, ChunkRef, Collective, Gpu, Op, OpKind, Pipeline, RankGroup,
    RefBase, RemoteBuffer, ThreadBlock,
};
use std::panic::Location;

/// Everything that operations change.
#[derive(Debug, Default)]
pub(super) struct State {
    pub ranks: Vec<RankState>,
    pub problems: Vec<Problem>,
}

/// One rank's tables.
#[derive(Debug, Default)]
pub(super) struct RankState {
    pub input_chunks: u64,
    pub output_chunks: u64,
    pub scratch_chunks: u64,
    pub blocks: Vec<BlockState>,
    /// The peer of each memory channel.
    pub peers: Vec<u64>,
    pub switches: Vec<(Buffer, RankGroup)>,
    pub remote_buffers: Vec<RemoteBuffer>,
    pub semaphores: Vec<i64>,
    /// The blocks that meet at each barrier, ascending.
    pub barriers: Vec<Vec<usize>>,
}

/// One block's operations and local tables.
#[derive(Debug, Default)]
pub(super) struct BlockState {
    pub ops: Vec<Op>,
    /// The body being written, while a pipeline is open.
    pub pipeline: Option<Pipeline>,
    pub channels: Vec<u64>,
    pub switches: Vec<u64>,
    pub remote_buffers: Vec<u64>,
    pub pending: Pending,
}

/// What an operation reads or writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// Chunks of some rank.
    Chunks(Chunks),
    /// Chunks of every member of a switch channel, by the rank's channel id.
    Switch { id: u64, buffer: Buffer, index: u64, size: u64 },
}

/// A target and whether it holds packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub target: Target,
    pub packets: bool,
}

impl Operand {
    pub fn raw(chunks: Chunks) -> Self {
        Operand { target: Target::Chunks(chunks), packets: false }
    }

    pub fn packets(chunks: Chunks) -> Self {
        Operand { target: Target::Chunks(chunks), packets: true }
    }

    /// Number of chunks.
    pub fn size(&self) -> u64 {
        match self.target {
            Target::Chunks(chunks) => chunks.size,
            Target::Switch { size, .. } => size,
        }
    }
}

impl State {
    pub fn report(&mut self, location: &'static Location<'static>, kind: ProblemKind) {
        self.problems.push(Problem { kind, location });
    }

    pub fn block(&mut self, rank: usize, block: usize) -> &mut BlockState {
        &mut self.ranks[rank].blocks[block]
    }

    /// The form in which `block` of `rank` names this operand, entered in the tables if it is new there.
    pub fn resolve(&mut self, rank: usize, block: usize, operand: &Operand) -> ChunkRef {
        let chunks = match operand.target {
            Target::Chunks(chunks) => chunks,
            Target::Switch { id, index, size, .. } => {
                let local = position(&mut self.block(rank, block).switches, id);
                return ChunkRef { base: RefBase::Switch(local), index, size };
            }
        };
        let base = if chunks.rank == rank {
            RefBase::Local(chunks.buffer)
        } else {
            let id = self.ranks[rank].remote_buffer(chunks.rank as u64, chunks.buffer);
            RefBase::Remote(position(&mut self.block(rank, block).remote_buffers, id))
        };
        ChunkRef { base, index: chunks.index, size: chunks.size }
    }

    /// What an operation of `rank` does to raw memory of its own rank.
    pub fn local_accesses(
        &self,
        collective: &Collective,
        rank: usize,
        reads: &[Operand],
        writes: &[Operand],
    ) -> Vec<LocalAccess> {
        let sides = reads.iter().map(|o| (o, false)).chain(writes.iter().map(|o| (o, true)));
        sides
            .filter(|(operand, _)| !operand.packets)
            .filter_map(|(operand, write)| {
                let (buffer, range) = match operand.target {
                    Target::Chunks(c) if c.rank == rank => (c.buffer, c.range()),
                    Target::Chunks(_) => return None,
                    Target::Switch { buffer, index, size, .. } => (buffer, index..index + size),
                };
                let count = self.ranks[rank].chunks(buffer);
                let range = home(collective, rank, buffer, count, range);
                Some(LocalAccess { scratch: buffer == Buffer::Scratch, range, write })
            })
            .collect()
    }
}

impl RankState {
    /// Chunks of a buffer, so far.
    pub fn chunks(&self, buffer: Buffer) -> u64 {
        match buffer {
            Buffer::Input => self.input_chunks,
            Buffer::Output => self.output_chunks,
            Buffer::Scratch => self.scratch_chunks,
        }
    }

    fn remote_buffer(&mut self, owner: u64, buffer: Buffer) -> u64 {
        let same = |r: &RemoteBuffer| r.rank == owner && r.buffer == buffer;
        let found = self.remote_buffers.iter().position(same);
        found.unwrap_or_else(|| {
            let access = vec![ChannelType::Memory];
            self.remote_buffers.push(RemoteBuffer { rank: owner, buffer, access });
            self.remote_buffers.len() - 1
        }) as u64
    }

    /// The rank's entry of the finished plan.
    pub fn finish(self, id: usize) -> Gpu {
        let mut channels = Vec::new();
        if !self.peers.is_empty() {
            let connected_to = self.peers;
            let channel_type = ChannelType::Memory;
            channels.push(ChannelTable::Peers { channel_type, connected_to });
        }
        for (buffer, group) in self.switches {
            match channels.last_mut() {
                Some(ChannelTable::Switch { buffer: last, groups }) if *last == buffer => {
                    groups.push(group);
                }
                _ => channels.push(ChannelTable::Switch { buffer, groups: vec![group] }),
            }
        }
        let blocks = self.blocks.into_iter().enumerate();
        Gpu {
            id: id as u64,
            input_chunks: self.input_chunks,
            output_chunks: self.output_chunks,
            scratch_chunks: self.scratch_chunks,
            threadblocks: blocks.map(|(id, block)| block.finish(id)).collect(),
            channels,
            remote_buffers: self.remote_buffers,
            semaphores: self.semaphores,
        }
    }
}

impl BlockState {
    /// Append an operation to the open pipeline, or to the block.
    pub fn push(&mut self, op: Op) {
        match &mut self.pipeline {
            Some(pipeline) => pipeline.ops.push(op),
            None => self.ops.push(op),
        }
    }

    /// Make the block's threads meet.
    pub fn meet(&mut self) {
        self.push(Op::new(OpKind::Nop));
        self.pending.clear();
    }

    fn finish(self, id: usize) -> ThreadBlock {
        let tables = [(ChannelType::Memory, self.channels), (ChannelType::Switch, self.switches)];
        let refs = [(ChannelType::Memory, self.remote_buffers)];
        let used = |(_, ids): &(ChannelType, Vec<u64>)| !ids.is_empty();
        ThreadBlock {
            id: id as u64,
            ops: self.ops,
            channels: tables.into_iter().filter(used).collect(),
            remote_buffer_refs: refs.into_iter().filter(used).collect(),
        }
    }
}

/// The position of `id` in `list`, which grows if it is not there.
pub(super) fn position(list: &mut Vec<u64>, id: u64) -> u64 {
    let found = list.iter().position(|&other| other == id);
    found.unwrap_or_else(|| {
        list.push(id);
        list.len() - 1
    }) as u64
}
