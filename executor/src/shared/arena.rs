//! The arena of a launch context: everything of one rank that launches of one plan on one stream change.
//!
//! ```text
//! header | inbound counters | channel states | semaphores | barriers | cursors
//!        | runtime blocks x2 | raw scratch x2 | packets x2
//! ```
//!
//! Peers write the inbound counters and the scratch halves, and read the tables of runtime blocks: the owner writes the
//! one of its launch's parity before the launch's descriptor, when all ranks that it sees have completed the launch before
//! last.
//! Cursors and the rest belong to the rank, but live here so that any process that maps the buffers may step the rank's
//! blocks.

use super::{LAYOUT_VERSION, Line};
use antiphon_plan::program::RankLayout;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// First word of an arena.
pub const MAGIC: u64 = u64::from_le_bytes(*b"antiphAR");

/// The first lines of an arena.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    offsets: [AtomicU64; 6],
    raw: [AtomicU64; 2],
    packets: [AtomicU64; 2],
    bytes: AtomicU64,
    /// Launch number (on the communicator) whose cursors are ready to be stepped.
    pub launch: Line,
    /// Blocks of that launch that are not done.
    pub remaining: Line,
}

/// The rank's private half of a channel.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ChannelState {
    /// Signals waited for so far.
    pub expected: AtomicU64,
    /// Signals sent so far (kept of port channels, and of others where one block signals).
    pub sent: AtomicU64,
}

/// Where a block stands. Fields are written by whoever holds `lock` (or by the owner alone where nobody assists).
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Cursor {
    /// 0 free, else held.
    lock: AtomicU32,
    /// 1 when the block is done with the launch.
    pub done: AtomicU32,
    /// Instruction, counted from the block's start.
    pub pc: AtomicU32,
    /// Segment of the current move.
    pub segment: AtomicU32,
    /// Payload bytes of the current segment that are done.
    pub progress: AtomicU64,
    /// Iteration of the current pipeline.
    pub iteration: AtomicU64,
    /// What the current wait compares with, shifted left by a bit that is set; 0 when the wait has not been entered.
    pub target: AtomicU64,
}

impl Cursor {
    /// Takes the cursor, unless somebody has it. What its last holder did is visible then.
    pub fn try_lock(&self) -> bool {
        self.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives the cursor back.
    pub fn unlock(&self) {
        self.lock.store(0, Ordering::Release);
    }

    /// Puts the block at its start, for whoever has the cursor.
    pub fn rewind(&self) {
        self.pc.store(0, Ordering::Relaxed);
        self.segment.store(0, Ordering::Relaxed);
        self.progress.store(0, Ordering::Relaxed);
        self.iteration.store(0, Ordering::Relaxed);
        self.target.store(0, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
    }

    /// A number that changes whenever the block moves.
    pub fn position(&self) -> u64 {
        let part = |value: u64, weight: u64| value.wrapping_mul(weight);
        part(self.pc.load(Ordering::Relaxed).into(), 0x9E37_79B9_7F4A_7C15)
            .wrapping_add(part(self.segment.load(Ordering::Relaxed).into(), 0xC2B2_AE3D_27D4_EB4F))
            .wrapping_add(part(self.iteration.load(Ordering::Relaxed), 0x1656_67B1_9E37_79F9))
            .wrapping_add(self.progress.load(Ordering::Relaxed))
    }
}

/// Where a runtime block of a launch is in the owner's buffer.
#[repr(C)]
#[derive(Debug, Default)]
pub struct BlockEntry {
    /// Bytes from the buffer's start.
    offset: AtomicU64,
    /// Bytes.
    len: AtomicU64,
}

/// The plain value of a [`BlockEntry`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockBytes {
    /// Bytes from the buffer's start.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Byte offsets of an arena's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaShape {
    channels: u64,
    states: u64,
    semaphores: u64,
    barriers: u64,
    cursors: u64,
    blocks: u64,
    /// Runtime blocks of the input, and of input and output together.
    counts: [u64; 2],
    raw: u64,
    raw_half: u64,
    packets: u64,
    packets_half: u64,
    /// Bytes of the whole arena.
    pub bytes: u64,
}

impl ArenaShape {
    /// The arena of a rank for scratch halves of `scratch` bytes, or `None` if it does not fit 64 bits.
    pub fn new(layout: &RankLayout, scratch: u64, double: bool, packets: bool) -> Option<Self> {
        let mut end: u64 = size_of::<Header>() as u64;
        let mut part = |bytes: u64, align: u64| -> Option<u64> {
            let start = end.checked_next_multiple_of(align)?;
            end = start.checked_add(bytes)?;
            Some(start)
        };
        let lines = |count: usize| count as u64 * 64;
        let channels = part(lines(layout.channels.len()), 64)?;
        let states = part(layout.channels.len() as u64 * size_of::<ChannelState>() as u64, 64)?;
        let semaphores = part(lines(layout.semaphores.len()), 64)?;
        let barriers = part(lines(layout.barriers.len()), 64)?;
        let cursors = part(layout.blocks.len() as u64 * size_of::<Cursor>() as u64, 128)?;
        let [sent, received] = layout.runtime_blocks.map(u64::from);
        let counts = [sent, sent + received];
        let blocks = part(2 * counts[1] * size_of::<BlockEntry>() as u64, 64)?;
        let halves = if double { 2 } else { 1 };
        let raw_half = scratch.checked_next_multiple_of(128)?;
        let raw = part(raw_half.checked_mul(halves)?, 4096)?;
        let packets_half = if packets { raw_half.checked_mul(2)? } else { 0 };
        let packets = part(packets_half.checked_mul(halves)?, 128)?;
        let shape = ArenaShape {
            channels,
            states,
            semaphores,
            barriers,
            cursors,
            blocks,
            counts,
            raw,
            raw_half: if double { raw_half } else { 0 },
            packets,
            packets_half: if double { packets_half } else { 0 },
            bytes: 0,
        };
        Some(ArenaShape { bytes: end, ..shape })
    }
}

impl ArenaShape {
    /// Bytes from the arena's start to the counter that the peer of a channel sets.
    pub fn inbound(&self, channel: u32) -> u64 {
        self.channels + u64::from(channel) * 64
    }

