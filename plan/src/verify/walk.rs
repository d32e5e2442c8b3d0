//! One run of all ranks over several launches, in the order that needs no choice, keeping what happened before what.
//!
//! Blocks only wait for counters and flags that nobody takes back, so a run in any one order ends where every order
//! ends, and hands on along the way what every order hands on. What two touches of memory have to do with each other
//! in all orders can therefore be read off the clocks of one. Where blocks contend for a counter, the order is a
//! choice that a [`Script`] makes.

use super::clock::{Clock, Epoch, Handed};
use super::lineage::Lineage;
use super::shadow::{Shadow, StepTouch, Toucher};
use super::space::{Reach, Space};
use super::state::{
    Block, CellAt, End, Event, Found, Mismatch, Object, Proxy, Rank, Script, Setting, Wait,
};
use super::sync::{Barrier, Inbound, Semaphore};
use super::values::{How, Values};
use crate::program::{Area, Instruction};
use crate::schedule::Moment;
use std::collections::{HashMap, HashSet, VecDeque};

/// Conflicts after which a run is given up: they are refutations enough.
const ENOUGH: usize = 64;
/// Most blocks and proxies of a run: each of them has a clock with a count for every one.
const MOST_ACTORS: usize = 1 << 15;

/// The run.
pub(super) struct Walk<'a> {
    pub setting: Setting<'a>,
    pub space: Space,
    pub values: Values,
    pub shadow: Shadow<'a>,
    /// All writes of packets, if they are to be written down.
    pub(super) record: Option<Lineage>,
    pub blocks: Vec<Block>,
    /// First block of each rank.
    pub first_block: Vec<u32>,
    pub proxies: Vec<Proxy>,
    /// By rank, the first proxy, and the first port channel.
    pub first_proxy: Vec<(u32, u32)>,
    pub ranks: Vec<Rank>,
    pub inbound: Vec<Inbound>,
    pub semaphores: Vec<Semaphore>,
    pub barriers: Vec<Barrier>,
    pub(super) waiting_inbound: Vec<Vec<u32>>,
    pub(super) waiting_semaphore: Vec<Vec<u32>>,
    pub(super) waiting_barrier: Vec<Vec<u32>>,
    pub(super) waiting_packet: HashMap<u32, Vec<u32>>,
    pub(super) ready: VecDeque<u32>,
    parked: Vec<u32>,
    pub found: Vec<Found>,
    /// Clocks of the later touch of each conflict, where a log is kept.
    pub found_clocks: Vec<Clock>,
    pub mismatches: Vec<Mismatch>,
    /// The operation of the outputs' reductions.
    pub(super) operation: Option<Option<antiphon_types::ReduceOp>>,
    /// Some output takes an input more than once.
    pub(super) repeats: bool,
    /// Reductions that were found to be what is wanted.
    pub(super) kept: HashMap<u32, (super::promise::Wanted, u32)>,
    /// By rank, the values of its output after its latest launch.
    pub outputs: Vec<Vec<u32>>,
    /// For the rank whose outputs are looked at, the last chunks of blocks that each cell came through; empty if all are whole.
    pub(super) through: Vec<Reach>,
    /// By actor.
    pub log: Vec<Vec<Event>>,
    /// When blocks came to what they contend for, in order; where a log is kept.
    pub contended: Vec<(u32, Moment)>,
    /// Steps of all actors.
    pub steps: u64,
    /// Cells made, and touched since.
    pub touched: u64,
    /// Memory for one transfer, kept for the next.
    pub(super) buffer: super::moves::Pieces,
    pub(super) arguments: Vec<u32>,
    pub(super) made_from: Vec<u32>,
}

