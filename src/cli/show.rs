//! Plans as text for people.

use super::CliError;
use antiphon::plan::model::{
    ChannelTable, ChannelType, ChunkRef, Gpu, Op, Plan, RefBase, ThreadBlock,
};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The plan on one screen: what it is, and a paragraph for each rank.
pub fn summary(plan: &Plan, dialect: &str) -> String {
    let mut text = String::new();
    let mut line = |content: String| {
        text += &content;
        text.push('\n');
    };
    line(format!("plan        {}", plan.name));
    line(format!("collective  {}", plan.collective));
    line(format!("ranks       {}", plan.gpus.len()));
    line(format!("protocol    {}", plan.protocol.name()));
    line(format!("in place    {}", if plan.in_place { "yes" } else { "no" }));
    line(format!("messages    {}", message_range(plan)));
    line(format!("alignment   {} B", plan.buffer_alignment));
    let halves = if plan.use_double_scratch_buffer { ", in two halves used in turn" } else { "" };
    line(format!("format      {dialect}"));
    for gpu in &plan.gpus {
        line(String::new());
        line(format!(
            "rank {}: {} input, {} output and {} scratch chunks{}",
            gpu.id,
            gpu.input_chunks,
            gpu.output_chunks,
            gpu.scratch_chunks,
            if gpu.scratch_chunks > 0 { halves } else { "" }
        ));
        line(format!("  blocks    {} with {} operations", gpu.threadblocks.len(), count_ops(gpu)));
        line(format!("  ops       {}", or_none(tally(gpu))));
        line(format!("  channels  {}", or_none(channels(gpu))));
        if !gpu.semaphores.is_empty() {
            let values: Vec<_> = gpu.semaphores.iter().map(i64::to_string).collect();
            line(format!("  semaphores start at {}", values.join(", ")));
        }
    }
    text
}

fn message_range(plan: &Plan) -> String {
    match (plan.min_message_size, plan.max_message_size) {
        (0, u64::MAX) => "of any size".into(),
        (low, u64::MAX) => format!("from {low} B"),
        (low, high) => format!("from {low} to {high} B"),
    }
}

fn or_none(text: String) -> String {
    if text.is_empty() { "none".into() } else { text }
}

/// A block's operations with those inside pipelines.
fn flat(ops: &[Op]) -> impl Iterator<Item = &Op> {
    ops.iter()
        .flat_map(|op| std::iter::once(op).chain(op.pipeline.iter().flat_map(|inner| &inner.ops)))
}

fn count_ops(gpu: &Gpu) -> usize {
    gpu.threadblocks.iter().map(|block| flat(&block.ops).count()).sum()
}

/// How many operations of each kind a rank has, in the order of the format.
fn tally(gpu: &Gpu) -> String {
    let mut counts = BTreeMap::new();
    for op in gpu.threadblocks.iter().flat_map(|block| flat(&block.ops)) {
        *counts.entry(op.kind).or_insert(0) += 1;
    }
    let parts: Vec<_> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    parts.join(", ")
}

/// A rank's channels by type and peer, e.g. `memory to 1 (x2), 2; switch over o with 0, 1`.
fn channels(gpu: &Gpu) -> String {
    let mut by_type: BTreeMap<ChannelType, BTreeMap<u64, usize>> = BTreeMap::new();
    let mut parts = Vec::new();
    for table in &gpu.channels {
        match table {
            ChannelTable::Peers { channel_type, connected_to } => {
                for &peer in connected_to {
                    *by_type.entry(*channel_type).or_default().entry(peer).or_insert(0) += 1;
                }
            }
            ChannelTable::Switch { buffer, groups } => {
                for group in groups {
                    let ranks: Vec<_> = group.ranks.iter().map(u64::to_string).collect();
                    parts.push(format!("switch over {buffer} with {}", ranks.join(", ")));
                }
            }
        }
    }
    let peers = |peers: &BTreeMap<u64, usize>| {
        let each = peers.iter().map(|(peer, &count)| match count {
            1 => peer.to_string(),
            _ => format!("{peer} (x{count})"),
        });
        each.collect::<Vec<_>>().join(", ")
    };
    let mut all: Vec<_> =
        by_type.iter().map(|(kind, to)| format!("{kind} to {}", peers(to))).collect();
    all.append(&mut parts);
    all.join("; ")
}

/// One warning for each pair of ranks that declare unequal numbers of channels of a type to each other.
pub fn unpaired_channels(plan: &Plan) -> Vec<String> {
    let mut counts: BTreeMap<(ChannelType, u64, u64), u64> = BTreeMap::new();
    for (rank, gpu) in (0u64..).zip(&plan.gpus) {
        for table in &gpu.channels {
            if let ChannelTable::Peers { channel_type, connected_to } = table {
                for &peer in connected_to {
                    *counts.entry((*channel_type, rank, peer)).or_insert(0) += 1;
                }
            }
        }
    }
    let mut warnings = Vec::new();
    for (&(kind, rank, peer), &count) in &counts {
        let back = counts.get(&(kind, peer, rank)).copied().unwrap_or(0);
        if count > back {
            warnings.push(format!(
                "rank {rank} has {count} {kind} channel(s) to rank {peer}, which has {back} back: signals on the \
                 last {} go nowhere and waits on them never end",
                count - back
            ));
        }
    }
    warnings
}

