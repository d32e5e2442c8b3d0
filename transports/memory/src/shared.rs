//! The shared-memory transport: peers' regions, mapped once and opened any number of times.

use antiphon_hal::{Device, Memory, MemoryHandle};
use antiphon_transport::{
    ChannelKind, Handle, Mapping, Offer, Peer, Reach, RemoteBuffer, Transport, TransportError,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Mapped = HashMap<(u32, u64), Arc<dyn Memory>>;

/// Reaches every rank of the node through memory that both map.
///
/// A region's number is the number of its memory on its rank, which no other memory of that process ever has: a freed
/// and re-allocated buffer is another region.
#[derive(Debug)]
pub struct SharedMemory {
    /// At least one.
    devices: Vec<Arc<dyn Device>>,
    mapped: Mutex<Mapped>,
    accepted: Condvar,
    retired: AtomicU64,
}

impl SharedMemory {
    /// The transport over a device's memory.
    pub fn new(device: Arc<dyn Device>) -> Self {
        SharedMemory::over(device, None)
    }

    /// The transport over the memory of a device and of another one, of another backend.
    pub fn over(device: Arc<dyn Device>, other: Option<Arc<dyn Device>>) -> Self {
        let devices = [device].into_iter().chain(other).collect();
        let retired = AtomicU64::new(0);
        SharedMemory { devices, mapped: Mutex::default(), accepted: Condvar::new(), retired }
    }

    /// A peer's region, once accepted.
    pub fn region(&self, peer: u32, region: u64) -> Option<Arc<dyn Memory>> {
        self.mapped().get(&(peer, region)).cloned()
    }

    /// A peer's region whose offer is on its way; `None` if it does not come within the limit.
    pub fn await_region(&self, peer: u32, region: u64, limit: Duration) -> Option<Arc<dyn Memory>> {
        let missing = |mapped: &mut Mapped| !mapped.contains_key(&(peer, region));
        let waited = self.accepted.wait_timeout_while(self.mapped(), limit, missing);
        let (mapped, _) = waited.unwrap_or_else(PoisonError::into_inner);
        mapped.get(&(peer, region)).cloned()
    }

    /// Changes whenever a region was retired: whoever keeps a mapping drops it then and opens it again.
    pub fn retirements(&self) -> u64 {
        self.retired.load(Ordering::Acquire)
    }

    fn mapped(&self) -> MutexGuard<'_, Mapped> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for SharedMemory {
    fn name(&self) -> &'static str {
        "shared-memory"
    }

    fn kind(&self) -> ChannelKind {
        ChannelKind::Memory
    }

    fn reach(&self, peer: &Peer) -> Reach {
        // Ranks of one process may stand for several nodes.
        if peer.same_node {
            return Reach::At { cost: 1 };
        }
        let why = "the rank is on another node, whose memory cannot be mapped; a plan for several nodes joins them by port channels";
        Reach::No { why: why.to_owned() }
    }
}

impl Mapping for SharedMemory {
    fn register(&self, memory: &Arc<dyn Memory>) -> Result<Offer, TransportError> {
        let parts = memory.export_parts()?;
        let descriptors = parts.iter().filter_map(MemoryHandle::descriptor);
        let descriptors = descriptors.map(|descriptor| descriptor.try_clone_to_owned());
        let descriptors = descriptors.collect::<Result<_, _>>().map_err(|error| {
            let what = "duplicate a memory's descriptor".to_owned();
            antiphon_hal::HalError::System { what, source: error }
        })?;
        let blob = MemoryHandle::parts_to_blob(&parts);
        Ok(Offer { region: memory.id(), blob, descriptors })
    }

    fn accept(&self, peer: u32, offer: Offer) -> Result<(), TransportError> {
        let parts = MemoryHandle::parts_from_blob(&offer.blob, offer.descriptors)?;
        let serves = |device: &&Arc<dyn Device>| {
            parts.first().is_some_and(|part| device.backend() == part.backend())
        };
        // A device refuses what is not its own, and says what it is.
        let device = self.devices.iter().find(serves).unwrap_or(&self.devices[0]);
        let memory = device.import_parts(&parts)?;
        self.mapped().insert((peer, offer.region), memory);
        self.accepted.notify_all();
        Ok(())
    }

