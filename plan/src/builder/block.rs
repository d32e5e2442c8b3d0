//! A thread block: how its operations are checked and appended.

use super::handles::{Channel, Chunks, Semaphore, SwitchChannel};
use super::{NOWHERE, ProblemKind, ProgramBuilder};
use crate::dsl::calls::call;
use crate::dsl::{self, On, Transfer};
use crate::model::{Buffer, GroupSlice, OpKind};
use crate::passes::DataSync;
use std::panic::Location;

/// A thread block of a program. Its methods append operations.
#[derive(Clone, Copy)]
pub struct Block<'p> {
    pub(super) program: &'p ProgramBuilder,
    pub(super) rank: usize,
    pub(super) id: usize,
    pub(super) slice: Option<GroupSlice>,
}

/// Whose chunks an operand may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Own,
    Other,
    Any,
}

pub(super) type At = &'static Location<'static>;

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

    fn recorded(&self) -> dsl::Operand {
        match self.target {
            Target::Chunks(chunks) => dsl::Operand::Chunk(chunks.recorded()),
            Target::Switch { id, index, size, .. } => dsl::Operand::Switch { id, index, size },
        }
    }
}

impl<'p> Block<'p> {
    /// The rank that runs the block.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The block's number within its rank.
    pub fn id(&self) -> usize {
        self.id
    }

