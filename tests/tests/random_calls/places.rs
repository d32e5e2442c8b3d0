//! Where a call's buffers are on each rank, and which blocks of them go where. Ranks are those of its communicator.

use crate::hash;
use crate::program::{Call, What};

/// A block in both buffers, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The other rank.
    pub peer: u32,
    /// Where it begins in this rank's buffer.
    pub at: u64,
    /// Where it begins in the peer's.
    pub there: u64,
    pub count: u64,
}

/// One of a rank's buffers: where it is in a slot, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub slot: usize,
    pub at: u64,
    pub count: u64,
}

impl Call {
    pub fn is_in_place(&self, rank: u32) -> bool {
        self.in_place >> rank & 1 == 1
    }

    /// The lengths of what one rank gives another, where these are the call's own.
    fn lengths(&self, world: u32, from: u32, to: u32) -> Vec<u64> {
        let number = match self.what {
            What::Transfers => hash(&[self.seed, 1, from.into(), to.into()]) % 3,
            What::Transfer { from: sender, to: receiver } => {
                u64::from((sender, receiver) == (from, to))
            }
            What::Shift(by) => u64::from((from + by) % world == to),
            _ => 1,
        };
        // What an allgatherv gives is alike for all.
        let to = if self.what == What::AllGatherV { 0 } else { to };
        let length = |number| match hash(&[self.seed, 2, from.into(), to.into(), number]) {
            whole if whole.is_multiple_of(3) => self.count,
            part => part % (self.count + 1),
        };
        (0..number).map(length).collect()
    }

    /// The elements that lie before a block, and belong to none.
    fn gap(&self, from: u32, to: u32, side: u64) -> u64 {
        if self.is_packed() { 0 } else { hash(&[self.seed, 3, from.into(), to.into(), side]) % 3 }
    }

    /// Whether blocks lie one after the other, as the methods for slices take them.
    fn is_packed(&self) -> bool {
        self.typed || matches!(self.what, What::Transfer { .. } | What::Shift(_))
    }

    /// Where what `rank` gives `to` begins in its send buffer, block by block; and the whole length.
    fn sent(&self, world: u32, rank: u32) -> (Vec<(u32, u64, u64)>, u64) {
        if self.what == What::AllGatherV {
            let count = self.lengths(world, rank, 0)[0];
            return ((0..world).map(|to| (to, 0, count)).collect(), count);
        }
        let (mut blocks, mut end) = (Vec::new(), 0);
        for to in 0..world {
            for count in self.lengths(world, rank, to) {
                end += self.gap(rank, to, 0);
                blocks.push((to, end, count));
                end += count;
            }
        }
        (blocks, end)
    }

    /// What a rank sends, where blocks have lengths of their own.
    pub fn sends(&self, world: u32, rank: u32) -> Vec<Block> {
        let block = |(peer, at, count)| Block { peer, at, there: 0, count };
        self.sent(world, rank).0.into_iter().map(block).collect()
    }

    /// What a rank receives, where blocks have lengths of their own.
    pub fn receives(&self, world: u32, rank: u32) -> Vec<Block> {
        let (mut blocks, mut end) = (Vec::new(), 0);
        for peer in 0..world {
            let sent = self.sent(world, peer).0.into_iter();
            for (_, there, count) in sent.filter(|&(to, ..)| to == rank) {
                end += self.gap(peer, rank, 1);
                blocks.push(Block { peer, at: end, there, count });
                end += count;
            }
        }
        blocks
    }

    /// Elements of a rank's send and receive buffers; `None` for one that it has no part in.
    pub fn sizes(&self, world: u32, rank: u32) -> [Option<u64>; 2] {
        let (block, whole) = (self.count, self.count * u64::from(world));
        let at = |root: u32, count: u64| (rank == root).then_some(count);
        match self.what {
            What::AllReduce => [Some(block); 2],
            What::AllGather => [Some(block), Some(whole)],
            What::ReduceScatter => [Some(whole), Some(block)],
            What::AllToAll => [Some(whole); 2],
            What::Broadcast(root) => [at(root, block), Some(block)],
            What::Reduce(root) => [Some(block), at(root, block)],
            What::Gather(root) => [Some(block), at(root, whole)],
            What::Scatter(root) => [at(root, whole), Some(block)],
            _ => {
                let end = |blocks: Vec<Block>| blocks.last().map_or(0, |last| last.at + last.count);
                let ends = [self.sent(world, rank).1, end(self.receives(world, rank))];
                ends.map(Some)
            }
        }
    }

    /// Where a rank's send and receive buffers are.
    pub fn places(&self, world: u32, rank: u32) -> [Option<Place>; 2] {
        let sizes = self.sizes(world, rank);
        let start = |side: u64| hash(&[self.seed, 4, rank.into(), side]) % 17;
        let place = |slot, at| move |count| Place { slot, at, count };
        let (from, to) = self.slots;
        let apart = [sizes[0].map(place(from, start(0))), sizes[1].map(place(to, start(1)))];
        let [Some(input), Some(output)] = sizes else { return apart };
        if !self.is_in_place(rank) {
            return apart;
        }
        // The smaller buffer is the rank's block of the larger.
        let block = match self.what {
            What::AllGatherV => {
                let receives = self.receives(world, rank);
                receives.iter().find(|block| block.peer == rank).map_or(0, |block| block.at)
            }
            _ if input == output => 0,
            _ => u64::from(rank) * self.count,
        };
        let at = |count| start(1) + if count == input.max(output) { 0 } else { block };
        let at = if self.what == What::AllGatherV {
            [start(1) + block, start(1)]
        } else {
            [at(input), at(output)]
        };
        [Some(place(to, at[0])(input)), Some(place(to, at[1])(output))]
    }
}