impl<'a> Walk<'a> {
    /// A run that has not begun; `None` if there are more cells, blocks or proxies than fit in memory.
    pub fn new(setting: Setting<'a>) -> Option<Self> {
        let Setting { layout, grid, case, contention, .. } = setting;
        let space = Space::new(layout, grid, &case)?;
        let inputs: Vec<u32> =
            (0..layout.ranks.len() as u32).map(|rank| space.input(rank).len() as u32).collect();
        // The user rewrites the input after the last launch too.
        let values = Values::new(space.cells, &inputs, case.launches + 1)?;
        let mut blocks = Vec::new();
        let (mut first_block, mut first_proxy, mut proxies) = (Vec::new(), Vec::new(), 0);
        for (rank, own) in (0u32..).zip(&layout.ranks) {
            first_block.push(blocks.len() as u32);
            // A rank without blocks begins launches too.
            for number in 0..own.blocks.len().max(1) as u32 {
                blocks.push((rank, number));
            }
            let memory = own.channels.iter().take_while(|channel| !channel.port).count();
            first_proxy.push((proxies, memory as u32));
            proxies += (own.channels.len() - memory) as u32;
        }
        let actors = blocks.len() + proxies as usize;
        if actors > MOST_ACTORS {
            return None;
        }
        let clock = Clock::new(actors);
        let block = |(rank, number)| Block {
            rank,
            number,
            at: 0,
            window: None,
            count: 0,
            met: 0,
            clock: clock.clone(),
            pending: Vec::new(),
            ticket: None,
            wait: None,
            permit: false,
            done: true,
        };
        let rank = |_| Rank {
            launch: 0,
            running: 0,
            observed: None,
            heard: vec![0; layout.ranks.len()],
            news: HashSet::new(),
            starts: Vec::new(),
            waiting: Vec::new(),
            over: false,
        };
        let inbound: Vec<Inbound> =
            contention.usages.iter().map(|&usage| Inbound::new(usage)).collect();
        let initial = layout.ranks.iter().flat_map(|rank| &rank.semaphores);
        let semaphores: Vec<Semaphore> = initial
            .zip(&contention.contended_semaphores)
            .map(|(&value, &contended)| Semaphore::new(value, contended))
            .collect();
        let sizes = layout.ranks.iter().flat_map(|rank| &rank.barriers);
        let barriers: Vec<Barrier> = sizes.map(|&blocks| Barrier::new(blocks)).collect();
        Some(Walk {
            shadow: Shadow::new(space.cells, layout.packets, setting.lineage),
            record: setting.record.then(Lineage::default),
            values,
            blocks: blocks.into_iter().map(block).collect(),
            proxies: (0..proxies).map(|_| Proxy { clock: clock.clone(), count: 0 }).collect(),
            first_block,
            first_proxy,
            ranks: (0..layout.ranks.len()).map(rank).collect(),
            waiting_inbound: vec![Vec::new(); inbound.len()],
            waiting_semaphore: vec![Vec::new(); semaphores.len()],
            waiting_barrier: vec![Vec::new(); barriers.len()],
            waiting_packet: HashMap::new(),
            inbound,
            semaphores,
            barriers,
            ready: VecDeque::new(),
            parked: Vec::new(),
            found: Vec::new(),
            found_clocks: Vec::new(),
            mismatches: Vec::new(),
            repeats: false,
            kept: HashMap::new(),
            operation: None,
            outputs: vec![Vec::new(); layout.ranks.len()],
            through: Vec::new(),
            log: if setting.log { vec![Vec::new(); actors] } else { Vec::new() },
            contended: Vec::new(),
            steps: 0,
            touched: space.cells.into(),
            buffer: super::moves::Pieces::default(),
            arguments: Vec::new(),
            made_from: Vec::new(),
            space,
            setting,
        })
    }

    /// Runs to the end of all launches, or as far as it goes.
    pub fn run(&mut self, script: &mut dyn Script) -> End {
        for rank in 0..self.ranks.len() as u32 {
            self.begin(rank);
        }
        loop {
            while let Some(block) = self.ready.pop_front() {
                self.advance(block);
                if self.found.len() >= ENOUGH && !self.setting.record {
                    return End::Enough;
                }
                if self.touched > self.setting.budget {
                    return End::TooLong;
                }
            }
            let options: Vec<(u32, Object)> = self.options();
            if options.is_empty() {
                break;
            }
            let Some(next) = script.choose(&options) else { return End::GivenUp };
            self.parked.retain(|&block| block != next);
            if self.setting.log {
                let moment = self.moment(next);
                self.contended.push((next, moment));
            }
            self.blocks[next as usize].permit = true;
            self.ready.push_back(next);
        }
        if self.ranks.iter().all(|rank| rank.over) { End::Complete } else { End::Stuck }
    }

    /// Where a block is.
    fn moment(&self, index: u32) -> Moment {
        let Block { rank, number: block, at, window, .. } = self.blocks[index as usize];
        let launch = self.ranks[rank as usize].launch;
        Moment { rank, block, launch, at, iteration: window.map_or(0, |(iteration, _)| iteration) }
    }

    /// Parked blocks that may go on if they are chosen.
    fn options(&self) -> Vec<(u32, Object)> {
        let mut options = Vec::new();
        for &at in &self.parked {
            let block = &self.blocks[at as usize];
            let Some(object) = self.object(block) else { continue };
            if let (Object::Semaphore(semaphore), Some(old)) = (object, block.ticket)
                && self.semaphores[semaphore as usize].value < old
            {
                continue;
            }
            options.push((at, object));
        }
        options.sort_unstable();
        options
    }

