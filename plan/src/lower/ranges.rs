//! The second step: the byte ranges of a rank's moves at one call's sizes.

use super::error::LowerError;
use super::layout::site_of;
use super::sizes::{Limits, Slot, Slots};
use super::{ChunkRange, LoopGeometry, MoveGeometry, RankGeometry};
use crate::program::{CallSizes, Layout, Program, RankLayout, Segment, Span};

impl Layout {
    /// The program of `rank` for one call: the second step of lowering.
    ///
    /// # Errors
    /// Any [`LowerError`] that is about sizes, and [`LowerError::Rank`].
    pub fn program(&self, rank: u32, sizes: CallSizes) -> Result<Program, LowerError> {
        let mut program = Program::default();
        self.program_into(rank, sizes, &mut program)?;
        Ok(program)
    }

    /// Like [`Layout::program`], into a program whose memory is reused. After an error `out` holds no program.
    ///
    /// # Errors
    /// As [`Layout::program`].
    pub fn program_into(
        &self,
        rank: u32,
        sizes: CallSizes,
        out: &mut Program,
    ) -> Result<(), LowerError> {
        self.lower_into(rank, sizes, Limits::OfThePlan, out)
    }

    /// Like [`Layout::program`], whatever the plan says of the smallest and the largest message. Nothing may run it.
    pub(crate) fn program_beyond(
        &self,
        rank: u32,
        sizes: CallSizes,
    ) -> Result<Program, LowerError> {
        let mut program = Program::default();
        self.lower_into(rank, sizes, Limits::Ignored, &mut program)?;
        Ok(program)
    }

    /// Whether all ranks may make a call of these sizes, so that one refuses what another would. Cheap but for plans whose moves
    /// do not suit all sizes that suit the buffers.
    ///
    /// # Errors
    /// Why not: any [`LowerError`] that is about sizes.
    pub fn admits(&self, sizes: CallSizes) -> Result<(), LowerError> {
        if self.runtime_sizes {
            return Ok(());
        }
        self.geometry.rules.slots(&self.collective, sizes, Limits::OfThePlan)?;
        self.geometry.particular.iter().try_for_each(|&rank| self.program(rank, sizes).map(drop))
    }

    /// The distance of chunks at these sizes, where it is one for all buffers of all ranks and every chunk is as long.
    pub(crate) fn uniform_stride(&self, sizes: CallSizes) -> Result<Option<u64>, LowerError> {
        Ok(self.geometry.rules.slots(&self.collective, sizes, Limits::Ignored)?.uniform)
    }

    fn lower_into(
        &self,
        rank: u32,
        sizes: CallSizes,
        limits: Limits,
        out: &mut Program,
    ) -> Result<(), LowerError> {
        let (layout, geometry) = self.rank(rank)?;
        out.rank = rank;
        out.moves.clear();
        out.segments.clear();
        out.offsets.clear();
        out.loops.clear();
        if self.runtime_sizes {
            out.scratch_bytes = 0;
            return Ok(());
        }
        let slots = self.geometry.rules.slots(&self.collective, sizes, limits)?;
        out.moves.reserve(geometry.moves.len());
        out.segments.reserve(geometry.moves.len());
        // The first offsets are those of moves in one piece, at their accesses' own positions.
        out.offsets.resize(geometry.chunks.len(), 0);
        out.loops.resize(geometry.loops.len(), 0);
        out.scratch_bytes = self.scratch(rank, &slots)?;
        let own = slots.table()[3 * self.geometry.rules.shape_of[rank as usize] as usize + 2];
        for (pipeline, iterations) in geometry.loops.iter().zip(&mut out.loops) {
            *iterations = windows(pipeline, own.stride, sizes, layout, rank)?;
        }
        if let Some(stride) = slots.uniform {
            for (offset, first) in out.offsets.iter_mut().zip(&geometry.first) {
                *offset = first * stride;
            }
            for moved in &geometry.moves {
                add_uniform(moved, stride, slots.unit, geometry, out);
            }
            return Ok(());
        }
        let mut ranges =
            Ranges { layout, geometry, table: slots.table(), unit: slots.unit, rank, out };
        for moved in &geometry.moves {
            ranges.add(moved)?;
        }
        Ok(())
    }

    /// Bytes of one raw scratch half of `rank` at these sizes, a multiple of 64; packet scratch takes twice as much.
    ///
    /// # Errors
    /// As [`Layout::program`].
    pub fn scratch_bytes(&self, rank: u32, sizes: CallSizes) -> Result<u64, LowerError> {
        self.rank(rank)?;
        if self.runtime_sizes {
            return Ok(0);
        }
        let slots = self.geometry.rules.slots(&self.collective, sizes, Limits::OfThePlan)?;
        self.scratch(rank, &slots)
    }

