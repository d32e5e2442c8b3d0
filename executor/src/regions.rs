//! One-sided registration: telling peers about this rank's memory, and hearing about theirs.
//!
//! A rank that meets a new region sends its offer to the peers' control threads, which accept it without their
//! application calling anything.

use crate::communicator::CONTROL;
use crate::error::ExecutorError;
use crate::freed::Inquirer;
use crate::sync::lock;
use crate::tags::{OFFER, RETIRE};
use antiphon_bootstrap::{Bootstrap, BootstrapError, Message, Voice};
use antiphon_hal::{Device, HalError, Memory};
use antiphon_memory::SharedMemory;
use antiphon_transport::{Mapping, Offer, TransportError};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// The regions of all ranks of a communicator.
#[derive(Debug)]
pub struct Regions {
    host: Arc<dyn Device>,
    /// The device of the ranks' buffers, where that is not the host.
    device: Option<Arc<dyn Device>>,
    /// Where peers' regions are mapped.
    pub memory: Arc<SharedMemory>,
    own: Mutex<Own>,
    /// Regions of peers that could not be mapped any more, until the peers say that they are gone.
    gone: Mutex<HashSet<(u32, u64)>>,
    /// The device's epoch at the last sweep.
    swept: AtomicU64,
    /// Asks whether memory is there still that peers of this process have offered.
    inquirer: Inquirer,
}

#[derive(Debug, Default)]
struct Own {
    announced: HashMap<u64, Weak<dyn Memory>>,
}

/// Sends a peer's control thread a message. One that is gone needs none; whoever needs it from now on finds that it is.
pub fn tell(
    voice: &Voice,
    peer: u32,
    tag: u32,
    payload: Vec<u8>,
    descriptors: Vec<OwnedFd>,
) -> Result<(), ExecutorError> {
    match voice.send(peer, Message { channel: CONTROL, tag, payload, descriptors }) {
        Err(BootstrapError::PeerLeft { .. } | BootstrapError::PeerLost { .. }) => Ok(()),
        sent => Ok(sent?),
    }
}

/// Sends an offer to peers. If it cannot be sent to all, it is taken back from those that have it.
fn offer_to(
    peers: impl Iterator<Item = u32>,
    offer: &Offer,
    voice: &Voice,
) -> Result<(), ExecutorError> {
    let number = offer.region.to_le_bytes();
    let mut told = Vec::new();
    for peer in peers {
        // One peer's at a time: a process may have few descriptors left, and there may be many peers.
        let copies = offer.descriptors.iter().map(OwnedFd::try_clone);
        let descriptors = copies.collect::<Result<_, _>>().map_err(|source| {
            let what = format!("give rank {peer} a descriptor of memory; raise `ulimit -n`");
            HalError::System { what, source }.into()
        });
        let payload = [&number, &offer.blob[..]].concat();
        let sent = descriptors.and_then(|all| tell(voice, peer, OFFER, payload, all));
        if let Err(error) = sent {
            // Those who know of it already keep it mapped until they hear this.
            for peer in told {
                let _ = tell(voice, peer, RETIRE, number.to_vec(), Vec::new());
            }
            return Err(error);
        }
        told.push(peer);
    }
    Ok(())
}

impl Regions {
    /// No regions yet, of the host's memory and of `device`'s.
    pub fn new(host: Arc<dyn Device>, device: Option<Arc<dyn Device>>) -> Self {
        let memory = Arc::new(SharedMemory::over(Arc::clone(&host), device.clone()));
        let (own, gone, swept) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        Regions { host, device, memory, own, gone, swept, inquirer: Inquirer::default() }
    }

    /// The number of a region of this rank; tells the peers about it the first time.
    pub fn announce(
        &self,
        memory: &Arc<dyn Memory>,
        bootstrap: &dyn Bootstrap,
    ) -> Result<u64, ExecutorError> {
        let region = memory.id();
        if self.own().announced.contains_key(&region) {
            return Ok(region);
        }
        // No lock is held: the driver is asked about memory of a device, and the thread that watches launches looks at what is
        // announced.
        let any = peers(bootstrap).next();
        let offer = any.map(|_| self.memory.register(memory)).transpose()?;
        let mut own = self.own();
        if own.announced.contains_key(&region) {
            return Ok(region);
        }
        if let Some(offer) = offer {
            offer_to(peers(bootstrap), &offer, &bootstrap.voice())?;
        }
        own.announced.insert(region, Arc::downgrade(memory));
        Ok(region)
    }

    /// Tells these peers, which are on this machine, about memory of the host.
    pub fn share(
        &self,
        memory: &Arc<dyn Memory>,
        peers: &[u32],
        voice: &Voice,
    ) -> Result<(), ExecutorError> {
        offer_to(peers.iter().copied(), &self.memory.register(memory)?, voice)
    }

    /// Whether peers were told about a memory.
    #[cfg(test)]
    pub fn is_announced(&self, memory: &Arc<dyn Memory>) -> bool {
        self.own().announced.contains_key(&memory.id())
    }

