//! The first step: operations become instructions over numbered channels, accesses and counters.

use super::error::{LowerError, Site};
use super::sizes::{SizeRules, Split};
use super::tables::{self, BlockTables, area_of};
use super::{ChunkRange, LoopGeometry, MoveGeometry, RankGeometry, blocks, order};
use crate::model::{
    Buffer, ChannelType, ChunkRef, GroupSlice, Op, OpKind, Pipeline, Plan, RefBase,
};
use crate::program::{
    Access, Area, Block, BlockMove, Instruction, Origin, RankLayout, Span, Switch,
};
use antiphon_types::ReduceOp;
use std::collections::{BTreeSet, HashMap};

/// Lowers every rank. The geometries know only the first chunk of each access; `place_chunks` adds the rest.
pub(super) fn lower_ranks(plan: &Plan) -> Result<Vec<(RankLayout, RankGeometry)>, LowerError> {
    let mut channels = tables::channels(plan)?;
    let mut ranks = Vec::with_capacity(plan.gpus.len());
    for (rank, gpu) in (0u32..).zip(&plan.gpus) {
        let layout = RankLayout {
            channels: std::mem::take(&mut channels[rank as usize]),
            switches: tables::switches(plan, gpu)?,
            semaphores: gpu.semaphores.clone(),
            scratch_chunks: gpu.scratch_chunks,
            runtime_blocks: blocks::numbers(plan, gpu)?,
            ..RankLayout::default()
        };
        let mut lowering = RankLowering {
            rank,
            layout,
            geometry: RankGeometry::default(),
            barriers: HashMap::new(),
            signallers: HashMap::new(),
            current_loop: None,
            runtime_sizes: plan.runtime_sizes,
        };
        for (tb, block) in (0u32..).zip(&gpu.threadblocks) {
            let switch = lowering.layout.switches.len();
            let channels = &lowering.layout.channels;
            let tables = BlockTables::new(plan, gpu, block, channels, switch)?;
            lowering.block(tb, &block.ops, &tables)?;
        }
        ranks.push(lowering.finish());
    }
    blocks::within(&ranks)?;
    Ok(ranks)
}

/// Ties every access to its owner's chunk counts, checks its range and finds where references meet block ends.
pub(super) fn place_chunks(
    plan: &Plan,
    layouts: &[RankLayout],
    geometries: &mut [RankGeometry],
    rules: &mut SizeRules,
) -> Result<(), LowerError> {
    for (rank, (layout, geometry)) in (0u32..).zip(layouts.iter().zip(geometries)) {
        for at in 0..geometry.moves.len() {
            let moved = geometry.moves[at];
            let first_cut = geometry.cuts.len();
            for position in moved.accesses.range() {
                let access = layout.accesses[position];
                let first = geometry.first[position];
                let gpu = &plan.gpus[access.rank as usize];
                let shape = rules.shape_of[access.rank as usize];
                let (side, chunks) = match access.area {
                    Area::Input => (Buffer::Input, gpu.input_chunks),
                    Area::Output => (Buffer::Output, gpu.output_chunks),
                    Area::Scratch | Area::Packets => (Buffer::Scratch, gpu.scratch_chunks),
                };
                let clipped = side != Buffer::Scratch;
                let unbounded = chunks == 0 && clipped;
                let end = first.checked_add(moved.size);
                let Some(end) = end.filter(|&end| end <= chunks || unbounded) else {
                    let site = site_of(layout, rank, moved.instruction);
                    let problem = format!(
                        "saw chunks {first}+{} of the {side} of rank {}, allowed 0..{chunks}",
                        moved.size, access.rank
                    );
                    return Err(LowerError::Malformed { site, problem });
                };
                let mut per_block = u64::MAX;
                if clipped {
                    let shape = &mut rules.shapes[shape as usize];
                    let reach = &mut shape.reach[side as usize];
                    *reach = end.max(*reach);
                    if !unbounded {
                        per_block = shape.per_block[side as usize];
                    }
                }
                let (start, slot) = (Split::new(first, per_block), 3 * shape + side as u32);
                let mut boundary = (start.whole + 1).saturating_mul(per_block);
                geometry.chunks.push(ChunkRange {
                    slot,
                    clipped,
                    start,
                    end: Split::new(end, per_block),
                });
                while boundary < end {
                    geometry.cuts.push(boundary - first);
                    boundary = boundary.saturating_add(per_block);
                }
            }
            geometry.cuts[first_cut..].sort_unstable();
            let mut kept = first_cut;
            for cut in first_cut..geometry.cuts.len() {
                if kept == first_cut || geometry.cuts[kept - 1] != geometry.cuts[cut] {
                    geometry.cuts[kept] = geometry.cuts[cut];
                    kept += 1;
                }
            }
            geometry.cuts.truncate(kept);
            geometry.moves[at].cuts = Span { start: first_cut as u32, end: kept as u32 };
        }
    }
    Ok(())
}

