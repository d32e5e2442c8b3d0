//! Programs of the oldest stage of the language, which speak of chunks: `chunk(rank, buffer, index)` is a reference,
//! and references are put, reduced, signalled and waited for.
//!
//! A channel here belongs to a pair of buffers and to a thread block, scratch grows as it is used, and of two buffers
//! that are one memory in place the author may use both names. [`Program`] records such a program and checks every
//! call; [`check`](Program::check) replays it and compares what every chunk then holds with what the collective
//! promises; [`finish`](Program::finish) translates it to a [`dsl::Program`], whose passes do
//! the rest.
//!
//! ```
//! use antiphon_plan::legacy::{Buffer, Collective, Kind, Program, Settings, Target};
//! use antiphon_plan::model::ChannelType::Memory;
//!
//! // An allgather in place: each of two ranks puts its part into the other's output.
//! let collective = Collective::new(Kind::AllGather, 2, 1, true);
//! let mut p = Program::new(Settings::new("ag2", collective))?;
//! for rank in 0..2 {
//!     let mine = p.chunk(rank, Buffer::Output, rank, 1)?.unwrap();
//!     p.put(mine, 1 - rank, Target::SAME, 0, Memory)?;
//!     p.signal(mine, 1 - rank, Target::SAME, 0, Memory)?;
//! }
//! for rank in 0..2 {
//!     let theirs = p.chunk(rank, Buffer::Output, 1 - rank, 1)?.unwrap();
//!     p.wait(theirs, 1 - rank, Target::SAME, 0, Memory)?;
//! }
//! assert!(p.check().is_empty());
//! assert_eq!(p.finish()?.plan.gpus.len(), 2);
//! # Ok::<(), antiphon_plan::legacy::Misuse>(())
//! ```

mod channels;
mod check;
mod chunk;
mod collective;
mod contents;
mod instances;
mod lower;
mod misuse;
mod operation;
mod ports;
mod record;
mod slots;
#[cfg(test)]
mod tests;

pub use check::Finding;
pub use chunk::{Buffer, Ref, Target};
pub use collective::{Collective, Kind, Origin};
pub use contents::Content;
pub use instances::Replication;
pub use misuse::{Misuse, Unpaired};
pub use record::Format;

use crate::dsl;
use crate::model::Protocol;
use crate::passes::Mode;
use crate::passes::pairing::SourceLine;
use operation::{Operation, What};
use slots::{Slot, Slots};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Chunks a buffer can have: far more than any plan uses, and few enough that a wrong number does not fill memory.
pub const MOST_CHUNKS: u64 = 1 << 22;

/// What a program says of itself before its first call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The plan's name.
    pub name: String,
    /// What the plan computes.
    pub collective: Collective,
    /// Number of ranks: that of the collective.
    pub ranks: u64,
    /// How often every block is replicated, each time for its share of the chunks.
    pub instances: i64,
    /// The protocol the plan states. `LL` alternates between two halves of scratch.
    pub protocol: Protocol,
    /// Whether neighbouring operations become one.
    pub fuse: bool,
    /// How chunks are shared among instances.
    pub replication: Replication,
    /// Threads of a block on a GPU.
    pub threads_per_block: u64,
    /// Whether successive launches alternate between two halves of scratch whatever the protocol.
    pub double_scratch: bool,
    /// Message sizes the plan accepts, in bytes.
    pub sizes: RangeInclusive<u64>,
    /// Pairs of ranks that can communicate, in either order; none: all of them.
    pub links: Option<BTreeSet<(u64, u64)>>,
    /// Where a block's threads meet.
    pub mode: Mode,
}

impl Settings {
    /// This stage's defaults.
    pub fn new(name: impl Into<String>, collective: Collective) -> Self {
        Settings {
            name: name.into(),
            ranks: collective.ranks,
            collective,
            instances: 1,
            protocol: Protocol::Simple,
            fuse: true,
            replication: Replication::Duplicated,
            threads_per_block: 1024,
            double_scratch: false,
            sizes: 0..=u64::MAX,
            links: None,
            mode: Mode::default(),
        }
    }
}

/// A program for all ranks of a collective; see the [module](self).
#[derive(Clone, Debug)]
pub struct Program {
    settings: Settings,
    slots: Vec<Slots>,
    /// The names of the scratch buffers, by number.
    scratch: Vec<String>,
    operations: Vec<Operation>,
    line: Option<SourceLine>,
}

impl Program {
    /// An empty program.
    ///
    /// # Errors
    /// [`Misuse::Ranks`], [`Misuse::SendRecv`], [`Misuse::Root`], [`Misuse::Factor`], and no ranks or instances.
    pub fn new(settings: Settings) -> Result<Self, Misuse> {
        let collective = settings.collective;
        collective.validate()?;
        if settings.ranks != collective.ranks {
            return Err(Misuse::Ranks { ranks: settings.ranks, collective: collective.ranks });
        }
        if settings.instances < 1 {
            return Err(dsl::Misuse::Instances { instances: settings.instances }.into());
        }
        let slots = (0..collective.ranks).map(|rank| Slots::new(&collective, rank)).collect();
        Ok(Program { settings, slots, scratch: Vec::new(), operations: Vec::new(), line: None })
    }

