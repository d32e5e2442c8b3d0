//! Operations that move data.

use super::calls::call;
use super::{Channel, Chunk, Misuse, On, Program, Switch};
use crate::model::{Buffer, ChannelType, ChunkRef, GroupSlice, Op, OpKind, RefBase};
use crate::passes::{DataSync, Step};
use antiphon_types::ReduceOp;

/// A channel's operations that take one source and one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Own chunks to the peer's.
    Put,
    /// The peer's chunks to own ones.
    Get,
    /// Own raw chunks to packets in the peer's scratch.
    PutPackets,
    /// Own packets to packets in the peer's scratch.
    ReadPutPackets,
    /// Own chunks to the peer's, then a signal.
    PutWithSignal,
    /// Own chunks to the peer's, then a signal, then a flush.
    PutWithSignalAndFlush,
}

impl Transfer {
    /// The operation, in a program with runtime sizes or without.
    fn kind_for(self, runtime_sizes: bool) -> Option<OpKind> {
        match self {
            Transfer::Put if runtime_sizes => Some(OpKind::PutBlocks),
            Transfer::Get if runtime_sizes => Some(OpKind::GetBlocks),
            _ if runtime_sizes => None,
            other => Some(other.kind()),
        }
    }

    fn kind(self) -> OpKind {
        match self {
            Transfer::Put => OpKind::Put,
            Transfer::Get => OpKind::Get,
            Transfer::PutPackets => OpKind::PutPackets,
            Transfer::ReadPutPackets => OpKind::ReadPutPackets,
            Transfer::PutWithSignal => OpKind::PutWithSignal,
            Transfer::PutWithSignalAndFlush => OpKind::PutWithSignalAndFlush,
        }
    }
}

/// What an operation reads or writes: chunks of some rank, or of every member of a switch channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    /// Chunks of one rank.
    Chunk(Chunk),
    /// Chunks of every member, by the rank's number of the channel.
    Switch { id: u64, index: u64, size: u64 },
}

/// When it is checked that every member's buffer has the chunks of a switch operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembersChecked {
    /// At the call: scratch must have been handed out before.
    Now,
    /// When the program is finished.
    AtEnd,
}

impl Program {
    /// Copies own chunks to the peer's.
    ///
    /// # Errors
    /// As [`transfer`](Self::transfer).
    pub fn put(&mut self, over: Channel, to: Chunk, from: Chunk, on: On<'_>) -> Result<(), Misuse> {
        self.transfer(Transfer::Put, over, to, from, on)
    }

    /// Moves chunks over a channel.
    ///
    /// # Errors
    /// Chunks of other ranks than the channel's, outside their buffers or of different sizes; packets outside
    /// scratch; what the channel's type or a program with runtime sizes cannot do; [`Misuse::NoBlock`].
    pub fn transfer(
        &mut self,
        what: Transfer,
        over: Channel,
        to: Chunk,
        from: Chunk,
        on: On<'_>,
    ) -> Result<(), Misuse> {
        let Some(op) = what.kind_for(self.settings.runtime_sizes) else {
            return Err(Misuse::RuntimeCall { call: call(what.kind()) });
        };
        self.transferable(what, op, over, to, from)?;
        self.each_block(on, over.source, |program, block, slice| {
            program.append_transfer(op, over, to, from, (block, slice));
            Ok(())
        })
    }

    /// As [`transfer`](Self::transfer), by one block for its slice.
    pub(crate) fn transfer_slice(
        &mut self,
        what: Transfer,
        over: Channel,
        to: Chunk,
        from: Chunk,
        (block, slice): (u64, Option<GroupSlice>),
    ) -> Result<(), Misuse> {
        let Some(op) = what.kind_for(self.settings.runtime_sizes) else {
            return Err(Misuse::RuntimeCall { call: call(what.kind()) });
        };
        self.transferable(what, op, over, to, from)?;
        self.known_block(over.source, block)?;
        self.append_transfer(op, over, to, from, (block, slice));
        Ok(())
    }