/// Where an instruction of a rank came from.
pub(crate) fn site_of(layout: &RankLayout, rank: u32, instruction: u32) -> Site {
    let holds = |block: &Block| block.code.range().contains(&(instruction as usize));
    let tb = layout.blocks.iter().position(holds).unwrap_or(0) as u32;
    let Origin { op, inner, kind } = layout.origins[instruction as usize];
    Site { rank, tb, op, inner, kind }
}

pub(super) struct RankLowering {
    rank: u32,
    pub(super) layout: RankLayout,
    geometry: RankGeometry,
    /// Dense numbers of the plan's barrier ids.
    barriers: HashMap<u64, u32>,
    /// The block that signals on each channel so far.
    signallers: HashMap<u32, u32>,
    current_loop: Option<u32>,
    pub(super) runtime_sizes: bool,
}

/// One operation on its way, with what it may refer to.
pub(super) struct Context<'a> {
    pub(super) op: &'a Op,
    site: Site,
    tables: &'a BlockTables,
}

impl Context<'_> {
    pub(super) fn malformed(&self, problem: impl Into<String>) -> LowerError {
        LowerError::Malformed { site: self.site, problem: problem.into() }
    }

    /// Refuses reference lists of other lengths.
    pub(super) fn arity(&self, fits: bool, allowed: &str) -> Result<(), LowerError> {
        if fits {
            return Ok(());
        }
        let (sources, destinations) = (self.op.src.len(), self.op.dst.len());
        Err(self.malformed(format!(
            "saw {sources} sources and {destinations} destinations, allowed {allowed}"
        )))
    }

    pub(super) fn channel(&self, local: u64) -> Result<u32, LowerError> {
        match self.op.channel_type {
            ChannelType::Memory => self.local(&self.tables.memory, local, "memory channel"),
            ChannelType::Port => self.local(&self.tables.port, local, "port channel"),
            saw => {
                Err(self
                    .malformed(format!("saw channel type `{saw}`, allowed `memory` and `port`")))
            }
        }
    }

    /// Whether the operation works through port channels.
    fn port(&self) -> bool {
        self.op.channel_type == ChannelType::Port
    }

    /// The slice of the work that is done, and the number of slices.
    pub(super) fn slice(&self) -> Result<(u64, u64), LowerError> {
        let GroupSlice { tb_id: part, tbg_size: parts } =
            self.op.group.unwrap_or(GroupSlice { tb_id: 0, tbg_size: 1 });
        if part >= parts {
            return Err(self.malformed(format!("saw slice {part} of {parts} of a group")));
        }
        Ok((part, parts))
    }

    fn local<T: Copy>(&self, list: &[T], id: u64, what: &str) -> Result<T, LowerError> {
        let found = usize::try_from(id).ok().and_then(|id| list.get(id)).copied();
        let allowed = list.len();
        found.ok_or_else(|| self.malformed(format!("saw {what} {id}, allowed 0..{allowed}")))
    }
}

/// A chunk reference and whether the operation treats it as packets.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) chunk: &'a ChunkRef,
    pub(super) packets: bool,
}

/// The numbered sides of a transfer.
pub(super) struct Sides {
    pub(super) sources: Span,
    pub(super) destinations: Span,
    multicast: Option<u32>,
    pub(super) index: u32,
}

fn raw(chunks: &[ChunkRef]) -> impl Iterator<Item = Side<'_>> {
    chunks.iter().map(|chunk| Side { chunk, packets: false })
}

fn packets(chunks: &[ChunkRef]) -> impl Iterator<Item = Side<'_>> {
    chunks.iter().map(|chunk| Side { chunk, packets: true })
}

impl RankLowering {
    fn block(&mut self, tb: u32, ops: &[Op], tables: &BlockTables) -> Result<(), LowerError> {
        let start = self.layout.instructions.len() as u32;
        for (position, op) in (0u32..).zip(ops) {
            let site = Site { rank: self.rank, tb, op: position, inner: None, kind: op.kind };
            let context = Context { op, site, tables };
            if self.runtime_sizes && !op.kind.moves_blocks() && !op.kind.synchronises() {
                return Err(context.malformed(
                    "saw chunks of equal size in a plan with runtime sizes, allowed vput, vget and vcopy",
                ));
            }
            if op.kind != OpKind::Pipeline {
                self.op(&context)?;
                continue;
            }
            let pipeline = op.pipeline.as_ref();
            let pipeline = pipeline.ok_or_else(|| context.malformed("saw no body"))?;
            self.pipeline(&context, pipeline, start)?;
        }
        let end = self.layout.instructions.len() as u32;
        self.layout.blocks.push(Block { code: Span { start, end } });
        Ok(())
    }

