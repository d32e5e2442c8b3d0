//! Blocks as steps: what of a step is code, and what is data.

use antiphon_plan::ReduceOp;
use antiphon_plan::program::{
    Access, Area, BlockMove, Instruction, Layout, RankLayout, RuntimeBlock, Span,
};
use std::collections::BTreeMap;

/// The word of a side of a move: the rank's number times the number of areas, plus the area.
fn side(access: Access) -> u32 {
    access.rank * Area::COUNT as u32 + access.area as u32
}

/// Stands for a channel end that nobody pairs with, and for sides that are no group.
const NOBODY: u32 = u32::MAX;

/// What of a step is code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Code {
    /// One move. Of each side: whether it is packets.
    Move { sources: Vec<bool>, destinations: Vec<bool>, op: ReduceOp, multicast: bool },
    /// One move of a runtime block.
    MoveBlock,
    /// Things of one kind that threads do side by side: how many, and the thread of the first.
    Row { row: Row, count: u32, first: u32 },
    /// A meeting of blocks.
    Barrier,
    /// A meeting of the block's threads.
    Sync,
}

/// What each thread does one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Row {
    /// Signals over memory channels.
    Signals { release: bool },
    /// Signals over port channels.
    PortSignals,
    /// Waits for signals.
    Waits { acquire: bool },
    /// Semaphores taken.
    Acquires,
    /// Semaphores given back.
    Releases,
    /// Transfers handed to a proxy.
    Posts,
    /// Waits for a proxy.
    Flushes,
}

/// A step, or a pipeline of steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    /// A step, with the number of its operands.
    Step(Code, u32),
    /// Steps that are run once for each window.
    Pipeline(Vec<Item>),
}

/// The operands of a rank's blocks: all words, and for each block its first.
///
/// The place is an instruction's, counted from the start of its block; a channel or another number that nobody has is all
/// ones; 64-bit numbers are two words, the low one first.
///
/// | step | words |
/// |---|---|
/// | move | its number among the rank's moves, then a word for each side; with multicast, the switch channels that are all sources, and all destinations |
/// | move of a runtime block | the place; of both blocks the side, its entry in the owner's table, and the table's entries; the slice's number, and how many there are (64 bits each) |
/// | signals | for each the peer, the peer's channel, the channel |
/// | signals over ports | for each the place, the channel |
/// | waits, flushes | for each the place, the channel |
/// | posts | for each the place, its number among the rank's moves, the channel, the two sides |
/// | semaphores taken | for each the place, the semaphore |
/// | semaphores given back | for each the semaphore |
/// | barrier | the place, the barrier, how many blocks meet |
/// | pipeline | its number among the rank's pipelines, then the bytes of a window (64 bits) |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operands {
    /// All words.
    pub words: Vec<u32>,
    /// For each block, its words.
    pub blocks: Vec<Span>,
}

/// The moves of a block of a rank: of each its number, and how many sides it has.
pub(crate) fn moves_of(
    layout: &Layout,
    rank: u32,
    block: usize,
) -> impl Iterator<Item = (u32, u32)> + '_ {
    let own = &layout.ranks[rank as usize];
    own.instructions[own.blocks[block].code.range()].iter().filter_map(|one| match *one {
        Instruction::Move { index, sources, destinations, .. } => {
            Some((index, (sources.len() + destinations.len()) as u32))
        }
        Instruction::Post { index, .. } => Some((index, 2)),
        _ => None,
    })
}

/// The ranks whose memory the blocks of a rank touch, or have a proxy touch, its own apart: for each block in turn,
/// ascending, the rank times two, plus one if that is not only scratch and counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// All words.
    pub words: Vec<u32>,
    /// For each block, where its words begin.
    pub blocks: Vec<u32>,
}

/// The blocks of a rank, taken apart.
pub(crate) struct Skeleton {
    pub blocks: Vec<Vec<Item>>,
    pub operands: Operands,
    pub peers: Peers,
}

impl Skeleton {
    /// Takes the blocks of a rank apart.
    pub fn of(layout: &Layout, rank: u32) -> Self {
        let own = &layout.ranks[rank as usize];
        let threads = own.threads();
        let mut skeleton =
            Skeleton { blocks: Vec::new(), operands: Operands::default(), peers: Peers::default() };
        for block in &own.blocks {
            let Skeleton { blocks, operands, peers } = &mut skeleton;
            let start = operands.words.len() as u32;
            peers.blocks.push(peers.words.len() as u32);
            let touched = BTreeMap::new();
            let mut reader =
                Reader { layout, rank, own, threads: &threads, code: block.code, at: 0, touched };
            blocks.push(reader.items(&mut operands.words));
            operands.blocks.push(Span { start, end: operands.words.len() as u32 });
            let words = reader.touched.iter().map(|(peer, buffers)| peer * 2 + u32::from(*buffers));
            peers.words.extend(words);
        }
        skeleton
    }
}

