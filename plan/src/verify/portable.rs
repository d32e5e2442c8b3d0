//! Whether the format's own runtime could run a plan too: which of its limits the plan exceeds.
//!
//! Antiphon has none of these limits. The notes are for authors who want one plan for both.

use super::{About, Note};
use crate::model::{
    Buffer, ChannelTable, ChannelType, Collective, Gpu, Op, OpKind, Plan, RefBase, ThreadBlock,
};
use crate::place::Place;
use antiphon_types::ReduceOp;
use std::collections::BTreeMap;
use std::fmt::Display;

/// Operations of a block, those inside pipelines included.
const OPERATIONS: usize = 64;
/// Channels of one type in a block, and remote buffers accessed in one way.
const PER_BLOCK: usize = 16;
/// Channels of an operation.
const CHANNELS: usize = 8;
/// Sources or destinations of an operation.
const REFERENCES: usize = 10;
/// Semaphores of an operation.
const SEMAPHORES: usize = 16;
/// Barriers of a rank.
const BARRIERS: u64 = 16;
/// Iterations of a pipeline.
const ITERATIONS: u64 = u16::MAX as u64;
/// Memories that a rank's proxy knows: three of its own, and the peers' that it writes.
const PROXY_MEMORIES: usize = 512;
/// Port channels of a rank.
const PROXY_SEMAPHORES: usize = 1024;
/// Bytes that the runtime moves at a time.
const UNIT: u64 = 16;

/// The limits, in the order of the notes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Limit {
    Extensions,
    NoChunks,
    MessageSize,
    Alignment,
    PacketScratch,
    RawScratch,
    UnknownOperation,
    Reduction,
    SourceOrder,
    Operations,
    BlockChannels,
    BlockBuffers,
    Channels,
    References,
    Semaphores,
    Barriers,
    Iterations,
    Windows,
    PipelinePackets,
    ShortOperations,
    ProxyMemories,
    ProxySemaphores,
}

impl Limit {
    fn allowed(self) -> String {
        match self {
            Limit::Extensions => "no extensions".to_owned(),
            Limit::NoChunks => "at least 1, because it divides by it".to_owned(),
            Limit::MessageSize => "sizes and offsets of 32 bits".to_owned(),
            Limit::Alignment | Limit::Windows => format!("multiples of {UNIT}"),
            Limit::PacketScratch => "use_double_scratch_buffer, or an order of the plan's own between launches that \
                                     write packets to the same places"
                .to_owned(),
            Limit::RawScratch => "packets: where scratch is doubled, it puts raw bytes in one half, and their reader looks \
                                  in the other"
                .to_owned(),
            Limit::UnknownOperation => "other operations: it does not know this one".to_owned(),
            Limit::Reduction => "sum, whatever the plan says".to_owned(),
            Limit::SourceOrder => "local sources for re and res; one local and then remote ones for rre and rres".to_owned(),
            Limit::Operations => format!("{OPERATIONS} in a block, those inside pipelines included"),
            Limit::BlockChannels => format!("{PER_BLOCK} of a type in a block"),
            Limit::BlockBuffers => format!("{PER_BLOCK} of a type in a block"),
            Limit::Channels => format!("{CHANNELS} in an operation"),
            Limit::References => format!("{REFERENCES} in an operation"),
            Limit::Semaphores => format!("{SEMAPHORES} in an operation"),
            Limit::Barriers => format!("0 to {}", BARRIERS - 1),
            Limit::Iterations => format!("{ITERATIONS}"),
            Limit::PipelinePackets => {
                "raw bytes: it does all of a packet operation in every iteration".to_owned()
            }
            Limit::ShortOperations => "operations of num_chunks chunks, in one slice: one that ends before the pipeline goes \
                                       astray"
                .to_owned(),
            Limit::ProxyMemories => format!("{} of a rank", PROXY_MEMORIES - Buffer::ALL.len()),
            Limit::ProxySemaphores => format!("{PROXY_SEMAPHORES} of a rank"),
        }
    }
}

/// What was found: for each limit the first place, what is there, and how many places there are.
#[derive(Default)]
struct Seen(BTreeMap<Limit, (Place, String, usize)>);

impl Seen {
    fn exceeds(&mut self, limit: Limit, place: impl FnOnce() -> Place, saw: impl Display) {
        self.0.entry(limit).or_insert_with(|| (place(), saw.to_string(), 0)).2 += 1;
    }

    /// A count that must not be above `most`.
    fn count(
        &mut self,
        limit: Limit,
        place: impl FnOnce() -> Place,
        (count, most): (usize, usize),
        what: &str,
    ) {
        if count > most {
            self.exceeds(limit, place, format_args!("{count} {what}"));
        }
    }
}

