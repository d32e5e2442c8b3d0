//! A symbolic simulator of plans, written from the format alone and sharing nothing with lowering.
//!
//! Memory cells hold the sum of inputs that was computed into them. Every block has several threads that drift
//! apart except at `nop` and `barrier`; threads, blocks and ranks are interleaved at random, cell by cell. Launches
//! follow each other at once: a rank that is done checks its output, then overwrites input and output, and goes on.

mod ports;

use super::values::{Value, add, commutes, input};
use crate::model::*;
use ports::Proxy;
use std::collections::HashMap;

/// How a plan is run.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub in_place: bool,
    /// Cells of a chunk.
    pub cells: usize,
    /// Cells of a pipeline's window.
    pub window: usize,
    /// Threads of a block.
    pub threads: usize,
    pub launches: u32,
    pub seed: u64,
}

/// What an output cell must hold: launch, rank, cell.
pub type Expected<'e> = &'e dyn Fn(u32, usize, usize) -> Value;

struct Memory {
    callers: Vec<Value>,
    input: usize,
    output: usize,
    raw: [Vec<Value>; 2],
    packets: [Vec<(u32, Value)>; 2],
}

/// One thread of one block.
#[derive(Default)]
struct Thread {
    rank: usize,
    block: usize,
    number: usize,
    at: usize,
    /// Progress within the operation: cells or channels done.
    done: usize,
    /// What the thread waits for, once it has entered a wait.
    target: Option<i64>,
    /// Barriers passed in this rank's life, by id.
    barriers: HashMap<u64, usize>,
}

type Window = Option<(usize, usize)>;
/// One end of a channel: peer, the peer's channel id, signals received, waits entered.
type End = (usize, usize, i64, i64);

pub struct Simulator<'p> {
    plan: &'p Plan,
    setting: Setting,
    memory: Vec<Memory>,
    /// Per rank and block, the operations of one launch with pipelines unrolled.
    code: Vec<Vec<Vec<(&'p Op, Window)>>>,
    threads: Vec<Thread>,
    launch: Vec<u32>,
    /// Of memory and of ports, by rank and channel id.
    channels: [Vec<Vec<End>>; 2],
    /// By rank and port channel id.
    proxies: Vec<Vec<Proxy>>,
    semaphores: Vec<Vec<i64>>,
    meetings: HashMap<(usize, u32, usize, usize), usize>,
    barriers: HashMap<(usize, u64, usize), usize>,
    random: u64,
}

/// Run the plan and say what went wrong, if anything did.
pub fn simulate(plan: &Plan, setting: Setting, expected: Expected<'_>) -> Result<(), String> {
    let mut simulator = Simulator::new(plan, setting)?;
    simulator.run(expected)?;
    let channels = simulator.channels.iter().flat_map(|of_type| of_type.iter().enumerate());
    for (rank, channels) in channels {
        if let Some(id) = channels.iter().position(|&(_, _, signals, waits)| signals != waits) {
            return Err(format!("rank {rank} channel {id}: signals and waits do not balance"));
        }
    }
    for (rank, _) in plan.gpus.iter().enumerate() {
        let initial = &plan.gpus[rank].semaphores;
        if simulator.semaphores[rank] != *initial {
            return Err(format!("rank {rank}: semaphores end at {:?}", simulator.semaphores[rank]));
        }
    }
    Ok(())
}

/// Whether the format reads (or writes) this operand as packets.
pub fn is_packets(kind: OpKind, source: bool, position: usize) -> bool {
    use OpKind::*;
    match kind {
        PutPackets | CopyPackets => !source,
        ReadPutPackets | GroupStorePackets => true,
        UnpackPackets => source,
        ReducePackets | ReduceSendPackets | ReduceCopyPackets | ReduceCopySendPackets => {
            position > 0
        }
        _ => false,
    }
}

/// Start of part `k` of `n` of `len`.
fn part(len: usize, k: usize, n: usize) -> usize {
    k * (len / n) + k.min(len % n)
}

