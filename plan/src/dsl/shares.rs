//! What instances share: runs of chunks are divided where instances would meet in them.

use super::tables::RankTables;
use super::{Misuse, Program};
use crate::model::{Buffer, ChannelType, ChunkRef, Op, OpKind, RefBase};
use crate::passes::replication::runs::{self, Cuts, Run};
use crate::passes::{Report, Step, Surroundings, fusion};

/// The steps of each rank's blocks.
pub type Steps = Vec<Vec<Vec<Step>>>;

impl Program {
    /// Divides operations where instances of the program would meet in the same memory.
    ///
    /// # Errors
    /// [`Misuse::Meeting`] if an operation would have to be divided that cannot be.
    pub(super) fn divide_shares(
        &self,
        steps: &mut Steps,
        report: &mut Report,
    ) -> Result<(), Misuse> {
        let instances = self.settings.instances as u64;
        if instances < 2 {
            return Ok(());
        }
        let ranks = |rank: u64| self.surroundings(rank);
        let mut units = Vec::new();
        for (rank, blocks) in steps.iter().enumerate() {
            for (block, steps) in blocks.iter().enumerate() {
                let owners = |op: &Op, chunk: &ChunkRef| self.owners(rank, block, op, chunk);
                steps.iter().for_each(|step| runs::units(step, &owners, &ranks, &mut units));
            }
        }
        let cuts = Cuts::new(&units, instances).map_err(|meeting| {
            let line = |run: &Run| match self.run_lines.get(run) {
                Some(line) => format!(" ({line})"),
                None => String::new(),
            };
            let lines = [&meeting.runs[0], &meeting.runs[1], &meeting.kept].map(line);
            Misuse::Meeting { instances, meeting: Box::new(meeting), lines: Box::new(lines) }
        })?;
        if cuts.is_empty() {
            return Ok(());
        }
        for (rank, blocks) in steps.iter_mut().enumerate() {
            for (block, steps) in blocks.iter_mut().enumerate() {
                let owners = |op: &Op, chunk: &ChunkRef| self.owners(rank, block, op, chunk);
                let pieces: Vec<_> =
                    steps.iter().map(|step| cuts.divide(step, &owners, &ranks)).collect();
                if pieces.iter().any(Option::is_some) {
                    *steps = self.in_pieces(std::mem::take(steps), pieces, report);
                }
            }
        }
        Ok(())
    }

    /// A block's steps with the pieces of those that are divided in their place.
    fn in_pieces(
        &self,
        steps: Vec<Step>,
        mut pieces: Vec<Option<Vec<Step>>>,
        report: &mut Report,
    ) -> Vec<Step> {
        let fuse = self.settings.fusing();
        let mut list: Vec<Step> = Vec::with_capacity(steps.len());
        // What is not fused has been counted when it was recorded.
        let mut uncounted = Report::default();
        // Whether the step was done with the one before it.
        let mut done = false;
        for at in 0..steps.len() {
            let step = &steps[at];
            let Some(mut mine) = pieces[at].take() else {
                if !std::mem::take(&mut done) {
                    fuse.append(&mut list, step.clone(), &mut uncounted);
                }
                continue;
            };
            report.divided += 1;
            report.pieces += mine.len();
            // A load over a switch and the store of what it loaded stay neighbours, so that they can be one.
            let next = steps.get(at + 1);
            let passed_on = step.kind() == OpKind::GroupLoadReduce
                && next.is_some_and(|next| fusion::passes_on(step, next));
            if let Some(stores) = pieces.get_mut(at + 1).filter(|_| passed_on)
                && stores.as_ref().is_some_and(|stores| stores.len() == mine.len())
            {
                let stores = stores.take().unwrap_or_default();
                report.divided += 1;
                report.pieces += stores.len();
                mine = mine.into_iter().zip(stores).flat_map(<[Step; 2]>::from).collect();
                done = true;
            }
            for (at, piece) in mine.into_iter().enumerate() {
                // Over ports, pieces stay apart: each pair of a fused operation is posted by its own thread, in no
                // order, and one of them may signal.
                if at > 0 && piece.op.channel_type == ChannelType::Port {
                    list.push(piece);
                } else {
                    fuse.append(&mut list, piece, &mut uncounted);
                }
            }
        }
        list
    }

    /// What the passes know of a rank.
    fn surroundings(&self, rank: u64) -> Surroundings<'_> {
        let tables = &self.ranks[rank as usize];
        Surroundings {
            collective: &self.settings.collective,
            in_place: self.settings.aliased(),
            rank,
            input_chunks: tables.input_chunks,
            output_chunks: tables.output_chunks,
            switches: &[],
            auto_sync: self.settings.auto_sync,
        }
    }

    /// The buffers that a reference of an operation of a rank's block names.
    fn owners(&self, rank: usize, block: usize, op: &Op, chunk: &ChunkRef) -> Vec<(u64, Buffer)> {
        let tables: &RankTables = &self.ranks[rank];
        let Some(ids) = tables.blocks.get(block) else { return Vec::new() };
        match chunk.base {
            RefBase::Local(buffer) => vec![(rank as u64, buffer)],
            RefBase::Remote(local) => {
                let id = ids.remote_ids(op.channel_type).get(local as usize);
                let remote = id.and_then(|&id| tables.remote_buffers.get(id as usize));
                remote.map(|remote| (remote.rank, remote.buffer)).into_iter().collect()
            }
            RefBase::Switch(local) => {
                let id = ids.switch.ids().get(local as usize);
                let Some((buffer, members)) = id.and_then(|&id| tables.switches.get(id as usize))
                else {
                    return Vec::new();
                };
                members.iter().map(|&member| (member, *buffer)).collect()
            }
        }
    }

    /// Remembers the line that names the runs of a step, where it may be asked for: with several instances.
    pub(super) fn remember_runs(&mut self, rank: u64, block: u64, op: &Op) {
        if self.settings.instances < 2 {
            return;
        }
        let Some(line) = self.line.clone() else { return };
        for chunk in op.src.iter().chain(&op.dst) {
            for (owner, buffer) in self.owners(rank as usize, block as usize, op, chunk) {
                let run = Run { rank: owner, buffer, index: chunk.index, size: chunk.size };
                self.run_lines.entry(run).or_insert_with(|| line.clone());
            }
        }
    }
}
