//! The verifier against a search of all orders, on small plans with random faults.
//!
//! The search knows nothing of clocks. Between two meetings of a block its instructions come in any order, for each may
//! be another thread's; two touches race if, in some state that some order reaches, both could be next and it matters
//! which is. For deadlocks, a block's instructions come in the order in which they are written.

use super::*;
use crate::model::Buffer::{Input, Output, Scratch};
use crate::program::{Area, CallSizes, Instruction, Program};

use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};

/// States after which a search is given up.
const MOST_STATES: usize = 150_000;
/// Packets are kept with the launch that is their flag, in so many bits.
const FLAG: u32 = 3;

/// Everything that a state is.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    memory: Vec<u32>,
    /// By rank: the launch, from 1.
    launches: Vec<u8>,
    /// By block: instructions done, and what each that has begun to wait waits for.
    done: Vec<u32>,
    tickets: Vec<BTreeMap<u8, i64>>,
    received: Vec<u8>,
    expected: Vec<u8>,
    semaphores: Vec<i64>,
    arrived: Vec<u8>,
}

/// Who could do something: an instruction of a block, or (`None`) the user of a rank.
type Event = (usize, Option<u8>);

pub(super) struct Search<'a> {
    layout: &'a Layout,
    programs: Vec<Program>,
    /// By block: its rank and number.
    blocks: Vec<(usize, usize)>,
    chunk: u64,
    sizes: [u64; 2],
    values: BTreeMap<Vec<u32>, u32>,
    /// Instructions of a block in any order between meetings.
    free: bool,
    launches: u8,
    pub race: bool,
    pub deadlock: bool,
    states: usize,
}

/// What an event touches: cells it reads, and cells it writes with their values.
#[derive(Default)]
struct Touches {
    reads: Vec<usize>,
    writes: Vec<(usize, u32)>,
}

impl<'a> Search<'a> {
    pub fn new(plan: &Plan, layout: &'a Layout, free: bool) -> Self {
        let chunk = 64;
        let gpu = &plan.gpus[0];
        let sizes = [gpu.input_chunks * chunk, gpu.output_chunks * chunk];
        let call = CallSizes { input: sizes[0], output: sizes[1], element: 1, strict: false };
        let programs = (0..layout.ranks.len() as u32)
            .map(|rank| layout.program(rank, call).unwrap())
            .collect();
        let blocks = layout.ranks.iter().enumerate();
        let blocks = blocks
            .flat_map(|(rank, own)| (0..own.blocks.len()).map(move |at| (rank, at)))
            .collect();
        let (race, deadlock, states) = (false, false, 0);
        let values = BTreeMap::new();
        let launches = if layout.double_scratch { 3 } else { 2 };
        Search {
            layout,
            programs,
            blocks,
            chunk,
            sizes,
            values,
            free,
            launches,
            race,
            deadlock,
            states,
        }
    }

    fn value(&mut self, key: Vec<u32>) -> u32 {
        let next = self.values.len() as u32;
        *self.values.entry(key).or_insert(next)
    }

    /// The cell of a chunk: 16 for each area of each rank, in scratch 8 for each half.
    fn cell(&self, rank: usize, area: Area, offset: u64, launch: u8) -> usize {
        let scratch = matches!(area, Area::Scratch | Area::Packets);
        let half = usize::from(scratch && self.layout.double_scratch && launch.is_multiple_of(2));
        rank * 64 + area as usize * 16 + half * 8 + (offset / self.chunk) as usize
    }

