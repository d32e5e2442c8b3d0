//! The lowered form of a plan: what engines, verifier, simulator and code generator read.
//!
//! Lowering has two steps. [`Layout`] is what depends on the plan alone: the flat instruction lists with every
//! channel, buffer and counter resolved to a number. [`Program`] adds what depends on the sizes of a call: the
//! byte ranges of each instruction. Making a `Program` for a new size allocates nothing once its vectors have
//! grown, and never looks at the plan again.
//!
//! All data movement is one instruction, [`Instruction::Move`]: read some sources, combine them, store the
//! result to some destinations. Whether a side is raw bytes or packets, local or another rank's, is a property
//! of each [`Access`].
//!
//! Plans with runtime sizes move data by [`Instruction::MoveBlock`] instead: from one runtime block to another,
//! wherever and however long those are in the call.

use crate::lower::Site;
use crate::model::{ChannelType, Collective};
use antiphon_types::ReduceOp;
use std::collections::BTreeMap;
use std::fmt;

/// A memory area of a rank that instructions address by byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Area {
    /// The send buffer of the call.
    Input = 0,
    /// The receive buffer of the call.
    Output = 1,
    /// Raw bytes in scratch.
    Scratch = 2,
    /// Packets in scratch. Offsets count payload bytes; an engine doubles them. Raw scratch and packet scratch do
    /// not overlap, so one chunk index may hold both.
    Packets = 3,
}

impl Area {
    /// Number of areas, for address tables.
    pub const COUNT: usize = 4;

    /// The name used in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Area::Input => "input",
            Area::Output => "output",
            Area::Scratch => "scratch",
            Area::Packets => "packet scratch",
        }
    }
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One side of a move: which area of which rank. Offsets are per segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Owner of the memory.
    pub rank: u32,
    /// Which of the owner's areas.
    pub area: Area,
}

/// A range of positions in one of a layout's or program's flat vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// First position.
    pub start: u32,
    /// One past the last position.
    pub end: u32,
}

impl Span {
    /// As a `usize` range, for slicing.
    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Number of positions.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether the span holds nothing.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// One instruction of a block. Positions refer to the vectors of the [`RankLayout`] it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// Combine `sources` in order (a single source is copied) and store the result to every destination.
    ///
    /// Packet sources are waited for; a packet destination is written with the launch's flag. Without destinations it
    /// only waits for its sources.
    Move {
        /// Positions in [`RankLayout::accesses`].
        sources: Span,
        /// Positions in [`RankLayout::accesses`].
        destinations: Span,
        /// The operator, where there is more than one source.
        reduce: ReduceOp,
        /// The switch channel (position in [`RankLayout::switches`]) whose multicast a device may use for this.
        multicast: Option<u32>,
        /// Number of this move in [`Program::moves`].
        index: u32,
    },
    /// Add one to the peer's inbound counter of a channel. On a port channel the proxy does so, after all that was posted
    /// to the channel before.
    Signal {
        /// Position in [`RankLayout::channels`].
        channel: u32,
        /// Whether earlier accesses of the block must be visible before the signal.
        release: bool,
    },
    /// Wait for one more signal on a channel.
    Wait {
        /// Position in [`RankLayout::channels`].
        channel: u32,
        /// Whether later accesses of the block must see what the signaller released.
        acquire: bool,
    },
    /// Take one from a semaphore: `old = fetch_add(-1)`, wait until the value is at least `old` if `old <= 0`.
    Acquire {
        /// Position in [`RankLayout::semaphores`].
        semaphore: u32,
    },
    /// Add one to a semaphore.
    Release {
        /// Position in [`RankLayout::semaphores`].
        semaphore: u32,
    },
    /// Wait until `blocks` blocks of the rank have arrived.
    Barrier {
        /// Position in [`RankLayout::barriers`].
        barrier: u32,
        /// Number of participants, at least 2.
        blocks: u32,
    },
    /// Synchronise the threads of the block (nothing to do where a block is one thread).
    BlockSync,
    /// Start of a pipeline: run the instructions up to `end` (exclusive, the matching [`Instruction::LoopEnd`])
    /// once per window, [`Program::loops`] times.
    LoopBegin {
        /// Position of the matching `LoopEnd` in the block.
        end: u32,
        /// Bytes of one window.
        unit: u64,
        /// Chunks that the windows cover; the number of iterations is `ceil(chunks * chunk_bytes / unit)`, or
        /// more if some move of the body is longer.
        chunks: u64,
        /// Number of this loop in [`Program::loops`].
        index: u32,
    },
    /// End of a pipeline: next window, or on.
    LoopEnd {
        /// Position of the matching `LoopBegin` in the block.
        begin: u32,
    },
    /// Hand the transfer of one source to one destination to the proxy of a port channel, and go on. The proxy works off
    /// what is posted to a channel in order: transfers, then the signals posted after them.
    ///
    /// Raw bytes go as they are. Packets go as they are too, flags and all: the proxy does not wait for them.
    Post {
        /// Position in [`RankLayout::channels`], of a port channel.
        channel: u32,
        /// One position in [`RankLayout::accesses`].
        source: u32,
        /// One position in [`RankLayout::accesses`].
        destination: u32,
        /// Number of this transfer in [`Program::moves`].
        index: u32,
    },
    /// Wait until the proxy has completed everything posted to a port channel.
    Flush {
        /// Position in [`RankLayout::channels`], of a port channel.
        channel: u32,
    },
    /// Copy a runtime block to another one of the same length.
    MoveBlock {
        /// Position in [`RankLayout::block_moves`].
        index: u32,
    },
}