impl<'p> Simulator<'p> {
    fn new(plan: &'p Plan, setting: Setting) -> Result<Self, String> {
        let ranks = plan.gpus.len();
        let channels = [paired(plan, ChannelType::Memory)?, paired(plan, ChannelType::Port)?];
        let ports = channels[PORT].iter().map(Vec::len);
        let mut simulator = Simulator {
            plan,
            setting,
            memory: Vec::new(),
            code: Vec::new(),
            threads: Vec::new(),
            launch: vec![0; ranks],
            proxies: ports.map(|ports| (0..ports).map(|_| Proxy::default()).collect()).collect(),
            channels,
            semaphores: plan.gpus.iter().map(|gpu| gpu.semaphores.clone()).collect(),
            meetings: HashMap::new(),
            barriers: HashMap::new(),
            random: setting.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        };
        for (rank, gpu) in plan.gpus.iter().enumerate() {
            simulator.memory.push(Memory::new(plan, rank, setting));
            let blocks = gpu.threadblocks.iter();
            simulator.code.push(blocks.map(|tb| unroll(tb, setting)).collect());
            for block in 0..gpu.threadblocks.len() {
                for number in 0..setting.threads {
                    let thread = Thread { rank, block, number, ..Thread::default() };
                    simulator.threads.push(thread);
                }
            }
            simulator.enter(rank);
        }
        Ok(simulator)
    }

    fn run(&mut self, expected: Expected<'_>) -> Result<(), String> {
        loop {
            // Bursts let ranks run far ahead of each other; the sweep sees that somebody can still move.
            for _ in 0..8 {
                let rank = self.draw(self.launch.len());
                let mine: Vec<usize> =
                    (0..self.threads.len()).filter(|&t| self.threads[t].rank == rank).collect();
                for _ in 0..self.draw(120) {
                    let thread = mine[self.draw(mine.len())];
                    self.step(thread)?;
                }
                self.leave(rank, expected)?;
                let ports = self.proxies[rank].len();
                for _ in 0..if ports > 0 { self.draw(40) } else { 0 } {
                    let id = self.draw(ports);
                    self.proxy_step(rank, id);
                }
            }
            let mut moved = self.proxies_step();
            for thread in 0..self.threads.len() {
                moved |= self.step(thread)?;
            }
            for rank in 0..self.launch.len() {
                moved |= self.leave(rank, expected)?;
            }
            let all_left = self.launch.iter().all(|&launch| launch > self.setting.launches);
            if all_left && self.idle() {
                return Ok(());
            }
            if !moved {
                return Err(format!("nobody can move: {}", self.position()));
            }
        }
    }

    fn position(&self) -> String {
        let stuck = self.threads.iter().filter(|t| t.at < self.code[t.rank][t.block].len());
        let at = stuck.map(|t| {
            let kind = self.code[t.rank][t.block][t.at].0.kind;
            format!("rank {} block {} thread {} at {kind}", t.rank, t.block, t.number)
        });
        at.collect::<Vec<_>>().join("; ")
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % below
    }

    /// Begin the rank's next launch: new input, rubbish in the output.
    fn enter(&mut self, rank: usize) {
        self.launch[rank] += 1;
        let (launch, gpu) = (self.launch[rank], &self.plan.gpus[rank]);
        let inputs = gpu.input_chunks as usize * self.setting.cells;
        let memory = &mut self.memory[rank];
        memory.callers.fill(None);
        for cell in 0..inputs {
            memory.callers[memory.input + cell] = input((launch, rank, cell));
        }
        for thread in self.threads.iter_mut().filter(|t| t.rank == rank) {
            (thread.at, thread.done, thread.target) = (0, 0, None);
        }
    }

    /// If the rank is done with its launch, check its buffers and begin the next one.
    fn leave(&mut self, rank: usize, expected: Expected<'_>) -> Result<bool, String> {
        let launch = self.launch[rank];
        let code = &self.code[rank];
        let mine = self.threads.iter().filter(|t| t.rank == rank);
        if launch > self.setting.launches || !mine.clone().all(|t| t.at == code[t.block].len()) {
            return Ok(false);
        }
        let (memory, gpu) = (&self.memory[rank], &self.plan.gpus[rank]);
        for cell in 0..gpu.output_chunks as usize * self.setting.cells {
            let (found, want) =
                (&memory.callers[memory.output + cell], expected(launch, rank, cell));
            let packets = self.plan.protocol == Protocol::LL;
            if *found != want && !(packets && commutes(found, &want)) {
                return Err(format!(
                    "launch {launch} rank {rank} output cell {cell}: {found:?}, expected {want:?}"
                ));
            }
        }
        for cell in 0..gpu.input_chunks as usize * self.setting.cells {
            let found = &memory.callers[memory.input + cell];
            if !self.setting.in_place && *found != input((launch, rank, cell)) {
                return Err(format!("launch {launch} rank {rank}: input cell {cell} changed"));
            }
        }
        if launch < self.setting.launches {
            self.enter(rank);
        } else {
            self.launch[rank] += 1;
            // Whatever arrives now arrives too late; it shows in the other ranks' checks.
            self.memory[rank].callers.fill(None);
        }
        Ok(true)
    }

