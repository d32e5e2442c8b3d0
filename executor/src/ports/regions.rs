//! This rank's regions as its wires know them.

use super::Ports;
use super::lend::Lent;
use super::message::LinkMessage;
use crate::communicator::Whose;
use crate::error::ExecutorError;
use antiphon_hal::Memory;
use antiphon_port::{Registration, Wire, WireError};
use log::debug;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

/// The regions that peers may be told of.
#[derive(Default)]
pub struct OwnRegions {
    regions: HashMap<u64, OwnRegion>,
    /// Wires with links: what is announced is registered with them.
    used: Vec<usize>,
}

struct OwnRegion {
    /// The memory, which wires hold, too.
    lent: Arc<Lent>,
    registrations: HashMap<usize, Registration>,
    /// It is memory of a GPU, which not all wires take: transfers of it go another way then.
    may_lack: bool,
}

impl OwnRegion {
    fn new(memory: &Arc<dyn Memory>, may_lack: bool) -> Self {
        let (lent, registrations) = (Arc::new(Lent::new(memory)), HashMap::new());
        OwnRegion { lent, registrations, may_lack }
    }

    /// The memory, as wires know it.
    fn memory(&self) -> Arc<dyn Memory> {
        Arc::clone(&self.lent) as Arc<dyn Memory>
    }

    /// What peers linked by a wire need to know of it; `None` if the wire does not take it.
    fn told(&self, wire: usize) -> Option<LinkMessage> {
        let Registration { region, bytes, blob, .. } = self.registrations.get(&wire)?;
        Some(LinkMessage::Region { region: *region, bytes: *bytes, blob: blob.clone() })
    }
}

