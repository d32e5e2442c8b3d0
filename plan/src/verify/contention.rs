//! Which counters several blocks contend for, so that the order in which they come matters.

use super::sync::Usage;
use crate::program::{Access, Area, Block, Instruction, Layout, RankLayout};
use std::collections::{BTreeMap, BTreeSet};

/// Positions of every rank's counters among those of all ranks, and which of them are contended for.
#[derive(Clone, Debug, Default)]
pub(super) struct Contention {
    /// First channel of each rank.
    pub channels: Vec<u32>,
    /// First semaphore of each rank.
    pub semaphores: Vec<u32>,
    /// First barrier of each rank.
    pub barriers: Vec<u32>,
    /// By receiving end.
    pub usages: Vec<Usage>,
    /// Several blocks acquire, or the semaphore starts below 0.
    pub contended_semaphores: Vec<bool>,
    /// Several blocks release and one acquires: the k-th time it passes with the k-th release, whosever that is.
    pub ordered_semaphores: Vec<bool>,
    pub contended_barriers: Vec<bool>,
    /// Port channels (rank and channel) to which several blocks give work, or several threads of a block that have not
    /// met: the order of that work is open.
    pub shared_ports: Vec<(u32, u32)>,
    /// By rank, the thread that does each instruction.
    pub threads: Vec<Vec<u32>>,
    /// Instructions (rank and position) that use something which blocks contend for, and that a thread may reach while another
    /// thread of its block still waits at an earlier one. A walk moves each block as a whole, so it does not look into such
    /// orders.
    pub early: Vec<(u32, u32)>,
}

/// Who uses a counter.
#[derive(Clone, Debug, Default)]
struct Users {
    relaxed: bool,
    loose: bool,
    give: BTreeSet<(u32, u32)>,
    take: BTreeSet<(u32, u32)>,
}

impl Contention {
    /// The counters of a plan.
    pub fn new(layout: &Layout) -> Self {
        let mut found = Contention::default();
        let (mut channels, mut semaphores, mut barriers) = (0u32, 0u32, 0u32);
        for rank in &layout.ranks {
            found.channels.push(channels);
            found.semaphores.push(semaphores);
            found.barriers.push(barriers);
            channels += rank.channels.len() as u32;
            semaphores += rank.semaphores.len() as u32;
            barriers += rank.barriers.len() as u32;
        }
        let mut ends = vec![Users::default(); channels as usize];
        let mut tokens = vec![Users::default(); semaphores as usize];
        let mut meetings = vec![Users::default(); barriers as usize];
        for (rank, own) in (0u32..).zip(&layout.ranks) {
            let mut ports: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
            let threads = own.threads();
            let loose = loose_channels(own, &threads);
            found.threads.push(threads);
            let first = [found.channels[rank as usize], found.semaphores[rank as usize]];
            for (block, code) in (0u32..).zip(&own.blocks) {
                let who = (rank, block);
                for instruction in &own.instructions[code.code.range()] {
                    if let Instruction::Signal { channel, .. }
                    | Instruction::Post { channel, .. }
                    | Instruction::Flush { channel } = *instruction
                        && own.channels[channel as usize].port
                    {
                        ports.entry(channel).or_default().insert(block);
                    }
                    match *instruction {
                        Instruction::Signal { channel, release } => {
                            if let Some(at) = found.far_end(layout, rank, channel) {
                                ends[at as usize].give.insert(who);
                                ends[at as usize].relaxed |= !release;
                                ends[at as usize].loose |= loose.contains(&channel);
                            }
                        }
                        Instruction::Wait { channel, .. } => {
                            ends[(first[0] + channel) as usize].take.insert(who);
                        }
                        Instruction::Release { semaphore } => {
                            tokens[(first[1] + semaphore) as usize].give.insert(who);
                        }
                        Instruction::Acquire { semaphore } => {
                            tokens[(first[1] + semaphore) as usize].take.insert(who);
                        }
                        Instruction::Barrier { barrier, .. } => {
                            let at = found.barriers[rank as usize] + barrier;
                            meetings[at as usize].give.insert(who);
                        }
                        _ => {}
                    }
                }
            }
            let shared = ports.into_iter();
            let shared = shared.filter(|(port, blocks)| blocks.len() > 1 || loose.contains(port));
            found.shared_ports.extend(shared.map(|(channel, _)| (rank, channel)));
        }
        let several = |users: &Users| {
            !users.take.is_empty() && (users.give.len() > 1 || users.take.len() > 1)
        };
        let usage = |users: &Users| Usage {
            contended: several(users),
            signallers: !users.take.is_empty() && users.give.len() > 1,
            waiters: users.take.len() > 1,
            relaxed: users.relaxed,
            loose: users.loose,
        };
        found.usages = ends.iter().map(usage).collect();
        let initial = layout.ranks.iter().flat_map(|rank| &rank.semaphores);
        let negative: Vec<bool> = initial.map(|&value| value < 0).collect();
        let passes = |(users, &negative): (&Users, &bool)| {
            users.take.len() > 1 || (negative && !users.take.is_empty())
        };
        found.contended_semaphores = tokens.iter().zip(&negative).map(passes).collect();
        let ordered = tokens.iter().zip(&found.contended_semaphores);
        found.ordered_semaphores =
            ordered.map(|(users, &contended)| several(users) && !contended).collect();
        let blocks = layout.ranks.iter().flat_map(|rank| &rank.barriers);
        found.contended_barriers = meetings
            .iter()
            .zip(blocks)
            .map(|(users, &blocks)| users.give.len() > blocks as usize)
            .collect();
        let early = (0u32..).zip(&layout.ranks).flat_map(|(rank, own)| {
            let contends = |instruction: &Instruction| found.contends(layout, rank, instruction);
            let early = early(rank, own, &found.threads[rank as usize], contends);
            early.into_iter().map(move |at| (rank, at))
        });
        found.early = early.collect();
        found
    }

