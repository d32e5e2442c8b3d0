//! Runs of chunks in which instances would meet, and where to divide them.
//!
//! Instance i of n takes, of a run of s chunks from chunk k, the s chunks from k·n + i·s. So the place of a chunk depends on
//! the run that names it: with two instances, chunks 0 and 1 together are 0 and 1 of instance 0 and 2 and 3 of instance 1,
//! but chunk 1 by itself is 2 of instance 0 and 3 of instance 1. One instance then touches what the other writes, and
//! nothing orders instances among each other.
//!
//! Where that happens runs are divided: at the ends of both, and wherever what they are moved to or from is divided,
//! until all runs that share memory are the same, or meet in it within each instance only. Operations work chunk by chunk, so
//! in pieces they do the same. Two kinds of operation have no pieces: what a pipeline moves window by window would be in
//! other windows, and slices of a thread-block group would be other slices. If one of them would have to be divided there is
//! a [`Meeting`] instead.
//!
//! Runs that are only read stay, and so do packets: whoever reads one waits for it, whichever instance wrote it.

use super::super::touched::{Memory, home};
use super::super::{Step, Surroundings, fusion};
use crate::model::{Buffer, ChunkRef, Op, OpKind};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

/// A run of chunks as an operation names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// The owner.
    pub rank: u64,
    /// Which of its buffers.
    pub buffer: Buffer,
    /// The first chunk.
    pub index: u64,
    /// Number of chunks.
    pub size: u64,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { rank, buffer, index, size } = *self;
        write!(
            f,
            "chunks {index} to {} (exclusive) of buffer {buffer} of rank {rank}",
            index + size
        )
    }
}

/// Why an operation cannot be done in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// A pipeline moves it window by window.
    Pipeline,
    /// The blocks of a group do a slice each.
    Group,
}

/// Runs in which instances would meet, and an operation that keeps them from being divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// Two runs with some memory in common, at least one of them written.
    pub runs: [Run; 2],
    /// A run of the operation that cannot be divided.
    pub kept: Run,
    /// Why not.
    pub whole: Whole,
}

/// A run that an operation touches, where it lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    run: Run,
    /// Owner and memory, and the first chunk there: equal numbers are equal memory.
    memory: (u64, Memory),
    start: u64,
    /// Whether it is written; none for packets whose readers wait for them.
    write: Option<bool>,
}

impl Operand {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.run.size)
    }

    /// Where it may be divided.
    fn inside(&self) -> Range<u64> {
        self.start.saturating_add(1).min(self.end())..self.end()
    }
}

/// Runs of equal length that are divided together, because data moves between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    operands: Vec<Operand>,
    whole: Option<Whole>,
}

/// Which rank's buffer a reference of an operation is; several of a switch channel.
pub type Owners<'a> = &'a dyn Fn(&Op, &ChunkRef) -> Vec<(u64, Buffer)>;

/// What the passes know of a rank.
pub type Ranks<'a> = &'a dyn Fn(u64) -> Surroundings<'a>;

/// The units of a step, those of a pipeline's body included.
pub fn units(step: &Step, owners: Owners<'_>, ranks: Ranks<'_>, units: &mut Vec<Unit>) {
    of_op(&step.op, None, owners, ranks, units);
    for inner in &step.body {
        of_op(&inner.op, Some(Whole::Pipeline), owners, ranks, units);
    }
}

