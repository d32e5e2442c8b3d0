//! The shared wire: ranks of one machine that count as on different nodes. They share memory of the host, and nothing else.
//!
//! Whoever hears of a region maps it, so that posting is copying, as on the local wire. But the ranks do not count as neighbours:
//! each hears of regions over the link, and only of those that wires know: control pages and parcels, never a caller's buffer. So
//! after a failure nobody need wait for what a peer still copies.

use crate::WireError;
use crate::local::{LocalLink, MappedRegions};
use crate::wire::{Link, Opening, Posted, Registration, Wire, Write, check_host};
use antiphon_hal::{Backend, Memory};
use antiphon_transport::{Peer, Reach};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, PoisonError, RwLock};

const NAME: &str = "shared";
/// What it runs over, for people.
const OVER: &str = "copies by way of memory of the host that both map";

/// Passes memory of this rank on to those that the wire reaches, and finds what they passed on.
pub trait SharedRegions: MappedRegions {
    /// Whether memory can be passed on to a peer, and is found that it passed on.
    fn reaches(&self, peer: u32) -> bool;

    /// Passes a memory on to all peers that are reached. Each has it mapped before it hears anything else that is said from now on.
    ///
    /// # Errors
    /// If the memory cannot be passed on.
    fn share(&self, memory: &Arc<dyn Memory>) -> Result<(), WireError>;

    /// Lets go of a region of `peer`.
    fn forget(&self, peer: u32, region: u64);
}

/// Reaches ranks of this machine that count as on other nodes, by copies on the thread that posts.
#[derive(Clone, Debug)]
pub struct SharedWire {
    regions: Arc<dyn SharedRegions>,
}

impl SharedWire {
    /// The name of the wire.
    pub const NAME: &str = NAME;

    /// The wire to the peers that `regions` reaches.
    pub fn new(regions: Arc<dyn SharedRegions>) -> Self {
        SharedWire { regions }
    }
}

fn invalid(operation: &'static str, saw: String, allowed: &str) -> WireError {
    WireError::Invalid { operation, wire: NAME.to_owned(), saw, allowed: allowed.to_owned() }
}

impl Wire for SharedWire {
    fn name(&self) -> &str {
        NAME
    }

    fn reach(&self, peer: &Peer) -> Reach {
        if self.regions.reaches(peer.rank) {
            return Reach::At { cost: 2 };
        }
        Reach::No { why: "the rank is on another machine, or this rank's neighbour".to_owned() }
    }

    fn describe(&self) -> String {
        OVER.to_owned()
    }

    fn register(&self, memory: &Arc<dyn Memory>) -> Result<Registration, WireError> {
        check_host(NAME, memory)?;
        self.regions.share(memory)?;
        let (region, bytes) = (memory.id(), memory.len());
        Ok(Registration { region, bytes, blob: Vec::new(), keep: Box::new(Arc::clone(memory)) })
    }

    fn open(&self, peer: u32) -> Result<Box<dyn Opening>, WireError> {
        Ok(Box::new(SharedOpening { peer, regions: Arc::clone(&self.regions) }))
    }
}

#[derive(Debug)]
struct SharedOpening {
    peer: u32,
    regions: Arc<dyn SharedRegions>,
}

impl Opening for SharedOpening {
    fn address(&self) -> Vec<u8> {
        Vec::new()
    }

    fn connect(self: Box<Self>, _: &[u8]) -> Result<Arc<dyn Link>, WireError> {
        let SharedOpening { peer, regions } = *self;
        let accepted = Arc::new(Accepted { peer, regions, table: RwLock::default() });
        let link = LocalLink::new(NAME, peer, Arc::clone(&accepted) as Arc<dyn MappedRegions>);
        Ok(Arc::new(SharedLink { link, accepted }))
    }
}

/// The regions that the peer of a link has told of.
#[derive(Debug)]
struct Accepted {
    peer: u32,
    regions: Arc<dyn SharedRegions>,
    table: RwLock<HashMap<u64, Arc<dyn Memory>>>,
}

impl Accepted {
    fn insert(&self, region: u64, memory: Arc<dyn Memory>) {
        self.table.write().unwrap_or_else(PoisonError::into_inner).insert(region, memory);
    }

