//! How a run touches memory.

use super::clock::{Clock, Epoch, Handed};
use super::lineage::Lineage;
use super::shadow::{RAW, Shadow, StepTouch, Toucher};
use super::space::Reach;
use super::state::{Block, CellAt, Event, Found, Proxy, Wait};
use super::values::How;
use super::walk::Walk;
use crate::program::{Access, Area, BlockMove, Segment, Span};
use antiphon_types::ReduceOp;
use std::ops::Range;

/// What of a segment a window covers: bytes from the segment's start, and their number. Where there are packets, no segment
/// is padded.
fn clip(segment: &Segment, window: Option<(u64, u64)>) -> (u64, u64) {
    let Some((iteration, unit)) = window else { return (0, segment.len) };
    let low = iteration.saturating_mul(unit);
    let within = |byte: u64| byte.saturating_sub(segment.position).min(segment.len);
    let start = within(low);
    (start, within(low.saturating_add(unit)) - start)
}

/// One side of a piece of a transfer.
#[derive(Clone, Debug)]
struct Side {
    rank: u32,
    area: Area,
    cells: Range<u32>,
}

/// The pieces of a transfer, each with as many cells on every side.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    sides: Vec<Side>,
    /// Sources of every piece, and its sides in all.
    sources: usize,
    width: usize,
}

impl Pieces {
    fn pieces(&self) -> impl Iterator<Item = (&[Side], &[Side])> {
        let sources = self.sources;
        self.sides.chunks_exact(self.width.max(1)).map(move |sides| sides.split_at(sources))
    }

    fn sources(&self) -> impl Iterator<Item = &Side> {
        self.pieces().flat_map(|(sources, _)| sources)
    }
}

/// Two touches without order, of a cell of a side.
#[derive(Debug)]
struct Clash {
    earlier: StepTouch,
    later: StepTouch,
    side: Side,
    /// Of the cell, from the side's first.
    offset: u32,
}

impl Clash {
    fn new([earlier, later]: [StepTouch; 2], side: &Side, offset: u32) -> Self {
        Clash { earlier, later, side: side.clone(), offset }
    }
}

/// Who transfers: a block, or the proxy that it posted to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Block,
    Proxy(u32),
}

/// Which chunks of blocks a move takes at one cell of each side.
#[derive(Clone, Copy, Default)]
struct Chunks {
    /// The last ones that it takes itself.
    own: Reach,
    /// The last ones that what it moves came through.
    through: Reach,
}

impl Chunks {
    /// Notes that these chunks meet in one move. `chunk` numbers the chunk of a side's cell at `offset`.
    fn met(
        shadow: &mut Shadow<'_>,
        [sources, destinations]: [&[Side]; 2],
        offset: u32,
        chunk: impl Fn(&Side) -> (usize, u32),
    ) -> Self {
        let clipped = sources.iter().chain(destinations).filter(|side| is_clipped(side));
        let (mut first, mut own) = ([u32::MAX; 2], Reach::default());
        for (kind, chunk) in clipped.map(chunk) {
            first[kind] = chunk.min(first[kind]);
            own = own.max(Reach::of((kind, chunk)));
        }
        for (kind, (first, last)) in first.into_iter().zip(own.0).enumerate() {
            shadow.meet(kind, first, last);
        }
        let from = sources.iter().map(|side| shadow.through(side.cells.start + offset));
        Chunks { own, through: from.fold(own, Reach::max) }
    }
}

