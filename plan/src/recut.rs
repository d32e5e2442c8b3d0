//! Whether launches of different sizes, which cut scratch differently, may share a rank's scratch.
//!
//! On each rank, a launch of another size than the last one begins once all ranks that this rank *sees* have completed the last
//! one: the ranks of its node, and those that it has ports with. That suffices if nothing of the last launch can still touch
//! scratch by then, that is, if every rank that touches some scratch sees all the ranks whose completion ends the uses of that
//! scratch. Launches of one size need none of this, as the plan's own order between launches holds for them.

use crate::program::{Access, Area, Instruction, Layout, RankLayout};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What prevents a plan's scratch from being cut in another way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recut {
    /// Some transfer to scratch may land when all ranks have completed the launch.
    loose: bool,
    /// Pairs of ranks without ports between them, the lower first: one touches scratch, and the other's completion ends
    /// some use of it.
    strangers: BTreeSet<(u32, u32)>,
    /// Transfers whose source a third rank may overwrite, where ranks hear that a launch is complete before its transfers
    /// have read scratch.
    unread: BTreeSet<Unread>,
}

/// When a rank hears that a rank of another node has completed a launch. In any case, that rank's transfers to this one
/// have landed by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Once its transfers to all ranks have read what they send.
    Read,
    /// Perhaps before its transfers to others have read: kernels hand each link its own news.
    Unread,
}

/// A rank's transfers of its scratch to one peer that the rank itself does not wait for in the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Unread {
    rank: u32,
    /// Another rank that touches the scratch.
    touching: u32,
    /// The peer, if its completion says that the transfers have read the scratch; a rank that hears of that completion is safe.
    heard: Option<u32>,
}

/// Which ranks use a rank's scratch.
#[derive(Default)]
struct Scratch {
    /// Those that touch it, themselves or by their proxies.
    touching: BTreeSet<u32>,
    /// Those that have to complete a launch before nothing of that launch touches it any more.
    ending: BTreeSet<u32>,
    /// The peers to which the owner sends from it without a flush, and whether each waits for what is sent, by its packets or
    /// by a signal behind it.
    sent: BTreeSet<(u32, bool)>,
}

/// What follows, in a block, behind the last transfer on a port channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Behind {
    flush: bool,
    signal: bool,
}

/// A slice of a run of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Slice {
    first: u64,
    size: u64,
    parts: u64,
    part: u64,
}

/// The packets that a rank waits for in each launch.
#[derive(Default)]
struct Awaited {
    slices: BTreeSet<Slice>,
    /// Chunks that have all their slices among these.
    whole: BTreeSet<u64>,
    /// Chunks that are written more than once: whoever has seen a packet there has seen one of the writers.
    shared: BTreeSet<u64>,
}

