//! One rank's tables while its program is written: blocks, channels, buffers of peers, semaphores, barriers.

use super::steps::Steps;
use crate::model::{
    Buffer, ChannelTable, ChannelType, Gpu, Op, OpKind, RankGroup, RemoteBuffer, ThreadBlock,
};
use crate::passes::Step;
use std::collections::HashMap;

/// One rank of a program.
#[derive(Debug, Default)]
pub struct RankTables {
    pub input_chunks: u64,
    pub output_chunks: u64,
    pub scratch_chunks: u64,
    pub blocks: Vec<BlockTables>,
    /// The peer of each memory channel, by id.
    pub memory: Vec<u64>,
    /// The peer of each port channel, by id.
    pub port: Vec<u64>,
    /// Buffer and members of each switch channel, by id.
    pub switches: Vec<(Buffer, Vec<u64>)>,
    pub remote_buffers: Vec<RemoteBuffer>,
    remote_ids: HashMap<(u64, Buffer), u64>,
    pub semaphores: Vec<i64>,
    /// Barrier numbers by the blocks that meet, in the order they were first named.
    barriers: HashMap<Vec<u64>, u64>,
    barrier_count: u64,
    /// Numbers of barriers at which all blocks meet that the finished program uses.
    pub everyone: Vec<u64>,
}

/// One block of a rank.
#[derive(Debug, Default)]
pub struct BlockTables {
    pub steps: Steps,
    pub memory: LocalIds,
    pub port: LocalIds,
    pub switch: LocalIds,
    pub remote_memory: LocalIds,
    pub remote_port: LocalIds,
}

/// A block's part of barrier `id` of `blocks` blocks.
pub fn barrier(id: u64, blocks: u64) -> Step {
    let mut op = Op::new(OpKind::Barrier);
    op.barrier_id = Some(id);
    op.num_threadblocks = Some(blocks);
    Step::new(op)
}

/// Block-local ids of the rank's things, in the order of first use.
#[derive(Clone, Debug, Default)]
pub struct LocalIds {
    ids: Vec<u64>,
    /// Local id + 1 by the rank's id; 0 for none.
    local: Vec<u32>,
}

impl LocalIds {
    /// The local id of the rank's thing `id`.
    pub fn local(&mut self, id: u64) -> u64 {
        let index = id as usize;
        if self.local.len() <= index {
            self.local.resize(index + 1, 0);
        }
        if self.local[index] == 0 {
            self.ids.push(id);
            self.local[index] = self.ids.len() as u32;
        }
        u64::from(self.local[index]) - 1
    }

    /// The rank's ids, by local id.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }
}

impl BlockTables {
    /// The local ids of channels of this type.
    pub fn channels(&mut self, channel_type: ChannelType) -> &mut LocalIds {
        match channel_type {
            ChannelType::Port => &mut self.port,
            ChannelType::Switch => &mut self.switch,
            ChannelType::Memory | ChannelType::None => &mut self.memory,
        }
    }

    /// The rank's ids of peers' buffers that are accessed in this way, by local id.
    pub fn remote_ids(&self, access: ChannelType) -> &[u64] {
        match access {
            ChannelType::Port => self.remote_port.ids(),
            _ => self.remote_memory.ids(),
        }
    }

    /// The local ids of peers' buffers that are accessed in this way.
    pub fn remote_buffers(&mut self, access: ChannelType) -> &mut LocalIds {
        match access {
            ChannelType::Port => &mut self.remote_port,
            _ => &mut self.remote_memory,
        }
    }
}

impl RankTables {
    /// A rank whose buffers have so many chunks.
    pub fn new(input_chunks: u64, output_chunks: u64) -> Self {
        RankTables { input_chunks, output_chunks, ..RankTables::default() }
    }

    /// Chunks of a buffer, so far.
    pub fn chunks(&self, buffer: Buffer) -> u64 {
        match buffer {
            Buffer::Input => self.input_chunks,
            Buffer::Output => self.output_chunks,
            Buffer::Scratch => self.scratch_chunks,
        }
    }

    /// The block with this number; the rank gets all blocks up to it.
    pub fn block(&mut self, block: u64) -> &mut BlockTables {
        let index = block as usize;
        if self.blocks.len() <= index {
            // A block that comes later meets the others at its beginning.
            let everyone = &self.everyone;
            self.blocks.resize_with(index + 1, || BlockTables {
                steps: Steps::beginning(everyone.iter().map(|&id| barrier(id, 0))),
                ..BlockTables::default()
            });
        }
        &mut self.blocks[index]
    }

    /// A new barrier at which all blocks meet that the finished program uses.
    pub fn barrier_of_everyone(&mut self) -> u64 {
        let id = self.new_barrier();
        self.everyone.push(id);
        id
    }

    /// The id of a peer's buffer, which is accessed in this way too from now on.
    pub fn remote_buffer(&mut self, owner: u64, buffer: Buffer, access: ChannelType) -> u64 {
        let buffers = &mut self.remote_buffers;
        let id = *self.remote_ids.entry((owner, buffer)).or_insert_with(|| {
            buffers.push(RemoteBuffer { rank: owner, buffer, access: Vec::new() });
            buffers.len() as u64 - 1
        });
        let known = &mut buffers[id as usize].access;
        if !known.contains(&access) {
            known.push(access);
            known.sort_unstable();
        }
        id
    }

    /// The number of the barrier of these blocks, named in this order.
    pub fn barrier(&mut self, blocks: &[u64]) -> u64 {
        if let Some(&id) = self.barriers.get(blocks) {
            return id;
        }
        let id = self.new_barrier();
        self.barriers.insert(blocks.to_vec(), id);
        id
    }

    fn new_barrier(&mut self) -> u64 {
        self.barrier_count += 1;
        self.barrier_count - 1
    }

    /// The rank's entry of the plan, of blocks whose operations are finished.
    pub fn finish(&self, id: u64, blocks: Vec<Vec<Op>>) -> Gpu {
        let mut channels = Vec::new();
        for (channel_type, peers) in
            [(ChannelType::Memory, &self.memory), (ChannelType::Port, &self.port)]
        {
            if !peers.is_empty() {
                channels.push(ChannelTable::Peers { channel_type, connected_to: peers.clone() });
            }
        }
        for (buffer, ranks) in &self.switches {
            let group = RankGroup { size: ranks.len() as u64, ranks: ranks.clone() };
            channels.push(ChannelTable::Switch { buffer: *buffer, groups: vec![group] });
        }
        let blocks = self.blocks.iter().zip(blocks).zip(0..);
        Gpu {
            id,
            input_chunks: self.input_chunks,
            output_chunks: self.output_chunks,
            scratch_chunks: self.scratch_chunks,
            threadblocks: blocks.map(|((block, ops), id)| block.finish(id, ops)).collect(),
            channels,
            remote_buffers: self.remote_buffers.clone(),
            semaphores: self.semaphores.clone(),
        }
    }
}

impl BlockTables {
    fn finish(&self, id: u64, ops: Vec<Op>) -> ThreadBlock {
        let used = |lists: &[(ChannelType, &LocalIds)]| {
            let used = lists.iter().filter(|(_, list)| !list.ids.is_empty());
            used.map(|(kind, list)| (*kind, list.ids.clone())).collect()
        };
        use ChannelType::{Memory, Port, Switch};
        ThreadBlock {
            id,
            ops,
            channels: used(&[(Memory, &self.memory), (Port, &self.port), (Switch, &self.switch)]),
            remote_buffer_refs: used(&[(Memory, &self.remote_memory), (Port, &self.remote_port)]),
        }
    }
}