/// Reads a block's instructions in order.
struct Reader<'a> {
    layout: &'a Layout,
    rank: u32,
    own: &'a RankLayout,
    threads: &'a [u32],
    code: Span,
    at: u32,
    /// The peers so far, and whether their buffers are touched.
    touched: BTreeMap<u32, bool>,
}

impl Reader<'_> {
    fn peek(&self) -> Option<Instruction> {
        let at = (self.code.start + self.at) as usize;
        (at < self.code.end as usize).then(|| self.own.instructions[at])
    }

    fn touch(&mut self, rank: u32, buffers: bool) {
        if rank != self.rank {
            *self.touched.entry(rank).or_default() |= buffers;
        }
    }

    /// The items up to the end of the block, or of the pipeline.
    fn items(&mut self, words: &mut Vec<u32>) -> Vec<Item> {
        let mut items = Vec::new();
        while let Some(instruction) = self.peek() {
            match instruction {
                Instruction::LoopEnd { .. } => break,
                Instruction::LoopBegin { unit, index, .. } => {
                    self.at += 1;
                    words.push(index);
                    words.extend(halves(unit));
                    items.push(Item::Pipeline(self.items(words)));
                    // The end that stopped the inner list.
                    self.at += 1;
                }
                _ => {
                    let before = words.len();
                    let code = self.step(instruction, words);
                    items.push(Item::Step(code, (words.len() - before) as u32));
                }
            }
        }
        items
    }

    /// One step: a single instruction, or those that the threads of a block do side by side.
    fn step(&mut self, first: Instruction, words: &mut Vec<u32>) -> Code {
        let Some(row) = self.row(first) else { return self.single(first, words) };
        let thread = |at: u32| self.threads[(self.code.start + at) as usize];
        let base = thread(self.at);
        let mut count = 0;
        while let Some(next) = self.peek() {
            if self.row(next) != Some(row)
                || self.threads[(self.code.start + self.at) as usize] != base + count
            {
                break;
            }
            self.item(next, words);
            self.at += 1;
            count += 1;
        }
        Code::Row { row, count, first: base }
    }

    /// The kind of an instruction that a single thread does; `None` of the others.
    fn row(&self, instruction: Instruction) -> Option<Row> {
        let port = |channel: u32| self.own.channels[channel as usize].port;
        Some(match instruction {
            Instruction::Signal { channel, .. } if port(channel) => Row::PortSignals,
            Instruction::Signal { release, .. } => Row::Signals { release },
            Instruction::Wait { acquire, .. } => Row::Waits { acquire },
            Instruction::Acquire { .. } => Row::Acquires,
            Instruction::Release { .. } => Row::Releases,
            Instruction::Post { .. } => Row::Posts,
            Instruction::Flush { .. } => Row::Flushes,
            Instruction::Move { .. }
            | Instruction::MoveBlock { .. }
            | Instruction::Barrier { .. }
            | Instruction::BlockSync
            | Instruction::LoopBegin { .. }
            | Instruction::LoopEnd { .. } => return None,
        })
    }

    /// The words of one of a row.
    fn item(&mut self, instruction: Instruction, words: &mut Vec<u32>) {
        let place = self.at;
        match instruction {
            Instruction::Signal { channel, .. } => {
                let end = self.own.channels[channel as usize];
                if end.port {
                    words.extend([place, end.paired.map_or(NOBODY, |_| channel)]);
                } else {
                    words.extend([end.peer, end.paired.unwrap_or(NOBODY), channel]);
                }
                if end.paired.is_some() {
                    self.touch(end.peer, false);
                }
            }
            Instruction::Wait { channel, .. } | Instruction::Flush { channel } => {
                words.extend([place, channel]);
            }
            Instruction::Acquire { semaphore } => words.extend([place, semaphore]),
            Instruction::Release { semaphore } => words.push(semaphore),
            Instruction::Post { channel, source, destination, index } => {
                let sides = [source, destination].map(|at| self.own.accesses[at as usize]);
                for access in sides {
                    self.touch(access.rank, matches!(access.area, Area::Input | Area::Output));
                }
                let [source, destination] = sides.map(side);
                words.extend([place, index, channel, source, destination]);
            }
            _ => {}
        }
    }

    /// A step that the whole block does.
    fn single(&mut self, instruction: Instruction, words: &mut Vec<u32>) -> Code {
        let place = self.at;
        self.at += 1;
        match instruction {
            Instruction::Move { sources, destinations, reduce, multicast, index } => {
                words.push(index);
                let own = self.own;
                let mut sides = |span: Span| -> Vec<bool> {
                    let accesses = &own.accesses[span.range()];
                    words.extend(accesses.iter().map(|&access| side(access)));
                    for access in accesses {
                        let buffers = matches!(access.area, Area::Input | Area::Output);
                        self.touch(access.rank, buffers);
                    }
                    accesses.iter().map(|access| access.area == Area::Packets).collect()
                };
                let kinds = (sides(sources), sides(destinations));
                if multicast.is_some() {
                    words.extend([self.group(sources), self.group(destinations)]);
                }
                // One for all where nothing is combined, so that they are equal.
                let op = if sources.len() > 1 { reduce } else { ReduceOp::Sum };
                let (sources, destinations) = kinds;
                Code::Move { sources, destinations, op, multicast: multicast.is_some() }
            }
            Instruction::MoveBlock { index } => {
                let BlockMove { source, destination, part, parts } =
                    self.own.block_moves[index as usize];
                words.push(place);
                self.runtime_block(source, words);
                self.runtime_block(destination, words);
                words.extend(halves(part));
                words.extend(halves(parts));
                Code::MoveBlock
            }
            Instruction::Barrier { barrier, blocks } => {
                words.extend([place, barrier, blocks]);
                Code::Barrier
            }
            // The others are in rows, or read by `items`.
            _ => Code::Sync,
        }
    }

    /// The switch channel whose members are these sides, in any case where it is more than one.
    fn group(&self, sides: Span) -> u32 {
        let accesses = &self.own.accesses[sides.range()];
        let found = self.own.switches.iter().position(|switch| {
            accesses.len() > 1
                && accesses.len() == switch.members.len()
                && accesses
                    .iter()
                    .zip(&switch.members)
                    .all(|(access, &member)| access.rank == member && access.area == switch.area)
        });
        found.map_or(NOBODY, |at| at as u32)
    }

    fn runtime_block(&mut self, block: RuntimeBlock, words: &mut Vec<u32>) {
        let RuntimeBlock { rank, output, index } = block;
        let [inputs, outputs] = self.layout.ranks[rank as usize].runtime_blocks;
        let entry = if output { inputs + index } else { index };
        words.extend([side(Access { rank, area: block.area() }), entry, inputs + outputs]);
        self.touch(rank, true);
    }
}