    fn pipeline(
        &mut self,
        context: &Context<'_>,
        pipeline: &Pipeline,
        block_start: u32,
    ) -> Result<(), LowerError> {
        let (unit, chunks) = (pipeline.unit_size, pipeline.num_chunks);
        if unit == 0 {
            return Err(context.malformed("saw a window of 0 bytes, allowed 1 or more"));
        }
        let begin = self.layout.instructions.len();
        let index = self.geometry.loops.len() as u32;
        self.push(context, Instruction::LoopBegin { end: 0, unit, chunks, index });
        let instruction = begin as u32;
        self.geometry.loops.push(LoopGeometry { unit, chunks, packets: false, instruction });
        self.current_loop = Some(index);
        for (inner, op) in (0u32..).zip(&pipeline.ops) {
            let site = Site { inner: Some(inner), kind: op.kind, ..context.site };
            self.op(&Context { op, site, tables: context.tables })?;
        }
        self.current_loop = None;
        let end = self.layout.instructions.len() as u32 - block_start;
        self.push(context, Instruction::LoopEnd { begin: instruction - block_start });
        self.layout.instructions[begin] = Instruction::LoopBegin { end, unit, chunks, index };
        Ok(())
    }

    fn op(&mut self, context: &Context<'_>) -> Result<(), LowerError> {
        let Op { src, dst, .. } = context.op;
        let single = src.len() == 1 && dst.len() == 1;
        match context.op.kind {
            OpKind::Nop => self.push(context, Instruction::BlockSync),
            OpKind::Barrier => self.barrier(context)?,
            OpKind::Signal | OpKind::RelaxedSignal => {
                // What goes through a proxy is ordered there.
                let release = context.op.kind == OpKind::Signal || context.port();
                for &id in &context.op.channel_ids {
                    self.signal(context, context.channel(id)?, release);
                }
            }
            OpKind::Wait | OpKind::RelaxedWait => {
                let acquire = context.op.kind == OpKind::Wait || context.port();
                for &id in &context.op.channel_ids {
                    let channel = context.channel(id)?;
                    self.push(context, Instruction::Wait { channel, acquire });
                }
            }
            OpKind::SemaphoreAcquire | OpKind::SemaphoreRelease => {
                for &id in &context.op.semaphore_ids {
                    let count = self.layout.semaphores.len();
                    let semaphore = u32::try_from(id).ok().filter(|&id| (id as usize) < count);
                    let semaphore = semaphore.ok_or_else(|| {
                        context.malformed(format!("saw semaphore {id}, allowed 0..{count}"))
                    })?;
                    self.push(
                        context,
                        if context.op.kind == OpKind::SemaphoreAcquire {
                            Instruction::Acquire { semaphore }
                        } else {
                            Instruction::Release { semaphore }
                        },
                    );
                }
            }
            OpKind::Flush if context.port() => {
                for &id in &context.op.channel_ids {
                    let channel = context.channel(id)?;
                    self.push(context, Instruction::Flush { channel });
                }
            }
            OpKind::Put | OpKind::PutPackets | OpKind::ReadPutPackets if context.port() => {
                self.posts(context)?;
            }
            OpKind::PutWithSignal | OpKind::PutWithSignalAndFlush if context.port() => {
                self.posts(context)?;
            }
            OpKind::Put | OpKind::Get | OpKind::PutPackets => {
                context.arity(src.len() == dst.len(), "as many of one as of the other")?;
                for (src, dst) in raw(src).zip(dst) {
                    let packets = context.op.kind == OpKind::PutPackets;
                    self.movement(context, [src], [Side { chunk: dst, packets }])?;
                }
            }
            OpKind::Copy => {
                context.arity(single, "one of each")?;
                self.movement(context, raw(src), raw(dst))?;
            }
            OpKind::PutBlocks | OpKind::GetBlocks | OpKind::CopyBlocks => {
                context.arity(src.len() == dst.len(), "as many of one as of the other")?;
                for (src, dst) in src.iter().zip(dst) {
                    self.block_move(context, src, dst)?;
                }
            }
            OpKind::CopyPackets => {
                context.arity(single, "one of each")?;
                self.movement(context, raw(src), packets(dst))?;
            }
            OpKind::UnpackPackets => {
                context.arity(single, "one of each")?;
                self.movement(context, packets(src), raw(dst))?;
            }
            OpKind::ReadPutPackets => {
                context.arity(
                    !dst.is_empty() && (src.len() == 1 || src.len() == dst.len()),
                    "one source, or as many as destinations",
                )?;
                if src.len() == 1 {
                    self.movement(context, packets(src), packets(dst))?;
                } else {
                    for (src, dst) in packets(src).zip(packets(dst)) {
                        self.movement(context, [src], [dst])?;
                    }
                }
            }
            OpKind::Reduce | OpKind::ReduceSend | OpKind::ReadReduce | OpKind::ReadReduceSend => {
                context.arity(!src.is_empty() && !dst.is_empty(), "at least one of each")?;
                self.movement(context, raw(src), raw(dst))?;
            }
            OpKind::ReducePackets
            | OpKind::ReduceSendPackets
            | OpKind::ReduceCopyPackets
            | OpKind::ReduceCopySendPackets => {
                context.arity(!src.is_empty() && !dst.is_empty(), "at least one of each")?;
                // The format adds the packets in list order and the raw chunk last.
                self.movement(
                    context,
                    packets(&src[1..]).chain(raw(&src[..1])),
                    raw(&dst[..1]).chain(packets(&dst[1..])),
                )?;
            }
            OpKind::GroupLoadReduce | OpKind::GroupLoadReduceStore | OpKind::GroupStore => {
                context.arity(single, "one of each")?;
                self.movement(context, raw(src), raw(dst))?;
            }
            OpKind::GroupStorePackets => {
                context.arity(single, "one of each")?;
                self.movement(context, packets(src), packets(dst))?;
            }
            OpKind::Pipeline => {
                return Err(context.malformed("saw a pipeline inside a pipeline"));
            }
            OpKind::Flush | OpKind::PutWithSignal | OpKind::PutWithSignalAndFlush => {
                let saw = context.op.channel_type;
                return Err(context.malformed(format!("saw channel type `{saw}`, allowed `port`")));
            }
        }
        Ok(())
    }