    fn start(&mut self) -> State {
        let ranks = self.layout.ranks.len();
        let mut memory: Vec<u32> =
            (0..ranks as u32 * 64).map(|cell| self.value(vec![0, cell])).collect();
        // No packet is there yet.
        memory.iter_mut().enumerate().filter(|&(cell, _)| packet(cell)).for_each(|(_, at)| *at = 0);
        for rank in 0..ranks {
            for (cell, value) in self.input(rank, 1) {
                memory[cell] = value;
            }
        }
        let count = |of: fn(&crate::program::RankLayout) -> usize| {
            self.layout.ranks.iter().map(of).sum::<usize>()
        };
        let channels = count(|rank| rank.channels.len());
        State {
            memory,
            launches: vec![1; ranks],
            done: vec![0; self.blocks.len()],
            tickets: vec![BTreeMap::new(); self.blocks.len()],
            received: vec![0; channels],
            expected: vec![0; channels],
            semaphores: self.layout.ranks.iter().flat_map(|r| r.semaphores.clone()).collect(),
            arrived: vec![0; count(|rank| rank.barriers.len())],
        }
    }

    /// The input of a rank for a launch.
    fn input(&mut self, rank: usize, launch: u8) -> Vec<(usize, u32)> {
        let cells = (0..self.sizes[0]).step_by(self.chunk as usize);
        let cells: Vec<usize> = cells.map(|at| self.cell(rank, Area::Input, at, launch)).collect();
        let value = |cell: usize| vec![1, cell as u32, u32::from(launch)];
        cells.into_iter().map(|cell| (cell, self.value(value(cell)))).collect()
    }