impl Recut {
    /// Looks at everything that touches scratch, and at whose completion ends it.
    pub fn new(layout: &Layout) -> Recut {
        let (awaited, balanced) = (Awaited::all(layout), balances(layout));
        let mut scratch: Vec<Scratch> = layout.ranks.iter().map(|_| Scratch::default()).collect();
        let mut loose = false;
        for (rank, own) in (0..).zip(&layout.ranks) {
            for block in &own.blocks {
                let code = &own.instructions[block.code.range()];
                let behind = behind_transfers(code);
                let (mut heard, mut hears) = (BTreeSet::from([rank]), BTreeSet::new());
                for instruction in code {
                    match *instruction {
                        Instruction::Wait { channel, .. } => {
                            let end = far_end(own, channel);
                            let is_balanced = |&(peer, paired): &(u32, u32)| {
                                balanced[peer as usize][paired as usize]
                            };
                            hears.extend(end.filter(is_balanced).map(|(peer, _)| peer));
                        }
                        // Until then another thread may be ahead of the one that waits.
                        Instruction::BlockSync | Instruction::Barrier { .. } => {
                            heard.append(&mut hears);
                        }
                        _ => {}
                    }
                    let Some(moved) = Moved::of(instruction) else { continue };
                    // Owners wait for packets, and do not end before.
                    let taken = |at: usize| {
                        let Access { rank: owner, area } = own.accesses[at];
                        let slice = Slice::of(layout, rank, at, moved.index);
                        let has = area == Area::Packets && awaited[owner as usize].has(slice);
                        has.then_some(owner)
                    };
                    for at in moved.reads.clone().chain(moved.writes.clone()) {
                        let Access { rank: owner, area } = own.accesses[at];
                        if !matches!(area, Area::Scratch | Area::Packets) {
                            continue;
                        }
                        let reads = moved.reads.contains(&at);
                        let end = match moved.channel {
                            Some(channel) if !reads => taken(at).or_else(|| {
                                behind[&channel].end(rank, own, (channel, &balanced[rank as usize]))
                            }),
                            None if !reads => taken(at).or(Some(rank)),
                            // A launch ends when its transfers have read what they send.
                            _ => Some(rank),
                        };
                        let memory = &mut scratch[owner as usize];
                        // A rank that has heard from the owner in this launch comes after all that the owner sees, so
                        // its touch counts as the owner's.
                        memory.touching.insert(if heard.contains(&owner) { owner } else { rank });
                        memory.ending.extend(end);
                        loose |= end.is_none();
                        if let Some(channel) = moved.channel.filter(|_| reads) {
                            let peer = own.channels[channel as usize].peer;
                            let behind = behind[&channel];
                            let heard = behind.is_heard(channel, &balanced[rank as usize])
                                || moved.writes.clone().filter_map(taken).any(|by| by == peer);
                            memory.sent.extend((!behind.flush).then_some((peer, heard)));
                        }
                    }
                }
            }
        }
        let (mut strangers, mut unread) = (BTreeSet::new(), BTreeSet::new());
        for (rank, memory) in (0..).zip(&scratch) {
            strangers.extend(memory.strangers(layout));
            unread.extend(memory.unread(layout, rank));
        }
        Recut { loose, strangers, unread }
    }

    /// Whether some transfer to scratch may land when all ranks have completed the launch.
    pub fn is_loose(&self) -> bool {
        self.loose
    }

    /// Whether scratch may be cut anew; `near` says which ranks are on one node, and hear of everything that their own do.
    pub fn is_safe(&self, told: Told, near: impl Fn(u32, u32) -> bool) -> bool {
        let is_over = |unread: &Unread| {
            let Unread { rank, touching, heard } = *unread;
            near(rank, touching) || heard.is_some_and(|peer| near(touching, peer))
        };
        !self.loose
            && self.strangers.iter().all(|&(one, other)| near(one, other))
            && (told == Told::Read || self.unread.iter().all(is_over))
    }
}

impl Scratch {
    /// Pairs of which one touches it, the other ends something there, and neither has a port to the other.
    fn strangers(&self, layout: &Layout) -> impl Iterator<Item = (u32, u32)> {
        let pairs =
            self.touching.iter().flat_map(|&one| self.ending.iter().map(move |&by| (one, by)));
        let strange = pairs.filter(|&(one, by)| one != by && !have_ports(layout, one, by));
        strange.map(|(one, by)| (one.min(by), one.max(by)))
    }

    /// The transfers from this scratch, which is the rank's own, that may not have read it when a third rank hears of
    /// the rank's completion.
    fn unread(&self, layout: &Layout, rank: u32) -> impl Iterator<Item = Unread> {
        let sent = self.sent.iter().flat_map(|&to| self.touching.iter().map(move |&by| (by, to)));
        let others = sent.filter(move |&(touching, (peer, heard))| {
            let hears = heard && have_ports(layout, touching, peer);
            touching != rank && touching != peer && !hears
        });
        others.map(move |(touching, (peer, heard))| {
            let heard = heard.then_some(peer);
            Unread { rank, touching, heard }
        })
    }
}

