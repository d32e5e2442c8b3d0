//! The TCP wire: one-sided writes into registered memory between any two hosts.
//!
//! Each end listens on one address; of two openings the one of the lower rank dials. The connections of a link, its
//! stripes, prove that they have the communicator's key before anything else is said. Bytes of writes go from the
//! source's memory to the kernel, and from the kernel to their place in the peer's, except few that are cheaper to copy
//! along with what surrounds them; [`Unit::Packets`](crate::Unit) writes are stored by the receiver, unit by unit. What
//! travels is neither encrypted nor protected against a network that changes it.
//!
//! A connection that breaks, or is silent for too long while something is under way, loses its link, which says why.

mod address;
mod coming;
mod dial;
mod door;
mod flow;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod interface;
mod link;
mod protocol;
mod regions;
mod socket;
#[cfg(test)]
mod tests;

use crate::WireError;
use crate::wire::{Link, Opening, Registration, Settings, Wire, WireDriver, check_host};
use address::Address;
use antiphon_hal::Memory;
use antiphon_transport::interface::{alike, default_address, interfaces};
use antiphon_transport::room::is_full;
use antiphon_transport::topology::Topology;
use antiphon_transport::{Peer, Reach};
use coming::{Coming, Limits};
use dial::Way;
use door::{Door, Lobby};
use link::{Parts, TcpLink};
use protocol::hello::{Hello, derive};
use regions::RegionTable;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "tcp";
/// What moving a byte costs, compared with other wires.
const COST: u32 = 100;
/// The most connections of one link.
const MOST_CONNECTIONS: u16 = 32;
/// Longer than any job lasts, and short enough for every clock and timer.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// How ends of the TCP wire behave.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Connections of a link, 1 to 32; the two ends take the lower of their numbers. The first carries what is small,
    /// the others large writes.
    pub connections: u16,
    /// How long a link may take to come up.
    pub patience: Duration,
    /// How long a peer's machine may be silent before the link is lost; and how long a peer may take nothing of what is sent to
    /// it, as when its process is stopped. The kernel takes 24 days at the most, and longer silences count as that.
    pub silence: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let (patience, silence) = (Duration::from_secs(10), Duration::from_secs(10));
        Options { connections: 4, patience, silence }
    }
}

/// Makes ends of the TCP wire.
#[derive(Clone, Debug, Default)]
pub struct TcpDriver {
    options: Options,
}

impl TcpDriver {
    /// A driver with options of its own.
    pub fn new(mut options: Options) -> Self {
        options.patience = options.patience.min(FOR_EVER);
        TcpDriver { options }
    }
}

impl WireDriver for TcpDriver {
    fn name(&self) -> &str {
        NAME
    }

    fn open(&self, settings: &Settings) -> Result<Arc<dyn Wire>, WireError> {
        let connections = self.options.connections;
        if !(1..=MOST_CONNECTIONS).contains(&connections) {
            let saw = format!("{connections} connections to a link");
            return Err(invalid("open an end", saw, format!("1 to {MOST_CONNECTIONS}")));
        }
        let all = interfaces().map_err(|error| system("list interfaces", &error))?;
        let unavailable = |reason, cure: &str| WireError::Unavailable {
            wire: NAME.to_owned(),
            reason,
            cure: cure.to_owned(),
        };
        let wanted = settings.interface.as_deref();
        let chosen = interface::choose(wanted, settings.met, &all, default_address);
        let address = chosen.map_err(|reason| {
            unavailable(reason, "name an interface that is up, one of its addresses, or a prefix")
        })?;
        let (address, why) = match wanted {
            Some(_) => (address, None),
            None => {
                let alike = alike(address).map_err(|error| system("list interfaces", &error))?;
                let topology = Topology::of_machine();
                let from = topology.viewpoint_of_thread(settings.device);
                interface::nearest(address, alike, (&topology, &from))
            }
        };
        let address = SocketAddr::new(address, 0);
        let key = derive(&settings.key);
        let door =
            Door::open(settings.rank, key, address, self.options.patience).map_err(|error| {
                let reason = format!("cannot listen at {}: {error}", address.ip());
                unavailable(reason, to_listen(&error))
            })?;
        // Whoever listens elsewhere than the ranks met speaks from there, too.
        let from = (wanted.is_some() || why.is_some()).then_some(address);
        let (door, regions, options) = (Arc::new(door), Arc::default(), self.options.clone());
        Ok(Arc::new(TcpWire { door, regions, options, from, why }))
    }
}

