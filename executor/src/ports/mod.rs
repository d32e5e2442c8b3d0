//! A rank's port channels: its wires, one link to every peer that some plan connects, and the regions behind them.
//!
//! A link is made when a plan is loaded that has port channels between two ranks, by messages between their control
//! threads: the lower rank picks the cheapest wire that both have and opens half a link, the higher one answers with the
//! other half. Then both tell each other of their regions. Nothing here waits.

mod choice;
mod lend;
mod making;
mod message;
mod mirror;
mod regions;
mod wires;

use crate::communicator::{CONTROL, Whose};
use crate::error::{Doing, ExecutorError};
use crate::shared::control::RING;
use crate::sync::{lock, shielded};
use antiphon_bootstrap::{Bootstrap, Voice};
use antiphon_hal::Memory;
use antiphon_port::{Attended, LocalWire, MappedRegions, Opening, Wire, WireError};
use antiphon_transport::{Peer, Transport};
use choice::WireTransport;
use message::LinkMessage;
pub use mirror::Mirrors;
use mirror::{Come, Telling};
use regions::OwnRegions;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, Weak};
use std::time::{Duration, Instant};
use wires::{Closed, Wires};
pub use wires::{LOCAL, SHARED, open_wires, shared_wire, wires};

/// How long a rank that leaves waits for its last transfers to land.
const LINGER: Duration = Duration::from_secs(2);

/// How long a link is lost before that counts as the reason. A peer that dies, aborts or fails takes its links with it, and
/// what it says, or what is said of it, may come a little later than the end of its links.
const GRACE: Duration = Duration::from_millis(500);

/// What is known of a peer's wires.
pub struct Introduction {
    /// The peer.
    pub peer: Peer,
    /// Names of its wires.
    pub wires: Vec<String>,
    /// The region in which this rank's page is mirrored there.
    pub mirrors: u64,
}

/// A link that serves port channels to one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortLink {
    /// The rank at the other end.
    pub peer: u32,
    /// Name of its wire.
    pub wire: String,
    /// What it runs over, for people.
    pub over: String,
    /// Why it is lost, once that counts: half a second after it was found out.
    pub lost: Option<String>,
    /// Bytes that this rank has written over it from its device's memory to the peer's, with no copy in the memory of a host.
    pub direct: u64,
}

/// One rank's port channels on one communicator.
pub struct Ports {
    rank: u32,
    whose: Whose,
    /// A handler of the bootstrap holds the ports.
    voice: Voice,
    wires: Vec<Arc<dyn Wire>>,
    /// Wires that this rank lacks.
    closed: Vec<Arc<Closed>>,
    /// By rank, once it stands.
    links: Box<[OnceLock<Standing>]>,
    /// Some plan has asked for a link.
    active: AtomicBool,
    /// The link with this rank itself was made, or cannot be.
    itself: Once,
    state: Mutex<State>,
    /// Held while memory is registered, which may take long, and, for memory of a GPU, wait for kernels. Only threads that
    /// register take it, before the state.
    registering: Mutex<()>,
    /// How far this rank has come, for mirrors.
    come: Arc<Come>,
    began: Instant,
    /// The second since then in which mirrors were last told that this rank's launches move.
    told_moved: AtomicU64,
    /// Finds this rank's own regions.
    own: Arc<dyn MappedRegions>,
}

/// A rank's own regions, for a link with itself.
struct ToItself(Weak<Ports>);

impl fmt::Debug for ToItself {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToItself")
    }
}

impl MappedRegions for ToItself {
    fn region(&self, _: u32, region: u64) -> Option<Arc<dyn Memory>> {
        self.0.upgrade()?.own(region)
    }
}

/// A link that stands.
struct Standing {
    attended: Arc<Attended>,
    /// Its wire; none is needed to this rank itself.
    wire: Option<usize>,
    /// What the peer is told of this rank's launches.
    telling: Arc<Telling>,
    /// For each slot of the ring, how many posts there were when the descriptor in it was posted.
    described: [AtomicU64; RING as usize],
    /// How many of them are known to have landed.
    landed: AtomicU64,
    /// Why it is lost, and since when.
    lost: Arc<OnceLock<(Instant, WireError)>>,
    /// Bytes from device memory to device memory.
    direct: AtomicU64,
}

