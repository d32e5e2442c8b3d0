//! What can be wrong with a program of this stage.

use crate::dsl;
use crate::model::{Buffer, ChannelType};
use thiserror::Error;

/// A call that a program cannot make.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misuse {
    /// What no program of any stage can do.
    #[error(transparent)]
    Recording(#[from] dsl::Misuse),
    /// A program for another number of ranks than its collective.
    #[error(
        "cannot make a program for {ranks} ranks: its collective has {collective}; give both the same number"
    )]
    Ranks {
        /// Ranks of the program.
        ranks: u64,
        /// Ranks of the collective.
        collective: u64,
    },
    /// An exchange of more or fewer than two ranks.
    #[error("cannot make a send-receive of {ranks} ranks: SendRecv only supports 2 ranks")]
    SendRecv {
        /// Ranks of the collective.
        ranks: u64,
    },
    /// A root outside the collective.
    #[error("cannot broadcast from rank {root}: allowed 0 to {}", .ranks - 1)]
    Root {
        /// The root named.
        root: u64,
        /// Ranks of the collective.
        ranks: u64,
    },
    /// No chunks, or too many.
    #[error(
        "cannot divide the buffers of {ranks} ranks by a chunk factor of {factor}: allowed 1 to {} chunks in a buffer",
        super::MOST_CHUNKS
    )]
    Factor {
        /// The chunk factor.
        factor: u64,
        /// Ranks of the collective.
        ranks: u64,
    },
    /// Chunks outside their buffer.
    #[error(
        "cannot use chunks {start} to {end} (exclusive) of {buffer} of rank {rank}: it has {chunks} chunks"
    )]
    Chunks {
        /// The owner.
        rank: u64,
        /// The buffer's name.
        buffer: String,
        /// First chunk named.
        start: u64,
        /// One past the last chunk named.
        end: u64,
        /// Chunks of the buffer, for scratch the most it can have.
        chunks: u64,
    },
    /// A negative chunk number.
    #[error(
        "cannot use chunk {index}: allowed 0 and more, or -1 for the reference's own chunk or the end of scratch"
    )]
    Index {
        /// The chunk named.
        index: i64,
    },
    /// A buffer without a chunk number.
    #[error(
        "cannot {op} to the end of {buffer}: only scratch buffers grow; give the index of a chunk"
    )]
    NoIndex {
        /// The method.
        op: &'static str,
        /// The buffer's name.
        buffer: String,
    },
    /// A chunk that holds nothing yet.
    #[error(
        "cannot {op} on rank {rank}: chunk {index} of {buffer} has never been written; write it, or wait for it, first"
    )]
    NeverWritten {
        /// The method.
        op: &'static str,
        /// The rank.
        rank: u64,
        /// The buffer's name.
        buffer: String,
        /// The chunk.
        index: u64,
    },
    /// Packets where raw data is read, or the reverse.
    #[error(
        "cannot {op} on rank {rank}: chunk {index} of {buffer} holds {saw}, allowed {allowed}; use the method for {saw}"
    )]
    Format {
        /// The method.
        op: &'static str,
        /// The rank.
        rank: u64,
        /// The buffer's name.
        buffer: String,
        /// The chunk.
        index: u64,
        /// `packets` or `raw data`.
        saw: &'static str,
        /// `packets` or `raw data`.
        allowed: &'static str,
    },
    /// Packets outside scratch.
    #[error("cannot {op} with packets in {buffer}: packets live in scratch; name a scratch buffer")]
    NotScratch {
        /// The method.
        op: &'static str,
        /// The buffer's name.
        buffer: String,
    },
    /// An operation between ranks within one.
    #[error("Cannot {op} the same rank: saw rank {rank} on both sides; name another rank")]
    SameRank {
        /// The method, as `put to`.
        op: &'static str,
        /// The rank.
        rank: u64,
    },
    /// An operation within a rank between two.
    #[error(
        "cannot {op} between ranks {rank} and {other}: it only supports intra-rank communication; use {instead}"
    )]
    OtherRank {
        /// The method.
        op: &'static str,
        /// The reference's rank.
        rank: u64,
        /// The other rank named.
        other: u64,
        /// What works between ranks.
        instead: &'static str,
    },
    /// A channel of a type that the operation cannot use.
    #[error("cannot {op} over a {channel} channel: allowed {allowed}")]
    ChannelType {
        /// The method.
        op: &'static str,
        /// The type named.
        channel: ChannelType,
        /// The types allowed.
        allowed: &'static str,
    },
    /// An operation without a thread block.
    #[error(
        "cannot {op}: saw thread block {block}, allowed 0 to {}; give sendtb or recvtb",
        dsl::MOST_BLOCKS - 1
    )]
    Block {
        /// The method.
        op: &'static str,
        /// The block named.
        block: i64,
    },
    /// Runs of different lengths.
    #[error("cannot {op}: saw runs of {first} and {other} chunks, allowed equal sizes")]
    Sizes {
        /// The method.
        op: &'static str,
        /// Chunks of the reference.
        first: u64,
        /// Chunks of the other.
        other: u64,
    },
    /// A run that cannot be divided so.
    #[error("cannot split a run of {size} chunks into {parts} parts: allowed divisors of {size}")]
    Split {
        /// Chunks of the run.
        size: u64,
        /// Parts asked for.
        parts: u64,
    },
    /// Two references that are not next to each other.
    #[error(
        "cannot group chunks of {} of rank {} with chunks of {} of rank {}: allowed one rank and buffer",
        .first.1, .first.0, .second.1, .second.0
    )]
    Group {
        /// Rank and buffer of the first.
        first: (u64, Buffer),
        /// Rank and buffer of the second.
        second: (u64, Buffer),
    },
    /// Ranks that the topology does not connect.
    #[error(
        "No link from {from} to {to}: cannot communicate between ranks that the topology does not connect"
    )]
    NoLink {
        /// One rank.
        from: u64,
        /// The other.
        to: u64,
    },
    /// Packets over a port without a place to pack them.
    #[error(
        "cannot put packets of raw chunks over a port channel: Need to specify a temporary buffer for port channels; \
         give temp_buffer"
    )]
    NoTemporary,
    /// A group operation with nobody else.
    #[error("cannot {op}: saw no other rank, allowed 1 or more")]
    NoOthers {
        /// The method.
        op: &'static str,
    },
    /// A group operation over chunks of different names.
    #[error(
        "cannot {op} on rank {rank}: the chunks of rank {other} are elsewhere; a switch reaches the same chunks of the \
         same buffer on every rank"
    )]
    GroupChunk {
        /// The method.
        op: &'static str,
        /// The rank.
        rank: u64,
        /// The rank with other chunks.
        other: u64,
    },
    /// A group operation between nodes.
    #[error("cannot {op} between ranks {rank} and {other}: they are on different nodes")]
    Node {
        /// The method.
        op: &'static str,
        /// The rank.
        rank: u64,
        /// The rank on another node.
        other: u64,
    },
    /// Signals without waits, or waits without signals.
    #[error("{0}")]
    Unpaired(Box<Unpaired>),
}