/// The limits of the format's own runtime that `plan` exceeds: a note for each, with the first place that does.
pub(super) fn notes(plan: &Plan) -> Vec<Note> {
    let mut seen = Seen::default();
    let top = |key| move || Place::top().key(key);
    if plan.runtime_sizes {
        seen.exceeds(Limit::Extensions, top("extensions"), "runtime_sizes");
    }
    if plan.min_message_size > u32::MAX.into() {
        seen.exceeds(Limit::MessageSize, top("min_message_size"), plan.min_message_size);
    }
    if !plan.buffer_alignment.is_multiple_of(UNIT) {
        seen.exceeds(Limit::Alignment, top("buffer_alignment"), plan.buffer_alignment);
    }
    for (rank, gpu) in plan.gpus.iter().enumerate() {
        of_rank(plan, rank, gpu, &mut seen);
    }
    let note = |(limit, (place, saw, places)): (Limit, (Place, String, usize))| {
        let allowed = limit.allowed();
        let more = match places - 1 {
            0 => String::new(),
            1 => "; and 1 place more".to_owned(),
            more => format!("; and {more} places more"),
        };
        let text =
            format!("{place}: saw {saw}, allowed by the format's own runtime {allowed}{more}");
        Note { about: About::Portability, text }
    };
    seen.0.into_iter().map(note).collect()
}

fn of_rank(plan: &Plan, rank: usize, gpu: &Gpu, seen: &mut Seen) {
    let here = || Place::top().at("gpus", rank);
    for (key, chunks) in [("input_chunks", gpu.input_chunks), ("output_chunks", gpu.output_chunks)]
    {
        if chunks == 0 {
            seen.exceeds(Limit::NoChunks, || here().key(key), 0);
        }
    }
    let ports = gpu.channels.iter().map(|table| match table {
        ChannelTable::Peers { channel_type: ChannelType::Port, connected_to } => connected_to.len(),
        _ => 0,
    });
    let ports = (ports.sum(), PROXY_SEMAPHORES);
    seen.count(Limit::ProxySemaphores, || here().key("channels"), ports, "port channels");
    let written = gpu.remote_buffers.iter().filter(|b| b.access.contains(&ChannelType::Port));
    let written = (written.count(), PROXY_MEMORIES - Buffer::ALL.len());
    let key = || here().key("remote_buffers");
    seen.count(Limit::ProxyMemories, key, written, "buffers accessed over ports");
    for (number, block) in gpu.threadblocks.iter().enumerate() {
        let here = || here().at("threadblocks", number);
        let inner = |op: &Op| op.pipeline.as_ref().map_or(0, |pipeline| pipeline.ops.len());
        let all = block.ops.iter().map(|op| 1 + inner(op)).sum();
        let key = || here().key("ops");
        seen.count(Limit::Operations, key, (all, OPERATIONS), "operations");
        for kind in [ChannelType::Memory, ChannelType::Port, ChannelType::Switch] {
            let all = |lists: &[(ChannelType, Vec<u64>)]| {
                let ids = lists.iter().filter(|(of, _)| *of == kind).map(|(_, ids)| ids.len());
                (ids.sum(), PER_BLOCK)
            };
            let what = format!("{kind} channels");
            let key = || here().key("channels");
            seen.count(Limit::BlockChannels, key, all(&block.channels), &what);
            let what = format!("buffers accessed over {kind} channels");
            let key = || here().key("remote_buffer_refs");
            seen.count(Limit::BlockBuffers, key, all(&block.remote_buffer_refs), &what);
        }
        for (position, op) in block.ops.iter().enumerate() {
            let here = || here().at("ops", position);
            of_operation(plan, gpu, block, op, &here, seen);
            let Some(pipeline) = &op.pipeline else { continue };
            if !pipeline.unit_size.is_multiple_of(UNIT) {
                let place = || here().key("iter_context").key("unit_size");
                seen.exceeds(Limit::Windows, place, pipeline.unit_size);
            }
            if let Some(most) = iterations(plan, gpu, pipeline.unit_size, pipeline.num_chunks)
                && most > ITERATIONS
            {
                let saw = format!("{most} iterations for the largest message");
                seen.exceeds(Limit::Iterations, here, saw);
            }
            for (position, op) in pipeline.ops.iter().enumerate() {
                let here = || here().at("ops", position);
                of_operation(plan, gpu, block, op, &here, seen);
                if op.kind.moves_packets() {
                    seen.exceeds(Limit::PipelinePackets, here, format_args!("`{}`", op.kind));
                }
                let chunks = op.src.iter().chain(&op.dst).map(|chunk| chunk.size).max();
                let slices = op.group.map_or(1, |group| group.tbg_size);
                if let Some(chunks) = chunks
                    && (chunks < pipeline.num_chunks || slices > 1)
                {
                    let all = pipeline.num_chunks;
                    let slices = if slices > 1 { " in slices" } else { "" };
                    let saw = format!("{chunks} of {all} chunks{slices}");
                    seen.exceeds(Limit::ShortOperations, here, saw);
                }
            }
        }
    }
}

