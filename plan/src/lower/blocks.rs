//! Runtime blocks in the first step of lowering: references become numbers of blocks. The second step has nothing to do
//! for them.

use super::RankGeometry;
use super::error::LowerError;
use super::layout::{Context, RankLowering, site_of};
use crate::model::{Buffer, ChunkRef, Gpu, Plan};
use crate::program::{BlockMove, Instruction, RankLayout, RuntimeBlock};

/// The numbers of runtime blocks of a rank's input and output.
pub(super) fn numbers(plan: &Plan, gpu: &Gpu) -> Result<[u32; 2], LowerError> {
    if !plan.runtime_sizes {
        return Ok([0, 0]);
    }
    let count = |blocks: u64| {
        u32::try_from(blocks).map_err(|_| LowerError::Tables {
            problem: format!("rank {} has {blocks} runtime blocks, allowed {}", gpu.id, u32::MAX),
        })
    };
    Ok([count(gpu.input_chunks)?, count(gpu.output_chunks)?])
}

/// Refuses moves of blocks that their owners do not have.
pub(super) fn within(ranks: &[(RankLayout, RankGeometry)]) -> Result<(), LowerError> {
    for (rank, (layout, _)) in (0u32..).zip(ranks) {
        for (position, instruction) in (0u32..).zip(&layout.instructions) {
            let Instruction::MoveBlock { index } = *instruction else { continue };
            let BlockMove { source, destination, .. } = layout.block_moves[index as usize];
            for block in [source, destination] {
                let allowed = ranks[block.rank as usize].0.runtime_blocks[block.output as usize];
                if block.index >= allowed {
                    let problem = format!(
                        "saw block {} of the {} of rank {}, allowed 0..{allowed}",
                        block.index,
                        block.area(),
                        block.rank
                    );
                    let site = site_of(layout, rank, position);
                    return Err(LowerError::Malformed { site, problem });
                }
            }
        }
    }
    Ok(())
}

impl RankLowering {
    /// Lowers a move from one runtime block to another.
    pub(super) fn block_move(
        &mut self,
        context: &Context<'_>,
        source: &ChunkRef,
        destination: &ChunkRef,
    ) -> Result<(), LowerError> {
        if !self.runtime_sizes {
            return Err(context.malformed("saw runtime blocks in a plan without runtime sizes"));
        }
        let (part, parts) = context.slice()?;
        let source = self.runtime_block(context, source)?;
        let destination = self.runtime_block(context, destination)?;
        if !destination.output {
            return Err(
                context.malformed("saw a block of an input as destination, allowed outputs")
            );
        }
        let index = self.layout.block_moves.len() as u32;
        self.layout.block_moves.push(BlockMove { source, destination, part, parts });
        self.push(context, Instruction::MoveBlock { index });
        Ok(())
    }

    fn runtime_block(
        &self,
        context: &Context<'_>,
        chunk: &ChunkRef,
    ) -> Result<RuntimeBlock, LowerError> {
        let (rank, buffer) = self.owner(context, chunk.base)?;
        let output = match buffer {
            Buffer::Input => false,
            Buffer::Output => true,
            Buffer::Scratch => {
                return Err(context.malformed("saw scratch, allowed blocks of inputs and outputs"));
            }
        };
        if chunk.size != 1 {
            let saw = chunk.size;
            return Err(context.malformed(format!("saw a reference of {saw} blocks, allowed 1")));
        }
        // The owner's number of blocks is known when all ranks are lowered.
        let index = u32::try_from(chunk.index);
        let index = index.map_err(|_| context.malformed(format!("saw block {}", chunk.index)))?;
        Ok(RuntimeBlock { rank, output, index })
    }
}
