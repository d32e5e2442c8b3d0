//! A link: posts go in from any thread, whoever makes progress carries them.

use super::coming::Coming;
use super::door::{Door, Lobby, lock, try_lock};
use super::flow::{Flow, Sent};
use super::protocol::{Post, Sender};
use super::regions::RegionTable;
use super::{NAME, invalid, socket};
use crate::WireError;
use crate::wire::{
    Link, Posted, Unit, Write, check_counter, check_host, check_region, unknown_region,
};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// The most posts that wait to be taken up.
const MOST_POSTS: usize = 4096;

/// No thread sleeps on the descriptor.
const NOBODY: usize = 0;
/// Several may, and from then on it is always taken for granted that one does.
const SOMEBODY: usize = usize::MAX;

thread_local! {
    /// Its address tells threads apart.
    static MARK: u8 = const { 0 };
}

fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// What threads that post and those that make progress share.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    posts: Mutex<VecDeque<Post>>,
    queued: AtomicUsize,
    posted: AtomicU64,
    completed: AtomicU64,
    /// As [`Link::carried`] says.
    carried: AtomicU64,
    /// The highest position that somebody asked about.
    wanted: AtomicU64,
}

impl Outbox {
    /// Lets the sender take up posts.
    pub fn take(&self, sender: &mut Sender) {
        // A write that is taken up in part goes on without another post.
        if self.queued.load(Ordering::Acquire) == 0 {
            sender.take(&mut VecDeque::new());
            return;
        }
        let mut posts = lock(&self.posts);
        sender.take(&mut posts);
        self.queued.store(posts.len(), Ordering::Release);
    }

    /// The position that somebody waits for.
    pub fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed)
    }
}

/// How far a link is.
#[derive(Debug)]
enum State {
    Coming(Coming),
    Up(Flow),
    Lost,
}

/// One rank's connection to one peer.
#[derive(Debug)]
pub(super) struct TcpLink {
    peer: u32,
    there: SocketAddr,
    stripes: u16,
    door: Arc<Door>,
    lobby: Arc<Lobby>,
    regions: Arc<RegionTable>,
    /// Regions of the peer, and their lengths.
    remote: RwLock<HashMap<u64, u64>>,
    outbox: Outbox,
    state: Mutex<State>,
    lost: OnceLock<String>,
    /// Wakes who sleeps on the descriptor, for posts.
    bell: OwnedFd,
    rung: AtomicBool,
    /// The thread that may sleep on the descriptor and was not woken since; set by who holds `state`.
    sleeper: AtomicUsize,
    /// The thread that armed, woken or not; changed by who holds `state`.
    armer: AtomicUsize,
}

/// What a link is made of.
pub(super) struct Parts {
    pub peer: u32,
    pub there: SocketAddr,
    pub stripes: u16,
    pub door: Arc<Door>,
    pub lobby: Arc<Lobby>,
    pub regions: Arc<RegionTable>,
    pub coming: Coming,
    pub bell: OwnedFd,
}

impl TcpLink {
    /// A link that is coming up.
    pub fn new(parts: Parts) -> Self {
        let Parts { peer, there, stripes, door, lobby, regions, coming, bell } = parts;
        TcpLink {
            peer,
            there,
            stripes,
            door,
            lobby,
            regions,
            remote: RwLock::default(),
            outbox: Outbox::default(),
            state: Mutex::new(State::Coming(coming)),
            lost: OnceLock::new(),
            bell,
            rung: AtomicBool::new(false),
            sleeper: AtomicUsize::new(NOBODY),
            armer: AtomicUsize::new(NOBODY),
        }
    }

    fn check(&self) -> Result<(), WireError> {
        match self.lost.get() {
            None => Ok(()),
            Some(reason) => Err(self.loss(reason)),
        }
    }

    fn loss(&self, reason: &str) -> WireError {
        let reason = format!("{reason} ({} to {})", self.door.address, self.there);
        WireError::Lost { wire: NAME.to_owned(), peer: self.peer, reason }
    }

