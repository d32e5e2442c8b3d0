//! Where things are in the memories of a context: the arena that peers map, and what is this rank's own.

use super::proxy;
use antiphon_codegen::abi::{
    ContextWords, DeviceStruct, Inbox, LINE, Link, Marks, Progress, Resolved, RuntimeBlock,
    ScratchPlaces,
};
use antiphon_plan::program::Layout;

/// Hands out places one after the other.
struct Parts(Option<u64>);

impl Parts {
    /// The next place for `count` things of `size` bytes.
    fn part(&mut self, count: u64, size: u64, align: u64) -> u64 {
        let start = self.0.and_then(|end| end.checked_next_multiple_of(align));
        self.0 = start.and_then(|start| start.checked_add(count.checked_mul(size)?));
        start.unwrap_or(0)
    }
}

/// A rank's arena: inboxes, counters of signals, scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaShape {
    /// Bytes to the counters; equal on all ranks.
    pub counters: u64,
    /// Bytes to the tables of runtime blocks.
    pub runtime: u64,
    /// Where scratch is.
    pub scratch: ScratchPlaces,
    /// Bytes in all.
    pub bytes: u64,
}

impl ArenaShape {
    /// The arena of a rank, with scratch halves of `class` bytes; `None` if it does not fit 64 bits.
    pub fn new(layout: &Layout, rank: u32, class: u64) -> Option<Self> {
        let own = &layout.ranks[rank as usize];
        let scratch = if own.scratch_chunks > 0 { class } else { 0 };
        let mut parts = Parts(Some(0));
        parts.part(layout.ranks.len() as u64, Inbox::BYTES as u64, LINE);
        let counters = parts.part(own.channels.len() as u64, LINE, LINE);
        let blocks: u64 = own.runtime_blocks.iter().copied().map(u64::from).sum();
        let runtime = parts.part(2 * blocks, RuntimeBlock::BYTES as u64, LINE);
        let halves = if layout.double_scratch { 2 } else { 1 };
        let apart = |half: u64| if layout.double_scratch { half } else { 0 };
        let raw_half = scratch.checked_next_multiple_of(LINE)?;
        let raw = parts.part(halves, raw_half, 4096);
        let packets_half = if layout.packets { raw_half.checked_mul(2)? } else { 0 };
        let packets = parts.part(halves, packets_half, LINE);
        let scratch = ScratchPlaces {
            raw,
            raw_half: apart(raw_half),
            packets,
            packets_half: apart(packets_half),
        };
        Some(ArenaShape { counters, runtime, scratch, bytes: parts.0? })
    }
}

/// What only this rank's blocks touch, in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnShape {
    /// [`ContextWords`].
    pub context: u64,
    /// A `u64` for each channel.
    pub expected: u64,
    /// Two `u64`s for each channel.
    pub sent: u64,
    /// A `u64` for each semaphore.
    pub semaphores: u64,
    /// A `u64` for each barrier.
    pub barriers: u64,
    /// A `u64` for each rank.
    pub arenas: u64,
    /// [`ScratchPlaces`] of each rank.
    pub scratch: u64,
    /// A `u64` for each block and switch channel.
    pub multicasts: u64,
    /// A `u64` for each rank, and another: where its runtime blocks are, and how far from its arena's start.
    pub runtime: [u64; 2],
    /// A [`Link`] for each channel, in a plan with port channels, and for each rank of another node.
    pub links: u64,
    /// Words of the queue of requests.
    pub claims: u64,
    /// A `u32` for each rank: how launches tell it of themselves.
    pub ways: u64,
    /// Lists of ranks, one behind the other.
    pub lists: u64,
    /// Two [`Resolved`] for each block and rank.
    pub resolved: u64,
    /// Bytes in all.
    pub bytes: u64,
}

