//! Which chunks of scratch a program reads: what nobody reads needs not be written.

use super::tables::{BlockTables, RankTables};
use crate::model::{Buffer, ChunkRef, RefBase};
use crate::passes::{Step, fusion};
use std::collections::BTreeMap;
use std::ops::Range;

/// The chunks of every rank's scratch that a program reads.
#[derive(Debug, Default)]
pub struct ScratchReads {
    /// Ascending and apart, by rank.
    ranks: BTreeMap<u64, Vec<Range<u64>>>,
}

impl ScratchReads {
    /// The chunks that all ranks' blocks read, except where a store over a switch reads what the block loaded right before.
    pub fn of(ranks: &[RankTables]) -> Self {
        let mut reads = ScratchReads::default();
        for (rank, tables) in (0..).zip(ranks) {
            for block in &tables.blocks {
                reads.add_steps(rank, tables, block, block.steps.steps());
            }
        }
        for ranges in reads.ranks.values_mut() {
            ranges.sort_unstable_by_key(|range| (range.start, range.end));
            ranges.dedup_by(|next, range| {
                let touches = next.start <= range.end;
                if touches {
                    range.end = range.end.max(next.end);
                }
                touches
            });
        }
        reads
    }

    /// Whether any of these chunks of a rank's scratch is read.
    pub fn any(&self, rank: u64, chunks: Range<u64>) -> bool {
        let Some(ranges) = self.ranks.get(&rank) else { return false };
        let first = ranges.partition_point(|range| range.end <= chunks.start);
        ranges.get(first).is_some_and(|range| range.start < chunks.end)
    }

    fn add_steps(&mut self, rank: u64, tables: &RankTables, block: &BlockTables, steps: &[Step]) {
        let mut before: Option<&Step> = None;
        for step in steps {
            if !before.is_some_and(|before| fusion::passes_on(before, step)) {
                for (position, chunk) in step.op.src.iter().enumerate() {
                    if !fusion::reads_packets(&step.op, position) {
                        self.add(rank, tables, block, step, chunk);
                    }
                }
            }
            self.add_steps(rank, tables, block, &step.body);
            before = Some(step);
        }
    }

    fn add(
        &mut self,
        rank: u64,
        tables: &RankTables,
        block: &BlockTables,
        step: &Step,
        chunk: &ChunkRef,
    ) {
        let range = chunk.index..chunk.index.saturating_add(chunk.size);
        let mut add = |owner| self.ranks.entry(owner).or_default().push(range.clone());
        match chunk.base {
            RefBase::Local(Buffer::Scratch) => add(rank),
            RefBase::Local(_) => {}
            RefBase::Remote(local) => {
                let ids = block.remote_ids(step.op.channel_type);
                let remote = ids.get(local as usize);
                let remote = remote.and_then(|&id| tables.remote_buffers.get(id as usize));
                if let Some(remote) = remote.filter(|remote| remote.buffer == Buffer::Scratch) {
                    add(remote.rank);
                }
            }
            RefBase::Switch(local) => {
                let id = block.switch.ids().get(local as usize);
                let switch = id.and_then(|&id| tables.switches.get(id as usize));
                if let Some((Buffer::Scratch, members)) = switch {
                    members.iter().for_each(|&member| add(member));
                }
            }
        }
    }
}
