//! The machine: the state of all ranks, and the events that change it, in order of virtual time.

use super::SimulateError;
use super::cores::{Cores, Turn};
use super::costs::Costs;
use super::flows::{Demand, Flow, Owner};
use super::network::Network;
use super::packets::Arrived;
use super::ports::Port;
use super::record::Record;
use super::timeline::Timeline;
use super::topology::Topology;
use crate::interpret::{Blocked, BlockedOn, Stuck};
use crate::lower::Site;
use crate::program::{CallSizes, Layout, Program};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// One launch under way.
pub(super) struct Machine<'a> {
    pub layout: &'a Layout,
    pub programs: &'a [Program],
    pub sizes: CallSizes,
    pub costs: Costs,
    pub network: Network,
    pub per_node: u32,
    /// The processors of each node, if blocks take turns on them.
    pub cores: Vec<Cores>,
    /// All ranks' blocks, rank after rank.
    pub blocks: Vec<Block>,
    /// Each rank's first block.
    first: Vec<u32>,
    pub ranks: Vec<RankState>,
    pub ports: Vec<Port>,
    pub flows: Vec<Flow>,
    /// Flows that are done, for new ones.
    free: Vec<u32>,
    pub demand: Demand,
    pub record: Record,
    pub now: f64,
    events: BinaryHeap<Event>,
    posted: u64,
}

/// Where a block is.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    pub rank: u32,
    pub number: u32,
    /// Position in the block's code.
    pub at: usize,
    /// The iteration of the pipeline it is in, and the window's bytes.
    pub window: Option<(u64, u64)>,
    /// What it took or announced before it began to wait here.
    pub waiting: Option<Waiting>,
    /// When it came to the instruction.
    pub came: f64,
    /// Whom it waited for.
    pub cause: Option<u32>,
    /// Who let it go on, if that was another block's operation.
    pub from: Option<u32>,
    /// The span under way.
    pub span: u32,
    /// Bytes that the instruction under way stores.
    pub stores: u64,
    pub done: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Waiting {
    Signal(u64),
    Semaphore(i64),
    Barrier,
    Packet { rank: u32, byte: u64 },
    Flush(u64),
}

/// What of a rank outlives an instruction.
#[derive(Clone, Debug, Default)]
pub(super) struct RankState {
    pub channels: Vec<Inbound>,
    /// For each channel its number in `ports`, if it is one.
    pub ports: Vec<Option<u32>>,
    pub semaphores: Vec<Semaphore>,
    pub barriers: Vec<Barrier>,
    pub packets: Arrived,
}

/// Signals on a channel.
#[derive(Clone, Debug, Default)]
pub(super) struct Inbound {
    /// The spans that signalled, in order of arrival.
    pub received: Vec<u32>,
    /// Signals waited for.
    pub expected: u64,
    /// Blocks that wait, and for how many signals.
    pub waiters: Vec<(u64, u32)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Semaphore {
    pub value: i64,
    /// Blocks that wait, and for which value.
    pub waiters: Vec<(i64, u32)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Barrier {
    /// Blocks that have arrived.
    pub arrived: Vec<u32>,
}

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A rank has entered the launch.
    Entered(u32),
    /// A processor, or a block of its own, goes on.
    Turn(Turn),
    /// A block's instruction is done.
    Done(u32),
    /// A transfer may be done at this shared thing.
    Look(u32),
    /// A transfer is done.
    Flowed(u32),
    /// A signal arrives.
    Signal { rank: u32, channel: u32, span: u32 },
    /// Packets arrive.
    Packets { rank: u32, start: u64, end: u64, span: u32 },
    /// A proxy has prepared its next item.
    Proxy(u32),
}

struct Event {
    at: f64,
    /// Number of the event: of several at one time the first comes first.
    number: u64,
    what: What,
}

impl<'a> Machine<'a> {
    pub(super) fn new(
        layout: &'a Layout,
        programs: &'a [Program],
        sizes: CallSizes,
        topology: &Topology,
    ) -> Self {
        let per_node = topology.ranks_per_node;
        let nodes = layout.ranks.len().div_ceil(per_node as usize);
        let cores = topology.device.cores.map(|cores| vec![Cores::new(cores); nodes]);
        // Raw and packet scratch are one size, of which a plan mostly uses one.
        let scratch = programs.iter().map(|program| program.scratch_bytes).max().unwrap_or(0);
        let buffers = sizes.input as f64 + sizes.output as f64 + 2.0 * scratch as f64;
        let (mut blocks, mut first) = (Vec::new(), Vec::new());
        let (mut ranks, mut ports) = (Vec::new(), Vec::new());
        for (rank, code) in (0..).zip(&layout.ranks) {
            first.push(blocks.len() as u32);
            let block = |number| Block { rank, number, ..Block::default() };
            blocks.extend((0..code.blocks.len() as u32).map(block));
            let mut state = RankState::default();
            for (at, channel) in (0..).zip(&code.channels) {
                state.channels.push(Inbound::default());
                state.ports.push(channel.port.then_some(ports.len() as u32));
                if channel.port {
                    ports.push(Port::new(rank, at));
                }
            }
            let semaphore = |&value| Semaphore { value, waiters: Vec::new() };
            state.semaphores = code.semaphores.iter().map(semaphore).collect();
            state.barriers = vec![Barrier::default(); code.barriers.len()];
            ranks.push(state);
        }
        Machine {
            layout,
            programs,
            sizes,
            costs: Costs::new(topology, layout.ranks.len()),
            network: Network::new(topology, layout.ranks.len(), buffers),
            per_node,
            cores: cores.unwrap_or_default(),
            record: Record::new(blocks.len()),
            blocks,
            first,
            ranks,
            ports,
            flows: Vec::new(),
            free: Vec::new(),
            demand: Demand::default(),
            now: 0.0,
            events: BinaryHeap::new(),
            posted: 0,
        }
    }