    /// Checks a transfer, and counts the signal that it brings.
    fn transferable(
        &mut self,
        what: Transfer,
        op: OpKind,
        over: Channel,
        to: Chunk,
        from: Chunk,
    ) -> Result<(), Misuse> {
        let runtime_sizes = self.settings.runtime_sizes;
        self.owns_channel(over)?;
        if runtime_sizes && over.kind != ChannelType::Memory {
            return Err(Misuse::ChannelType { call: call(op), channel: over.kind });
        }
        let port_only = matches!(what, Transfer::PutWithSignal | Transfer::PutWithSignalAndFlush);
        if (port_only && over.kind != ChannelType::Port)
            || (what == Transfer::Get && over.kind == ChannelType::Port)
        {
            return Err(Misuse::ChannelType { call: call(op), channel: over.kind });
        }
        let (far, near) = if what == Transfer::Get { (from, to) } else { (to, from) };
        let (near_side, far_side) = match what {
            Transfer::Get => ("destination", "source"),
            _ => ("source", "destination"),
        };
        self.owned(op, over.source, near_side, near, over.source)?;
        self.owned(op, over.source, far_side, far, over.destination)?;
        same_size(op, from, to)?;
        self.writable(to)?;
        match what {
            Transfer::PutPackets => in_scratch(op, to)?,
            Transfer::ReadPutPackets => {
                in_scratch(op, to)?;
                in_scratch(op, from)?;
            }
            _ => {}
        }
        if port_only {
            self.count_signal(over);
        }
        Ok(())
    }

    fn append_transfer(
        &mut self,
        op: OpKind,
        over: Channel,
        to: Chunk,
        from: Chunk,
        (block, slice): (u64, Option<GroupSlice>),
    ) {
        let mut step = Op::new(op);
        step.channel_type = over.kind;
        step.group = slice;
        let local = self.local_channel(over, block);
        if over.kind == ChannelType::Port || op == OpKind::Get {
            step.channel_ids = vec![local];
        }
        step.src = self.references(over.source, block, over.kind, from);
        step.dst = self.references(over.source, block, over.kind, to);
        self.push(over.source, block, Step::new(step));
    }

    /// Copies chunks within a rank (`copy`), packs them into scratch (`cpkt`) or unpacks them from it (`upkt`).
    ///
    /// # Errors
    /// Chunks of another rank, outside their buffers or of different sizes; packets outside scratch;
    /// [`Misuse::NoBlock`].
    pub fn copy(
        &mut self,
        op: OpKind,
        rank: i64,
        to: Chunk,
        from: Chunk,
        on: On<'_>,
    ) -> Result<(), Misuse> {
        let rank = self.rank(rank)?;
        let runtime_sizes = self.settings.runtime_sizes;
        let op = if runtime_sizes && op == OpKind::Copy { OpKind::CopyBlocks } else { op };
        if !op.moves_blocks() {
            self.fixed_call(op)?;
        }
        self.owned(op, rank, "destination", to, rank)?;
        self.owned(op, rank, "source", from, rank)?;
        same_size(op, from, to)?;
        self.writable(to)?;
        match op {
            OpKind::CopyPackets => in_scratch(op, to)?,
            OpKind::UnpackPackets => in_scratch(op, from)?,
            _ => {}
        }
        self.each_block(on, rank, |program, block, slice| {
            let mut step = Op::new(op);
            step.group = slice;
            step.src = program.references(rank, block, ChannelType::None, from);
            step.dst = program.references(rank, block, ChannelType::None, to);
            program.push(rank, block, Step::new(step));
            Ok(())
        })
    }

    /// Reduces `from` and `others`, all of one rank, into `to`. With `packets`, the others are packets in scratch.
    ///
    /// # Errors
    /// Chunks of another rank, outside their buffers or of different sizes; no others; packets outside scratch;
    /// [`Misuse::NoBlock`].
    #[allow(clippy::too_many_arguments)]
    pub fn reduce(
        &mut self,
        rank: i64,
        to: Chunk,
        from: Chunk,
        others: &[Chunk],
        reduce_op: ReduceOp,
        packets: bool,
        on: On<'_>,
    ) -> Result<(), Misuse> {
        let op = if packets { OpKind::ReducePackets } else { OpKind::Reduce };
        let rank = self.rank(rank)?;
        self.fixed_call(op)?;
        self.reducible(op, rank, to, from, others, rank)?;
        if packets {
            others.iter().try_for_each(|&other| in_scratch(op, other))?;
        }
        self.each_block(on, rank, |program, block, slice| {
            let mut step = Op::new(op);
            step.group = slice;
            step.reduce_op = Some(reduce_op);
            step.src = std::iter::once(from).chain(others.iter().copied()).map(local).collect();
            step.dst = vec![local(to)];
            program.push(rank, block, Step::new(step));
            Ok(())
        })
    }

