//! This rank's regions as its wires know them.

use super::lend::Lent;
use super::message::Said;
use super::{Ports, State};
use crate::error::ExecutorError;
use antiphon_hal::Memory;
use antiphon_port::{Registration, Wire, WireError};
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
}

impl OwnRegion {
    fn new(memory: &Arc<dyn Memory>) -> Self {
        OwnRegion { lent: Arc::new(Lent::new(memory)), registrations: HashMap::new() }
    }

    /// The memory, as wires know it.
    fn memory(&self) -> Arc<dyn Memory> {
        Arc::clone(&self.lent) as Arc<dyn Memory>
    }

    /// Registers the region with a wire, and says what peers need to know.
    fn register(&mut self, number: usize, wire: &dyn Wire) -> Result<Said, WireError> {
        if !self.registrations.contains_key(&number) {
            self.registrations.insert(number, wire.register(&self.memory())?);
        }
        let Registration { region, bytes, blob, .. } = &self.registrations[&number];
        Ok(Said::Region { region: *region, bytes: *bytes, blob: blob.clone() })
    }
}

impl OwnRegions {
    /// Registers all regions with a wire that has its first link, or another; what to tell the link's peer.
    pub fn register(&mut self, number: usize, wire: &dyn Wire) -> Result<Vec<Said>, WireError> {
        if !self.used.contains(&number) {
            self.used.push(number);
        }
        self.regions.values_mut().map(|region| region.register(number, wire)).collect()
    }

    /// Regions that nobody but the wires holds any more.
    fn abandoned(&mut self) -> Vec<(u64, OwnRegion)> {
        self.regions.extract_if(|_, region| region.lent.is_abandoned()).collect()
    }
}

impl Ports {
    /// Notes a memory that all links' peers will be told of. Before the first link.
    pub fn keep(&self, memory: &Arc<dyn Memory>) {
        let region = OwnRegion::new(memory);
        self.state().own.regions.insert(memory.id(), region);
    }

    /// Registers a memory with the wires that have links, and tells the links' peers; once.
    ///
    /// # Errors
    /// What a wire reports.
    pub fn announce(&self, memory: &Arc<dyn Memory>) -> Result<(), ExecutorError> {
        if !self.active.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut state = self.state();
        let State { own, .. } = &mut *state;
        if own.regions.contains_key(&memory.id()) {
            return Ok(());
        }
        let mut region = OwnRegion::new(memory);
        let mut said = Vec::new();
        for &wire in &own.used {
            let news = region.register(wire, &*self.wires[wire]).map_err(|source| {
                let (saw, allowed) = (source.to_string(), "memory that wires can register");
                ExecutorError::Argument { what: "use a buffer with port channels", saw, allowed }
            })?;
            said.push((wire, news));
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
        if !self.active.load(Ordering::Acquire) {
            return;
        }
        let abandoned = self.state().own.abandoned();
        for (region, own) in abandoned {
            for &wire in own.registrations.keys() {
                self.tell(wire, &Said::Retire { region });
            }
        }
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
