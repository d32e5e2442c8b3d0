//! Which chunks the pairs of an operation read and write, as far as it is worth to know it.
//!
//! Comparing a pair with every other is quickest while they are few. From [`FEW`] on, a step remembers the runs of chunks
//! of each buffer: a program that goes through a buffer in some order makes few runs of them. It forgets them when
//! another step follows.

use super::hazards::{reads_packets, writes_packets};
use crate::model::{ChunkRef, Op, RefBase};

/// Pairs that are compared one by one.
const FEW: usize = 32;

/// Buffers of peers that are told apart; a block that uses more of them does with comparing one by one.
const BUFFERS: u64 = 4096;

/// What a step remembers of its pairs. It is no part of the step: a copy remembers nothing, and equals the original.
#[derive(Debug, Default)]
pub struct Cover(Option<Box<Runs>>);

impl Clone for Cover {
    fn clone(&self) -> Self {
        Cover(None)
    }
}

impl PartialEq for Cover {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Cover {}

#[derive(Debug, Default)]
struct Runs {
    /// Pairs that are in `read` and `written`.
    pairs: usize,
    read: Chunks,
    written: Chunks,
}

/// Runs of chunks by buffer: begin and end, ascending and apart.
#[derive(Debug, Default)]
struct Chunks(Vec<Vec<(u64, u64)>>);

impl Cover {
    /// Whether no pair of `second` has a chunk in common with the pairs of `first`, whose cover this is, other than
    /// to read it in both. If that is false, it may still be so.
    pub fn apart(&mut self, first: &Op, second: &Op) -> bool {
        if first.dst.len() < FEW || first.src.len() != first.dst.len() {
            return false;
        }
        let runs = self.0.get_or_insert_default();
        if runs.pairs > first.dst.len() {
            **runs = Runs::default();
        }
        // Where packets are written and raw chunks read, one never is the other.
        let one_area = reads_packets(second, 0) == writes_packets(second, 0);
        let known = runs.pairs;
        for (src, dst) in first.src.iter().zip(&first.dst).skip(known) {
            runs.written.add(dst);
            if one_area {
                runs.read.add(src);
            }
        }
        runs.pairs = first.dst.len();
        let shared = |(src, dst)| {
            runs.written.touches(dst)
                || one_area && (runs.written.touches(src) || runs.read.touches(dst))
        };
        !second.src.iter().zip(&second.dst).any(shared)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}

fn slot(chunk: &ChunkRef) -> Option<usize> {
    match chunk.base {
        RefBase::Local(buffer) => Some(buffer as usize),
        RefBase::Remote(id) if id < BUFFERS => Some(3 + id as usize),
        RefBase::Remote(_) | RefBase::Switch(_) => None,
    }
}

impl Chunks {
    fn add(&mut self, chunk: &ChunkRef) {
        let Some(slot) = slot(chunk) else { return };
        if chunk.size == 0 {
            return;
        }
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, Vec::new);
        }
        let runs = &mut self.0[slot];
        let (begin, end) = (chunk.index, chunk.index.saturating_add(chunk.size));
        // The runs that the chunks touch, neighbours included, become one with them.
        let first = match runs.last() {
            Some(last) if last.1 < begin => runs.len(),
            _ => runs.partition_point(|run| run.1 < begin),
        };
        let mut after = first;
        let mut all = (begin, end);
        while let Some(run) = runs.get(after).filter(|run| run.0 <= end) {
            all = (all.0.min(run.0), all.1.max(run.1));
            after += 1;
        }
        match after - first {
            0 => runs.insert(first, all),
            1 => runs[first] = all,
            _ => drop(runs.splice(first..after, [all])),
        }
    }

    /// Whether any of the chunks was added. True too where that is not known.
    fn touches(&self, chunk: &ChunkRef) -> bool {
        let Some(slot) = slot(chunk) else { return true };
        let Some(runs) = self.0.get(slot) else { return false };
        let end = chunk.index.saturating_add(chunk.size);
        if chunk.size == 0 || runs.last().is_none_or(|last| last.1 <= chunk.index) {
            return false;
        }
        let first = runs.partition_point(|run| run.1 <= chunk.index);
        runs.get(first).is_some_and(|run| run.0 < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Buffer;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_the_chunks_added(added in prop::collection::vec((0u64..40, 0u64..5), 0..30)) {
            let mut chunks = Chunks::default();
            let mut plain = [false; 50];
            for (index, size) in added {
                chunks.add(&ChunkRef { base: RefBase::Remote(2), index, size });
                plain[index as usize..][..size as usize].fill(true);
                for (index, size) in (0..45).flat_map(|index| (0..4).map(move |size| (index, size))) {
                    let expected = plain[index as usize..][..size as usize].contains(&true);
                    let chunk = ChunkRef { base: RefBase::Remote(2), index, size };
                    prop_assert_eq!(chunks.touches(&chunk), expected);
                    let elsewhere = ChunkRef { base: RefBase::Local(Buffer::Input), ..chunk };
                    prop_assert!(!chunks.touches(&elsewhere));
                }
                let apart = chunks.0.iter().all(|runs| runs.is_sorted_by(|a, b| a.1 < b.0));
                prop_assert!(apart);
            }
        }
    }
}