    /// Let a thread do one thing. Returns whether it could.
    fn step(&mut self, index: usize) -> Result<bool, String> {
        let mut thread = std::mem::take(&mut self.threads[index]);
        let code = &self.code[thread.rank][thread.block];
        let moved = match code.get(thread.at).copied() {
            Some((op, window)) => self.execute(&mut thread, op, window),
            None => Ok(false),
        };
        self.threads[index] = thread;
        moved
    }

    fn execute(&mut self, thread: &mut Thread, op: &'p Op, window: Window) -> Result<bool, String> {
        let (rank, threads) = (thread.rank, self.setting.threads);
        let finished = match op.kind {
            OpKind::Nop => {
                let key = (rank, self.launch[rank], thread.block, thread.at);
                meet(self.meetings.entry(key).or_default(), threads, thread)
            }
            OpKind::Barrier => {
                let id = op.barrier_id.ok_or("a barrier without a number")?;
                let nth = thread.barriers.get(&id).copied().unwrap_or(0);
                let all = op.num_threadblocks.unwrap_or(1) as usize * threads;
                let met = meet(self.barriers.entry((rank, id, nth)).or_default(), all, thread);
                if met {
                    thread.barriers.insert(id, nth + 1);
                }
                met
            }
            OpKind::Signal | OpKind::RelaxedSignal => {
                for id in self.channel_ids(thread, op) {
                    if op.channel_type == ChannelType::Port {
                        self.post_signal(rank, id);
                        continue;
                    }
                    let (peer, back, ..) = self.channels[MEMORY][rank][id];
                    self.channels[MEMORY][peer][back].2 += 1;
                }
                true
            }
            OpKind::Wait | OpKind::RelaxedWait => {
                let ids = self.channel_ids(thread, op);
                let Some(&id) = ids.get(thread.done) else { return Ok(next(thread)) };
                let (_, _, signals, waits) = &mut self.channels[kind_of(op)][rank][id];
                let target = *thread.target.get_or_insert_with(|| {
                    *waits += 1;
                    *waits
                });
                if *signals < target {
                    return Ok(false);
                }
                (thread.done, thread.target) = (thread.done + 1, None);
                return Ok(true);
            }
            OpKind::SemaphoreAcquire | OpKind::SemaphoreRelease if thread.number > 0 => true,
            OpKind::SemaphoreRelease => {
                for &id in &op.semaphore_ids {
                    self.semaphores[rank][id as usize] += 1;
                }
                true
            }
            OpKind::SemaphoreAcquire => {
                let Some(&id) = op.semaphore_ids.get(thread.done) else {
                    return Ok(next(thread));
                };
                let value = &mut self.semaphores[rank][id as usize];
                let target = *thread.target.get_or_insert_with(|| {
                    *value -= 1;
                    if *value < 0 { *value + 1 } else { i64::MIN }
                });
                if *value < target {
                    return Ok(false);
                }
                (thread.done, thread.target) = (thread.done + 1, None);
                return Ok(true);
            }
            OpKind::Flush => return Ok(self.flush(thread, op)),
            _ if op.channel_type == ChannelType::Port => return self.post(thread, op, window),
            _ => return self.move_cell(thread, op, window),
        };
        Ok(finished && next(thread))
    }

    /// The rank's ids of those channels of the operation that fall to this thread.
    fn channel_ids(&self, thread: &Thread, op: &Op) -> Vec<usize> {
        let tb = &self.plan.gpus[thread.rank].threadblocks[thread.block];
        let table = tb.channels.iter().find(|(t, _)| *t == op.channel_type);
        let (_, table) = table.expect("a channel table");
        let ids = op.channel_ids.iter().enumerate();
        ids.filter(|(i, _)| i % self.setting.threads == thread.number)
            .map(|(_, &id)| table[id as usize] as usize)
            .collect()
    }

