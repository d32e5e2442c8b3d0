//! What ranks do to each other's memory in a plan, found once from its instructions.

use antiphon_plan::program::{Access, Area, BlockMove, Instruction, Layout, RankLayout};
use std::collections::BTreeSet;

/// What ranks do to one buffer of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BufferUses {
    /// Another rank touches it.
    pub exposed: bool,
    /// Some rank reads it.
    pub read: bool,
    /// Some rank writes it.
    pub written: bool,
    /// A transfer of a port channel reads or writes it.
    pub posted: bool,
}

impl BufferUses {
    /// Whether the buffer has a part in the plan.
    pub fn any(&self) -> bool {
        self.read || self.written
    }
}

/// What a rank's peers and blocks do with its buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    /// What is done to its input.
    pub input: BufferUses,
    /// What is done to its output.
    pub output: BufferUses,
    /// Ranks that write packets into this rank's scratch, ascending.
    pub packet_writers: Vec<u32>,
    /// Ranks that write this rank's input or output without a signal to this rank afterwards, ascending: that this rank
    /// is through does not mean that they are.
    pub late_writers: Vec<u32>,
    /// Ranks of which this rank is a late writer, ascending.
    pub written_late: Vec<u32>,
    /// Other ranks that read or write this rank's input or output, ascending.
    pub guests: Vec<u32>,
    /// Ranks whose scratch this rank writes as packets without hearing from them in the same launch, so that
    /// their earlier launches must be asked for.
    pub unheard: Vec<u32>,
    /// Ranks whose scratch this rank writes as packets.
    pub packet_targets: Vec<u32>,
    /// Ranks at the other end of this rank's port channels, and those with port channels to this rank, ascending.
    pub port_peers: Vec<u32>,
}

impl Uses {
    /// What a plan does to the memory of each of its ranks.
    pub fn of_ranks(layout: &Layout) -> Vec<Uses> {
        let ranks = layout.ranks.len();
        let mut gathered =
            Gathered { uses: vec![Uses::default(); ranks], heard: vec![Vec::new(); ranks] };
        for (rank, own) in (0..).zip(&layout.ranks) {
            for channel in own.channels.iter().filter(|channel| channel.port) {
                gathered.of(rank).port_peers.push(channel.peer);
                gathered.of(channel.peer).port_peers.push(rank);
            }
            for instruction in &own.instructions {
                gathered.instruction(rank, own, instruction);
            }
            for block in &own.blocks {
                gathered.end_of_block(rank, own, &own.instructions[block.code.range()]);
            }
        }
        gathered.finished()
    }

    /// Whether both of the rank's buffers have a part in the plan.
    pub fn has_both(&self) -> bool {
        self.input.any() && self.output.any()
    }
}

/// How an instruction touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touch {
    Reads,
    Writes,
}

/// What is known after some of a plan's instructions.
struct Gathered {
    uses: Vec<Uses>,
    /// By rank, those that it hears from in a launch.
    heard: Vec<Vec<u32>>,
}

impl Gathered {
    fn of(&mut self, rank: u32) -> &mut Uses {
        &mut self.uses[rank as usize]
    }

    /// One instruction of `rank`.
    fn instruction(&mut self, rank: u32, own: &RankLayout, instruction: &Instruction) {
        match *instruction {
            Instruction::Move { .. } | Instruction::Post { .. } => {
                let posted = matches!(instruction, Instruction::Post { .. });
                let (reads, writes) = sides(own, instruction);
                let reads = reads.map(|side| (side, Touch::Reads));
                for (side, touch) in reads.chain(writes.map(|side| (side, Touch::Writes))) {
                    self.touch(rank, side.rank, side.area, touch, posted);
                }
            }
            Instruction::MoveBlock { index } => {
                let BlockMove { source, destination, .. } = own.block_moves[index as usize];
                let area = if source.output { Area::Output } else { Area::Input };
                self.touch(rank, source.rank, area, Touch::Reads, false);
                self.touch(rank, destination.rank, Area::Output, Touch::Writes, false);
            }
            Instruction::Wait { channel, .. } => {
                self.heard[rank as usize].push(own.channels[channel as usize].peer);
            }
            _ => {}
        }
    }