/// A runtime block: a run of elements of a rank's input or output whose place and length come with each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuntimeBlock {
    /// The owner.
    pub rank: u32,
    /// Whether it is the owner's output; else its input.
    pub output: bool,
    /// Its number among the owner's blocks of that buffer.
    pub index: u32,
}

impl RuntimeBlock {
    /// The area it lies in.
    pub const fn area(self) -> Area {
        if self.output { Area::Output } else { Area::Input }
    }
}

/// The operands of an [`Instruction::MoveBlock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockMove {
    /// What is read.
    pub source: RuntimeBlock,
    /// What is written: a block of an output.
    pub destination: RuntimeBlock,
    /// The slice of the move that is done: number `part` of `parts`.
    pub part: u64,
    /// Number of slices, at least 1.
    pub parts: u64,
}

impl BlockMove {
    /// The slice of a move of `len` (bytes or elements): its start and its length. All slices but the last non-empty
    /// one are whole multiples of `unit`.
    pub fn slice(&self, len: u64, unit: u64) -> (u64, u64) {
        let BlockMove { part, parts, .. } = *self;
        if parts == 1 {
            return (0, len);
        }
        let units = len.div_ceil(unit);
        let (each, rest) = (units / parts, units % parts);
        let start = |part: u64| (part * each + part.min(rest)).saturating_mul(unit).min(len);
        (start(part), start(part + 1) - start(part))
    }
}

/// A point-to-point channel of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Channel {
    /// The other end.
    pub peer: u32,
    /// Position of the paired channel in the peer's [`RankLayout::channels`]; `None` if the peer declares fewer
    /// channels to this rank (signals then go nowhere and waits never end).
    pub paired: Option<u32>,
    /// Whether at most one block of this rank signals on it (so that the counter has one writer).
    pub single_signaller: bool,
    /// Whether it is a port channel; else a memory channel.
    pub port: bool,
}

/// A switch channel of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    /// The members, in group order.
    pub members: Vec<u32>,
    /// The buffer bound to the group.
    pub area: Area,
}

/// Where an instruction came from, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Position in the block's `ops`.
    pub op: u32,
    /// Position in the pipeline's `ops`, for inner operations.
    pub inner: Option<u32>,
    /// The operation.
    pub kind: crate::model::OpKind,
}

/// One thread block: a run of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Positions in [`RankLayout::instructions`]; loop targets count from `code.start`.
    pub code: Span,
}

/// What one rank runs, independent of sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RankLayout {
    /// The blocks, in id order.
    pub blocks: Vec<Block>,
    /// All instructions, block after block.
    pub instructions: Vec<Instruction>,
    /// For each instruction, the operation it came from.
    pub origins: Vec<Origin>,
    /// Sides of moves.
    pub accesses: Vec<Access>,
    /// Moves of runtime blocks.
    pub block_moves: Vec<BlockMove>,
    /// Runtime blocks of the input and of the output; none in plans without runtime sizes.
    pub runtime_blocks: [u32; 2],
    /// Memory channels, by the rank's channel id; then port channels, by theirs.
    pub channels: Vec<Channel>,
    /// Switch channels, by the rank's channel id.
    pub switches: Vec<Switch>,
    /// Initial semaphore values.
    pub semaphores: Vec<i64>,
    /// Number of blocks that take part in each barrier.
    pub barriers: Vec<u32>,
    /// Chunk-sized slots of scratch.
    pub scratch_chunks: u64,
    /// Number of `Move` instructions.
    pub moves: u32,
    /// Number of pipelines.
    pub loops: u32,
    /// Ranks (other than this one) whose input or output some instruction touches, ascending.
    pub buffer_peers: Vec<u32>,
    /// Ranks (other than this one) whose scratch some instruction touches, or whom some instruction signals,
    /// ascending.
    pub scratch_peers: Vec<u32>,
    /// Relaxed operations that lowering had to order, by instruction position.
    pub strengthened: Vec<u32>,
}