    pub(super) fn signal(&mut self, context: &Context<'_>, channel: u32, release: bool) {
        let tb = context.site.tb;
        if *self.signallers.entry(channel).or_insert(tb) != tb {
            self.layout.channels[channel as usize].single_signaller = false;
        }
        self.push(context, Instruction::Signal { channel, release });
    }

    fn barrier(&mut self, context: &Context<'_>) -> Result<(), LowerError> {
        let (Some(id), Some(blocks)) = (context.op.barrier_id, context.op.num_threadblocks) else {
            return Err(context.malformed("saw no barrier id or number of thread blocks"));
        };
        let count = u32::try_from(blocks).ok().filter(|&count| count > 0);
        let count = count.ok_or_else(|| {
            context.malformed(format!("saw a barrier of {blocks} blocks, allowed 1 or more"))
        })?;
        if count == 1 {
            self.push(context, Instruction::BlockSync);
            return Ok(());
        }
        let next = self.layout.barriers.len() as u32;
        let barrier = *self.barriers.entry(id).or_insert(next);
        if barrier == next {
            self.layout.barriers.push(count);
        }
        let known = self.layout.barriers[barrier as usize];
        if known != count {
            return Err(context.malformed(format!(
                "saw barrier {id} of {count} blocks, but another block says {known}"
            )));
        }
        self.push(context, Instruction::Barrier { barrier, blocks: count });
        Ok(())
    }

    /// The rank and the buffer that a reference to one buffer means.
    pub(super) fn owner(
        &self,
        context: &Context<'_>,
        base: RefBase,
    ) -> Result<(u32, Buffer), LowerError> {
        match base {
            RefBase::Local(buffer) => Ok((self.rank, buffer)),
            RefBase::Remote(id) if context.op.channel_type == ChannelType::Memory => {
                context.local(&context.tables.remote, id, "remote buffer")
            }
            RefBase::Remote(id) if context.port() => {
                context.local(&context.tables.remote_port, id, "remote buffer")
            }
            RefBase::Remote(_) => {
                let saw = context.op.channel_type;
                Err(context.malformed(format!(
                    "saw channel type `{saw}` with a remote chunk, allowed `memory` and `port`"
                )))
            }
            RefBase::Switch(_) => Err(context.malformed("saw chunks of a switch channel")),
        }
    }

