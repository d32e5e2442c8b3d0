//! The methods of references.

use super::chunk::{Buffer, Ref, Target};
use super::operation::What;
use super::slots::Slot;
use super::{Misuse, Program};
use crate::dsl::{self, Transfer};
use crate::model::{ChannelType, OpKind};
use std::collections::BTreeSet;

/// What a reference that is put as packets holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Raw data, which becomes packets on the way.
    #[default]
    Raw,
    /// Packets, which are forwarded.
    Packet,
}

impl Program {
    /// Copies `from` to rank `to`. The result is the run there.
    ///
    /// # Errors
    /// The same rank on both sides, chunks that hold nothing, packets, or do not exist, no block, other channels than
    /// memory and port, ranks without a link.
    pub fn put(
        &mut self,
        from: Ref,
        to: i64,
        at: Target,
        block: i64,
        kind: ChannelType,
    ) -> Result<Ref, Misuse> {
        let (op, block) = ("put", self::block("put", block)?);
        peer_channel(op, kind)?;
        let from = self.own(from)?;
        let peer = self.peer("put to", from, to)?;
        let to = self.target(op, from, peer, at)?;
        self.read(op, from, Slot::Raw)?;
        self.write(to, Slot::Raw);
        self.push(from.rank, block, What::Transfer { transfer: Transfer::Put, kind, from, to });
        Ok(to)
    }

    /// Copies `from` to rank `to` as packets. Over a port channel, raw data is first packed into `temporary`, in the
    /// rank's own scratch. The result is the run there.
    ///
    /// # Errors
    /// As [`put`](Self::put); a target outside scratch; [`Misuse::NoTemporary`].
    #[allow(clippy::too_many_arguments)]
    pub fn put_packet(
        &mut self,
        from: Ref,
        to: i64,
        at: Target,
        block: i64,
        format: Format,
        kind: ChannelType,
        temporary: Option<Target>,
    ) -> Result<Ref, Misuse> {
        let op = "put_packet";
        let tb = self::block(op, block)?;
        peer_channel(op, kind)?;
        let mut from = self.own(from)?;
        let peer = self.peer("put to", from, to)?;
        let rank = from.rank;
        let to = self.target(op, from, peer, at)?;
        self.packets_fit(op, to)?;
        let transfer = match format {
            Format::Raw => {
                self.read(op, from, Slot::Raw)?;
                Transfer::PutPackets
            }
            Format::Packet => {
                self.packets_fit(op, from)?;
                self.read(op, from, Slot::Packets)?;
                Transfer::ReadPutPackets
            }
        };
        if format == Format::Raw && kind == ChannelType::Port {
            let at = temporary.filter(|at| at.buffer.is_some()).ok_or(Misuse::NoTemporary)?;
            let packed = self.target(op, from, rank, at)?;
            self.packets_fit(op, packed)?;
            self.write(packed, Slot::Packets);
            self.push(rank, tb, What::Copy { op: OpKind::CopyPackets, from, to: packed });
            from = packed;
        }
        self.write(to, Slot::Packets);
        self.push(rank, tb, What::Transfer { transfer, kind, from, to });
        Ok(to)
    }

    /// Copies chunks of rank `from` to the run `to`.
    ///
    /// # Errors
    /// The same rank on both sides, chunks that do not exist, no block, other channels than memory, ranks without a
    /// link.
    pub fn get(
        &mut self,
        to: Ref,
        from: i64,
        at: Target,
        block: i64,
        kind: ChannelType,
    ) -> Result<(), Misuse> {
        let (op, block) = ("get", self::block("get", block)?);
        only(op, kind, ChannelType::Memory, "memory")?;
        let to = self.own(to)?;
        let peer = self.peer("get from", to, from)?;
        let from = self.target(op, to, peer, at)?;
        self.slots[peer as usize].reach(&from);
        self.write(to, Slot::Raw);
        let transfer = Transfer::Get;
        self.push(to.rank, block, What::Transfer { transfer, kind, from, to });
        Ok(())
    }

    /// Tells rank `to` that `chunk`, and all that the block did before, is done.
    ///
    /// # Errors
    /// The same rank on both sides, no block, other channels than memory and port, ranks without a link.
    pub fn signal(
        &mut self,
        chunk: Ref,
        to: i64,
        at: Target,
        block: i64,
        kind: ChannelType,
    ) -> Result<(), Misuse> {
        let (op, block) = ("signal", self::block("signal", block)?);
        peer_channel(op, kind)?;
        let from = self.own(chunk)?;
        let peer = self.peer("signal to", from, to)?;
        let to = self.far(from, peer, at);
        self.push(from.rank, block, What::Signal { kind, from, to });
        Ok(())
    }

