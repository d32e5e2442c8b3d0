//! A timeline without a cost model: every operation takes one step, waits end as soon as they can.
//!
//! It shows the order of things where times are not to be had, above all in plans that never end: blocks that wait for
//! ever do so to the end of the picture.

use crate::lower::{LowerError, Site};
use crate::program::{
    Access, Area, CallSizes, Instruction, Layout, Program, RankLayout, Segment, Span,
};
use crate::simulate::{Arrow, OpSpan, Timeline};
use std::collections::BTreeMap;

/// Seconds that stand for one step of an operation that moves data.
const STEP: f64 = 1e-6;
/// And of one that does not.
const SHORT_STEP: f64 = 0.4e-6;

/// A timeline in which only the order means something.
#[derive(Clone, Debug, PartialEq)]
pub struct Schematic {
    /// Steps of a microsecond each.
    pub timeline: Timeline,
    /// Where blocks wait for ever; empty if the launch ends.
    pub stuck: Vec<Site>,
}

/// Runs one launch with a step for each operation.
///
/// # Errors
/// Sizes that the plan cannot be lowered for.
pub fn schematic(layout: &Layout, sizes: CallSizes) -> Result<Schematic, LowerError> {
    let ranks = 0..layout.ranks.len() as u32;
    let programs = ranks.map(|rank| layout.program(rank, sizes)).collect::<Result<Vec<_>, _>>()?;
    let mut run = Run::new(layout, programs);
    while run.turn() {}
    Ok(run.finish())
}

/// Something that happened: when, and in which span.
#[derive(Clone, Copy, Debug)]
struct Event {
    time: f64,
    span: u32,
}

#[derive(Default)]
struct Cursor {
    rank: usize,
    block: usize,
    at: usize,
    clock: f64,
    /// The iteration and the window's bytes, inside a pipeline.
    window: Option<(u64, u64)>,
    /// The operation under way.
    current: Option<u32>,
    /// The number of the barrier round that it joined.
    joined: Option<usize>,
}

#[derive(Default)]
struct RankState {
    /// Signals received, by channel.
    inbound: Vec<Vec<Event>>,
    /// Signals waited for, by channel.
    taken: Vec<usize>,
    /// Grants of each semaphore (`None`: its initial value), and how many are taken.
    semaphores: Vec<(Vec<Option<Event>>, usize)>,
    /// Arrivals at each barrier.
    barriers: Vec<Vec<Event>>,
    /// Packets written: from the first byte to one past the last, and by whom.
    packets: BTreeMap<u64, (u64, Event)>,
}

struct Run<'a> {
    layout: &'a Layout,
    programs: Vec<Program>,
    ranks: Vec<RankState>,
    cursors: Vec<Cursor>,
    spans: Vec<OpSpan>,
    arrows: Vec<Arrow>,
}

/// What an instruction needs before it may go on.
enum Needs {
    Never,
    These(Vec<Event>),
}

impl<'a> Run<'a> {
    fn new(layout: &'a Layout, programs: Vec<Program>) -> Self {
        let ranks = layout.ranks.iter().map(|rank| RankState {
            inbound: vec![Vec::new(); rank.channels.len()],
            taken: vec![0; rank.channels.len()],
            semaphores: rank
                .semaphores
                .iter()
                // More grants than operations could ever take are as good as that many.
                .map(|&value| {
                    let grants = value.clamp(0, rank.instructions.len() as i64) as usize;
                    (vec![None; grants], 0)
                })
                .collect(),
            barriers: vec![Vec::new(); rank.barriers.len()],
            packets: BTreeMap::new(),
        });
        let cursors = layout.ranks.iter().enumerate().flat_map(|(rank, code)| {
            let blocks = 0..code.blocks.len();
            blocks.map(move |block| Cursor { rank, block, ..Cursor::default() })
        });
        Run {
            layout,
            programs,
            ranks: ranks.collect(),
            cursors: cursors.collect(),
            spans: Vec::new(),
            arrows: Vec::new(),
        }
    }

    /// Lets every block go on as far as it can; whether any did.
    fn turn(&mut self) -> bool {
        let mut progress = false;
        for number in 0..self.cursors.len() {
            let mut cursor = std::mem::take(&mut self.cursors[number]);
            while self.step(&mut cursor) {
                progress = true;
            }
            self.cursors[number] = cursor;
        }
        progress
    }

