//! The memory of all ranks, cut into cells that every access covers wholly or not at all.

use super::cases::Grid;
use crate::lower::ties;
use crate::program::{Area, Layout};
use crate::schedule::Case;
use std::ops::Range;

/// Most cells of a walk: each takes some 50 bytes.
const MOST_CELLS: u32 = 1 << 25;

/// Chunks to a block of a rank's input and output, at least 1; `None` if there are too many.
fn per_block(layout: &Layout, rank: u32) -> Option<[u32; 2]> {
    if layout.runtime_sizes {
        return Some([1; 2]);
    }
    let [input, output] = layout.geometry.rules.per_block(rank).map(|chunks| chunks.max(1));
    Some([u32::try_from(input).ok()?, u32::try_from(output).ok()?])
}

/// Chunks of blocks that something relies on: the last of each kind of block. Blocks of one kind are equally long at every size:
/// those of all inputs, and those of all outputs. Where the collective ties the one to the other, all are of the first kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach(pub [u32; 2]);

impl Reach {
    /// That of a chunk of a block of this kind.
    pub fn of((kind, chunk): (usize, u32)) -> Self {
        let mut reach = Reach::default();
        reach.0[kind] = chunk;
        reach
    }

    /// What either relies on.
    pub fn max(self, other: Self) -> Self {
        Reach([0, 1].map(|kind| self.0[kind].max(other.0[kind])))
    }
}

/// Where every byte range is among the cells.
#[derive(Debug)]
pub(super) struct Space {
    stride: u64,
    cuts: Vec<u64>,
    ranks: Vec<RankSpace>,
    double_scratch: bool,
    /// Whether blocks of inputs and outputs are of one kind.
    tied: bool,
    /// Number of cells in all.
    pub cells: u32,
    /// Some block has several chunks, of which the last may be shorter than the others, or empty, at other sizes.
    pub clips: bool,
}

/// The first cells of a rank's areas, and how many there are.
#[derive(Clone, Copy, Debug, Default)]
struct RankSpace {
    input: u32,
    output: u32,
    inputs: u32,
    outputs: u32,
    /// By half.
    scratch: [u32; 2],
    packets: [u32; 2],
    /// Chunks to a block of input and output, at least 1.
    per_block: [u32; 2],
}

impl Space {
    /// The cells of a case; `None` if there are too many, or if buffers that share memory meet inside cells.
    pub fn new(layout: &Layout, grid: &Grid, case: &Case) -> Option<Self> {
        let per_chunk = grid.cuts.len().saturating_sub(1) as u64;
        let stride = grid.stride.max(1);
        let cells = |bytes: u64| {
            let (whole, rest) = (bytes / stride, bytes % stride);
            let piece = grid.cuts.partition_point(|&cut| cut < rest) as u64;
            u32::try_from(whole.checked_mul(per_chunk)?.checked_add(piece)?).ok()
        };
        let mut next = 0u32;
        let mut take = |count: u32| {
            let first = next;
            next = next.checked_add(count).filter(|&next| next <= MOST_CELLS)?;
            Some(first)
        };
        let halves = if layout.double_scratch { 2 } else { 1 };
        let mut ranks = Vec::with_capacity(layout.ranks.len());
        for (rank, own) in (0u32..).zip(&layout.ranks) {
            let mut sizes = case.sizes;
            if layout.runtime_sizes {
                let [inputs, outputs] = own.runtime_blocks.map(u64::from);
                sizes.input = inputs.checked_mul(stride)?;
                sizes.output = outputs.checked_mul(stride)?;
            }
            let (inputs, outputs) = (cells(sizes.input)?, cells(sizes.output)?);
            let (input, output, len) = if case.in_place {
                let places = Case { sizes, ..*case }.places(rank);
                let apart = [places.input, places.output].map(|start| start % stride);
                if apart != [0, 0] {
                    // Cells of the one would not lie on cells of the other.
                    return None;
                }
                (cells(places.input)?, cells(places.output)?, cells(places.len)?)
            } else {
                (0, inputs, inputs.checked_add(outputs)?)
            };
            let buffers = take(len)?;
            let mut space = RankSpace {
                input: buffers.checked_add(input)?,
                output: buffers.checked_add(output)?,
                inputs,
                outputs,
                per_block: per_block(layout, rank)?,
                ..RankSpace::default()
            };
            let scratch = cells(own.scratch_chunks.checked_mul(grid.stride)?)?;
            for half in 0..halves {
                space.scratch[half] = take(scratch)?;
                if layout.packets {
                    space.packets[half] = take(scratch)?;
                }
            }
            ranks.push(space);
        }
        let cuts = grid.cuts.clone();
        let clips = ranks.iter().any(|space| space.per_block != [1; 2]);
        Some(Space {
            stride: grid.stride,
            cuts,
            ranks,
            double_scratch: layout.double_scratch,
            tied: ties(&layout.collective),
            cells: next,
            clips,
        })
    }

