//! What pipelines touch: only windows of the same iteration may touch the same bytes, if one of them writes.

use super::family::Family;
use super::pipelines::{Pipeline, Search};
use crate::lower::site_of;
use crate::program::{Area, CallSizes, Instruction};
use crate::schedule::Case;
use std::collections::BTreeMap;
use std::ops::Range;

/// How pipelines touch a range.
#[derive(Clone, Copy, Debug)]
struct Touched {
    /// Whether some access writes.
    write: bool,
    /// The first pipeline that touches it, and its instruction.
    pipeline: usize,
    at: u32,
}

/// In place, by rank, the chunks at which input and output start in the memory they share.
fn in_place_starts(family: &Family<'_>) -> Vec<Option<[u64; 2]>> {
    let ranks = 0..family.layout.ranks.len() as u32;
    let shared = family.layout.in_place.then(|| family.sizes(1, 1)).flatten();
    let start = |sizes: CallSizes, rank| {
        let places = Case { sizes, in_place: true, launches: 1 }.places(rank);
        [places.input, places.output]
    };
    ranks.map(|rank| shared.map(|sizes| start(sizes, rank))).collect()
}

impl Search<'_> {
    /// Checks that only accesses of one iteration touch the same bytes.
    pub(super) fn overlaps(&mut self, family: &Family<'_>) {
        let starts = in_place_starts(family);
        // Per memory, what pipelines touch: first chunk, one past the last, slices and window.
        type Key = (u64, u64, u64, u64);
        let mut memories: BTreeMap<(u32, u8), BTreeMap<Key, Touched>> = BTreeMap::new();
        let mut joined: Vec<(usize, usize)> = Vec::new();
        for index in 0..self.loops.len() {
            let Pipeline { rank, at, unit, steps, .. } = self.loops[index];
            let (layout, geometry) = (&self.layout.ranks[rank], &self.layout.geometry.ranks[rank]);
            for at in at + 1..at + 1 + steps as u32 {
                let (index_of, destinations) = match layout.instructions[at as usize] {
                    Instruction::Move { destinations, index, .. } => (index, destinations.range()),
                    Instruction::Post { destination, index, .. } => {
                        (index, destination as usize..destination as usize + 1)
                    }
                    _ => continue,
                };
                let moved = geometry.moves[index_of as usize];
                for position in moved.accesses.range() {
                    let access = layout.accesses[position];
                    let mut first = geometry.first[position];
                    let memory = match (access.area, starts[access.rank as usize]) {
                        (Area::Input | Area::Output, Some(starts)) => {
                            first += starts[access.area as usize];
                            Area::Input as u8
                        }
                        (area, _) => area as u8,
                    };
                    let range = (first, first + moved.size, moved.parts, unit);
                    let write = destinations.contains(&position);
                    let touched = memories.entry((access.rank, memory)).or_default();
                    let known = touched.entry(range);
                    let known = known.or_insert(Touched { write: false, pipeline: index, at });
                    known.write |= write;
                    if access.area == Area::Packets {
                        joined.push((known.pipeline, index));
                    }
                }
            }
        }
        for (one, other) in joined {
            self.join(one, other);
        }
        for touched in memories.values() {
            self.apart(touched.iter().map(|(&(first, end, ..), &touched)| (first..end, touched)));
        }
    }

    /// Checks that no two ranges overlap if one of them is written; `ranges` come in the order of their first chunks.
    fn apart(&mut self, ranges: impl Iterator<Item = (Range<u64>, Touched)>) {
        // The ranges so far that reach furthest, of all and of those that are written.
        let mut furthest: [Option<(u64, Touched)>; 2] = [None; 2];
        for (range, touched) in ranges.filter(|(range, _)| !range.is_empty()) {
            let before = furthest[usize::from(!touched.write)];
            if let Some((_, other)) = before.filter(|&(reach, _)| reach > range.start) {
                let owner = self.loops[other.pipeline].rank;
                let site = site_of(&self.layout.ranks[owner], owner as u32, other.at);
                let problem = format!(
                    "its windows and those of {site} touch the same bytes in different iterations"
                );
                self.doubt(self.loops[touched.pipeline].rank, touched.at, problem);
                return;
            }
            for (which, known) in furthest.iter_mut().enumerate() {
                let counts = which == 0 || touched.write;
                if counts && known.is_none_or(|(reach, _)| reach < range.end) {
                    *known = Some((range.end, touched));
                }
            }
        }
    }
}