impl Walk<'_> {
    /// A transfer by the threads of a block.
    pub(super) fn movement(
        &mut self,
        index: u32,
        sides: [Span; 2],
        reduce: How,
        number: u32,
    ) -> Result<(), Wait> {
        let pieces = self.pieces(index, sides, number);
        let done = self.try_movement(index, &pieces, reduce);
        self.buffer = pieces;
        done
    }

    fn try_movement(&mut self, index: u32, pieces: &Pieces, reduce: How) -> Result<(), Wait> {
        self.await_starts(index, pieces)?;
        let launch = self.launch(index);
        for side in pieces.sources().filter(|side| side.area == Area::Packets) {
            let missing = side.cells.clone().find(|&cell| self.shadow.launch(cell) != launch);
            if let Some(cell) = missing {
                return Err(Wait::Packet { owner: side.rank, cell });
            }
        }
        self.ran(index);
        self.transfer(pieces, reduce, index, By::Block);
        self.observe_packets(pieces, index);
        Ok(())
    }

    /// A transfer by the proxy of a port channel. In this run it happens at once.
    pub(super) fn post(
        &mut self,
        index: u32,
        channel: u32,
        [source, destination]: [u32; 2],
        number: u32,
    ) -> Result<(), Wait> {
        let one = |at: u32| Span { start: at, end: at + 1 };
        let pieces = self.pieces(index, [one(source), one(destination)], number);
        let started = self.await_starts(index, &pieces);
        if started.is_ok() {
            self.ran(index);
            let handed = self.handed(index);
            let proxy = self.proxy(self.blocks[index as usize].rank, channel);
            let actor = self.blocks.len() as u32 + proxy;
            let state = &mut self.proxies[proxy as usize];
            handed.teach(&mut state.clock);
            let Block { number: block, at, window, .. } = self.blocks[index as usize];
            let iteration = window.map_or(0, |(iteration, _)| iteration);
            let launch = self.launch(index);
            self.transfer(&pieces, ReduceOp::Sum.into(), index, By::Proxy(proxy));
            let cells: usize = pieces.sources().map(|side| side.cells.len()).sum();
            self.proxies[proxy as usize].count += cells as u32;
            for _ in 0..cells {
                self.note(actor, Event::Posted { block, launch, at, iteration });
            }
        }
        self.buffer = pieces;
        started
    }

    fn launch(&self, index: u32) -> u32 {
        self.ranks[self.blocks[index as usize].rank as usize].launch
    }

    /// The cells of a transfer, of this window.
    fn pieces(&mut self, index: u32, sides: [Span; 2], number: u32) -> Pieces {
        let mut pieces = std::mem::take(&mut self.buffer);
        pieces.sides.clear();
        pieces.sources = sides[0].len();
        pieces.width = sides[0].len() + sides[1].len();
        let block = &self.blocks[index as usize];
        let launch = self.ranks[block.rank as usize].launch;
        let own = &self.setting.layout.ranks[block.rank as usize];
        let program = &self.setting.grid.programs[block.rank as usize];
        for segment in &program.segments[program.moves[number as usize].range()] {
            let (skip, len) = clip(segment, block.window);
            if len == 0 {
                continue;
            }
            let accesses = sides.into_iter().flat_map(|span| &own.accesses[span.range()]);
            for (offset, &Access { rank, area }) in (segment.offsets as usize..).zip(accesses) {
                let start = program.offsets[offset] + skip;
                let cells = self.space.range(rank, area, launch, start, len);
                pieces.sides.push(Side { rank, area, cells });
            }
        }
        pieces
    }

    /// Waits until every other rank whose input or output is touched has begun the launch.
    fn await_starts(&self, index: u32, pieces: &Pieces) -> Result<(), Wait> {
        let block = &self.blocks[index as usize];
        let launch = self.ranks[block.rank as usize].launch;
        for side in &pieces.sides {
            if guarded(side, block.rank) && self.ranks[side.rank as usize].launch < launch {
                return Err(Wait::Start { rank: side.rank });
            }
        }
        Ok(())
    }

    /// Reads, combines and writes.
    fn transfer(&mut self, pieces: &Pieces, reduce: How, index: u32, by: By) {
        let launch = self.launch(index);
        let mut clashes = Vec::new();
        let mut written = Vec::new();
        let wake = !self.waiting_packet.is_empty();
        let lineage = self.setting.lineage;
        let Walk { blocks, proxies, ranks, shadow, space, values, arguments, made_from, .. } = self;
        let (touched, record) = (&mut self.touched, &mut self.record);
        let looped = blocks[index as usize].window.is_some();
        let own = blocks[index as usize].rank;
        let (clock, mut step, mut met) = match by {
            By::Block => {
                let block = &blocks[index as usize];
                (&block.clock, Epoch { actor: index, count: block.count }, block.met)
            }
            By::Proxy(proxy) => {
                let Proxy { clock, count } = &proxies[proxy as usize];
                // It goes cell by cell, in order: the first of its steps is the next.
                (clock, Epoch { actor: blocks.len() as u32 + proxy, count: *count }, *count)
            }
        };
        let entry = |side: &Side| {
            guarded(side, own).then(|| &ranks[side.rank as usize].starts[launch as usize - 1])
        };
        crossings(pieces, step, &mut clashes);
        for (sources, destinations) in pieces.pieces() {
            let count = sources.first().map_or(0, |side| side.cells.len() as u32);
            *touched += u64::from(count) * (sources.len() + destinations.len()) as u64;
            for offset in 0..count {
                if by != By::Block {
                    met = step.count;
                    step.count += 1;
                }
                arguments.clear();
                made_from.clear();
                let chunk =
                    |side: &Side| space.index(side.rank, side.area, side.cells.start + offset);
                let Chunks { own: own_chunk, through } = match space.clips {
                    true => Chunks::met(shadow, [sources, destinations], offset, chunk),
                    false => Chunks::default(),
                };
                for side in sources {
                    let cell = side.cells.start + offset;
                    let toucher = Toucher {
                        step,
                        clock,
                        met,
                        entry: entry(side),
                        made_from: &[],
                        through: own_chunk,
                    };
                    let raw = if side.area == Area::Packets { 0 } else { RAW };
                    made_from.push(cell | raw);
                    let conflict = match (side.area, by) {
                        (Area::Packets, By::Block) => {
                            shadow.read_packet(cell, &toucher);
                            None
                        }
                        (Area::Packets, By::Proxy(_)) => shadow.read_bytes(cell, &toucher),
                        _ => shadow.read(cell, &toucher),
                    };
                    let later = StepTouch::read(step);
                    clashes
                        .extend(conflict.map(|earlier| Clash::new([earlier, later], side, offset)));
                    arguments.push(shadow.value(cell));
                }
                let value = values.combine(reduce, arguments);
                for side in destinations {
                    let cell = side.cells.start + offset;
                    let toucher =
                        Toucher { step, clock, met, entry: entry(side), made_from, through };
                    // A proxy sends flags as they are: of an earlier launch, nobody waits for them.
                    let packets = made_from.iter().filter(|&from| from & RAW == 0);
                    let flag =
                        packets.map(|&from| shadow.launch(from)).find(|&flag| flag != launch);
                    let flag = flag.filter(|_| matches!(by, By::Proxy(_)));
                    let conflict = if side.area != Area::Packets {
                        shadow.write(cell, value, &toucher)
                    } else if let Some(flag) = flag {
                        shadow.write_stale(cell, value, [flag, launch], &toucher)
                    } else {
                        if wake {
                            written.push(cell);
                        }
                        if let Some(record) = record {
                            record.record(cell, launch, step, made_from, looped);
                        }
                        let first = shadow.writer(cell);
                        // Without a lineage, whoever reads it does not know which rank, or proxy, it has heard of.
                        let other = lineage.is_none()
                            && shadow.launch(cell) == launch
                            && first.actor != step.actor
                            && [first.actor, step.actor].iter().any(|&actor| {
                                blocks.get(actor as usize).is_none_or(|block| block.rank != own)
                            });
                        shadow.shared |= other;
                        let two = other.then_some(StepTouch::write(first));
                        shadow.write_packet(cell, value, launch, &toucher).or(two)
                    };
                    let later = StepTouch::write(step);
                    clashes
                        .extend(conflict.map(|earlier| Clash::new([earlier, later], side, offset)));
                }
            }
        }
        for cell in written {
            self.wake_packet(cell);
        }
        if !clashes.is_empty() {
            let clock = clock_of(self, index, by);
            for clash in &clashes {
                self.note_clash(clash, &clock);
            }
        }
    }

    /// Notes what a reader of packets has observed: that their writers are in the launch and, if a proxy is the writer,
    /// how far it has come.
    fn observe_packets(&mut self, pieces: &Pieces, index: u32) {
        let (own, launch) = (self.blocks[index as usize].rank, self.launch(index));
        let blocks = self.blocks.len() as u32;
        for side in pieces.sources().filter(|side| side.area == Area::Packets) {
            for cell in side.cells.clone() {
                if let Some(lineage) = self.setting.lineage {
                    self.observe_all(lineage, own, launch, cell);
                    continue;
                }
                let writer = self.shadow.writer(cell);
                self.observe(own, self.rank_of(writer.actor), launch);
                if writer.actor < blocks {
                    continue;
                }
                let clock = Clock::new(blocks as usize + self.proxies.len());
                self.ranks[own as usize].learn(&Handed { clock, step: writer });
            }
        }
    }

    /// A reader of a packet has observed all that seeing it tells.
    fn observe_all(&mut self, lineage: &Lineage, own: u32, launch: u32, cell: u32) {
        let Some((number, news)) = lineage.tells(cell, launch) else { return };
        if !self.ranks[own as usize].news.insert(number) {
            return;
        }
        let (ranks, blocks) = (self.ranks.len() as u32, self.blocks.len() as u32);
        for &(of, count) in news {
            if of < ranks {
                self.observe(own, of, launch);
                continue;
            }
            let clock = Clock::new(self.blocks.len() + self.proxies.len());
            let step = Epoch { actor: blocks + of - ranks, count };
            self.ranks[own as usize].learn(&Handed { clock, step });
        }
    }

    /// What was written down of all packets; `None` if that is too much.
    pub(super) fn lineage(&mut self) -> Option<Lineage> {
        let record = self.record.take()?;
        let (ranks, blocks) = (self.ranks.len() as u32, self.blocks.len() as u32);
        record.finish(|step| {
            let proxy = step.actor.checked_sub(blocks);
            (self.rank_of(step.actor), proxy.map(|proxy| ranks + proxy))
        })
    }

    /// The rank of an actor.
    pub(super) fn rank_of(&self, actor: u32) -> u32 {
        if let Some(block) = self.blocks.get(actor as usize) {
            return block.rank;
        }
        let proxy = actor - self.blocks.len() as u32;
        self.first_proxy.partition_point(|&(first, _)| first <= proxy) as u32 - 1
    }

    /// Notes a conflict at a cell of a side. The clock is that of the later touch.
    fn note_clash(&mut self, clash: &Clash, clock: &Clock) {
        let &Clash { earlier, later, ref side, offset } = clash;
        // The half of scratch that it is in does not matter: both are named alike.
        let first = [1, 2].map(|launch| self.space.first(side.rank, side.area, launch));
        let cell = side.cells.start + offset;
        let from = first.into_iter().filter(|&first| first <= cell).max().unwrap_or(cell);
        let place = CellAt { owner: side.rank, area: side.area, cell: cell - from };
        self.note_conflict(Found { earlier, later, place }, clock);
    }

    /// A move of a runtime block: the cells are slices of blocks.
    pub(super) fn block_move(&mut self, index: u32, number: u32) -> Result<(), Wait> {
        let rank = self.blocks[index as usize].rank;
        let launch = self.launch(index);
        let moved = self.setting.layout.ranks[rank as usize].block_moves[number as usize];
        let BlockMove { source, destination, part, parts } = moved;
        let per_block = u64::from(self.space.per_chunk());
        let slice = |part: u64| (per_block * part / parts.max(1)) as u32;
        let side = |block: crate::program::RuntimeBlock| {
            let first = self.space.first(block.rank, block.area(), launch);
            let start = first + block.index * per_block as u32;
            let cells = start + slice(part)..start + slice(part + 1);
            Side { rank: block.rank, area: block.area(), cells }
        };
        let sides = vec![side(source), side(destination)];
        self.try_movement(index, &Pieces { sides, sources: 1, width: 2 }, ReduceOp::Sum.into())
    }
}