    pub(super) fn movement<'a>(
        &mut self,
        context: &Context<'_>,
        sources: impl IntoIterator<Item = Side<'a>>,
        destinations: impl IntoIterator<Item = Side<'a>>,
    ) -> Result<(), LowerError> {
        let Sides { sources, destinations, multicast, index } =
            self.sides(context, sources, destinations)?;
        let reduce = context.op.reduce_op.unwrap_or(ReduceOp::Sum);
        self.push(context, Instruction::Move { sources, destinations, reduce, multicast, index });
        Ok(())
    }

    /// Numbers the sides of a transfer, and notes what it covers for the second step.
    pub(super) fn sides<'a>(
        &mut self,
        context: &Context<'_>,
        sources: impl IntoIterator<Item = Side<'a>>,
        destinations: impl IntoIterator<Item = Side<'a>>,
    ) -> Result<Sides, LowerError> {
        let mut no_destination = true;
        let mut size = None;
        let mut multicast = None;
        let mut any_packets = false;
        let mut side = |this: &mut Self, side: Side<'a>| {
            any_packets |= side.packets;
            let expected = *size.get_or_insert(side.chunk.size);
            if side.chunk.size != expected {
                let saw = side.chunk.size;
                return Err(context.malformed(format!(
                    "saw references of {expected} and {saw} chunks, allowed equal ones"
                )));
            }
            if let RefBase::Switch(id) = side.chunk.base {
                let switch = context.local(&context.tables.switch, id, "switch channel")?;
                multicast = multicast.or(Some(switch));
                let Switch { members, area } = &this.layout.switches[switch as usize];
                let area = packet_area(context, *area, side.packets)?;
                for &rank in members {
                    this.layout.accesses.push(Access { rank, area });
                    this.geometry.first.push(side.chunk.index);
                }
                return Ok(());
            }
            let (rank, buffer) = this.owner(context, side.chunk.base)?;
            let area = packet_area(context, area_of(buffer), side.packets)?;
            this.layout.accesses.push(Access { rank, area });
            this.geometry.first.push(side.chunk.index);
            Ok(())
        };
        let start = self.layout.accesses.len() as u32;
        for source in sources {
            side(self, source)?;
        }
        let middle = self.layout.accesses.len() as u32;
        for destination in destinations {
            no_destination = false;
            side(self, destination)?;
        }
        let end = self.layout.accesses.len() as u32;
        if start == middle || (middle == end && !no_destination) {
            return Err(context.malformed("saw a switch channel without members"));
        }
        let (part, parts) = context.slice()?;
        if let Some(index) = self.current_loop {
            self.geometry.loops[index as usize].packets |= any_packets;
        }
        let index = self.geometry.moves.len() as u32;
        self.geometry.moves.push(MoveGeometry {
            accesses: Span { start, end },
            size: size.unwrap_or(0),
            part,
            parts,
            cuts: Span::default(),
            packets: any_packets,
            in_loop: self.current_loop,
            instruction: self.layout.instructions.len() as u32,
        });
        Ok(Sides {
            sources: Span { start, end: middle },
            destinations: Span { start: middle, end },
            multicast,
            index,
        })
    }

    pub(super) fn push(&mut self, context: &Context<'_>, instruction: Instruction) {
        let Site { op, inner, kind, .. } = context.site;
        self.layout.instructions.push(instruction);
        self.layout.origins.push(Origin { op, inner, kind });
    }

    fn finish(mut self) -> (RankLayout, RankGeometry) {
        self.layout.moves = self.geometry.moves.len() as u32;
        self.layout.loops = self.geometry.loops.len() as u32;
        let (mut buffers, mut scratch) = (BTreeSet::new(), BTreeSet::new());
        for access in &self.layout.accesses {
            match access.area {
                Area::Input | Area::Output => buffers.insert(access.rank),
                Area::Scratch | Area::Packets => scratch.insert(access.rank),
            };
        }
        for BlockMove { source, destination, .. } in &self.layout.block_moves {
            buffers.extend([source.rank, destination.rank]);
        }
        scratch.extend(self.signallers.keys().map(|&id| self.layout.channels[id as usize].peer));
        buffers.remove(&self.rank);
        scratch.remove(&self.rank);
        self.layout.buffer_peers = buffers.into_iter().collect();
        self.layout.scratch_peers = scratch.into_iter().collect();
        order::strengthen(&mut self.layout);
        (self.layout, self.geometry)
    }
}

/// The area of a reference that may mean packets, which live in scratch only.
fn packet_area(context: &Context<'_>, area: Area, packets: bool) -> Result<Area, LowerError> {
    match (packets, area) {
        (false, area) => Ok(area),
        (true, Area::Scratch | Area::Packets) => Ok(Area::Packets),
        (true, _) => Err(context.malformed("saw packets in an input or output, allowed scratch")),
    }
}
