//! The door of a wire's end: one listener, behind which strangers prove who they are or go.
//!
//! Whoever makes progress on a link that still waits for its peer serves the door, for all links of the end. Connections
//! that have proven themselves wait in the [`Lobby`] of their opening. What has not is bounded in number, bytes and time,
//! and never disturbs a link.

use super::protocol::hello::{
    HELLO, Hello, PROOF, REPLY, Refusal, Token, is_proof, reply, reply_to_other_version,
};
use super::socket;
use antiphon_transport::room::keeps_out;
use rustix::event::epoll::EventFlags;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

/// The most connections, beside those that openings expect, that have not asked for an existing opening. The oldest goes when
/// another comes.
const MOST_STRANGERS: usize = 64;
/// The most connections of one opening that prove themselves, of which the oldest goes when another comes, and the most that wait
/// to be taken.
const MOST_ARRIVED: usize = 64;
/// The most links that the door wakes while they wait for their peers. They serve the door for the other links, each of which is
/// woken once a peer has come for it. Linux lets a descriptor wake no more than 100 others by way of two between: here the door's
/// and a link's.
const MOST_WATCHING: usize = 32;

/// Locks, also after a thread panicked: nothing here is left half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks if nobody else has.
pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A connection that has proven itself.
#[derive(Debug)]
pub(super) struct Arrived {
    /// The opening that it came from.
    pub token: Token,
    pub stripe: u16,
    pub stripes: u16,
    pub socket: OwnedFd,
}

/// Where connections of one opening wait.
#[derive(Debug)]
pub(super) struct Lobby {
    pub token: Token,
    pub peer: u32,
    /// The most connections that its peer may make.
    pub stripes: u16,
    /// The link's descriptor: becomes readable when somebody arrives.
    pub poller: OwnedFd,
    any: AtomicBool,
    arrived: Mutex<Vec<Arrived>>,
    note: Mutex<Option<String>>,
}

impl Lobby {
    /// How connections that wait in a lobby are watched: they make the descriptor readable at once.
    pub const WATCHED: EventFlags = EventFlags::IN.union(EventFlags::OUT);

    pub fn new(token: Token, peer: u32, stripes: u16, poller: OwnedFd) -> Self {
        let (any, arrived) = (AtomicBool::new(false), Mutex::default());
        Lobby { token, peer, stripes, poller, any, arrived, note: Mutex::default() }
    }

    /// The connections that came since the last call.
    pub fn take(&self) -> Vec<Arrived> {
        if !self.any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut *lock(&self.arrived))
    }

    /// Why the last connection that asked for this opening was refused.
    pub fn note(&self) -> Option<String> {
        lock(&self.note).clone()
    }

    fn refuse(&self, from: SocketAddr, why: &str) {
        *lock(&self.note) = Some(format!("a connection from {from} {why}"));
    }

    fn enter(&self, arrived: Arrived) {
        let mut all = lock(&self.arrived);
        if all.len() < MOST_ARRIVED {
            let nothing = EventFlags::empty();
            // Without it the descriptor does not tell; `progress` finds the connection anyway.
            let _ = socket::watch(&self.poller, &arrived.socket, nothing, Self::WATCHED);
            all.push(arrived);
            self.any.store(true, Ordering::Release);
        }
    }
}

/// The door of a wire's end.
#[derive(Debug)]
pub(super) struct Door {
    pub rank: u32,
    /// Where it listens.
    pub address: SocketAddr,
    /// Readable when serving would find something to do.
    pub poller: OwnedFd,
    /// The key of handshakes.
    pub key: [u8; 32],
    /// How long a connection may take to prove itself.
    patience: Duration,
    listener: OwnedFd,
    /// The oldest first.
    strangers: Mutex<Vec<Stranger>>,
    lobbies: Mutex<HashMap<Token, Weak<Lobby>>>,
    waiting: Mutex<Waiting>,
}

/// Lobbies of links that wait for their peers: those that the door wakes, and the others.
#[derive(Debug, Default)]
struct Waiting {
    watching: HashMap<Token, Weak<Lobby>>,
    others: HashMap<Token, Weak<Lobby>>,
}

/// As long as it lives, the door or whoever serves it wakes a link that waits for its peer.
#[derive(Debug)]
pub(super) struct Watch {
    door: Arc<Door>,
    /// Kept, so that its descriptor is taken back by itself: a copy of it in a forked child would go on to be readable.
    lobby: Arc<Lobby>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.door.pass_on(&self.lobby);
    }
}