    /// Bytes from the arena's start to raw scratch of a launch with this parity.
    pub fn raw(&self, parity: u64) -> u64 {
        self.raw + parity * self.raw_half
    }

    /// Bytes from the arena's start to packet scratch of a launch with this parity.
    pub fn packets(&self, parity: u64) -> u64 {
        self.packets + parity * self.packets_half
    }
}

/// A mapped arena.
#[derive(Clone, Copy, Debug)]
pub struct Arena {
    base: *mut u8,
    shape: ArenaShape,
}

// SAFETY: an `Arena` is an address and numbers; what it points to is only touched through atomics or through the
// engine's moves, whose ordering is the plan's business.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Lays out a zeroed arena.
    ///
    /// # Safety
    /// `base` is valid for `shape.bytes` bytes, 128-aligned, and stays so while the `Arena` is used.
    pub unsafe fn initialise(base: *mut u8, shape: ArenaShape, layout: &RankLayout) -> Self {
        let arena = Arena { base, shape };
        let header = arena.header();
        let words = [
            shape.channels,
            shape.states,
            shape.semaphores,
            shape.barriers,
            shape.cursors,
            shape.blocks,
        ];
        for (cell, value) in header.offsets.iter().zip(words) {
            cell.store(value, Ordering::Relaxed);
        }
        header.raw[0].store(shape.raw, Ordering::Relaxed);
        header.raw[1].store(shape.raw_half, Ordering::Relaxed);
        header.packets[0].store(shape.packets, Ordering::Relaxed);
        header.packets[1].store(shape.packets_half, Ordering::Relaxed);
        header.bytes.store(shape.bytes, Ordering::Relaxed);
        header.version.store(LAYOUT_VERSION, Ordering::Relaxed);
        for (index, &value) in layout.semaphores.iter().enumerate() {
            arena.semaphore(index as u32).store(value, Ordering::Relaxed);
        }
        header.magic.store(MAGIC, Ordering::Release);
        arena
    }

    /// Reads the shape of a peer's arena, checking that every part this build will touch lies inside it.
    ///
    /// # Safety
    /// `base` is valid for `bytes` bytes, 128-aligned, and stays so while the `Arena` is used.
    pub unsafe fn open(base: *mut u8, bytes: u64, layout: &RankLayout) -> Option<Self> {
        if bytes < size_of::<Header>() as u64 {
            return None;
        }
        // SAFETY: the caller vouches for `bytes` bytes at `base`; all fields are atomics.
        let header = unsafe { &*base.cast::<Header>() };
        let known = header.magic.load(Ordering::Acquire) == MAGIC
            && header.version.load(Ordering::Relaxed) == LAYOUT_VERSION;
        let [sent, received] = layout.runtime_blocks.map(u64::from);
        let word = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let shape = ArenaShape {
            channels: word(&header.offsets[0]),
            states: word(&header.offsets[1]),
            semaphores: word(&header.offsets[2]),
            barriers: word(&header.offsets[3]),
            cursors: word(&header.offsets[4]),
            blocks: word(&header.offsets[5]),
            counts: [sent, sent + received],
            raw: word(&header.raw[0]),
            raw_half: word(&header.raw[1]),
            packets: word(&header.packets[0]),
            packets_half: word(&header.packets[1]),
            bytes: word(&header.bytes),
        };
        let fits = |start: u64, count: usize, size: usize, align: u64| {
            let end =
                (count as u64).checked_mul(size as u64).and_then(|all| all.checked_add(start));
            start.is_multiple_of(align) && end.is_some_and(|end| end <= shape.bytes)
        };
        let inside = shape.bytes <= bytes
            && fits(shape.channels, layout.channels.len(), 64, 64)
            && fits(shape.states, layout.channels.len(), size_of::<ChannelState>(), 64)
            && fits(shape.semaphores, layout.semaphores.len(), 64, 64)
            && fits(shape.barriers, layout.barriers.len(), 64, 64)
            && fits(shape.cursors, layout.blocks.len(), size_of::<Cursor>(), 128)
            && fits(shape.blocks, 2 * shape.counts[1] as usize, size_of::<BlockEntry>(), 64)
            && fits(shape.raw, 2, shape.raw_half as usize, 128)
            && fits(shape.packets, 2, shape.packets_half as usize, 128);
        (known && inside).then_some(Arena { base, shape })
    }