    /// What the program said of itself.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u64 {
        self.settings.ranks
    }

    /// The line of the program that makes the following calls, for errors that are only found at the end.
    pub fn at(&mut self, line: Option<SourceLine>) {
        self.line = line;
    }

    /// The scratch buffer with this name. Every rank has its own, as long as its chunks need it to be; the scratch of a
    /// plan holds all of them, in the order in which the rank came to have them.
    pub fn scratch(&mut self, name: &str) -> Buffer {
        let known = self.scratch.iter().position(|known| known == name);
        let id = known.unwrap_or_else(|| {
            self.scratch.push(name.to_owned());
            self.scratch.len() - 1
        });
        Buffer::Scratch(id as u32)
    }

    /// Chunks of a rank's buffer; of a scratch buffer, those in use so far.
    ///
    /// # Errors
    /// [`Misuse::Recording`] for ranks that do not exist.
    pub fn len(&self, rank: i64, buffer: Buffer) -> Result<u64, Misuse> {
        let rank = self.rank(rank)?;
        Ok(self.slots[rank as usize].buffer(buffer).len() as u64)
    }

    /// A run of a rank's chunks; none if the first one is of the input or output and holds nothing yet. Chunks of
    /// scratch exist as soon as they are named.
    ///
    /// # Errors
    /// Ranks and chunks that do not exist.
    pub fn chunk(
        &mut self,
        rank: i64,
        buffer: Buffer,
        index: i64,
        size: u64,
    ) -> Result<Option<Ref>, Misuse> {
        let rank = self.rank(rank)?;
        let index = u64::try_from(index).map_err(|_| Misuse::Index { index })?;
        let named = Ref { rank, buffer, index, size };
        let run = self.run(named)?;
        if let Buffer::Scratch(_) = buffer {
            self.slots[rank as usize].reach(&run);
            return Ok(Some(run));
        }
        let exists = self.settings.collective.nameable(rank, run.buffer.model());
        let holds = self.slots[rank as usize].get(run.buffer, run.index) != Slot::Empty;
        Ok((exists || holds).then_some(run))
    }

    /// Makes blocks of a rank meet.
    ///
    /// # Errors
    /// No block, a block twice, blocks or ranks that do not exist.
    pub fn barrier(&mut self, rank: i64, blocks: &[i64]) -> Result<(), Misuse> {
        let rank = self.rank(rank)?;
        let known = blocks.iter().map(|&block| record::block("barrier", block));
        let known = known.collect::<Result<Vec<_>, _>>()?;
        let Some(&first) = known.first() else {
            return Err(dsl::Misuse::EmptyBarrier.into());
        };
        if known.iter().enumerate().any(|(i, block)| known[..i].contains(block)) {
            return Err(dsl::Misuse::BarrierTwice { blocks: known }.into());
        }
        self.push(rank, first, What::Barrier { blocks: known });
        Ok(())
    }

    /// The name of a buffer in messages.
    fn name(&self, buffer: Buffer) -> String {
        match buffer {
            Buffer::Input => "the input".to_owned(),
            Buffer::Output => "the output".to_owned(),
            Buffer::Scratch(id) => match self.scratch.get(id as usize) {
                Some(name) => format!("scratch buffer `{name}`"),
                None => "an unknown scratch buffer".to_owned(),
            },
        }
    }

    fn rank(&self, rank: i64) -> Result<u64, Misuse> {
        match u64::try_from(rank) {
            Ok(known) if known < self.ranks() => Ok(known),
            _ => Err(dsl::Misuse::Rank { rank, ranks: self.ranks() }.into()),
        }
    }

    /// A run under the name that plans use, checked against the length of its buffer.
    fn run(&self, named: Ref) -> Result<Ref, Misuse> {
        let Ref { rank, buffer, .. } = named;
        let chunks = match buffer {
            Buffer::Input => self.settings.collective.input_chunks(),
            Buffer::Output => self.settings.collective.output_chunks(),
            Buffer::Scratch(id) if (id as usize) < self.scratch.len() => MOST_CHUNKS,
            Buffer::Scratch(_) => 0,
        };
        if named.end() > chunks {
            return Err(Misuse::Chunks {
                rank,
                buffer: self.name(buffer),
                start: named.index,
                end: named.end(),
                chunks,
            });
        }
        Ok(self.canonical(named))
    }

    /// A run under the name that plans use, wherever it may end.
    fn canonical(&self, named: Ref) -> Ref {
        let Buffer::Scratch(_) = named.buffer else {
            let Ref { rank, buffer, index, .. } = named;
            let (buffer, index) = self.settings.collective.alias(rank, buffer.model(), index);
            let buffer =
                if buffer == crate::model::Buffer::Input { Buffer::Input } else { Buffer::Output };
            return Ref { buffer, index, ..named };
        };
        named
    }

    fn push(&mut self, rank: u64, block: u64, what: What) {
        self.operations.push(Operation { rank, block, what, line: self.line.clone() });
    }
}