    /// This block as number `index` of `count` blocks that share data operations: the operations appended
    /// through the returned handle do that slice of the work.
    #[track_caller]
    pub fn slice(self, index: usize, count: usize) -> Block<'p> {
        if index >= count {
            self.program.report(Location::caller(), ProblemKind::Slice { index, count });
            return Block { rank: NOWHERE, ..self };
        }
        let slice = GroupSlice { tb_id: index as u64, tbg_size: count as u64 };
        Block { slice: (count > 1).then_some(slice), ..self }
    }

    /// Whether the block does a slice of data operations that it shares with others, as of [`slice`](Self::slice).
    pub(crate) fn is_slice(&self) -> bool {
        self.slice.is_some()
    }

    /// Whether the first destinations are this rank's and the others are not.
    pub(super) fn check_owners(
        &self,
        at: At,
        kind: OpKind,
        own: &[Operand],
        others: &[Operand],
    ) -> bool {
        let allows = |o: &Operand, owner| self.allows(at, kind, "destination", o, owner);
        own.iter().all(|o| allows(o, Owner::Own)) && others.iter().all(|o| allows(o, Owner::Other))
    }

    /// Append a data operation.
    pub(super) fn data(
        &self,
        at: At,
        kind: OpKind,
        (sources, source_owner): (&[Operand], Owner),
        (destinations, destination_owner): (&[Operand], Owner),
    ) {
        let sides =
            [("source", sources, source_owner), ("destination", destinations, destination_owner)];
        for (side, operands, owner) in sides {
            for operand in operands {
                if !self.allows(at, kind, side, operand, owner) {
                    return;
                }
            }
        }
        let mut all = sources.iter().chain(destinations);
        let Some(first) = all.next().map(Operand::size).filter(|_| !sources.is_empty()) else {
            return self.report(at, ProblemKind::Empty { kind });
        };
        if let Some(other) = all.map(Operand::size).find(|&size| size != first) {
            return self.report(at, ProblemKind::Sizes { kind, first, other });
        }
        if self.rank == NOWHERE {
            return;
        }
        if !self.program.program().settings().runtime_sizes {
            return self.push_data(at, kind, sources, destinations);
        }
        let Some(kind) = block_kind(kind) else {
            return self.report(at, ProblemKind::RuntimeSizes { what: call(kind) });
        };
        let written = destinations.iter().all(|o| match o.target {
            Target::Chunks(chunks) => chunks.buffer == Buffer::Output,
            Target::Switch { .. } => false,
        });
        if !written {
            return self.report(at, ProblemKind::RuntimeSizes { what: "write to an input" });
        }
        let [sources, destinations] = [sources, destinations].map(single_blocks);
        self.push_data(at, kind, &sources, &destinations);
    }

    fn push_data(&self, at: At, kind: OpKind, sources: &[Operand], destinations: &[Operand]) {
        let Block { rank, id, slice, program } = *self;
        let recorded = |side: &[Operand]| side.iter().map(Operand::recorded).collect::<Vec<_>>();
        let (sources, destinations) = (recorded(sources), recorded(destinations));
        let reduce_op = program.reduce_op.filter(|_| kind.reduces());
        program.try_to(at, |program| {
            let place = (rank as u64, id as u64, slice);
            program.operation(place, kind, (&sources, &destinations), reduce_op)
        });
    }

    fn allows(&self, at: At, kind: OpKind, side: &'static str, o: &Operand, owner: Owner) -> bool {
        let chunks = match o.target {
            Target::Chunks(chunks) => chunks,
            Target::Switch { buffer, .. } => {
                if o.packets && buffer != Buffer::Scratch {
                    self.report(at, ProblemKind::NotScratch { kind, buffer });
                    return false;
                }
                return true;
            }
        };
        if chunks.rank == NOWHERE || self.rank == NOWHERE {
            return false;
        }
        let available = self.program.program().len(chunks.rank as u64, chunks.buffer);
        let Chunks { rank, buffer, .. } = chunks;
        let range = chunks.range();
        let kind = if range.end > available {
            let (start, end, chunks) =
                (range.start as usize, range.end as usize, available as usize);
            ProblemKind::Chunks { rank, buffer, start, end, chunks }
        } else if o.packets && buffer != Buffer::Scratch {
            ProblemKind::NotScratch { kind, buffer }
        } else if owner == Owner::Own && rank != self.rank {
            let allowed = "the rank's own";
            ProblemKind::Owner { kind, rank: self.rank, side, owner: rank, allowed }
        } else if owner == Owner::Other && rank == self.rank {
            let allowed = "those of other ranks";
            ProblemKind::Owner { kind, rank: self.rank, side, owner: rank, allowed }
        } else {
            return true;
        };
        self.report(at, kind);
        false
    }

    /// Append a signal or wait on each channel.
    pub(super) fn channels(&self, at: At, kind: OpKind, channels: &[Channel]) {
        let mut ends = Vec::new();
        for channel in channels {
            let Some(end) = self.end_of(at, channel) else { return };
            if ends.contains(&end) {
                return self.report(at, ProblemKind::Twice { kind });
            }
            ends.push(end);
        }
        self.synchronise(at, kind, &ends, |program, end, on, sync| {
            let relaxed = matches!(kind, OpKind::RelaxedSignal | OpKind::RelaxedWait);
            match kind {
                OpKind::Signal | OpKind::RelaxedSignal => program.signal(end, on, sync, relaxed),
                OpKind::Flush => program.flush(end, on, sync),
                _ => program.wait(end, on, sync, relaxed),
            }
        });
    }

    /// This rank's end of a channel.
    fn end_of(&self, at: At, channel: &Channel) -> Option<dsl::Channel> {
        let both = channel.ends.filter(|_| self.rank != NOWHERE)?;
        let mine = channel.end_at(self.rank);
        let known = mine.filter(|&end| self.program.program().owns_channel(end).is_ok());
        if known.is_none() {
            self.not_mine(at, "channel", &both.map(|end| end.source));
        }
        known
    }

    /// Append a transfer over a channel.
    pub(super) fn over(
        &self,
        at: At,
        what: Transfer,
        channel: &Channel,
        (from, to): (Chunks, Chunks),
    ) {
        let Some(end) = self.end_of(at, channel) else { return };
        if from.rank == NOWHERE || to.rank == NOWHERE {
            return;
        }
        let (from, to) = (from.recorded(), to.recorded());
        let place = (self.id as u64, self.slice);
        self.program.try_to(at, |program| {
            program.at(Some(at.into()));
            let name = match what {
                Transfer::Put => "put_over",
                Transfer::Get => "get",
                Transfer::PutPackets => "put_packets_over",
                Transfer::ReadPutPackets => "read_put_packets_over",
                Transfer::PutWithSignal => "put_with_signal",
                Transfer::PutWithSignalAndFlush => "put_with_signal_and_flush",
            };
            let recorded = program.transfer_slice(what, end, to, from, place);
            recorded.map_err(|refused| refused.of_call(name))
        });
    }

    /// Append an operation on each semaphore.
    pub(super) fn semaphores(&self, at: At, kind: OpKind, semaphores: &[Semaphore]) {
        let mut own = Vec::new();
        for semaphore in semaphores {
            let Some(semaphore) = semaphore.semaphore else { return };
            if self.rank == NOWHERE {
                return;
            }
            let known = self.program.program().owns_semaphore(semaphore).is_ok();
            if semaphore.rank != self.rank as u64 || !known {
                return self.not_mine(at, "semaphore", &[semaphore.rank]);
            }
            own.push(semaphore);
        }
        self.synchronise(at, kind, &own, |program, semaphore, on, sync| match kind {
            OpKind::SemaphoreAcquire => program.acquire(semaphore, on, sync),
            _ => program.release(semaphore, on, sync),
        });
    }

    fn synchronise<T: Copy>(
        &self,
        at: At,
        kind: OpKind,
        ends: &[T],
        mut each: impl FnMut(&mut dsl::Program, T, On<'_>, DataSync) -> Result<(), dsl::Misuse>,
    ) {
        if self.rank == NOWHERE {
            return;
        }
        if ends.is_empty() {
            return self.report(at, ProblemKind::Empty { kind });
        }
        self.program.try_to(at, |program| {
            program.at(Some(at.into()));
            let meet = program.settings().auto_sync;
            let sync = if meet { DataSync::BOTH } else { DataSync::NONE };
            ends.iter().try_for_each(|&end| each(program, end, On::block(self.id as u64), sync))
        });
    }

    /// Chunks of a switch channel as an operand of this block.
    pub(super) fn through(
        &self,
        at: At,
        switch: &SwitchChannel,
        index: usize,
        size: u64,
    ) -> Option<Target> {
        let switch = switch.switch.as_ref().filter(|_| self.rank != NOWHERE)?;
        let end = (index as u64).saturating_add(size);
        let Ok((_, id)) = self.program.program().member(switch, self.rank as i64) else {
            self.not_mine(at, "switch channel", &switch.ranks().collect::<Vec<_>>());
            return None;
        };
        for rank in switch.ranks() {
            let chunks = self.program.program().len(rank, switch.buffer);
            if size == 0 || end > chunks {
                let (rank, buffer, start) = (rank as usize, switch.buffer, index);
                let (end, chunks) = (end as usize, chunks as usize);
                self.report(at, ProblemKind::Chunks { rank, buffer, start, end, chunks });
                return None;
            }
        }
        Some(Target::Switch { id, buffer: switch.buffer, index: index as u64, size })
    }

    pub(super) fn belongs_to(&self, program: &ProgramBuilder, at: At) -> bool {
        let same = std::ptr::eq(self.program, program);
        if !same {
            let owners = format!("program `{}`", self.program.program().settings().name);
            program.report(at, ProblemKind::NotMine { what: "block", rank: self.rank, owners });
        }
        same
    }

    fn not_mine(&self, at: At, what: &'static str, owners: &[u64]) {
        let owners = format!("ranks {owners:?} or to another program");
        self.report(at, ProblemKind::NotMine { what, rank: self.rank, owners });
    }

    pub(super) fn report(&self, at: At, kind: ProblemKind) {
        self.program.report(at, kind);
    }
}

/// The operation on runtime blocks that corresponds to one on chunks.
fn block_kind(kind: OpKind) -> Option<OpKind> {
    match kind {
        OpKind::Put => Some(OpKind::PutBlocks),
        OpKind::Get => Some(OpKind::GetBlocks),
        OpKind::Copy => Some(OpKind::CopyBlocks),
        _ => None,
    }
}

/// Runs of blocks as one operand for each block, since every block has a length of its own.
fn single_blocks(operands: &[Operand]) -> Vec<Operand> {
    let runs = operands.iter().filter_map(|operand| match operand.target {
        Target::Chunks(chunks) => Some(chunks),
        Target::Switch { .. } => None,
    });
    let singles =
        runs.flat_map(|run| run.range().map(move |index| Chunks { index, size: 1, ..run }));
    singles.map(Operand::raw).collect()
}