impl Awaited {
    /// Those of all ranks.
    fn all(layout: &Layout) -> Vec<Awaited> {
        let mut all: Vec<Awaited> = layout.ranks.iter().map(|_| Awaited::default()).collect();
        // By owner and chunk, the ranks that write it, each with the slice that it writes.
        let mut written: BTreeMap<(u32, u64), BTreeSet<(u32, Slice)>> = BTreeMap::new();
        for (rank, own) in (0..).zip(&layout.ranks) {
            for moved in own.instructions.iter().filter_map(Moved::of) {
                let Moved { index, reads, writes, channel } = moved;
                let slice = |at| Slice::of(layout, rank, at, index);
                let is_packets = |at: &usize| own.accesses[*at].area == Area::Packets;
                if channel.is_none() {
                    let here = |at: &usize| is_packets(at) && own.accesses[*at].rank == rank;
                    all[rank as usize].slices.extend(reads.filter(here).map(slice));
                }
                for at in writes.filter(is_packets) {
                    let (owner, slice) = (own.accesses[at].rank, slice(at));
                    for chunk in slice.first..slice.first + slice.size {
                        let writers = written.entry((owner, chunk)).or_default();
                        let others = writers.iter().any(|&(other, _)| other != rank);
                        if !writers.insert((rank, slice)) || others {
                            all[owner as usize].shared.insert(chunk);
                        }
                    }
                }
            }
        }
        for awaited in &mut all {
            let mut found: BTreeMap<(u64, u64, u64), u64> = BTreeMap::new();
            for &Slice { first, size, parts, .. } in &awaited.slices {
                *found.entry((first, size, parts)).or_default() += 1;
            }
            let whole = found.into_iter().filter(|&((.., parts), count)| count == parts);
            awaited.whole = whole.flat_map(|((first, size, _), _)| first..first + size).collect();
        }
        all
    }

    /// Whether the rank waits for these packets, and they are of one writer.
    fn has(&self, slice: Slice) -> bool {
        let chunks = || slice.first..slice.first + slice.size;
        let of_one = !chunks().any(|chunk| self.shared.contains(&chunk));
        of_one
            && (self.slices.contains(&slice) || chunks().all(|chunk| self.whole.contains(&chunk)))
    }
}

impl Slice {
    /// That of an access of a rank's move.
    fn of(layout: &Layout, rank: u32, at: usize, index: u32) -> Slice {
        let geometry = &layout.geometry.ranks[rank as usize];
        let moved = geometry.moves[index as usize];
        Slice { first: geometry.first[at], size: moved.size, parts: moved.parts, part: moved.part }
    }
}

/// What a block's move or transfer is.
struct Moved {
    index: u32,
    /// Positions of accesses.
    reads: Range<usize>,
    writes: Range<usize>,
    /// The port channel of a transfer.
    channel: Option<u32>,
}

impl Moved {
    fn of(instruction: &Instruction) -> Option<Moved> {
        match *instruction {
            Instruction::Move { sources, destinations, index, .. } => {
                let (reads, writes) = (sources.range(), destinations.range());
                Some(Moved { index, reads, writes, channel: None })
            }
            Instruction::Post { channel, source, destination, index } => {
                let one = |at: u32| at as usize..at as usize + 1;
                let (reads, writes) = (one(source), one(destination));
                Some(Moved { index, reads, writes, channel: Some(channel) })
            }
            _ => None,
        }
    }
}

impl Behind {
    /// The rank whose completion says that a rank's transfers on a port channel have landed. `balanced` has an entry for
    /// each of the rank's channels.
    fn end(self, rank: u32, own: &RankLayout, (channel, balanced): (u32, &[bool])) -> Option<u32> {
        let peer = own.channels[channel as usize].peer;
        let heard = self.is_heard(channel, balanced).then_some(peer);
        heard.or(self.flush.then_some(rank))
    }

    /// Whether the peer waits for a signal that comes after them.
    fn is_heard(self, channel: u32, balanced: &[bool]) -> bool {
        self.signal && balanced[channel as usize]
    }
}

fn have_ports(layout: &Layout, one: u32, other: u32) -> bool {
    let has = |from: u32, to: u32| {
        layout.ranks[from as usize].channels.iter().any(|end| end.port && end.peer == to)
    };
    has(one, other) || has(other, one)
}

