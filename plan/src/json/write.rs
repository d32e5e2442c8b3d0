//! Writes the current format, in the order of keys and with the keys per operation that the format's own DSL uses.
//!
//! The objects here mirror the readers in [`current`](super::current): each borrows a part of the model and is
//! written as soon as it is reached, so writing needs no memory of its own.

use super::extensions::Extensions;
use crate::model::{
    Buffer, ChannelTable, ChannelType, ChunkRef, Gpu, Op, OpKind, Plan, RefBase, ThreadBlock,
};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::io;

/// How a plan file is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Style {
    /// One value a line, indented by two spaces a level.
    #[default]
    Pretty,
    /// One line without white space.
    Compact,
}

/// Writes a plan in the current format, without a line break at the end.
///
/// Reading the result of a plan that [`check`](crate::check()) accepts gives an equal plan.
///
/// # Errors
///
/// Only those of `out`.
pub fn write(plan: &Plan, style: Style, out: &mut impl io::Write) -> io::Result<()> {
    // The serializer writes a few bytes at a time.
    let mut out = io::BufWriter::new(out);
    match style {
        Style::Pretty => serde_json::to_writer_pretty(&mut out, &Top(plan))?,
        Style::Compact => serde_json::to_writer(&mut out, &Top(plan))?,
    }
    io::Write::flush(&mut out)
}

/// A list whose elements are written through `wrap`.
struct List<'a, T, F>(&'a [T], F);

impl<'a, T, W: Serialize, F: Fn(&'a T) -> W> Serialize for List<'a, T, F> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        json.collect_seq(self.0.iter().map(&self.1))
    }
}

/// Declares how a borrowed part of the model is written.
macro_rules! object {
    ($name:ident($inner:ty), |$this:ident, $map:ident| $body:block) => {
        struct $name<'a>(&'a $inner);

        impl Serialize for $name<'_> {
            fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
                let $this = self.0;
                let mut $map = json.serialize_map(None)?;
                $body
                $map.end()
            }
        }
    };
}

object!(Top(Plan), |plan, map| {
    map.serialize_entry("name", &plan.name)?;
    let extensions = Extensions::of(plan);
    if !extensions.is_empty() {
        // Before the ranks, so that a reader that does not know it says so rather than stumble over an operation.
        map.serialize_entry("extensions", &extensions)?;
    }
    map.serialize_entry("collective", plan.collective.name())?;
    map.serialize_entry("protocol", plan.protocol.name())?;
    map.serialize_entry("inplace", &plan.in_place)?;
    map.serialize_entry("reuse_resources", &plan.reuse_resources)?;
    map.serialize_entry("gpus", &List(&plan.gpus, Rank))?;
    map.serialize_entry("num_threads_per_block", &plan.num_threads_per_block)?;
    map.serialize_entry("use_double_scratch_buffer", &plan.use_double_scratch_buffer)?;
    map.serialize_entry("buffer_alignment", &plan.buffer_alignment)?;
    map.serialize_entry("min_message_size", &plan.min_message_size)?;
    map.serialize_entry("max_message_size", &plan.max_message_size)?;
});

object!(Rank(Gpu), |gpu, map| {
    let buffers = super::switch_buffers(&gpu.channels);
    map.serialize_entry("id", &gpu.id)?;
    map.serialize_entry("input_chunks", &gpu.input_chunks)?;
    map.serialize_entry("output_chunks", &gpu.output_chunks)?;
    map.serialize_entry("scratch_chunks", &gpu.scratch_chunks)?;
    let blocks = List(&gpu.threadblocks, |block| Block { rank: gpu.id, buffers: &buffers, block });
    map.serialize_entry("threadblocks", &blocks)?;
    map.serialize_entry("channels", &List(&gpu.channels, Table))?;
    map.serialize_entry("remote_buffers", &List(&gpu.remote_buffers, Remote))?;
    map.serialize_entry("semaphores", &List(&gpu.semaphores, Semaphore))?;
});