    fn rank(&self, rank: u32) -> Result<(&RankLayout, &RankGeometry), LowerError> {
        let found = self.ranks.get(rank as usize).zip(self.geometry.ranks.get(rank as usize));
        found.ok_or(LowerError::Rank { rank, ranks: self.ranks.len() as u32 })
    }

    fn scratch(&self, rank: u32, slots: &Slots) -> Result<u64, LowerError> {
        let shape = self.geometry.rules.shape_of[rank as usize] as usize;
        let bytes = self.ranks[rank as usize].scratch_chunks * slots.table()[3 * shape + 2].stride;
        bytes.checked_next_multiple_of(64).ok_or(LowerError::Overflow { what: "scratch" })
    }
}

/// Iterations of a pipeline, from its own number of chunks.
fn windows(
    pipeline: &LoopGeometry,
    stride: u64,
    sizes: CallSizes,
    layout: &RankLayout,
    rank: u32,
) -> Result<u64, LowerError> {
    let LoopGeometry { unit, chunks, packets, instruction } = *pipeline;
    let site = || site_of(layout, rank, instruction);
    for multiple in [sizes.element, if packets { PACKET_PAYLOAD } else { 1 }] {
        if !unit.is_multiple_of(multiple) {
            return Err(LowerError::Window { site: site(), unit, multiple });
        }
    }
    let bytes = chunks.checked_mul(stride).ok_or(LowerError::Overflow { what: "a pipeline" })?;
    Ok(bytes.div_ceil(unit))
}

/// The larger payload of the two packet types.
const PACKET_PAYLOAD: u64 = 8;

/// Adds a move of which every chunk of every side is one stride, so that it is one segment.
fn add_uniform(
    moved: &MoveGeometry,
    stride: u64,
    unit: u64,
    geometry: &RankGeometry,
    out: &mut Program,
) {
    let (start, end) = moved.slice(moved.size * stride, unit);
    let first = out.segments.len() as u32;
    let len = end - start;
    if len > 0 {
        let offsets = moved.accesses.start;
        out.segments.push(Segment { len, padded: len, position: 0, offsets });
    }
    if start > 0 {
        for offset in &mut out.offsets[moved.accesses.range()] {
            *offset += start;
        }
    }
    close(moved, first, len, geometry, out);
}

/// Notes that all segments from `first` are the move's, and that it takes `extent` padded bytes.
fn close(
    moved: &MoveGeometry,
    first: u32,
    extent: u64,
    geometry: &RankGeometry,
    out: &mut Program,
) {
    if let Some(index) = moved.in_loop {
        let unit = geometry.loops[index as usize].unit;
        let iterations = &mut out.loops[index as usize];
        *iterations = (*iterations).max(extent.div_ceil(unit));
    }
    let end = out.segments.len() as u32;
    out.moves.push(Span { start: first, end });
}

impl MoveGeometry {
    /// This block's slice of the move's padded bytes, in whole units.
    fn slice(&self, padded: u64, unit: u64) -> (u64, u64) {
        if self.parts == 1 {
            return (0, padded);
        }
        let start = |part| slice_start(padded / unit, part, self.parts) * unit;
        (start(self.part), start(self.part + 1))
    }
}

/// Where slice `part` of `parts` starts, in a move of `units` units: the first slices take what does not divide.
pub(crate) fn slice_start(units: u64, part: u64, parts: u64) -> u64 {
    part * (units / parts) + part.min(units % parts)
}

/// Turns moves into segments where chunks may be shorter than their strides.
struct Ranges<'a> {
    layout: &'a RankLayout,
    geometry: &'a RankGeometry,
    table: &'a [Slot],
    unit: u64,
    rank: u32,
    out: &'a mut Program,
}

/// The part of a move between two neighbouring cuts.
#[derive(Clone, Copy)]
struct Piece {
    /// Chunks from the move's start.
    from: u64,
    to: u64,
    /// The one stride of the move's sides.
    stride: u64,
    /// Raw bytes, or padded ones where all sides are scratch.
    len: u64,
}