/// Signals of a channel that are not met by waits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "cannot pair the {kind} signals from rank {from} to rank {to}, {source_buffer} to {destination_buffer}: saw {signals} \
     signals in {} and {waits} waits in {}, allowed as many waits as signals; rank {from} signals in thread blocks \
     {signalling:?}, rank {to} waits in {waiting:?}: use the same thread block, and the same two buffers, on both \
     ranks{}",
    block_name(.from_block), block_name(.to_block), line_name(.line)
)]
pub struct Unpaired {
    /// Type of the channel.
    pub kind: ChannelType,
    /// The rank that signals.
    pub from: u64,
    /// The rank that waits.
    pub to: u64,
    /// The buffer of the rank that sends.
    pub source_buffer: Buffer,
    /// The buffer of the rank that receives.
    pub destination_buffer: Buffer,
    /// The signalling rank's thread block.
    pub from_block: Option<u64>,
    /// The waiting rank's thread block.
    pub to_block: Option<u64>,
    /// Signals of one launch.
    pub signals: u64,
    /// Waits of one launch.
    pub waits: u64,
    /// All thread blocks of `from` that signal `to` for these buffers.
    pub signalling: Vec<u64>,
    /// All thread blocks of `to` that wait for `from` for these buffers.
    pub waiting: Vec<u64>,
    /// The last line that signals or waits there.
    pub line: Option<crate::passes::pairing::SourceLine>,
}

fn block_name(block: &Option<u64>) -> String {
    block.map_or("no thread block".to_owned(), |block| format!("thread block {block}"))
}

fn line_name(line: &Option<crate::passes::pairing::SourceLine>) -> String {
    line.as_ref().map_or(String::new(), |line| format!(" ({line})"))
}
