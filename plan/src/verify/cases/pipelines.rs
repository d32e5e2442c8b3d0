//! Pipelines: when a few iterations stand for any number of them, and how many those few are.

use super::family::Family;
use crate::lower::site_of;
use crate::program::{Instruction, Layout};
use std::collections::{BTreeMap, BTreeSet};

/// What has to be looked at of pipelines.
#[derive(Clone, Debug, Default)]
pub(super) struct Needed {
    /// All pipelines of all ranks.
    pub(super) loops: Vec<Pipeline>,
    /// A stride at which every pipeline has enough iterations.
    pub(super) stride: u128,
    /// The most iterations that some pipeline needs.
    pub(super) most: u64,
    /// Executions of instructions if every pipeline had as many iterations as it needs.
    pub(super) steps: u128,
}

/// One pipeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pipeline {
    pub(super) rank: usize,
    pub(super) block: usize,
    /// Its `LoopBegin` in the rank's instructions.
    pub(super) at: u32,
    /// Bytes of a window.
    pub(super) unit: u64,
    /// Chunks that the windows cover, at every size.
    pub(super) chunks: u64,
    /// Instructions of its body.
    pub(super) steps: u64,
    /// Least chunks of a slice of packets, as chunks and parts.
    packets: Option<(u64, u64)>,
    /// Most iterations between a signal, or release, and the wait, or acquire, that it serves.
    pub(super) distance: u64,
    posts: bool,
}

/// Looks for whatever would make many iterations differ from few, and says so in `doubts`.
pub(super) fn conditions(family: &Family<'_>, doubts: &mut Vec<String>) -> Needed {
    let layout = family.layout;
    let mut search = Search { layout, loops: Vec::new(), groups: Vec::new(), doubts };
    search.collect();
    search.groups = (0..search.loops.len()).collect();
    search.meetings();
    search.overlaps(family);
    search.needed()
}

pub(super) struct Search<'a> {
    pub(super) layout: &'a Layout,
    pub(super) loops: Vec<Pipeline>,
    /// For each pipeline, another one that it is synchronised with, or itself.
    groups: Vec<usize>,
    doubts: &'a mut Vec<String>,
}

impl Search<'_> {
    pub(super) fn doubt(&mut self, rank: usize, at: u32, problem: impl std::fmt::Display) {
        let site = site_of(&self.layout.ranks[rank], rank as u32, at);
        self.doubts.push(format!("{site}: {problem}"));
    }

    fn collect(&mut self) {
        for (rank, layout) in self.layout.ranks.iter().enumerate() {
            let geometry = &self.layout.geometry.ranks[rank];
            for (block, code) in layout.blocks.iter().enumerate() {
                for at in code.code.range() {
                    let Instruction::LoopBegin { end, unit, chunks, index } =
                        layout.instructions[at]
                    else {
                        continue;
                    };
                    let body = at + 1..code.code.start as usize + end as usize;
                    let posts = layout.instructions[body.clone()]
                        .iter()
                        .any(|instruction| matches!(instruction, Instruction::Post { .. }));
                    let mut pipeline = Pipeline {
                        rank,
                        block,
                        at: at as u32,
                        unit,
                        chunks,
                        steps: body.len() as u64,
                        packets: None,
                        distance: 0,
                        posts,
                    };
                    let moves =
                        || geometry.moves.iter().filter(|moved| moved.in_loop == Some(index));
                    let whole = moves().filter(|moved| moved.parts == 1).map(|moved| moved.size);
                    pipeline.chunks = whole.fold(chunks, u64::max);
                    for moved in moves() {
                        if moved.size > pipeline.chunks {
                            let problem = format!(
                                "a slice of {} chunks in a pipeline over {chunks}: slices decide how many iterations there are",
                                moved.size
                            );
                            let site = site_of(layout, rank as u32, moved.instruction);
                            self.doubts.push(format!("{site}: {problem}"));
                        }
                        if moved.packets && moved.size > 0 {
                            let (size, parts) = pipeline.packets.unwrap_or((u64::MAX, 1));
                            let fewer = u128::from(moved.size) * u128::from(parts)
                                < u128::from(size) * u128::from(moved.parts);
                            if fewer {
                                pipeline.packets = Some((moved.size, moved.parts));
                            }
                        }
                    }
                    self.loops.push(pipeline);
                }
            }
        }
    }

    fn root(&self, mut index: usize) -> usize {
        while self.groups[index] != index {
            index = self.groups[index];
        }
        index
    }

    pub(super) fn join(&mut self, one: usize, other: usize) {
        let [one, other] = [one, other].map(|index| self.root(index));
        self.groups[one.max(other)] = one.min(other);
    }

    /// How many iterations show all that any number of them can.
    fn needed(self) -> Needed {
        let mut enough: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        let mut ports: BTreeSet<usize> = BTreeSet::new();
        for (index, pipeline) in self.loops.iter().enumerate() {
            let root = self.root(index);
            let (path, most) = enough.entry(root).or_default();
            *path = path.saturating_add(pipeline.distance.saturating_add(1));
            *most = pipeline.distance.max(*most);
            if pipeline.posts && ports.insert(index) {
                *path = path.saturating_add(1);
            }
        }
        let mut needed = Needed::default();
        for (index, pipeline) in self.loops.iter().enumerate() {
            let (path, most) = enough[&self.root(index)];
            let iterations = path.saturating_add(most.saturating_mul(2)).saturating_add(1).max(3);
            needed.most = iterations.max(needed.most);
            needed.steps += u128::from(iterations) * u128::from(pipeline.steps);
            let bytes = u128::from(iterations).saturating_mul(u128::from(pipeline.unit));
            for (chunks, parts) in
                [Some((pipeline.chunks, 1)), pipeline.packets].into_iter().flatten()
            {
                if chunks > 0 {
                    let stride = bytes.saturating_mul(u128::from(parts)) / u128::from(chunks);
                    let stride = stride.saturating_add(1);
                    needed.stride = stride.max(needed.stride);
                }
            }
        }
        needed.loops = self.loops;
        needed
    }
}