    fn move_cell(
        &mut self,
        thread: &mut Thread,
        op: &'p Op,
        window: Window,
    ) -> Result<bool, String> {
        let paired = matches!(op.kind, OpKind::Put | OpKind::Get | OpKind::PutPackets);
        let pairs = if paired { op.dst.len() } else { 1 };
        let cells: Vec<usize> = self
            .cells(op, window)
            .filter(|cell| cell % self.setting.threads == thread.number)
            .collect();
        if thread.done == pairs * cells.len() {
            return Ok(next(thread));
        }
        let (pair, cell) = (thread.done / cells.len(), cells[thread.done % cells.len()]);
        let select = |refs: &'p [ChunkRef]| if paired { &refs[pair..=pair] } else { refs };

        let mut result: Option<Value> = None;
        for (position, source) in select(&op.src).iter().enumerate() {
            let packets = is_packets(op.kind, true, position);
            for (owner, buffer) in self.places(thread, op, source) {
                let Some(value) = self.read(thread.rank, owner, buffer, packets, source, cell)?
                else {
                    return Ok(false);
                };
                result = Some(match result {
                    Some(sum) => add(sum, value),
                    None => value,
                });
            }
        }
        let result = result.ok_or("an operation without sources")?;
        for (position, destination) in select(&op.dst).iter().enumerate() {
            let mut packets = is_packets(op.kind, false, position);
            packets |= op.kind == OpKind::PutPackets;
            for (owner, buffer) in self.places(thread, op, destination) {
                self.write(thread.rank, owner, buffer, packets, destination, cell, result.clone());
            }
        }
        thread.done += 1;
        Ok(true)
    }

    /// The cells of the operation's slice and window, counted from the start of its chunks.
    fn cells(&self, op: &Op, window: Window) -> std::ops::Range<usize> {
        let chunks = op.src[0].size as usize * self.setting.cells;
        let (first, end) = match op.group {
            Some(g) => {
                let at = |k: u64| part(chunks, k as usize, g.tbg_size as usize);
                (at(g.tb_id), at(g.tb_id + 1))
            }
            None => (0, chunks),
        };
        match window {
            Some((a, b)) => (first + a).min(end)..(first + b).min(end),
            None => first..end,
        }
    }

    /// The owners and buffers that a reference stands for.
    fn places(&self, thread: &Thread, op: &Op, chunks: &ChunkRef) -> Vec<(usize, Buffer)> {
        let gpu = &self.plan.gpus[thread.rank];
        let tb = &gpu.threadblocks[thread.block];
        match chunks.base {
            RefBase::Local(buffer) => vec![(thread.rank, buffer)],
            RefBase::Remote(id) => {
                let refs = tb.remote_buffer_refs.iter().find(|(t, _)| *t == op.channel_type);
                let (_, refs) = refs.expect("a table of remote buffers");
                let remote = &gpu.remote_buffers[refs[id as usize] as usize];
                vec![(remote.rank as usize, remote.buffer)]
            }
            RefBase::Switch(id) => {
                let table = tb.channels.iter().find(|(t, _)| *t == ChannelType::Switch);
                let (_, table) = table.expect("a switch table");
                let groups = gpu.channels.iter().flat_map(|table| match table {
                    ChannelTable::Switch { buffer, groups } => {
                        groups.iter().map(|group| (*buffer, group)).collect()
                    }
                    ChannelTable::Peers { .. } => Vec::new(),
                });
                let groups: Vec<_> = groups.collect();
                let (buffer, group) = groups[table[id as usize] as usize];
                group.ranks.iter().map(|&rank| (rank as usize, buffer)).collect()
            }
        }
    }

    fn cell_of(&self, owner: usize, buffer: Buffer, chunks: &ChunkRef, cell: usize) -> usize {
        let cell = chunks.index as usize * self.setting.cells + cell;
        match buffer {
            Buffer::Input => self.memory[owner].input + cell,
            Buffer::Output => self.memory[owner].output + cell,
            Buffer::Scratch => cell,
        }
    }

    fn half(&self, rank: usize) -> usize {
        usize::from(self.plan.use_double_scratch_buffer && self.launch[rank].is_multiple_of(2))
    }

    /// What a cell holds; `None` while its packet has not arrived.
    fn read(
        &self,
        reader: usize,
        owner: usize,
        buffer: Buffer,
        packets: bool,
        chunks: &ChunkRef,
        cell: usize,
    ) -> Result<Option<Value>, String> {
        let (at, half) = (self.cell_of(owner, buffer, chunks, cell), self.half(reader));
        let memory = &self.memory[owner];
        if packets {
            let (flag, value) = &memory.packets[half][at];
            if *flag > self.launch[reader] {
                return Err(format!("rank {owner}: packet {at} overwritten before it was read"));
            }
            return Ok((*flag == self.launch[reader]).then(|| value.clone()));
        }
        Ok(Some(match buffer {
            Buffer::Scratch => memory.raw[half][at].clone(),
            _ => memory.callers[at].clone(),
        }))
    }

