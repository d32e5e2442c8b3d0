//! What can be wrong with a program, and where its source says so.

use crate::dsl::Misuse;
use crate::dsl::calls::call;
use crate::model::{Buffer, OpKind};
use std::fmt;
use std::panic::Location;
use thiserror::Error;

/// Everything that was wrong with a program, in the order of its source.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct BuildError {
    /// The program's name.
    pub program: String,
    /// What was wrong; never empty.
    pub problems: Vec<Problem>,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot build program `{}`:", self.program)?;
        for problem in &self.problems {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}

/// One mistake in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub kind: ProblemKind,
    /// The line of the program that asked for it.
    pub location: &'static Location<'static>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.kind)
    }
}

/// The mistakes a builder sees.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProblemKind {
    /// A program for nobody.
    #[error("cannot make a program: saw 0 ranks, allowed 1 or more")]
    NoRanks,
    /// A rank outside the program.
    #[error("cannot name rank {rank}: allowed 0..{ranks}")]
    Rank {
        /// The rank named.
        rank: usize,
        /// Ranks of the program.
        ranks: usize,
    },
    /// Chunks outside their buffer.
    #[error(
        "cannot name chunks {start}..{end} of buffer {buffer} of rank {rank}: allowed non-empty \
         ranges in 0..{chunks}"
    )]
    Chunks {
        /// The owner.
        rank: usize,
        /// Which buffer.
        buffer: Buffer,
        /// First chunk named.
        start: usize,
        /// One past the last chunk named.
        end: usize,
        /// Chunks of the buffer or allocation.
        chunks: usize,
    },
    /// Chunk counts that cannot be.
    #[error("cannot divide the buffers: {detail}")]
    ChunkCounts {
        /// What was asked for and what is allowed.
        detail: &'static str,
    },
    /// A thread block outside its rank.
    #[error("cannot name thread block {block} of rank {rank}: allowed 0..{blocks}; add it first")]
    Block {
        /// The rank.
        rank: usize,
        /// The block named.
        block: usize,
        /// Blocks the rank has so far.
        blocks: usize,
    },
    /// A slice outside its thread-block group.
    #[error("cannot take slice {index} of {count}: allowed 0..{count}")]
    Slice {
        /// The slice asked for.
        index: usize,
        /// Slices in the group.
        count: usize,
    },
    /// A channel from a rank to itself.
    #[error("cannot make a channel from rank {rank} to itself; copy instead")]
    SelfChannel {
        /// The rank.
        rank: usize,
    },
    /// A channel or semaphore used by a rank that has no end of it.
    #[error("cannot use this {what} on rank {rank}: it belongs to {owners}")]
    NotMine {
        /// `channel`, `switch channel`, `semaphore` or `block`.
        what: &'static str,
        /// The rank that runs the operation.
        rank: usize,
        /// The ranks that may use it, or the other program.
        owners: String,
    },
    /// An operand whose owner does not suit the operation.
    #[error("cannot {} on rank {rank}: saw a {side} chunk of rank {owner}, allowed {allowed}", call(*.kind))]
    Owner {
        /// The operation.
        kind: OpKind,
        /// The rank that runs it.
        rank: usize,
        /// `source` or `destination`.
        side: &'static str,
        /// The chunk's owner.
        owner: usize,
        /// Whose chunks are allowed.
        allowed: &'static str,
    },
    /// Packets outside scratch.
    #[error("cannot {} with packets in buffer {buffer}: packets live in scratch", call(*.kind))]
    NotScratch {
        /// The operation.
        kind: OpKind,
        /// The buffer named.
        buffer: Buffer,
    },
    /// Operands of different sizes.
    #[error("cannot {}: saw runs of {first} and {other} chunks, allowed equal sizes", call(*.kind))]
    Sizes {
        /// The operation.
        kind: OpKind,
        /// Chunks of the first operand.
        first: u64,
        /// Chunks of the operand that differs.
        other: u64,
    },
    /// An operation over nothing.
    #[error("cannot {}: saw no operands, allowed 1 or more", call(*.kind))]
    Empty {
        /// The operation.
        kind: OpKind,
    },
    /// The same channel twice in one operation.
    #[error("cannot {} twice on one channel in one operation; write two operations", call(*.kind))]
    Twice {
        /// The operation.
        kind: OpKind,
    },
    /// What needs chunks of equal size, in a program with runtime sizes.
    #[error(
        "cannot {what} in a program with runtime sizes: allowed put, get and copy from blocks of inputs and outputs to \
         blocks of outputs"
    )]
    RuntimeSizes {
        /// What was asked for.
        what: &'static str,
    },
    /// A barrier over blocks that cannot meet.
    #[error("cannot make a barrier: {detail}")]
    Barrier {
        /// What was asked for and what is allowed.
        detail: &'static str,
    },
    /// Ranks that do not fill their nodes.
    #[error(
        "cannot place {ranks} ranks on {nodes} nodes: allowed a number of nodes, 1 or more, that divides the ranks"
    )]
    Nodes {
        /// Ranks of the program.
        ranks: usize,
        /// Nodes asked for.
        nodes: usize,
    },
    /// What the compiler refuses.
    #[error(transparent)]
    Refused(#[from] Misuse),
}