    /// What the block's next instruction contends for.
    fn object(&self, block: &Block) -> Option<Object> {
        let Setting { layout, contention, free, .. } = self.setting;
        let rank = block.rank as usize;
        match *self.instruction(block)? {
            Instruction::Signal { channel, .. } => {
                let at = contention.far_end(layout, block.rank, channel)?;
                contention.usages[at as usize].signallers.then_some(Object::Signals(at))
            }
            Instruction::Wait { channel, .. } => {
                let at = contention.channels[rank] + channel;
                let contended = contention.usages[at as usize].waiters && block.ticket.is_none();
                (contended && !free[at as usize]).then_some(Object::Waits(at))
            }
            Instruction::Acquire { semaphore } | Instruction::Release { semaphore } => {
                let at = contention.semaphores[rank] + semaphore;
                let waits = matches!(self.instruction(block)?, Instruction::Acquire { .. });
                let free = waits && free[self.inbound.len() + at as usize];
                let order = contention.contended_semaphores[at as usize]
                    || (!waits && contention.ordered_semaphores[at as usize]);
                (order && !free).then_some(Object::Semaphore(at))
            }
            Instruction::Barrier { barrier, .. } => {
                let at = contention.barriers[rank] + barrier;
                let contended =
                    contention.contended_barriers[at as usize] && block.ticket.is_none();
                contended.then_some(Object::Barrier(at))
            }
            _ => None,
        }
    }