impl OwnShape {
    /// The own memory of a rank with lists of so many ranks together, and so many partners on other nodes; `None` if it does
    /// not fit 64 bits.
    pub fn new(layout: &Layout, rank: u32, listed: usize, partners: usize) -> Option<Self> {
        let own = &layout.ranks[rank as usize];
        let world = layout.ranks.len() as u64;
        let mut parts = Parts(Some(0));
        let context = parts.part(1, ContextWords::BYTES as u64, 128);
        let expected = parts.part(own.channels.len() as u64, 8, 128);
        let sent = parts.part(own.channels.len() as u64, 16, 128);
        let semaphores = parts.part(own.semaphores.len() as u64, 8, 128);
        let barriers = parts.part(own.barriers.len() as u64, 8, 128);
        let arenas = parts.part(world, 8, 128);
        let scratch = parts.part(world, ScratchPlaces::BYTES as u64, 128);
        let channels = blocks_of(layout, rank).max(1).checked_mul(own.switches.len() as u64)?;
        let multicasts = parts.part(channels, 8, 128);
        let runtime = [world; 2].map(|world| parts.part(world, 8, 128));
        let [links, words] = match layout.port {
            Some(_) => [(own.channels.len() + partners) as u64, proxy::claims(world)],
            None => [0, 0],
        };
        let links = parts.part(links, Link::BYTES as u64, 128);
        let claims = parts.part(words, 8, 128);
        let ways = parts.part(world, 4, 128);
        let lists = parts.part(listed as u64, 4, 128);
        let pairs = blocks_of(layout, rank).max(1).checked_mul(2 * world)?;
        let resolved = parts.part(pairs, Resolved::BYTES as u64, 128);
        let bytes = parts.0?;
        Some(OwnShape {
            context,
            expected,
            sent,
            semaphores,
            barriers,
            arenas,
            scratch,
            multicasts,
            runtime,
            links,
            claims,
            ways,
            lists,
            resolved,
            bytes,
        })
    }
}

/// What host and device both look at while a kernel runs, in pinned memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedShape {
    /// [`Progress`] of each block.
    pub progress: u64,
    /// The context's [`Marks`].
    pub marks: u64,
    /// A `u64` for each rank: where its arena is mapped.
    pub arenas: u64,
    /// A `u64` for each switch channel: where its multicasts are listed.
    pub groups: u64,
    /// Bytes in all.
    pub bytes: u64,
}

impl PinnedShape {
    /// The pinned memory of a rank.
    pub fn new(layout: &Layout, rank: u32) -> Option<Self> {
        let mut parts = Parts(Some(0));
        let progress = parts.part(blocks_of(layout, rank).max(1), Progress::BYTES as u64, 64);
        let marks = parts.part(1, Marks::BYTES as u64, 64);
        let arenas = parts.part(layout.ranks.len() as u64, 8, 64);
        let switches = layout.ranks[rank as usize].switches.len() as u64;
        let groups = parts.part(switches, 8, 64);
        Some(PinnedShape { progress, marks, arenas, groups, bytes: parts.0? })
    }
}

/// Thread blocks that the plan gives a rank.
pub fn blocks_of(layout: &Layout, rank: u32) -> u64 {
    layout.ranks[rank as usize].blocks.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_plan::algorithms::{Algorithm, Shape};

    #[test]
    fn parts_are_apart_and_in_order() {
        let plan = Algorithm::AllReduceTwoShotPackets.plan(Shape::new(4)).unwrap();
        let layout = Layout::new(&plan).unwrap();
        let arena = ArenaShape::new(&layout, 1, 4096).unwrap();
        let channels = layout.ranks[1].channels.len() as u64;
        assert!(arena.counters >= 4 * Inbox::BYTES as u64);
        assert!(arena.scratch.raw >= arena.counters + channels * LINE);
        assert!(arena.scratch.packets >= arena.scratch.raw + 2 * 4096);
        assert_eq!(arena.bytes, arena.scratch.packets + 2 * 2 * 4096);
        assert_eq!(ArenaShape::new(&layout, 1, u64::MAX - 1), None);
        let own = OwnShape::new(&layout, 1, 7, 0).unwrap();
        assert!(own.resolved >= own.lists + 7 * 4 && own.bytes > own.resolved);
    }
}