    /// Reduces own chunks and chunks of the peer into own ones.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce), and [`Misuse::ChannelType`] for port channels.
    pub fn read_reduce(
        &mut self,
        over: Channel,
        to: Chunk,
        from: Chunk,
        others: &[Chunk],
        reduce_op: ReduceOp,
        on: On<'_>,
    ) -> Result<(), Misuse> {
        let op = OpKind::ReadReduce;
        self.owns_channel(over)?;
        self.fixed_call(op)?;
        if over.kind != ChannelType::Memory {
            return Err(Misuse::ChannelType { call: call(op), channel: over.kind });
        }
        self.reducible(op, over.source, to, from, others, over.destination)?;
        self.each_block(on, over.source, |program, block, slice| {
            let mut step = Op::new(op);
            step.channel_type = ChannelType::Memory;
            step.group = slice;
            step.reduce_op = Some(reduce_op);
            program.local_channel(over, block);
            step.src = Vec::with_capacity(1 + others.len());
            step.src.push(local(from));
            for &other in others {
                step.src.push(program.reference(over.source, block, ChannelType::Memory, other));
            }
            step.dst = vec![local(to)];
            program.push(over.source, block, Step::new(step));
            Ok(())
        })
    }

    /// Reduces the chunks at `offset` of every member into `to` of one of them.
    ///
    /// # Errors
    /// A rank that is no member, a chunk of another rank or size, chunks outside a member's buffer;
    /// [`Misuse::NoBlock`].
    #[allow(clippy::too_many_arguments)]
    pub fn switch_reduce(
        &mut self,
        switch: &Switch,
        rank: i64,
        offset: u64,
        size: u64,
        to: Chunk,
        reduce_op: ReduceOp,
        checked: MembersChecked,
        on: On<'_>,
    ) -> Result<(), Misuse> {
        let op = OpKind::GroupLoadReduce;
        let (rank, id) = self.member(switch, rank)?;
        self.fixed_call(op)?;
        self.owned(op, rank, "destination", to, rank)?;
        self.switch_chunks(op, switch, offset, size, to.size, checked)?;
        self.each_block(on, rank, |program, block, slice| {
            let mut step = Op::new(op);
            step.channel_type = ChannelType::Switch;
            step.group = slice;
            step.reduce_op = Some(reduce_op);
            step.src = vec![program.multicast(rank, block, id, offset, size)];
            step.dst = vec![local(to)];
            program.push(rank, block, Step::new(step));
            Ok(())
        })
    }

    /// Stores own chunks at `offset` of every member. With `packets`, own packets, as packets.
    ///
    /// # Errors
    /// As [`switch_reduce`](Self::switch_reduce), and packets outside scratch.
    #[allow(clippy::too_many_arguments)]
    pub fn switch_store(
        &mut self,
        switch: &Switch,
        rank: i64,
        from: Chunk,
        offset: u64,
        size: u64,
        packets: bool,
        checked: MembersChecked,
        on: On<'_>,
    ) -> Result<(), Misuse> {
        let op = if packets { OpKind::GroupStorePackets } else { OpKind::GroupStore };
        let (rank, id) = self.member(switch, rank)?;
        self.fixed_call(op)?;
        self.owned(op, rank, "source", from, rank)?;
        if packets {
            in_scratch(op, from)?;
            if switch.buffer != Buffer::Scratch {
                return Err(Misuse::NotScratch { call: call(op), buffer: switch.buffer });
            }
        }
        self.switch_chunks(op, switch, offset, size, from.size, checked)?;
        self.each_block(on, rank, |program, block, slice| {
            let mut step = Op::new(op);
            step.channel_type = ChannelType::Switch;
            step.group = slice;
            step.src = vec![local(from)];
            step.dst = vec![program.multicast(rank, block, id, offset, size)];
            program.push(rank, block, Step::new(step));
            Ok(())
        })
    }