    fn code(&self, block: usize) -> &'a [Instruction] {
        let (rank, number) = self.blocks[block];
        let own = &self.layout.ranks[rank];
        &own.instructions[own.blocks[number].code.range()]
    }

    fn base(&self, rank: usize, of: fn(&crate::program::RankLayout) -> usize) -> usize {
        self.layout.ranks[..rank].iter().map(of).sum()
    }

    fn inbound(&self, rank: usize, channel: u32) -> usize {
        self.base(rank, |rank| rank.channels.len()) + channel as usize
    }

    /// Everything that could be next.
    fn enabled(&mut self, state: &State) -> Vec<Event> {
        let mut events = Vec::new();
        for (rank, own) in self.layout.ranks.iter().enumerate() {
            if state.launches[rank] > self.launches {
                continue;
            }
            let first = self.base(rank, |rank| rank.blocks.len());
            let mut all = true;
            for block in first..first + own.blocks.len() {
                let code = self.code(block);
                for (at, instruction) in (0u8..).zip(code) {
                    if state.done[block] & (1 << at) != 0 {
                        continue;
                    }
                    all = false;
                    let meets =
                        matches!(instruction, Instruction::BlockSync | Instruction::Barrier { .. });
                    let before = (1u32 << at) - 1;
                    let missing = before & !state.done[block];
                    let next = missing == 0 || (self.free && !meets);
                    if next && self.ready(state, block, at) {
                        events.push((block, Some(at)));
                    }
                    if meets || !self.free {
                        break;
                    }
                }
            }
            if all {
                events.push((rank, None));
            }
        }
        events
    }

    fn ready(&mut self, state: &State, block: usize, at: u8) -> bool {
        let rank = self.blocks[block].0;
        let ticket = state.tickets[block].get(&at);
        match self.code(block)[at as usize] {
            Instruction::Wait { channel, .. } => {
                let end = self.inbound(rank, channel);
                ticket.is_none_or(|&ticket| i64::from(state.received[end]) >= ticket)
            }
            Instruction::Acquire { semaphore } => {
                let semaphore = self.base(rank, |r| r.semaphores.len()) + semaphore as usize;
                ticket.is_none_or(|&old| old > 0 || state.semaphores[semaphore] >= old)
            }
            Instruction::Barrier { barrier, .. } => {
                let barrier = self.base(rank, |r| r.barriers.len()) + barrier as usize;
                ticket.is_none_or(|&full| i64::from(state.arrived[barrier]) >= full)
            }
            Instruction::Move { sources, destinations, .. } => {
                if !self.flagged(state, block, at) {
                    return false;
                }
                let own = &self.layout.ranks[rank];
                let sides = own.accesses[sources.range()].iter();
                sides.chain(&own.accesses[destinations.range()]).all(|access| {
                    matches!(access.area, Area::Scratch | Area::Packets)
                        || state.launches[access.rank as usize] >= state.launches[rank]
                })
            }
            _ => true,
        }
    }

    /// Whether the packets that a move reads are there.
    fn flagged(&mut self, state: &State, block: usize, at: u8) -> bool {
        let launch = u32::from(state.launches[self.blocks[block].0]);
        let reads = self.touches(state, (block, Some(at))).reads;
        let flag = |cell: &usize| state.memory[*cell] & ((1 << FLAG) - 1);
        reads.iter().filter(|&&cell| packet(cell)).all(|cell| flag(cell) == launch)
    }

    fn touches(&mut self, state: &State, event: Event) -> Touches {
        let mut touches = Touches::default();
        let (who, Some(at)) = event else {
            let rank = event.0;
            let launch = state.launches[rank];
            let outputs = (0..self.sizes[1]).step_by(self.chunk as usize);
            touches.reads = outputs.map(|at| self.cell(rank, Area::Output, at, launch)).collect();
            touches.writes = self.input(rank, launch + 1);
            for &cell in &touches.reads {
                let left = self.value(vec![u32::MAX, cell as u32, u32::from(launch)]);
                touches.writes.push((cell, left));
            }
            return touches;
        };
        let rank = self.blocks[who].0;
        let Instruction::Move { sources, destinations, reduce, index, .. } =
            self.code(who)[at as usize]
        else {
            return touches;
        };
        let launch = state.launches[rank];
        let program = &self.programs[rank];
        let segments = program.segments[program.moves[index as usize].range()].to_vec();
        let own = &self.layout.ranks[rank];
        for segment in segments {
            for byte in (0..segment.len).step_by(self.chunk as usize) {
                let offsets = &self.programs[rank].offsets[segment.offsets as usize..];
                let sides = own.accesses[sources.range()].iter();
                let sides = sides.chain(&own.accesses[destinations.range()]).zip(offsets);
                let cells: Vec<usize> = sides
                    .map(|(access, offset)| {
                        self.cell(access.rank as usize, access.area, offset + byte, launch)
                    })
                    .collect();
                let (from, to) = cells.split_at(sources.len());
                let held = |&cell: &usize| match packet(cell) {
                    true => state.memory[cell] >> FLAG,
                    false => state.memory[cell],
                };
                let mut key: Vec<u32> = from.iter().map(held).collect();
                let value = if key.len() == 1 {
                    key[0]
                } else {
                    key.insert(0, 2 + reduce as u32);
                    self.value(key)
                };
                touches.reads.extend(from);
                let kept = |cell: usize| match packet(cell) {
                    true => value << FLAG | u32::from(launch),
                    false => value,
                };
                touches.writes.extend(to.iter().map(|&cell| (cell, kept(cell))));
            }
        }
        touches
    }

    fn conflict(state: &State, one: &Touches, other: &Touches) -> bool {
        let against = |one: &Touches, other: &Touches| {
            one.writes.iter().any(|&(cell, value)| {
                (value != state.memory[cell] && other.reads.contains(&cell))
                    || other.writes.iter().any(|&(also, wrote)| also == cell && wrote != value)
            })
        };
        against(one, other) || against(other, one)
    }

    fn apply(&mut self, state: &State, event: Event) -> State {
        let touches = self.touches(state, event);
        let mut next = state.clone();
        for (cell, value) in touches.writes {
            next.memory[cell] = value;
        }
        let (block, Some(at)) = event else {
            let rank = event.0;
            next.launches[rank] += 1;
            let first = self.base(rank, |rank| rank.blocks.len());
            next.done[first..first + self.layout.ranks[rank].blocks.len()].fill(0);
            return next;
        };
        let rank = self.blocks[block].0;
        let ticket = state.tickets[block].get(&at).copied();
        let mut done = true;
        match self.code(block)[at as usize] {
            Instruction::Signal { channel, .. } => {
                let end = self.layout.ranks[rank].channels[channel as usize];
                if let Some(paired) = end.paired {
                    next.received[self.inbound(end.peer as usize, paired)] += 1;
                }
            }
            Instruction::Wait { channel, .. } if ticket.is_none() => {
                let end = self.inbound(rank, channel);
                next.expected[end] += 1;
                next.tickets[block].insert(at, i64::from(next.expected[end]));
                done = false;
            }
            Instruction::Acquire { semaphore } if ticket.is_none() => {
                let semaphore = self.base(rank, |r| r.semaphores.len()) + semaphore as usize;
                next.tickets[block].insert(at, next.semaphores[semaphore]);
                next.semaphores[semaphore] -= 1;
                done = false;
            }
            Instruction::Release { semaphore } => {
                next.semaphores[self.base(rank, |r| r.semaphores.len()) + semaphore as usize] += 1;
            }
            Instruction::Barrier { barrier, blocks } if ticket.is_none() => {
                let barrier = self.base(rank, |r| r.barriers.len()) + barrier as usize;
                let full = (next.arrived[barrier] / blocks as u8 + 1) * blocks as u8;
                next.arrived[barrier] += 1;
                next.tickets[block].insert(at, i64::from(full));
                done = false;
            }
            _ => {}
        }
        if done {
            next.done[block] |= 1 << at;
            next.tickets[block].remove(&at);
        }
        next
    }

    /// Visits every state; `None` if there are too many.
    pub fn run(&mut self) -> Option<()> {
        let start = self.start();
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        while let Some(state) = open.pop() {
            let events = self.enabled(&state);
            if events.is_empty() && state.launches.iter().any(|&launch| launch <= self.launches) {
                self.deadlock = true;
            }
            let touches: Vec<Touches> =
                events.iter().map(|&event| self.touches(&state, event)).collect();
            for (at, one) in touches.iter().enumerate() {
                let mut others = touches[..at].iter();
                self.race |= others.any(|other| Self::conflict(&state, one, other));
            }
            for event in events {
                let next = self.apply(&state, event);
                if !seen.contains(&next) {
                    seen.insert(next.clone());
                    open.push(next);
                }
            }
            self.states = seen.len();
            if self.states > MOST_STATES {
                return None;
            }
        }
        Some(())
    }
}

