//! The machine: state of all ranks, and how one instruction of one block changes it.

use super::stuck::{Blocked, BlockedOn, InterpretError, Stuck};
use super::{Memory, Value};
use crate::counts::{Counts, CountsError, Extent, Fit};
use crate::lower::Site;
use crate::program::{
    Access, Area, BlockMove, CallSizes, Instruction, Layout, Program, RankLayout, RuntimeBlock,
    Segment, Span,
};
use antiphon_types::ReduceOp;

/// All ranks of a plan, with what outlives a launch: counters, semaphores and scratch.
#[derive(Clone, Debug)]
pub struct Interpreter<'a, V> {
    layout: &'a Layout,
    ranks: Vec<RankState<V>>,
    launch: u64,
    turns: Turns,
}

/// In which order blocks have their turns, and how long a turn is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turns {
    /// Every block one instruction at a time, the first rank's first block before the others.
    #[default]
    Alternate,
    /// Every block as far as it goes, the first rank's first block before the others.
    FirstFirst,
    /// Every block as far as it goes, the last rank's last block before the others.
    LastFirst,
}

#[derive(Clone, Debug)]
struct RankState<V> {
    /// Signals received, per channel.
    inbound: Vec<u64>,
    /// Signals waited for, per channel.
    expected: Vec<u64>,
    semaphores: Vec<i64>,
    /// Arrivals and completed rounds, per barrier.
    barriers: Vec<(u32, u64)>,
    /// Two halves; the first alone where the plan does not alternate.
    scratch: [Vec<V>; 2],
    packets: [Vec<Packet<V>>; 2],
}

#[derive(Clone, Debug)]
struct Packet<V> {
    value: V,
    /// The launch that wrote it; 0 for none.
    launch: u64,
}

/// Where a block is.
#[derive(Clone, Debug, Default)]
struct Cursor {
    /// Position in the block's code.
    at: usize,
    /// The iteration of the pipeline it is in, and the window's bytes.
    window: Option<(u64, u64)>,
    /// What it took or announced before it began to wait here.
    waiting: Option<Waiting>,
}

#[derive(Clone, Copy, Debug)]
enum Waiting {
    Signal(u64),
    Semaphore(i64),
    Barrier(u64),
}

/// What became of a block's next instruction.
enum Step {
    /// It ran, or at least changed something.
    Progress,
    Blocked(BlockedOn),
    Done,
    /// The two sides of this move of a runtime block have different lengths.
    Unequal(u32),
}

impl<'a, V: Value> Interpreter<'a, V> {
    /// A machine that has run nothing.
    pub fn new(layout: &'a Layout) -> Self {
        let ranks = layout.ranks.iter().map(|rank| RankState {
            inbound: vec![0; rank.channels.len()],
            expected: vec![0; rank.channels.len()],
            semaphores: rank.semaphores.clone(),
            barriers: vec![(0, 0); rank.barriers.len()],
            scratch: [Vec::new(), Vec::new()],
            packets: [Vec::new(), Vec::new()],
        });
        Interpreter { layout, ranks: ranks.collect(), launch: 0, turns: Turns::default() }
    }

    /// The same machine with other turns. Where a launch then leaves other values, the plan leaves them to chance: to
    /// whichever rank comes first.
    pub fn with_turns(self, turns: Turns) -> Self {
        Interpreter { turns, ..self }
    }

    /// Runs one launch of all ranks to its end. State carries over to the next launch, which may have other sizes.
    ///
    /// # Errors
    /// The sizes cannot be lowered, the memories do not fit them, or the plan deadlocks; the machine is of no
    /// use after a deadlock.
    pub fn launch(
        &mut self,
        sizes: CallSizes,
        memories: &mut [Memory<V>],
    ) -> Result<(), InterpretError> {
        if self.layout.runtime_sizes {
            return Err(InterpretError::Counts { rank: 0, source: CountsError::Missing });
        }
        self.run(sizes, &[], memories)
    }