    /// Ends the link: closes its connections, so that the peer learns of it too, and wakes who sleeps.
    fn lose(&self, state: &mut State, reason: String) -> WireError {
        *state = State::Lost;
        let reason = self.lost.get_or_init(|| reason);
        lock(&self.outbox.posts).clear();
        // Never lowered again.
        socket::raise(&self.bell);
        self.loss(reason)
    }

    fn inside(
        &self,
        operation: &'static str,
        region: u64,
        to: u64,
        bytes: u64,
    ) -> Result<(), WireError> {
        let remote = self.remote.read().unwrap_or_else(PoisonError::into_inner);
        let Some(&length) = remote.get(&region) else {
            return Err(unknown_region(NAME, operation, self.peer, region));
        };
        check_region(NAME, operation, region, (to, bytes), length)
    }

    fn post(&self, post: Post) -> Result<Posted, WireError> {
        {
            let mut posts = lock(&self.outbox.posts);
            // Losing the link sets `lost` first and then empties the queue, so a post that is queued after that would stay.
            self.check()?;
            if posts.len() >= MOST_POSTS {
                return Ok(Posted::Full);
            }
            posts.push_back(post);
            self.outbox.queued.store(posts.len(), Ordering::Release);
            self.outbox.posted.fetch_add(1, Ordering::Release);
        }
        self.wake();
        Ok(Posted::Queued)
    }

    /// Tells who sleeps on the descriptor that there is something to do.
    fn wake(&self) {
        // Either the sleeper sees what was queued before this, or this sees the sleeper (see `arm`).
        fence(Ordering::SeqCst);
        let sleeper = self.sleeper.load(Ordering::Relaxed);
        if sleeper == NOBODY {
            return;
        }
        // Once is enough for one that sleeps: the bell stays up until it arms again.
        if sleeper != SOMEBODY {
            let order = Ordering::Relaxed;
            let _ = self.sleeper.compare_exchange(sleeper, NOBODY, order, order);
        }
        self.ring(true);
    }

    /// Raises or lowers the bell. The lock keeps `rung` and the bell the same.
    fn ring(&self, up: bool) {
        let posts = lock(&self.outbox.posts);
        if !up && self.lost.get().is_some() {
            // It stays up for all who sleep.
            return;
        }
        if self.rung.swap(up, Ordering::AcqRel) != up {
            (if up { socket::raise } else { socket::lower })(&self.bell);
        }
        drop(posts);
    }

    fn advance(&self, state: &mut State) -> Result<bool, String> {
        let flow = match state {
            State::Lost => return Ok(false),
            State::Coming(coming) => {
                let mut moved = false;
                let Some(connections) = coming.advance(&self.door, &self.lobby, &mut moved)? else {
                    return Ok(moved);
                };
                self.door.forget(&self.lobby.token);
                let mut flow = Flow::new(connections);
                flow.watch(&self.lobby.poller)?;
                *state = State::Up(flow);
                return Ok(true);
            }
            State::Up(flow) => flow,
        };
        let mut moved = flow.send(&self.outbox).moved;
        moved |= flow.receive(&*self.regions)?;
        self.outbox.completed.store(flow.acknowledged(), Ordering::Release);
        self.outbox.carried.store(flow.carried(), Ordering::Relaxed);
        if moved && flow.owes(&self.outbox) {
            flow.send(&self.outbox);
        }
        if self.sleeper.load(Ordering::Relaxed) != NOBODY {
            flow.watch(&self.lobby.poller)?;
        }
        Ok(moved)
    }
}

impl Link for TcpLink {
    fn peer(&self) -> u32 {
        self.peer
    }

    fn accept(&self, region: u64, bytes: u64, blob: &[u8]) -> Result<(), WireError> {
        if !blob.is_empty() {
            let saw = format!("{} bytes besides number and length", blob.len());
            return Err(invalid("accept a region", saw, "none"));
        }
        self.remote.write().unwrap_or_else(PoisonError::into_inner).insert(region, bytes);
        Ok(())
    }