object!(Table(ChannelTable), |table, map| {
    match table {
        ChannelTable::Peers { channel_type, connected_to } => {
            map.serialize_entry("channel_type", channel_type.name())?;
            map.serialize_entry("connected_to", connected_to)?;
        }
        ChannelTable::Switch { buffer, groups } => {
            map.serialize_entry("channel_type", ChannelType::Switch.name())?;
            map.serialize_entry("buffer_type", buffer.name())?;
            map.serialize_entry("rank_groups", &List(groups, Group))?;
        }
    }
});

object!(Group(crate::model::RankGroup), |group, map| {
    map.serialize_entry("size", &group.size)?;
    map.serialize_entry("ranks", &group.ranks)?;
});

object!(Remote(crate::model::RemoteBuffer), |remote, map| {
    map.serialize_entry("rank", &remote.rank)?;
    map.serialize_entry("type", remote.buffer.name())?;
    map.serialize_entry(
        "access_channel_types",
        &List(&remote.access, |access: &ChannelType| access.name()),
    )?;
});

object!(Semaphore(i64), |value, map| {
    map.serialize_entry("init_value", value)?;
});

object!(ChannelIds((ChannelType, Vec<u64>)), |list, map| {
    map.serialize_entry("channel_type", list.0.name())?;
    map.serialize_entry("channel_ids", &list.1)?;
});

object!(RemoteIds((ChannelType, Vec<u64>)), |list, map| {
    map.serialize_entry("access_channel_type", list.0.name())?;
    map.serialize_entry("remote_buffer_ids", &list.1)?;
});

/// A thread block and what its operations need to know of their rank.
#[derive(Clone, Copy)]
struct Block<'a> {
    rank: u64,
    /// The buffer of each switch channel of the rank.
    buffers: &'a [Buffer],
    block: &'a ThreadBlock,
}

impl Serialize for Block<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        let block = self.block;
        let mut map = json.serialize_map(Some(4))?;
        map.serialize_entry("id", &block.id)?;
        map.serialize_entry("ops", &List(&block.ops, |op| Operation { of: *self, op }))?;
        map.serialize_entry("channels", &List(&block.channels, ChannelIds))?;
        map.serialize_entry("remote_buffer_refs", &List(&block.remote_buffer_refs, RemoteIds))?;
        map.end()
    }
}

/// An operation of a block.
struct Operation<'a> {
    of: Block<'a>,
    op: &'a Op,
}

/// Keys that an operation has even if their list is empty.
#[derive(Clone, Copy, Default)]
struct Always {
    chunks: bool,
    channels: bool,
    semaphores: bool,
}

/// The keys the DSL always writes for an operation of this kind.
fn always(kind: OpKind) -> Always {
    use OpKind::*;
    let none = Always::default();
    match kind {
        Signal | RelaxedSignal | Wait | RelaxedWait | Flush => Always { channels: true, ..none },
        SemaphoreAcquire | SemaphoreRelease => Always { semaphores: true, ..none },
        Nop | Barrier | Pipeline => none,
        _ => Always { chunks: true, ..none },
    }
}