/// Plans that are right: what each block of two ranks does, and the semaphores of rank 0.
fn base(which: usize) -> [Vec<Vec<Op>>; 2] {
    let put = |rank: usize, into, from| {
        data(OpKind::Put, &[local(Input, from, 1)], &[remote(rank, 1 - rank, into, 0, 1)])
    };
    let copy = |from, to| data(OpKind::Copy, &[from], &[to]);
    let (signal, wait) = (|| sync(OpKind::Signal, &[0]), || sync(OpKind::Wait, &[0]));
    let (acquire, release) = (
        |id| semaphore(OpKind::SemaphoreAcquire, id),
        |id| semaphore(OpKind::SemaphoreRelease, id),
    );
    let (slot, out) = (local(Scratch, 0, 1), local(Output, 0, 1));
    let swap = |rank| {
        vec![
            put(rank, Scratch, 0),
            nop(),
            signal(),
            wait(),
            nop(),
            copy(slot, out),
            nop(),
            signal(),
            wait(),
        ]
    };
    let sum = |to| {
        data(OpKind::Reduce, &[local(Input, 0, 1), local(Input, 1, 1)], &[local(Scratch, to, 1)])
    };
    match which {
        0 => [vec![swap(0)], vec![swap(1)]],
        1 => [
            vec![vec![put(0, Output, 0), nop(), signal()]],
            vec![vec![wait(), nop(), copy(out, local(Output, 1, 1))]],
        ],
        2 => [
            vec![
                vec![sum(0), nop(), release(0), acquire(1), nop(), sum(1)],
                vec![acquire(0), nop(), copy(slot, out), nop(), release(1)],
            ],
            vec![],
        ],
        3 => [
            vec![
                vec![sum(0), barrier(0, 2), copy(local(Scratch, 1, 1), out)],
                vec![sum(1), barrier(0, 2), copy(slot, local(Output, 1, 1))],
            ],
            vec![],
        ],
        4 => [
            vec![
                vec![put(0, Output, 0), nop(), signal()],
                vec![
                    data(OpKind::Put, &[local(Input, 1, 1)], &[remote(0, 1, Output, 1, 1)]),
                    nop(),
                    signal(),
                ],
            ],
            vec![vec![wait(), wait(), nop(), copy(out, slot)]],
        ],
        _ => [
            vec![
                vec![acquire(0), nop(), sum(0), nop(), copy(slot, out), nop(), release(0)],
                vec![acquire(0), nop(), copy(local(Input, 0, 1), slot), nop(), release(0)],
            ],
            vec![],
        ],
    }
}