fn of_op(
    op: &Op,
    whole: Option<Whole>,
    owners: Owners<'_>,
    ranks: Ranks<'_>,
    units: &mut Vec<Unit>,
) {
    let shared = op.group.is_some_and(|slice| slice.tbg_size > 1);
    let whole = whole.or(shared.then_some(Whole::Group));
    for pair in pairs(op) {
        let mut operands = Vec::new();
        let mut add = |chunk: &ChunkRef, packets: bool, write: Option<bool>| {
            for (rank, buffer) in owners(op, chunk) {
                let (memory, start) = match packets {
                    true => (Memory::Packets, chunk.index),
                    false => {
                        let (memory, range) = home(&ranks(rank), buffer, chunk);
                        (memory, range.start)
                    }
                };
                let run = Run { rank, buffer, index: chunk.index, size: chunk.size };
                operands.push(Operand { run, memory: (rank, memory), start, write });
            }
        };
        let mine = |position: &usize| pair.is_none_or(|pair| pair == *position);
        for position in (0..op.src.len()).filter(mine) {
            let packets = fusion::reads_packets(op, position);
            // A port sends packets as they are, and waits for none.
            let waited_for = packets && op.kind != OpKind::PutPackets;
            add(&op.src[position], packets, (!waited_for).then_some(false));
        }
        for position in (0..op.dst.len()).filter(mine) {
            add(&op.dst[position], fusion::writes_packets(op, position), Some(true));
        }
        if !operands.is_empty() {
            units.push(Unit { operands, whole });
        }
    }
}

/// The positions of an operation's pairs, each of one source and one destination, if it moves each pair by itself; a
/// single `None` if all its operands belong together.
fn pairs(op: &Op) -> Vec<Option<usize>> {
    use OpKind::*;
    match op.kind {
        Put | PutPackets | PutWithSignal | PutWithSignalAndFlush | Get
            if op.src.len() == op.dst.len() =>
        {
            (0..op.src.len()).map(Some).collect()
        }
        _ => vec![None],
    }
}

/// Where runs are divided, and because of which two runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cuts(BTreeMap<(u64, Memory), BTreeMap<u64, [Run; 2]>>);

