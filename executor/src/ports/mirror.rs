//! Control pages of ranks whose memory is not mapped here: mirrors in this rank's memory, kept up by their owners over
//! wires.
//!
//! A rank writes its launch descriptors to the mirrors of the ranks that the plan connects with it, and its count of
//! completed launches, and that its launches move, to those of all ranks it has links with; all by the means of port channels.

use super::{Ports, Standing};
use crate::error::ExecutorError;
use crate::shared::control::{ControlPage, RING};
use crate::sync::lock;
use antiphon_hal::{Device, Memory};
use antiphon_port::{Link, Posted, Unit, WireError, Write};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Mirrors of all ranks' pages; only those of ranks that are not mapped are used.
#[derive(Debug)]
pub struct Mirrors {
    memory: Arc<dyn Memory>,
}

impl Mirrors {
    /// Mirrors of `world` pages, all zero: nobody has launched anything.
    pub fn new(device: &dyn Device, world: u32) -> Result<Self, ExecutorError> {
        let memory = device.allocate(u64::from(world) * ControlPage::BYTES as u64)?;
        Ok(Mirrors { memory })
    }

    /// The memory that peers write to.
    pub fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    /// The mirror of a rank's page.
    pub fn page(&self, rank: u32) -> Option<NonNull<ControlPage>> {
        let start = rank as usize * ControlPage::BYTES;
        let inside = start + ControlPage::BYTES <= self.memory.len() as usize;
        NonNull::new(self.memory.address().wrapping_add(start).cast()).filter(|_| inside)
    }
}

impl Ports {
    /// Mirrors the descriptor of this rank's launch `seq`, from its own page, to a peer. `false` if the link is full: to be
    /// done again.
    pub fn publish(
        &self,
        peer: u32,
        seq: u64,
        page: &Arc<dyn Memory>,
    ) -> Result<bool, ExecutorError> {
        let Some(standing) = self.links[peer as usize].get() else { return Ok(false) };
        let Some(&mirror) = standing.telling.mirror.get() else {
            return Ok(self.is_local(standing));
        };
        let link = standing.attended.link();
        let at = ControlPage::descriptor_at(seq);
        let base = u64::from(self.rank) * ControlPage::BYTES as u64;
        // The launch's number comes last: whoever sees it sees the rest.
        let write = Write {
            source: page,
            from: at + 8,
            region: mirror,
            to: base + at + 8,
            bytes: ControlPage::DESCRIPTOR - 8,
            unit: Unit::Bytes,
        };
        let posted = match link.write(&write) {
            Ok(Posted::Full) => return Ok(false),
            // Said twice, the descriptor is the same.
            Ok(Posted::Queued) => link.signal(mirror, base + at, seq),
            Err(error) => Err(error),
        };
        match posted {
            Ok(Posted::Full) => Ok(false),
            Ok(Posted::Queued) => {
                let slot = &standing.described[(seq % RING) as usize];
                slot.store(link.posted(), Ordering::Relaxed);
                Ok(true)
            }
            // Nobody is there to be told. Whether the launch needs that peer, its blocks find out.
            Err(WireError::Lost { .. }) => Ok(true),
            Err(error) => Err(super::lost(peer, &error)),
        }
    }

