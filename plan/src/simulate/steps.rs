//! What each instruction of a block waits for, takes and changes.

use super::flows::{Movement, Owner, Piece, accesses};
use super::machine::{Machine, Waiting, What};
use super::ports::{Item, Transfer};
use super::record::Begin;
use crate::program::{Area, BlockMove, Instruction, RuntimeBlock, Span};

/// What became of a block's next instruction.
enum Step {
    /// It takes no time.
    Next,
    /// It takes this many seconds.
    Takes(f64),
    /// It takes until its transfer, gathered in `demand`, is done, and this many seconds more.
    Moves(f64),
    /// It waits.
    Blocked,
    /// There is none.
    End,
}

impl Machine<'_> {
    /// Goes on with a block until something takes time.
    pub(super) fn go(&mut self, block: u32) {
        loop {
            match self.step(block) {
                Step::Next => {}
                Step::Takes(seconds) => {
                    self.begin(block);
                    return self.post(seconds, What::Done(block));
                }
                Step::Moves(overhead) => {
                    self.begin(block);
                    self.blocks[block as usize].stores = self.demand.stored;
                    return self.transfer(Owner::Block(block), overhead);
                }
                Step::Blocked => break,
                Step::End => {
                    self.blocks[block as usize].done = true;
                    break;
                }
            }
        }
        let rank = self.blocks[block as usize].rank;
        let latest = self.record.latest(block);
        self.leave(rank, latest);
    }

    fn instruction(&self, block: u32) -> Option<Instruction> {
        let state = &self.blocks[block as usize];
        let layout = &self.layout.ranks[state.rank as usize];
        let code = &layout.instructions[layout.blocks[state.number as usize].code.range()];
        code.get(state.at).copied()
    }

    /// The instruction can go on.
    fn begin(&mut self, block: u32) {
        let state = &self.blocks[block as usize];
        let begin = Begin {
            block,
            site: self.site(state),
            iteration: state.window.map_or(0, |(iteration, _)| iteration),
            start: state.came,
            ready: self.now,
            from: state.from,
            cause: state.cause,
        };
        let span = self.record.begin(begin);
        let state = &mut self.blocks[block as usize];
        (state.span, state.cause, state.from, state.waiting) = (span, None, None, None);
        state.came = self.now;
    }

    fn step(&mut self, block: u32) -> Step {
        let Some(instruction) = self.instruction(block) else { return Step::End };
        let costs = self.costs;
        let (rank, window) = {
            let state = &self.blocks[block as usize];
            (state.rank, state.window)
        };
        match instruction {
            Instruction::LoopBegin { end, unit, index, .. } => {
                let loops = self.programs[rank as usize].loops[index as usize];
                let state = &mut self.blocks[block as usize];
                if loops == 0 {
                    state.at = end as usize + 1;
                } else {
                    state.window = Some((0, unit));
                    state.at += 1;
                }
                Step::Next
            }
            Instruction::LoopEnd { begin } => {
                let layout = &self.layout.ranks[rank as usize];
                let state = &mut self.blocks[block as usize];
                let code = layout.blocks[state.number as usize].code.start;
                let (iteration, unit) = state.window.take().unwrap_or_default();
                state.at += 1;
                if let Instruction::LoopBegin { index, .. } =
                    layout.instructions[(code + begin) as usize]
                    && iteration + 1 < self.programs[rank as usize].loops[index as usize]
                {
                    state.window = Some((iteration + 1, unit));
                    state.at = begin as usize + 1;
                }
                Step::Next
            }
            Instruction::BlockSync => Step::Takes(costs.sync),
            Instruction::Signal { channel, release } => {
                let port = self.layout.ranks[rank as usize].channels[channel as usize].port;
                let signal = if port { costs.post } else { costs.signal };
                Step::Takes(signal + if release { costs.release } else { 0.0 })
            }
            Instruction::Wait { channel, .. } => self.wait(block, rank, channel),
            Instruction::Acquire { semaphore } => self.acquire(block, rank, semaphore),
            Instruction::Release { .. } => Step::Takes(costs.semaphore),
            Instruction::Barrier { barrier, blocks } => self.meet(block, rank, barrier, blocks),
            Instruction::Post { .. } => Step::Takes(costs.post),
            Instruction::Flush { channel } => self.flush(block, rank, channel),
            Instruction::Move { sources, destinations, multicast, index, .. } => {
                if let Some((owner, byte)) = self.missing(rank, sources, index, window) {
                    self.ranks[owner as usize].packets.wait(byte, block);
                    let waiting = Waiting::Packet { rank: owner, byte };
                    self.blocks[block as usize].waiting = Some(waiting);
                    return Step::Blocked;
                }
                if self.blocks[block as usize].from.is_none() {
                    self.blocks[block as usize].from = self.writer(rank, sources, index, window);
                }
                self.gather(rank, [sources, destinations], index, window, multicast, true);
                let layout = &self.layout.ranks[rank as usize];
                let mut sides = layout.accesses[sources.range()]
                    .iter()
                    .chain(&layout.accesses[destinations.range()]);
                let packets = sides.any(|access| access.area == Area::Packets);
                let op = if packets { costs.packet } else { costs.data };
                Step::Moves(op + costs.reference * (sources.len() + destinations.len()) as f64)
            }
            Instruction::MoveBlock { index } => {
                self.gather_block(rank, index);
                Step::Moves(costs.data + 2.0 * costs.reference)
            }
        }
    }

    fn wait(&mut self, block: u32, rank: u32, channel: u32) -> Step {
        let inbound = &mut self.ranks[rank as usize].channels[channel as usize];
        let state = &mut self.blocks[block as usize];
        let needed = match state.waiting {
            Some(Waiting::Signal(needed)) => needed,
            _ => {
                inbound.expected += 1;
                inbound.expected
            }
        };
        state.waiting = Some(Waiting::Signal(needed));
        match inbound.received.get(needed as usize - 1) {
            Some(&span) => {
                state.from = Some(span);
                Step::Takes(self.costs.wait)
            }
            None => {
                inbound.waiters.push((needed, block));
                Step::Blocked
            }
        }
    }

    fn acquire(&mut self, block: u32, rank: u32, semaphore: u32) -> Step {
        let semaphore = &mut self.ranks[rank as usize].semaphores[semaphore as usize];
        let state = &mut self.blocks[block as usize];
        let takes = Step::Takes(self.costs.semaphore);
        let needed = match state.waiting {
            Some(Waiting::Semaphore(needed)) => needed,
            _ => {
                let old = semaphore.value;
                semaphore.value = old.wrapping_sub(1);
                if old > 0 {
                    return takes;
                }
                old
            }
        };
        if semaphore.value >= needed {
            return takes;
        }
        state.waiting = Some(Waiting::Semaphore(needed));
        semaphore.waiters.push((needed, block));
        Step::Blocked
    }

    fn meet(&mut self, block: u32, rank: u32, barrier: u32, blocks: u32) -> Step {
        let barrier = &mut self.ranks[rank as usize].barriers[barrier as usize];
        if let Some(Waiting::Barrier) = self.blocks[block as usize].waiting {
            return Step::Takes(self.costs.barrier);
        }
        if barrier.arrived.len() as u32 + 1 < blocks {
            barrier.arrived.push(block);
            self.blocks[block as usize].waiting = Some(Waiting::Barrier);
            return Step::Blocked;
        }
        let others = std::mem::take(&mut barrier.arrived);
        self.begin(block);
        let span = self.blocks[block as usize].span;
        for other in others {
            self.wake(other, Some(span));
        }
        Step::Takes(self.costs.barrier)
    }

    fn flush(&mut self, block: u32, rank: u32, channel: u32) -> Step {
        let layout = &self.layout.ranks[rank as usize].channels[channel as usize];
        let Some(number) = self.ranks[rank as usize].ports[channel as usize] else {
            return Step::Takes(self.costs.flush);
        };
        let port = &mut self.ports[number as usize];
        let state = &mut self.blocks[block as usize];
        let needed = match state.waiting {
            Some(Waiting::Flush(needed)) => needed,
            _ => port.posted,
        };
        if port.done >= needed {
            let back = self.network.latency(layout.peer, rank);
            return Step::Takes(self.costs.flush + back);
        }
        state.waiting = Some(Waiting::Flush(needed));
        port.waiters.push((needed, block));
        Step::Blocked
    }

    /// An instruction has ended: what it changes, and on to the next.
    pub(super) fn done(&mut self, block: u32) {
        let state = &mut self.blocks[block as usize];
        let (rank, span, window) = (state.rank, state.span, state.window);
        let stores = std::mem::take(&mut state.stores);
        self.record.end(span, self.now, stores);
        match self.instruction(block) {
            Some(Instruction::Move { sources, destinations, index, .. }) => {
                self.publish(rank, [sources, destinations], index, window, span);
            }
            Some(Instruction::Signal { channel, .. }) => {
                match self.ranks[rank as usize].ports[channel as usize] {
                    Some(port) => self.hand(port, Item { span, transfer: None }),
                    None => self.send(rank, channel, span),
                }
            }
            Some(Instruction::Post { channel, source, destination, index }) => {
                let sides = [source, destination].map(|at| Span { start: at, end: at + 1 });
                let transfer = Some(Transfer { sides, index, window });
                if let Some(port) = self.ranks[rank as usize].ports[channel as usize] {
                    self.hand(port, Item { span, transfer });
                }
            }
            Some(Instruction::Release { semaphore }) => {
                let semaphore = &mut self.ranks[rank as usize].semaphores[semaphore as usize];
                semaphore.value = semaphore.value.wrapping_add(1);
                let value = semaphore.value;
                let all = std::mem::take(&mut semaphore.waiters);
                let (woken, rest) = all.into_iter().partition(|&(needed, _)| value >= needed);
                semaphore.waiters = rest;
                self.wake_all(woken, Some(span));
            }
            _ => {}
        }
        let state = &mut self.blocks[block as usize];
        state.at += 1;
        state.came = self.now;
        self.go(block);
    }

    fn wake_all<N>(&mut self, blocks: Vec<(N, u32)>, span: Option<u32>) {
        for (_, block) in blocks {
            self.wake(block, span);
        }
    }

    /// Sends a signal over a channel.
    fn send(&mut self, rank: u32, channel: u32, span: u32) {
        let end = self.layout.ranks[rank as usize].channels[channel as usize];
        if let Some(paired) = end.paired {
            let after = self.network.latency(rank, end.peer);
            self.post(after, What::Signal { rank: end.peer, channel: paired, span });
        }
    }

    /// A signal arrives.
    pub(super) fn signalled(&mut self, rank: u32, channel: u32, span: u32) {
        let inbound = &mut self.ranks[rank as usize].channels[channel as usize];
        inbound.received.push(span);
        let received = inbound.received.len() as u64;
        let all = std::mem::take(&mut inbound.waiters);
        let (woken, rest) = all.into_iter().partition(|&(needed, _)| received >= needed);
        inbound.waiters = rest;
        self.wake_all(woken, Some(span));
    }

    /// Hands something to a proxy.
    fn hand(&mut self, number: u32, item: Item) {
        let port = &mut self.ports[number as usize];
        port.posted += 1;
        port.queue.push_back(item);
        if !port.busy {
            port.busy = true;
            self.post(self.costs.proxy, What::Proxy(number));
        }
    }

    /// A proxy does its next item.
    pub(super) fn proxy(&mut self, number: u32) {
        let port = &self.ports[number as usize];
        let (rank, channel) = (port.rank, port.channel);
        match port.queue.front().copied() {
            Some(Item { transfer: Some(Transfer { sides, index, window }), .. }) => {
                self.gather(rank, sides, index, window, None, false);
                self.transfer(Owner::Port(number), 0.0);
            }
            Some(Item { span, transfer: None }) => {
                self.send(rank, channel, span);
                self.transferred(number);
            }
            None => self.ports[number as usize].busy = false,
        }
    }

    /// A proxy has done its item.
    pub(super) fn transferred(&mut self, number: u32) {
        let port = &mut self.ports[number as usize];
        let Some(Item { span, transfer }) = port.queue.pop_front() else { return };
        port.done += 1;
        port.latest = Some(span);
        port.busy = !port.queue.is_empty();
        let (rank, done, busy) = (port.rank, port.done, port.busy);
        let all = std::mem::take(&mut port.waiters);
        let (woken, rest) = all.into_iter().partition(|&(needed, _)| done >= needed);
        port.waiters = rest;
        if let Some(Transfer { sides, index, window }) = transfer {
            self.publish(rank, sides, index, window, span);
        }
        self.wake_all(woken, Some(span));
        if busy {
            self.post(self.costs.proxy, What::Proxy(number));
        }
    }

    /// The pieces of a move in a window.
    fn pieces(
        &self,
        rank: u32,
        index: u32,
        window: Option<(u64, u64)>,
    ) -> impl Iterator<Item = Piece> {
        let program = &self.programs[rank as usize];
        let segments = &program.segments[program.moves[index as usize].range()];
        segments.iter().filter_map(move |segment| Piece::new(segment, window))
    }

    /// The first packet that a move needs and that has not come: its owner and byte.
    fn missing(
        &self,
        rank: u32,
        sources: Span,
        index: u32,
        window: Option<(u64, u64)>,
    ) -> Option<(u32, u64)> {
        let sources = accesses(&self.layout.ranks[rank as usize], sources);
        if sources.iter().all(|access| access.area != Area::Packets) {
            return None;
        }
        let program = &self.programs[rank as usize];
        self.pieces(rank, index, window).find_map(|piece| {
            let packets =
                sources.iter().enumerate().filter(|(_, access)| access.area == Area::Packets);
            packets.into_iter().find_map(|(side, access)| {
                let start = piece.start(program, side, access);
                let arrived = &self.ranks[access.rank as usize].packets;
                arrived.missing(start, start + piece.padded).err().map(|byte| (access.rank, byte))
            })
        })
    }

    /// The latest span that wrote packets which a move reads; all of them have arrived.
    fn writer(
        &self,
        rank: u32,
        sources: Span,
        index: u32,
        window: Option<(u64, u64)>,
    ) -> Option<u32> {
        let sources = accesses(&self.layout.ranks[rank as usize], sources);
        let program = &self.programs[rank as usize];
        let mut latest = None;
        for (side, access) in sources.iter().enumerate() {
            if access.area == Area::Packets {
                for piece in self.pieces(rank, index, window) {
                    let start = piece.start(program, side, access);
                    let arrived = &self.ranks[access.rank as usize].packets;
                    let writer = arrived.missing(start, start + piece.padded).unwrap_or_default();
                    latest = latest.max(writer);
                }
            }
        }
        latest
    }

    /// Gathers in `demand` what a move asks of the network.
    fn gather(
        &mut self,
        rank: u32,
        [sources, destinations]: [Span; 2],
        index: u32,
        window: Option<(u64, u64)>,
        multicast: Option<u32>,
        block: bool,
    ) {
        let layout = &self.layout.ranks[rank as usize];
        let moved = Movement {
            rank,
            sources: accesses(layout, sources),
            destinations: accesses(layout, destinations),
            group: multicast.map(|switch| &layout.switches[switch as usize].members[..]),
            block,
        };
        let mut demand = std::mem::take(&mut self.demand);
        for piece in self.pieces(rank, index, window) {
            demand.add(&self.network, &self.costs, &moved, piece.len, piece.padded);
        }
        if !block {
            demand.seconds = 0.0;
        }
        self.demand = demand;
    }

    /// The same for a move of a runtime block.
    fn gather_block(&mut self, rank: u32, index: u32) {
        let moved = self.layout.ranks[rank as usize].block_moves[index as usize];
        let BlockMove { source, destination, .. } = moved;
        let len = self.even(source).min(self.even(destination));
        let (_, len) = moved.slice(len, self.sizes.element.max(1));
        let access =
            |block: RuntimeBlock| crate::program::Access { rank: block.rank, area: block.area() };
        let movement = Movement {
            rank,
            sources: &[access(source)],
            destinations: &[access(destination)],
            group: None,
            block: true,
        };
        self.demand.add(&self.network, &self.costs, &movement, len, len);
    }

    /// Bytes of a runtime block where all of a buffer are equal.
    fn even(&self, block: RuntimeBlock) -> u64 {
        let counts = self.layout.ranks[block.rank as usize].runtime_blocks;
        let (bytes, blocks) = if block.output {
            (self.sizes.output, counts[1])
        } else {
            (self.sizes.input, counts[0])
        };
        bytes / u64::from(blocks.max(1))
    }

    /// Sends off the packets that a move has written.
    fn publish(
        &mut self,
        rank: u32,
        [sources, destinations]: [Span; 2],
        index: u32,
        window: Option<(u64, u64)>,
        span: u32,
    ) {
        let layout = self.layout;
        let destinations = accesses(&layout.ranks[rank as usize], destinations);
        for (side, access) in destinations.iter().enumerate() {
            if access.area != Area::Packets {
                continue;
            }
            let after = self.network.latency(rank, access.rank);
            let program = &self.programs[rank as usize];
            let ranges: Vec<_> = self
                .pieces(rank, index, window)
                .map(|piece| (piece.start(program, sources.len() + side, access), piece.padded))
                .collect();
            for (start, len) in ranges {
                let (rank, end) = (access.rank, start + len);
                self.post(after, What::Packets { rank, start, end, span });
            }
        }
    }
}