impl RankLayout {
    /// For each instruction that a single thread of its block does, which thread: its position in the list of the operation
    /// that it came from. (For the others, which all threads share or pass together, 0.)
    ///
    /// What must keep its order is one thread's: all waits on a channel are done by the one that waits there first, and the first
    /// thread takes and gives back all semaphores.
    pub fn threads(&self) -> Vec<u32> {
        let mut threads = vec![0; self.instructions.len()];
        for block in &self.blocks {
            let mut operation = None;
            // Of the operation so far: transfers, signals, flushes and waits.
            let mut counts = [0; 4];
            let mut waiters = BTreeMap::new();
            for at in block.code.range() {
                let Origin { op, inner, .. } = self.origins[at];
                if operation.replace((op, inner)) != Some((op, inner)) {
                    counts = [0; 4];
                }
                let kind = match self.instructions[at] {
                    Instruction::Post { .. } => 0,
                    Instruction::Signal { .. } => 1,
                    Instruction::Flush { .. } => 2,
                    Instruction::Wait { .. } => 3,
                    _ => continue,
                };
                threads[at] = match self.instructions[at] {
                    Instruction::Wait { channel, .. } => {
                        *waiters.entry(channel).or_insert(counts[kind])
                    }
                    _ => counts[kind],
                };
                counts[kind] += 1;
            }
        }
        threads
    }

    /// The type of a channel and its id among the rank's channels of that type, as the plan names it.
    pub fn channel_id(&self, channel: u32) -> (ChannelType, u32) {
        if self.channels.get(channel as usize).is_some_and(|end| end.port) {
            let memory = self.channels.iter().take_while(|end| !end.port).count() as u32;
            (ChannelType::Port, channel - memory)
        } else {
            (ChannelType::Memory, channel)
        }
    }
}

/// What a whole plan runs, independent of sizes: the first step of lowering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The plan's name.
    pub name: String,
    /// A 64-bit hash of the plan's content (not of its spelling: key order and white space do not count).
    pub fingerprint: u64,
    /// What the plan computes.
    pub collective: Collective,
    /// One entry per rank.
    pub ranks: Vec<RankLayout>,
    /// Bytes, unit of all chunk arithmetic.
    pub alignment: u64,
    /// Whether any rank uses packets (scratch then alternates between two halves on successive launches).
    pub packets: bool,
    /// Whether scratch alternates between two halves on successive launches.
    pub double_scratch: bool,
    /// Whether input and output may share memory.
    pub in_place: bool,
    /// Whether places and lengths of blocks come with each call. Then programs hold nothing: they are the same for all
    /// sizes.
    pub runtime_sizes: bool,
    /// The first operation over a port channel, if any: engines without ports refuse the plan, and name it.
    pub port: Option<Site>,
    /// Size-independent move geometry, private to lowering.
    pub(crate) geometry: crate::lower::Geometry,
}

impl Layout {
    /// Whether any move combines several sources: in a plan without such moves elements go from place to place, and are never
    /// looked at.
    pub fn combines(&self) -> bool {
        let mut all = self.ranks.iter().flat_map(|rank| &rank.instructions);
        all.any(Instruction::combines)
    }
}

impl Instruction {
    /// Whether it combines several sources.
    pub(crate) fn combines(&self) -> bool {
        matches!(self, Instruction::Move { sources, .. } if sources.len() > 1)
    }
}

/// A contiguous piece of a move.
///
/// Raw bytes are moved for `len` bytes; packets for `padded` payload bytes, of which those beyond `len` are zero
/// when written and ignored when read. Between scratch areas alone `len` equals `padded`.
///
/// Window j of a pipeline of `unit` bytes takes what of `position..position + padded` lies in
/// `j * unit..(j + 1) * unit`, and of the raw bytes what of `position..position + len` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Bytes in raw areas.
    pub len: u64,
    /// Bytes of payload in packet areas and between scratch areas; at least `len`, a multiple of the alignment.
    pub padded: u64,
    /// Where the segment starts in the block's share of the move, counted in padded bytes. Segments ascend and
    /// do not overlap.
    pub position: u64,
    /// Position of the first of this segment's offsets in [`Program::offsets`]: one per source, then one per
    /// destination, in bytes from the start of each access's area.
    pub offsets: u32,
}

/// The sizes of one call, in bytes and bytes per element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallSizes {
    /// Bytes of the send buffer.
    pub input: u64,
    /// Bytes of the receive buffer.
    pub output: u64,
    /// Bytes of one element; `input` and `output` are multiples of it.
    pub element: u64,
    /// Refuse sizes that the format's own rule refuses.
    pub strict: bool,
}

/// One rank's instructions with the byte ranges of one call: the second step of lowering.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The rank.
    pub rank: u32,
    /// For each move (by its `index`), its segments.
    pub moves: Vec<Span>,
    /// All segments.
    pub segments: Vec<Segment>,
    /// Offsets of all segments' accesses.
    pub offsets: Vec<u64>,
    /// For each pipeline (by its `index`), the number of iterations.
    pub loops: Vec<u64>,
    /// Bytes of one raw scratch half; packet scratch takes twice as much.
    pub scratch_bytes: u64,
}
