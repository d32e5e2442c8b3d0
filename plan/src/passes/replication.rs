//! Instances: every block runs several times over, each time for its share of the chunks.
//!
//! With n instances every chunk becomes n, so that a chunk has an n-th of its bytes. Instance i of a block takes, of
//! every run of s chunks from chunk k, the s chunks from k·n + i·s: together the instances cover what one covered. Each
//! instance has channels, semaphores and barriers of its own; buffers of peers are shared.
//!
//! What counts bytes by chunks follows by itself: a pipeline still covers as many chunks as its operations have, of an
//! n-th of the bytes, in windows of as many bytes, so it runs an n-th of the iterations.
//!
//! A program that names chunks in runs of different lengths is divided before, where instances would meet: see [`runs`].
//!
//! Every reference is shifted, those of pipelines' bodies, the local packets of a reduction and both sides of a switch
//! operation included.

pub mod runs;

use crate::model::{ChannelTable, ChannelType, ChunkRef, Gpu, Op, Plan, ThreadBlock};

/// How chunks are shared among instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Every chunk is divided among the instances: instance i of n takes the i-th part of each reference.
    #[default]
    Interleaved,
    /// Not at all; only for one instance.
    None,
}

/// Replaces every block by `instances` blocks. Does nothing for one instance, the only number that
/// [`Policy::None`] makes sense for.
pub fn replicate(plan: &mut Plan, instances: u64, policy: Policy) {
    debug_assert!(policy == Policy::Interleaved || instances <= 1);
    if instances > 1 {
        plan.gpus.iter_mut().for_each(|gpu| replicate_rank(gpu, instances));
    }
}

fn replicate_rank(gpu: &mut Gpu, instances: u64) {
    for chunks in [&mut gpu.input_chunks, &mut gpu.output_chunks, &mut gpu.scratch_chunks] {
        *chunks = chunks.saturating_mul(instances);
    }
    gpu.channels = std::mem::take(&mut gpu.channels)
        .into_iter()
        .flat_map(|table| replicate_table(table, instances))
        .collect();
    gpu.semaphores = each_repeated(&gpu.semaphores, instances);
    gpu.threadblocks = std::mem::take(&mut gpu.threadblocks)
        .iter()
        .flat_map(|block| (0..instances).map(|i| Instance { i, of: instances }.block(block)))
        .collect();
}

/// The channels of the instances: those that replace one channel follow each other.
fn replicate_table(table: ChannelTable, instances: u64) -> Vec<ChannelTable> {
    match table {
        ChannelTable::Peers { channel_type, connected_to } => {
            let connected_to = each_repeated(&connected_to, instances);
            vec![ChannelTable::Peers { channel_type, connected_to }]
        }
        ChannelTable::Switch { buffer, groups } => {
            let groups = each_repeated(&groups, instances).into_iter();
            groups.map(|group| ChannelTable::Switch { buffer, groups: vec![group] }).collect()
        }
    }
}

fn each_repeated<T: Clone>(list: &[T], times: u64) -> Vec<T> {
    list.iter().flat_map(|item| (0..times).map(|_| item.clone())).collect()
}

/// Instance `i` of `of`.
#[derive(Clone, Copy)]
struct Instance {
    i: u64,
    of: u64,
}

impl Instance {
    fn id(self, id: u64) -> u64 {
        id.saturating_mul(self.of).saturating_add(self.i)
    }

    fn block(self, block: &ThreadBlock) -> ThreadBlock {
        let shift = |(kind, ids): &(ChannelType, Vec<u64>)| {
            (*kind, ids.iter().map(|&id| self.id(id)).collect())
        };
        ThreadBlock {
            id: self.id(block.id),
            ops: block.ops.iter().map(|op| self.op(op)).collect(),
            channels: block.channels.iter().map(shift).collect(),
            remote_buffer_refs: block.remote_buffer_refs.clone(),
        }
    }

    fn op(self, op: &Op) -> Op {
        let mut op = op.clone();
        op.src.iter_mut().chain(&mut op.dst).for_each(|chunk| self.chunk(chunk));
        op.semaphore_ids.iter_mut().for_each(|id| *id = self.id(*id));
        op.barrier_id = op.barrier_id.map(|id| self.id(id));
        if let Some(pipeline) = &mut op.pipeline {
            pipeline.ops = pipeline.ops.iter().map(|op| self.op(op)).collect();
        }
        op
    }

    fn chunk(self, chunk: &mut ChunkRef) {
        let own = self.i.saturating_mul(chunk.size);
        chunk.index = chunk.index.saturating_mul(self.of).saturating_add(own);
    }
}

#[cfg(test)]
mod tests;