#[derive(Default)]
struct State {
    introductions: Vec<Introduction>,
    peers: Vec<Towards>,
    own: OwnRegions,
    /// No link is to be used any more: those that come to stand are ended.
    stopped: bool,
}

/// The way to a link with one peer.
#[derive(Default)]
struct Towards {
    /// Somebody here, or the peer, wants a link.
    wanted: bool,
    /// This rank's half was opened, once and for all.
    opened: bool,
    /// This rank's half, while the peer's is on its way, and its wire.
    opening: Option<(Box<dyn Opening>, usize)>,
    /// Why there is none.
    refused: Option<String>,
    /// The peer has left.
    left: bool,
    /// When the peer was asked last whether it is still there.
    asked: Option<Instant>,
    /// Regions of the peer, by number: bytes.
    regions: HashMap<u64, u64>,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ports").field("rank", &self.rank).field("wires", &self.wires).finish()
    }
}

impl Ports {
    /// The ports of `bootstrap`'s rank over these wires.
    pub fn new(
        bootstrap: &Arc<dyn Bootstrap>,
        whose: &Whose,
        Wires { open: wires, closed }: Wires,
    ) -> Arc<Self> {
        let (rank, world) = (bootstrap.rank(), bootstrap.world() as usize);
        let peers = (0..world).map(|_| Towards::default()).collect();
        Arc::new_cyclic(|ports: &Weak<Ports>| Ports {
            rank,
            whose: whose.clone(),
            voice: bootstrap.voice(),
            wires,
            closed,
            links: (0..world).map(|_| OnceLock::new()).collect(),
            active: AtomicBool::new(false),
            itself: Once::new(),
            state: Mutex::new(State { peers, ..State::default() }),
            registering: Mutex::default(),
            come: Arc::default(),
            began: Instant::now(),
            told_moved: AtomicU64::new(0),
            own: Arc::new(ToItself(ports.clone())),
        })
    }