    /// Whether an instruction of a rank uses something that blocks contend for. (Barriers do not count: a block's threads meet
    /// there and come to them together.)
    fn contends(&self, layout: &Layout, rank: u32, instruction: &Instruction) -> bool {
        let semaphore = |at: u32| (self.semaphores[rank as usize] + at) as usize;
        match *instruction {
            Instruction::Signal { channel, .. } => self
                .far_end(layout, rank, channel)
                .is_some_and(|at| self.usages[at as usize].signallers),
            Instruction::Wait { channel, .. } => {
                self.usages[(self.channels[rank as usize] + channel) as usize].waiters
            }
            Instruction::Acquire { semaphore: at } => self.contended_semaphores[semaphore(at)],
            Instruction::Release { semaphore: at } => {
                self.contended_semaphores[semaphore(at)] || self.ordered_semaphores[semaphore(at)]
            }
            _ => false,
        }
    }

    /// Whether the order in which blocks come to some counter matters.
    pub fn any(&self) -> bool {
        let semaphores = self.contended_semaphores.iter().chain(&self.ordered_semaphores);
        let mut others = semaphores.chain(&self.contended_barriers);
        others.any(|&one| one) || self.usages.iter().any(|usage| usage.contended)
    }

    /// The receiving end of a rank's channel, if there is one.
    pub fn far_end(&self, layout: &Layout, rank: u32, channel: u32) -> Option<u32> {
        let end = layout.ranks[rank as usize].channels[channel as usize];
        Some(self.channels[end.peer as usize] + end.paired?)
    }
}

/// Visits a block's instructions in their order, and those of a pipeline's body again behind it: a body follows itself.
fn in_order(own: &RankLayout, block: &Block, mut visit: impl FnMut(usize)) {
    for at in block.code.range() {
        visit(at);
        if let Instruction::LoopEnd { begin } = own.instructions[at] {
            (block.code.start as usize + begin as usize..at).for_each(&mut visit);
        }
    }
}

/// The channels to which several threads of one block give work without having met in between.
fn loose_channels(own: &RankLayout, threads: &[u32]) -> BTreeSet<u32> {
    let mut loose = BTreeSet::new();
    for block in &own.blocks {
        let mut users: BTreeMap<u32, u32> = BTreeMap::new();
        let visit = |at: usize| match own.instructions[at] {
            Instruction::BlockSync | Instruction::Barrier { .. } => users.clear(),
            Instruction::Signal { channel, .. }
            | Instruction::Post { channel, .. }
            | Instruction::Flush { channel } => {
                let first = *users.entry(channel).or_insert(threads[at]);
                loose.extend((first != threads[at]).then_some(channel));
            }
            _ => {}
        };
        in_order(own, block, visit);
    }
    loose
}

/// The instructions of a rank that contend for something, and that a thread may reach while another thread of its block still
/// waits at an earlier instruction, because the two have not met since.
fn early(
    rank: u32,
    own: &RankLayout,
    threads: &[u32],
    contends: impl Fn(&Instruction) -> bool,
) -> BTreeSet<u32> {
    let mut early = BTreeSet::new();
    // Inputs and outputs of peers are touched once they have begun the launch, and packets read once they are there.
    let is_far = |at: usize| {
        let Access { rank: owner, area } = own.accesses[at];
        owner != rank && matches!(area, Area::Input | Area::Output)
    };
    let are_packets = |at: usize| own.accesses[at].area == Area::Packets;
    for block in &own.blocks {
        // The threads that may still wait; all of them where they share what waits.
        let (mut waiting, mut all_wait) = (BTreeSet::new(), false);
        let visit = |at: usize| {
            let instruction = &own.instructions[at];
            let thread = threads[at];
            let others = waiting.iter().any(|&other| other != thread);
            if contends(instruction) && (all_wait || others) {
                early.insert(at as u32);
            }
            match *instruction {
                Instruction::BlockSync | Instruction::Barrier { .. } => {
                    waiting.clear();
                    all_wait = false;
                }
                Instruction::Wait { .. }
                | Instruction::Acquire { .. }
                | Instruction::Flush { .. } => {
                    waiting.insert(thread);
                }
                Instruction::Post { destination, .. } if is_far(destination as usize) => {
                    waiting.insert(thread);
                }
                Instruction::Move { sources, destinations, .. } => {
                    all_wait |= sources.range().any(are_packets);
                    all_wait |= sources.range().chain(destinations.range()).any(is_far);
                }
                Instruction::MoveBlock { .. } => all_wait = true,
                _ => {}
            }
        };
        in_order(own, block, visit);
    }
    early
}