    fn step(&mut self, cursor: &mut Cursor) -> bool {
        let layout = self.layout;
        let code = &layout.ranks[cursor.rank];
        let span = code.blocks[cursor.block].code;
        let Some(&instruction) = code.instructions[span.range()].get(cursor.at) else {
            return false;
        };
        match instruction {
            Instruction::LoopBegin { end, unit, index, .. } => {
                cursor.current = None;
                if self.programs[cursor.rank].loops.get(index as usize).is_none_or(|&n| n == 0) {
                    cursor.at = end as usize + 1;
                } else {
                    cursor.window = Some((0, unit));
                    cursor.at += 1;
                }
                return true;
            }
            Instruction::LoopEnd { begin } => {
                cursor.current = None;
                let (iteration, unit) = cursor.window.take().unwrap_or_default();
                cursor.at += 1;
                if let Instruction::LoopBegin { index, .. } =
                    code.instructions[span.range()][begin as usize]
                    && iteration + 1 < self.programs[cursor.rank].loops[index as usize]
                {
                    cursor.window = Some((iteration + 1, unit));
                    cursor.at = begin as usize + 1;
                }
                return true;
            }
            _ => {}
        }
        let position = span.start as usize + cursor.at;
        let number = self.enter(cursor, position);
        let Needs::These(events) = self.needs(cursor, instruction, number) else { return false };
        let ready = events.iter().map(|event| event.time).fold(cursor.clock, f64::max);
        let waited = ready - cursor.clock;
        let moves = matches!(
            instruction,
            Instruction::Move { .. } | Instruction::MoveBlock { .. } | Instruction::Post { .. }
        );
        let time = ready + if moves { STEP } else { SHORT_STEP };
        let waits = matches!(
            instruction,
            Instruction::Wait { .. }
                | Instruction::Acquire { .. }
                | Instruction::Barrier { .. }
                | Instruction::Move { .. }
        );
        if waits {
            let mut from: Vec<u32> = events.iter().map(|event| event.span).collect();
            from.sort_unstable();
            from.dedup();
            let others = from.into_iter().filter(|&from| from != number);
            self.arrows.extend(others.map(|from| Arrow { from, to: number }));
        }
        let done = &mut self.spans[number as usize];
        done.ready += waited;
        done.end = time;
        self.effects(cursor, instruction, Event { time, span: number });
        cursor.clock = time;
        cursor.joined = None;
        cursor.at += 1;
        true
    }

    /// The span of the operation that the instruction at `position` belongs to.
    fn enter(&mut self, cursor: &mut Cursor, position: usize) -> u32 {
        let code = &self.layout.ranks[cursor.rank];
        let origin = code.origins[position];
        let (rank, tb) = (cursor.rank as u32, cursor.block as u32);
        let site = Site { rank, tb, op: origin.op, inner: origin.inner, kind: origin.kind };
        let iteration = cursor.window.map_or(0, |(iteration, _)| iteration);
        if let Some(number) = cursor.current {
            let span = &self.spans[number as usize];
            if span.site == site && span.iteration == iteration {
                return number;
            }
        }
        let number = self.spans.len() as u32;
        let clock = cursor.clock;
        self.spans.push(OpSpan {
            site,
            iteration,
            start: clock,
            ready: clock,
            end: clock,
            bytes: 0,
        });
        cursor.current = Some(number);
        number
    }

    fn needs(&mut self, cursor: &mut Cursor, instruction: Instruction, span: u32) -> Needs {
        let state = &mut self.ranks[cursor.rank];
        match instruction {
            Instruction::Wait { channel, .. } => {
                let channel = channel as usize;
                let Some(&event) = state.inbound[channel].get(state.taken[channel]) else {
                    return Needs::Never;
                };
                state.taken[channel] += 1;
                Needs::These(vec![event])
            }
            Instruction::Acquire { semaphore } => {
                let (grants, taken) = &mut state.semaphores[semaphore as usize];
                let Some(&grant) = grants.get(*taken) else { return Needs::Never };
                *taken += 1;
                Needs::These(grant.into_iter().collect())
            }
            Instruction::Barrier { barrier, blocks } => {
                let arrivals = &mut state.barriers[barrier as usize];
                let joined = *cursor.joined.get_or_insert_with(|| {
                    arrivals.push(Event { time: cursor.clock, span });
                    (arrivals.len() - 1) / blocks.max(1) as usize
                });
                let round = joined * blocks as usize..(joined + 1) * blocks as usize;
                arrivals.get(round).map_or(Needs::Never, |all| Needs::These(all.to_vec()))
            }
            Instruction::Move { sources, index, .. } => self.packets(cursor, sources, index),
            _ => Needs::These(Vec::new()),
        }
    }