    /// Names of this rank's wires.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.wires.iter().map(|wire| wire.name())
    }

    /// Called once some plan has port channels. From now on links' peers are told of memory, and there is a link with this rank
    /// itself, or the reason why not. Not before: links start the proxy's thread, which most communicators do not need.
    pub fn enable(&self) {
        self.active.store(true, Ordering::Release);
        self.itself.call_once(|| {
            let opening = LocalWire::new(Arc::clone(&self.own)).open(self.rank);
            let link = opening.and_then(|opening| opening.connect(&[]));
            if let Err(error) = link.and_then(|link| self.stand(self.rank, None, link)) {
                self.state().peers[self.rank as usize].refused = Some(error.to_string());
            }
        });
    }

    /// Tells a peer's control thread. One that cannot be told is lost or has left, which the bootstrap tells by itself.
    fn say(&self, peer: u32, said: LinkMessage) {
        let _ = self.voice.send(peer, said.message(CONTROL));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn registering(&self) -> MutexGuard<'_, ()> {
        lock(&self.registering)
    }

    /// The link to a peer, once it stands and the peer's mirror of this rank's page is known.
    ///
    /// # Errors
    /// Why there is none, or that it is lost.
    pub fn link(&self, peer: u32) -> Result<Option<&Arc<Attended>>, ExecutorError> {
        let standing = self.links[peer as usize].get();
        let ready = |standing: &&Standing| {
            standing.telling.mirror.get().is_some() || self.is_local(standing)
        };
        if let Some(standing) = standing.filter(ready) {
            return Ok(Some(&standing.attended));
        }
        if let Some(lost) = self.lost(peer) {
            return Err(lost);
        }
        // A link of which only this half stands may have been refused by the peer.
        match self.state().peers[peer as usize].refused.clone() {
            None => Ok(None),
            Some(reason) => {
                Err(ExecutorError::Link { peer, reason, doing: Doing::nothing_on(self.rank) })
            }
        }
    }

    /// The error of a link that is lost, once whoever broke the communicator would have been heard of.
    pub fn lost(&self, peer: u32) -> Option<ExecutorError> {
        let reason = self.loss(peer)?;
        Some(ExecutorError::Link { peer, reason, doing: Doing::nothing_on(self.rank) })
    }

    /// Why a link is lost, likewise.
    fn loss(&self, peer: u32) -> Option<String> {
        let (since, error) = self.links[peer as usize].get()?.lost.get()?;
        if since.elapsed() < GRACE {
            return None;
        }
        let said = self.state().peers[peer as usize].refused.clone();
        Some(said.unwrap_or_else(|| error.reason()))
    }

    /// Ends all links, and those that are on their way, for good: no wire writes to this rank's memory any more, or reads
    /// it. For a communicator that is broken.
    pub fn stop(&self) {
        let openings: Vec<_> = {
            let mut state = self.state();
            state.stopped = true;
            state.peers.iter_mut().filter_map(|towards| towards.opening.take()).collect()
        };
        // The fault of one wire leaves nothing of another's under way.
        shielded(|| drop(openings));
        // A link that comes to stand from here on is ended by `stand`.
        let standing = self.links.iter().filter_map(|link| link.get());
        standing.for_each(|standing| shielded(|| standing.attended.link().stop()));
    }

    /// Whether a peer's pages are seen in a mirror, because its link's wire is not the local one.
    pub fn is_mirrored(&self, peer: u32) -> bool {
        self.links[peer as usize].get().is_some_and(|standing| !self.is_local(standing))
    }

    fn is_local(&self, standing: &Standing) -> bool {
        standing.wire.is_none_or(|wire| self.wires[wire].name() == LOCAL)
    }

    /// How often the link to a peer moved something, on whatever thread.
    pub fn moves(&self, peer: u32) -> u64 {
        self.links[peer as usize].get().map_or(0, |standing| standing.attended.moves())
    }

    /// How far writes over the link to a peer have come, both ways: a number that changes with that alone.
    pub fn carried(&self, peer: u32) -> u64 {
        self.links[peer as usize].get().map_or(0, |standing| standing.attended.link().carried())
    }

    /// The links that stand, but for the one with this rank itself.
    pub fn all(&self) -> Vec<PortLink> {
        let others = (0..).zip(&self.links).filter(|(peer, _)| *peer != self.rank);
        let standing = others.filter_map(|(peer, link)| Some((peer, link.get()?)));
        let link = |(peer, standing): (u32, &Standing)| PortLink {
            peer,
            wire: standing.wire.map_or(LOCAL, |wire| self.wires[wire].name()).to_owned(),
            over: standing.attended.link().describe(),
            lost: self.loss(peer),
            direct: standing.direct.load(Ordering::Relaxed),
        };
        standing.map(link).collect()
    }

    /// Notes bytes that went from device memory to a peer's by the wire alone.
    pub fn count_direct(&self, peer: u32, bytes: u64) {
        if let Some(standing) = self.links[peer as usize].get() {
            standing.direct.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The wires, those that are lacking too, as transports of port channels.
    pub fn transports(&self) -> impl Iterator<Item = Arc<dyn Transport>> {
        let closed = self.closed.iter().map(|closed| Arc::clone(closed) as Arc<dyn Transport>);
        let open = self.wires.iter().map(|wire| Arc::new(WireTransport(Arc::clone(wire))) as _);
        open.chain(closed)
    }

    /// Waits, within bounds, until what this rank posted has landed, and until the linked peers are through the launches that
    /// this rank is through: a peer that is not would take the end of the link for its loss. `through` says how far a peer is.
    pub fn linger(&self, through: impl Fn(u32) -> u64) {
        let deadline = Instant::now() + LINGER;
        let completed = self.come.completed.load(Ordering::Acquire);
        for (peer, standing) in (0..).zip(&self.links) {
            let Some(standing) = standing.get().filter(|standing| !self.is_local(standing)) else {
                continue;
            };
            let (attended, link) = (&standing.attended, standing.attended.link());
            let driving = attended.drive();
            let busy = || {
                let told = standing.telling.is_done();
                let landed = link.completed().is_ok_and(|landed| landed >= link.posted());
                !told || !landed || through(peer) < completed
            };
            while busy() && Instant::now() < deadline {
                standing.telling.tell(&**link);
                match attended.progress() {
                    Ok(true) => {}
                    Ok(false) => std::thread::yield_now(),
                    Err(_) => break,
                }
            }
            drop(driving);
        }
    }
}

/// The error of a launch that needs a lost link.
pub fn lost(peer: u32, error: &WireError) -> ExecutorError {
    ExecutorError::Link { peer, reason: error.reason(), doing: Doing::default() }
}