/// The operations of one rank, block by block.
pub fn rank(plan: &Plan, rank: u32) -> Result<String, CliError> {
    let Some(gpu) = plan.gpus.get(rank as usize) else {
        return Err(CliError::Usage(format!(
            "cannot show rank {rank} of plan `{}`: it has ranks 0 to {}",
            plan.name,
            plan.gpus.len().saturating_sub(1)
        )));
    };
    let mut text = String::new();
    for block in &gpu.threadblocks {
        let _ = writeln!(text, "rank {rank}, block {}", block.id);
        let view = View { gpu, block };
        for (position, op) in block.ops.iter().enumerate() {
            let _ = writeln!(text, "  {position:>4}  {}", view.operation(op));
            if let Some(pipeline) = &op.pipeline {
                for (inner, op) in pipeline.ops.iter().enumerate() {
                    let _ = writeln!(text, "  {position:>4}.{inner:<3}  {}", view.operation(op));
                }
            }
        }
    }
    Ok(text)
}

/// What the numbers in a block's operations refer to. Numbers that refer to nothing are shown as they are.
struct View<'a> {
    gpu: &'a Gpu,
    block: &'a ThreadBlock,
}

impl View<'_> {
    fn operation(&self, op: &Op) -> String {
        let mut parts = vec![format!("{:<11}", op.kind.name())];
        if let Some(pipeline) = &op.pipeline {
            let (unit, chunks) = (pipeline.unit_size, pipeline.num_chunks);
            parts.push(format!("{unit} B at a time over {chunks} chunks"));
        }
        if !op.src.is_empty() || !op.dst.is_empty() {
            let list = |refs: &[ChunkRef]| {
                let all: Vec<_> = refs.iter().map(|chunk| self.chunk(op, chunk)).collect();
                if all.is_empty() { "-".to_owned() } else { all.join(", ") }
            };
            parts.push(format!("{} -> {}", list(&op.src), list(&op.dst)));
        }
        if let Some(reduce) = op.reduce_op {
            parts.push(reduce.to_string());
        }
        if !op.channel_ids.is_empty() {
            let peers: Vec<_> =
                op.channel_ids.iter().map(|&id| self.channel(op.channel_type, id)).collect();
            parts.push(format!("{} {}", op.channel_type, peers.join(", ")));
        }
        if let (Some(id), Some(blocks)) = (op.barrier_id, op.num_threadblocks) {
            parts.push(format!("{id} of {blocks} blocks"));
        }
        if !op.semaphore_ids.is_empty() {
            let ids: Vec<_> = op.semaphore_ids.iter().map(u64::to_string).collect();
            parts.push(ids.join(", "));
        }
        if let Some(group) = op.group {
            parts.push(format!("slice {} of {}", group.tb_id, group.tbg_size));
        }
        parts.join(" ").trim_end().to_owned()
    }

    /// The rank's channel behind a block's, e.g. `#3 to rank 1`.
    fn channel(&self, kind: ChannelType, local: u64) -> String {
        let global = lookup(&self.block.channels, kind, local);
        let Some(global) = global else { return format!("[{local}]?") };
        let peers = self.gpu.channels.iter().filter_map(|table| match table {
            ChannelTable::Peers { channel_type, connected_to } if *channel_type == kind => {
                Some(connected_to)
            }
            _ => None,
        });
        match peers.flatten().nth(global as usize) {
            Some(peer) => format!("#{global} to rank {peer}"),
            None => format!("#{global}?"),
        }
    }

    /// A run of chunks, e.g. `i[2]`, `rank 1 s[0..4]`, `switch 0 (o)[1]`.
    fn chunk(&self, op: &Op, chunk: &ChunkRef) -> String {
        let place = match chunk.base {
            RefBase::Local(buffer) => buffer.to_string(),
            RefBase::Remote(local) => {
                let remote = lookup(&self.block.remote_buffer_refs, op.channel_type, local)
                    .and_then(|global| self.gpu.remote_buffers.get(global as usize));
                match remote {
                    Some(remote) => format!("rank {} {}", remote.rank, remote.buffer),
                    None => format!("remote [{local}]?"),
                }
            }
            RefBase::Switch(local) => match self.switch(local) {
                Some(text) => text,
                None => format!("switch [{local}]?"),
            },
        };
        let range = match chunk.size {
            1 => chunk.index.to_string(),
            size => format!("{}..{}", chunk.index, chunk.index.saturating_add(size)),
        };
        format!("{place}[{range}]")
    }

    fn switch(&self, local: u64) -> Option<String> {
        let global = lookup(&self.block.channels, ChannelType::Switch, local)?;
        let groups = self.gpu.channels.iter().flat_map(|table| match table {
            ChannelTable::Switch { buffer, groups } => groups.iter().map(|_| *buffer).collect(),
            ChannelTable::Peers { .. } => Vec::new(),
        });
        let buffer = groups.into_iter().nth(global as usize)?;
        Some(format!("switch #{global} {buffer}"))
    }
}