    /// Which chunk of its block a cell of an input or output is in, and the kind of the block. At sizes at which not all chunks are
    /// full, its bytes are there only if those of the chunks before it are.
    pub fn index(&self, rank: u32, area: Area, cell: u32) -> (usize, u32) {
        self.chunk(rank, area, cell - self.first(rank, area, 1))
    }

    /// The same for a cell that is counted from the first.
    pub fn chunk(&self, rank: u32, area: Area, cell: u32) -> (usize, u32) {
        let side = usize::from(area == Area::Output);
        let chunk = cell / self.per_chunk().max(1);
        (side * usize::from(!self.tied), chunk % self.ranks[rank as usize].per_block[side])
    }

    /// The cells of `len` bytes at `offset` of an area, in the half that a launch uses.
    #[inline]
    pub fn range(&self, rank: u32, area: Area, launch: u32, offset: u64, len: u64) -> Range<u32> {
        let first = self.first(rank, area, launch);
        let start = first + self.cell(offset);
        if self.cuts.len() == 2 && len == self.stride {
            return start..start + 1;
        }
        start..first + self.cell(offset + len)
    }

    /// The first cell of an area.
    pub fn first(&self, rank: u32, area: Area, launch: u32) -> u32 {
        let space = &self.ranks[rank as usize];
        let half = usize::from(self.double_scratch && launch.is_multiple_of(2));
        match area {
            Area::Input => space.input,
            Area::Output => space.output,
            Area::Scratch => space.scratch[half],
            Area::Packets => space.packets[half],
        }
    }

    /// All cells of a rank's input.
    pub fn input(&self, rank: u32) -> Range<u32> {
        let RankSpace { input, inputs, .. } = self.ranks[rank as usize];
        input..input + inputs
    }

    /// All cells of a rank's output.
    pub fn output(&self, rank: u32) -> Range<u32> {
        let RankSpace { output, outputs, .. } = self.ranks[rank as usize];
        output..output + outputs
    }

    /// Cells of one chunk.
    pub fn per_chunk(&self) -> u32 {
        self.cuts.len().saturating_sub(1) as u32
    }

    /// The cell that starts at a byte of an area, counted from the area's first.
    #[inline]
    fn cell(&self, offset: u64) -> u32 {
        if self.stride == 0 {
            return 0;
        }
        let (chunk, rest) = (offset / self.stride, offset % self.stride);
        let piece = if rest == 0 { 0 } else { self.cuts.partition_point(|&cut| cut < rest) as u64 };
        // Fits: `new` counted all cells.
        (chunk * u64::from(self.per_chunk()) + piece) as u32
    }

    /// The bytes of cells that are counted from their area's first.
    pub fn bytes(&self, cells: Range<u32>) -> Range<u64> {
        let start = |cell: u32| {
            let per_chunk = self.per_chunk().max(1);
            let (chunk, piece) = (cell / per_chunk, cell % per_chunk);
            u64::from(chunk) * self.stride + self.cuts.get(piece as usize).copied().unwrap_or(0)
        };
        start(cells.start)..start(cells.end)
    }
}
