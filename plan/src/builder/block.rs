//! A thread block: how its operations are checked and appended.

use super::handles::{Channel, Chunks, Semaphore, SwitchChannel};
use super::state::{Operand, State, Target, position};
use super::{NOWHERE, ProblemKind, ProgramBuilder};
use crate::model::{Buffer, ChannelType, GroupSlice, Op, OpKind, Pipeline, RefBase};
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

type At = &'static Location<'static>;

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

    /// Append `body` as a pipeline: it runs once per window of `unit` bytes over `chunks` chunks.
    ///
    /// Only what `body` appends to this block belongs to the pipeline.
    #[track_caller]
    pub fn pipeline(&self, unit: u64, chunks: u64, body: impl FnOnce()) {
        let at = Location::caller();
        if self.rank == NOWHERE {
            return body();
        }
        if unit == 0 || chunks == 0 {
            return self.program.report(at, ProblemKind::PipelineSize { unit, chunks });
        }
        if self.program.state_mut().block(self.rank, self.id).pipeline.is_some() {
            return self.program.report(at, ProblemKind::NestedPipeline);
        }
        {
            let mut state = self.program.state_mut();
            let block = state.block(self.rank, self.id);
            if self.program.auto_sync && block.pending.needed_before_signal() {
                block.meet();
            }
            let ops = Vec::new();
            block.pipeline = Some(Pipeline { unit_size: unit, num_chunks: chunks, ops });
        }
        body();
        let mut state = self.program.state_mut();
        let block = state.block(self.rank, self.id);
        // The next iteration begins where this one ends: threads that still have something open must meet first.
        if self.program.auto_sync && block.pending.needed_before_signal() {
            block.meet();
        }
        let mut op = Op::new(OpKind::Pipeline);
        op.pipeline = block.pipeline.take();
        block.push(op);
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
        if self.rank != NOWHERE {
            self.push_data(kind, sources, destinations);
        }
    }

    fn push_data(&self, kind: OpKind, sources: &[Operand], destinations: &[Operand]) {
        let Block { rank, id, slice, program } = *self;
        let mut state = program.state_mut();
        let accesses = state.local_accesses(&program.collective, rank, sources, destinations);
        if program.auto_sync && state.block(rank, id).pending.needed_before_move(&accesses) {
            state.block(rank, id).meet();
        }
        let mut op = Op::new(kind);
        op.src = sources.iter().map(|o| state.resolve(rank, id, o)).collect();
        op.dst = destinations.iter().map(|o| state.resolve(rank, id, o)).collect();
        let refs = || op.src.iter().chain(&op.dst);
        if refs().any(|r| matches!(r.base, RefBase::Switch(_))) {
            op.channel_type = ChannelType::Switch;
        } else if refs().any(|r| matches!(r.base, RefBase::Remote(_))) {
            op.channel_type = ChannelType::Memory;
        }
        op.group = slice;
        op.reduce_op = program.reduce_op.filter(|_| reduces(kind));
        let block = state.block(rank, id);
        block.push(op);
        block.pending.moved(accesses);
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
        let mut state = self.program.state_mut();
        let available = match state.ranks.get(chunks.rank) {
            Some(rank) => rank.chunks(chunks.buffer),
            None => 0,
        };
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
        state.report(at, kind);
        false
    }

    /// Append a signal or wait.
    pub(super) fn channels(&self, at: At, kind: OpKind, channels: &[Channel]) {
        let waits = matches!(kind, OpKind::Wait | OpKind::RelaxedWait);
        let mut ids = Vec::new();
        for channel in channels {
            if channel.ends[0].0 == NOWHERE || self.rank == NOWHERE {
                return;
            }
            let mine = channel.end_at(self.rank).filter(|&(id, peer)| {
                let state = self.program.state.borrow();
                state.ranks[self.rank].peers.get(id as usize) == Some(&(peer as u64))
            });
            let Some((id, _)) = mine else {
                let owners = channel.ends.map(|(rank, _)| rank);
                return self.not_mine(at, "channel", &owners);
            };
            if ids.contains(&id) {
                return self.report(at, ProblemKind::Twice { kind });
            }
            ids.push(id);
        }
        let local = |state: &mut State| {
            let table = &mut state.block(self.rank, self.id).channels;
            ids.iter().map(|&id| position(table, id)).collect()
        };
        self.synchronise(at, kind, waits, ids.is_empty(), |state, op| {
            op.channel_type = ChannelType::Memory;
            op.channel_ids = local(state);
        });
    }

    /// Append a semaphore operation.
    pub(super) fn semaphores(&self, at: At, kind: OpKind, semaphores: &[Semaphore]) {
        for semaphore in semaphores {
            if semaphore.rank == NOWHERE || self.rank == NOWHERE {
                return;
            }
            let known = self.program.state.borrow().ranks[self.rank].semaphores.len() as u64;
            if semaphore.rank != self.rank || semaphore.id >= known {
                return self.not_mine(at, "semaphore", &[semaphore.rank]);
            }
        }
        let waits = kind == OpKind::SemaphoreAcquire;
        self.synchronise(at, kind, waits, semaphores.is_empty(), |_, op| {
            op.semaphore_ids = semaphores.iter().map(|s| s.id).collect();
        });
    }

    fn synchronise(
        &self,
        at: At,
        kind: OpKind,
        waits: bool,
        empty: bool,
        fill: impl FnOnce(&mut State, &mut Op),
    ) {
        if self.rank == NOWHERE {
            return;
        }
        if empty {
            return self.report(at, ProblemKind::Empty { kind });
        }
        let mut state = self.program.state_mut();
        let block = state.block(self.rank, self.id);
        if self.program.auto_sync && !waits && block.pending.needed_before_signal() {
            block.meet();
        }
        if waits {
            block.pending.waited();
        }
        let mut op = Op::new(kind);
        fill(&mut state, &mut op);
        state.block(self.rank, self.id).push(op);
    }

    /// Chunks of a switch channel as an operand of this block.
    pub(super) fn through(
        &self,
        at: At,
        switch: &SwitchChannel,
        index: usize,
        size: u64,
    ) -> Option<Target> {
        if switch.members.is_empty() || self.rank == NOWHERE {
            return None;
        }
        let ranks: Vec<usize> = switch.members.iter().map(|&(rank, _)| rank).collect();
        let end = (index as u64).saturating_add(size);
        let known = |id: u64| {
            let state = self.program.state.borrow();
            (id as usize) < state.ranks[self.rank].switches.len()
        };
        let mine = switch.members.iter().find(|&&(rank, id)| rank == self.rank && known(id));
        let Some(&(_, id)) = mine else {
            self.not_mine(at, "switch channel", &ranks);
            return None;
        };
        for rank in ranks {
            let chunks = self.program.state.borrow().ranks[rank].chunks(switch.buffer);
            if size == 0 || end > chunks {
                let (buffer, start) = (switch.buffer, index);
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
            let owners = format!("program `{}`", self.program.name);
            program.report(at, ProblemKind::NotMine { what: "block", rank: self.rank, owners });
        }
        same
    }

    fn not_mine(&self, at: At, what: &'static str, owners: &[usize]) {
        let owners = format!("ranks {owners:?} or to another program");
        self.report(at, ProblemKind::NotMine { what, rank: self.rank, owners });
    }

    pub(super) fn report(&self, at: At, kind: ProblemKind) {
        self.program.report(at, kind);
    }
}

fn reduces(kind: OpKind) -> bool {
    use OpKind::*;
    matches!(
        kind,
        Reduce
            | ReduceSend
            | ReadReduce
            | ReadReduceSend
            | ReducePackets
            | ReduceSendPackets
            | ReduceCopyPackets
            | ReduceCopySendPackets
            | GroupLoadReduce
            | GroupLoadReduceStore
    )
}
