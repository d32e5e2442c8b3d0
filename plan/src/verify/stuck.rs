//! Who waits for whom, where a run cannot go on.

use super::report::{Fault, Waiter};
use super::state::{Block, Wait};
use super::walk::Walk;
use crate::interpret::BlockedOn;
use crate::lower::Site;
use crate::program::{Area, Instruction, Origin};
use std::collections::BTreeSet;

impl Walk<'_> {
    /// The deadlock that a run ended in, in the plan's terms.
    pub(super) fn deadlock(&self) -> Option<Fault> {
        let stuck: Vec<u32> = (0..self.blocks.len() as u32)
            .filter(|&index| {
                !self.blocks[index as usize].done && self.blocks[index as usize].wait.is_some()
            })
            .collect();
        let launch = stuck
            .iter()
            .map(|&index| self.ranks[self.blocks[index as usize].rank as usize].launch)
            .min()?;
        let blocked: Vec<Waiter> =
            stuck.iter().map(|&index| self.waiter(index, &stuck)).collect::<Option<_>>()?;
        let cycle = cycle(&blocked);
        Some(Fault::Deadlock { launch, blocked, cycle })
    }

    fn waiter(&self, index: u32, stuck: &[u32]) -> Option<Waiter> {
        let block = &self.blocks[index as usize];
        let (on, mut for_whom) = self.waits_for(block, block.wait?);
        for_whom.remove(&(block.rank, block.number));
        // Whoever is through will not come back to it in this launch.
        let stuck: BTreeSet<(u32, u32)> = stuck
            .iter()
            .map(|&other| (self.blocks[other as usize].rank, self.blocks[other as usize].number))
            .collect();
        let for_whom = for_whom.intersection(&stuck).copied().collect();
        Some(Waiter { site: self.site(block), on, for_whom })
    }

    /// The operation that a block is at.
    pub(super) fn site(&self, block: &Block) -> Site {
        self.site_at(block.rank, block.number, block.at)
    }

    pub(super) fn site_at(&self, rank: u32, block: u32, at: u32) -> Site {
        let own = &self.setting.layout.ranks[rank as usize];
        let first = own.blocks[block as usize].code.start;
        let Origin { op, inner, kind } = own.origins[(first + at) as usize];
        Site { rank, tb: block, op, inner, kind }
    }

    /// What a block waits for, and the blocks that could still do something to end the wait.
    fn waits_for(&self, block: &Block, wait: Wait) -> (BlockedOn, BTreeSet<(u32, u32)>) {
        let (layout, contention) = (self.setting.layout, self.setting.contention);
        let rank = block.rank;
        match wait {
            Wait::Signal { channel, ticket } => {
                let own = &layout.ranks[rank as usize];
                let at = contention.channels[rank as usize] + channel;
                let received = self.inbound[at as usize].received();
                let peer = own.channels[channel as usize].peer;
                let (channel_type, channel) = own.channel_id(channel);
                let on =
                    BlockedOn::Signal { channel_type, channel, peer, received, needed: ticket };
                let signals = |other: u32, instruction: &Instruction| match *instruction {
                    Instruction::Signal { channel, .. } => {
                        contention.far_end(layout, other, channel) == Some(at)
                    }
                    _ => false,
                };
                (on, self.ahead(&[peer], signals))
            }
            Wait::Packet { owner, cell } => {
                let first = [1, 2].map(|launch| self.space.first(owner, Area::Packets, launch));
                let from = first.into_iter().filter(|&first| first <= cell).max().unwrap_or(cell);
                let offset = self.space.bytes(cell - from..cell - from + 1).start;
                let on = BlockedOn::Packet { rank: owner, offset };
                let ranks: Vec<u32> = (0..layout.ranks.len() as u32).collect();
                let writes = |other: u32, instruction: &Instruction| {
                    self.writes_packet(other, instruction, owner, offset)
                };
                (on, self.ahead(&ranks, writes))
            }
            Wait::Semaphore { semaphore, needed } => {
                let at = contention.semaphores[rank as usize] + semaphore;
                let value = self.semaphores[at as usize].value;
                let on = BlockedOn::Semaphore { semaphore, value, needed };
                let releases = |_, instruction: &Instruction| matches!(*instruction, Instruction::Release { semaphore: s } if s == semaphore);
                (on, self.ahead(&[rank], releases))
            }
            Wait::Barrier { barrier, full } => {
                let at = contention.barriers[rank as usize] + barrier;
                let state = &self.barriers[at as usize];
                let blocks = state.blocks;
                let missing = full.saturating_sub(state.arrived);
                let arrived = u64::from(blocks).saturating_sub(missing) as u32;
                let on = BlockedOn::Barrier { barrier, arrived, blocks };
                let arrives = |_, instruction: &Instruction| matches!(*instruction, Instruction::Barrier { barrier: b, .. } if b == barrier);
                let mut ahead = self.ahead(&[rank], arrives);
                // Those who wait there have arrived.
                ahead.retain(|&(rank, number)| {
                    let index = self.first_block[rank as usize] + number;
                    !matches!(self.blocks[index as usize].wait, Some(Wait::Barrier { barrier: b, .. }) if b == barrier)
                });
                (on, ahead)
            }
            Wait::Start { rank: late } => {
                let launch = self.ranks[rank as usize].launch;
                let on = BlockedOn::Start { rank: late, launch };
                (on, self.ahead(&[late], |_, _| true))
            }
        }
    }

    /// Blocks of these ranks that are not through and have such an instruction ahead, or behind them in a pipeline.
    fn ahead(
        &self,
        ranks: &[u32],
        wanted: impl Fn(u32, &Instruction) -> bool,
    ) -> BTreeSet<(u32, u32)> {
        let mut found = BTreeSet::new();
        for &rank in ranks {
            let own = &self.setting.layout.ranks[rank as usize];
            for (number, code) in (0u32..).zip(&own.blocks) {
                let block = &self.blocks[(self.first_block[rank as usize] + number) as usize];
                let from = if block.window.is_some() { 0 } else { block.at as usize };
                let code = &own.instructions[code.code.range()];
                let left = code.get(from..).unwrap_or_default();
                if !block.done && left.iter().any(|instruction| wanted(rank, instruction)) {
                    found.insert((rank, number));
                }
            }
        }
        found
    }

    /// Whether an instruction writes the packet at a payload byte of a rank's scratch.
    fn writes_packet(&self, rank: u32, instruction: &Instruction, owner: u32, byte: u64) -> bool {
        let own = &self.setting.layout.ranks[rank as usize];
        let (sources, destinations, index) = match *instruction {
            Instruction::Move { sources, destinations, index, .. } => {
                (sources.len(), destinations.range(), index)
            }
            Instruction::Post { destination, index, .. } => {
                (1, destination as usize..destination as usize + 1, index)
            }
            _ => return false,
        };
        let program = &self.setting.grid.programs[rank as usize];
        let segments = &program.segments[program.moves[index as usize].range()];
        own.accesses[destinations].iter().enumerate().any(|(at, access)| {
            access.rank == owner
                && access.area == Area::Packets
                && segments.iter().any(|segment| {
                    let start = program.offsets[segment.offsets as usize + sources + at];
                    (start..start + segment.padded).contains(&byte)
                })
        })
    }
}

/// A block that waits for what nobody will do, if there is one; else blocks that wait for each other in a circle.
fn cycle(blocked: &[Waiter]) -> Vec<usize> {
    if let Some(at) = blocked.iter().position(|waiter| waiter.for_whom.is_empty()) {
        return vec![at];
    }
    // Whoever follows the first reason long enough runs in a circle.
    let next = |at: usize| {
        let &(rank, tb) = blocked[at].for_whom.first()?;
        blocked.iter().position(|waiter| (waiter.site.rank, waiter.site.tb) == (rank, tb))
    };
    let mut at = 0;
    for _ in 0..blocked.len() {
        match next(at) {
            Some(found) => at = found,
            None => return vec![at],
        }
    }
    let first = at;
    let mut circle = vec![first];
    while let Some(found) = next(at).filter(|&found| found != first) {
        circle.push(found);
        at = found;
    }
    circle
}