    /// Tells a peer that this rank's blocks are through with launch `seq`. `false` if the link is full: to be done again.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn tell_through(&self, peer: u32, seq: u64) -> Result<bool, ExecutorError> {
        let Some(standing) = self.links[peer as usize].get() else { return Ok(false) };
        let Some(&mirror) = standing.telling.mirror.get() else {
            return Ok(self.is_local(standing));
        };
        let base = u64::from(self.rank) * ControlPage::BYTES as u64;
        let to = base + ControlPage::through_at(seq);
        match standing.attended.link().signal(mirror, to, seq) {
            Ok(posted) => Ok(posted == Posted::Queued),
            // Nobody is there to be told.
            Err(WireError::Lost { .. }) => Ok(true),
            Err(error) => Err(super::lost(peer, &error)),
        }
    }

    /// A peer whose link may still have to read the descriptor that the one of launch `seq` will overwrite.
    pub fn unread(&self, seq: u64) -> Option<u32> {
        let links = (0..).zip(&self.links).filter_map(|(peer, link)| Some((peer, link.get()?)));
        let unread = |standing: &Standing| {
            let posted = standing.described[(seq % RING) as usize].load(Ordering::Relaxed);
            if posted <= standing.landed.load(Ordering::Relaxed) {
                return false;
            }
            // A link that is lost reads nothing any more.
            let landed = standing.attended.link().completed().unwrap_or(u64::MAX);
            standing.landed.store(landed, Ordering::Relaxed);
            posted > landed
        };
        links.into_iter().find(|(_, standing)| unread(standing)).map(|(peer, _)| peer)
    }

    /// Tells all linked peers, soon, that this rank's launches up to `completed` are over.
    pub fn complete(&self, completed: u64) {
        self.come.completed.store(completed, Ordering::Release);
        self.remind();
    }

    /// Tells all linked peers that this rank's launches move, once a second, by a number that changes with that.
    pub fn tell_moved(&self, moved: u64) {
        self.tell_moved_in(self.began.elapsed().as_secs(), moved);
    }

    fn tell_moved_in(&self, second: u64, moved: u64) {
        if self.told_moved.load(Ordering::Relaxed) != second {
            self.told_moved.store(second, Ordering::Relaxed);
            self.come.moved.store(moved, Ordering::Release);
            self.remind();
        }
    }

    /// Tells a peer how far this rank has come; where the link is full the proxy does, once it is not.
    pub(super) fn tell_come(&self, standing: &Standing) {
        if !standing.telling.is_done() {
            standing.telling.tell(&**standing.attended.link());
            standing.attended.soon();
        }
    }

    /// Tells peers that do not know it, perhaps since their links were full, how far this rank has come.
    pub fn remind(&self) {
        let standing = self.links.iter().filter_map(|link| link.get());
        standing.for_each(|standing| self.tell_come(standing));
    }
}

/// How far a rank has come, as mirrors are to say.
#[derive(Debug, Default)]
pub(super) struct Come {
    /// Its count of completed launches.
    pub completed: AtomicU64,
    /// Changes once a second while its launches move.
    moved: AtomicU64,
}

/// What a link's peer is told of how far this rank has come. The count of its completed launches may be all that a peer waits for, so
/// that none is left untold, though the link be full and this rank make no call for long.
pub(super) struct Telling {
    rank: u32,
    come: Arc<Come>,
    /// The peer's region with the mirror of this rank's page; `None` over the local wire, where it is mapped.
    pub mirror: OnceLock<u64>,
    told: Mutex<Told>,
}

/// What was posted last.
#[derive(Default)]
struct Told {
    completed: u64,
    moved: u64,
}

impl Telling {
    pub fn new(rank: u32, come: Arc<Come>) -> Self {
        Telling { rank, come, mirror: OnceLock::new(), told: Mutex::default() }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        lock(&self.told)
    }

    /// Whether there is nothing to tell.
    pub fn is_done(&self) -> bool {
        if self.mirror.get().is_none() {
            return true;
        }
        let Told { completed, moved } = *self.told();
        completed >= self.come.completed.load(Ordering::Acquire)
            && moved == self.come.moved.load(Ordering::Acquire)
    }

    /// Posts what the peer does not know, as far as the link is not full; whether anything was posted.
    pub fn tell(&self, link: &dyn Link) -> bool {
        let Some(&mirror) = self.mirror.get() else { return false };
        let base = u64::from(self.rank) * ControlPage::BYTES as u64;
        // Who is lost need not be told.
        let post = |told: &mut u64, at: u64, now: u64| {
            let posted = matches!(link.signal(mirror, base + at, now), Ok(Posted::Queued));
            if posted {
                *told = now;
            }
            posted
        };
        let mut told = self.told();
        let completed = self.come.completed.load(Ordering::Acquire);
        let moved = self.come.moved.load(Ordering::Acquire);
        let completes = told.completed < completed
            && post(&mut told.completed, ControlPage::COMPLETED, completed);
        let moves = told.moved != moved && post(&mut told.moved, ControlPage::MOVED, moved);
        completes || moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicator::{Communicator, Options};

    #[test]
    fn a_rank_of_another_node_hears_once_a_second_that_launches_move() {
        let ranks = Communicator::in_process_on(&["this", "that"], &Options::default()).unwrap();
        let ports = &ranks[0].shared.ports;
        ports.want(1).unwrap();
        while ports.link(1).unwrap().is_none() {
            std::thread::yield_now();
        }
        let told = || ranks[1].shared.control(0).moved.0.load(Ordering::Acquire);
        for (second, moved, now) in [(0, 5, 0), (1, 7, 7), (1, 8, 7), (2, 9, 9)] {
            ports.tell_moved_in(second, moved);
            assert_eq!(ports.come.moved.load(Ordering::Acquire), now);
            while told() != now {
                std::thread::yield_now();
            }
        }
    }
}
