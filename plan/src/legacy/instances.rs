//! Instances: every block runs several times over, each time for its share of every chunk.

use super::chunk::{Buffer, Ref};
use super::operation::Operation;
use super::{Collective, Slots};
use std::collections::{BTreeSet, HashMap};

/// How chunks are shared among instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Replication {
    /// Every instance has its own copy of the program's chunks: first all of the first instance, then all of the second.
    /// In a buffer that the collective divides among ranks, this holds for each rank's part.
    #[default]
    Duplicated,
    /// Every run of chunks is divided: first the shares of all instances in the first run, then those in the second.
    Interleaved,
    /// As [`Duplicated`](Replication::Duplicated).
    Packed,
}

/// Where instances find their chunks.
#[derive(Debug)]
pub struct Instances<'a> {
    collective: &'a Collective,
    slots: &'a [Slots],
    replication: Replication,
    count: u64,
    /// Where runs must be divided so that each piece lies together in every instance.
    cuts: HashMap<(u64, Buffer), BTreeSet<u64>>,
}

impl<'a> Instances<'a> {
    /// The instances of a program with these operations.
    pub fn new(
        collective: &'a Collective,
        slots: &'a [Slots],
        replication: Replication,
        count: u64,
        operations: &[Operation],
    ) -> Self {
        let cuts = HashMap::new();
        let mut instances = Instances { collective, slots, replication, count, cuts };
        if count > 1 {
            instances.cut(operations);
        }
        instances
    }

    /// Finds the cuts.
    ///
    /// Interleaved, the place of a chunk depends on the run it is part of: an operation on chunks 0 and 1 together and
    /// one on chunk 1 alone mean different memory, and different instances would meet there. So a run is divided wherever
    /// another one begins or ends, and wherever the runs that it is moved to or from are divided. Duplicated, runs are
    /// divided at the ends of the ranks' parts.
    fn cut(&mut self, operations: &[Operation]) {
        let runs: Vec<Vec<Ref>> = operations
            .iter()
            .map(|operation| {
                let (mut reads, writes) = operation.accesses();
                reads.extend(writes);
                reads
            })
            .filter(|runs| runs.iter().any(|run| run.size > 1))
            .collect();
        if runs.is_empty() {
            return;
        }
        let interleaved = self.replication == Replication::Interleaved;
        if interleaved {
            for operation in operations {
                let (reads, writes) = operation.accesses();
                for run in reads.iter().chain(&writes) {
                    let cuts = self.cuts.entry((run.rank, run.buffer)).or_default();
                    cuts.extend([run.index, run.end()]);
                }
            }
        } else {
            for run in runs.iter().flatten() {
                if let Some(part) = self.collective.part(run.buffer.model()) {
                    let cuts = self.cuts.entry((run.rank, run.buffer)).or_default();
                    cuts.extend((run.index..run.end()).filter(|index| index.is_multiple_of(part)));
                }
            }
        }
        loop {
            let mut changed = false;
            for operands in &runs {
                let inside: BTreeSet<u64> =
                    operands.iter().flat_map(|run| self.inside(run)).collect();
                for run in operands {
                    let cuts = self.cuts.entry((run.rank, run.buffer)).or_default();
                    for offset in &inside {
                        changed |= cuts.insert(run.index + offset);
                    }
                }
            }
            // Duplicated, a piece's place does not depend on its run: an operation's pieces concern nobody else.
            if !changed || !interleaved {
                return;
            }
        }
    }

    /// Where a run is divided, from its beginning.
    fn inside(&self, run: &Ref) -> Vec<u64> {
        let Some(cuts) = self.cuts.get(&(run.rank, run.buffer)) else { return Vec::new() };
        if run.size < 2 {
            return Vec::new();
        }
        cuts.range(run.index + 1..run.end()).map(|cut| cut - run.index).collect()
    }

    /// The pieces in which an operation is done: offset and number of chunks.
    pub fn pieces(&self, operation: &Operation) -> Vec<(u64, u64)> {
        let (reads, writes) = operation.accesses();
        let operands = || reads.iter().chain(&writes);
        let size = operands().map(|run| run.size).max().unwrap_or_default();
        let inside: BTreeSet<u64> = operands().flat_map(|run| self.inside(run)).collect();
        let starts = std::iter::once(0).chain(inside.iter().copied());
        let ends = inside.iter().copied().chain([size]);
        starts.zip(ends).map(|(start, end)| (start, end - start)).collect()
    }

    /// The first chunk of an instance's share of a piece, in its buffer of the plan.
    pub fn index(&self, piece: &Ref, instance: u64) -> u64 {
        let slots = &self.slots[piece.rank as usize];
        let before = match piece.buffer {
            Buffer::Scratch(_) => slots.scratch_offset(piece.buffer) * self.count,
            _ => 0,
        };
        let Ref { index, size, .. } = *piece;
        before
            + match self.replication {
                Replication::Interleaved => index * self.count + instance * size,
                Replication::Duplicated | Replication::Packed => {
                    let all = slots.buffer(piece.buffer).len() as u64;
                    let part = self.collective.part(piece.buffer.model()).unwrap_or(all).max(1);
                    index / part * part * self.count + instance * part + index % part
                }
            }
    }
}