    /// Runs the launch to its end.
    pub(super) fn run(mut self) -> Result<Timeline, SimulateError> {
        for rank in 0..self.layout.ranks.len() as u32 {
            if self.cores.is_empty() {
                self.post(self.costs.launch, What::Entered(rank));
            } else {
                self.ready(rank, Turn::Enter(rank));
            }
        }
        while let Some(Event { at, what, .. }) = self.events.pop() {
            self.now = at;
            self.happen(what);
        }
        let blocked: Vec<_> = self.blocks.iter().filter_map(|block| self.blocked(block)).collect();
        if !blocked.is_empty() {
            return Err(Stuck { launch: 1, blocked }.into());
        }
        let links = self.network.loads();
        Ok(self.record.finish(links))
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Entered(rank) => {
                let first = self.first[rank as usize];
                let count = self.layout.ranks[rank as usize].blocks.len() as u32;
                for block in first..first + count {
                    self.blocks[block as usize].came = self.now;
                    self.ready(rank, Turn::Block(block));
                }
                self.leave(rank, None);
            }
            What::Turn(Turn::Enter(rank)) => self.post(self.costs.launch, What::Entered(rank)),
            What::Turn(Turn::Block(block)) => self.go(block),
            What::Done(block) => self.done(block),
            What::Look(thing) => self.look(thing),
            What::Flowed(flow) => {
                self.free.push(flow);
                match self.flows[flow as usize].owner {
                    Owner::Block(block) => self.done(block),
                    Owner::Port(port) => self.transferred(port),
                }
            }
            What::Signal { rank, channel, span } => self.signalled(rank, channel, span),
            What::Packets { rank, start, end, span } => {
                let mut woken = Vec::new();
                self.ranks[rank as usize].packets.arrive(start, end, span, &mut woken);
                for block in woken {
                    self.wake(block, Some(span));
                }
            }
            What::Proxy(port) => self.proxy(port),
        }
    }

    /// Lets something happen `after` seconds.
    pub(super) fn post(&mut self, after: f64, what: What) {
        self.post_at(self.now + after, what);
    }

    fn post_at(&mut self, at: f64, what: What) {
        self.posted += 1;
        self.events.push(Event { at, number: self.posted, what });
    }

    /// Someone of this rank can go on, as soon as there is a processor.
    pub(super) fn ready(&mut self, rank: u32, turn: Turn) {
        let turn = match self.cores.get_mut((rank / self.per_node) as usize) {
            None => Some(turn),
            Some(cores) => cores.ready(turn),
        };
        if let Some(turn) = turn {
            let after = if self.cores.is_empty() { 0.0 } else { self.costs.turn };
            self.post(after, What::Turn(turn));
        }
    }

