//! Moves: read some sources, combine them, store the result to some destinations.

use super::table::Place;
use super::{Blocked, Fault, Run, Stop, Window};
use crate::shared::arena::BlockBytes;
use antiphon_hal::kernels;
use antiphon_memory::process;
use antiphon_plan::program::{Area, BlockMove, RuntimeBlock, Segment, Span};
use antiphon_types::ReduceOp;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Payload bytes of packets that are combined at a time.
const PACKET_TILE: usize = 2048;
/// Bytes per call that reaches into another process: the size that measured fastest.
const PROCESS_TILE: u64 = 64 << 10;
/// Bytes that a block moves at a time, before the launch looks at its links and at whether it still goes on.
pub const PART: u64 = 16 << 20;
/// Parts begin and end at multiples of so many bytes, where elements do and the units of packets.
const PART_UNIT: u64 = 8;

/// Temporary memory of a stepping thread; grows to what the widest move needs and stays.
#[derive(Debug, Default)]
pub struct Pad {
    sources: Vec<*const u8>,
    destinations: Vec<*mut u8>,
    places: Vec<Side>,
    buffer: Vec<u64>,
}

// SAFETY: the pointers in a pad are only meaningful within one move and are cleared before the next.
unsafe impl Send for Pad {}

/// One resolved side of a move.
#[derive(Clone, Copy, Debug)]
struct Side {
    rank: u32,
    place: Place,
    packets: bool,
}

impl Pad {
    /// Goes so many bytes further in all sides that are mapped.
    fn advance(&mut self, bytes: u64) {
        if bytes > 0 {
            self.sources.iter_mut().for_each(|at| *at = at.wrapping_add(bytes as usize));
            self.destinations.iter_mut().for_each(|at| *at = at.wrapping_add(bytes as usize));
        }
    }

    /// `bytes` of 8-aligned temporary memory.
    fn buffer(&mut self, bytes: usize) -> *mut u8 {
        let words = bytes.div_ceil(8);
        if self.buffer.len() < words {
            self.buffer.resize(words, 0);
        }
        self.buffer.as_mut_ptr().cast()
    }
}

/// What a move reads and writes, and how it reduces.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub sources: Span,
    pub destinations: Span,
    pub op: ReduceOp,
}

/// The part of a segment that a pipeline's window covers.
#[derive(Clone, Copy)]
pub(super) struct Clip {
    /// Bytes from the segment's start.
    pub start: u64,
    /// Bytes, raw.
    pub len: u64,
    /// Bytes, as the payload of packets.
    pub padded: u64,
}

impl Clip {
    pub fn new(segment: &Segment, window: Window) -> Self {
        let end = segment.position.saturating_add(segment.padded);
        let from = window.start.max(segment.position);
        let to = window.start.saturating_add(window.unit).min(end);
        let start = from - segment.position;
        let padded = to.saturating_sub(from);
        Clip { start, len: segment.len.saturating_sub(start).min(padded), padded }
    }
}