    /// `rank` touches memory of `owner`.
    fn touch(&mut self, rank: u32, owner: u32, area: Area, touch: Touch, posted: bool) {
        let uses = self.of(owner);
        let buffer = match area {
            Area::Input => &mut uses.input,
            Area::Output => &mut uses.output,
            Area::Packets if touch == Touch::Writes => {
                uses.packet_writers.push(rank);
                return;
            }
            _ => return,
        };
        let is_guest = rank != owner;
        buffer.exposed |= is_guest;
        buffer.read |= touch == Touch::Reads;
        buffer.written |= touch == Touch::Writes;
        buffer.posted |= posted;
        if is_guest {
            uses.guests.push(rank);
        }
    }

    /// All of a block's instructions.
    fn end_of_block(&mut self, rank: u32, own: &RankLayout, code: &[Instruction]) {
        for target in late_targets(own, code) {
            if target != rank {
                self.of(target).late_writers.push(rank);
                self.of(rank).written_late.push(target);
            }
        }
    }

    fn finished(mut self) -> Vec<Uses> {
        for ((rank, own), heard) in (0..).zip(&mut self.uses).zip(&mut self.heard) {
            let Uses { late_writers, written_late, guests, port_peers, packet_writers, .. } = own;
            for ranks in [late_writers, written_late, guests, port_peers, packet_writers] {
                ranks.sort_unstable();
                ranks.dedup();
            }
            own.port_peers.retain(|&peer| peer != rank);
            heard.extend_from_slice(&own.packet_writers);
        }
        for writer in 0..self.uses.len() as u32 {
            let is_target = |&target: &u32| {
                target != writer && self.uses[target as usize].packet_writers.contains(&writer)
            };
            let targets: Vec<u32> = (0..self.uses.len() as u32).filter(is_target).collect();
            let heard = &self.heard[writer as usize];
            let unheard = targets.iter().copied().filter(|target| !heard.contains(target));
            let unheard = unheard.collect();
            let own = self.of(writer);
            (own.unheard, own.packet_targets) = (unheard, targets);
        }
        self.uses
    }
}

/// What a move or a transfer reads, and what it writes.
pub(crate) fn sides<'a>(
    own: &'a RankLayout,
    instruction: &Instruction,
) -> (impl Iterator<Item = &'a Access>, impl Iterator<Item = &'a Access>) {
    let (reads, writes) = match *instruction {
        Instruction::Move { sources, destinations, .. } => (sources.range(), destinations.range()),
        Instruction::Post { source, destination, .. } => {
            let one = |at: u32| at as usize..at as usize + 1;
            (one(source), one(destination))
        }
        _ => (0..0, 0..0),
    };
    (own.accesses[reads].iter(), own.accesses[writes].iter())
}