impl Cuts {
    /// Finds them for a program with these operations.
    ///
    /// # Errors
    /// An operation would have to be divided that cannot be.
    pub fn new(units: &[Unit], instances: u64) -> Result<Cuts, Meeting> {
        let mut cuts = Cuts::default();
        while cuts.add_meetings(units, instances) {
            while cuts.spread(units)? {}
        }
        Ok(cuts)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a cut; whether it was not there.
    fn add(&mut self, memory: (u64, Memory), at: u64, because: [Run; 2]) -> bool {
        match self.0.entry(memory).or_default().entry(at) {
            Entry::Vacant(entry) => {
                entry.insert(because);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Where a unit's runs are divided, from their beginning.
    fn inside(&self, unit: &Unit) -> BTreeMap<u64, [Run; 2]> {
        let mut inside = BTreeMap::new();
        for operand in unit.operands.iter().filter(|operand| operand.run.size > 1) {
            let Some(cuts) = self.0.get(&operand.memory) else { continue };
            for (at, because) in cuts.range(operand.inside()) {
                inside.entry(at - operand.start).or_insert(*because);
            }
        }
        inside
    }

    /// Passes cuts on to the runs that are moved to or from a divided run. Returns whether it made any new cut.
    fn spread(&mut self, units: &[Unit]) -> Result<bool, Meeting> {
        let mut changed = false;
        for unit in units {
            for (offset, runs) in self.inside(unit) {
                if let Some(whole) = unit.whole {
                    let cut = |operand: &&Operand| {
                        let cuts = self.0.get(&operand.memory);
                        cuts.is_some_and(|cuts| cuts.contains_key(&(operand.start + offset)))
                    };
                    let kept =
                        unit.operands.iter().find(cut).map_or(runs[0], |operand| operand.run);
                    return Err(Meeting { runs, kept, whole });
                }
                for operand in &unit.operands {
                    changed |= self.add(operand.memory, operand.start + offset, runs);
                }
            }
        }
        Ok(changed)
    }

    /// Adds the ends of all pieces in which instances meet as things are; whether there are any.
    fn add_meetings(&mut self, units: &[Unit], instances: u64) -> bool {
        let mut pieces = BTreeMap::new();
        for operand in units.iter().flat_map(|unit| &unit.operands) {
            let Some(write) = operand.write.filter(|_| operand.run.size > 0) else { continue };
            let ends = self.0.get(&operand.memory).into_iter();
            let ends = ends.flat_map(|cuts| cuts.range(operand.inside()));
            let mut start = operand.start;
            for end in ends.map(|(&at, _)| at).chain([operand.end()]).collect::<Vec<_>>() {
                let piece = Piece { memory: operand.memory, start, end };
                pieces.entry(piece).or_insert((operand.run, false)).1 |= write;
                start = end;
            }
        }
        let mut open: Vec<(Piece, (Run, bool))> = Vec::new();
        let mut found = Vec::new();
        for (piece, (run, write)) in pieces {
            open.retain(|(other, _)| other.memory == piece.memory && other.end > piece.start);
            for (other, (other_run, other_write)) in &open {
                if (write || *other_write) && piece.meets(other, instances) {
                    let ends = [piece.start, piece.end, other.start, other.end];
                    found.push((piece.memory, ends, [*other_run, run]));
                }
            }
            open.push((piece, (run, write)));
        }
        for (memory, ends, because) in &found {
            for end in ends {
                self.add(*memory, *end, *because);
            }
        }
        !found.is_empty()
    }

    /// The steps that do what a step does, each in one piece; none if the step is not divided.
    pub fn divide(&self, step: &Step, owners: Owners<'_>, ranks: Ranks<'_>) -> Option<Vec<Step>> {
        let mut found = Vec::new();
        of_op(&step.op, None, owners, ranks, &mut found);
        let inside: Vec<Vec<u64>> =
            found.iter().map(|unit| self.inside(unit).into_keys().collect()).collect();
        if inside.iter().all(Vec::is_empty) {
            return None;
        }
        let parts = pairs(&step.op).into_iter().zip(inside).flat_map(|(pair, inside)| {
            let op = pair.map_or_else(|| step.op.clone(), |pair| single(&step.op, pair));
            let size = op.dst.first().or(op.src.first()).map_or(0, |chunk| chunk.size);
            let starts: BTreeSet<u64> = inside.iter().copied().chain([0]).collect();
            let ends = inside.into_iter().chain([size]);
            let part = move |(start, end): (u64, u64)| part(&op, start..end, end == size);
            starts.into_iter().zip(ends).map(part).collect::<Vec<_>>()
        });
        Some(parts.map(Step::new).collect())
    }
}

/// The pair of an operation at this position.
fn single(op: &Op, pair: usize) -> Op {
    let channel_ids = match op.channel_ids.get(pair) {
        Some(&id) if op.channel_ids.len() == op.dst.len() => vec![id],
        _ => op.channel_ids.clone(),
    };
    Op { src: vec![op.src[pair]], dst: vec![op.dst[pair]], channel_ids, ..op.clone() }
}

/// The part of an operation that works on these of each operand's chunks. Only the last part signals.
fn part(op: &Op, chunks: Range<u64>, last: bool) -> Op {
    let mut part = op.clone();
    for chunk in part.src.iter_mut().chain(&mut part.dst) {
        chunk.index += chunks.start;
        chunk.size = chunks.end - chunks.start;
    }
    if !last && matches!(op.kind, OpKind::PutWithSignal | OpKind::PutWithSignalAndFlush) {
        part.kind = OpKind::Put;
    }
    part
}

/// A part of a run between two cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    memory: (u64, Memory),
    start: u64,
    end: u64,
}

impl Piece {
    /// Whether an instance's share of this piece and another instance's share of the other one have memory in common.
    fn meets(&self, other: &Piece, instances: u64) -> bool {
        let (mine, others) = (self.end - self.start, other.end - other.start);
        if (self.start, mine) == (other.start, others) {
            return false;
        }
        let n = u128::from(instances);
        let (mine, others) = (u128::from(mine), u128::from(others));
        let begin = u128::from(other.start) * n;
        (0..n).any(|i| {
            let first = u128::from(self.start) * n + i * mine;
            // The instances of the other piece whose shares end after the first chunk and begin before the last.
            let from = first.saturating_sub(begin) / others;
            let to = (first + mine).saturating_sub(begin).div_ceil(others).min(n);
            from < to && !(from == i && to == i + 1)
        })
    }
}

#[cfg(test)]
mod tests;
