//! The ends of a wire, in one process: what a case posts from and to.

use super::support::Pair;
use antiphon_hal::{Backend, Device, Memory, driver};
use antiphon_port::{
    Link, LocalWire, MappedRegions, Registration, Settings, SharedRegions, SharedWire, Wire,
    WireDriver, WireError,
};
use antiphon_transport::Peer;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One end per rank.
pub struct Ends {
    /// Where memory comes from.
    pub device: Arc<dyn Device>,
    /// The end of each rank.
    pub wires: Vec<Arc<dyn Wire>>,
    /// For wires that find peers' memory mapped instead of being told: what they look it up in.
    pub table: Option<Arc<Table>>,
    /// Within what time the loss of a peer is told; `None` where there is nothing to lose.
    pub loss: Option<Duration>,
    /// How long something may take before it is called missing.
    pub patience: Duration,
}

/// A registered memory of one rank.
pub struct Region {
    /// The memory.
    pub memory: Arc<dyn Memory>,
    /// What the wire said.
    pub registration: Registration,
}

impl Region {
    /// The region's number.
    pub fn number(&self) -> u64 {
        self.registration.region
    }

    /// Tells a peer's link of the region.
    pub fn tell(&self, link: &Arc<dyn Link>) {
        let Registration { region, bytes, blob, .. } = &self.registration;
        link.accept(*region, *bytes, blob).expect("a region that was registered is accepted");
    }
}

impl Ends {
    /// The ends `wires`, of ranks on different nodes, with memory of `device`.
    pub fn new(device: Arc<dyn Device>, wires: Vec<Arc<dyn Wire>>) -> Self {
        let loss = Some(Duration::from_secs(20));
        Ends { device, wires, table: None, loss, patience: Duration::from_secs(30) }
    }

    /// Ends of `ranks` ranks that `wires` opens over `interface`, with memory of the host.
    ///
    /// # Errors
    /// Where the wire is not available.
    pub fn open(
        wires: &dyn WireDriver,
        interface: Option<&str>,
        ranks: u32,
    ) -> Result<Self, WireError> {
        let ends = (0..ranks).map(|rank| {
            let settings = Settings::new(rank, [0x5a; 32]);
            wires.open(&settings.with_interface(interface.map(str::to_owned)))
        });
        Ok(Ends::new(host(), ends.collect::<Result<_, _>>()?))
    }

    /// Ends of `ranks` ranks that map each other's memory.
    pub fn local(ranks: u32) -> Self {
        let table = Arc::new(Table::default());
        let wire = || Arc::new(LocalWire::new(table.clone())) as Arc<dyn Wire>;
        let wires = (0..ranks).map(|_| wire()).collect();
        Ends { loss: None, table: Some(table), ..Ends::new(host(), wires) }
    }

    /// Ends of `ranks` ranks that share memory, and are no neighbours.
    pub fn shared(ranks: u32) -> Self {
        let table = Arc::new(Table::default());
        let wire = |rank| {
            let sharing = Sharing { rank, table: Arc::clone(&table) };
            Arc::new(SharedWire::new(Arc::new(sharing))) as Arc<dyn Wire>
        };
        let wires = (0..ranks).map(wire).collect();
        Ends { loss: None, table: Some(table), ..Ends::new(host(), wires) }
    }

    /// Registers `bytes` bytes of new memory with the end of `rank`.
    pub fn region(&self, rank: u32, bytes: u64) -> Region {
        let memory = self.device.allocate(bytes).expect("memory");
        self.register(rank, memory)
    }

    /// Registers `memory` with the end of `rank`.
    pub fn register(&self, rank: u32, memory: Arc<dyn Memory>) -> Region {
        let registration = self.wires[rank as usize].register(&memory).expect("a registration");
        assert_eq!((registration.region, registration.bytes), (memory.id(), memory.len()));
        if let Some(table) = &self.table {
            table.insert(rank, &memory);
        }
        Region { memory, registration }
    }

    /// Ends a registration on the side of `rank`; its peers' links retire it themselves.
    pub fn withdraw(&self, rank: u32, region: &Region) {
        if let Some(table) = &self.table {
            table.remove(rank, region.number());
        }
    }

    /// A link between two ranks: the end of `a`, and that of `b`. It may still be coming up.
    pub fn connect(&self, a: u32, b: u32) -> (Arc<dyn Link>, Arc<dyn Link>) {
        let from_a = self.wires[a as usize].open(b).expect("an opening");
        let from_b = self.wires[b as usize].open(a).expect("an opening");
        let (at_a, at_b) = (from_a.address(), from_b.address());
        let a = from_a.connect(&at_b).expect("an address that the peer gave is taken");
        (a, from_b.connect(&at_a).expect("an address that the peer gave is taken"))
    }

    /// The link between ranks 0 and 1.
    pub fn pair(&self) -> Pair {
        let (a, b) = self.connect(0, 1);
        Pair { a, b, patience: self.patience }
    }

    /// What rank `rank` is to the others.
    pub fn peer(&self, rank: u32) -> Peer {
        let same_node = self.table.is_some();
        Peer {
            rank,
            pid: std::process::id(),
            same_process: false,
            same_node,
            process_access: false,
        }
    }
}

impl fmt::Debug for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ends").field("wires", &self.wires).finish_non_exhaustive()
    }
}

fn host() -> Arc<dyn Device> {
    let host = driver(Backend::Host).expect("the host is built in");
    host.open(0).expect("the host has a device")
}

/// The memories of all ranks, as if each had mapped the others'.
#[derive(Debug, Default)]
pub struct Table(Mutex<HashMap<(u32, u64), Arc<dyn Memory>>>);

impl Table {
    fn insert(&self, rank: u32, memory: &Arc<dyn Memory>) {
        self.0.lock().unwrap().insert((rank, memory.id()), Arc::clone(memory));
    }

    fn remove(&self, rank: u32, region: u64) {
        self.0.lock().unwrap().remove(&(rank, region));
    }
}

/// The table, for one rank.
#[derive(Debug)]
struct Sharing {
    rank: u32,
    table: Arc<Table>,
}

impl MappedRegions for Sharing {
    fn region(&self, peer: u32, region: u64) -> Option<Arc<dyn Memory>> {
        self.table.region(peer, region)
    }
}

impl SharedRegions for Sharing {
    fn reaches(&self, peer: u32) -> bool {
        peer != self.rank
    }

    fn share(&self, memory: &Arc<dyn Memory>) -> Result<(), WireError> {
        self.table.insert(self.rank, memory);
        Ok(())
    }

    fn forget(&self, peer: u32, region: u64) {
        self.table.remove(peer, region);
    }
}

impl MappedRegions for Table {
    fn region(&self, peer: u32, region: u64) -> Option<Arc<dyn Memory>> {
        self.0.lock().unwrap().get(&(peer, region)).cloned()
    }
}