/// Iterations of a pipeline for the largest message, where the plan says how large that is.
fn iterations(plan: &Plan, gpu: &Gpu, unit: u64, chunks: u64) -> Option<u64> {
    let largest = Some(plan.max_message_size).filter(|&size| size < u64::MAX)?;
    let message =
        if plan.collective == Collective::AllGather { gpu.output_chunks } else { gpu.input_chunks };
    let units = largest.checked_div(plan.buffer_alignment)?;
    let chunk = match message {
        0 => units,
        message => units.div_ceil(message),
    };
    let bytes = chunk.checked_mul(plan.buffer_alignment)?.saturating_mul(chunks);
    (unit > 0).then(|| bytes.div_ceil(unit))
}

fn of_operation(
    plan: &Plan,
    gpu: &Gpu,
    block: &ThreadBlock,
    op: &Op,
    here: &impl Fn() -> Place,
    seen: &mut Seen,
) {
    if op.kind == OpKind::GroupLoadReduce || op.kind.moves_blocks() {
        seen.exceeds(Limit::UnknownOperation, here, format_args!("`{}`", op.kind));
    }
    if let Some(reduce) = op.reduce_op.filter(|&reduce| reduce != ReduceOp::Sum) {
        seen.exceeds(Limit::Reduction, || here().key("reduce_op"), reduce);
    }
    let remote = |at: usize| matches!(op.src[at].base, RefBase::Remote(_));
    let misplaced = match op.kind {
        OpKind::Reduce | OpKind::ReduceSend => (0..op.src.len()).find(|&at| remote(at)),
        OpKind::ReadReduce | OpKind::ReadReduceSend => {
            (0..op.src.len()).find(|&at| remote(at) != (at > 0))
        }
        _ => None,
    };
    if let Some(at) = misplaced {
        let saw = if remote(at) { "a remote source" } else { "a local source" };
        seen.exceeds(Limit::SourceOrder, || here().at("src_buff", at), saw);
    }
    let channels = (op.channel_ids.len(), CHANNELS);
    seen.count(Limit::Channels, || here().key("channel_ids"), channels, "channels");
    for (key, list) in [("src_buff", &op.src), ("dst_buff", &op.dst)] {
        let references = (list.len(), REFERENCES);
        seen.count(Limit::References, || here().key(key), references, "references");
    }
    let semaphores = (op.semaphore_ids.len(), SEMAPHORES);
    seen.count(Limit::Semaphores, || here().key("semaphore_ids"), semaphores, "semaphores");
    if let Some(id) = op.barrier_id.filter(|&id| id >= BARRIERS) {
        seen.exceeds(Limit::Barriers, || here().key("barrier_id"), id);
    }
    if op.kind.moves_packets() {
        if !plan.use_double_scratch_buffer {
            seen.exceeds(Limit::PacketScratch, here, format_args!("`{}`", op.kind));
        }
    } else if plan.use_double_scratch_buffer {
        for (key, list) in [("src_buff", &op.src), ("dst_buff", &op.dst)] {
            let scratch = list.iter().position(|chunk| elsewhere(gpu, block, op, chunk.base));
            if let Some(at) = scratch {
                let saw = "raw bytes in another rank's scratch";
                seen.exceeds(Limit::RawScratch, || here().at(key, at), saw);
            }
        }
    }
}

/// Whether a reference means the scratch of another rank.
fn elsewhere(gpu: &Gpu, block: &ThreadBlock, op: &Op, base: RefBase) -> bool {
    let position = |id: Option<u64>| id.and_then(|id| usize::try_from(id).ok());
    match base {
        RefBase::Local(_) => false,
        RefBase::Remote(id) => position(block.remote_buffer(op.channel_type, id))
            .and_then(|id| gpu.remote_buffers.get(id))
            .is_some_and(|remote| remote.buffer == Buffer::Scratch),
        RefBase::Switch(id) => {
            let groups = gpu.channels.iter().filter_map(|table| match table {
                ChannelTable::Switch { buffer, groups } => Some(groups.iter().map(|_| *buffer)),
                ChannelTable::Peers { .. } => None,
            });
            position(block.channel(ChannelType::Switch, id))
                .and_then(|id| groups.flatten().nth(id))
                .is_some_and(|buffer| buffer == Buffer::Scratch)
        }
    }
}

#[cfg(test)]
mod tests;
