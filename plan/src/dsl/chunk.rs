//! Runs of chunks, thread-block groups, and where an operation runs.

use super::Misuse;
use crate::model::{Buffer, GroupSlice};

/// A run of chunks in a buffer of some rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// The owner.
    pub rank: u64,
    /// Which of the owner's buffers.
    pub buffer: Buffer,
    /// The first chunk of the run.
    pub index: u64,
    /// Number of chunks.
    pub size: u64,
}

impl Chunk {
    /// One past the last chunk.
    pub fn end(&self) -> u64 {
        self.index.saturating_add(self.size)
    }
}

/// Thread blocks that share operations: each does its slice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlockGroup {
    blocks: Vec<u64>,
}

impl BlockGroup {
    /// A group of these blocks, which do the slices in this order.
    ///
    /// # Errors
    /// [`Misuse::GroupTwice`] if a block is named twice.
    pub fn new(blocks: Vec<u64>) -> Result<Self, Misuse> {
        for (position, block) in blocks.iter().enumerate() {
            if blocks[..position].contains(block) {
                return Err(Misuse::GroupTwice { block: *block });
            }
        }
        Ok(BlockGroup { blocks })
    }

    /// The blocks, in the order of their slices.
    pub fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// The slice of a block.
    ///
    /// # Errors
    /// [`Misuse::NotInGroup`] if the block does not belong to the group.
    pub fn slice(&self, block: u64) -> Result<GroupSlice, Misuse> {
        let position = self.blocks.iter().position(|&other| other == block);
        let Some(position) = position else {
            return Err(Misuse::NotInGroup { block, blocks: self.blocks.clone() });
        };
        Ok(GroupSlice { tb_id: position as u64, tbg_size: self.blocks.len() as u64 })
    }
}

/// Which blocks run an operation.
#[derive(Clone, Copy, Debug)]
pub struct On<'a> {
    /// One block. With a group, the one of its blocks that gets the operation.
    pub block: Option<u64>,
    /// Every block of a group, each with its slice.
    pub group: Option<&'a BlockGroup>,
}

impl On<'_> {
    /// One block, the whole operation.
    pub const fn block(block: u64) -> On<'static> {
        On { block: Some(block), group: None }
    }

    /// Calls `each` with every block and its slice.
    pub(super) fn each(
        &self,
        mut each: impl FnMut(u64, Option<GroupSlice>) -> Result<(), Misuse>,
    ) -> Result<(), Misuse> {
        match (self.block, self.group) {
            (Some(block), None) => each(block, None),
            (Some(block), Some(group)) => each(block, Some(group.slice(block)?)),
            (None, Some(group)) => {
                group.blocks.iter().try_for_each(|&block| each(block, Some(group.slice(block)?)))
            }
            (None, None) => Err(Misuse::NoBlock),
        }
    }
}