    fn retire(&self, peer: u32, region: u64) -> Option<Arc<dyn Memory>> {
        let gone = self.mapped().remove(&(peer, region));
        self.retired.fetch_add(1, Ordering::AcqRel);
        gone
    }

    fn open(&self, peer: &Peer, buffer: &RemoteBuffer) -> Result<Option<Handle>, TransportError> {
        match *buffer {
            RemoteBuffer::Plain { address } if peer.same_process => {
                let address = std::ptr::with_exposed_provenance_mut(address as usize);
                Ok(Some(Handle::Mapped { address, memory: None }))
            }
            RemoteBuffer::Plain { address } => Ok(Some(Handle::Process { pid: peer.pid, address })),
            RemoteBuffer::Region { region, offset, bytes } => {
                let Some(memory) = self.region(peer.rank, region) else { return Ok(None) };
                let length = memory.len();
                if offset.checked_add(bytes).is_none_or(|end| end > length) {
                    let peer = peer.rank;
                    return Err(TransportError::Outside { peer, region, offset, bytes, length });
                }
                let address = memory.address().wrapping_add(offset as usize);
                Ok(Some(Handle::Mapped { address, memory: Some(memory) }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_hal::{Backend, driver};

    const PEER: Peer =
        Peer { rank: 1, pid: 1, same_process: false, same_node: true, process_access: false };

    fn transport() -> (Arc<dyn Device>, SharedMemory) {
        let device = driver(Backend::Host).unwrap().open(0).unwrap();
        (Arc::clone(&device), SharedMemory::new(device))
    }

    fn region(region: u64, offset: u64, bytes: u64) -> RemoteBuffer {
        RemoteBuffer::Region { region, offset, bytes }
    }

    #[test]
    fn an_accepted_region_opens_as_the_same_bytes_until_it_is_retired() {
        let (device, transport) = transport();
        let memory = device.allocate(8192).unwrap();
        let id = memory.id();
        assert!(transport.open(&PEER, &region(id, 0, 1)).unwrap().is_none());
        transport.accept(1, transport.register(&memory).unwrap()).unwrap();
        let handle = transport.open(&PEER, &region(id, 100, 8)).unwrap();
        let Some(Handle::Mapped { address, memory: Some(_) }) = handle else {
            panic!("{handle:?}")
        };
        // SAFETY: both pointers are inside live mappings of the same 8192 bytes.
        let seen = unsafe {
            memory.address().add(100).write_volatile(7);
            address.read_volatile()
        };
        assert_eq!(seen, 7);
        let before = transport.retirements();
        assert!(transport.retire(1, id).is_some() && transport.retire(1, id).is_none());
        assert_ne!(transport.retirements(), before);
        assert!(transport.open(&PEER, &region(id, 0, 1)).unwrap().is_none());
    }

    #[test]
    fn a_buffer_outside_its_region_is_refused() {
        let (device, transport) = transport();
        let memory = device.allocate(4096).unwrap();
        transport.accept(1, transport.register(&memory).unwrap()).unwrap();
        for (offset, bytes) in [(0, 4097), (4096, 1), (u64::MAX, 2)] {
            let text =
                transport.open(&PEER, &region(memory.id(), offset, bytes)).unwrap_err().to_string();
            assert!(text.contains("rank 1") && text.contains("4096"), "{text}");
        }
    }

    #[test]
    fn a_rank_of_this_process_that_stands_for_another_node_is_out_of_reach() {
        let (_, transport) = transport();
        for same_node in [false, true] {
            let peer = Peer { same_process: true, same_node, ..PEER };
            assert_eq!(matches!(transport.reach(&peer), Reach::At { .. }), same_node);
        }
    }

    #[test]
    fn plain_memory_is_an_address_here_or_in_the_other_process() {
        let (_, transport) = transport();
        let plain = RemoteBuffer::Plain { address: 64 };
        let there = transport.open(&PEER, &plain).unwrap();
        assert!(matches!(there, Some(Handle::Process { pid: 1, address: 64 })));
        let here = Peer { same_process: true, ..PEER };
        let here = transport.open(&here, &plain).unwrap();
        assert!(matches!(here, Some(Handle::Mapped { memory: None, .. })));
    }
}