    /// Appends an operation whose operands the caller has checked, of any kind that moves data over memory or switch
    /// channels. No channel is entered in the block's tables: loads and stores need none.
    pub(crate) fn operation(
        &mut self,
        (rank, block, slice): (u64, u64, Option<GroupSlice>),
        kind: OpKind,
        (sources, destinations): (&[Operand], &[Operand]),
        reduce_op: Option<ReduceOp>,
    ) -> Result<(), Misuse> {
        self.known_block(rank, block)?;
        let mut op = Op::new(kind);
        op.src = sources.iter().map(|&o| self.operand(rank, block, o)).collect();
        op.dst = destinations.iter().map(|&o| self.operand(rank, block, o)).collect();
        let refs = || op.src.iter().chain(&op.dst);
        if refs().any(|r| matches!(r.base, RefBase::Switch(_))) {
            op.channel_type = ChannelType::Switch;
        } else if refs().any(|r| matches!(r.base, RefBase::Remote(_))) {
            op.channel_type = ChannelType::Memory;
        }
        op.group = slice;
        op.reduce_op = reduce_op;
        self.push(rank, block, Step::new(op));
        Ok(())
    }

    fn operand(&mut self, rank: u64, block: u64, operand: Operand) -> ChunkRef {
        match operand {
            Operand::Chunk(chunk) => self.reference(rank, block, ChannelType::Memory, chunk),
            Operand::Switch { id, index, size } => self.multicast(rank, block, id, index, size),
        }
    }

    fn reducible(
        &self,
        op: OpKind,
        rank: u64,
        to: Chunk,
        from: Chunk,
        others: &[Chunk],
        others_owner: u64,
    ) -> Result<(), Misuse> {
        self.owned(op, rank, "source", from, rank)?;
        self.owned(op, rank, "destination", to, rank)?;
        if others.is_empty() {
            return Err(Misuse::NoOthers { call: call(op) });
        }
        same_size(op, from, to)?;
        for &other in others {
            self.owned(op, rank, "source", other, others_owner)?;
            same_size(op, from, other)?;
        }
        Ok(())
    }

    /// Checks that a chunk is `allowed`'s and inside its buffer.
    fn owned(
        &self,
        op: OpKind,
        rank: u64,
        side: &'static str,
        chunk: Chunk,
        allowed: u64,
    ) -> Result<(), Misuse> {
        let Chunk { rank: owner, buffer, index, .. } = chunk;
        if owner != allowed {
            return Err(Misuse::Owner { call: call(op), rank, side, owner, allowed });
        }
        self.chunk(owner, buffer, index..chunk.end()).map(drop)
    }

    fn switch_chunks(
        &mut self,
        op: OpKind,
        switch: &Switch,
        offset: u64,
        size: u64,
        other: u64,
        checked: MembersChecked,
    ) -> Result<(), Misuse> {
        if size != other {
            return Err(Misuse::Sizes { call: call(op), first: size, other });
        }
        for rank in switch.ranks() {
            let chunk = Chunk { rank, buffer: switch.buffer, index: offset, size };
            match checked {
                MembersChecked::Now => drop(self.chunk(rank, chunk.buffer, offset..chunk.end())?),
                MembersChecked::AtEnd => self.deferred.push(chunk),
            }
        }
        Ok(())
    }

    /// The rank and its number of a switch channel.
    pub(crate) fn member(&self, switch: &Switch, rank: i64) -> Result<(u64, u64), Misuse> {
        let rank = self.rank(rank)?;
        let member = switch.members.iter().copied().find(|&(member, _)| member == rank);
        let known = |&(rank, id): &(u64, u64)| {
            let tables = self.ranks.get(rank as usize);
            tables.is_some_and(|tables| (id as usize) < tables.switches.len())
        };
        member.filter(known).ok_or_else(|| Misuse::NotMine {
            what: "switch channel",
            rank,
            owners: switch.ranks().collect(),
        })
    }