    /// A processor has nothing more to do for this rank now; `span` is what it did last.
    pub(super) fn leave(&mut self, rank: u32, span: Option<u32>) {
        let Some(cores) = self.cores.get_mut((rank / self.per_node) as usize) else { return };
        let Some(turn) = cores.leave() else { return };
        if let Turn::Block(next) = turn {
            self.blocks[next as usize].cause = span;
        }
        self.post(self.costs.turn, What::Turn(turn));
    }

    /// A block need not wait any more, thanks to `span`.
    pub(super) fn wake(&mut self, block: u32, span: Option<u32>) {
        let state = &mut self.blocks[block as usize];
        (state.cause, state.from) = (span, span);
        let rank = state.rank;
        self.ready(rank, Turn::Block(block));
    }

    /// Begins the transfer that was gathered in `demand`; `overhead` seconds after its end its owner is told.
    pub(super) fn transfer(&mut self, owner: Owner, overhead: f64) {
        self.demand.close();
        let tail = self.demand.tail + overhead;
        let earliest = self.now + self.demand.seconds;
        let pending = self.demand.things.len() as u32;
        let flow = Flow { owner, pending, earliest, tail };
        let number = match self.free.pop() {
            Some(number) => {
                self.flows[number as usize] = flow;
                number
            }
            None => {
                self.flows.push(flow);
                self.flows.len() as u32 - 1
            }
        };
        if pending == 0 {
            self.post_at(earliest + tail, What::Flowed(number));
        }
        for at in 0..self.demand.things.len() {
            let (thing, bytes) = self.demand.things[at];
            self.network.things[thing as usize].begin(self.now, number, bytes);
            self.due(thing);
        }
        self.demand.clear();
    }

    /// Sees to it that somebody looks when the next transfer is done.
    fn due(&mut self, thing: u32) {
        let shared = &mut self.network.things[thing as usize];
        if let Some(next) = shared.next()
            && next < shared.due
        {
            shared.due = next;
            self.post_at(next, What::Look(thing));
        }
    }

    fn look(&mut self, thing: u32) {
        let shared = &mut self.network.things[thing as usize];
        if shared.due != self.now {
            // An earlier look has taken its place.
            return;
        }
        shared.due = f64::INFINITY;
        let mut done = Vec::new();
        shared.finish(self.now, &mut done);
        for number in done {
            let flow = &mut self.flows[number as usize];
            flow.pending -= 1;
            if flow.pending == 0 {
                let end = self.now.max(flow.earliest) + flow.tail;
                self.post_at(end, What::Flowed(number));
            }
        }
        self.due(thing);
    }

    /// Where a block is in the plan.
    pub(super) fn site(&self, block: &Block) -> Site {
        let layout = &self.layout.ranks[block.rank as usize];
        let code = layout.blocks[block.number as usize].code;
        let origin = layout.origins[code.start as usize + block.at];
        let (rank, tb) = (block.rank, block.number);
        Site { rank, tb, op: origin.op, inner: origin.inner, kind: origin.kind }
    }

    /// What a block waits for that never came to its end.
    fn blocked(&self, block: &Block) -> Option<Blocked> {
        use crate::program::Instruction;
        if block.done {
            return None;
        }
        let layout = &self.layout.ranks[block.rank as usize];
        let state = &self.ranks[block.rank as usize];
        let code = layout.blocks[block.number as usize].code;
        let instruction = layout.instructions[code.start as usize + block.at];
        let on = match (block.waiting?, instruction) {
            (Waiting::Signal(needed), Instruction::Wait { channel: position, .. }) => {
                let (channel_type, channel) = layout.channel_id(position);
                let peer = layout.channels[position as usize].peer;
                let received = state.channels[position as usize].received.len() as u64;
                BlockedOn::Signal { channel_type, channel, peer, received, needed }
            }
            (Waiting::Semaphore(needed), Instruction::Acquire { semaphore }) => {
                let value = state.semaphores[semaphore as usize].value;
                BlockedOn::Semaphore { semaphore, value, needed }
            }
            (Waiting::Barrier, Instruction::Barrier { barrier, blocks }) => {
                let arrived = state.barriers[barrier as usize].arrived.len() as u32;
                BlockedOn::Barrier { barrier, arrived, blocks }
            }
            (Waiting::Packet { rank, byte }, _) => BlockedOn::Packet { rank, offset: byte },
            // Proxies end what they are given.
            _ => return None,
        };
        Some(Blocked { site: self.site(block), on })
    }
}

impl Ord for Event {
    /// The first to happen is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Event {}