/// The ranks whose buffers a block writes after its last signal to them. A signal over memory says nothing of what a wire
/// writes.
fn late_targets(own: &RankLayout, code: &[Instruction]) -> BTreeSet<u32> {
    let (mut targets, mut posted) = (BTreeSet::new(), BTreeSet::new());
    for instruction in code {
        match *instruction {
            Instruction::Move { .. } | Instruction::Post { .. } => {
                let (_, written) = sides(own, instruction);
                let buffers =
                    written.filter(|side| matches!(side.area, Area::Input | Area::Output));
                let by_wire = matches!(instruction, Instruction::Post { .. });
                let list = if by_wire { &mut posted } else { &mut targets };
                list.extend(buffers.map(|side| side.rank));
            }
            Instruction::MoveBlock { index } => {
                targets.insert(own.block_moves[index as usize].destination.rank);
            }
            Instruction::Signal { channel, .. } => {
                let channel = &own.channels[channel as usize];
                targets.remove(&channel.peer);
                if channel.port {
                    posted.remove(&channel.peer);
                }
            }
            _ => {}
        }
    }
    targets.extend(posted);
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan_cache::LoadedPlan;
    use antiphon_plan::builder::ProgramBuilder;
    use antiphon_plan::model::Collective;

    const UNUSED: BufferUses =
        BufferUses { exposed: false, read: false, written: false, posted: false };
    const READ: BufferUses = BufferUses { read: true, ..UNUSED };
    const WRITTEN: BufferUses = BufferUses { written: true, ..UNUSED };

    fn loaded(write: impl FnOnce(&ProgramBuilder)) -> LoadedPlan {
        let program = ProgramBuilder::new("uses", Collective::SendRecv, 3);
        write(&program);
        LoadedPlan::new(&program.build().unwrap()).unwrap()
    }

    #[test]
    fn a_rank_whose_buffers_only_itself_touches_exposes_nothing() {
        let plan = loaded(|p| p.block(1).copy(p.input(1).all(), p.output(1).all()));
        let own = Uses { input: READ, output: WRITTEN, ..Uses::default() };
        assert_eq!(
            [0, 1, 2].map(|rank| plan.uses(rank)),
            [&Uses::default(), &own, &Uses::default()]
        );
    }

    #[test]
    fn puts_and_gets_expose_the_far_side() {
        let plan = loaded(|p| {
            p.channel(0, 1);
            p.channel(0, 2);
            let block = p.block(0);
            block.put(p.input(0).all(), p.output(1).all());
            block.get(p.input(2).all(), p.output(0).all());
        });
        let own = Uses { input: READ, output: WRITTEN, written_late: vec![1], ..Uses::default() };
        assert_eq!(*plan.uses(0), own);
        let written = Uses {
            output: BufferUses { exposed: true, ..WRITTEN },
            late_writers: vec![0],
            guests: vec![0],
            ..Uses::default()
        };
        assert_eq!(*plan.uses(1), written);
        let exposed = BufferUses { exposed: true, ..READ };
        let read = Uses { input: exposed, guests: vec![0], ..Uses::default() };
        assert_eq!(*plan.uses(2), read);
    }

    #[test]
    fn a_signal_over_memory_says_nothing_of_what_a_wire_writes() {
        for by_port in [false, true] {
            let plan = loaded(|p| {
                let (port, near) = (p.port(0, 1), p.channel(0, 1));
                let block = p.block(0);
                block.put_over(&port, p.input(0).all(), p.output(1).all());
                let signals = [if by_port { port } else { near }];
                block.signal(&signals);
                p.block(1).wait(&signals);
            });
            assert_eq!(plan.uses(1).late_writers, if by_port { vec![] } else { vec![0] });
        }
    }

    #[test]
    fn a_target_of_packets_is_heard_by_its_packets_or_its_signals() {
        // Rank 0 sends packets to 1, which answers with packets, and to 2, which does not.
        for signals in [false, true] {
            let plan = loaded(|p| {
                let (one, two) = (p.channel(0, 1), p.channel(0, 2));
                let scratch = [0, 1, 2].map(|rank| p.scratch(rank, 1));
                let block = p.block(0);
                block.put_packets(p.input(0).all(), scratch[1].all());
                block.put_packets(p.input(0).all(), scratch[2].all());
                p.block(1).put_packets(p.input(1).all(), scratch[0].all());
                let _ = one;
                if signals {
                    p.block(2).signal(&[two]);
                    block.wait(&[two]);
                }
            });
            let uses = plan.uses(0);
            assert_eq!(uses.packet_targets, [1, 2]);
            assert_eq!(uses.unheard, if signals { vec![] } else { vec![2] });
            assert_eq!(uses.packet_writers, [1]);
            assert_eq!(plan.uses(1).unheard, [] as [u32; 0]);
        }
    }
}