    /// Runs one launch of a plan with runtime sizes: `counts` are the blocks of each rank, in elements.
    ///
    /// # Errors
    /// As [`launch`](Self::launch), blocks that do not fit their rank's memory, and blocks of different lengths between
    /// which data was to move.
    pub fn launch_blocks(
        &mut self,
        counts: &[Counts<'_>],
        memories: &mut [Memory<V>],
    ) -> Result<(), InterpretError> {
        let layout = self.layout;
        let ranks = layout.ranks.len();
        for saw in [counts.len(), memories.len()] {
            if saw != ranks {
                let what = "counts and memories of ranks".to_owned();
                return Err(InterpretError::Memories { what, saw, allowed: ranks as u64 });
            }
        }
        for (rank, (counts, memory)) in counts.iter().zip(memories.iter()).enumerate() {
            let error = |source| InterpretError::Counts { rank, source };
            if !layout.runtime_sizes {
                return Err(error(CountsError::Unexpected));
            }
            let fit = Fit {
                blocks: layout.ranks[rank].runtime_blocks,
                elements: [memory.input.len() as u64, memory.output.len() as u64],
                starts: Some([memory.input.start as u64, memory.output.start as u64]),
                in_place: layout.in_place,
                rank: rank as u32,
            };
            counts.check(&fit).map_err(error)?;
        }
        self.run(CallSizes { input: 0, output: 0, element: 1, strict: false }, counts, memories)
    }

    fn run(
        &mut self,
        sizes: CallSizes,
        counts: &[Counts<'_>],
        memories: &mut [Memory<V>],
    ) -> Result<(), InterpretError> {
        let layout = self.layout;
        let programs = (0..layout.ranks.len() as u32).map(|rank| layout.program(rank, sizes));
        let programs = programs.collect::<Result<Vec<_>, _>>()?;
        if !layout.runtime_sizes {
            check_memories(layout, sizes, memories)?;
        }
        self.launch += 1;
        let half = usize::from(layout.double_scratch && self.launch.is_multiple_of(2));
        for (state, program) in self.ranks.iter_mut().zip(&programs) {
            let elements = program.scratch_bytes.div_ceil(sizes.element) as usize;
            if state.scratch[half].len() < elements {
                state.scratch[half].resize(elements, V::zero());
                let empty = Packet { value: V::zero(), launch: 0 };
                state.packets[half].resize(elements, empty);
            }
        }
        let (launch, turns) = (self.launch, self.turns);
        let states = &mut self.ranks;
        let mut run =
            Run { layout, states, programs, memories, sizes, counts, launch, half, turns };
        run.finish()
    }
}

fn check_memories<V>(
    layout: &Layout,
    sizes: CallSizes,
    memories: &[Memory<V>],
) -> Result<(), InterpretError> {
    let error = |what: String, saw, allowed| InterpretError::Memories { what, saw, allowed };
    let (saw, ranks) = (memories.len(), layout.ranks.len());
    if saw != ranks {
        return Err(error("memories".to_owned(), saw, ranks as u64));
    }
    for (rank, memory) in memories.iter().enumerate() {
        let sides = [
            ("input", memory.input.len(), sizes.input),
            ("output", memory.output.len(), sizes.output),
        ];
        for (side, saw, bytes) in sides {
            let allowed = bytes / sizes.element;
            if saw as u64 != allowed {
                return Err(error(format!("elements of the {side} of rank {rank}"), saw, allowed));
            }
        }
    }
    Ok(())
}

/// One launch under way.
struct Run<'a, V> {
    layout: &'a Layout,
    states: &'a mut [RankState<V>],
    programs: Vec<Program>,
    memories: &'a mut [Memory<V>],
    sizes: CallSizes,
    /// The blocks of each rank, in plans with runtime sizes.
    counts: &'a [Counts<'a>],
    launch: u64,
    half: usize,
    turns: Turns,
}

