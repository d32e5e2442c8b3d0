//! The local wire: peers whose memory is mapped here, so that posting is copying.

use crate::WireError;
use crate::wire::{
    Link, Opening, Posted, Registration, Unit, Wire, Write, check_counter, check_region,
    unknown_region,
};
use antiphon_hal::Memory;
use antiphon_transport::{Peer, Reach};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

const NAME: &str = "local";

/// Finds memory of peers that is mapped in this process.
pub trait MappedRegions: Send + Sync + fmt::Debug {
    /// The mapping of a region of `peer`, once it is there.
    fn region(&self, peer: u32, region: u64) -> Option<Arc<dyn Memory>>;
}

/// Reaches the ranks of this node, by copies on the thread that posts.
#[derive(Clone, Debug)]
pub struct LocalWire {
    regions: Arc<dyn MappedRegions>,
}

impl LocalWire {
    /// The wire to the peers whose memory `regions` finds.
    pub fn new(regions: Arc<dyn MappedRegions>) -> Self {
        LocalWire { regions }
    }
}

impl Wire for LocalWire {
    fn name(&self) -> &str {
        NAME
    }

    fn reach(&self, peer: &Peer) -> Reach {
        if peer.same_node {
            return Reach::At { cost: 1 };
        }
        Reach::No { why: "the rank is on another node, whose memory cannot be mapped".to_owned() }
    }

    fn describe(&self) -> String {
        "copies between mapped memories".to_owned()
    }

    fn register(&self, memory: &Arc<dyn Memory>) -> Result<Registration, WireError> {
        // Peers map memory by the memory transport's offers.
        let (region, bytes) = (memory.id(), memory.len());
        Ok(Registration { region, bytes, blob: Vec::new(), keep: Box::new(Arc::clone(memory)) })
    }

    fn open(&self, peer: u32) -> Result<Box<dyn Opening>, WireError> {
        Ok(Box::new(LocalOpening { peer, regions: Arc::clone(&self.regions) }))
    }
}

#[derive(Debug)]
struct LocalOpening {
    peer: u32,
    regions: Arc<dyn MappedRegions>,
}

impl Opening for LocalOpening {
    fn address(&self) -> Vec<u8> {
        Vec::new()
    }

    fn connect(self: Box<Self>, _: &[u8]) -> Result<Arc<dyn Link>, WireError> {
        let LocalOpening { peer, regions } = *self;
        Ok(Arc::new(LocalLink::new(NAME, peer, regions)))
    }
}

/// A link by copies into memory of the peer that is mapped.
#[derive(Debug)]
pub(crate) struct LocalLink {
    wire: &'static str,
    peer: u32,
    regions: Arc<dyn MappedRegions>,
    posted: AtomicU64,
    /// This rank ended it. Held for reading while something is copied.
    stopped: RwLock<bool>,
}

impl LocalLink {
    /// The link of this wire to a peer whose memory `regions` finds.
    pub fn new(wire: &'static str, peer: u32, regions: Arc<dyn MappedRegions>) -> Self {
        let (posted, stopped) = (AtomicU64::new(0), RwLock::new(false));
        LocalLink { wire, peer, regions, posted, stopped }
    }

    /// Keeps the link from being stopped.
    fn enter(&self) -> Result<RwLockReadGuard<'_, bool>, WireError> {
        let stopped = self.stopped.read().unwrap_or_else(PoisonError::into_inner);
        if *stopped {
            let (peer, reason) = (self.peer, "this rank ended it".to_owned());
            return Err(WireError::Lost { wire: self.wire.to_owned(), peer, reason });
        }
        Ok(stopped)
    }

    /// The memory of a region, inside which a range lies.
    fn region(
        &self,
        operation: &'static str,
        region: u64,
        range: (u64, u64),
    ) -> Result<Arc<dyn Memory>, WireError> {
        let memory = self.regions.region(self.peer, region);
        let memory =
            memory.ok_or_else(|| unknown_region(self.wire, operation, self.peer, region))?;
        check_region(self.wire, operation, region, range, memory.len())?;
        Ok(memory)
    }
}

fn start(memory: &Arc<dyn Memory>) -> u64 {
    memory.address().addr() as u64
}

impl Link for LocalLink {
    fn peer(&self) -> u32 {
        self.peer
    }

    fn accept(&self, _: u64, _: u64, _: &[u8]) -> Result<(), WireError> {
        Ok(())
    }

    fn retire(&self, _: u64) {}

    fn write(&self, write: &Write<'_>) -> Result<Posted, WireError> {
        let Write { source, from, region, to, bytes, unit } = *write;
        let _entered = self.enter()?;
        write.check_source(self.wire)?;
        let memory = self.region("write", region, (to, bytes))?;
        write.check_units(self.wire, [start(source), start(&memory)])?;
        let from = source.address().wrapping_add(from as usize);
        let to = memory.address().wrapping_add(to as usize);
        match unit {
            // SAFETY: both ranges are inside memory that is mapped while this function holds it; what else touches them
            // meanwhile is the plan's business, as with every copy of the engine.
            Unit::Bytes => unsafe { antiphon_hal::kernels::copy(to, from, bytes as usize) },
            Unit::Packets => {
                let (from, to) = (from.cast::<AtomicU64>(), to.cast::<AtomicU64>());
                for unit in 0..bytes as usize / 8 {
                    // SAFETY: aligned units inside both ranges, shared with others through atomics only.
                    let (from, to) = unsafe { (&*from.add(unit), &*to.add(unit)) };
                    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            }
        }
        // Whoever reads the count, here or by `completed`, sees the bytes.
        self.posted.fetch_add(1, Ordering::Release);
        Ok(Posted::Queued)
    }

    fn signal(&self, region: u64, to: u64, value: u64) -> Result<Posted, WireError> {
        let _entered = self.enter()?;
        let memory = self.region("signal", region, (to, 8))?;
        check_counter(self.wire, start(&memory), to)?;
        let counter = memory.address().wrapping_add(to as usize).cast::<AtomicU64>();
        // Other threads may have posted what this signal follows: those that have counted their posts.
        self.posted.load(Ordering::Acquire);
        // SAFETY: an aligned counter inside memory that is mapped while this function holds it, shared through atomics.
        unsafe { &*counter }.store(value, Ordering::Release);
        self.posted.fetch_add(1, Ordering::Release);
        Ok(Posted::Queued)
    }

    fn posted(&self) -> u64 {
        self.posted.load(Ordering::Acquire)
    }

    fn completed(&self) -> Result<u64, WireError> {
        let _entered = self.enter()?;
        Ok(self.posted())
    }

    fn progress(&self) -> Result<bool, WireError> {
        self.enter().map(|_| false)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&self) -> Result<bool, WireError> {
        self.enter().map(|_| true)
    }

    fn stop(&self) {
        *self.stopped.write().unwrap_or_else(PoisonError::into_inner) = true;
    }

    fn describe(&self) -> String {
        "copies between mapped memories".to_owned()
    }
}