    /// Tells the peers about regions whose memory was freed since the last call. Cheap when nothing was.
    pub fn sweep(&self, bootstrap: &dyn Bootstrap) -> Result<(), ExecutorError> {
        let epoch = self.host.epoch() + self.device.as_ref().map_or(0, |device| device.epoch());
        if self.swept.load(Ordering::Relaxed) == epoch {
            return Ok(());
        }
        self.swept.store(epoch, Ordering::Relaxed);
        let mut own = self.own();
        let mut gone = Vec::new();
        own.announced.retain(|&region, memory| {
            let alive = memory.strong_count() > 0;
            if !alive {
                gone.push(region);
            }
            alive
        });
        for region in gone {
            for peer in peers(bootstrap) {
                let region = region.to_le_bytes().to_vec();
                tell(&bootstrap.voice(), peer, RETIRE, region, Vec::new())?;
            }
        }
        Ok(())
    }

    /// Whether a message with this tag is about regions that are mapped.
    pub fn takes(tag: u32) -> bool {
        matches!(tag, OFFER | RETIRE)
    }

    /// Handles a peer's message about its regions. Hands over the mapping of one that is gone: a driver may let whoever unmaps
    /// it wait for kernels, and these for what comes in the next message.
    ///
    /// # Errors
    /// What this rank lacks for mapping one, or what is wrong with the message.
    pub fn receive(
        &self,
        peer: u32,
        tag: u32,
        payload: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Option<Arc<dyn Memory>>, ExecutorError> {
        let garbled = |found| ExecutorError::Layout { what: "memory handle", peer, found };
        let Some((number, blob)) = payload.split_first_chunk::<8>() else {
            return Err(garbled(format!("a message of {} bytes", payload.len())));
        };
        let region = u64::from_le_bytes(*number);
        match tag {
            OFFER => {
                let offer = Offer { region, blob: blob.to_vec(), descriptors };
                match self.memory.accept(peer, offer) {
                    // No call waits for it: its owner frees it when those that use it are over.
                    Err(TransportError::Hal(HalError::Gone)) => {
                        self.gone().insert((peer, region));
                    }
                    other => other.map_err(ExecutorError::from).map_err(|error| {
                        // The peer is not to blame for what this rank lacks.
                        let own = error.is_of_one_rank();
                        if own { error } else { garbled(error.to_string()) }
                    })?,
                }
                // Memory of this process's application was mapped without a look whether it is there still.
                let mapped = self.memory.region(peer, region);
                if mapped.is_some_and(|memory| self.inquirer.is_freed(&memory)) {
                    self.gone().insert((peer, region));
                    return Ok(self.memory.retire(peer, region));
                }
                Ok(None)
            }
            RETIRE => {
                self.gone().remove(&(peer, region));
                Ok(self.memory.retire(peer, region))
            }
            other => Err(garbled(format!("a message with tag {other}"))),
        }
    }

    /// A region that a peer has offered; `None` if that was gone before it was mapped.
    pub fn offered(&self, peer: u32, region: u64) -> Result<Option<Arc<dyn Memory>>, String> {
        match self.memory.region(peer, region) {
            None if !self.gone().contains(&(peer, region)) => {
                Err("the number of a region it has not offered".to_owned())
            }
            known => Ok(known),
        }
    }

    fn gone(&self) -> MutexGuard<'_, HashSet<(u32, u64)>> {
        lock(&self.gone)
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        lock(&self.own)
    }
}

/// The other ranks of this rank's node: the ones that can map its memory.
fn peers(bootstrap: &dyn Bootstrap) -> impl Iterator<Item = u32> {
    let rank = bootstrap.rank();
    let node = bootstrap.node_of(rank).ok();
    let near = move |peer: u32| peer != rank && bootstrap.node_of(peer).ok() == node;
    (0..bootstrap.world()).filter(move |&peer| near(peer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicator::host;
    use antiphon_bootstrap::in_process;
    use antiphon_hal::MemoryHandle;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    #[test]
    fn a_peer_whose_memory_there_is_no_room_for_is_not_blamed() {
        // No process has so many addresses.
        let bytes = 1 << 62;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = memfd_create("antiphon-test", flags).unwrap();
        ftruncate(&descriptor, bytes).unwrap();
        fcntl_add_seals(&descriptor, SealFlags::SHRINK).unwrap();
        let descriptor = Arc::new(descriptor);
        let handle = MemoryHandle::SharedMemory { descriptor, home: None, bytes };
        let regions = Regions::new(host().unwrap(), None);
        let offer = |blob: &[u8]| {
            let descriptors = vec![handle.descriptor().unwrap().try_clone_to_owned().unwrap()];
            let payload = [&7u64.to_le_bytes(), blob].concat();
            regions.receive(1, OFFER, &payload, descriptors).unwrap_err()
        };
        let error = offer(&MemoryHandle::parts_to_blob(std::slice::from_ref(&handle)));
        assert!(error.is_of_one_rank() && error.peer().is_none(), "{error}");
        assert!(error.to_string().contains("`ulimit -v`"), "{error}");
        let error = offer(&[1]);
        assert!(matches!(error, ExecutorError::Layout { peer: 1, .. }), "{error}");
    }

    #[test]
    fn a_peer_that_has_left_need_not_hear_of_memory() {
        let mut ends = in_process(2).unwrap();
        let host = host().unwrap();
        let own = ends.remove(0);
        drop(ends);
        let word =
            || Message { channel: CONTROL, tag: 0, payload: Vec::new(), descriptors: Vec::new() };
        while !matches!(own.send(1, word()), Err(BootstrapError::PeerLeft { .. })) {
            std::thread::yield_now();
        }
        let regions = Regions::new(Arc::clone(&host), None);
        let memory = host.allocate(4096).unwrap();
        regions.announce(&memory, &*own).unwrap();
        drop(memory);
        regions.sweep(&*own).unwrap();
    }
}
