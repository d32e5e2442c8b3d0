//! What the lanes of a block do: each goes through the block's code by itself, does its units of what all share, and
//! meets the others only where a GPU's threads would.

use super::code::{Kind, Op, Unit};
use super::machine::{Item, Keys, Machine};
use super::order::Way;
use super::stores::{List, Pending};
use super::values::mix;
use antiphon_types::ReduceOp;

/// What became of a lane at an instruction.
enum Micro {
    /// It did something that others can see.
    Did,
    /// It went past, and nobody can tell.
    Past,
    /// It cannot go on.
    Stopped,
}

impl Machine<'_> {
    /// One step of a lane: whether it may take another.
    pub(super) fn lane_step(&mut self, id: u32) -> bool {
        let block = id / self.width;
        loop {
            let at = self.lanes[id as usize].at;
            if at == self.code.blocks[block as usize].end {
                return self.lane_ends(id, block);
            }
            let op = self.code.ops[at as usize];
            let micro = match op.kind {
                Kind::Data(reduce) => self.data(id, at, &op, reduce),
                Kind::Sync => self.meet(id, block),
                Kind::Barrier { barrier, blocks } => self.barrier(id, block, barrier, blocks),
                Kind::LoopBegin { end, times } => {
                    let lane = &mut self.lanes[id as usize];
                    lane.iteration = 0;
                    lane.at = if times == 0 { end + 1 } else { at + 1 };
                    Micro::Past
                }
                Kind::LoopEnd { begin, times } => {
                    let lane = &mut self.lanes[id as usize];
                    lane.iteration += 1;
                    lane.at = if lane.iteration < times { begin + 1 } else { at + 1 };
                    if lane.iteration == times {
                        lane.iteration = 0;
                    }
                    Micro::Past
                }
                _ if !self.chosen(id, at) => {
                    self.pass(id, at);
                    Micro::Past
                }
                _ if self.stopped(id, at) => Micro::Stopped,
                kind => {
                    let done = self.single(id, at, kind);
                    if done {
                        self.pass(id, at);
                    }
                    if done { Micro::Did } else { Micro::Stopped }
                }
            };
            match micro {
                Micro::Did => return true,
                Micro::Stopped => return false,
                Micro::Past => {}
            }
        }
    }

    /// On to the next instruction.
    fn pass(&mut self, id: u32, at: u32) {
        if self.tracker.marked(at) {
            let lane = &self.lanes[id as usize];
            let launch =
                self.ranks[self.code.blocks[(id / self.width) as usize].rank as usize].launch;
            if let Some(track) = self.tracker.find(at, launch, lane.iteration)
                && self.tracker.passed(track, id % self.width)
            {
                self.completed(track);
            }
        }
        let lane = &mut self.lanes[id as usize];
        lane.at = at + 1;
        lane.unit = 0;
        lane.entered = false;
    }

    fn launch_of(&self, id: u32) -> u32 {
        let rank = self.code.blocks[(id / self.width) as usize].rank;
        self.ranks[rank as usize].launch
    }

    /// A number for one execution of an instruction, by which its work is dealt to lanes.
    fn salt(&self, id: u32, at: u32) -> u64 {
        let block = id / self.width;
        let (iteration, launch) = (self.lanes[id as usize].iteration, self.launch_of(id));
        let position = self.code.ops[at as usize].deal;
        if self.ways.random {
            let execution = u64::from(iteration) << 32 | u64::from(launch);
            let place = u64::from(block) << 32 | u64::from(position);
            return mix(self.ways.salt ^ mix(execution) ^ place);
        }
        u64::from(position) + u64::from(iteration) + u64::from(launch) + u64::from(self.ways.rotate)
    }

    /// Whether the lane is the one that does a single lane's work here: the same for the same position in an operation's
    /// list, all the time.
    fn chosen(&self, id: u32, at: u32) -> bool {
        let block = u64::from(id / self.width);
        let first = match self.ways.random {
            true => mix(self.ways.salt ^ mix(block)) >> 32,
            false => u64::from(self.ways.rotate),
        };
        let position = u64::from(self.code.ops[at as usize].deal);
        (first + position) % u64::from(self.width) == u64::from(id % self.width)
    }

    /// The lane that does a unit.
    fn deal(&self, salt: u64, unit: u32) -> u32 {
        let width = u64::from(self.width);
        if self.ways.random {
            let drawn = (salt ^ u64::from(unit)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            return ((drawn * width) >> 32) as u32;
        }
        (salt.wrapping_add(unit.into()) % width) as u32
    }

    /// Whether a hold stops the lane before this instruction. It waits then.
    fn stopped(&mut self, id: u32, at: u32) -> bool {
        if !self.tracker.marked(at) {
            return false;
        }
        let track = self.tracker.find(at, self.launch_of(id), self.lanes[id as usize].iteration);
        let other = matches!(self.ways.way, Way::OneLane(lane) if lane != id % self.width);
        if other || !self.tracker.holds(track) {
            return false;
        }
        self.wait_for(id, Keys::HOLD);
        true
    }

    fn data(&mut self, id: u32, at: u32, op: &Op, reduce: ReduceOp) -> Micro {
        let own = id % self.width;
        let salt = self.salt(id, at);
        let lane = &self.lanes[id as usize];
        let list = self.code.lists[(op.list + lane.iteration) as usize];
        let mut unit = lane.unit.max(list.start);
        while unit < list.end && self.deal(salt, unit - list.start) != own {
            unit += 1;
        }
        self.lanes[id as usize].unit = unit;
        if unit >= list.end {
            self.pass(id, at);
            return Micro::Past;
        }
        let launch = self.launch_of(id);
        for gate in op.gates.range() {
            let rank = self.code.gates[gate];
            if self.ranks[rank as usize].launch < launch {
                self.wait_for(id, self.keys.entry(rank));
                return Micro::Stopped;
            }
        }
        let track = match self.tracker.marked(at) {
            true => self.tracker.find(at, launch, self.lanes[id as usize].iteration),
            false => None,
        };
        let done = self.code.units[unit as usize];
        let unseen = self.ways.way == Way::Unseen && !done.packets;
        if !unseen && track.is_some() && self.stopped(id, at) {
            return Micro::Stopped;
        }
        let half = self.code.half_of(launch);
        let held = unseen && self.tracker.holds(track);
        let mut pending = Pending { unit, half, reduce, value: None, track, lane: own, held };
        if done.packets && !self.packets(id, &done, launch, &mut pending) {
            return Micro::Stopped;
        }
        if !done.packets || done.raw_writes {
            self.issue(id, &done, pending);
        }
        self.lanes[id as usize].unit = unit + 1;
        Micro::Did
    }

    /// The part of a unit with packets that happens at once: all loads, and the stores of packets. Whether all its
    /// packets are there.
    fn packets(&mut self, id: u32, unit: &Unit, launch: u32, pending: &mut Pending) -> bool {
        let half = pending.half;
        for at in unit.sources() {
            let side = self.code.sides[at];
            if side.is_packet() && self.flags[side.at(half) / 8] != launch {
                let owner = self.owner_of_packets(side.at(half));
                self.lanes[id as usize].address = side.at(half) as u32;
                self.wait_for(id, self.keys.packets(owner));
                return false;
            }
        }
        if unit.read_mask != 0 && !self.settle(id, unit, half) {
            self.wait_for(id, Keys::HOLD);
            return false;
        }
        let value = self.load(unit, pending);
        for at in unit.destinations() {
            let side = self.code.sides[at];
            if side.is_packet() {
                self.store_packet(side.at(half), &value[..8], launch);
            }
        }
        pending.value = Some(value);
        true
    }

    pub(super) fn store_packet(&mut self, at: usize, payload: &[u8], flag: u32) {
        self.memory[at..at + 8].copy_from_slice(payload);
        self.flags[at / 8] = flag;
        let owner = self.owner_of_packets(at);
        self.wake_packet(owner, at as u32);
    }

    /// The rank in whose packet scratch an address is.
    pub(super) fn owner_of_packets(&self, at: usize) -> u32 {
        let first = self.code.packets.first().copied().unwrap_or(0) as usize;
        let half = self.code.half as usize;
        let in_second = half > 0 && at >= self.code.scratch[0] as usize + half;
        let at = if in_second { at - half } else { at };
        debug_assert!(at >= first);
        (self.code.packets.partition_point(|&start| start as usize <= at) - 1) as u32
    }

    /// Makes pending units of the block happen that this one, which happens at once, must follow.
    fn settle(&mut self, id: u32, unit: &Unit, half: u32) -> bool {
        let block = List::Block(id / self.width);
        let all = usize::MAX;
        if self.before(List::Lane(id), all, unit, half).is_some() {
            return self.drain(block) && self.drain(List::Lane(id));
        }
        self.before(block, all, unit, half).is_none() || self.drain(block)
    }

    /// A raw unit, which happens now or later.
    fn issue(&mut self, id: u32, unit: &Unit, pending: Pending) {
        let (own, block) = (List::Lane(id), List::Block(id / self.width));
        let now =
            !pending.held && (self.ways.at_once > 255 || self.rng.below(256) < self.ways.at_once);
        if !now {
            return self.push(own, pending);
        }
        let waits = self.before(own, usize::MAX, unit, pending.half).is_some()
            || self.before(block, usize::MAX, unit, pending.half).is_some();
        if !waits {
            return self.perform(&pending);
        }
        self.push(own, pending);
        if self.ways.random {
            self.drain(block);
            self.drain(own);
        }
    }

    /// A meeting of the block's lanes.
    fn meet(&mut self, id: u32, block: u32) -> Micro {
        if !self.arrives(id, block) {
            return Micro::Stopped;
        }
        self.leave(id, block);
        Micro::Did
    }

    /// Takes part in a meeting: whether this lane is the last.
    fn arrives(&mut self, id: u32, block: u32) -> bool {
        if !std::mem::replace(&mut self.lanes[id as usize].entered, true) {
            self.blocks[block as usize].arrived += 1;
            if self.blocks[block as usize].arrived == self.width {
                self.merge(block);
            }
        }
        self.blocks[block as usize].arrived == self.width || self.park(id)
    }

    /// All lanes leave a meeting; `id` is the one that was awake.
    fn leave(&mut self, id: u32, block: u32) {
        self.blocks[block as usize].arrived = 0;
        for lane in block * self.width..(block + 1) * self.width {
            let at = self.lanes[lane as usize].at;
            self.pass(lane, at);
            if lane != id {
                self.ready(lane);
            }
        }
    }

    fn barrier(&mut self, id: u32, block: u32, barrier: u32, blocks: i64) -> Micro {
        if !self.arrives(id, block) {
            return Micro::Stopped;
        }
        let key = self.keys.barrier(barrier);
        if self.blocks[block as usize].ticket < 0 {
            if !self.drain(List::Block(block)) {
                self.wait_for(id, Keys::HOLD);
                return Micro::Stopped;
            }
            let count = &mut self.barriers[barrier as usize];
            let full = (*count / blocks + 1) * blocks;
            *count += 1;
            let last = *count == full;
            self.blocks[block as usize].ticket = full;
            if last {
                self.wake(key);
            }
        }
        if self.barriers[barrier as usize] < self.blocks[block as usize].ticket {
            self.wait_for(id, key);
            return Micro::Stopped;
        }
        self.blocks[block as usize].ticket = -1;
        self.leave(id, block);
        Micro::Did
    }

    /// An instruction that one lane does for all: whether it is done.
    fn single(&mut self, id: u32, at: u32, kind: Kind) -> bool {
        match kind {
            Kind::Signal { counter, release } => {
                if release && !self.release(id) {
                    return self.wait_for(id, Keys::HOLD);
                }
                self.count(counter);
                true
            }
            Kind::PortSignal { queue, counter } => self.post(id, queue, Item::Signal { counter }),
            Kind::Post { queue } => {
                let (launch, iteration) = (self.launch_of(id), self.lanes[id as usize].iteration);
                self.post(id, queue, Item::Transfer { at, launch, iteration })
            }
            Kind::Wait { counter } => {
                if !self.lanes[id as usize].entered {
                    let expected = &mut self.expected[counter as usize];
                    *expected += 1;
                    let ticket = *expected as i64;
                    self.enter(id, ticket);
                }
                let reached =
                    self.counters[counter as usize] as i64 >= self.lanes[id as usize].ticket;
                reached || self.wait_for(id, self.keys.counter(counter))
            }
            Kind::Acquire { semaphore } => {
                let value = self.semaphores[semaphore as usize];
                if !self.lanes[id as usize].entered {
                    self.semaphores[semaphore as usize] = value.wrapping_sub(1);
                    self.enter(id, value);
                    if value > 0 {
                        return true;
                    }
                }
                let free = self.semaphores[semaphore as usize] >= self.lanes[id as usize].ticket;
                free || self.wait_for(id, self.keys.semaphore(semaphore))
            }
            Kind::Release { semaphore } => {
                if !self.release(id) {
                    return self.wait_for(id, Keys::HOLD);
                }
                let value = &mut self.semaphores[semaphore as usize];
                *value = value.wrapping_add(1);
                self.wake(self.keys.semaphore(semaphore));
                true
            }
            Kind::Flush { queue } => {
                if !self.lanes[id as usize].entered {
                    let posted = self.queues[queue as usize].posted as i64;
                    self.enter(id, posted);
                }
                let reached =
                    self.queues[queue as usize].done as i64 >= self.lanes[id as usize].ticket;
                reached || self.wait_for(id, self.keys.flush(queue))
            }
            _ => true,
        }
    }

    fn enter(&mut self, id: u32, ticket: i64) {
        let lane = &mut self.lanes[id as usize];
        (lane.entered, lane.ticket) = (true, ticket);
    }

    /// A signal arrives.
    pub(super) fn count(&mut self, counter: Option<u32>) {
        if let Some(counter) = counter {
            self.counters[counter as usize] += 1;
            self.wake(self.keys.counter(counter));
        }
    }

    fn post(&mut self, id: u32, queue: u32, item: Item) -> bool {
        if !self.release(id) {
            return self.wait_for(id, Keys::HOLD);
        }
        let line = &mut self.queues[queue as usize];
        line.items.push_back(item);
        line.posted += 1;
        let proxy = self.proxy(queue);
        self.ready(proxy);
        true
    }

    /// The lane has come to the end of its block's code.
    fn lane_ends(&mut self, id: u32, block: u32) -> bool {
        self.blocks[block as usize].ended += 1;
        if self.blocks[block as usize].ended == self.width {
            self.merge(block);
            let rank = self.code.blocks[block as usize].rank as usize;
            self.ranks[rank].running -= 1;
            if self.ranks[rank].running == 0 {
                let user = self.user(rank);
                self.ready(user);
            }
        }
        self.park(id)
    }
}