/// By port channel, what follows the last of a block's transfers on it.
fn behind_transfers(code: &[Instruction]) -> BTreeMap<u32, Behind> {
    let mut found: BTreeMap<u32, Behind> = BTreeMap::new();
    for instruction in code {
        match *instruction {
            Instruction::Post { channel, .. } => {
                found.insert(channel, Behind::default());
            }
            Instruction::Signal { channel, .. } => {
                found.entry(channel).and_modify(|behind| behind.signal = true);
            }
            Instruction::Flush { channel } => {
                found.entry(channel).and_modify(|behind| behind.flush = true);
            }
            _ => {}
        }
    }
    found
}

/// The peer of a channel, and the position of the channel there.
fn far_end(own: &RankLayout, channel: u32) -> Option<(u32, u32)> {
    let end = &own.channels[channel as usize];
    Some((end.peer, end.paired?))
}

/// The number of signals or waits at one end of a channel, by the windows of the pipeline that repeats them, if one does: their
/// length and the chunks that they cover. Pipelines that agree in both have equally many iterations, on all ranks.
type Count = BTreeMap<Option<(u64, u64)>, usize>;

/// By rank and channel, whether the other end waits for every signal of a launch, so that it waits for none of an earlier one.
fn balances(layout: &Layout) -> Vec<Vec<bool>> {
    let counts: Vec<Vec<[Count; 2]>> = layout.ranks.iter().map(counts).collect();
    let balance = |own: &RankLayout, counted: &[[Count; 2]], channel: usize| {
        let far = far_end(own, channel as u32);
        let waits = far.map(|(peer, paired)| &counts[peer as usize][paired as usize][1]);
        waits == Some(&counted[channel][0])
    };
    let ranks = layout.ranks.iter().zip(&counts);
    ranks
        .map(|(own, counted)| {
            (0..own.channels.len()).map(|channel| balance(own, counted, channel)).collect()
        })
        .collect()
}

