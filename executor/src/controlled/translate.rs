//! From a lowered program to the machine's code: instructions with numbered counters, moves as units.

use super::code::{BlockCode, Code, Kind, MOST_UNITS, Op, PACKET, RAW_UNIT, UNITS, Unit};
use antiphon_plan::LowerError;
use antiphon_plan::program::{
    Access, Area, BlockMove, Instruction, Layout, Program, RuntimeBlock, Segment, Span,
};
use antiphon_plan::schedule::Case;
use antiphon_types::ReduceOp;

/// One rank's instructions on their way.
pub(super) struct Translation<'a> {
    pub layout: &'a Layout,
    pub case: &'a Case,
    pub program: &'a Program,
    pub rank: u32,
    pub code: &'a mut Code,
}

impl Translation<'_> {
    pub fn rank(mut self) -> Result<(), LowerError> {
        let layout = &self.layout.ranks[self.rank as usize];
        let first = self.code.blocks.len() as u32;
        let threads = layout.threads();
        for (number, block) in (0u32..).zip(&layout.blocks) {
            let start = self.code.ops.len() as u32;
            let mut window = None;
            for at in block.code.range() {
                let instruction = &layout.instructions[at];
                match *instruction {
                    Instruction::LoopBegin { unit, index, .. } => {
                        window = Some((unit, self.program.loops[index as usize]));
                    }
                    Instruction::LoopEnd { .. } => window = None,
                    _ => {}
                }
                self.instruction(*instruction, start, window)?;
                let deal = match instruction {
                    Instruction::Signal { .. }
                    | Instruction::Wait { .. }
                    | Instruction::Acquire { .. }
                    | Instruction::Release { .. }
                    | Instruction::Post { .. }
                    | Instruction::Flush { .. } => threads[at],
                    _ => (at - block.code.start as usize) as u32,
                };
                if let Some(op) = self.code.ops.last_mut() {
                    op.deal = deal;
                }
            }
            let end = self.code.ops.len() as u32;
            self.code.blocks.push(BlockCode { rank: self.rank, number, start, end });
        }
        let end = self.code.blocks.len() as u32;
        self.code.rank_blocks.push(Span { start: first, end });
        Ok(())
    }

    fn instruction(
        &mut self,
        instruction: Instruction,
        start: u32,
        window: Option<(u64, u64)>,
    ) -> Result<(), LowerError> {
        let rank = self.rank as usize;
        let layout = &self.layout.ranks[rank];
        let (channels, semaphores) = (self.code.channels[rank], self.code.semaphores[rank]);
        let list = self.code.lists.len() as u32;
        let gate = self.code.gates.len() as u32;
        let times = window.map_or(0, |(_, times)| times);
        let times = u32::try_from(times).map_err(|_| UNITS)?;
        let kind = match instruction {
            Instruction::Move { sources, destinations, reduce, index, .. } => {
                self.lists([sources, destinations], index, window)?;
                Kind::Data(reduce)
            }
            Instruction::Post { channel, source, destination, index } => {
                let sides = [source, destination].map(|at| Span { start: at, end: at + 1 });
                self.lists(sides, index, window)?;
                Kind::Post { queue: channels + channel }
            }
            Instruction::MoveBlock { index } => {
                self.block_move(&layout.block_moves[index as usize])?;
                Kind::Data(ReduceOp::Sum)
            }
            Instruction::Signal { channel, release } => {
                let end = layout.channels[channel as usize];
                let counter =
                    end.paired.map(|paired| self.code.channels[end.peer as usize] + paired);
                match end.port {
                    true => Kind::PortSignal { queue: channels + channel, counter },
                    false => Kind::Signal { counter, release },
                }
            }
            Instruction::Wait { channel, .. } => Kind::Wait { counter: channels + channel },
            Instruction::Acquire { semaphore } => {
                Kind::Acquire { semaphore: semaphores + semaphore }
            }
            Instruction::Release { semaphore } => {
                Kind::Release { semaphore: semaphores + semaphore }
            }
            Instruction::Barrier { barrier, blocks } => {
                let barrier = self.code.barriers[rank] + barrier;
                Kind::Barrier { barrier, blocks: blocks.into() }
            }
            Instruction::BlockSync => Kind::Sync,
            Instruction::LoopBegin { end, .. } => Kind::LoopBegin { end: start + end, times },
            Instruction::LoopEnd { begin } => {
                let begin = start + begin;
                let times = match self.code.ops[begin as usize].kind {
                    Kind::LoopBegin { times, .. } => times,
                    _ => 0,
                };
                Kind::LoopEnd { begin, times }
            }
            Instruction::Flush { channel } => Kind::Flush { queue: channels + channel },
        };
        let gates = Span { start: gate, end: self.code.gates.len() as u32 };
        self.code.ops.push(Op { kind, list, gates, deal: 0 });
        Ok(())
    }

    /// The units of a move, iteration by iteration.
    fn lists(
        &mut self,
        sides: [Span; 2],
        index: u32,
        window: Option<(u64, u64)>,
    ) -> Result<(), LowerError> {
        let [sources, destinations] = sides;
        let all = &self.layout.ranks[self.rank as usize].accesses;
        let mut accesses = all[sources.range()].to_vec();
        accesses.extend(&all[destinations.range()]);
        self.gate(accesses.iter().copied());
        let program = self.program;
        let (unit, times) = window.unwrap_or((u64::MAX, 1));
        if times > MOST_UNITS as u64 {
            return Err(UNITS);
        }
        for iteration in 0..times {
            let start = self.code.units.len() as u32;
            for segment in &program.segments[program.moves[index as usize].range()] {
                let low = iteration.saturating_mul(unit);
                self.segment(&accesses, sources.len(), segment, low, unit)?;
            }
            let end = self.code.units.len() as u32;
            self.code.lists.push(Span { start, end });
        }
        Ok(())
    }

    /// The units of what of a segment lies in the window of `unit` bytes from `low`.
    fn segment(
        &mut self,
        accesses: &[Access],
        reads: usize,
        segment: &Segment,
        low: u64,
        unit: u64,
    ) -> Result<(), LowerError> {
        let from = low.max(segment.position);
        let to = low.saturating_add(unit).min(segment.position.saturating_add(segment.padded));
        let packets = accesses.iter().any(|access| access.area == Area::Packets);
        let each = if packets { PACKET } else { RAW_UNIT };
        // Raw moves have nothing to do with padding.
        let limit = if packets { segment.padded } else { segment.len };
        let mut at = from - segment.position;
        let end = to.saturating_sub(segment.position).min(limit);
        while at < end {
            let raw = at.min(segment.len);
            let size = each.min(end - at);
            let len = segment.len.saturating_sub(at).min(size);
            let offsets = &self.program.offsets[segment.offsets as usize..];
            let placed = accesses.iter().zip(offsets).map(|(access, offset)| {
                let inner = if access.area == Area::Packets { at } else { raw };
                (*access, offset + inner)
            });
            let placed: Vec<_> = placed.collect();
            self.unit(&placed, reads, len)?;
            at += size;
        }
        Ok(())
    }

    fn unit(&mut self, placed: &[(Access, u64)], reads: usize, len: u64) -> Result<(), LowerError> {
        let sides = self.code.sides.len() as u32;
        let mut masks = [0u64; 2];
        let (mut packets, mut raw_writes) = (false, false);
        for (number, &(access, offset)) in placed.iter().enumerate() {
            let side = self.code.side(access, offset)?;
            self.code.sides.push(side);
            let write = number >= reads;
            if side.is_packet() {
                packets = true;
                continue;
            }
            raw_writes |= write && len > 0;
            if len > 0 {
                let first = side.at(0) as u64 / 8;
                let last = (side.at(0) as u64 + len - 1) / 8;
                for word in first..=last {
                    masks[usize::from(write)] |= 1 << (word % 64);
                }
            }
        }
        if self.code.units.len() >= MOST_UNITS {
            return Err(UNITS);
        }
        self.code.units.push(Unit {
            sides,
            reads: reads as u16,
            writes: (placed.len() - reads) as u16,
            len: len as u8,
            packets,
            raw_writes,
            read_mask: masks[0],
            write_mask: masks[1],
        });
        Ok(())
    }

    fn gate(&mut self, accesses: impl Iterator<Item = Access>) {
        let first = self.code.gates.len();
        for access in accesses {
            let buffer = matches!(access.area, Area::Input | Area::Output);
            if buffer
                && access.rank != self.rank
                && !self.code.gates[first..].contains(&access.rank)
            {
                self.code.gates.push(access.rank);
            }
        }
    }

    /// A move of runtime blocks, which all have the same number of elements here.
    fn block_move(&mut self, moved: &BlockMove) -> Result<(), LowerError> {
        let element = self.case.sizes.element.max(1);
        let each = |block: RuntimeBlock| {
            let sizes = &self.case.sizes;
            let bytes = if block.output { sizes.output } else { sizes.input };
            let blocks = self.layout.ranks[block.rank as usize].runtime_blocks;
            let blocks: u64 = blocks[usize::from(block.output)].max(1).into();
            bytes / element / blocks * element
        };
        let (read, written) = (each(moved.source), each(moved.destination));
        if read != written {
            return Err(LowerError::Shape {
                collective: self.layout.collective.clone(),
                input: self.case.sizes.input,
                output: self.case.sizes.output,
                rule: format!(
                    "blocks must be equally long in a controlled run, saw blocks of {read} and of {written} bytes"
                ),
            });
        }
        let (start, len) = moved.slice(read, self.layout.alignment.max(element));
        let place = |block: RuntimeBlock| {
            let access = Access { rank: block.rank, area: block.area() };
            (access, u64::from(block.index) * read + start)
        };
        let placed = [place(moved.source), place(moved.destination)];
        self.gate(placed.iter().map(|&(access, _)| access));
        let first = self.code.units.len() as u32;
        let mut at = 0;
        while at < len {
            let size = RAW_UNIT.min(len - at);
            self.unit(&placed.map(|(access, offset)| (access, offset + at)), 1, size)?;
            at += size;
        }
        let end = self.code.units.len() as u32;
        self.code.lists.push(Span { start: first, end });
        Ok(())
    }
}
