//! Which thread block of one rank talks to which of another, for every pair of buffers.
//!
//! A channel here joins equal thread blocks of two ranks. Where a rank pair uses as many blocks on both sides but not
//! the same ones, the k-th of one side is joined with the k-th of the other: so did the runtime of this stage, which
//! numbered the channels of a pair of buffers by thread block, and programs rely on it.

use super::misuse::{Misuse, Unpaired};
use super::operation::{Key, Operation, What};
use crate::model::{Buffer, ChannelType};
use crate::passes::pairing::SourceLine;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Two ranks, the lower one first, and what they use a channel for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Between {
    ranks: [u64; 2],
    kind: ChannelType,
    source: Buffer,
    destination: Buffer,
}

/// One channel: a thread block at each end, in the order of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The ranks, the lower one first.
    pub ranks: [u64; 2],
    /// Memory or port.
    pub kind: ChannelType,
    source: Buffer,
    destination: Buffer,
    /// The block of each rank; none if nothing of that rank uses the channel.
    pub blocks: [Option<u64>; 2],
}

/// All channels of a program.
#[derive(Debug)]
pub struct Channels {
    /// The channels, those of the same two ranks and type next to each other.
    pub list: Vec<Joined>,
    numbers: HashMap<(u64, u64, Key), usize>,
}

/// The blocks of each side: those that signal or wait, and the others.
type Uses = [BTreeMap<u64, bool>; 2];

fn between(rank: u64, key: Key) -> (Between, usize) {
    let Key { peer, kind, source, destination } = key;
    let ranks = [rank.min(peer), rank.max(peer)];
    (Between { ranks, kind, source, destination }, usize::from(rank > peer))
}

impl Channels {
    /// The channels of these operations.
    pub fn new(operations: &[Operation]) -> Self {
        let mut uses: BTreeMap<Between, Uses> = BTreeMap::new();
        for operation in operations {
            let Some(key) = operation.key() else { continue };
            let (between, side) = between(operation.rank, key);
            let blocks = &mut uses.entry(between).or_default()[side];
            *blocks.entry(operation.block).or_default() |= operation.synchronises();
        }
        let mut channels = Channels { list: Vec::new(), numbers: HashMap::new() };
        for (between, sides) in uses {
            for blocks in join(&sides) {
                let Between { ranks, kind, source, destination } = between;
                let number = channels.list.len();
                channels.list.push(Joined { ranks, kind, source, destination, blocks });
                for side in 0..2 {
                    let key = Key { peer: ranks[1 - side], kind, source, destination };
                    if let Some(block) = blocks[side] {
                        channels.numbers.insert((ranks[side], block, key), number);
                    }
                }
            }
        }
        channels
    }

    /// The number of the channel that an operation uses, and the side from which it does.
    pub fn of(&self, operation: &Operation) -> Option<(usize, usize)> {
        let key = operation.key()?;
        let number = self.numbers.get(&(operation.rank, operation.block, key))?;
        Some((*number, usize::from(operation.rank > key.peer)))
    }

    /// Checks that every channel carries as many signals as are waited for.
    pub fn balanced(&self, operations: &[Operation]) -> Result<(), Misuse> {
        // Signals and waits of each side.
        let mut counts = vec![[[0u64; 2]; 2]; self.list.len()];
        let mut lines: HashMap<usize, SourceLine> = HashMap::new();
        for operation in operations {
            let Some((number, side)) = self.of(operation) else { continue };
            let waits = matches!(operation.what, What::Wait { .. });
            if waits || operation.signals() {
                counts[number][side][usize::from(waits)] += 1;
                lines.extend(operation.line.clone().map(|line| (number, line)));
            }
        }
        for (number, channel) in self.list.iter().enumerate() {
            for side in 0..2 {
                let [signals, waits] = [counts[number][side][0], counts[number][1 - side][1]];
                if signals != waits {
                    let blocks = |side: usize, what: usize| {
                        let same = self.list.iter().zip(&counts).filter(|(other, counts)| {
                            counts[side][what] > 0
                                && (other.ranks, other.kind) == (channel.ranks, channel.kind)
                                && (other.source, other.destination)
                                    == (channel.source, channel.destination)
                        });
                        same.filter_map(|(other, _)| other.blocks[side]).collect()
                    };
                    return Err(Misuse::Unpaired(Box::new(Unpaired {
                        kind: channel.kind,
                        from: channel.ranks[side],
                        to: channel.ranks[1 - side],
                        source_buffer: channel.source,
                        destination_buffer: channel.destination,
                        from_block: channel.blocks[side],
                        to_block: channel.blocks[1 - side],
                        signals,
                        waits,
                        signalling: blocks(side, 0),
                        waiting: blocks(1 - side, 1),
                        line: lines.get(&number).cloned(),
                    })));
                }
            }
        }
        Ok(())
    }
}

/// Pairs of blocks for one use.
fn join(sides: &Uses) -> Vec<[Option<u64>; 2]> {
    let synchronising = |side: usize| {
        let blocks = sides[side].iter().filter(|(_, synchronises)| **synchronises);
        blocks.map(|(&block, _)| block).collect::<BTreeSet<u64>>()
    };
    let (low, high) = (synchronising(0), synchronising(1));
    let mut pairs: Vec<[Option<u64>; 2]> = Vec::new();
    if low.len() == high.len() {
        pairs.extend(low.iter().zip(&high).map(|(&low, &high)| [Some(low), Some(high)]));
    } else {
        pairs.extend(low.intersection(&high).map(|&block| [Some(block); 2]));
        pairs.extend(low.difference(&high).map(|&block| [Some(block), None]));
        pairs.extend(high.difference(&low).map(|&block| [None, Some(block)]));
    }
    // What only moves data needs no partner.
    for (side, blocks) in sides.iter().enumerate() {
        for (&block, _) in blocks.iter().filter(|(_, synchronises)| !**synchronises) {
            let mut pair = [None, None];
            pair[side] = Some(block);
            pairs.push(pair);
        }
    }
    pairs
}
