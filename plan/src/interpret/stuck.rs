//! Why an interpretation did not end.

use crate::counts::CountsError;
use crate::lower::{LowerError, Site};
use crate::model::ChannelType;
use crate::program::{Area, RuntimeBlock};
use std::fmt;

/// An interpretation that did not reach the end of the launch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InterpretError {
    /// The sizes cannot be lowered.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The memories do not fit the sizes.
    #[error(
        "cannot interpret: saw {saw} {what}, allowed {allowed}; pass one memory per rank, as long as the sizes say"
    )]
    Memories {
        /// What was counted.
        what: String,
        /// How many there are.
        saw: usize,
        /// How many there must be.
        allowed: u64,
    },
    /// The runtime blocks of a rank are not what the plan or the memory allows.
    #[error("cannot interpret: on rank {rank}, {source}")]
    Counts {
        /// The rank.
        rank: usize,
        /// What is wrong with them.
        source: CountsError,
    },
    /// The two sides of a move of a runtime block have different lengths.
    #[error(
        "cannot run {site}: block {} of the {} of rank {} has {read} elements and block {} of the {} of rank {} has \
         {written}; pass equal counts on both ranks",
        source_block.index, source_block.area(), source_block.rank,
        destination.index, destination.area(), destination.rank
    )]
    Unequal {
        /// The operation.
        site: Site,
        /// The block that is read.
        source_block: RuntimeBlock,
        /// Its elements.
        read: u64,
        /// The block that is written.
        destination: RuntimeBlock,
        /// Its elements.
        written: u64,
    },
    /// No block can go on.
    #[error(transparent)]
    Stuck(#[from] Stuck),
}

/// A deadlock: every block that is not done, and what it waits for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Stuck {
    /// Number of the launch, from 1.
    pub launch: u64,
    /// The blocked blocks, by rank and thread block.
    pub blocked: Vec<Blocked>,
}

/// A block that waits for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Where it waits.
    pub site: Site,
    /// What it waits for.
    pub on: BlockedOn,
}

/// What a block waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockedOn {
    /// A signal of a peer.
    Signal {
        /// The type of the channel.
        channel_type: ChannelType,
        /// The rank's channel of that type, by its id.
        channel: u32,
        /// The other end.
        peer: u32,
        /// Signals received so far, in all launches.
        received: u64,
        /// Signals needed.
        needed: u64,
    },
    /// A packet that nobody has written in this launch.
    Packet {
        /// The owner of the scratch memory.
        rank: u32,
        /// Its payload byte in the packet area.
        offset: u64,
    },
    /// A semaphore of the rank.
    Semaphore {
        /// The semaphore.
        semaphore: u32,
        /// Its value.
        value: i64,
        /// The value needed.
        needed: i64,
    },
    /// A rank that has not begun the launch, before its input or output may be touched.
    Start {
        /// The rank.
        rank: u32,
        /// The launch, from 1.
        launch: u32,
    },
    /// The other blocks of a barrier.
    Barrier {
        /// The barrier, by its dense number.
        barrier: u32,
        /// Blocks that have arrived.
        arrived: u32,
        /// Blocks that must.
        blocks: u32,
    },
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "launch {} cannot end: {} blocks are blocked", self.launch, self.blocked.len())?;
        for blocked in &self.blocked {
            write!(f, "\n  {} waits for {}", blocked.site, blocked.on)?;
        }
        Ok(())
    }
}

impl fmt::Display for BlockedOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockedOn::Signal { channel_type, channel, peer, received, needed } => write!(
                f,
                "a signal of rank {peer} on {channel_type} channel {channel}: received {received}, needs {needed}"
            ),
            BlockedOn::Start { rank, launch } => write!(f, "rank {rank} to begin launch {launch}"),
            BlockedOn::Packet { rank, offset } => {
                write!(f, "a packet at byte {offset} of the {} of rank {rank}", Area::Packets)
            }
            BlockedOn::Semaphore { semaphore, value, needed } => {
                write!(f, "semaphore {semaphore}: it is {value}, needs {needed}")
            }
            BlockedOn::Barrier { barrier, arrived, blocks } => {
                write!(f, "barrier {barrier}: {arrived} of {blocks} blocks have arrived")
            }
        }
    }
}