impl<V: Value> Run<'_, V> {
    fn finish(&mut self) -> Result<(), InterpretError> {
        let layout = self.layout;
        let mut cursors: Vec<(usize, usize, Cursor)> = Vec::new();
        for (rank, code) in layout.ranks.iter().enumerate() {
            cursors.extend((0..code.blocks.len()).map(|block| (rank, block, Cursor::default())));
        }
        if self.turns == Turns::LastFirst {
            cursors.reverse();
        }
        loop {
            let (mut progress, mut blocked) = (false, Vec::new());
            for (rank, block, cursor) in &mut cursors {
                loop {
                    match self.step(*rank, *block, cursor) {
                        Step::Progress => progress = true,
                        Step::Done => break,
                        Step::Blocked(on) => {
                            blocked.push((*rank, *block, cursor.at, on));
                            break;
                        }
                        Step::Unequal(index) => {
                            let site = site_of(&layout.ranks[*rank], *rank, *block, cursor.at);
                            return Err(self.unequal(site, index));
                        }
                    }
                    if self.turns == Turns::Alternate {
                        break;
                    }
                }
            }
            if progress {
                continue;
            }
            if blocked.is_empty() {
                return Ok(());
            }
            let blocked = blocked.into_iter().map(|(rank, block, at, on)| Blocked {
                site: site_of(&layout.ranks[rank], rank, block, at),
                on,
            });
            return Err(Stuck { launch: self.launch, blocked: blocked.collect() }.into());
        }
    }

    fn step(&mut self, rank: usize, block: usize, cursor: &mut Cursor) -> Step {
        let layout = &self.layout.ranks[rank];
        let code = &layout.instructions[layout.blocks[block].code.range()];
        let Some(&instruction) = code.get(cursor.at) else { return Step::Done };
        let mut next = cursor.at + 1;
        let step = match instruction {
            Instruction::Move { sources, destinations, reduce, index, .. } => {
                self.movement(rank, [sources, destinations], reduce, index, cursor.window)
            }
            Instruction::Signal { channel, .. } => {
                let channel = layout.channels[channel as usize];
                if let Some(paired) = channel.paired {
                    self.states[channel.peer as usize].inbound[paired as usize] += 1;
                }
                Step::Progress
            }
            Instruction::Wait { channel, .. } => {
                self.wait(rank, channel, layout, &mut cursor.waiting)
            }
            Instruction::Acquire { semaphore } => {
                self.acquire(rank, semaphore, &mut cursor.waiting)
            }
            Instruction::Release { semaphore } => {
                let value = &mut self.states[rank].semaphores[semaphore as usize];
                *value = value.wrapping_add(1);
                Step::Progress
            }
            Instruction::Barrier { barrier, blocks } => {
                self.barrier(rank, barrier, blocks, &mut cursor.waiting)
            }
            Instruction::BlockSync => Step::Progress,
            Instruction::LoopBegin { end, unit, index, .. } => {
                if self.programs[rank].loops[index as usize] == 0 {
                    next = end as usize + 1;
                } else {
                    cursor.window = Some((0, unit));
                }
                Step::Progress
            }
            Instruction::LoopEnd { begin } => {
                let (iteration, unit) = cursor.window.take().unwrap_or_default();
                if let Instruction::LoopBegin { index, .. } = code[begin as usize]
                    && iteration + 1 < self.programs[rank].loops[index as usize]
                {
                    cursor.window = Some((iteration + 1, unit));
                    next = begin as usize + 1;
                }
                Step::Progress
            }
            Instruction::MoveBlock { index } => self.block_move(rank, index),
            // The proxy has nothing better to do than what was posted.
            Instruction::Post { source, destination, index, .. } => {
                let sides = [source, destination].map(|at| Span { start: at, end: at + 1 });
                self.movement(rank, sides, ReduceOp::Sum, index, cursor.window)
            }
            Instruction::Flush { .. } => Step::Progress,
        };
        // A block that only announced its wait has changed something, but stays where it is.
        if matches!(step, Step::Progress) && cursor.waiting.is_none() {
            cursor.at = next;
        }
        step
    }

    fn wait(
        &mut self,
        rank: usize,
        channel: u32,
        layout: &RankLayout,
        waiting: &mut Option<Waiting>,
    ) -> Step {
        let state = &mut self.states[rank];
        let Some(Waiting::Signal(needed)) = *waiting else {
            let expected = &mut state.expected[channel as usize];
            *expected += 1;
            *waiting = Some(Waiting::Signal(*expected));
            return Step::Progress;
        };
        let received = state.inbound[channel as usize];
        if received < needed {
            let peer = layout.channels[channel as usize].peer;
            let (channel_type, channel) = layout.channel_id(channel);
            let on = BlockedOn::Signal { channel_type, channel, peer, received, needed };
            return Step::Blocked(on);
        }
        *waiting = None;
        Step::Progress
    }

    fn acquire(&mut self, rank: usize, semaphore: u32, waiting: &mut Option<Waiting>) -> Step {
        let value = &mut self.states[rank].semaphores[semaphore as usize];
        let Some(Waiting::Semaphore(needed)) = *waiting else {
            let old = *value;
            *value = old.wrapping_sub(1);
            *waiting = (old <= 0).then_some(Waiting::Semaphore(old));
            return Step::Progress;
        };
        if *value < needed {
            return Step::Blocked(BlockedOn::Semaphore { semaphore, value: *value, needed });
        }
        *waiting = None;
        Step::Progress
    }

    fn barrier(
        &mut self,
        rank: usize,
        barrier: u32,
        blocks: u32,
        waiting: &mut Option<Waiting>,
    ) -> Step {
        let (arrived, round) = &mut self.states[rank].barriers[barrier as usize];
        let Some(Waiting::Barrier(joined)) = *waiting else {
            *arrived += 1;
            if *arrived == blocks {
                (*arrived, *round) = (0, *round + 1);
            } else {
                *waiting = Some(Waiting::Barrier(*round));
            }
            return Step::Progress;
        };
        if *round == joined {
            return Step::Blocked(BlockedOn::Barrier { barrier, arrived: *arrived, blocks });
        }
        *waiting = None;
        Step::Progress
    }

    fn movement(
        &mut self,
        rank: usize,
        sides: [Span; 2],
        reduce: ReduceOp,
        index: u32,
        window: Option<(u64, u64)>,
    ) -> Step {
        let program = &self.programs[rank];
        let [sources, destinations] = sides;
        let accesses = &self.layout.ranks[rank].accesses;
        let element = self.sizes.element;
        let pieces: Vec<Piece> = program.segments[program.moves[index as usize].range()]
            .iter()
            .filter_map(|segment| Piece::new(segment, window, element))
            .collect();
        let offset = |piece: &Piece, side: usize, access: &Access| {
            let start = (program.offsets[piece.offsets as usize + side] / element) as usize;
            start + if access.area == Area::Packets { piece.skip } else { piece.raw_skip }
        };
        for piece in &pieces {
            for (side, access) in accesses[sources.range()].iter().enumerate() {
                let start = offset(piece, side, access);
                if let Some(missing) = self.missing(access, start, piece.padded) {
                    let offset = missing as u64 * element;
                    return Step::Blocked(BlockedOn::Packet { rank: access.rank, offset });
                }
            }
        }
        for piece in &pieces {
            let mut result: Option<Vec<V>> = None;
            for (side, access) in accesses[sources.range()].iter().enumerate() {
                let values = self.read(access, offset(piece, side, access), piece.len);
                result = Some(match result {
                    None => values,
                    Some(sum) => {
                        sum.iter().zip(&values).map(|(a, b)| a.combine(b, reduce)).collect()
                    }
                });
            }
            let result = result.unwrap_or_default();
            for (side, access) in accesses[destinations.range()].iter().enumerate() {
                let start = offset(piece, sources.len() + side, access);
                let memory = &mut self.memories[access.rank as usize];
                let state = &mut self.states[access.rank as usize];
                let raw = match access.area {
                    Area::Input => memory.input_mut(),
                    Area::Output => memory.output_mut(),
                    Area::Scratch => &mut state.scratch[self.half],
                    Area::Packets => {
                        let slots = &mut state.packets[self.half][start..start + piece.padded];
                        let padding = std::iter::repeat(V::zero());
                        for (slot, value) in
                            slots.iter_mut().zip(result.iter().cloned().chain(padding))
                        {
                            *slot = Packet { value, launch: self.launch };
                        }
                        continue;
                    }
                };
                raw[start..start + piece.len].clone_from_slice(&result);
            }
        }
        Step::Progress
    }

    fn block_move(&mut self, rank: usize, index: u32) -> Step {
        let moved = self.layout.ranks[rank].block_moves[index as usize];
        let BlockMove { source, destination, .. } = moved;
        let (from, to) = (self.extent(source), self.extent(destination));
        if from.count != to.count {
            return Step::Unequal(index);
        }
        let (start, len) = moved.slice(from.count, 1);
        let range = |extent: Extent| {
            (extent.offset + start) as usize..(extent.offset + start + len) as usize
        };
        let memory = &self.memories[source.rank as usize];
        let values = if source.output { memory.output() } else { memory.input() };
        let values = values[range(from)].to_vec();
        let target = self.memories[destination.rank as usize].output_mut();
        target[range(to)].clone_from_slice(&values);
        Step::Progress
    }

    fn extent(&self, block: RuntimeBlock) -> Extent {
        let Counts { send, receive } = self.counts[block.rank as usize];
        if block.output { receive[block.index as usize] } else { send[block.index as usize] }
    }

    fn unequal(&self, site: Site, index: u32) -> InterpretError {
        let moves = &self.layout.ranks[site.rank as usize].block_moves;
        let BlockMove { source, destination, .. } = moves[index as usize];
        let (read, written) = (self.extent(source).count, self.extent(destination).count);
        InterpretError::Unequal { site, source_block: source, read, destination, written }
    }

    /// The first packet of a range that this launch has not written.
    fn missing(&self, access: &Access, start: usize, count: usize) -> Option<usize> {
        if access.area != Area::Packets {
            return None;
        }
        let packets = &self.states[access.rank as usize].packets[self.half];
        let absent = |packet: &Packet<V>| packet.launch != self.launch;
        packets[start..start + count].iter().position(absent).map(|at| start + at)
    }

    fn read(&self, access: &Access, start: usize, count: usize) -> Vec<V> {
        let state = &self.states[access.rank as usize];
        let memory = &self.memories[access.rank as usize];
        let range = start..start + count;
        match access.area {
            Area::Input => memory.input()[range].to_vec(),
            Area::Output => memory.output()[range].to_vec(),
            Area::Scratch => state.scratch[self.half][range].to_vec(),
            Area::Packets => {
                state.packets[self.half][range].iter().map(|packet| packet.value.clone()).collect()
            }
        }
    }
}