    fn at<T>(&self, offset: u64) -> &T {
        // SAFETY: `initialise`/`open` vouch that every part lies in mapped, aligned memory, and only types made of
        // atomics are read through this.
        unsafe { &*self.base.add(offset as usize).cast::<T>() }
    }

    /// Where its parts are.
    pub fn shape(&self) -> &ArenaShape {
        &self.shape
    }

    /// The header.
    #[inline]
    pub fn header(&self) -> &Header {
        self.at(0)
    }

    /// The counter that the peer of a channel adds to.
    #[inline]
    pub fn inbound(&self, channel: u32) -> &AtomicU64 {
        &self.at::<Line>(self.shape.inbound(channel)).0
    }

    /// The private half of a channel.
    #[inline]
    pub fn channel(&self, channel: u32) -> &ChannelState {
        self.at(self.shape.states + u64::from(channel) * size_of::<ChannelState>() as u64)
    }

    /// A semaphore's value.
    #[inline]
    pub fn semaphore(&self, semaphore: u32) -> &AtomicI64 {
        self.at(self.shape.semaphores + u64::from(semaphore) * 64)
    }

    /// A barrier's count of arrivals since the context was made.
    #[inline]
    pub fn barrier(&self, barrier: u32) -> &AtomicU64 {
        self.at(self.shape.barriers + u64::from(barrier) * 64)
    }

    /// A block's cursor.
    #[inline]
    pub fn cursor(&self, block: u32) -> &Cursor {
        self.at(self.shape.cursors + u64::from(block) * size_of::<Cursor>() as u64)
    }

    fn entry(&self, parity: u64, position: u64) -> &BlockEntry {
        debug_assert!(parity < 2 && position < self.shape.counts[1]);
        let position = parity * self.shape.counts[1] + position;
        self.at(self.shape.blocks + position * size_of::<BlockEntry>() as u64)
    }

    /// A runtime block of the input, or of the output, in a launch with this parity. To be read by whoever has seen the
    /// launch's descriptor.
    #[inline]
    pub fn block(&self, parity: u64, output: bool, index: u32) -> BlockBytes {
        let first = if output { self.shape.counts[0] } else { 0 };
        let entry = self.entry(parity, first + u64::from(index));
        BlockBytes {
            offset: entry.offset.load(Ordering::Relaxed),
            len: entry.len.load(Ordering::Relaxed),
        }
    }

    /// Writes the runtime blocks of a launch with this parity: those of the input, then those of the output. Only the
    /// owner does, before the launch's descriptor, and when all ranks have completed the launch before last.
    pub fn set_blocks(&self, parity: u64, blocks: &[BlockBytes]) {
        debug_assert_eq!(blocks.len() as u64, self.shape.counts[1]);
        for (position, block) in (0..self.shape.counts[1]).zip(blocks) {
            let entry = self.entry(parity, position);
            entry.offset.store(block.offset, Ordering::Relaxed);
            entry.len.store(block.len, Ordering::Relaxed);
        }
    }

    /// Start of raw scratch of a launch with this parity.
    pub fn raw(&self, parity: u64) -> *mut u8 {
        self.base.wrapping_add(self.shape.raw(parity) as usize)
    }

