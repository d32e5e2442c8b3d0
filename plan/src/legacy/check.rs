//! Whether a program does what its collective promises: a replay with symbolic contents.

use super::channels::Channels;
use super::chunk::{Buffer, Ref};
use super::collective::Origin;
use super::contents::{Content, Contents, Id};
use super::operation::{Operation, What};
use super::{Misuse, Program};
use crate::model;
use std::collections::BTreeSet;
use std::fmt;

/// What is wrong with what a program computes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// A chunk that holds something else at the end than it must.
    Chunk {
        /// The rank.
        rank: u64,
        /// The buffer of the plan.
        buffer: model::Buffer,
        /// The chunk.
        index: u64,
        /// What it must hold.
        wanted: Content,
        /// What it holds; none for nothing.
        saw: Option<Content>,
    },
    /// A thread block that waits for ever.
    Stuck {
        /// The rank.
        rank: u64,
        /// The thread block.
        block: u64,
        /// What it waits for.
        on: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Chunk { rank, buffer, index, wanted, saw } => {
                write!(
                    f,
                    "Rank {rank} chunk {index} of buffer {buffer} is incorrect: should be {wanted} given "
                )?;
                match saw {
                    Some(saw) => write!(f, "{saw}"),
                    None => f.write_str("nothing"),
                }
            }
            Finding::Stuck { rank, block, on } => {
                write!(f, "Rank {rank} thread block {block} waits for ever for {on}")
            }
        }
    }
}

impl Program {
    /// Replays the program and compares what is then in every chunk of the output with what the collective promises.
    /// Nothing found: it is right.
    ///
    /// Each rank's operations are done in the order of the program, as far as waits let them: the k-th wait on a channel
    /// comes after the k-th signal, and packets are read after they were written. The ranks are replayed twice, the
    /// first one before the others and the last one before the others, so that a missing wait shows.
    pub fn check(&self) -> Vec<Finding> {
        for last_first in [false, true] {
            let mut replay = Replay::new(self);
            replay.run(last_first);
            let found = replay.findings();
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    /// What a chunk of a reference holds, with all operations so far done in the order of the program's text; none for
    /// nothing.
    ///
    /// # Errors
    /// A reference to chunks that do not exist.
    pub fn contents(&self, of: Ref, chunk: u64) -> Result<Option<Content>, Misuse> {
        self.rank(of.rank as i64)?;
        let run = self.run(Ref { index: of.index.saturating_add(chunk), size: 1, ..of })?;
        let mut replay = Replay::new(self);
        for operation in &self.operations {
            replay.apply(operation);
        }
        let held = replay.buffer(run.rank, run.buffer).get(run.index as usize).copied().flatten();
        Ok(held.map(|id| replay.contents.resolve(id, MOST_TERMS)))
    }
}

/// Terms of a sum that are told.
const MOST_TERMS: usize = 1 << 12;

/// One rank's memory: what each chunk holds.
struct Memory {
    input: Vec<Option<Id>>,
    output: Vec<Option<Id>>,
    scratch: Vec<Vec<Option<Id>>>,
    /// Chunks of scratch that hold packets.
    packets: BTreeSet<(Buffer, u64)>,
}

struct Replay<'a> {
    program: &'a Program,
    channels: Channels,
    contents: Contents,
    ranks: Vec<Memory>,
    /// Signals and waits so far, per channel and side.
    signals: Vec<[u64; 2]>,
    waits: Vec<[u64; 2]>,
    /// What is left of each rank's operations, in their order.
    left: Vec<Vec<usize>>,
}

impl<'a> Replay<'a> {
    fn new(program: &'a Program) -> Self {
        let mut contents = Contents::default();
        let collective = &program.settings.collective;
        let ranks = program.slots.iter().zip(0..).map(|(slots, rank)| {
            let empty = |buffer| vec![None; slots.buffer(buffer).len()];
            let scratch = 0..program.scratch.len() as u32;
            let mut memory = Memory {
                input: empty(Buffer::Input),
                output: empty(Buffer::Output),
                scratch: scratch.map(|id| empty(Buffer::Scratch(id))).collect(),
                packets: BTreeSet::new(),
            };
            for index in 0..collective.input_chunks() {
                let id = contents.input(Origin { rank, index });
                match collective.alias(rank, model::Buffer::Input, index) {
                    (model::Buffer::Output, index) => memory.output[index as usize] = Some(id),
                    (_, index) => memory.input[index as usize] = Some(id),
                }
            }
            memory
        });
        let ranks = ranks.collect();
        let channels = Channels::new(&program.operations);
        let mut left = vec![Vec::new(); program.slots.len()];
        for (position, operation) in program.operations.iter().enumerate() {
            left[operation.rank as usize].push(position);
        }
        left.iter_mut().for_each(|list| list.reverse());
        let none = || vec![[0; 2]; channels.list.len()];
        Replay { program, contents, ranks, signals: none(), waits: none(), channels, left }
    }