/// What to do if the system lets nobody listen.
fn to_listen(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(errno) if is_full(errno) => {
            "raise the limit on open files (`ulimit -n`), or free memory"
        }
        Some(Errno::ACCESS | Errno::PERM) => "run where that is permitted",
        _ => "choose an interface or address that this machine has",
    }
}

/// One rank's end.
#[derive(Debug)]
struct TcpWire {
    door: Arc<Door>,
    regions: Arc<RegionTable>,
    options: Options,
    from: Option<SocketAddr>,
    /// Why it listens at another address than the ranks met by.
    why: Option<String>,
}

impl Wire for TcpWire {
    fn name(&self) -> &str {
        NAME
    }

    fn reach(&self, _: &Peer) -> Reach {
        Reach::At { cost: COST }
    }

    fn describe(&self) -> String {
        let connections = self.options.connections;
        let why = self.why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        format!("tcp at {}{why}, {connections} connections to a link", self.door.address)
    }

    fn register(&self, memory: &Arc<dyn Memory>) -> Result<Registration, WireError> {
        // The kernel's sockets read and write no other memory.
        check_host(NAME, memory)?;
        let (region, bytes) = (memory.id(), memory.len());
        let keep = Box::new(self.regions.add(memory));
        Ok(Registration { region, bytes, blob: Vec::new(), keep })
    }

    fn open(&self, peer: u32) -> Result<Box<dyn Opening>, WireError> {
        let token = socket::random().map_err(|error| system("open a link", &error))?;
        let poller = socket::poller().map_err(|error| system("open a link", &error.into()))?;
        let lobby = Arc::new(Lobby::new(token, peer, self.options.connections, poller));
        self.door.expect(&lobby);
        let (door, regions) = (Arc::clone(&self.door), Arc::clone(&self.regions));
        let (options, from) = (self.options.clone(), self.from);
        Ok(Box::new(TcpOpening { door, regions, lobby, options, from }))
    }
}

/// Half a link.
#[derive(Debug)]
struct TcpOpening {
    door: Arc<Door>,
    regions: Arc<RegionTable>,
    lobby: Arc<Lobby>,
    options: Options,
    from: Option<SocketAddr>,
}

impl Opening for TcpOpening {
    fn address(&self) -> Vec<u8> {
        let (rank, stripes) = (self.door.rank, self.options.connections);
        Address { rank, stripes, token: self.lobby.token, listens: self.door.address }.bytes()
    }

    fn connect(self: Box<Self>, address: &[u8]) -> Result<Arc<dyn Link>, WireError> {
        let TcpOpening { door, regions, lobby, options, from } = *self;
        let peer = lobby.peer;
        let Some(there) = Address::read(address).filter(|address| address.rank == peer) else {
            let saw = format!("{} bytes that are no address of rank {peer}", address.len());
            return Err(invalid("connect a link", saw, "what the peer's opening said"));
        };
        let stripes = options.connections.min(there.stripes);
        let limits = Limits { stripes, limit: options.patience, silence: options.silence };
        let coming = if (door.rank, lobby.token) < (peer, there.token) {
            let hello = Hello {
                ranks: [door.rank, peer],
                tokens: [lobby.token, there.token],
                stripe: 0,
                stripes,
                nonce: [0; 32],
            };
            // An address of the other family cannot be dialled from.
            let from = from.filter(|from| from.is_ipv4() == there.listens.is_ipv4());
            let way = Way { to: there.listens, from, key: door.key };
            door.forget(&lobby.token);
            Coming::dial(way, &hello, &limits, &lobby)
        } else {
            Coming::wait(there.token, &limits, &door, &lobby)
        };
        let fault = |reason: String| WireError::System {
            operation: "connect a link",
            wire: NAME.to_owned(),
            reason,
        };
        let coming = coming.map_err(fault)?;
        let bell = socket::bell().map_err(|error| fault(error.to_string()))?;
        socket::watch(&lobby.poller, &bell, EventFlags::empty(), EventFlags::IN)
            .map_err(|error| fault(error.to_string()))?;
        let there = there.listens;
        Ok(Arc::new(TcpLink::new(Parts {
            peer,
            there,
            stripes,
            door,
            lobby,
            regions,
            coming,
            bell,
        })))
    }
}

fn invalid(operation: &'static str, saw: String, allowed: impl Into<String>) -> WireError {
    WireError::Invalid { operation, wire: NAME.to_owned(), saw, allowed: allowed.into() }
}

fn system(operation: &'static str, error: &io::Error) -> WireError {
    WireError::System { operation, wire: NAME.to_owned(), reason: error.to_string() }
}
