//! What a staged link stands on: a wire's link, and names for memory.

use super::parcels::{BYTES, Place};
use crate::gpu::Peers;
use crate::gpu::slots::Slots;
use crate::ports::Ports;
use crate::sync::lock;
use antiphon_codegen::abi::FOREIGN;
use antiphon_hal::Memory;
use antiphon_port::Attended;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

/// The wire's link once it stands, and where parcels are.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The link.
    pub attended: Arc<Attended>,
    /// This rank's parcels, as the wire knows them.
    pub source: Arc<dyn Memory>,
    /// The peer's.
    pub region: u64,
}

/// How far a path is.
#[derive(Debug)]
pub enum Peering {
    /// It stands.
    Reached(Reached),
    /// Not yet.
    Soon,
    /// Never, or no longer; with the reason.
    Lost(String),
}

/// What a staged link stands on.
pub trait Path: Send + Sync + fmt::Debug {
    /// The wire's link.
    fn reach(&self) -> Peering;

    /// How the peer knows bytes of its memory that kernels here name by an address.
    fn name(&self, address: u64, bytes: u64) -> Place;

    /// The address of device memory of this rank that the peer names; `None` where there is none that it was told of.
    fn find(&self, region: u64, offset: u64, bytes: u64) -> Option<u64>;

    /// Whether a memory of this rank's is still there for wires.
    fn keeps(&self, region: u64) -> bool;

    /// Whether the wire takes a memory of this rank's, to read it, and write it for the peer.
    fn takes(&self, region: u64) -> bool;

    /// That memory as the wire knows it; `None` if the wire does not take it.
    fn lends(&self, region: u64) -> Option<Arc<dyn Memory>>;

    /// Whether the wire knows a region of the peer's.
    fn knows(&self, region: u64) -> bool;

    /// So many bytes went from this rank's device memory to the peer's without parcels.
    fn count(&self, bytes: u64);
}

/// A path over the wire that ranks have for port channels.
pub struct OverPorts {
    peer: u32,
    ports: Arc<Ports>,
    peers: Arc<Peers>,
    slots: Arc<Mutex<Slots>>,
    /// The number of this rank's parcels.
    own: u64,
    reached: OnceLock<Reached>,
}

impl fmt::Debug for OverPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverPorts").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl OverPorts {
    /// The path to `peer` for the parcels in `memory`, which the peer is to be told of.
    ///
    /// # Errors
    /// What a wire reports.
    pub fn new(
        peer: u32,
        memory: &Arc<dyn Memory>,
        (ports, peers): (&Arc<Ports>, &Arc<Peers>),
        slots: &Arc<Mutex<Slots>>,
    ) -> Result<Self, String> {
        debug_assert_eq!(memory.len(), BYTES);
        ports.announce(memory).map_err(|error| error.to_string())?;
        Ok(OverPorts {
            peer,
            ports: Arc::clone(ports),
            peers: Arc::clone(peers),
            slots: Arc::clone(slots),
            own: memory.id(),
            reached: OnceLock::new(),
        })
    }

    fn find_link(&self) -> Result<Option<Reached>, String> {
        let Some(region) = self.peers.parcels(self.peer) else { return Ok(None) };
        let link = self.ports.link(self.peer).map_err(|error| error.to_string())?;
        let known = self.ports.knows(self.peer, region);
        let (Some(attended), Some(source)) = (link.filter(|_| known), self.ports.own(self.own))
        else {
            return Ok(None);
        };
        Ok(Some(Reached { attended: Arc::clone(attended), source, region }))
    }
}

impl Path for OverPorts {
    fn reach(&self) -> Peering {
        if let Some(lost) = self.ports.lost(self.peer) {
            return Peering::Lost(lost.to_string());
        }
        if let Some(reached) = self.reached.get() {
            return Peering::Reached(reached.clone());
        }
        match self.find_link() {
            Ok(Some(reached)) => Peering::Reached(self.reached.get_or_init(|| reached).clone()),
            Ok(None) => {
                self.ports.miss(self.peer);
                Peering::Soon
            }
            Err(reason) => Peering::Lost(reason),
        }
    }

    fn name(&self, address: u64, bytes: u64) -> Place {
        let named = self.peers.tables.name(self.peer, address, bytes);
        let (region, offset) = named.unwrap_or((FOREIGN, address));
        Place { region, offset }
    }

    fn keeps(&self, region: u64) -> bool {
        self.ports.keeps(region)
    }

    fn takes(&self, region: u64) -> bool {
        self.ports.takes(self.peer, region)
    }

    fn lends(&self, region: u64) -> Option<Arc<dyn Memory>> {
        self.ports.lends(self.peer, region)
    }

    fn knows(&self, region: u64) -> bool {
        self.ports.knows(self.peer, region)
    }

    fn count(&self, bytes: u64) {
        self.ports.count_direct(self.peer, bytes);
    }

    fn find(&self, region: u64, offset: u64, bytes: u64) -> Option<u64> {
        lock(&self.slots).find(region, offset, bytes)
    }
}
