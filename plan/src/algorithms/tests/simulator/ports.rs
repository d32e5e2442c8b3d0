//! Port channels: proxies carry out what was posted, in order, cell by cell, at any later time.

use super::*;
use std::collections::VecDeque;

/// One end of a port channel.
#[derive(Default)]
pub(super) struct Proxy {
    queue: VecDeque<Item>,
    posted: usize,
    done: usize,
}

enum Item {
    Transfer(Transfer),
    Signal,
}

/// A transfer that was posted: the cells that are still to be moved, in the halves of scratch of its launch.
struct Transfer {
    half: usize,
    packets: bool,
    destination: usize,
    buffers: [Buffer; 2],
    cells: Vec<[usize; 2]>,
}

impl<'p> Simulator<'p> {
    /// Whether nothing that was posted is left to do.
    pub(super) fn idle(&self) -> bool {
        self.proxies.iter().flatten().all(|proxy| proxy.queue.is_empty())
    }

    /// Lets one proxy do one thing. Returns whether it could.
    pub(super) fn proxy_step(&mut self, rank: usize, id: usize) -> bool {
        let at = self.draw(1 << 20);
        let proxy = &mut self.proxies[rank][id];
        match proxy.queue.front_mut() {
            None => return false,
            Some(Item::Signal) => {
                let (peer, back, ..) = self.channels[PORT][rank][id];
                self.channels[PORT][peer][back].2 += 1;
            }
            Some(Item::Transfer(transfer)) if !transfer.cells.is_empty() => {
                let [from, to] = transfer.cells.swap_remove(at % transfer.cells.len());
                let (half, owner) = (transfer.half, transfer.destination);
                let [source, destination] = transfer.buffers;
                if transfer.packets {
                    let image = self.memory[rank].packets[half][from].clone();
                    self.memory[owner].packets[half][to] = image;
                } else {
                    let value = self.memory[rank].raw(source, half)[from].clone();
                    self.memory[owner].raw(destination, half)[to] = value;
                }
                return true;
            }
            Some(Item::Transfer(_)) => {}
        }
        let proxy = &mut self.proxies[rank][id];
        proxy.queue.pop_front();
        proxy.done += 1;
        true
    }

    /// Lets every proxy do one thing. Returns whether any could.
    pub(super) fn proxies_step(&mut self) -> bool {
        let mut moved = false;
        for rank in 0..self.proxies.len() {
            for id in 0..self.proxies[rank].len() {
                moved |= self.proxy_step(rank, id);
            }
        }
        moved
    }

    /// Posts what falls to this thread: the entries of its position.
    pub(super) fn post(
        &mut self,
        thread: &mut Thread,
        op: &'p Op,
        window: Window,
    ) -> Result<bool, String> {
        let threads = self.setting.threads;
        if op.kind == OpKind::ReadPutPackets && thread.done == 0 {
            // All threads have waited for their packets before one of them posts.
            let source = &op.src[0];
            for cell in self.cells(op, window) {
                let (rank, mine) = (thread.rank, cell % threads == thread.number);
                let arrived = self.read(rank, rank, Buffer::Scratch, true, source, cell)?.is_some();
                if mine && !arrived {
                    return Ok(false);
                }
            }
            let key = (thread.rank, self.launch[thread.rank], thread.block, thread.at);
            if !meet(self.meetings.entry(key).or_default(), threads, thread) {
                return Ok(false);
            }
            (thread.done, thread.target) = (1, None);
        }
        let first = usize::from(op.kind == OpKind::ReadPutPackets);
        let flushes = op.kind == OpKind::PutWithSignalAndFlush;
        let signals = flushes || op.kind == OpKind::PutWithSignal;
        if thread.done == first {
            for (position, destination) in op.dst.iter().enumerate() {
                if position % threads != thread.number {
                    continue;
                }
                let source = op.src.get(position).unwrap_or(&op.src[0]);
                let id = self.entry(thread, op, position);
                let transfer = self.transfer(thread, op, source, destination, window);
                let proxy = &mut self.proxies[thread.rank][id];
                proxy.queue.push_back(Item::Transfer(transfer));
                proxy.posted += 1;
                if signals {
                    proxy.queue.push_back(Item::Signal);
                    proxy.posted += 1;
                }
            }
            thread.done += 1;
        }
        if flushes { Ok(self.flush(thread, op)) } else { Ok(next(thread)) }
    }

    /// Posts a signal.
    pub(super) fn post_signal(&mut self, rank: usize, id: usize) {
        let proxy = &mut self.proxies[rank][id];
        proxy.queue.push_back(Item::Signal);
        proxy.posted += 1;
    }

    /// Waits until what this thread finds posted is done.
    pub(super) fn flush(&mut self, thread: &mut Thread, op: &'p Op) -> bool {
        let ids = self.channel_ids(thread, op);
        let done = ids.iter().map(|&id| &self.proxies[thread.rank][id]).all(|proxy| {
            // What is posted later makes this wait longer, which a flush may.
            proxy.done == proxy.posted
        });
        done && next(thread)
    }

    fn transfer(
        &self,
        thread: &Thread,
        op: &'p Op,
        source: &ChunkRef,
        destination: &ChunkRef,
        window: Window,
    ) -> Transfer {
        let (_, from) = self.places(thread, op, source)[0];
        let (owner, to) = self.places(thread, op, destination)[0];
        let cells = self.cells(op, window).map(|cell| {
            [
                self.cell_of(thread.rank, from, source, cell),
                self.cell_of(owner, to, destination, cell),
            ]
        });
        Transfer {
            half: self.half(thread.rank),
            packets: matches!(op.kind, OpKind::PutPackets | OpKind::ReadPutPackets),
            destination: owner,
            buffers: [from, to],
            cells: cells.collect(),
        }
    }

    /// The rank's id of the channel at a position of the operation's list.
    fn entry(&self, thread: &Thread, op: &Op, position: usize) -> usize {
        let tb = &self.plan.gpus[thread.rank].threadblocks[thread.block];
        let table = tb.channels.iter().find(|(t, _)| *t == op.channel_type);
        let (_, table) = table.expect("a channel table");
        table[op.channel_ids[position] as usize] as usize
    }
}