/// Whether a side is of a buffer that may end inside of chunks.
fn is_clipped(side: &Side) -> bool {
    matches!(side.area, Area::Input | Area::Output)
}

/// Whether a side may only be touched once its owner has begun the launch.
fn guarded(side: &Side, own: u32) -> bool {
    is_clipped(side) && side.rank != own
}

fn clock_of(walk: &Walk<'_>, index: u32, by: By) -> Clock {
    match by {
        By::Block => walk.blocks[index as usize].clock.clone(),
        By::Proxy(proxy) => walk.proxies[proxy as usize].clock.clone(),
    }
}

/// Finds conflicts within one operation. Each of its threads reads and writes only at its own place, so a destination
/// that overlaps a source at another place may overwrite what another thread is about to read; and two destinations may
/// overlap only if they coincide.
fn crossings(pieces: &Pieces, step: Epoch, clashes: &mut Vec<Clash>) {
    for (at, (_, destinations)) in pieces.pieces().enumerate() {
        for (from, (sources, others)) in pieces.pieces().enumerate() {
            for (place, destination) in destinations.iter().enumerate() {
                // Every pair once.
                let before = if from < at { others.len() } else { place * usize::from(from == at) };
                let mut cross = |other: &Side, earlier: StepTouch| {
                    if let Some(offset) = overlap(&other.cells, &destination.cells, at == from) {
                        let later = StepTouch::write(step);
                        clashes.push(Clash::new([earlier, later], destination, offset));
                    }
                };
                for other in &others[..before] {
                    cross(other, StepTouch::write(step));
                }
                for source in sources.iter().filter(|source| source.rank == destination.rank) {
                    cross(source, StepTouch::read(step));
                }
            }
        }
    }
}

/// The first cell of `written` that is also one of `other`, counted from the start of `written`. In one piece, cells that
/// coincide are touched by the same thread, and do not count.
fn overlap(other: &Range<u32>, written: &Range<u32>, one_piece: bool) -> Option<u32> {
    let apart = other.start >= written.end || written.start >= other.end;
    if apart || (one_piece && other.start == written.start) {
        return None;
    }
    Some(other.start.max(written.start) - written.start)
}