/// Whether a cell is for a packet.
fn packet(cell: usize) -> bool {
    cell % 64 >= Area::Packets as usize * 16
}

/// One fault: what to do at which operation.
pub(super) fn change(blocks: &mut [Vec<Vec<Op>>], (kind, at): (u8, usize)) {
    let count: usize = blocks.iter().flatten().map(Vec::len).sum();
    let mut at = at % count.max(1);
    for ops in blocks.iter_mut().flatten() {
        if at >= ops.len() {
            at -= ops.len();
            continue;
        }
        match kind {
            0 => drop(ops.remove(at)),
            1 if ops[at].kind != OpKind::Barrier => ops.insert(at, ops[at].clone()),
            2 if at + 1 < ops.len() => ops.swap(at, at + 1),
            3 => ops[at].src.iter_mut().for_each(|chunk| chunk.index ^= 1),
            4 => ops[at].dst.iter_mut().for_each(|chunk| chunk.index ^= 1),
            5 => ops.insert(at, nop()),
            _ => ops[at] = nop(),
        }
        return;
    }
}

fn made(which: usize, changes: &[(u8, usize)]) -> Plan {
    let mut blocks = base(which);
    for &fault in changes {
        change(&mut blocks, fault);
    }
    let mut plan = pair([2, 2, 2], &[&blocks[0], &blocks[1]]);
    plan.gpus[0].semaphores = if which == 5 { vec![1] } else { vec![0, 0] };
    plan
}

/// What both say; `None` where the plan is refused or has too many orders.
fn compare(plan: &Plan) -> Option<Result<(), String>> {
    crate::check(plan).ok()?;
    let layout = Layout::new(plan).ok()?;
    let [mut free, mut strict] = [true, false].map(|free| Search::new(plan, &layout, free));
    free.run()?;
    strict.run()?;
    let report = verify(plan, &layout, Options::default());
    let found = word(&report);
    let right = match found {
        "proven" => !free.race && !strict.deadlock,
        "race" => free.race || later(&report),
        "deadlock" => strict.deadlock || later(&report),
        _ => true,
    };
    let (race, deadlock) = (free.race, strict.deadlock);
    let saw = format!("the search says race: {race}, deadlock: {deadlock}\n{report}\n{plan:#?}");
    Some(if right { Ok(()) } else { Err(saw) })
}

/// Whether a fault shows only after more launches than were searched.
fn later(report: &Report) -> bool {
    let Verdict::Refuted(found) = &report.verdict else { return false };
    found.iter().all(|refutation| refutation.case.launches > 2)
}

#[test]
fn right_plans_are_right_to_both() {
    for which in 0..6 {
        let plan = made(which, &[]);
        assert_eq!(compare(&plan), Some(Ok(())), "plan {which}");
        assert_eq!(word(&judge(&plan)), "proven", "plan {which}");
    }
}

#[test]
fn every_single_fault() {
    let mut compared = 0;
    for which in 0..6 {
        for kind in 0..7 {
            for at in 0..18 {
                if let Some(said) = compare(&made(which, &[(kind, at)])) {
                    said.unwrap_or_else(|saw| panic!("plan {which}, change {kind} at {at}: {saw}"));
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 300, "compared {compared}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn several_faults(
        which in 0..6_usize,
        changes in proptest::collection::vec((0..7_u8, 0..18_usize), 2..5),
    ) {
        if let Some(said) = compare(&made(which, &changes)) {
            prop_assert!(said.is_ok(), "{}", said.unwrap_err());
        }
    }
}