    /// The writers of all packets that a move reads.
    fn packets(&self, cursor: &Cursor, sources: Span, index: u32) -> Needs {
        let accesses = &self.layout.ranks[cursor.rank].accesses[sources.range()];
        let program = &self.programs[cursor.rank];
        let mut events = Vec::new();
        for segment in &program.segments[program.moves[index as usize].range()] {
            let Some((skip, len)) = part(segment, cursor.window) else { continue };
            for (side, access) in accesses.iter().enumerate() {
                if access.area != Area::Packets {
                    continue;
                }
                let mut at = program.offsets[segment.offsets as usize + side] + skip;
                let end = at + len;
                let written = &self.ranks[access.rank as usize].packets;
                while at < end {
                    let last = written.range(..=at).next_back();
                    let Some((_, &(until, event))) = last.filter(|(_, (until, _))| *until > at)
                    else {
                        return Needs::Never;
                    };
                    events.push(event);
                    at = until;
                }
            }
        }
        Needs::These(events)
    }

    fn effects(&mut self, cursor: &Cursor, instruction: Instruction, event: Event) {
        let code = &self.layout.ranks[cursor.rank];
        match instruction {
            Instruction::Signal { channel, .. } => {
                let end = &code.channels[channel as usize];
                if let Some(paired) = end.paired {
                    self.ranks[end.peer as usize].inbound[paired as usize].push(event);
                }
            }
            Instruction::Release { semaphore } => {
                self.ranks[cursor.rank].semaphores[semaphore as usize].0.push(Some(event));
            }
            Instruction::Move { sources, destinations, index, .. } => {
                self.store(cursor, code, sources.len(), destinations, index, event);
            }
            Instruction::Post { destination, index, .. } => {
                let destination = Span { start: destination, end: destination + 1 };
                self.store(cursor, code, 1, destination, index, event);
            }
            _ => {}
        }
    }

    fn store(
        &mut self,
        cursor: &Cursor,
        code: &RankLayout,
        sources: usize,
        destinations: Span,
        index: u32,
        event: Event,
    ) {
        let program = &self.programs[cursor.rank];
        let accesses: &[Access] = &code.accesses[destinations.range()];
        for segment in &program.segments[program.moves[index as usize].range()] {
            let Some((skip, len)) = part(segment, cursor.window) else { continue };
            self.spans[event.span as usize].bytes +=
                len.min(segment.len.saturating_sub(skip)) * accesses.len() as u64;
            for (side, access) in accesses.iter().enumerate() {
                if access.area == Area::Packets {
                    let start = program.offsets[segment.offsets as usize + sources + side] + skip;
                    let packets = &mut self.ranks[access.rank as usize].packets;
                    packets.insert(start, (start + len, event));
                }
            }
        }
    }

    fn finish(mut self) -> Schematic {
        let end = self.cursors.iter().map(|cursor| cursor.clock).fold(0.0, f64::max);
        let mut stuck = Vec::new();
        for cursor in &self.cursors {
            let code = &self.layout.ranks[cursor.rank].blocks[cursor.block].code;
            if let Some(number) = cursor.current.filter(|_| cursor.at < code.len()) {
                let span = &mut self.spans[number as usize];
                span.ready = (end + 2.0 * STEP) - (span.end - span.ready);
                span.end = end + 2.0 * STEP;
                stuck.push(span.site);
            }
        }
        let end = if stuck.is_empty() { end } else { end + 2.0 * STEP };
        let timeline =
            Timeline { end, spans: self.spans, arrows: self.arrows, ..Timeline::default() };
        Schematic { timeline, stuck }
    }
}

/// The part of a segment that lies in a window: what is skipped of it, and how many padded bytes are in.
fn part(segment: &Segment, window: Option<(u64, u64)>) -> Option<(u64, u64)> {
    let (low, high) = match window {
        None => (0, u64::MAX),
        Some((iteration, unit)) => {
            (iteration.saturating_mul(unit), (iteration + 1).saturating_mul(unit))
        }
    };
    let start = segment.position.max(low);
    let end = (segment.position + segment.padded).min(high);
    (start < end).then(|| (start - segment.position, end - start))
}