#[derive(Debug)]
struct Stranger {
    socket: OwnedFd,
    from: SocketAddr,
    until: Instant,
    /// The message that is coming, hello or proof.
    bytes: [u8; HELLO],
    got: usize,
    claim: Option<Claim>,
}

/// What a stranger said it was; the opening is there.
#[derive(Debug)]
struct Claim {
    lobby: Arc<Lobby>,
    hello: Hello,
    said: [u8; HELLO],
    answered: [u8; REPLY],
}

enum Step {
    Wait,
    Gone,
    Proven(Arc<Lobby>, Hello),
}

impl Door {
    /// Listens at `address`.
    pub fn open(
        rank: u32,
        key: [u8; 32],
        address: SocketAddr,
        patience: Duration,
    ) -> io::Result<Self> {
        let (listener, address) = socket::listen_at(&address)?;
        let poller = socket::poller()?;
        socket::watch(&poller, &listener, EventFlags::empty(), EventFlags::IN)?;
        let (strangers, lobbies, waiting) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Door { rank, address, poller, key, patience, listener, strangers, lobbies, waiting })
    }

    /// Lets connections in that ask for the opening of `lobby`, while it lives.
    pub fn expect(&self, lobby: &Arc<Lobby>) {
        let mut lobbies = lock(&self.lobbies);
        lobbies.retain(|_, lobby| lobby.strong_count() > 0);
        lobbies.insert(lobby.token, Arc::downgrade(lobby));
    }

    /// Nothing more is expected by an opening.
    pub fn forget(&self, token: &Token) {
        lock(&self.lobbies).remove(token);
    }

    /// Has a link woken until the answer is dropped: it waits for its peer.
    ///
    /// # Errors
    /// What the system reports.
    pub fn watch(self: &Arc<Self>, lobby: &Arc<Lobby>) -> io::Result<Watch> {
        let mut waiting = lock(&self.waiting);
        let Waiting { watching, others } = &mut *waiting;
        let kept = if watching.len() < MOST_WATCHING {
            socket::watch(&lobby.poller, &self.poller, EventFlags::empty(), EventFlags::IN)?;
            watching
        } else {
            others
        };
        kept.insert(lobby.token, Arc::downgrade(lobby));
        Ok(Watch { door: Arc::clone(self), lobby: Arc::clone(lobby) })
    }

    /// A link waits no more: if the door woke it, it wakes another.
    fn pass_on(&self, lobby: &Lobby) {
        let mut waiting = lock(&self.waiting);
        let Waiting { watching, others } = &mut *waiting;
        others.remove(&lobby.token);
        if watching.remove(&lobby.token).is_none() {
            return;
        }
        // Fails only for what is not watched any more.
        let _ = socket::watch(&lobby.poller, &self.poller, EventFlags::IN, EventFlags::empty());
        while let Some(token) = others.keys().next().copied()
            && let Some(next) = others.remove(&token)
        {
            let watches = next.upgrade().is_some_and(|lobby| {
                let nothing = EventFlags::empty();
                socket::watch(&lobby.poller, &self.poller, nothing, EventFlags::IN).is_ok()
            });
            if watches {
                watching.insert(token, next);
                return;
            }
        }
    }

    /// The most connections that may come from peers.
    fn expected(&self) -> usize {
        let lobbies = lock(&self.lobbies);
        let living = lobbies.values().filter_map(Weak::upgrade);
        living.map(|lobby| usize::from(lobby.stripes)).sum()
    }

    /// Lets in or turns away everybody that it can without waiting. Returns whether there was anybody.
    ///
    /// # Errors
    /// If the system lets nobody in, perhaps not the peer either, because this process has no room for another descriptor.
    pub fn serve(&self) -> io::Result<bool> {
        let Some(mut strangers) = try_lock(&self.strangers) else { return Ok(false) };
        let (mut moved, mut full, mut most) = (false, None, None);
        // One round per call takes no more than a bounded number, so that a flood does not hold up the caller.
        for _ in 0..MOST_STRANGERS {
            let (socket, from) = match socket::accept(&self.listener) {
                Ok(one) => one,
                Err(errno) => {
                    full = keeps_out(&self.listener, errno).then_some(errno);
                    break;
                }
            };
            moved = true;
            let watched = (EventFlags::empty(), EventFlags::IN);
            if socket::watch(&self.poller, &socket, watched.0, watched.1).is_ok() {
                let until = Instant::now() + self.patience;
                let bytes = [0; HELLO];
                strangers.push(Stranger { socket, from, until, bytes, got: 0, claim: None });
                let most = *most.get_or_insert_with(|| MOST_STRANGERS + self.expected());
                keep_newest(&mut strangers, most, |stranger| stranger.claim.is_none());
            }
        }
        let mut at = 0;
        while let Some(stranger) = strangers.get_mut(at) {
            let claimed = stranger.claim.is_some();
            match stranger.step(self) {
                Step::Wait => {
                    let new = stranger.claim.as_ref().filter(|_| !claimed);
                    let gone = new.map(|claim| Arc::clone(&claim.lobby)).and_then(|lobby| {
                        keep_newest(&mut strangers, MOST_ARRIVED, |other| other.claims(&lobby))
                    });
                    at += usize::from(gone.is_none_or(|gone| gone > at));
                    continue;
                }
                Step::Gone => drop(strangers.remove(at)),
                Step::Proven(lobby, hello) => {
                    let socket = strangers.remove(at).socket;
                    let _ =
                        socket::watch(&self.poller, &socket, EventFlags::IN, EventFlags::empty());
                    let Hello { tokens: [token, _], stripe, stripes, .. } = hello;
                    lobby.enter(Arrived { token, stripe, stripes, socket });
                }
            }
            moved = true;
        }
        full.map_or(Ok(moved), |errno| Err(errno.into()))
    }

    fn lobby(&self, hello: &Hello) -> Option<Arc<Lobby>> {
        let lobby = lock(&self.lobbies).get(&hello.tokens[1]).and_then(Weak::upgrade)?;
        (hello.ranks == [lobby.peer, self.rank] && hello.stripe < hello.stripes).then_some(lobby)
    }
}