/// The entry at a block-local position over all of the block's lists of this type.
fn lookup(lists: &[(ChannelType, Vec<u64>)], kind: ChannelType, local: u64) -> Option<u64> {
    let all = lists.iter().filter(|(of, _)| *of == kind).flat_map(|(_, ids)| ids);
    all.copied().nth(usize::try_from(local).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::plans::testing::plan;
    use antiphon::plan::model::{
        Buffer, Collective, GroupSlice, OpKind, Pipeline, RankGroup, RemoteBuffer,
    };

    fn local(buffer: Buffer, index: u64, size: u64) -> ChunkRef {
        ChunkRef { base: RefBase::Local(buffer), index, size }
    }

    /// Two ranks with one of everything, the second without the way back.
    fn sample() -> Plan {
        let mut plan = plan(Collective::AllReduce, 2, (2, 2));
        plan.use_double_scratch_buffer = true;
        plan.max_message_size = 1 << 20;
        let gpu = &mut plan.gpus[0];
        gpu.scratch_chunks = 4;
        gpu.semaphores = vec![1];
        gpu.channels = vec![
            ChannelTable::Peers { channel_type: ChannelType::Memory, connected_to: vec![1, 1] },
            ChannelTable::Switch {
                buffer: Buffer::Output,
                groups: vec![RankGroup { size: 2, ranks: vec![0, 1] }],
            },
        ];
        gpu.remote_buffers = vec![RemoteBuffer {
            rank: 1,
            buffer: Buffer::Scratch,
            access: vec![ChannelType::Memory],
        }];
        let mut put = Op::new(OpKind::Put);
        put.channel_type = ChannelType::Memory;
        put.src = vec![local(Buffer::Input, 0, 2)];
        put.dst = vec![ChunkRef { base: RefBase::Remote(0), index: 2, size: 2 }];
        put.group = Some(GroupSlice { tb_id: 0, tbg_size: 2 });
        let mut signal = Op::new(OpKind::Signal);
        (signal.channel_type, signal.channel_ids) = (ChannelType::Memory, vec![0, 7]);
        let mut reduce = Op::new(OpKind::Reduce);
        reduce.src = vec![local(Buffer::Input, 0, 1), local(Buffer::Scratch, 3, 1)];
        reduce.dst = vec![local(Buffer::Output, 0, 1)];
        reduce.reduce_op = Some(antiphon::ReduceOp::Max);
        let mut store = Op::new(OpKind::GroupStore);
        store.channel_type = ChannelType::Switch;
        store.src = vec![local(Buffer::Input, 0, 1)];
        store.dst = vec![ChunkRef { base: RefBase::Switch(0), index: 1, size: 1 }];
        let mut acquire = Op::new(OpKind::SemaphoreAcquire);
        acquire.semaphore_ids = vec![0];
        let mut barrier = Op::new(OpKind::Barrier);
        (barrier.barrier_id, barrier.num_threadblocks) = (Some(3), Some(2));
        let mut pipeline = Op::new(OpKind::Pipeline);
        pipeline.pipeline =
            Some(Pipeline { unit_size: 4096, num_chunks: 2, ops: vec![put.clone(), signal] });
        plan.gpus[0].threadblocks = vec![ThreadBlock {
            id: 0,
            ops: vec![put, pipeline, reduce, store, acquire, barrier, Op::new(OpKind::Nop)],
            channels: vec![(ChannelType::Memory, vec![1]), (ChannelType::Switch, vec![0])],
            remote_buffer_refs: vec![(ChannelType::Memory, vec![0])],
        }];
        plan
    }

    #[test]
    fn the_summary_fits_a_screen() {
        insta::assert_snapshot!(summary(&sample(), "current"));
    }

    #[test]
    fn operations_name_ranks_and_buffers() {
        insta::assert_snapshot!(rank(&sample(), 0).unwrap());
    }

    #[test]
    fn a_rank_that_is_not_there_is_refused() {
        let message = rank(&sample(), 2).unwrap_err().to_string();
        assert!(message.contains("ranks 0 to 1"), "{message}");
    }

    #[test]
    fn channels_without_a_way_back_are_warned_of() {
        let warnings = unpaired_channels(&sample());
        assert_eq!(warnings.len(), 1);
        assert!(
            warnings[0].starts_with("rank 0 has 2 memory channel(s) to rank 1, which has 0 back")
        );
    }
}