    /// Runs `each` for every block of `on`, with its slice.
    fn each_block(
        &mut self,
        on: On<'_>,
        rank: u64,
        mut each: impl FnMut(&mut Self, u64, Option<GroupSlice>) -> Result<(), Misuse>,
    ) -> Result<(), Misuse> {
        on.each(|block, slice| {
            self.known_block(rank, block)?;
            each(self, block, slice)
        })
    }

    pub(super) fn known_block(&mut self, rank: u64, block: u64) -> Result<(), Misuse> {
        if block >= MOST {
            return Err(Misuse::Block { block: i64::try_from(block).unwrap_or(i64::MAX) });
        }
        self.ranks[rank as usize].block(block);
        Ok(())
    }

    /// The block-local id of a channel.
    pub(super) fn local_channel(&mut self, channel: Channel, block: u64) -> u64 {
        let tables = self.ranks[channel.source as usize].block(block);
        tables.channels(channel.kind).local(channel.id)
    }

    /// How a block of `rank` names a chunk.
    fn reference(&mut self, rank: u64, block: u64, access: ChannelType, chunk: Chunk) -> ChunkRef {
        if chunk.rank == rank {
            return local(chunk);
        }
        let tables = &mut self.ranks[rank as usize];
        let id = tables.remote_buffer(chunk.rank, chunk.buffer, access);
        let local = tables.block(block).remote_buffers(access).local(id);
        ChunkRef { base: RefBase::Remote(local), index: chunk.index, size: chunk.size }
    }

    /// How a block of `rank` names a run of chunks: by one reference, or by one for each runtime block.
    fn references(
        &mut self,
        rank: u64,
        block: u64,
        access: ChannelType,
        chunk: Chunk,
    ) -> Vec<ChunkRef> {
        let whole = self.reference(rank, block, access, chunk);
        if !self.settings.runtime_sizes {
            return vec![whole];
        }
        let blocks = chunk.index..chunk.end();
        blocks.map(|index| ChunkRef { base: whole.base, index, size: 1 }).collect()
    }

    /// Refuses an operation that needs chunks of equal size in a program with runtime sizes.
    fn fixed_call(&self, op: OpKind) -> Result<(), Misuse> {
        match self.settings.runtime_sizes {
            true => Err(Misuse::RuntimeCall { call: call(op) }),
            false => Ok(()),
        }
    }

    /// Checks that runtime blocks are written in outputs only.
    fn writable(&self, to: Chunk) -> Result<(), Misuse> {
        if to.buffer == Buffer::Output { Ok(()) } else { self.fixed_sizes("write to an input") }
    }

    /// How a block of `rank` names chunks of every member of a switch channel.
    fn multicast(&mut self, rank: u64, block: u64, id: u64, index: u64, size: u64) -> ChunkRef {
        let local = self.ranks[rank as usize].block(block).switch.local(id);
        ChunkRef { base: RefBase::Switch(local), index, size }
    }

    /// Appends a step to a block, or to its part of the open pipeline.
    pub(super) fn push(&mut self, rank: u64, block: u64, step: Step) {
        debug_assert!(step.carries_data_sync() || step.sync == DataSync::NONE);
        self.remember_runs(rank, block, &step.op);
        let steps = &mut self.ranks[rank as usize].block(block).steps;
        if let Some(pipeline) = &mut self.pipeline
            && !steps.is_open()
        {
            steps.open();
            pipeline.blocks.push((rank, block));
        }
        self.report.recorded += step.operations();
        self.report.meetings_recorded += step.meetings();
        steps.push(step, self.settings.fusing(), &mut self.report);
    }
}

const MOST: u64 = super::MOST_BLOCKS as u64;

fn local(chunk: Chunk) -> ChunkRef {
    ChunkRef { base: RefBase::Local(chunk.buffer), index: chunk.index, size: chunk.size }
}

fn same_size(op: OpKind, first: Chunk, other: Chunk) -> Result<(), Misuse> {
    if first.size == other.size {
        return Ok(());
    }
    Err(Misuse::Sizes { call: call(op), first: first.size, other: other.size })
}

fn in_scratch(op: OpKind, chunk: Chunk) -> Result<(), Misuse> {
    if chunk.buffer == Buffer::Scratch {
        return Ok(());
    }
    Err(Misuse::NotScratch { call: call(op), buffer: chunk.buffer })
}
