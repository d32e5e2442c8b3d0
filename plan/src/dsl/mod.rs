//! Programs as their authors write them, and the way from there to a [`Plan`](crate::model::Plan).
//!
//! A [`Program`] records calls in the vocabulary of the format's own DSL: channels are one-sided (their source rank
//! runs the operations), thread blocks are numbers, scratch is handed out buffer by buffer. Every call is checked
//! when it is made, so that whoever translates a program from another language can point to the line. It keeps no
//! state outside itself. The [typed builder](crate::builder) and the Python package are both written over it.
//!
//! ```
//! use antiphon_plan::dsl::{On, Program, Settings};
//! use antiphon_plan::model::{Buffer, ChannelType, Collective};
//! use antiphon_plan::passes::DataSync;
//!
//! // Each of two ranks puts its input into the other's output.
//! let mut p = Program::new(Settings::new("swap", Collective::SendRecv, 2).chunks(1, 1))?;
//! for (me, peer) in [(0, 1), (1, 0)] {
//!     let channel = p.channel(ChannelType::Memory, peer, me)?;
//!     let from = p.chunk(channel.source, Buffer::Input, 0..1)?;
//!     let to = p.chunk(channel.destination, Buffer::Output, 0..1)?;
//!     p.put(channel, to, from, On::block(0))?;
//!     p.signal(channel, On::block(0), DataSync::BOTH, false)?;
//!     p.wait(channel, On::block(0), DataSync::BOTH, false)?;
//! }
//! let compiled = p.finish()?;
//! assert_eq!(compiled.plan.gpus.len(), 2);
//! println!("{}", compiled.report);
//! # Ok::<(), antiphon_plan::dsl::Misuse>(())
//! ```

pub(crate) mod calls;
mod chunk;
mod data;
mod finish;
mod misuse;
mod reads;
mod shares;
mod steps;
mod synchronise;
mod tables;
mod tags;
#[cfg(test)]
mod tests;

pub use chunk::{BlockGroup, Chunk, On};
pub(crate) use data::Operand;
pub use data::{MembersChecked, Transfer};
pub use finish::Compiled;
pub use misuse::{Category, Misuse};

use crate::model::{Buffer, ChannelType, Collective, Protocol};
use crate::passes::pairing::{Pairing, SourceLine};
use crate::passes::replication::Policy;
use crate::passes::replication::runs::Run;
use crate::passes::{Mode, Report};
use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use steps::Fuse;
use tables::RankTables;

/// Blocks a rank can have: far beyond any device's, and little enough that a wrong number does not fill memory.
pub const MOST_BLOCKS: i64 = 1 << 16;

/// What a program says of itself before its first call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The plan's name.
    pub name: String,
    /// What the plan computes.
    pub collective: Collective,
    /// Number of ranks.
    pub ranks: u64,
    /// Chunks of every rank's input and output, by rank; the last entry holds for all further ranks.
    pub chunks: Vec<(u64, u64)>,
    /// Whether input and output are the same memory.
    pub in_place: bool,
    /// Whether input and output may be the same memory all the same, because callers may pass it so.
    pub may_alias: bool,
    /// How often every block is replicated, each time for its share of the chunks.
    pub instances: i64,
    /// How chunks are shared among instances.
    pub policy: Policy,
    /// The protocol the plan states.
    pub protocol: Protocol,
    /// Whether neighbouring operations become one.
    pub fuse: bool,
    /// Whether a block's threads meet between data operations that depend on each other.
    pub auto_sync: bool,
    /// Where a block's threads meet.
    pub mode: Mode,
    /// One launch context for all buffer addresses; only written to the plan.
    pub reuse_resources: bool,
    /// Threads of a block on a GPU.
    pub threads_per_block: u64,
    /// Whether successive launches alternate between two halves of scratch.
    pub double_scratch: bool,
    /// Unit of chunk arithmetic, in bytes.
    pub alignment: u64,
    /// Message sizes the plan accepts, in bytes.
    pub sizes: RangeInclusive<u64>,
    /// Whether signals without waits are refused, and waits without signals.
    pub paired: bool,
    /// Whether chunks of inputs and outputs are runtime blocks, whose places and lengths come with each call. Then
    /// `put`, `get` and `copy` move blocks, and nothing else moves data.
    pub runtime_sizes: bool,
}