impl Ranges<'_> {
    fn add(&mut self, moved: &MoveGeometry) -> Result<(), LowerError> {
        let first = self.out.segments.len() as u32;
        let geometry = self.geometry;
        let chunks = &geometry.chunks[moved.accesses.range()];
        let offsets = &mut self.out.offsets[moved.accesses.range()];
        let stride = self.table[chunks[0].slot as usize].stride;
        let mut len = None;
        let mut one_piece = moved.cuts.is_empty();
        for (at, offset) in chunks.iter().zip(offsets) {
            let slot = &self.table[at.slot as usize];
            *offset = slot.offset(at.start);
            one_piece &= slot.stride == stride;
            if at.clipped {
                let own = slot.offset(at.end) - *offset;
                one_piece &= own == *len.get_or_insert(own) && !(slot.is_loose() && moved.size > 1);
            }
        }
        let padded = moved.size * stride;
        let slice = moved.slice(padded, self.unit);
        if one_piece {
            let piece = Piece { from: 0, to: moved.size, stride, len: len.unwrap_or(padded) };
            self.segment(moved, piece, slice, moved.accesses.start);
        } else {
            self.pieces(moved, chunks, slice)?;
        }
        close(moved, first, slice.1 - slice.0, geometry, self.out);
        Ok(())
    }

    /// Adds a move that is cut, or whose sides turn out not to fit.
    fn pieces(
        &mut self,
        moved: &MoveGeometry,
        chunks: &[ChunkRange],
        slice: (u64, u64),
    ) -> Result<(), LowerError> {
        let stride = self.slot(&chunks[0]).stride;
        if let Some(other) = chunks.iter().position(|at| self.slot(at).stride != stride) {
            let second = moved.size * self.slot(&chunks[other]).stride;
            return Err(self.unequal(moved, (0, moved.size * stride), (other, second)));
        }
        // Equal chunks that do not fill their stride: every chunk is a block of its own.
        let loose = chunks.iter().any(|at| at.clipped && self.slot(at).is_loose());
        let cuts = &self.geometry.cuts[moved.cuts.range()];
        let (mut from, mut cuts) = (0, cuts.iter());
        while from < moved.size {
            let to = if loose { from + 1 } else { *cuts.next().unwrap_or(&moved.size) };
            let mut raw: Option<(usize, u64)> = None;
            let offsets = self.out.offsets.len() as u32;
            for (side, at) in chunks.iter().enumerate() {
                let slot = *self.slot(at);
                let first = self.geometry.first[moved.accesses.start as usize + side];
                let begin = slot.start(first + from);
                self.out.offsets.push(begin);
                if !at.clipped {
                    continue;
                }
                let len = slot.start(first + to) - begin;
                match raw {
                    Some((other, other_len)) if other_len != len => {
                        return Err(self.unequal(moved, (other, other_len), (side, len)));
                    }
                    _ => raw = Some((side, len)),
                }
            }
            let len = raw.map_or((to - from) * stride, |(_, len)| len);
            self.segment(moved, Piece { from, to, stride, len }, slice, offsets);
            from = to;
        }
        Ok(())
    }

    /// Adds what of a piece lies in the block's slice of the move; `offsets` are those of the piece's start.
    fn segment(&mut self, moved: &MoveGeometry, piece: Piece, slice: (u64, u64), offsets: u32) {
        let Piece { from, to, stride, len: whole } = piece;
        let low = slice.0.max(from * stride);
        let high = slice.1.min(to * stride);
        if low >= high {
            return;
        }
        let (inner, padded) = (low - from * stride, high - low);
        let len = whole.saturating_sub(inner).min(padded);
        if len == 0 && !moved.packets {
            return;
        }
        if inner > 0 {
            let chunks = &self.geometry.chunks[moved.accesses.range()];
            for (at, offset) in chunks.iter().zip(&mut self.out.offsets[offsets as usize..]) {
                // A segment of padding alone stays inside the buffers.
                *offset += if at.clipped { inner.min(whole) } else { inner };
            }
        }
        self.out.segments.push(Segment { len, padded, position: low - slice.0, offsets });
    }

    fn slot(&self, chunk: &ChunkRange) -> &Slot {
        &self.table[chunk.slot as usize]
    }

    fn unequal(
        &self,
        moved: &MoveGeometry,
        (first, first_len): (usize, u64),
        (second, second_len): (usize, u64),
    ) -> LowerError {
        let describe = |side: usize| {
            let position = moved.accesses.start as usize + side;
            let access = self.layout.accesses[position];
            let index = self.geometry.first[position];
            format!("{} {}+{} of rank {}", access.area, index, moved.size, access.rank)
        };
        LowerError::Lengths {
            site: site_of(self.layout, self.rank, moved.instruction),
            first: describe(first),
            first_len,
            second: describe(second),
            second_len,
        }
    }
}