/// Lets the oldest of some strangers go where there are more than `most`; where it was.
fn keep_newest(
    strangers: &mut Vec<Stranger>,
    most: usize,
    of: impl Fn(&Stranger) -> bool,
) -> Option<usize> {
    let mut these = strangers.iter().enumerate().filter(|(_, stranger)| of(stranger));
    let (oldest, _) = these.next()?;
    if these.count() < most {
        return None;
    }
    strangers.remove(oldest);
    Some(oldest)
}

impl Stranger {
    /// Whether it asks for the opening of a lobby.
    fn claims(&self, lobby: &Arc<Lobby>) -> bool {
        self.claim.as_ref().is_some_and(|claim| Arc::ptr_eq(&claim.lobby, lobby))
    }

    fn step(&mut self, door: &Door) -> Step {
        loop {
            let due = if self.claim.is_some() { PROOF } else { HELLO };
            match socket::receive_bytes(&self.socket, &mut self.bytes[self.got..due]) {
                Ok(0) => return self.gone("ended before it had proven the communicator's key"),
                Ok(bytes) => self.got += bytes,
                Err(error) if socket::would_wait(&error) => {
                    if Instant::now() < self.until {
                        return Step::Wait;
                    }
                    return self.gone("did not prove the communicator's key in time");
                }
                Err(error) => {
                    let why = "ended before it had proven the communicator's key";
                    return self.gone(&format!("{why}: {error}"));
                }
            }
            if self.got < due {
                continue;
            }
            self.got = 0;
            if let Some(claim) = &self.claim {
                let proof = self.bytes.first_chunk::<PROOF>();
                let right = proof
                    .is_some_and(|proof| is_proof(&door.key, &claim.said, &claim.answered, proof));
                if !right {
                    return self.gone("did not prove the communicator's key");
                }
                return Step::Proven(Arc::clone(&claim.lobby), claim.hello.clone());
            }
            let Some(claim) = self.claim(door) else { return Step::Gone };
            // What is sent first always fits into a new connection's buffer.
            let sent = socket::send_bytes(&self.socket, &claim.answered);
            if !matches!(sent, Ok(REPLY)) {
                return Step::Gone;
            }
            self.claim = Some(claim);
        }
    }

    /// What the stranger's hello claims, if there is such an opening.
    fn claim(&self, door: &Door) -> Option<Claim> {
        let hello = match Hello::read(&self.bytes) {
            Ok(hello) => hello,
            Err(refusal) => {
                if let Refusal::Version(_) = refusal {
                    // So that the other side can name both versions; it is lost either way.
                    let _ = socket::send_bytes(&self.socket, &reply_to_other_version());
                }
                return None;
            }
        };
        let lobby = door.lobby(&hello)?;
        let nonce = socket::random().ok()?;
        let answered = reply(&door.key, &self.bytes, &nonce);
        Some(Claim { lobby, hello, said: self.bytes, answered })
    }