impl Settings {
    /// The format's defaults, and no chunks.
    pub fn new(name: impl Into<String>, collective: Collective, ranks: u64) -> Self {
        Settings {
            name: name.into(),
            collective,
            ranks,
            chunks: Vec::new(),
            in_place: false,
            may_alias: false,
            instances: 1,
            policy: Policy::Interleaved,
            protocol: Protocol::Simple,
            fuse: true,
            auto_sync: true,
            mode: Mode::Minimal,
            reuse_resources: false,
            threads_per_block: 1024,
            double_scratch: false,
            alignment: 16,
            sizes: 0..=u64::MAX,
            paired: true,
            runtime_sizes: false,
        }
    }

    /// The same with these numbers of chunks on every rank.
    pub fn chunks(self, input: u64, output: u64) -> Self {
        Settings { chunks: vec![(input, output)], ..self }
    }

    /// Whether input and output are, or may be, one memory.
    fn aliased(&self) -> bool {
        self.in_place || self.may_alias
    }

    /// How steps that follow each other become one.
    fn fusing(&self) -> Fuse {
        match (self.fuse, self.aliased()) {
            (false, _) => Fuse::Never,
            (true, false) => Fuse::Apart,
            (true, true) => Fuse::Aliased,
        }
    }

    /// Whether the settings suit each other.
    pub(super) fn consistent(&self) -> Result<(), Misuse> {
        if self.ranks == 0 {
            return Err(Misuse::NoRanks);
        }
        if self.instances < 1 {
            return Err(Misuse::Instances { instances: self.instances });
        }
        if self.instances > 1 && self.policy == Policy::None {
            return Err(Misuse::Replication { instances: self.instances as u64 });
        }
        if self.runtime_sizes && self.instances > 1 {
            return Err(Misuse::RuntimeSizes { what: "replicate", allowed: "one instance" });
        }
        Ok(())
    }

    /// The same with runtime blocks instead of chunks of equal size: so many of each rank's input and output.
    pub fn runtime_blocks(self, input: u64, output: u64) -> Self {
        Settings { chunks: vec![(input, output)], runtime_sizes: true, ..self }
    }
}

/// A channel as its source rank sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Channel {
    /// Memory or port.
    pub kind: ChannelType,
    /// The rank that runs the operations.
    pub source: u64,
    /// The peer.
    pub destination: u64,
    /// The source rank's number of the channel among those of its kind.
    pub id: u64,
}

/// A multicast channel over one buffer of several ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    /// The buffer.
    pub buffer: Buffer,
    /// Rank and the rank's number of the channel, for every member.
    pub members: Vec<(u64, u64)>,
}

impl Switch {
    /// The member ranks.
    pub fn ranks(&self) -> impl Iterator<Item = u64> {
        self.members.iter().map(|&(rank, _)| rank)
    }
}

/// A counter of one rank, by which its blocks wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Semaphore {
    /// The rank.
    pub rank: u64,
    /// The rank's number of the semaphore.
    pub id: u64,
}

/// A program for all ranks of a collective; see the [module](self).
#[derive(Debug)]
pub struct Program {
    settings: Settings,
    ranks: Vec<RankTables>,
    pairing: Pairing,
    report: Report,
    /// The open pipeline: bytes of a window, chunks, and the blocks that take part, in the order of first use.
    pipeline: Option<OpenPipeline>,
    /// The tags of channels that have one, by type, rank and number.
    tags: HashMap<(ChannelType, u64, u64), Box<str>>,
    /// Chunks of switch channels that are to be checked when all buffers are known.
    deferred: Vec<Chunk>,
    /// The line that makes the calls, where the caller says so.
    line: Option<SourceLine>,
    /// The first line that names each run of chunks, with several instances.
    run_lines: HashMap<Run, SourceLine>,
}

#[derive(Debug)]
struct OpenPipeline {
    unit: u64,
    chunks: u64,
    blocks: Vec<(u64, u64)>,
}

