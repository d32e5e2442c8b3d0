//! The second step: the byte ranges of a rank's moves at one call's sizes.

use super::error::LowerError;
use super::layout::place_of;
use super::sizes::{Slot, Slots};
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
        let (layout, geometry) = self.rank(rank)?;
        let slots = self.geometry.rules.slots(&self.collective, sizes)?;
        out.rank = rank;
        out.moves.clear();
        out.segments.clear();
        out.offsets.clear();
        out.loops.clear();
        out.moves.reserve(geometry.moves.len());
        out.segments.reserve(geometry.moves.len());
        out.offsets.reserve(geometry.chunks.len());
        out.loops.resize(geometry.loops.len(), 0);
        out.scratch_bytes = self.scratch(rank, &slots)?;
        let own = slots.table()[3 * self.geometry.rules.shape_of[rank as usize] as usize + 2];
        for (pipeline, iterations) in geometry.loops.iter().zip(&mut out.loops) {
            *iterations = windows(pipeline, own.stride, sizes, layout, rank)?;
        }
        let mut ranges = Ranges { layout, geometry, slots: &slots, rank, out };
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
        self.scratch(rank, &self.geometry.rules.slots(&self.collective, sizes)?)
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
    let place = || place_of(layout, rank, instruction);
    for multiple in [sizes.element, if packets { PACKET_PAYLOAD } else { 1 }] {
        if !unit.is_multiple_of(multiple) {
            return Err(LowerError::Window { place: place(), unit, multiple });
        }
    }
    let bytes = chunks.checked_mul(stride).ok_or(LowerError::Overflow { what: "a pipeline" })?;
    Ok(bytes.div_ceil(unit))
}

/// The larger payload of the two packet types.
const PACKET_PAYLOAD: u64 = 8;

/// Turns moves into segments.
struct Ranges<'a> {
    layout: &'a RankLayout,
    geometry: &'a RankGeometry,
    slots: &'a Slots,
    rank: u32,
    out: &'a mut Program,
}

impl Ranges<'_> {
    fn add(&mut self, moved: &MoveGeometry) -> Result<(), LowerError> {
        let first = self.out.segments.len() as u32;
        let geometry = self.geometry;
        let chunks = &geometry.chunks[moved.accesses.range()];
        let stride = match self.slots.uniform {
            Some(stride) => stride,
            None => self.one_stride(moved, chunks)?,
        };
        let padded = moved.size * stride;
        let (start, end) = if moved.parts == 1 {
            (0, padded)
        } else {
            slice(padded, self.slots.unit, moved.part, moved.parts)
        };
        if self.slots.uniform.is_some() {
            if start < end {
                let len = end - start;
                let offsets = self.out.offsets.len() as u32;
                self.out.offsets.extend(chunks.iter().map(|at| at.index * stride + start));
                self.out.segments.push(Segment { len, padded: len, position: 0, offsets });
            }
        } else {
            let cuts = &geometry.cuts[moved.cuts.range()];
            // Equal chunks that do not fill their stride: every chunk is a block of its own.
            if chunks.iter().any(|at| self.slot(at).is_loose()) {
                for chunk in 0..moved.size {
                    self.piece(moved, chunks, (chunk, chunk + 1), stride, (start, end))?;
                }
            } else {
                let mut from = 0;
                for &cut in cuts.iter().chain(std::iter::once(&moved.size)) {
                    self.piece(moved, chunks, (from, cut), stride, (start, end))?;
                    from = cut;
                }
            }
        }
        if let Some(index) = moved.in_loop {
            let unit = geometry.loops[index as usize].unit;
            let iterations = &mut self.out.loops[index as usize];
            *iterations = (*iterations).max((end - start).div_ceil(unit));
        }
        let end = self.out.segments.len() as u32;
        self.out.moves.push(Span { start: first, end });
        Ok(())
    }

    fn slot(&self, chunk: &ChunkRange) -> Slot {
        self.slots.table()[chunk.slot as usize]
    }

    /// The chunk stride, which all sides must share for a chunk of one to be a chunk of another.
    fn one_stride(&self, moved: &MoveGeometry, chunks: &[ChunkRange]) -> Result<u64, LowerError> {
        let stride = self.slot(&chunks[0]).stride;
        match chunks.iter().position(|at| self.slot(at).stride != stride) {
            None => Ok(stride),
            Some(other) => {
                let second = moved.size * self.slot(&chunks[other]).stride;
                Err(self.unequal(moved, (0, moved.size * stride), (other, second)))
            }
        }
    }

    /// Adds the segment of chunks `from..to` of a move, as far as it lies in the block's `slice`.
    fn piece(
        &mut self,
        moved: &MoveGeometry,
        chunks: &[ChunkRange],
        (from, to): (u64, u64),
        stride: u64,
        slice: (u64, u64),
    ) -> Result<(), LowerError> {
        let low = slice.0.max(from * stride);
        let high = slice.1.min(to * stride);
        let mut raw: Option<(usize, u64)> = None;
        for (side, at) in chunks.iter().enumerate().filter(|(_, at)| !at.is_scratch()) {
            let slot = self.slot(at);
            let end = if to == moved.size {
                slot.offset(at.index + to, at.end)
            } else {
                slot.start(at.index + to)
            };
            let len = end - start_of(&slot, at, from);
            match raw {
                Some((first, first_len)) if first_len != len => {
                    return Err(self.unequal(moved, (first, first_len), (side, len)));
                }
                _ => raw = Some((side, len)),
            }
        }
        if low >= high {
            return Ok(());
        }
        let padded = high - low;
        let inner = low - from * stride;
        let raw_len = raw.map_or((to - from) * stride, |(_, len)| len);
        let len = raw_len.saturating_sub(inner).min(padded);
        if len == 0 && !moved.packets {
            return Ok(());
        }
        let offsets = self.out.offsets.len() as u32;
        for at in chunks {
            let slot = self.slot(at);
            // A segment of padding alone stays inside the buffers.
            let skip = if at.is_scratch() { inner } else { inner.min(raw_len) };
            self.out.offsets.push(start_of(&slot, at, from) + skip);
        }
        self.out.segments.push(Segment { len, padded, position: low - slice.0, offsets });
        Ok(())
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
            let index = self.geometry.chunks[position].index;
            format!("{} {}+{} of rank {}", access.area, index, moved.size, access.rank)
        };
        LowerError::Lengths {
            place: place_of(self.layout, self.rank, moved.instruction),
            first: describe(first),
            first_len,
            second: describe(second),
            second_len,
        }
    }
}

/// Where chunk `from` of an access starts.
fn start_of(slot: &Slot, at: &ChunkRange, from: u64) -> u64 {
    if from == 0 { slot.offset(at.index, at.start) } else { slot.start(at.index + from) }
}

/// Slice `part` of `parts` of `bytes`, in whole units; the first slices take what does not divide.
fn slice(bytes: u64, unit: u64, part: u64, parts: u64) -> (u64, u64) {
    let units = bytes / unit;
    let (each, rest) = (units / parts, units % parts);
    let start = |part: u64| (part * each + part.min(rest)) * unit;
    (start(part), start(part + 1))
}
