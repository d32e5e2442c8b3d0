//! What can be wrong with a program as it is written.

use crate::model::{Buffer, ChannelType};
use crate::passes::replication::runs::{Meeting, Whole};
use thiserror::Error;

/// A call that a program cannot make.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A program for nobody.
    #[error("cannot make a program: saw 0 ranks, allowed 1 or more")]
    NoRanks,
    /// A rank outside the program.
    #[error("cannot use rank {rank}: allowed 0 to {}", .ranks.saturating_sub(1))]
    Rank {
        /// The rank named.
        rank: i64,
        /// Ranks of the program.
        ranks: u64,
    },
    /// Chunks outside their buffer.
    #[error(
        "cannot use chunks {start} to {end} (exclusive) of buffer {buffer} of rank {rank}: it has {chunks} chunks"
    )]
    Chunks {
        /// The owner.
        rank: u64,
        /// Which buffer.
        buffer: Buffer,
        /// First chunk named.
        start: u64,
        /// One past the last chunk named.
        end: u64,
        /// Chunks of the buffer.
        chunks: u64,
    },
    /// An operand of another rank than the operation needs.
    #[error(
        "cannot {call} on rank {rank}: saw a {side} chunk of rank {owner}, allowed rank {allowed}"
    )]
    Owner {
        /// The call, by the name that its author knows.
        call: &'static str,
        /// The rank that runs it.
        rank: u64,
        /// `source` or `destination`.
        side: &'static str,
        /// The chunk's owner.
        owner: u64,
        /// Whose chunk it must be.
        allowed: u64,
    },
    /// Operands of different sizes.
    #[error("cannot {call}: saw runs of {first} and {other} chunks, allowed equal sizes")]
    Sizes {
        /// The call, by the name that its author knows.
        call: &'static str,
        /// Chunks of the first operand.
        first: u64,
        /// Chunks of the operand that differs.
        other: u64,
    },
    /// Packets outside scratch.
    #[error("cannot {call} with packets in buffer {buffer}: packets live in scratch")]
    NotScratch {
        /// The call, by the name that its author knows.
        call: &'static str,
        /// The buffer named.
        buffer: Buffer,
    },
    /// A reduction of nothing.
    #[error("cannot {call}: Other chunk empty. Give one chunk or more to add")]
    NoOthers {
        /// The call, by the name that its author knows.
        call: &'static str,
    },
    /// An operation that no block runs.
    #[error(
        "cannot place the operation: saw neither a thread block nor a thread-block group; give tb or tb_group"
    )]
    NoBlock,
    /// A block number beyond what a rank can have.
    #[error("cannot use thread block {block}: allowed 0 to {}", super::MOST_BLOCKS - 1)]
    Block {
        /// The block named.
        block: i64,
    },
    /// A block twice in a group.
    #[error("cannot make a thread-block group: saw block {block} twice, allowed different blocks")]
    GroupTwice {
        /// The block named twice.
        block: u64,
    },
    /// A block outside a group.
    #[error(
        "cannot take block {block} of the thread-block group {blocks:?}: it does not belong to it"
    )]
    NotInGroup {
        /// The block named.
        block: u64,
        /// The group's blocks.
        blocks: Vec<u64>,
    },
    /// An operation that channels of this type cannot do.
    #[error("cannot {call} over a {channel} channel: allowed {} channels", other(*channel))]
    ChannelType {
        /// The call, by the name that its author knows.
        call: &'static str,
        /// The type of the channel.
        channel: ChannelType,
    },
    /// A rank that has no end of a channel or no counter of a semaphore.
    #[error("cannot use this {what} on rank {rank}: it belongs to {owners:?}")]
    NotMine {
        /// `channel`, `switch channel` or `semaphore`.
        what: &'static str,
        /// The rank that runs the operation.
        rank: u64,
        /// The ranks that may use it.
        owners: Vec<u64>,
    },
    /// Ranks of a switch channel that cannot form a group.
    #[error("cannot make a switch channel over ranks {ranks:?}: allowed 1 or more different ranks")]
    SwitchGroup {
        /// The ranks named.
        ranks: Vec<i64>,
    },
    /// Chunks of a switch channel that lie before its buffer.
    #[error(
        "cannot use {size} chunks from {offset} on of buffer {buffer} of a switch channel: allowed 0 or more"
    )]
    SwitchChunks {
        /// The channel's buffer.
        buffer: Buffer,
        /// First chunk named.
        offset: i64,
        /// Chunks named.
        size: i64,
    },
    /// A barrier of nobody.
    #[error("Barrier requires at least thread block.")]
    EmptyBarrier,
    /// A barrier with a block twice.
    #[error(
        "cannot make a barrier over blocks {blocks:?}: saw a block twice, allowed different blocks"
    )]
    BarrierTwice {
        /// The blocks named.
        blocks: Vec<u64>,
    },
    /// A pipeline inside a pipeline.
    #[error("Nested Pipelines are not Supported.")]
    NestedPipeline,
    /// A barrier over blocks that are not known yet.
    #[error("cannot make a barrier of all blocks inside a pipeline; name the blocks")]
    BarrierInPipeline,
    /// A program that ends inside a pipeline.
    #[error("cannot finish the program: a pipeline is still open")]
    OpenPipeline,
    /// The end of a pipeline that was not begun.
    #[error("cannot end a pipeline: none is open")]
    NoPipeline,
    /// A pipeline whose windows never end.
    #[error(
        "cannot pipeline {chunks} chunks in windows of {unit} bytes: allowed 1 or more of both"
    )]
    PipelineSize {
        /// Bytes of a window.
        unit: i64,
        /// Chunks the windows cover.
        chunks: i64,
    },
    /// Signals without waits, or waits without signals.
    #[error("{0}")]
    Pairing(Box<crate::passes::pairing::Mismatch>),
    /// Channels whose tags have no counterpart, on both sides.
    #[error(
        "cannot pair the {kind} channels between ranks {first} and {second}: saw tags {first_tags} only on rank {first} \
         and {second_tags} only on rank {second}, allowed the same tags on both ranks; give paired channels equal tags"
    )]
    Tags {
        /// Type of the channels.
        kind: ChannelType,
        /// One rank.
        first: u64,
        /// The other.
        second: u64,
        /// The first rank's tags without a counterpart.
        first_tags: String,
        /// The second rank's.
        second_tags: String,
    },
    /// Instances that would all do the same work.
    #[error(
        "cannot replicate {instances} instances without a policy: every instance would touch the same chunks; use the \
         interleaved policy"
    )]
    Replication {
        /// Instances asked for.
        instances: u64,
    },
    /// Runs of chunks in which instances would meet, and that cannot be divided.
    #[error(
        "cannot replicate {instances} instances: {}{} and {}{} share memory, but are not the same chunks, so that one \
         instance would touch what another one writes; and {}{}, {}, cannot be divided. Name these chunks in runs of equal \
         length that begin at the same chunk, or use one instance",
        .meeting.runs[0], .lines[0], .meeting.runs[1], .lines[1], .meeting.kept, .lines[2],
        match .meeting.whole {
            Whole::Pipeline => "which a pipeline moves window by window",
            Whole::Group => "of which the blocks of a group do a slice each",
        }
    )]
    Meeting {
        /// Instances asked for.
        instances: u64,
        /// The runs.
        meeting: Box<Meeting>,
        /// The lines that name the three runs, in brackets; empty where they are not known.
        lines: Box<[String; 3]>,
    },
    /// No instance at all.
    #[error("cannot replicate: saw {instances} instances, allowed 1 or more")]
    Instances {
        /// Instances asked for.
        instances: i64,
    },
    /// A call that needs chunks of equal size, in a program with runtime sizes.
    #[error(
        "cannot {call} in a program with runtime sizes: allowed put, get and copy between blocks of inputs and outputs"
    )]
    RuntimeCall {
        /// The call, by the name that its author knows.
        call: &'static str,
    },
    /// What else needs chunks of equal size, in a program with runtime sizes.
    #[error("cannot {what} in a program with runtime sizes: allowed {allowed}")]
    RuntimeSizes {
        /// What was asked for.
        what: &'static str,
        /// What is possible instead.
        allowed: &'static str,
    },
    /// More blocks than a rank can have, once every block is replicated.
    #[error(
        "cannot replicate {blocks} blocks of rank {rank} in {instances} instances: allowed {} blocks in all",
        super::MOST_BLOCKS
    )]
    Replicas {
        /// The rank.
        rank: u64,
        /// Its blocks.
        blocks: u64,
        /// Instances asked for.
        instances: u64,
    },
    /// A plan that `check` refuses.
    #[error("cannot finish program `{program}`: {faults}")]
    Plan {
        /// The program's name.
        program: String,
        /// What is wrong.
        faults: String,
    },
}

/// The channels that do what these do not.
fn other(channel: ChannelType) -> ChannelType {
    match channel {
        ChannelType::Memory => ChannelType::Port,
        _ => ChannelType::Memory,
    }
}

/// What sort of mistake a [`Misuse`] is, for languages that have an exception for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// A value that no program could use.
    Value,
    /// A call that this program cannot make.
    Call,
}

impl Misuse {
    /// What sort of mistake it is.
    pub fn category(&self) -> Category {
        match self {
            Misuse::NoRanks
            | Misuse::GroupTwice { .. }
            | Misuse::NotInGroup { .. }
            | Misuse::SwitchGroup { .. }
            | Misuse::BarrierTwice { .. }
            | Misuse::PipelineSize { .. }
            | Misuse::Replication { .. }
            | Misuse::Instances { .. } => Category::Value,
            _ => Category::Call,
        }
    }
}