/// What of a segment lies in a window, in elements.
struct Piece {
    offsets: u32,
    /// Elements of the segment before the window, in packets and in raw memory.
    skip: usize,
    raw_skip: usize,
    len: usize,
    padded: usize,
}

impl Piece {
    fn new(segment: &Segment, window: Option<(u64, u64)>, element: u64) -> Option<Self> {
        let (low, high) = match window {
            None => (0, u64::MAX),
            Some((iteration, unit)) => (iteration * unit, (iteration + 1).saturating_mul(unit)),
        };
        let begin = low.saturating_sub(segment.position).min(segment.padded);
        let end = high.saturating_sub(segment.position).min(segment.padded);
        let piece = Piece {
            offsets: segment.offsets,
            skip: (begin / element) as usize,
            raw_skip: (begin.min(segment.len) / element) as usize,
            len: (end.min(segment.len).saturating_sub(begin) / element) as usize,
            padded: ((end - begin) / element) as usize,
        };
        (piece.padded > 0).then_some(piece)
    }
}

fn site_of(layout: &RankLayout, rank: usize, block: usize, at: usize) -> Site {
    let origin = layout.origins[layout.blocks[block].code.start as usize + at];
    Site {
        rank: rank as u32,
        tb: block as u32,
        op: origin.op,
        inner: origin.inner,
        kind: origin.kind,
    }
}