/// By channel of a rank, its signals and its waits.
fn counts(own: &RankLayout) -> Vec<[Count; 2]> {
    let mut counts = vec![<[Count; 2]>::default(); own.channels.len()];
    for block in &own.blocks {
        let mut windows = None;
        for instruction in &own.instructions[block.code.range()] {
            let (channel, kind) = match *instruction {
                Instruction::LoopBegin { unit, chunks, .. } => {
                    windows = Some((unit, chunks));
                    continue;
                }
                Instruction::LoopEnd { .. } => {
                    windows = None;
                    continue;
                }
                Instruction::Signal { channel, .. } => (channel, 0),
                Instruction::Wait { channel, .. } => (channel, 1),
                _ => continue,
            };
            *counts[channel as usize][kind].entry(windows).or_default() += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::{Algorithm, Shape};
    use crate::builder::ProgramBuilder;
    use crate::model::Collective;

    /// Built-in algorithms, over nodes too, keep one context for sizes that are near each other.
    #[test]
    fn every_built_in_algorithm_may_cut_its_scratch_anew() {
        for algorithm in Algorithm::ALL {
            let shapes = [(1, 4), (2, 4), (2, 8), (3, 6), (4, 8)];
            for (nodes, ranks) in
                shapes.into_iter().filter(|&(nodes, _)| (nodes > 1) == algorithm.is_hierarchical())
            {
                for in_place in [false, true] {
                    let shape = Shape { nodes, in_place, ..Shape::new(ranks) };
                    let Ok(plan) = algorithm.plan(shape) else { continue };
                    let recut = Recut::new(&Layout::new(&plan).unwrap());
                    let node = |rank: u32| rank as usize / (ranks / nodes);
                    let safe = recut.is_safe(Told::Unread, |one, other| node(one) == node(other));
                    assert!(safe, "{} over {nodes} of {ranks}: {recut:?}", algorithm.name());
                }
            }
        }
    }

    fn check(expected: [bool; 2], write: impl FnOnce(&ProgramBuilder)) {
        let program = ProgramBuilder::new("recut", Collective::SendRecv, 3);
        write(&program);
        let recut = Recut::new(&Layout::new(&program.build().unwrap()).unwrap());
        let alone = recut.is_safe(Told::Read, |one, other| one > 0 && other > 0);
        assert_eq!(
            [alone, recut.is_safe(Told::Read, |_, _| true)],
            expected,
            "rank 0 on another node, on the same: {recut:?}"
        );
    }

    /// Rank 0 does not see rank 2, which may still read what it writes anew; unless rank 1, which does, has told it to go on.
    #[test]
    fn who_does_not_see_a_reader_of_scratch_must_hear_from_one_who_does() {
        for told in [false, true] {
            check([told, true], |p| {
                let (port, near, scratch) = (p.port(0, 1), p.channel(1, 2), p.scratch(1, 1));
                let (first, second, third) = (p.block(0), p.block(1), p.block(2));
                let port = [port];
                if told {
                    second.signal(&port);
                    first.wait(&port);
                }
                first.put_over(&port[0], p.input(0).all(), scratch.all());
                first.signal(&port);
                second.wait(&port);
                second.signal(&[near]);
                third.wait(&[near]);
                third.get(scratch.all(), p.output(2).all());
            });
        }
    }

    #[test]
    fn a_transfer_that_nobody_waits_for_is_loose() {
        for (signals, flushes, expected) in [
            (0, false, [false; 2]),
            (0, true, [true; 2]),
            (1, false, [true; 2]),
            (2, false, [true; 2]),
        ] {
            check(expected, |p| {
                let (port, scratch) = ([p.port(0, 1)], p.scratch(1, 1));
                let (first, second) = (p.block(0), p.block(1));
                first.put_over(&port[0], p.input(0).all(), scratch.all());
                (0..signals).for_each(|_| first.signal(&port));
                (0..signals).for_each(|_| second.wait(&port));
                if flushes {
                    first.flush(&port);
                }
            });
        }
    }

    /// What is sent of scratch has been read when the launch is over; what lands there has only to be known to have landed.
    #[test]
    fn a_signal_before_the_transfer_says_nothing_of_it() {
        check([false, false], |p| {
            let (port, scratch) = ([p.port(0, 1)], p.scratch(1, 1));
            let (first, second) = (p.block(0), p.block(1));
            first.signal(&port);
            first.put_over(&port[0], p.input(0).all(), scratch.all());
            second.wait(&port);
        });
        check([true, true], |p| {
            let (port, scratch) = ([p.port(0, 1)], p.scratch(0, 1));
            p.block(0).put_over(&port[0], scratch.all(), p.output(1).all());
        });
    }

    /// Rank 0 sends rank 1 of scratch that rank 2 writes to in the next launch, all on nodes of their own.
    #[test]
    fn a_third_rank_must_know_that_what_is_sent_of_scratch_has_been_read() {
        for (flushes, signals, ports, expected) in [
            (false, false, false, false),
            (true, false, false, true),
            // Rank 1 has it when it completes, which rank 2 hears of.
            (false, true, true, true),
            (false, true, false, false),
            (false, false, true, false),
        ] {
            let program = ProgramBuilder::new("recut", Collective::SendRecv, 3);
            let p = &program;
            let (sent, come, scratch) = ([p.port(0, 1)], [p.port(2, 0)], p.scratch(0, 1));
            let (first, second, third) = (p.block(0), p.block(1), p.block(2));
            third.put_over(&come[0], p.input(2).all(), scratch.all());
            third.signal(&come);
            first.wait(&come);
            first.put_over(&sent[0], scratch.all(), p.output(1).all());
            if flushes {
                first.flush(&sent);
            }
            if signals {
                first.signal(&sent);
                second.wait(&sent);
            }
            if ports {
                let seen = [p.port(1, 2)];
                second.signal(&seen);
                third.wait(&seen);
            }
            let recut = Recut::new(&Layout::new(&program.build().unwrap()).unwrap());
            assert!(recut.is_safe(Told::Read, |_, _| false), "{recut:?}");
            let is_safe = recut.is_safe(Told::Unread, |_, _| false);
            assert_eq!(is_safe, expected, "{flushes} {signals} {ports}: {recut:?}");
            assert!(recut.is_safe(Told::Unread, |one, other| one != 1 && other != 1), "{recut:?}");
        }
    }
}