impl Program {
    /// An empty program.
    ///
    /// # Errors
    /// [`Misuse::NoRanks`], [`Misuse::Instances`], and [`Misuse::RuntimeSizes`] for several instances with them.
    pub fn new(settings: Settings) -> Result<Self, Misuse> {
        settings.consistent()?;
        let last = settings.chunks.last().copied().unwrap_or_default();
        let chunks = settings.chunks.iter().copied().chain(std::iter::repeat(last));
        let ranks = chunks.take(settings.ranks as usize);
        let ranks = ranks.map(|(input, output)| RankTables::new(input, output));
        Ok(Program {
            ranks: ranks.collect(),
            settings,
            pairing: Pairing::default(),
            report: Report::default(),
            pipeline: None,
            tags: HashMap::new(),
            deferred: Vec::new(),
            line: None,
            run_lines: HashMap::new(),
        })
    }

    /// What the program said of itself.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes what the program says of itself. Ranks and chunks are settled, and what decides while operations are recorded
    /// holds for those that follow.
    ///
    /// # Errors
    /// As [`new`](Self::new); nothing is changed then.
    pub fn amend(&mut self, change: impl FnOnce(&mut Settings)) -> Result<(), Misuse> {
        let mut settings = self.settings.clone();
        change(&mut settings);
        settings.consistent()?;
        self.settings = settings;
        Ok(())
    }

    /// What the program says of itself, for a caller that says it bit by bit. Ranks and chunks are settled.
    pub(crate) fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Divides every rank's input and output in these numbers of chunks.
    pub(crate) fn divide(&mut self, input: u64, output: u64) {
        for rank in &mut self.ranks {
            (rank.input_chunks, rank.output_chunks) = (input, output);
        }
    }

    /// A new block of a rank, after those the rank has.
    pub(crate) fn new_block(&mut self, rank: u64) -> Result<u64, Misuse> {
        let block = self.blocks(rank);
        self.known_block(rank, block)?;
        Ok(block)
    }