/// Registers a memory with a wire; `None` if the wire does not take it, and need not.
fn register(
    whose: &Whose,
    lent: &Arc<Lent>,
    may_lack: bool,
    wire: &dyn Wire,
) -> Result<Option<Registration>, WireError> {
    if may_lack && !wire.takes_gpu_memory() {
        return Ok(None);
    }
    match wire.register(&(Arc::clone(lent) as Arc<dyn Memory>)) {
        Ok(registration) => Ok(Some(registration)),
        Err(error) if may_lack => {
            let (bytes, name) = (lent.len(), wire.name());
            debug!("{whose}: {bytes} bytes of a GPU are staged over the wire {name}: {error}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl OwnRegions {
    /// Regions that nobody but the wires holds any more.
    fn abandoned(&mut self) -> Vec<(u64, OwnRegion)> {
        self.regions.extract_if(|_, region| region.lent.is_abandoned()).collect()
    }
}

impl Ports {
    /// Notes a memory that all links' peers will be told of. Before the first link.
    pub fn keep(&self, memory: &Arc<dyn Memory>) {
        let region = OwnRegion::new(memory, false);
        self.state().own.regions.insert(memory.id(), region);
    }

    /// Registers a memory with the wires that have links, and tells the links' peers; once.
    ///
    /// # Errors
    /// What a wire reports.
    pub fn announce(&self, memory: &Arc<dyn Memory>) -> Result<(), ExecutorError> {
        self.offer(memory, false)
    }

    /// Whether there is a wire that takes memory of GPUs.
    pub fn take_gpu_memory(&self) -> bool {
        self.wires.iter().any(|wire| wire.takes_gpu_memory())
    }

    /// [`announce`](Self::announce) for memory of a GPU, with the wires that take it: [`lends`](Self::lends) says whether one does.
    pub fn announce_of_gpu(&self, memory: &Arc<dyn Memory>) {
        // An error does not matter: transfers can go another way.
        let _ = self.offer(memory, true);
    }

    fn offer(&self, memory: &Arc<dyn Memory>, may_lack: bool) -> Result<(), ExecutorError> {
        if !self.active.load(Ordering::Acquire) {
            return Ok(());
        }
        let known = || self.state().own.regions.contains_key(&memory.id());
        if known() {
            return Ok(());
        }
        let _registering = self.registering();
        if known() {
            return Ok(());
        }
        let used = self.state().own.used.clone();
        let mut region = OwnRegion::new(memory, may_lack);
        let mut said = Vec::new();
        for wire in used {
            let registered = register(&self.whose, &region.lent, may_lack, &*self.wires[wire]);
            let registered = registered.map_err(|source| {
                let (saw, allowed) = (source.to_string(), "memory that wires can register");
                ExecutorError::Argument { what: "use a buffer with port channels", saw, allowed }
            })?;
            region.registrations.extend(registered.map(|registration| (wire, registration)));
            said.extend(region.told(wire).map(|news| (wire, news)));
        }
        self.state().own.regions.insert(memory.id(), region);
        for (wire, news) in said {
            self.tell(wire, &news);
        }
        Ok(())
    }

    /// Registers all regions that a wire lacks, once it gets a link; returns what to tell the link's peer.
    ///
    /// # Errors
    /// What the wire reports.
    pub(super) fn register_all(
        &self,
        wire: usize,
        _registering: &MutexGuard<'_, ()>,
    ) -> Result<Vec<LinkMessage>, WireError> {
        let lacking: Vec<_> = {
            let own = &mut self.state().own;
            if !own.used.contains(&wire) {
                own.used.push(wire);
            }
            let lacks = own.regions.iter().filter(|(_, own)| own.told(wire).is_none());
            lacks.map(|(&id, own)| (id, Arc::clone(&own.lent), own.may_lack)).collect()
        };
        for (id, lent, may_lack) in lacking {
            let registered = register(&self.whose, &lent, may_lack, &*self.wires[wire])?;
            // Nothing is taken away meanwhile.
            if let (Some(registration), Some(own)) =
                (registered, self.state().own.regions.get_mut(&id))
            {
                own.registrations.insert(wire, registration);
            }
        }
        Ok(self.state().own.regions.values().filter_map(|own| own.told(wire)).collect())
    }

    /// Tells the peers linked by a wire.
    fn tell(&self, wire: usize, news: &LinkMessage) {
        for (peer, standing) in (0..).zip(&self.links) {
            if standing.get().is_some_and(|standing| standing.wire == Some(wire)) {
                self.say(peer, news.clone());
            }
        }
    }

    /// Ends the registrations of memory that nobody else holds any more.
    pub fn sweep(&self) {
        drop(self.take_abandoned());
    }

    /// Takes out memory that nobody else holds any more, and tells peers. It is freed when the result is dropped.
    pub fn take_abandoned(&self) -> Vec<impl Send + use<>> {
        if !self.active.load(Ordering::Acquire) {
            return Vec::new();
        }
        // Left for later while another thread registers: the thread that watches launches comes here, and must not wait.
        let Ok(_registering) = self.registering.try_lock() else { return Vec::new() };
        let abandoned = self.state().own.abandoned();
        for (region, own) in &abandoned {
            for &wire in own.registrations.keys() {
                self.tell(wire, &LinkMessage::Retire { region: *region });
            }
        }
        abandoned.into_iter().map(|(_, own)| own).collect()
    }

    /// Whether a region of this rank's is still there for wires. As in [`takes`](Self::takes) no handle is taken: the last one frees
    /// the memory.
    pub fn keeps(&self, region: u64) -> bool {
        self.state().own.regions.contains_key(&region)
    }

    /// Whether the wire to a peer knows a region of this rank's.
    pub fn takes(&self, peer: u32, region: u64) -> bool {
        self.lent(peer, region, |_| ()).is_some()
    }

    /// The memory of such a region, as the wire knows it; `None` where it does not.
    pub fn lends(&self, peer: u32, region: u64) -> Option<Arc<dyn Memory>> {
        self.lent(peer, region, OwnRegion::memory)
    }

    fn lent<T>(&self, peer: u32, region: u64, of: impl FnOnce(&OwnRegion) -> T) -> Option<T> {
        let wire = self.links[peer as usize].get()?.wire?;
        let state = self.state();
        let own = state.own.regions.get(&region)?;
        own.registrations.contains_key(&wire).then(|| of(own))
    }

    /// The memory of one of this rank's regions, as wires know it.
    pub fn own(&self, region: u64) -> Option<Arc<dyn Memory>> {
        self.state().own.regions.get(&region).map(OwnRegion::memory)
    }

    /// Whether a region of a peer is known to the link.
    pub fn knows(&self, peer: u32, region: u64) -> bool {
        self.state().peers[peer as usize].regions.contains_key(&region)
    }
}