/// The words of a 64-bit number.
fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_plan::algorithms::{Algorithm, Shape};
    use antiphon_plan::builder::ProgramBuilder;
    use antiphon_plan::model::Collective;

    #[test]
    fn blocks_know_whom_they_touch() {
        let plan = Algorithm::AllReduceTwoShotPackets.plan(Shape::new(4)).unwrap();
        let skeleton = Skeleton::of(&Layout::new(&plan).unwrap(), 1);
        // Scratch of all others, and nobody's buffers.
        assert_eq!(skeleton.peers.words[..3], [0, 4, 6]);
        let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(4)).unwrap();
        let skeleton = Skeleton::of(&Layout::new(&plan).unwrap(), 1);
        assert_eq!(skeleton.peers.words[..3], [1, 5, 7]);
        assert_eq!(skeleton.peers.blocks.len(), skeleton.blocks.len());
    }

    #[test]
    fn what_ports_do_is_a_row_of_its_own() {
        let program = ProgramBuilder::new("far", Collective::SendRecv, 2);
        let port = program.port(0, 1);
        program.block(0).put_with_signal_and_flush(
            &port,
            program.input(0).all(),
            program.output(1).all(),
        );
        program.block(1).wait(&[port]);
        let layout = Layout::new(&program.build().unwrap()).unwrap();
        let skeleton = Skeleton::of(&layout, 0);
        let row = |row, words| Item::Step(Code::Row { row, count: 1, first: 0 }, words);
        let expected = [row(Row::Posts, 5), row(Row::PortSignals, 2), row(Row::Flushes, 2)];
        assert_eq!(skeleton.blocks[0], expected);
        assert_eq!(skeleton.operands.words, [0, 0, 0, 0, 5, 1, 0, 2, 0]);
        assert_eq!(skeleton.peers.words, [3], "the block finds what the proxy touches for it");
    }
}