    fn remove(&self, region: u64) {
        // Unmapped without the lock, which takes its time.
        drop(self.table.write().unwrap_or_else(PoisonError::into_inner).remove(&region));
        self.regions.forget(self.peer, region);
    }
}

impl MappedRegions for Accepted {
    fn region(&self, _: u32, region: u64) -> Option<Arc<dyn Memory>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).get(&region).cloned()
    }
}

/// A link as the local wire's, but for regions.
#[derive(Debug)]
struct SharedLink {
    link: LocalLink,
    accepted: Arc<Accepted>,
}

impl Link for SharedLink {
    fn peer(&self) -> u32 {
        self.link.peer()
    }

    fn accept(&self, region: u64, bytes: u64, _: &[u8]) -> Result<(), WireError> {
        let peer = self.accepted.peer;
        let saw = |what: &str| format!("region {region} of rank {peer}, {what}");
        let memory = self.accepted.regions.region(peer, region).ok_or_else(|| {
            invalid("accept a region", saw("which is not mapped"), "regions that were passed on")
        })?;
        if memory.backend() != Backend::Host {
            let saw = saw(&format!("memory of {}", memory.backend().name()));
            return Err(invalid("accept a region", saw, "memory of the host"));
        }
        if memory.len() != bytes {
            let saw = saw(&format!("of {bytes} bytes"));
            return Err(invalid("accept a region", saw, &format!("{} bytes", memory.len())));
        }
        self.accepted.insert(region, memory);
        Ok(())
    }

    fn retire(&self, region: u64) {
        self.accepted.remove(region);
    }

    fn write(&self, write: &Write<'_>) -> Result<Posted, WireError> {
        self.link.write(write)
    }

    fn signal(&self, region: u64, to: u64, value: u64) -> Result<Posted, WireError> {
        self.link.signal(region, to, value)
    }

    fn posted(&self) -> u64 {
        self.link.posted()
    }

    fn completed(&self) -> Result<u64, WireError> {
        self.link.completed()
    }

    fn progress(&self) -> Result<bool, WireError> {
        self.link.progress()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }

    fn arm(&self) -> Result<bool, WireError> {
        self.link.arm()
    }

    fn stop(&self) {
        self.link.stop();
    }

    fn describe(&self) -> String {
        OVER.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_hal::{HalError, MemoryHandle};

    /// Memory of a GPU, which the CPU must not touch.
    #[derive(Debug)]
    struct OfGpu;

    // SAFETY: nobody may use the address.
    unsafe impl Memory for OfGpu {
        fn backend(&self) -> Backend {
            Backend::Cuda
        }

        fn address(&self) -> *mut u8 {
            std::ptr::without_provenance_mut(0x7000_0000_0000)
        }

        fn len(&self) -> u64 {
            4096
        }

        fn id(&self) -> u64 {
            1
        }

        fn export(&self) -> Result<MemoryHandle, HalError> {
            Err(HalError::Unsupported { op: "export memory", backend: Backend::Cuda })
        }
    }

    /// A peer that has passed it on.
    #[derive(Debug)]
    struct Offered;

    impl MappedRegions for Offered {
        fn region(&self, _: u32, _: u64) -> Option<Arc<dyn Memory>> {
            Some(Arc::new(OfGpu))
        }
    }

    impl SharedRegions for Offered {
        fn reaches(&self, _: u32) -> bool {
            true
        }

        fn share(&self, _: &Arc<dyn Memory>) -> Result<(), WireError> {
            Ok(())
        }

        fn forget(&self, _: u32, _: u64) {}
    }

    #[test]
    fn memory_of_a_gpu_is_neither_registered_nor_accepted() {
        let wire = SharedWire::new(Arc::new(Offered));
        let memory: Arc<dyn Memory> = Arc::new(OfGpu);
        assert!(matches!(wire.register(&memory), Err(WireError::Invalid { .. })));
        let link = wire.open(1).unwrap().connect(&[]).unwrap();
        assert!(matches!(link.accept(1, 4096, &[]), Err(WireError::Invalid { .. })));
    }
}