    /// The block's next instruction.
    pub fn instruction(&self, block: &Block) -> Option<&'a Instruction> {
        let own = &self.setting.layout.ranks[block.rank as usize];
        let code = own.blocks.get(block.number as usize)?.code.range();
        own.instructions[code].get(block.at as usize)
    }

    /// A rank ends its launch, if it is in one, and begins the next.
    fn begin(&mut self, rank: u32) {
        let at = rank as usize;
        let first = self.first_block[at];
        let count = self.setting.layout.ranks[at].blocks.len() as u32;
        let mut clock = self.blocks[first as usize].clock.clone();
        for index in first..first + count.max(1) {
            let block = &mut self.blocks[index as usize];
            let step = Epoch { actor: index, count: block.count };
            block.learn();
            Handed { clock: block.clock.clone(), step }.teach(&mut clock);
        }
        if let Some(observed) = self.ranks[at].observed.take() {
            clock.join(&observed);
        }
        let next = self.ranks[at].launch + 1;
        let user = Epoch { actor: first, count: self.blocks[first as usize].count + 1 };
        if next > 1 {
            self.user(rank, next, user, &clock);
        } else {
            self.first_input(rank);
        }
        for index in first..first + count.max(1) {
            let block = &mut self.blocks[index as usize];
            block.count += 1;
            clock.learn(Epoch { actor: index, count: block.count });
        }
        for index in first..first + count.max(1) {
            let block = &mut self.blocks[index as usize];
            (block.met, block.clock) = (block.count, clock.clone());
            (block.at, block.window, block.done) = (0, None, false);
            self.note(index, Event::Begin { launch: next });
        }
        let state = &mut self.ranks[at];
        if next > self.setting.case.launches {
            state.over = true;
            state.starts.push(clock);
            state.launch = next;
            return;
        }
        state.starts.push(clock);
        (state.launch, state.running) = (next, count);
        state.news.clear();
        let waiting = std::mem::take(&mut state.waiting);
        self.ready.extend(waiting);
        self.ready.extend(first..first + count);
        if count == 0 {
            self.begin(rank);
        }
    }

    /// The user's input before the first launch.
    fn first_input(&mut self, rank: u32) {
        for cell in self.space.output(rank) {
            self.shadow.set_through(cell, Reach::of(self.space.index(rank, Area::Output, cell)));
        }
        let value = self.values.input(rank, 1);
        for (offset, cell) in (0..).zip(self.space.input(rank)) {
            self.shadow.place(cell, value + offset);
            self.shadow.set_through(cell, Reach::of(self.space.index(rank, Area::Input, cell)));
        }
    }

    /// Between two launches the user reads the output, does with it what they like, and rewrites the input.
    fn user(&mut self, rank: u32, next: u32, step: Epoch, clock: &Clock) {
        let (met, entry, made_from) = (step.count - 1, None, &[][..]);
        let toucher = Toucher { step, clock, met, entry, made_from, through: Reach::default() };
        let output = self.space.output(rank);
        self.touched += (2 * output.len() + self.space.input(rank).len()) as u64;
        let mut values = std::mem::take(&mut self.outputs[rank as usize]);
        values.clear();
        self.through.clear();
        for (offset, cell) in (0..).zip(output.clone()) {
            values.push(self.shadow.value(cell));
            if self.space.clips {
                self.through.push(self.shadow.through(cell));
            }
            if !self.setting.user_acts {
                continue;
            }
            let through = Reach::of(self.space.index(rank, Area::Output, cell));
            if let Some(earlier) = self.shadow.read(cell, &Toucher { through, ..toucher }) {
                let place = CellAt { owner: rank, area: Area::Output, cell: offset };
                self.note_conflict(Found { earlier, later: StepTouch::read(step), place }, clock);
            }
        }
        self.outputs[rank as usize] = values;
        self.judge(rank, next - 1);
        if !self.setting.user_acts {
            return;
        }
        for (offset, cell) in (0..).zip(output) {
            let value = self.values.left(cell, next - 1);
            let through = Reach::of(self.space.index(rank, Area::Output, cell));
            let toucher = Toucher { through, ..toucher };
            if let Some(earlier) = self.shadow.write(cell, value, &toucher) {
                let place = CellAt { owner: rank, area: Area::Output, cell: offset };
                self.note_conflict(Found { earlier, later: StepTouch::write(step), place }, clock);
            }
        }
        let value = self.values.input(rank, next);
        for (offset, cell) in (0..).zip(self.space.input(rank)) {
            let through = Reach::of(self.space.index(rank, Area::Input, cell));
            let toucher = Toucher { through, ..toucher };
            if let Some(earlier) = self.shadow.write(cell, value + offset, &toucher) {
                let place = CellAt { owner: rank, area: Area::Input, cell: offset };
                self.note_conflict(Found { earlier, later: StepTouch::write(step), place }, clock);
            }
        }
    }

    /// Notes a conflict. The clock is that of the later touch.
    pub(super) fn note_conflict(&mut self, found: Found, clock: &Clock) {
        if self.found.len() >= ENOUGH {
            return;
        }
        self.found.push(found);
        if self.setting.log {
            self.found_clocks.push(clock.clone());
        }
    }

    pub(super) fn note(&mut self, actor: u32, event: Event) {
        self.steps += 1;
        if let Some(log) = self.log.get_mut(actor as usize) {
            log.push(event);
        }
    }

    /// Lets a block go on as far as it can.
    fn advance(&mut self, index: u32) {
        loop {
            let block = &mut self.blocks[index as usize];
            if block.done || self.touched > self.setting.budget {
                return;
            }
            block.wait = None;
            let block = &self.blocks[index as usize];
            let Some(instruction) = self.instruction(block) else {
                let rank = block.rank;
                self.blocks[index as usize].done = true;
                self.ranks[rank as usize].running -= 1;
                if self.ranks[rank as usize].running == 0 {
                    self.begin(rank);
                }
                return;
            };
            if !block.permit && self.object(block).is_some() {
                self.parked.push(index);
                return;
            }
            match self.step(index, instruction) {
                Ok(next) => {
                    let block = &mut self.blocks[index as usize];
                    (block.at, block.permit, block.ticket) = (next, false, None);
                }
                Err(wait) => {
                    let block = &mut self.blocks[index as usize];
                    (block.wait, block.permit) = (Some(wait), false);
                    let rank = block.rank as usize;
                    match wait {
                        Wait::Signal { channel, .. } => {
                            let at = self.setting.contention.channels[rank] + channel;
                            self.waiting_inbound[at as usize].push(index);
                        }
                        Wait::Packet { cell, .. } => {
                            self.waiting_packet.entry(cell).or_default().push(index);
                        }
                        Wait::Semaphore { semaphore, .. } => {
                            let at = self.setting.contention.semaphores[rank] + semaphore;
                            if self.setting.contention.contended_semaphores[at as usize] {
                                self.parked.push(index);
                            } else {
                                self.waiting_semaphore[at as usize].push(index);
                            }
                        }
                        Wait::Barrier { barrier, .. } => {
                            let at = self.setting.contention.barriers[rank] + barrier;
                            self.waiting_barrier[at as usize].push(index);
                        }
                        Wait::Start { rank } => self.ranks[rank as usize].waiting.push(index),
                    }
                    return;
                }
            }
        }
    }

    /// Runs one instruction of a block, or says what it waits for.
    fn step(&mut self, index: u32, instruction: &Instruction) -> Result<u32, Wait> {
        let at = self.blocks[index as usize].at;
        match *instruction {
            Instruction::Move { sources, destinations, reduce, multicast, index: number } => {
                let how = How { op: reduce, switch: multicast.map(|_| (index, at)) };
                self.movement(index, [sources, destinations], how, number)?;
            }
            Instruction::MoveBlock { index: number } => self.block_move(index, number)?,
            Instruction::Post { channel, source, destination, index: number } => {
                self.post(index, channel, [source, destination], number)?;
            }
            Instruction::Signal { channel, release } => self.signal(index, channel, release),
            Instruction::Wait { channel, acquire } => self.wait(index, channel, acquire)?,
            Instruction::Acquire { semaphore } => self.acquire(index, semaphore)?,
            Instruction::Release { semaphore } => self.release(index, semaphore),
            Instruction::Barrier { barrier, .. } => self.barrier(index, barrier)?,
            Instruction::BlockSync => {
                self.ran(index);
                self.meet(index);
            }
            Instruction::Flush { channel } => {
                self.ran(index);
                let proxy = self.proxy(self.blocks[index as usize].rank, channel);
                let actor = self.blocks.len() as u32 + proxy;
                let Proxy { clock, count } = self.proxies[proxy as usize].clone();
                let handed = Handed { clock, step: Epoch { actor, count } };
                let thread = self.thread(index);
                self.blocks[index as usize].pending.push((thread, handed));
            }
            Instruction::LoopBegin { end, unit, index: number, .. } => {
                let rank = self.blocks[index as usize].rank as usize;
                if self.setting.grid.programs[rank].loops[number as usize] == 0 {
                    return Ok(end + 1);
                }
                self.blocks[index as usize].window = Some((0, unit));
            }
            Instruction::LoopEnd { begin } => return Ok(self.next_iteration(index, begin)),
        }
        Ok(at + 1)
    }

    fn next_iteration(&mut self, index: u32, begin: u32) -> u32 {
        let block = &mut self.blocks[index as usize];
        let own = &self.setting.layout.ranks[block.rank as usize];
        let code = own.blocks[block.number as usize].code.range();
        let (iteration, unit) = block.window.take().unwrap_or_default();
        if let Instruction::LoopBegin { index: number, .. } = own.instructions[code][begin as usize]
        {
            let iterations = self.setting.grid.programs[block.rank as usize].loops[number as usize];
            if iteration + 1 < iterations {
                block.window = Some((iteration + 1, unit));
                return begin + 1;
            }
        }
        block.at + 1
    }

    /// Counts a step of a block.
    pub(super) fn ran(&mut self, index: u32) -> Epoch {
        let block = &mut self.blocks[index as usize];
        block.count += 1;
        let iteration = block.window.map_or(0, |(iteration, _)| iteration);
        let event =
            Event::Ran { launch: self.ranks[block.rank as usize].launch, at: block.at, iteration };
        let step = Epoch { actor: index, count: block.count };
        self.note(index, event);
        step
    }

    /// The threads of a block meet: each knows what any of them knew.
    pub(super) fn meet(&mut self, index: u32) {
        let block = &mut self.blocks[index as usize];
        block.met = block.count;
        block.learn();
    }

    /// What the thread at work in a block may hand on: all that was done when the threads last met, and what it has seen
    /// itself since.
    pub(super) fn handed(&self, index: u32) -> Handed {
        let block = &self.blocks[index as usize];
        let mut clock = block.clock.clone();
        let thread = self.thread(index);
        for (other, seen) in &block.pending {
            if *other == thread {
                seen.teach(&mut clock);
            }
        }
        Handed { clock, step: Epoch { actor: index, count: block.met } }
    }

    /// The thread that does the next instruction of a block, where a single one does.
    pub(super) fn thread(&self, index: u32) -> u32 {
        let block = &self.blocks[index as usize];
        let own = &self.setting.layout.ranks[block.rank as usize];
        let first = own.blocks[block.number as usize].code.start;
        self.setting.contention.threads[block.rank as usize][(first + block.at) as usize]
    }

    /// The proxy of a rank's port channel.
    pub(super) fn proxy(&self, rank: u32, channel: u32) -> u32 {
        let (first, port) = self.first_proxy[rank as usize];
        first + channel - port
    }

    /// Whoever waits for a packet goes on.
    pub(super) fn wake_packet(&mut self, cell: u32) {
        if self.waiting_packet.is_empty() {
            return;
        }
        if let Some(waiting) = self.waiting_packet.remove(&cell) {
            self.ready.extend(waiting);
        }
    }
}
