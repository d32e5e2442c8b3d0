//! How a run signals and waits: what blocks hand on to each other.

use super::clock::{Epoch, Handed};
use super::state::Wait;
use super::sync::Message;
use super::walk::Walk;

impl Walk<'_> {
    pub(super) fn signal(&mut self, index: u32, channel: u32, release: bool) {
        self.ran(index);
        let rank = self.blocks[index as usize].rank;
        let end = self.setting.layout.ranks[rank as usize].channels[channel as usize];
        let far = self.setting.contention.far_end(self.setting.layout, rank, channel);
        let loose = far.is_some_and(|at| self.setting.contention.usages[at as usize].loose);
        let handed = if end.port {
            // The proxy signals after all that was posted, and after what the post itself came after.
            let own = self.handed(index);
            let proxy = self.proxy(rank, channel);
            let actor = self.blocks.len() as u32 + proxy;
            let state = &mut self.proxies[proxy as usize];
            own.teach(&mut state.clock);
            Handed { clock: state.clock.clone(), step: Epoch { actor, count: state.count } }
        } else if release && !loose {
            self.handed(index)
        } else {
            // What was done before the launch was released when it began.
            let own = &self.ranks[rank as usize];
            let clock = own.starts[own.launch as usize - 1].clone();
            Handed { clock, step: Epoch { actor: index, count: 0 } }
        };
        let Some(at) = far else { return };
        let launch = self.ranks[rank as usize].launch;
        self.inbound[at as usize].push(Message { handed, launch }, release);
        let waiting = std::mem::take(&mut self.waiting_inbound[at as usize]);
        self.ready.extend(waiting);
    }

    pub(super) fn wait(&mut self, index: u32, channel: u32, acquire: bool) -> Result<(), Wait> {
        let rank = self.blocks[index as usize].rank as usize;
        let at = (self.setting.contention.channels[rank] + channel) as usize;
        if self.setting.free[at] {
            self.ran(index);
            return Ok(());
        }
        let inbound = &mut self.inbound[at];
        let ticket = match self.blocks[index as usize].ticket {
            Some(ticket) => ticket as u64,
            None => {
                inbound.expected += 1;
                self.blocks[index as usize].ticket = Some(inbound.expected as i64);
                inbound.expected
            }
        };
        let message = inbound.take(ticket).ok_or(Wait::Signal { channel, ticket })?;
        self.ran(index);
        let peer = self.setting.layout.ranks[rank].channels[channel as usize].peer;
        self.observe(rank as u32, peer, message.launch);
        if acquire {
            let thread = self.thread(index);
            self.blocks[index as usize].pending.push((thread, message.handed));
        } else {
            // The launch's end acquires what was only looked at.
            self.ranks[rank].learn(&message.handed);
        }
        Ok(())
    }

    /// A rank observes something that a peer did in a launch: its launch ends after the peer's began.
    pub(super) fn observe(&mut self, rank: u32, peer: u32, launch: u32) {
        if rank == peer || self.ranks[rank as usize].heard[peer as usize] >= launch {
            return;
        }
        let starts = &self.ranks[peer as usize].starts;
        let Some(clock) = starts.get(launch as usize - 1).cloned() else { return };
        let own = &mut self.ranks[rank as usize];
        own.heard[peer as usize] = launch;
        own.learn(&Handed { clock, step: Epoch::default() });
    }

    pub(super) fn acquire(&mut self, index: u32, semaphore: u32) -> Result<(), Wait> {
        let rank = self.blocks[index as usize].rank as usize;
        let at = (self.setting.contention.semaphores[rank] + semaphore) as usize;
        if self.setting.free[self.inbound.len() + at] {
            self.ran(index);
            return Ok(());
        }
        let tokens = &mut self.semaphores[at];
        let learnt = if tokens.contended {
            let old = match self.blocks[index as usize].ticket {
                Some(old) => old,
                None => {
                    let old = tokens.value;
                    tokens.value = old.wrapping_sub(1);
                    self.blocks[index as usize].ticket = Some(old);
                    old
                }
            };
            if old <= 0 && tokens.value < old {
                return Err(Wait::Semaphore { semaphore, needed: old });
            }
            tokens.all().cloned()
        } else {
            let needed = tokens.value;
            tokens.take().map_err(|()| Wait::Semaphore { semaphore, needed })?
        };
        let step = self.ran(index);
        if let Some(clock) = learnt {
            let step = Epoch { count: 0, ..step };
            let thread = self.thread(index);
            self.blocks[index as usize].pending.push((thread, Handed { clock, step }));
        }
        Ok(())
    }

    pub(super) fn release(&mut self, index: u32, semaphore: u32) {
        self.ran(index);
        let rank = self.blocks[index as usize].rank as usize;
        let at = (self.setting.contention.semaphores[rank] + semaphore) as usize;
        let handed = self.handed(index);
        self.semaphores[at].release(&handed);
        let waiting = std::mem::take(&mut self.waiting_semaphore[at]);
        self.ready.extend(waiting);
    }

    pub(super) fn barrier(&mut self, index: u32, barrier: u32) -> Result<(), Wait> {
        let rank = self.blocks[index as usize].rank as usize;
        let at = (self.setting.contention.barriers[rank] + barrier) as usize;
        if let Some(full) = self.blocks[index as usize].ticket {
            let full = full as u64;
            if self.barriers[at].arrived < full {
                return Err(Wait::Barrier { barrier, full });
            }
            // The last to arrive has told this block what all knew.
            return Ok(());
        }
        self.ran(index);
        self.meet(index);
        let handed = self.handed(index);
        let (full, all) = self.barriers[at].arrive(&handed);
        self.blocks[index as usize].ticket = Some(full as i64);
        let Some(all) = all else { return Err(Wait::Barrier { barrier, full }) };
        let waiting = std::mem::take(&mut self.waiting_barrier[at]);
        for &other in waiting.iter().chain([&index]) {
            self.blocks[other as usize].clock.join(&all);
        }
        self.ready.extend(waiting);
        Ok(())
    }
}