impl Operation<'_> {
    /// The parts of a `glre` in its own spelling: channel, the channel's buffer, source and destination. None if
    /// the operation does not have the form that this spelling can express.
    fn load_reduce(&self) -> Option<(u64, Buffer, ChunkRef, ChunkRef)> {
        let op = self.op;
        let ([src], [dst]) = (op.src.as_slice(), op.dst.as_slice()) else { return None };
        let RefBase::Switch(channel) = src.base else { return None };
        if op.kind != OpKind::GroupLoadReduce || !op.channel_ids.is_empty() {
            return None;
        }
        let id = self.of.block.channel(ChannelType::Switch, channel)?;
        let buffer = self.of.buffers.get(usize::try_from(id).ok()?)?;
        Some((channel, *buffer, *src, *dst))
    }

    /// Writes the chunks and channels the operation works on.
    fn operands<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let op = self.op;
        if let Some((channel, buffer, src, dst)) = self.load_reduce() {
            map.serialize_entry("buffer_type", buffer.name())?;
            map.serialize_entry("buffer_offset", &src.index)?;
            map.serialize_entry("size", &src.size)?;
            map.serialize_entry("dst_chunk", &Chunk { chunk: dst, rank: Some(self.of.rank) })?;
            return map.serialize_entry("channel_ids", &[channel]);
        }
        let always = always(op.kind);
        // In stores to a group the DSL says whose the source is.
        let stores = matches!(op.kind, OpKind::GroupStore | OpKind::GroupStorePackets);
        let rank = stores.then_some(self.of.rank);
        if always.chunks || !op.src.is_empty() {
            map.serialize_entry(
                "src_buff",
                &List(&op.src, |chunk: &ChunkRef| Chunk { chunk: *chunk, rank }),
            )?;
        }
        if always.chunks || !op.dst.is_empty() {
            let rank = None;
            map.serialize_entry(
                "dst_buff",
                &List(&op.dst, |chunk: &ChunkRef| Chunk { chunk: *chunk, rank }),
            )?;
        }
        if always.channels || !op.channel_ids.is_empty() {
            map.serialize_entry("channel_ids", &op.channel_ids)?;
        }
        Ok(())
    }
}

impl Serialize for Operation<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        let op = self.op;
        let mut map = json.serialize_map(None)?;
        map.serialize_entry("name", op.kind.name())?;
        self.operands(&mut map)?;
        if op.channel_type != ChannelType::None {
            map.serialize_entry("channel_type", op.channel_type.name())?;
        }
        if let Some(reduce_op) = op.reduce_op {
            map.serialize_entry("reduce_op", reduce_op.name())?;
        }
        if let Some(slice) = &op.group {
            map.serialize_entry("tbg_info", &Slice(slice))?;
        }
        if let Some(id) = op.barrier_id {
            map.serialize_entry("barrier_id", &id)?;
        }
        if let Some(blocks) = op.num_threadblocks {
            map.serialize_entry("num_threadblocks", &blocks)?;
        }
        if always(op.kind).semaphores || !op.semaphore_ids.is_empty() {
            map.serialize_entry("semaphore_ids", &op.semaphore_ids)?;
        }
        if let Some(pipeline) = &op.pipeline {
            map.serialize_entry("iter_context", &Window(pipeline))?;
            let ops = List(&pipeline.ops, |op| Operation { of: self.of, op });
            // One level is all that the format has; deeper nesting recurses no deeper than the reader allows.
            map.serialize_entry("ops", &ops)?;
        }
        map.end()
    }
}

object!(Slice(crate::model::GroupSlice), |slice, map| {
    map.serialize_entry("tb_id", &slice.tb_id)?;
    map.serialize_entry("tbg_size", &slice.tbg_size)?;
});

object!(Window(crate::model::Pipeline), |pipeline, map| {
    map.serialize_entry("unit_size", &pipeline.unit_size)?;
    map.serialize_entry("num_chunks", &pipeline.num_chunks)?;
});

/// A chunk reference; `rank` is the owner where the DSL writes it.
struct Chunk {
    chunk: ChunkRef,
    rank: Option<u64>,
}

impl Serialize for Chunk {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        let mut map = json.serialize_map(None)?;
        match self.chunk.base {
            RefBase::Local(buffer) => {
                if let Some(rank) = self.rank {
                    map.serialize_entry("rank", &rank)?;
                }
                map.serialize_entry("type", buffer.name())?;
            }
            RefBase::Remote(id) => map.serialize_entry("buffer_id", &id)?,
            RefBase::Switch(id) => map.serialize_entry("switch_channel_id", &id)?,
        }
        map.serialize_entry("index", &self.chunk.index)?;
        map.serialize_entry("size", &self.chunk.size)?;
        map.end()
    }
}