    /// Waits until what rank `from` signals for `chunk` has arrived.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    pub fn wait(
        &mut self,
        chunk: Ref,
        from: i64,
        at: Target,
        block: i64,
        kind: ChannelType,
    ) -> Result<(), Misuse> {
        let (op, block) = ("wait", self::block("wait", block)?);
        peer_channel(op, kind)?;
        let to = self.own(chunk)?;
        let peer = self.peer("wait on", to, from)?;
        let from = self.far(to, peer, at);
        self.write(to, Slot::Arrived);
        self.push(to.rank, block, What::Wait { kind, from, to });
        Ok(())
    }

    /// Waits until what was sent over the port channel to rank `to` has left.
    ///
    /// # Errors
    /// As [`signal`](Self::signal), and [`Misuse::ChannelType`] for memory channels.
    pub fn flush(
        &mut self,
        chunk: Ref,
        to: i64,
        at: Target,
        block: i64,
        kind: ChannelType,
    ) -> Result<(), Misuse> {
        let (op, block) = ("flush", self::block("flush", block)?);
        only(op, kind, ChannelType::Port, "port: Only port channel can use flush")?;
        let from = self.own(chunk)?;
        let peer = self.peer("flush to", from, to)?;
        let to = self.far(from, peer, at);
        self.push(from.rank, block, What::Flush { from, to });
        Ok(())
    }

    /// Copies `from` within its rank. The result is the copy; none if it is `from` itself, which is not copied.
    ///
    /// # Errors
    /// [`Misuse::OtherRank`], chunks that hold nothing, packets, or do not exist, no block.
    pub fn copy(
        &mut self,
        from: Ref,
        rank: i64,
        at: Target,
        block: i64,
    ) -> Result<Option<Ref>, Misuse> {
        self.copied("copy", OpKind::Copy, Slot::Raw, from, (rank, at), block)
    }

    /// Unpacks the packets `from` within their rank. The result is the copy.
    ///
    /// # Errors
    /// As [`copy`](Self::copy), with raw data for packets; a source outside scratch.
    pub fn copy_packet(
        &mut self,
        from: Ref,
        rank: i64,
        at: Target,
        block: i64,
    ) -> Result<Option<Ref>, Misuse> {
        self.packets_fit("copy_packet", from)?;
        let to = (rank, at);
        self.copied("copy_packet", OpKind::UnpackPackets, Slot::Packets, from, to, block)
    }

    fn copied(
        &mut self,
        op: &'static str,
        kind: OpKind,
        holds: Slot,
        from: Ref,
        (rank, at): (i64, Target),
        block: i64,
    ) -> Result<Option<Ref>, Misuse> {
        let block = self::block(op, block)?;
        let from = self.own(from)?;
        let rank = self.rank(rank)?;
        if rank != from.rank {
            let (other, instead) = (rank, "put or put_packet");
            return Err(Misuse::OtherRank { op, rank: from.rank, other, instead });
        }
        let to = self.target(op, from, rank, at)?;
        if to == from {
            return Ok(None);
        }
        self.read(op, from, holds)?;
        self.write(to, Slot::Raw);
        self.push(rank, block, What::Copy { op: kind, from, to });
        Ok(Some(to))
    }

    /// Adds `other` to `to`; if it is of another rank, by reading it. The result is `to`.
    ///
    /// # Errors
    /// Runs of different sizes, chunks that hold nothing, packets, or do not exist, no block, other channels than
    /// memory, ranks without a link.
    pub fn reduce(
        &mut self,
        to: Ref,
        other: Ref,
        block: i64,
        kind: ChannelType,
    ) -> Result<Ref, Misuse> {
        let (op, block) = ("reduce", self::block("reduce", block)?);
        let (to, other) = (self.own(to)?, self.own(other)?);
        same_size(op, to, other)?;
        self.read(op, to, Slot::Raw)?;
        let what = if to.rank == other.rank {
            self.read(op, other, Slot::Raw)?;
            What::Reduce { to, other, packets: false }
        } else {
            only(op, kind, ChannelType::Memory, "memory between ranks")?;
            self.linked(to.rank, other.rank)?;
            self.slots[other.rank as usize].reach(&other);
            What::ReadReduce { to, other }
        };
        self.write(to, Slot::Raw);
        self.push(to.rank, block, what);
        Ok(to)
    }

    /// Adds the packets `other`, of the same rank, to `to`. The result is `to`.
    ///
    /// # Errors
    /// [`Misuse::OtherRank`], runs of different sizes, chunks that hold nothing or the wrong form, no block.
    pub fn reduce_packet(&mut self, to: Ref, other: Ref, block: i64) -> Result<Ref, Misuse> {
        let (op, block) = ("reduce_packet", self::block("reduce_packet", block)?);
        let (to, other) = (self.own(to)?, self.own(other)?);
        if to.rank != other.rank {
            let (rank, other, instead) = (to.rank, other.rank, "reduce, or put_packet first");
            return Err(Misuse::OtherRank { op, rank, other, instead });
        }
        same_size(op, to, other)?;
        self.packets_fit(op, other)?;
        self.read(op, to, Slot::Raw)?;
        self.read(op, other, Slot::Packets)?;
        self.write(to, Slot::Raw);
        self.push(to.rank, block, What::Reduce { to, other, packets: true });
        Ok(to)
    }

    /// Reduces `to` and the same chunks of other ranks into `to`, over a switch. The result is `to`.
    ///
    /// # Errors
    /// No others, others of another buffer, index or size, on another node, or named twice; chunks that hold nothing; no
    /// block; other channels than switches.
    pub fn group_load_reduce(
        &mut self,
        to: Ref,
        others: &[Ref],
        block: i64,
        kind: ChannelType,
    ) -> Result<Ref, Misuse> {
        let op = "group_load_reduce";
        let block = self::block(op, block)?;
        only(op, kind, ChannelType::Switch, "nvls")?;
        let to = self.own(to)?;
        let mut ranks = vec![to.rank];
        for &other in others {
            let other = self.own(other)?;
            if other != (Ref { rank: other.rank, ..to }) {
                return Err(Misuse::GroupChunk { op, rank: to.rank, other: other.rank });
            }
            self.same_node(op, to.rank, other.rank)?;
            if ranks.contains(&other.rank) {
                let ranks = ranks.iter().chain([&other.rank]).map(|&rank| rank as i64).collect();
                return Err(dsl::Misuse::SwitchGroup { ranks }.into());
            }
            ranks.push(other.rank);
        }
        if others.is_empty() {
            return Err(Misuse::NoOthers { op });
        }
        self.read(op, to, Slot::Raw)?;
        for &rank in &ranks {
            self.slots[rank as usize].reach(&Ref { rank, ..to });
        }
        self.write(to, Slot::Raw);
        ranks.sort_unstable();
        self.push(to.rank, block, What::GroupLoadReduce { to, ranks });
        Ok(to)
    }

    /// Stores `from` in the same chunks of other ranks, over a switch.
    ///
    /// # Errors
    /// No others, others on another node, a target that is not the same chunks; chunks that hold nothing; no block;
    /// other channels than switches; ranks without a link.
    pub fn group_store(
        &mut self,
        from: Ref,
        others: &[i64],
        at: Target,
        block: i64,
        kind: ChannelType,
    ) -> Result<(), Misuse> {
        let op = "group_store";
        let block = self::block(op, block)?;
        only(op, kind, ChannelType::Switch, "nvls")?;
        let from = self.own(from)?;
        let rank = from.rank;
        let buffer = at.buffer.unwrap_or(from.buffer);
        let at = Target::at(buffer, at.index.unwrap_or(from.index));
        let mut ranks = BTreeSet::from([rank]);
        for &other in others {
            let other = self.rank(other)?;
            if self.target(op, from, other, at)? != (Ref { rank: other, ..from }) {
                return Err(Misuse::GroupChunk { op, rank, other });
            }
            self.linked(rank, other)?;
            self.same_node(op, rank, other)?;
            ranks.insert(other);
        }
        if ranks.len() < 2 {
            return Err(Misuse::NoOthers { op });
        }
        self.read(op, from, Slot::Raw)?;
        let ranks: Vec<u64> = ranks.into_iter().collect();
        for &rank in &ranks {
            self.write(Ref { rank, ..from }, Slot::Raw);
        }
        self.push(rank, block, What::GroupStore { from, ranks });
        Ok(())
    }

    /// Checks a reference, which may come from anywhere.
    fn own(&self, chunk: Ref) -> Result<Ref, Misuse> {
        self.rank(chunk.rank as i64)?;
        self.run(chunk)
    }

    /// Checks the other rank of an operation.
    fn peer(&self, op: &'static str, chunk: Ref, peer: i64) -> Result<u64, Misuse> {
        let peer = self.rank(peer)?;
        if peer == chunk.rank {
            return Err(Misuse::SameRank { op, rank: peer });
        }
        self.linked(chunk.rank, peer)?;
        Ok(peer)
    }

    fn linked(&self, from: u64, to: u64) -> Result<(), Misuse> {
        let Some(links) = &self.settings.links else { return Ok(()) };
        if from == to || links.contains(&(from, to)) || links.contains(&(to, from)) {
            return Ok(());
        }
        Err(Misuse::NoLink { from, to })
    }

    fn same_node(&self, op: &'static str, rank: u64, other: u64) -> Result<(), Misuse> {
        let per_node = self.settings.collective.ranks_per_node.unwrap_or(u64::MAX).max(1);
        if rank / per_node == other / per_node {
            return Ok(());
        }
        Err(Misuse::Node { op, rank, other })
    }

    /// The chunks that an operation on `chunk` means on `rank`.
    fn target(&self, op: &'static str, chunk: Ref, rank: u64, at: Target) -> Result<Ref, Misuse> {
        let index = match (at.buffer, at.index) {
            (_, Some(index)) => index,
            (None, None) => chunk.index,
            (Some(buffer @ Buffer::Scratch(_)), None) => {
                self.slots[rank as usize].buffer(buffer).len() as u64
            }
            (Some(buffer), None) => {
                return Err(Misuse::NoIndex { op, buffer: self.name(buffer) });
            }
        };
        self.run(Ref { rank, buffer: at.buffer.unwrap_or(chunk.buffer), index, size: chunk.size })
    }

    /// The chunks on `rank` that a signal or wait names. Only their buffer matters, so they may be anywhere.
    fn far(&self, chunk: Ref, rank: u64, at: Target) -> Ref {
        let buffer = at.buffer.unwrap_or(chunk.buffer);
        self.canonical(Ref { rank, buffer, index: at.index.unwrap_or(chunk.index), ..chunk })
    }

    /// Checks that all chunks of a run hold this.
    fn read(&self, op: &'static str, run: Ref, wanted: Slot) -> Result<(), Misuse> {
        let Ref { rank, buffer, .. } = run;
        for index in run.index..run.end() {
            let name = || self.name(buffer);
            match self.slots[rank as usize].get(buffer, index) {
                Slot::Empty => {
                    return Err(Misuse::NeverWritten { op, rank, buffer: name(), index });
                }
                saw @ (Slot::Raw | Slot::Packets) if saw != wanted => {
                    let text = |slot| if slot == Slot::Raw { "raw data" } else { "packets" };
                    let (saw, allowed) = (text(saw), text(wanted));
                    return Err(Misuse::Format { op, rank, buffer: name(), index, saw, allowed });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write(&mut self, run: Ref, holds: Slot) {
        self.slots[run.rank as usize].write(&run, holds);
    }

    fn packets_fit(&self, op: &'static str, run: Ref) -> Result<(), Misuse> {
        match run.buffer {
            Buffer::Scratch(_) => Ok(()),
            buffer => Err(Misuse::NotScratch { op, buffer: self.name(buffer) }),
        }
    }
}

pub(super) fn block(op: &'static str, block: i64) -> Result<u64, Misuse> {
    if !(0..dsl::MOST_BLOCKS).contains(&block) {
        return Err(Misuse::Block { op, block });
    }
    Ok(block as u64)
}

fn peer_channel(op: &'static str, channel: ChannelType) -> Result<(), Misuse> {
    match channel {
        ChannelType::Memory | ChannelType::Port => Ok(()),
        _ => Err(Misuse::ChannelType { op, channel, allowed: "memory or port" }),
    }
}

fn only(
    op: &'static str,
    channel: ChannelType,
    wanted: ChannelType,
    allowed: &'static str,
) -> Result<(), Misuse> {
    if channel == wanted {
        return Ok(());
    }
    Err(Misuse::ChannelType { op, channel, allowed })
}

fn same_size(op: &'static str, first: Ref, other: Ref) -> Result<(), Misuse> {
    if first.size == other.size {
        return Ok(());
    }
    Err(Misuse::Sizes { op, first: first.size, other: other.size })
}
