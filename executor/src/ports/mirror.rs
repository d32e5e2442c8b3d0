//! Control pages of ranks whose memory is not mapped here: mirrors in this rank's memory, kept up by their owners over
//! wires.
//!
//! A rank writes its launch descriptors to the mirrors of the ranks that the plan connects with it, and its count of
//! completed launches to those of all ranks it has links with; both by the means of port channels.

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
        self.completed.store(completed, Ordering::Release);
        for standing in self.links.iter().filter_map(|link| link.get()) {
            self.tell_completed(standing);
        }
    }

    /// Tells a peer how far this rank has come; where the link is full the proxy does, once it is not.
    pub(super) fn tell_completed(&self, standing: &Standing) {
        if !standing.telling.is_done() {
            standing.telling.tell(&**standing.attended.link());
            standing.attended.soon();
        }
    }

    /// Tells peers whose links were full, and are driven since, how far this rank has come.
    pub fn remind(&self) {
        let standing = self.links.iter().filter_map(|link| link.get());
        for standing in standing.filter(|standing| !standing.telling.is_done()) {
            self.tell_completed(standing);
        }
    }
}

/// What a link's peer is told of this rank's completed launches. It may be all that a peer waits for, so that none is left
/// untold, though the link be full and this rank make no call for long.
pub(super) struct Telling {
    rank: u32,
    /// The rank's count of them.
    completed: Arc<AtomicU64>,
    /// The peer's region with the mirror of this rank's page; `None` over the local wire, where it is mapped.
    pub mirror: OnceLock<u64>,
    /// The last count that was posted.
    told: Mutex<u64>,
}

impl Telling {
    pub fn new(rank: u32, completed: Arc<AtomicU64>) -> Self {
        Telling { rank, completed, mirror: OnceLock::new(), told: Mutex::new(0) }
    }

    fn told(&self) -> MutexGuard<'_, u64> {
        lock(&self.told)
    }

    /// Whether there is nothing to tell.
    pub fn is_done(&self) -> bool {
        self.mirror.get().is_none() || *self.told() >= self.completed.load(Ordering::Acquire)
    }

    /// Posts the count, if the peer does not know it and the link is not full; whether it was posted.
    pub fn tell(&self, link: &dyn Link) -> bool {
        let Some(&mirror) = self.mirror.get() else { return false };
        let mut told = self.told();
        let completed = self.completed.load(Ordering::Acquire);
        if *told >= completed {
            return false;
        }
        let to = u64::from(self.rank) * ControlPage::BYTES as u64 + ControlPage::COMPLETED;
        // Who is lost need not be told.
        let posted = matches!(link.signal(mirror, to, completed), Ok(Posted::Queued));
        if posted {
            *told = completed;
        }
        posted
    }
}
