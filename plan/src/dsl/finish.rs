//! From the recorded program to the plan.

use super::reads::ScratchReads;
use super::shares::Steps;
use super::tables::RankTables;
use super::{Misuse, Program};
use crate::check;
use crate::model::{Buffer, ChunkRef, Gpu, Op, Plan, RefBase};
use crate::passes::{Report, Step, Surroundings, fusion, replication, synchronise};

/// A finished program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The plan.
    pub plan: Plan,
    /// What the passes did to get there.
    pub report: Report,
}

impl Program {
    /// Runs the passes. The program itself stays as it is, so that finishing it again gives the same plan.
    ///
    /// # Errors
    /// Signals without waits or the reverse, chunks outside buffers where that was to be checked at the end, an open
    /// pipeline, and whatever else [`check`](crate::check()) finds.
    pub fn finish(&self) -> Result<Compiled, Misuse> {
        let blocks = |rank: usize| -> Vec<Vec<Step>> {
            let blocks = self.ranks[rank].blocks.iter();
            blocks.map(|block| block.steps.steps().to_vec()).collect()
        };
        if self.settings.instances < 2 {
            return self.compile(self.scratch_reads(), self.report.clone(), blocks);
        }
        let mut steps: Steps = (0..self.ranks.len()).map(blocks).collect();
        let mut report = self.report.clone();
        self.divide_shares(&mut steps, &mut report)?;
        self.compile(self.scratch_reads(), report, |rank| std::mem::take(&mut steps[rank]))
    }

    /// As [`finish`](Self::finish), but the program's operations go into the plan, and it is left without any: for
    /// programs so large that two copies of them matter.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_last(&mut self) -> Result<Compiled, Misuse> {
        let reads = self.scratch_reads();
        let blocks = self.ranks.iter_mut().map(|rank| &mut rank.blocks);
        let steps =
            blocks.map(|blocks| blocks.iter_mut().map(|block| block.steps.take()).collect());
        let mut steps: Steps = steps.collect();
        let mut report = self.report.clone();
        self.divide_shares(&mut steps, &mut report)?;
        self.compile(reads, report, |rank| std::mem::take(&mut steps[rank]))
    }

    /// The chunks of scratch that are read, where fusion depends on them.
    fn scratch_reads(&self) -> Option<ScratchReads> {
        let switches = self.ranks.iter().any(|rank| !rank.switches.is_empty());
        (self.settings.fuse && switches).then(|| ScratchReads::of(&self.ranks))
    }

    /// Runs the passes over the steps of each rank's blocks.
    fn compile(
        &self,
        reads: Option<ScratchReads>,
        mut report: Report,
        mut steps: impl FnMut(usize) -> Vec<Vec<Step>>,
    ) -> Result<Compiled, Misuse> {
        let settings = &self.settings;
        settings.consistent()?;
        let instances = settings.instances as u64;
        for rank in 0..self.ranks() {
            let blocks = self.blocks(rank);
            if blocks.saturating_mul(instances) > super::MOST_BLOCKS as u64 {
                return Err(Misuse::Replicas { rank, blocks, instances });
            }
        }
        if self.pipeline.is_some() {
            return Err(Misuse::OpenPipeline);
        }
        for chunk in &self.deferred {
            self.chunk(chunk.rank, chunk.buffer, chunk.index..chunk.end())?;
        }
        let numbers = self.numbers()?;
        self.check_pairing_of(&numbers)?;
        let gpus = self.ranks.iter().enumerate().map(|(rank, tables)| {
            self.rank_of_plan((rank as u64, tables), steps(rank), reads.as_ref(), &mut report)
        });
        let mut gpus: Vec<Gpu> = gpus.collect();
        numbers.apply(&mut gpus);
        let mut plan = Plan {
            name: settings.name.clone(),
            collective: settings.collective.clone(),
            protocol: settings.protocol,
            in_place: settings.in_place,
            reuse_resources: settings.reuse_resources,
            gpus,
            num_threads_per_block: settings.threads_per_block,
            use_double_scratch_buffer: settings.double_scratch,
            buffer_alignment: settings.alignment,
            min_message_size: *settings.sizes.start(),
            max_message_size: *settings.sizes.end(),
            runtime_sizes: settings.runtime_sizes,
        };
        replication::replicate(&mut plan, instances, settings.policy);
        check(&plan).map_err(|faults| Misuse::Plan {
            program: settings.name.clone(),
            faults: faults.to_string(),
        })?;
        Ok(Compiled { plan, report })
    }

    fn rank_of_plan(
        &self,
        (rank, tables): (u64, &RankTables),
        steps: Vec<Vec<Step>>,
        reads: Option<&ScratchReads>,
        report: &mut Report,
    ) -> Gpu {
        let settings = &self.settings;
        // A block that only waits for everyone was never used, and nobody waits for it.
        let unused = |steps: &[Step]| {
            let everyone =
                |step: &Step| step.op.barrier_id.is_some_and(|id| tables.everyone.contains(&id));
            steps.iter().all(everyone)
        };
        let used = steps.iter().filter(|steps| !unused(steps)).count() as u64;
        let blocks = tables.blocks.iter().zip(steps).map(|(block, mut steps)| {
            if unused(&steps) {
                return Vec::new();
            }
            let ids = block.switch.ids().iter();
            let switches: Vec<Buffer> = ids.map(|&id| tables.switches[id as usize].0).collect();
            let around = Surroundings {
                collective: &settings.collective,
                in_place: settings.aliased(),
                rank,
                input_chunks: tables.input_chunks,
                output_chunks: tables.output_chunks,
                switches: &switches,
                auto_sync: settings.auto_sync,
            };
            if let Some(reads) = reads {
                let spare = |between: &ChunkRef, to: &ChunkRef| {
                    let RefBase::Local(buffer) = between.base else { return false };
                    let RefBase::Switch(switch) = to.base else { return false };
                    let stored = switches.get(switch as usize).is_some_and(|&stored| {
                        let alias = settings.in_place
                            && tables.input_chunks == tables.output_chunks
                            && ![buffer, stored].contains(&Buffer::Scratch);
                        (stored == buffer || alias)
                            && *between == ChunkRef { base: between.base, ..*to }
                    });
                    let end = between.index.saturating_add(between.size);
                    stored || buffer == Buffer::Scratch && !reads.any(rank, between.index..end)
                };
                fusion::fuse_switches(&mut steps, &spare, report);
            }
            let steps = synchronise(steps, &around, settings.mode);
            report.fused += steps.iter().map(Step::operations).sum::<usize>();
            report.meetings += steps.iter().map(Step::meetings).sum::<usize>();
            let mut ops: Vec<Op> = steps.into_iter().map(Step::into_op).collect();
            for op in &mut ops {
                if op.barrier_id.is_some_and(|id| tables.everyone.contains(&id)) {
                    op.num_threadblocks = Some(used);
                }
            }
            ops
        });
        tables.finish(rank, blocks.collect())
    }
}