    #[expect(clippy::too_many_arguments)]
    fn write(
        &mut self,
        writer: usize,
        owner: usize,
        buffer: Buffer,
        packets: bool,
        chunks: &ChunkRef,
        cell: usize,
        value: Value,
    ) {
        let (at, half) = (self.cell_of(owner, buffer, chunks, cell), self.half(writer));
        let launch = self.launch[writer];
        let memory = &mut self.memory[owner];
        match buffer {
            Buffer::Scratch if packets => memory.packets[half][at] = (launch, value),
            Buffer::Scratch => memory.raw[half][at] = value,
            _ => memory.callers[at] = value,
        }
    }
}

impl Memory {
    /// The raw cells of a buffer; those of scratch, in one half.
    fn raw(&mut self, buffer: Buffer, half: usize) -> &mut Vec<Value> {
        match buffer {
            Buffer::Scratch => &mut self.raw[half],
            _ => &mut self.callers,
        }
    }

    fn new(plan: &Plan, rank: usize, setting: Setting) -> Self {
        let gpu = &plan.gpus[rank];
        let [inputs, outputs, scratch] = [gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks]
            .map(|chunks| chunks as usize * setting.cells);
        let (input, output) = match (setting.in_place, &plan.collective) {
            (false, _) => (0, inputs),
            (true, Collective::AllGather | Collective::Gather) => (rank * inputs, 0),
            (true, Collective::ReduceScatter | Collective::Scatter) => (0, rank * outputs),
            (true, _) => (0, 0),
        };
        Memory {
            callers: vec![None; (input + inputs).max(output + outputs)],
            input,
            output,
            raw: [vec![None; scratch], vec![None; scratch]],
            packets: [vec![(0, None); scratch], vec![(0, None); scratch]],
        }
    }
}

/// Where the channels of a type are in the simulator's table.
const MEMORY: usize = 0;
const PORT: usize = 1;

fn kind_of(op: &Op) -> usize {
    if op.channel_type == ChannelType::Port { PORT } else { MEMORY }
}

/// Every rank's channels of a type, with the channel of the peer that each is paired with.
fn paired(plan: &Plan, kind: ChannelType) -> Result<Vec<Vec<End>>, String> {
    let peers: Vec<Vec<usize>> = plan.gpus.iter().map(|gpu| peers_of(gpu, kind)).collect();
    let mut channels = vec![Vec::new(); peers.len()];
    for (rank, mine) in peers.iter().enumerate() {
        for (id, &peer) in mine.iter().enumerate() {
            let nth = mine[..id].iter().filter(|&&p| p == peer).count();
            let back = peers[peer].iter().enumerate().filter(|&(_, &p)| p == rank).nth(nth);
            let (back, _) = back.ok_or_else(|| format!("rank {rank} channel {id}: no pair"))?;
            channels[rank].push((peer, back, 0, 0));
        }
    }
    Ok(channels)
}

fn peers_of(gpu: &Gpu, kind: ChannelType) -> Vec<usize> {
    let tables = gpu.channels.iter().flat_map(|table| match table {
        ChannelTable::Peers { connected_to, channel_type } if *channel_type == kind => {
            connected_to.clone()
        }
        _ => Vec::new(),
    });
    tables.map(|peer| peer as usize).collect()
}

fn unroll(tb: &ThreadBlock, setting: Setting) -> Vec<(&Op, Window)> {
    let mut code = Vec::new();
    for op in &tb.ops {
        match &op.pipeline {
            None => code.push((op, None)),
            Some(pipeline) => {
                let cells = pipeline.num_chunks as usize * setting.cells;
                for start in (0..cells).step_by(setting.window) {
                    let window = Some((start, start + setting.window));
                    code.extend(pipeline.ops.iter().map(|op| (op, window)));
                }
            }
        }
    }
    code
}

/// Count the thread in once; whether everybody has come.
fn meet(arrived: &mut usize, all: usize, thread: &mut Thread) -> bool {
    if thread.target.is_none() {
        thread.target = Some(0);
        *arrived += 1;
    }
    *arrived == all
}

fn next(thread: &mut Thread) -> bool {
    thread.at += 1;
    (thread.done, thread.target) = (0, None);
    true
}