    /// Start of packet scratch of a launch with this parity.
    pub fn packets(&self, parity: u64) -> *mut u8 {
        self.base.wrapping_add(self.shape.packets(parity) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_plan::program::{Block, Channel};

    fn layout(channels: usize, semaphores: usize, barriers: usize, blocks: usize) -> RankLayout {
        RankLayout {
            channels: vec![
                Channel { peer: 1, paired: Some(0), single_signaller: true, port: false };
                channels
            ],
            semaphores: vec![5; semaphores],
            barriers: vec![2; barriers],
            blocks: vec![Block { code: Default::default() }; blocks],
            runtime_blocks: [channels as u32, 3],
            ..RankLayout::default()
        }
    }

    #[test]
    fn the_parts_of_an_arena_are_aligned_and_apart() {
        for counts in [(0, 0, 0, 0), (1, 1, 1, 1), (3, 0, 7, 65), (129, 5, 0, 2)] {
            for (double, packets) in [(false, false), (true, false), (true, true)] {
                for scratch in [0, 1, 4096, 100_001] {
                    let layout = layout(counts.0, counts.1, counts.2, counts.3);
                    let shape = ArenaShape::new(&layout, scratch, double, packets).unwrap();
                    let halves = if double { 2 } else { 1 };
                    let parts = [
                        (0, size_of::<Header>() as u64, 64),
                        (shape.channels, counts.0 as u64 * 64, 64),
                        (shape.states, counts.0 as u64 * 16, 64),
                        (shape.semaphores, counts.1 as u64 * 64, 64),
                        (shape.barriers, counts.2 as u64 * 64, 64),
                        (shape.cursors, counts.3 as u64 * size_of::<Cursor>() as u64, 128),
                        (shape.blocks, 2 * (counts.0 as u64 + 3) * 16, 64),
                        (shape.raw, scratch * halves, 4096),
                        (shape.packets, if packets { 2 * scratch * halves } else { 0 }, 128),
                        (shape.bytes, 0, 1),
                    ];
                    for pair in parts.windows(2) {
                        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{shape:?}");
                    }
                    assert!(parts.iter().all(|part| part.0.is_multiple_of(part.2)), "{shape:?}");
                    assert!(!double || shape.raw_half >= scratch, "{shape:?}");
                }
            }
        }
        assert_eq!(ArenaShape::new(&layout(1, 1, 1, 1), u64::MAX, true, true), None);
        assert_eq!(ArenaShape::new(&layout(1, 1, 1, 1), u64::MAX / 4, true, true), None);
    }

    #[test]
    fn an_arena_opens_as_it_was_laid_out_and_garbage_does_not() {
        let layout = layout(2, 2, 1, 3);
        let shape = ArenaShape::new(&layout, 4096, true, true).unwrap();
        // 4096-aligned, as mapped memory is.
        let mut memory = vec![[0u8; 4096]; shape.bytes as usize / 4096 + 2];
        let base = memory.as_mut_ptr().cast::<u8>();
        let base = base.wrapping_add(base.align_offset(4096));
        // SAFETY: `base` is aligned and valid for `shape.bytes` bytes while `memory` lives.
        unsafe {
            assert!(Arena::open(base, shape.bytes, &layout).is_none(), "zeroes");
            let arena = Arena::initialise(base, shape, &layout);
            let opened = Arena::open(base, shape.bytes, &layout).unwrap();
            assert_eq!(opened.shape, shape);
            assert_eq!(opened.semaphore(1).load(Ordering::Relaxed), 5);
            assert!(Arena::open(base, shape.bytes - 1, &layout).is_none(), "too short");
            assert!(Arena::open(base, 8, &layout).is_none(), "not even a header");
            let more = super::tests::layout(2, 2, 1, 100_000);
            assert!(Arena::open(base, shape.bytes, &more).is_none(), "another plan's");
            let more = RankLayout { runtime_blocks: [2, 1 << 30], ..layout.clone() };
            assert!(Arena::open(base, shape.bytes, &more).is_none(), "more runtime blocks");
            for parity in [0, 1] {
                let bytes = |at| BlockBytes { offset: 100 * parity + at, len: 10 * parity + at };
                arena.set_blocks(parity, &[0, 1, 2, 3, 4].map(bytes));
            }
            for parity in [0, 1] {
                let found = [0, 1].map(|index| opened.block(parity, false, index));
                let received = [0, 1, 2].map(|index| opened.block(parity, true, index));
                for (at, block) in (0..).zip(found.iter().chain(&received)) {
                    assert_eq!((block.offset, block.len), (100 * parity + at, 10 * parity + at));
                }
            }
            let header = arena.header();
            let cells = header.offsets.iter().chain(&header.raw).chain(&header.packets);
            for cell in cells.chain([&header.magic, &header.version, &header.bytes]) {
                let good = cell.load(Ordering::Relaxed);
                for bad in [u64::MAX, u64::MAX - 127, 1 << 63, shape.bytes + 128] {
                    cell.store(bad, Ordering::Relaxed);
                    assert!(Arena::open(base, shape.bytes, &layout).is_none(), "{bad:#x}");
                }
                cell.store(good, Ordering::Relaxed);
            }
            assert!(Arena::open(base, shape.bytes, &layout).is_some());
        }
    }
}