    fn gone(&self, why: &str) -> Step {
        if let Some(claim) = &self.claim {
            claim.lobby.refuse(self.from, why);
        }
        Step::Gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec};
    use std::io::{ErrorKind, Read};
    use std::net::TcpStream;
    use std::process::{Command, Stdio};

    /// Serves until nobody has come for a moment, and `done`.
    fn serve(door: &Door, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while door.serve().unwrap() || !done() {
            assert!(start.elapsed() < Duration::from_secs(20), "the door does not get there");
            std::thread::yield_now();
        }
    }

    fn is_open(stream: &TcpStream) -> bool {
        stream.set_nonblocking(true).unwrap();
        matches!((&*stream).read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    #[test]
    fn of_too_many_strangers_the_oldest_goes() {
        let patience = Duration::from_secs(60);
        let door = Door::open(0, [1; 32], "127.0.0.1:0".parse().unwrap(), patience).unwrap();
        let strangers = |door: &Door| lock(&door.strangers).len();
        let mut known: Vec<TcpStream> = Vec::new();
        let come = |known: &mut Vec<TcpStream>| {
            let before = strangers(&door);
            known.push(TcpStream::connect(door.address).unwrap());
            serve(&door, || strangers(&door) > before || before == MOST_STRANGERS);
        };
        (0..4).for_each(|_| come(&mut known));
        // That one of them leaves does not make the others older or younger.
        drop(known.remove(0));
        serve(&door, || strangers(&door) == 3);
        (3..MOST_STRANGERS).for_each(|_| come(&mut known));
        assert!(known.iter().all(is_open));
        come(&mut known);
        serve(&door, || !is_open(&known[0]));
        assert!(known[1..].iter().all(is_open), "the oldest was to go");
    }

    /// As many links as Linux would not let one descriptor wake, in the set of one proxy.
    #[test]
    fn the_door_wakes_some_of_many_links_that_wait_and_others_when_these_are_up() {
        let at = "127.0.0.1:0".parse().unwrap();
        let door = Arc::new(Door::open(0, [1; 32], at, Duration::from_secs(60)).unwrap());
        let proxy = socket::poller().unwrap();
        let mut links: Vec<(Arc<Lobby>, Watch)> = Vec::new();
        for number in 0..150 {
            let lobby = Arc::new(Lobby::new([number; 16], 1, 1, socket::poller().unwrap()));
            let watch = door.watch(&lobby).unwrap();
            let nothing = EventFlags::empty();
            socket::watch(&proxy, &lobby.poller, nothing, EventFlags::IN).unwrap();
            links.push((lobby, watch));
        }
        let rings = || {
            let mut proxy = [PollFd::new(&proxy, PollFlags::IN)];
            rustix::event::poll(&mut proxy, Some(&Timespec::default())).unwrap() > 0
        };
        assert!(!rings());
        let _stranger = TcpStream::connect(door.address).unwrap();
        while links.len() > 1 {
            assert!(rings(), "{} wait", links.len());
            // In the order in which they began, those that the door woke first.
            drop(links.remove(0));
        }
        assert!(rings());
        links.clear();
        assert!(!rings());
    }

    #[test]
    fn that_there_is_no_room_for_who_comes_is_an_error_once_somebody_does() {
        const ALONE: &str = "ANTIPHON_TEST_ALONE";
        // In a process of its own, for the other tests open descriptors as well.
        if std::env::var_os(ALONE).is_none() {
            let name = "that_there_is_no_room_for_who_comes_is_an_error_once_somebody_does";
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", &format!("tcp::door::tests::{name}"), "--test-threads=1"])
                .env(ALONE, name)
                .stderr(Stdio::inherit())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            let passed = output.status.success() && said.contains("1 passed");
            return assert!(passed, "{}: {said}", output.status);
        }
        let patience = Duration::from_secs(60);
        let door = Door::open(0, [1; 32], "127.0.0.1:0".parse().unwrap(), patience).unwrap();
        let stranger = socket::stream(&door.address).unwrap();
        let mut all = Vec::new();
        while let Ok(one) = door.listener.try_clone() {
            all.push(one);
        }
        assert!(!door.serve().unwrap(), "nobody is there");
        let _ = rustix::net::connect(&stranger, &door.address);
        let error = loop {
            match door.serve() {
                Ok(_) => std::thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        drop(all);
        assert!(door.serve().unwrap());
        assert_eq!(lock(&door.strangers).len(), 1);
    }
}