    /// Runs as far as waits let it.
    fn run(&mut self, last_first: bool) {
        let ranks = self.ranks.len();
        loop {
            let mut progress = false;
            for turn in 0..ranks {
                let rank = if last_first { ranks - 1 - turn } else { turn };
                while let Some(&next) = self.left[rank].last() {
                    let operation = &self.program.operations[next];
                    if self.waits_for(operation).is_some() {
                        break;
                    }
                    self.apply(operation);
                    self.left[rank].pop();
                    progress = true;
                }
            }
            if !progress && !self.overtake() {
                return;
            }
        }
    }

    /// Lets one block go on while another block of its rank waits, although the other's operations come first in the text.
    fn overtake(&mut self) -> bool {
        for rank in 0..self.ranks.len() {
            let mut held_up: BTreeSet<u64> = BTreeSet::new();
            for place in (0..self.left[rank].len()).rev() {
                let operation = &self.program.operations[self.left[rank][place]];
                let free = operation.blocks().iter().all(|block| !held_up.contains(block));
                if free && self.waits_for(operation).is_none() {
                    self.apply(operation);
                    self.left[rank].remove(place);
                    return true;
                }
                held_up.extend(operation.blocks());
            }
        }
        false
    }

    /// What an operation waits for; none if it can run.
    fn waits_for(&self, operation: &Operation) -> Option<String> {
        if let What::Wait { from, kind, .. } = &operation.what {
            let received = self
                .channels
                .of(operation)
                .map(|(number, side)| (self.signals[number][1 - side], self.waits[number][side]));
            let stuck = received.is_none_or(|(signals, waits)| signals <= waits);
            return stuck.then(|| format!("a {kind} signal of rank {}", from.rank));
        }
        let packets = operation.packets_read()?;
        let there = &self.ranks[packets.rank as usize].packets;
        let missing = (packets.index..packets.end())
            .find(|&index| !there.contains(&(packets.buffer, index)))?;
        Some(format!("packets in chunk {missing} of {}", self.program.name(packets.buffer)))
    }

    fn apply(&mut self, operation: &Operation) {
        if let Some((number, side)) = self.channels.of(operation) {
            match operation.what {
                What::Signal { .. } => self.signals[number][side] += 1,
                What::Wait { .. } => self.waits[number][side] += 1,
                _ => {}
            }
        }
        let (reads, writes) = operation.accesses();
        let reduces = matches!(
            operation.what,
            What::Reduce { .. } | What::ReadReduce { .. } | What::GroupLoadReduce { .. }
        );
        let size = writes.first().map_or(0, |run| run.size);
        for offset in 0..size {
            let mut result: Option<Id> = None;
            for (position, run) in reads.iter().enumerate() {
                let chunk = self.buffer(run.rank, run.buffer)[(run.index + offset) as usize];
                result = match (result, chunk) {
                    (_, chunk) if position == 0 => chunk,
                    // A sum with nothing is nothing anybody could rely on.
                    (Some(sum), Some(chunk)) if reduces => Some(self.contents.sum(sum, chunk)),
                    _ => None,
                };
            }
            for run in &writes {
                let index = run.index + offset;
                self.buffer_mut(run.rank, run.buffer)[index as usize] = result;
                let packets = &mut self.ranks[run.rank as usize].packets;
                if operation.writes_packets() {
                    packets.insert((run.buffer, index));
                } else {
                    packets.remove(&(run.buffer, index));
                }
            }
        }
    }

    fn buffer(&self, rank: u64, buffer: Buffer) -> &[Option<Id>] {
        let memory = &self.ranks[rank as usize];
        match buffer {
            Buffer::Input => &memory.input,
            Buffer::Output => &memory.output,
            Buffer::Scratch(id) => &memory.scratch[id as usize],
        }
    }

    fn buffer_mut(&mut self, rank: u64, buffer: Buffer) -> &mut [Option<Id>] {
        let memory = &mut self.ranks[rank as usize];
        match buffer {
            Buffer::Input => &mut memory.input,
            Buffer::Output => &mut memory.output,
            Buffer::Scratch(id) => &mut memory.scratch[id as usize],
        }
    }

    /// The blocks that wait, or else the chunks that do not hold what they must.
    fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for list in &self.left {
            let mut seen = BTreeSet::new();
            for &position in list.iter().rev() {
                let operation = &self.program.operations[position];
                let Operation { rank, block, .. } = *operation;
                if seen.insert(block)
                    && let Some(on) = self.waits_for(operation)
                {
                    found.push(Finding::Stuck { rank, block, on });
                }
            }
        }
        if !found.is_empty() {
            return found;
        }
        for rank in 0..self.program.ranks() {
            for ((buffer, index), wanted) in self.program.settings.collective.wanted(rank) {
                let memory = &self.ranks[rank as usize];
                let held =
                    if buffer == model::Buffer::Input { &memory.input } else { &memory.output };
                let most = wanted.len() + MOST_SURPLUS;
                let saw = held[index as usize].map(|id| self.contents.resolve(id, most));
                let wanted = Content { terms: wanted, more: false };
                if saw.as_ref() != Some(&wanted) {
                    found.push(Finding::Chunk { rank, buffer, index, wanted, saw });
                }
            }
        }
        found
    }
}

/// Terms beyond those wanted that a finding tells.
const MOST_SURPLUS: usize = 8;