impl Run<'_, '_, '_, '_> {
    /// Runs one move, from where an earlier step left it.
    ///
    /// # Safety
    /// As [`super::step`].
    pub(super) unsafe fn run_move(
        &mut self,
        operands: Operands,
        index: u32,
        window: Window,
    ) -> Result<(), Stop> {
        let program = self.stage.program;
        let segments = program.moves[index as usize];
        let first = segments.start + self.cursor.segment.load(Ordering::Relaxed);
        for number in first..segments.end {
            let segment = program.segments[number as usize];
            let clip = Clip::new(&segment, window);
            if clip.padded > 0 {
                // SAFETY: lowering keeps every offset plus length inside its area; `step`'s caller vouches for
                // the areas.
                let moved = unsafe { self.run_segment(operands, segment.offsets, clip) };
                if let Err(stop) = moved {
                    self.cursor.segment.store(number - segments.start, Ordering::Relaxed);
                    return Err(stop);
                }
            }
        }
        if first != segments.start {
            self.cursor.segment.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    unsafe fn run_segment(
        &mut self,
        operands: Operands,
        offsets: u32,
        Clip { start, len, padded }: Clip,
    ) -> Result<(), Stop> {
        let Operands { sources, destinations, op } = operands;
        let reads = sources.len();
        let kind = self.resolve(sources, destinations, offsets, start)?;
        // SAFETY: the sides were just resolved for this segment.
        unsafe {
            match kind {
                Kind::Raw | Kind::Process => self.in_parts(kind, len, reads, op),
                Kind::Packets => self.packets(reads, op, len, padded),
            }
        }
    }

    /// Moves raw bytes, or the next part of many, whose sides were resolved as of this kind. Resumes at `cursor.progress` bytes.
    unsafe fn in_parts(
        &mut self,
        kind: Kind,
        len: u64,
        reads: usize,
        op: ReduceOp,
    ) -> Result<(), Stop> {
        let part = self.next_part(len, self.pad.places.iter().map(|side| side.rank))?;
        // SAFETY: resolved for `len` bytes.
        unsafe {
            if kind == Kind::Process {
                self.through_processes(reads, op, part.clone())?;
            } else {
                self.pad.advance(part.start);
                self.raw(reads, op, part.end - part.start);
            }
        }
        self.end_part(part, len)
    }

    /// The part of `len` bytes to be moved next, from `cursor.progress` on, unless one of the ranks whose memory they are in has given
    /// the launch up. Such memory may be something else's by now: this process may have been stopped meanwhile.
    pub(super) fn next_part(
        &self,
        len: u64,
        mut ranks: impl Iterator<Item = u32>,
    ) -> Result<Range<u64>, Stop> {
        let done = self.cursor.progress.load(Ordering::Relaxed);
        let rest = PART.saturating_sub(self.moved.next_multiple_of(PART_UNIT));
        if rest == 0 {
            return Err(Stop::Paused);
        }
        // Small moves take less time than the look.
        if done > 0 || len >= PROCESS_TILE {
            let gone = |&rank: &u32| rank != self.stage.rank && self.table.has_given_up(rank);
            if let Some(rank) = ranks.find(gone) {
                return Err(Blocked::GivenUp(rank).into());
            }
        }
        Ok(done..len.min(done + rest))
    }

    /// Counts a part of `len` bytes as moved, and pauses the block where it was not the last.
    pub(super) fn end_part(&mut self, part: Range<u64>, len: u64) -> Result<(), Stop> {
        self.moved += part.end - part.start;
        let over = part.end == len;
        if part.start > 0 || !over {
            self.cursor.progress.store(if over { 0 } else { part.end }, Ordering::Relaxed);
        }
        if over { Ok(()) } else { Err(Stop::Paused) }
    }

    /// Fills the pad with the addresses of all sides.
    fn resolve(
        &mut self,
        sources: Span,
        destinations: Span,
        offsets: u32,
        start: u64,
    ) -> Result<Kind, Stop> {
        self.pad.sources.clear();
        self.pad.destinations.clear();
        self.pad.places.clear();
        let layout = self.layout;
        let program = self.stage.program;
        let mut kind = Kind::Raw;
        let reads = sources.len();
        let sides = sources.range().chain(destinations.range());
        for (position, access) in sides.enumerate() {
            let access = layout.accesses[access];
            let offset = program.offsets[offsets as usize + position] + start;
            let mut packets = false;
            let place = match access.area {
                Area::Input | Area::Output => match self.table.place(access.rank, access.area)? {
                    Place::Unknown => return Err(Blocked::Entry(access.rank).into()),
                    place => {
                        if matches!(place, Place::Process { .. }) {
                            kind = Kind::Process;
                        }
                        place.after(offset)
                    }
                },
                Area::Scratch => {
                    let base = self.scratch(access.rank, Area::Scratch)?;
                    Place::Here(base.wrapping_add(offset as usize))
                }
                Area::Packets => {
                    packets = true;
                    let base = self.scratch(access.rank, Area::Packets)?;
                    Place::Here(base.wrapping_add(2 * offset as usize))
                }
            };
            if packets {
                kind = Kind::Packets;
            }
            let here = match place {
                Place::Here(pointer) => pointer,
                _ => std::ptr::null_mut(),
            };
            if position < reads {
                self.pad.sources.push(here);
            } else {
                self.pad.destinations.push(here);
            }
            self.pad.places.push(Side { rank: access.rank, place, packets });
        }
        Ok(kind)
    }

    /// Copies a runtime block to another one, once both ranks have said how long theirs is.
    ///
    /// # Safety
    /// As [`super::step`].
    pub(super) unsafe fn run_block_move(&mut self, moved: &BlockMove) -> Result<(), Stop> {
        let BlockMove { source, destination, .. } = *moved;
        let (from, read) = self.runtime_block(source)?;
        let (to, written) = self.runtime_block(destination)?;
        if read.len != written.len {
            let (read, written) = (read.len, written.len);
            return Err(Fault::Unequal { source, read, destination, written }.into());
        }
        let unit = self.stage.layout.alignment.max(self.stage.dtype.size() as u64);
        let (start, len) = moved.slice(read.len, unit);
        if len == 0 {
            return Ok(());
        }
        self.pad.sources.clear();
        self.pad.destinations.clear();
        self.pad.places.clear();
        let mut kind = Kind::Raw;
        let mut at = |place: Place, offset: u64, rank: u32| {
            let place = place.after(offset + start);
            let here = match place {
                Place::Here(pointer) => pointer,
                _ => {
                    kind = Kind::Process;
                    std::ptr::null_mut()
                }
            };
            self.pad.places.push(Side { rank, place, packets: false });
            here
        };
        let here = [at(from, read.offset, source.rank), at(to, written.offset, destination.rank)];
        self.pad.sources.push(here[0]);
        self.pad.destinations.push(here[1]);
        // SAFETY: the owners checked that their blocks lie inside their buffers, for which `step`'s caller vouches, and
        // that blocks which are written overlap no others; both are `len` bytes long from here on.
        unsafe { self.in_parts(kind, len, 1, ReduceOp::Sum) }
    }

    /// Where a runtime block's buffer is, and where the block is in it.
    fn runtime_block(&mut self, block: RuntimeBlock) -> Result<(Place, BlockBytes), Stop> {
        // The place is known only from the rank's descriptor of this launch, which it published after its blocks.
        let place = self.table.place(block.rank, block.area())?;
        if place == Place::Unknown {
            return Err(Blocked::Entry(block.rank).into());
        }
        let arena = self.arena(block.rank)?;
        Ok((place, arena.block(self.stage.parity(), block.output, block.index)))
    }

    /// Mapped raw bytes on every side.
    unsafe fn raw(&mut self, reads: usize, op: ReduceOp, len: u64) {
        let Pad { sources, destinations, .. } = &mut *self.pad;
        // SAFETY: resolved for `len` bytes; lowering's moves overlap exactly or not at all.
        unsafe {
            if reads == 1 {
                let source = sources[0];
                destinations.retain(|&destination| destination.cast_const() != source);
                match destinations[..] {
                    [] => {}
                    [one] => kernels::copy(one, source, len as usize),
                    _ => kernels::copy_to(destinations, source, len as usize),
                }
            } else {
                kernels::reduce(self.stage.dtype, op, destinations, sources, len as usize);
            }
        }
    }

    /// Raw bytes of which some lie in processes whose memory is not mapped here: tile by tile through the pad.
    unsafe fn through_processes(
        &mut self,
        reads: usize,
        op: ReduceOp,
        part: Range<u64>,
    ) -> Result<(), Stop> {
        let sides = std::mem::take(&mut self.pad.places);
        let tile = PROCESS_TILE as usize;
        let buffer = self.pad.buffer((sides.len() + 1) * tile);
        let mut failed = None;
        let Range { start: mut done, end } = part;
        while done < end && failed.is_none() {
            let bytes = (end - done).min(PROCESS_TILE) as usize;
            // Asked before each call, for the same reason as between parts; of mapped memory, that is often enough.
            let unmapped = |side: &&Side| matches!(side.place, Place::Process { .. });
            let left =
                sides.iter().filter(unmapped).find(|side| self.table.has_given_up(side.rank));
            if let Some(&Side { rank, .. }) = left {
                self.pad.places = sides;
                return Err(Blocked::GivenUp(rank).into());
            }
            self.pad.sources.clear();
            self.pad.destinations.clear();
            for (number, side) in sides.iter().enumerate() {
                let spare = buffer.wrapping_add(number * tile);
                let here = match side.place {
                    Place::Here(pointer) => pointer.wrapping_add(done as usize),
                    Place::Process { pid, address } if number < reads => {
                        // SAFETY: `spare` is this tile's own part of the pad's buffer.
                        let read = unsafe { process::read(pid, address + done, spare, bytes) };
                        failed = failed.or(read.err().map(|errno| (side.rank, "read", errno)));
                        spare
                    }
                    _ => continue,
                };
                if number < reads {
                    self.pad.sources.push(here);
                } else {
                    self.pad.destinations.push(here);
                }
            }
            if failed.is_some() {
                break;
            }
            // The result goes to a mapped destination where there is one, and from there to the others.
            let result = match self.pad.destinations.first() {
                Some(&mapped) => mapped.cast_const(),
                None if reads == 1 => self.pad.sources[0],
                None => {
                    let spare = buffer.wrapping_add(sides.len() * tile);
                    self.pad.destinations.push(spare);
                    spare
                }
            };
            // SAFETY: every pointer is valid for this tile's bytes.
            unsafe { self.raw(reads, op, bytes as u64) };
            for side in &sides[reads..] {
                if let Place::Process { pid, address } = side.place {
                    // SAFETY: `result` holds this tile's bytes.
                    let written = unsafe { process::write(pid, address + done, result, bytes) };
                    failed = failed.or(written.err().map(|errno| (side.rank, "write", errno)));
                }
            }
            done += bytes as u64;
        }
        self.pad.places = sides;
        match failed {
            // The process is gone: the control thread is about to hear of it, and knows more than this number says.
            Some((peer, _, libc::ESRCH)) => Err(Blocked::Mapping(peer).into()),
            Some((peer, what, errno)) => Err(Fault::Reach { peer, what, errno }.into()),
            None => Ok(()),
        }
    }

    /// Packets on some side. Resumes at `cursor.progress` payload bytes.
    unsafe fn packets(
        &mut self,
        reads: usize,
        op: ReduceOp,
        len: u64,
        padded: u64,
    ) -> Result<(), Stop> {
        let flag = self.stage.flag;
        let (len, padded) = (len as usize, padded as usize);
        let rank = self.stage.rank;
        let mut done = self.cursor.progress.load(Ordering::Relaxed) as usize;
        let all_packets = self.pad.places.iter().all(|side| side.packets);
        let packed_sources = self.pad.places[..reads].iter().any(|side| side.packets);
        // SAFETY: for the whole block, every side is valid for `len` raw or `2 * padded` packet bytes; tiles stay inside.
        unsafe {
            if reads == 1 && !packed_sources && self.raw_destinations(reads) == 0 {
                let Pad { sources, destinations, .. } = &*self.pad;
                kernels::pack_to(destinations, sources[0], len, padded, flag);
                return Ok(());
            }
            if reads == 1 && all_packets {
                let Pad { sources, destinations, .. } = &mut *self.pad;
                for destination in destinations.iter_mut() {
                    *destination = destination.wrapping_add(2 * done);
                }
                let source = sources[0].wrapping_add(2 * done);
                done += kernels::forward(destinations, source, padded - done, flag);
            } else if reads == 1 && packed_sources && self.pad.places.len() == 2 {
                let mut looks = self.stage.patience;
                loop {
                    let source = self.pad.sources[0].wrapping_add(2 * done);
                    let destination = self.pad.destinations[0].wrapping_add(done);
                    let rest = len.saturating_sub(done);
                    done += kernels::unpack(destination, source, rest, padded - done, flag);
                    if done == padded || looks == 0 {
                        break;
                    }
                    looks -= 1;
                    std::hint::spin_loop();
                }
            } else {
                let mut looks = self.stage.patience;
                while done < padded {
                    if self.packet_tile(reads, op, done, len, padded) {
                        done += (padded - done).min(PACKET_TILE);
                    } else if looks > 0 {
                        looks -= 1;
                        std::hint::spin_loop();
                    } else {
                        break;
                    }
                }
            }
        }
        if done < padded {
            self.cursor.progress.store(done as u64, Ordering::Relaxed);
            return Err(Blocked::Packets(rank).into());
        }
        self.cursor.progress.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn raw_destinations(&self, reads: usize) -> usize {
        self.pad.places[reads..].iter().filter(|side| !side.packets).count()
    }

    /// One tile of the general case: unpack every packet source, combine, store raw, pack. `false` if some packet
    /// has not arrived; nothing was stored then.
    unsafe fn packet_tile(
        &mut self,
        reads: usize,
        op: ReduceOp,
        at: usize,
        len: usize,
        padded: usize,
    ) -> bool {
        let flag = self.stage.flag;
        let tile = (padded - at).min(PACKET_TILE);
        let raw = len.saturating_sub(at).min(tile);
        let buffer = self.pad.buffer((reads + 1) * PACKET_TILE);
        let result = buffer.wrapping_add(reads * PACKET_TILE);
        let mut inputs = [std::ptr::null::<u8>(); 16];
        let mut more = Vec::new();
        let inputs: &mut [*const u8] = if reads <= inputs.len() {
            &mut inputs[..reads]
        } else {
            more.resize(reads, std::ptr::null());
            &mut more
        };
        // SAFETY: `buffer` has a tile for every source and one for the result; the sides are valid as in `packets`.
        unsafe {
            for (number, input) in inputs.iter_mut().enumerate() {
                let source = self.pad.sources[number];
                *input = if self.pad.places[number].packets {
                    let spare = buffer.wrapping_add(number * PACKET_TILE);
                    let from = source.wrapping_add(2 * at);
                    if kernels::unpack(spare, from, raw, tile, flag) < tile {
                        return false;
                    }
                    spare
                } else {
                    source.wrapping_add(at)
                };
            }
            let mut first: *mut u8 = result;
            for (number, &destination) in self.pad.destinations.iter().enumerate() {
                if !self.pad.places[reads + number].packets {
                    first = destination.wrapping_add(at);
                    break;
                }
            }
            if reads == 1 {
                if inputs[0] != first.cast_const() {
                    kernels::copy(first, inputs[0], raw);
                }
            } else {
                kernels::reduce(self.stage.dtype, op, &[first], inputs, raw);
            }
            for (number, &destination) in self.pad.destinations.iter().enumerate() {
                if self.pad.places[reads + number].packets {
                    kernels::pack(destination.wrapping_add(2 * at), first, raw, tile, flag);
                } else if destination.wrapping_add(at) != first {
                    kernels::copy(destination.wrapping_add(at), first, raw);
                }
            }
        }
        true
    }
}

/// How a segment is moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Raw,
    Process,
    Packets,
}
