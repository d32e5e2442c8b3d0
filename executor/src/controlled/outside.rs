//! Who acts besides threads: the proxies of port channels, and the users between launches.

use super::code::Unit;
use super::machine::{Item, Keys, Machine};
use super::order::Way;
use super::stores::{List, Pending};
use super::values::leave;
use antiphon_plan::schedule::Actor;
use antiphon_types::ReduceOp;

/// How far a proxy came with a transfer.
enum Came {
    Through,
    /// Some of it is left, for another step.
    PartOfTheWay,
    Nowhere,
}

impl Machine<'_> {
    /// The proxy of a channel does the oldest item, or some of it: whether there is more to do.
    pub(super) fn proxy_step(&mut self, actor: u32, queue: u32) -> bool {
        let Some(&item) = self.queues[queue as usize].items.front() else {
            return self.park(actor);
        };
        match item {
            Item::Signal { counter } => self.count(counter),
            Item::Transfer { at, launch, iteration } => {
                match self.transfer([actor, queue], at, launch, iteration) {
                    Came::Through => {}
                    Came::PartOfTheWay => return true,
                    Came::Nowhere => return false,
                }
            }
        }
        let line = &mut self.queues[queue as usize];
        line.items.pop_front();
        line.moved = 0;
        line.done += 1;
        let more = !line.items.is_empty();
        self.wake(self.keys.flush(queue));
        more || self.park(actor)
    }

    fn transfer(&mut self, [actor, queue]: [u32; 2], at: u32, launch: u32, iteration: u32) -> Came {
        let op = self.code.ops[at as usize];
        for gate in op.gates.range() {
            let rank = self.code.gates[gate];
            if self.ranks[rank as usize].launch < launch {
                self.wait_for(actor, self.keys.entry(rank));
                return Came::Nowhere;
            }
        }
        let half = self.code.half_of(launch);
        let all = self.code.lists[(op.list + iteration) as usize].range();
        let first = self.queues[queue as usize].moved;
        let track = self.tracker.find_proxy(at, launch, iteration);
        let mut end = all.len();
        if self.tracker.holds(track) {
            // It goes piece by piece: what comes before the bytes that matter need not be late.
            let matters = |unit: usize| self.matters(&self.code.units[unit], half);
            end = match self.ways.way {
                Way::Stopped => first,
                _ => all.clone().position(matters).unwrap_or(first),
            };
            if end <= first {
                self.wait_for(actor, Keys::HOLD);
                return Came::Nowhere;
            }
        } else if self.ways.random && end - first > 1 && self.rng.below(2) == 0 {
            end = first + 1 + self.rng.below((end - first) as u32) as usize;
        }
        let reduce = ReduceOp::Sum;
        for unit in all.clone().take(end).skip(first) {
            let pending = Pending {
                unit: unit as u32,
                half,
                reduce,
                value: None,
                track,
                lane: 0,
                held: false,
            };
            let moved = self.code.units[unit];
            if !moved.packets {
                self.perform(&pending);
                continue;
            }
            // Packets go as they are: whatever flag is there.
            let value = self.load(&moved, &pending);
            let source = self.code.sides[moved.sources().start].at(half);
            let flag = self.flags[source / 8];
            for at in moved.destinations() {
                let side = self.code.sides[at];
                self.store_packet(side.at(half), &value[..8], flag);
            }
        }
        self.queues[queue as usize].moved = end;
        if end < all.len() {
            return Came::PartOfTheWay;
        }
        if let Some(track) = track {
            self.tracker.finish(track);
            self.completed(track);
        }
        Came::Through
    }

    /// Whether a unit touches bytes that both touches of a race have in common; all do if nobody says which those are.
    fn matters(&self, unit: &Unit, half: u32) -> bool {
        let Some(focus) = &self.tracker.focus else { return true };
        let sides = self.code.sides[unit.sources()].iter();
        sides.chain(&self.code.sides[unit.destinations()]).any(|side| {
            let start = side.at(half);
            let len = if side.is_packet() { 8 } else { unit.len as usize };
            start < focus.end && focus.start < start + len
        })
    }

    /// The user of a rank, after a launch: reads the output and writes over it, rewrites the input, and launches again.
    pub(super) fn user_step(&mut self, actor: u32, rank: usize) -> bool {
        let launch = self.ranks[rank].launch;
        let track = self.tracker.find_actor(Actor::User { rank: rank as u32, launch });
        if self.tracker.holds(track) {
            return self.wait_for(actor, Keys::HOLD);
        }
        for block in self.code.rank_blocks[rank].range() {
            if !self.drain(List::Block(block as u32)) {
                return self.wait_for(actor, Keys::HOLD);
            }
        }
        let (start, places) = self.code.users[rank];
        if launch > 0 {
            let range = self.output_range(rank, launch);
            let from = (u64::from(start) + places.output) as usize;
            let output = &mut self.memory[from..from + range.len()];
            self.outputs[range].copy_from_slice(output);
            self.ranks[rank].read = launch;
            if let Some(track) = track {
                self.tracker.read(track, output);
            }
            leave(output, rank, launch);
        }
        let values = self.inputs.of(rank, launch + 1);
        let to = (u64::from(start) + places.input) as usize;
        self.memory[to..to + values.len()].copy_from_slice(values);
        if let Some(track) = track {
            self.tracker.finish(track);
            self.completed(track);
        }
        self.park(actor);
        if launch < self.case.launches {
            self.start(rank, launch + 1);
        }
        false
    }

    fn start(&mut self, rank: usize, launch: u32) {
        let blocks = self.code.rank_blocks[rank];
        self.ranks[rank].launch = launch;
        self.ranks[rank].running = blocks.len() as u32;
        for block in blocks.range() {
            self.blocks[block].ended = 0;
            let start = self.code.blocks[block].start;
            let first = block as u32 * self.width;
            for id in first..first + self.width {
                let lane = &mut self.lanes[id as usize];
                (lane.at, lane.unit, lane.iteration) = (start, 0, 0);
                self.ready(id);
            }
        }
        self.wake(self.keys.entry(rank as u32));
        if blocks.is_empty() {
            let user = self.user(rank);
            self.ready(user);
        }
    }
}