    fn retire(&self, region: u64) {
        self.remote.write().unwrap_or_else(PoisonError::into_inner).remove(&region);
    }

    fn write(&self, write: &Write<'_>) -> Result<Posted, WireError> {
        self.check()?;
        let Write { source, from, region, to, bytes, unit } = *write;
        write.check_source(NAME)?;
        self.inside("write", region, to, bytes)?;
        write.check_units(NAME, [0, 0])?;
        check_host(NAME, source)?;
        let (memory, packets) = (Arc::clone(source), unit == Unit::Packets);
        self.post(Post::Write { memory, from, region, to, bytes, packets })
    }

    fn signal(&self, region: u64, to: u64, value: u64) -> Result<Posted, WireError> {
        self.check()?;
        self.inside("signal", region, to, 8)?;
        check_counter(NAME, 0, to)?;
        self.post(Post::Signal { region, to, value })
    }

    fn posted(&self) -> u64 {
        self.outbox.posted.load(Ordering::Acquire)
    }

    fn completed(&self) -> Result<u64, WireError> {
        self.check()?;
        let completed = self.outbox.completed.load(Ordering::Acquire);
        let posted = self.posted();
        if completed < posted && self.outbox.wanted.fetch_max(posted, Ordering::Relaxed) < posted {
            self.wake();
        }
        Ok(completed)
    }

    fn released(&self) -> Result<u64, WireError> {
        self.check()?;
        // What the kernel has taken is the kernel's own copy.
        let sent = try_lock(&self.state).map_or(0, |state| match &*state {
            State::Up(flow) => flow.all_sent(),
            _ => 0,
        });
        // A link that always has more to send never has sent all, so there the peer's word counts.
        if sent < self.posted() { Ok(self.completed()?.max(sent)) } else { Ok(sent) }
    }

    fn carried(&self) -> u64 {
        self.outbox.carried.load(Ordering::Relaxed)
    }

    fn progress(&self) -> Result<bool, WireError> {
        self.check()?;
        let Some(mut state) = try_lock(&self.state) else { return Ok(false) };
        let armer = self.armer.load(Ordering::Relaxed);
        if armer != NOBODY && armer == this_thread() {
            // It is awake.
            self.armer.store(NOBODY, Ordering::Relaxed);
            self.sleeper.store(NOBODY, Ordering::Relaxed);
        }
        self.advance(&mut state).map_err(|reason| self.lose(&mut state, reason))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.lobby.poller.as_fd())
    }

    fn arm(&self) -> Result<bool, WireError> {
        self.check()?;
        let Some(mut state) = try_lock(&self.state) else { return Ok(false) };
        // Before anything is looked at: what is queued later raises it again.
        if self.rung.load(Ordering::Acquire) {
            self.ring(false);
        }
        let me = this_thread();
        let before = self.armer.load(Ordering::Relaxed);
        let armer = if before == NOBODY || before == me { me } else { SOMEBODY };
        self.armer.store(armer, Ordering::Relaxed);
        self.sleeper.store(armer, Ordering::Relaxed);
        // Either this sees what was queued, or who queued it sees the sleeper (see `wake`).
        fence(Ordering::SeqCst);
        let flow = match &mut *state {
            State::Up(flow) => flow,
            State::Lost => return self.check().map(|()| false),
            coming => {
                let moved = self.advance(coming);
                return moved.map(|moved| !moved).map_err(|why| self.lose(&mut state, why));
            }
        };
        // What has come makes the descriptor readable, whoever armed it when.
        let Sent { more, .. } = flow.send(&self.outbox);
        let watched = flow.watch(&self.lobby.poller);
        watched.map_err(|reason| self.lose(&mut state, reason))?;
        Ok(!more)
    }

    fn stop(&self) {
        self.door.forget(&self.lobby.token);
        // Whoever receives does so under this lock.
        let mut state = lock(&self.state);
        self.lose(&mut state, "this rank ended it".to_owned());
    }

    fn describe(&self) -> String {
        let connections = self.stripes;
        format!("tcp from {} to {}, {connections} connections", self.door.address, self.there)
    }
}
