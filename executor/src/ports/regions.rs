//! This rank's regions as its wires know them.

use super::lend::Lent;
use super::message::Said;
use super::{Ports, State};
use crate::error::ExecutorError;
use antiphon_hal::Memory;
use antiphon_port::{Registration, Wire, WireError};
use log::debug;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The regions that peers may be told of.
#[derive(Default)]
pub struct OwnRegions {
    regions: HashMap<u64, OwnRegion>,
    /// Wires with links: what is announced is registered with them.
    used: Vec<usize>,
}

struct OwnRegion {
    /// What wires hold, too.
    lent: Arc<Lent>,
    registrations: HashMap<usize, Registration>,
    /// It is memory of a GPU, which not all wires take: what has to do with it goes another way then.
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

    /// Registers the region with a wire, and says what peers need to know; nothing if the wire does not take it, and need not.
    fn register(&mut self, number: usize, wire: &dyn Wire) -> Result<Option<Said>, WireError> {
        if !self.registrations.contains_key(&number) {
            if self.may_lack && !wire.takes_gpu_memory() {
                return Ok(None);
            }
            match wire.register(&self.memory()) {
                Ok(registration) => drop(self.registrations.insert(number, registration)),
                Err(error) if self.may_lack => {
                    let (bytes, name) = (self.lent.len(), wire.name());
                    debug!("{bytes} bytes of a GPU are staged over the wire {name}: {error}");
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        let Registration { region, bytes, blob, .. } = &self.registrations[&number];
        Ok(Some(Said::Region { region: *region, bytes: *bytes, blob: blob.clone() }))
    }
}

impl OwnRegions {
    /// Registers all regions with a wire that has its first link, or another; what to tell the link's peer.
    pub fn register(&mut self, number: usize, wire: &dyn Wire) -> Result<Vec<Said>, WireError> {
        if !self.used.contains(&number) {
            self.used.push(number);
        }
        let told = self.regions.values_mut().map(|region| region.register(number, wire));
        told.filter_map(Result::transpose).collect()
    }

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

    /// The same as [`announce`](Self::announce) with memory of a GPU, as far as there are wires that take it: [`lends`](Self::lends) says so.
    pub fn announce_of_gpu(&self, memory: &Arc<dyn Memory>) {
        if self.take_gpu_memory() {
            // Nothing fails that need not work.
            let _ = self.offer(memory, true);
        }
    }

    fn offer(&self, memory: &Arc<dyn Memory>, may_lack: bool) -> Result<(), ExecutorError> {
        if !self.active.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut state = self.state();
        let State { own, .. } = &mut *state;
        if own.regions.contains_key(&memory.id()) {
            return Ok(());
        }
        let mut region = OwnRegion::new(memory, may_lack);
        let mut said = Vec::new();
        for &wire in &own.used {
            let news = region.register(wire, &*self.wires[wire]).map_err(|source| {
                let (saw, allowed) = (source.to_string(), "memory that wires can register");
                ExecutorError::Argument { what: "use a buffer with port channels", saw, allowed }
            })?;
            said.extend(news.map(|news| (wire, news)));
        }
        own.regions.insert(memory.id(), region);
        for (wire, news) in said {
            self.tell(wire, &news);
        }
        Ok(())
    }

    /// Tells the peers linked by a wire.
    fn tell(&self, wire: usize, news: &Said) {
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

    /// The same, for memory that must not be freed just now: what keeps it.
    pub fn take_abandoned(&self) -> Vec<impl Send + use<>> {
        if !self.active.load(Ordering::Acquire) {
            return Vec::new();
        }
        let abandoned = self.state().own.abandoned();
        for (region, own) in &abandoned {
            for &wire in own.registrations.keys() {
                self.tell(wire, &Said::Retire { region: *region });
            }
        }
        abandoned.into_iter().map(|(_, own)| own).collect()
    }

    /// The memory of one of this rank's regions, as the wire to a peer knows it; `None` where it does not.
    pub fn lends(&self, peer: u32, region: u64) -> Option<Arc<dyn Memory>> {
        let wire = self.links[peer as usize].get()?.wire?;
        let state = self.state();
        let own = state.own.regions.get(&region)?;
        own.registrations.contains_key(&wire).then(|| own.memory())
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