    /// Number of blocks a rank has.
    pub fn blocks(&self, rank: u64) -> u64 {
        self.ranks.get(rank as usize).map_or(0, |tables| tables.blocks.len() as u64)
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u64 {
        self.ranks.len() as u64
    }

    /// The rank with this number.
    ///
    /// # Errors
    /// [`Misuse::Rank`] if there is none.
    pub fn rank(&self, rank: i64) -> Result<u64, Misuse> {
        match u64::try_from(rank) {
            Ok(known) if known < self.ranks() => Ok(known),
            _ => Err(Misuse::Rank { rank, ranks: self.ranks() }),
        }
    }

    /// Chunks of a rank's buffer; of scratch, those handed out so far.
    pub fn len(&self, rank: u64, buffer: Buffer) -> u64 {
        self.ranks.get(rank as usize).map_or(0, |tables| tables.chunks(buffer))
    }

    /// A run of a buffer's chunks.
    ///
    /// # Errors
    /// [`Misuse::Rank`] and [`Misuse::Chunks`].
    pub fn chunk(&self, rank: u64, buffer: Buffer, run: Range<u64>) -> Result<Chunk, Misuse> {
        self.rank(rank as i64)?;
        let chunks = self.len(rank, buffer);
        if run.start > run.end || run.end > chunks {
            let Range { start, end } = run;
            return Err(Misuse::Chunks { rank, buffer, start, end, chunks });
        }
        Ok(Chunk { rank, buffer, index: run.start, size: run.end - run.start })
    }

    /// Hands out `chunks` chunks of a rank's scratch, after what was handed out before.
    ///
    /// # Errors
    /// [`Misuse::Rank`] and [`Misuse::RuntimeSizes`].
    pub fn scratch(&mut self, rank: i64, chunks: u64) -> Result<Chunk, Misuse> {
        let rank = self.rank(rank)?;
        self.fixed_sizes("use scratch")?;
        let allocated = &mut self.ranks[rank as usize].scratch_chunks;
        let chunk = Chunk { rank, buffer: Buffer::Scratch, index: *allocated, size: chunks };
        *allocated = chunk.end();
        Ok(chunk)
    }

    /// A new channel of rank `source` to rank `destination`. The k-th channel from one rank to another is paired with
    /// the k-th channel of its kind the other way.
    ///
    /// # Errors
    /// [`Misuse::Rank`].
    pub fn channel(
        &mut self,
        kind: ChannelType,
        destination: i64,
        source: i64,
    ) -> Result<Channel, Misuse> {
        let (source, destination) = (self.rank(source)?, self.rank(destination)?);
        let tables = &mut self.ranks[source as usize];
        let peers = match kind {
            ChannelType::Port => &mut tables.port,
            _ => &mut tables.memory,
        };
        peers.push(destination);
        Ok(Channel { kind, source, destination, id: peers.len() as u64 - 1 })
    }

    /// A new multicast channel over a buffer of the given ranks.
    ///
    /// # Errors
    /// [`Misuse::Rank`] and [`Misuse::SwitchGroup`].
    pub fn switch(&mut self, ranks: &[i64], buffer: Buffer) -> Result<Switch, Misuse> {
        let known = ranks.iter().map(|&rank| self.rank(rank)).collect::<Result<Vec<_>, _>>()?;
        let twice = known.iter().enumerate().any(|(i, rank)| known[..i].contains(rank));
        if known.is_empty() || twice {
            return Err(Misuse::SwitchGroup { ranks: ranks.to_vec() });
        }
        let members = known.iter().map(|&rank| {
            let switches = &mut self.ranks[rank as usize].switches;
            switches.push((buffer, known.clone()));
            (rank, switches.len() as u64 - 1)
        });
        Ok(Switch { buffer, members: members.collect() })
    }

    /// A new semaphore of a rank.
    ///
    /// # Errors
    /// [`Misuse::Rank`].
    pub fn semaphore(&mut self, rank: i64, initial: i64) -> Result<Semaphore, Misuse> {
        let rank = self.rank(rank)?;
        let semaphores = &mut self.ranks[rank as usize].semaphores;
        semaphores.push(initial);
        Ok(Semaphore { rank, id: semaphores.len() as u64 - 1 })
    }

    /// Begins a pipeline: until [`end_pipeline`](Self::end_pipeline), every operation belongs to its block's body,
    /// which runs once per window of `unit` bytes over `chunks` chunks.
    ///
    /// # Errors
    /// [`Misuse::NestedPipeline`], [`Misuse::PipelineSize`] and [`Misuse::RuntimeSizes`].
    pub fn begin_pipeline(&mut self, unit: i64, chunks: i64) -> Result<(), Misuse> {
        if self.pipeline.is_some() {
            return Err(Misuse::NestedPipeline);
        }
        self.fixed_sizes("pipeline")?;
        if unit < 1 || chunks < 1 {
            return Err(Misuse::PipelineSize { unit, chunks });
        }
        let (unit, chunks) = (unit as u64, chunks as u64);
        self.pipeline = Some(OpenPipeline { unit, chunks, blocks: Vec::new() });
        Ok(())
    }

    /// Refuses what needs chunks of equal size in a program with runtime sizes.
    fn fixed_sizes(&self, what: &'static str) -> Result<(), Misuse> {
        if !self.settings.runtime_sizes {
            return Ok(());
        }
        let allowed = "put, get and copy between blocks of inputs and outputs";
        Err(Misuse::RuntimeSizes { what, allowed })
    }

    /// Ends the open pipeline: every block that took part gets its body.
    ///
    /// # Errors
    /// [`Misuse::NoPipeline`].
    pub fn end_pipeline(&mut self) -> Result<(), Misuse> {
        let Some(pipeline) = self.pipeline.take() else { return Err(Misuse::NoPipeline) };
        let OpenPipeline { unit, chunks, blocks } = pipeline;
        for (rank, block) in blocks {
            let steps = &mut self.ranks[rank as usize].block(block).steps;
            steps.close(unit, chunks, self.settings.fusing(), &mut self.report);
        }
        Ok(())
    }
}
