//! All links of one rank: those that the forming left, and those that are opened when a frame wants to go there.
//!
//! Everything that listens, calls and notices runs on the control thread; other threads queue frames, and begin a call
//! where there is no link yet. Lock order: a rank's [`State`], then a link's own locks; never the mesh's.

mod knock;
mod leave;
pub(super) mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::contact::Why;
use super::handshake::Failure;
use super::stand;
use crate::absent::Gone;
use crate::control::{Control, Dispatch, Source, on_control_thread};
use crate::error::Result;
use crate::frame::{Frame, Kind};
use crate::link::Link;
use crate::meeting::REST;
use crate::mesh::{Carrier, Mesh};
use crate::pipe::Pipe;
use crate::socket::accept;
use crate::sync::lock;
use knock::Knock;

/// How long a closing mesh waits for its last messages to leave.
const LINGER: Duration = Duration::from_secs(2);
/// How long a peer may take to answer a call.
const CALL: Duration = Duration::from_secs(10);
/// How long a call is repeated that is refused: time enough to hear that the peer has left.
const REFUSED: Duration = Duration::from_secs(1);
/// Pause before a refused call is repeated; before one that crossed another.
const AGAIN: Duration = Duration::from_millis(100);
/// Connections accepted before the control thread looks at the others.
const TURNS: usize = 64;
/// Groups whose abort is known to have been passed on: one that is told of again later is passed on again.
const MOST_PASSED: usize = 1024;

/// What the forming found out.
pub(super) struct Terms {
    pub rank: u32,
    pub nodes: Vec<u32>,
    pub addresses: Vec<SocketAddr>,
    pub silence: Duration,
    /// What handshakes of this job's links are made with.
    pub key: [u8; 32],
}

/// A link that is being opened.
struct Opening {
    queue: Vec<Frame>,
    since: Instant,
    /// The call that is under way, or else the time of the next one.
    call: std::result::Result<Option<Arc<Knock>>, Instant>,
}

impl Opening {
    fn new(queue: Vec<Frame>) -> Opening {
        Opening { queue, since: Instant::now(), call: Ok(None) }
    }
}

#[derive(Default)]
enum Slot {
    #[default]
    Idle,
    Opening(Opening),
    Linked(Arc<Link>),
}

struct State {
    slots: Vec<Slot>,
    /// This rank says goodbye.
    leaving: bool,
    /// The rank that watches when this one has left has heard the goodbye.
    parted: bool,
    closed: bool,
    gone: BTreeMap<u32, Gone>,
    /// Ranks that have gone without a word while this one says goodbye. Most likely they have left as well.
    unreached: BTreeSet<u32>,
    /// When this rank, which has become the watcher, opens the links that it lacks.
    survey: Option<Instant>,
    /// Ranks that are gone, of which the others have not been told yet.
    news: Vec<(u32, Gone)>,
    /// Ranks that are dead by another's word, though their links stand: until when they may still speak, and why.
    doubts: Vec<(u32, Instant, String)>,
    /// Groups whose abort has been passed on, the latest of them.
    passed: VecDeque<u64>,
    /// Connections that have not proven themselves.
    strangers: VecDeque<Arc<Knock>>,
    /// The door is not watched, for accepting failed.
    door_rests: bool,
}

/// All links of one rank.
pub(super) struct TcpLinks {
    terms: Terms,
    door: OwnedFd,
    door_token: Mutex<Option<u64>>,
    mesh: Weak<Mesh>,
    me: Weak<TcpLinks>,
    control: Arc<Control>,
    state: Mutex<State>,
    /// Signalled when a link has been opened or given up.
    changed: Condvar,
    started: OnceLock<()>,
}

impl TcpLinks {
    pub fn new(terms: Terms, door: OwnedFd, mesh: &Weak<Mesh>) -> Result<Arc<TcpLinks>> {
        let control = Control::get()?;
        let state = State {
            slots: terms.nodes.iter().map(|_| Slot::Idle).collect(),
            leaving: false,
            parted: false,
            closed: false,
            gone: BTreeMap::new(),
            unreached: BTreeSet::new(),
            survey: None,
            news: Vec::new(),
            doubts: Vec::new(),
            passed: VecDeque::new(),
            strangers: VecDeque::new(),
            door_rests: false,
        };
        Ok(Arc::new_cyclic(|me| TcpLinks {
            terms,
            door,
            door_token: Mutex::new(None),
            mesh: mesh.clone(),
            me: me.clone(),
            control,
            state: Mutex::new(state),
            changed: Condvar::new(),
            started: OnceLock::new(),
        }))
    }

    /// Goes on with the connections that the forming left, by rank, and opens the door.
    pub fn start(self: &Arc<TcpLinks>, mesh: &Arc<Mesh>, pipes: Vec<Option<Pipe>>) -> Result<()> {
        let weak = Arc::downgrade(mesh);
        let mut links = Vec::new();
        for (rank, pipe) in (0..).zip(pipes) {
            if let Some(pipe) = pipe {
                links.push((rank, Link::new(pipe, rank, &weak)?));
            }
        }
        {
            let mut state = lock(&self.state);
            for (rank, link) in &links {
                state.slots[*rank as usize] = Slot::Linked(link.clone());
            }
        }
        self.started.get_or_init(|| ());
        for (rank, link) in &links {
            let peer = &mesh.peers[*rank as usize];
            let visible = self.is_near(*rank) && !peer.same_process && peer.pid != 0;
            link.start(visible.then_some(peer.pid))?;
        }
        self.open_door()
    }

    fn open_door(&self) -> Result<()> {
        let mut token = lock(&self.door_token);
        if token.is_none() && !lock(&self.state).closed {
            let door = Arc::new(Door { links: self.me.clone() });
            *token = Some(self.control.add(self.door.as_fd(), door)?);
        }
        Ok(())
    }

    fn close_door(&self) {
        if let Some(token) = lock(&self.door_token).take() {
            self.control.remove(self.door.as_fd(), token);
        }
    }

    fn is_near(&self, rank: u32) -> bool {
        self.terms.nodes[rank as usize] == self.terms.nodes[self.terms.rank as usize]
    }

    fn tick_at(&self, when: Instant) {
        let me: Weak<dyn Dispatch> = self.me.clone();
        self.control.post_at(when, me);
    }

    /// Makes sure that a link to a peer is opened.
    fn open(&self, to: u32, queue: Vec<Frame>, state: &mut State) {
        state.slots[to as usize] = Slot::Opening(Opening::new(queue));
    }

    /// Begins the call of a link that is being opened.
    fn call(&self, to: u32) {
        let outcome = Knock::call(&self.me, &self.terms, to, &self.control);
        let failed = {
            let mut state = lock(&self.state);
            let Slot::Opening(opening) = &mut state.slots[to as usize] else {
                // Closed, given up or linked meanwhile: nobody else knows of the call.
                drop(state);
                if let Ok(knock) = outcome {
                    knock.end();
                }
                return;
            };
            match outcome {
                Ok(knock) => {
                    // The control thread may have seen its end already.
                    if !knock.is_over() {
                        opening.call = Ok(Some(knock));
                    }
                    None
                }
                Err(why) => Some(why),
            }
        };
        if let Some(why) = failed {
            self.call_failed(to, why);
        }
    }

    /// A call came to nothing: it is repeated, or the peer is lost.
    fn call_failed(&self, to: u32, why: Why) {
        let address = self.terms.addresses[to as usize];
        {
            let mut state = lock(&self.state);
            let leaving = state.leaving;
            let Slot::Opening(opening) = &mut state.slots[to as usize] else { return };
            let (pause, limit) = match why {
                Why::Failed(Failure::Crossed) => (AGAIN * 5, CALL),
                Why::Closed | Why::Os(_) if !leaving => (AGAIN, REFUSED),
                _ => (AGAIN, Duration::ZERO),
            };
            if opening.since.elapsed() < limit {
                let when = Instant::now() + pause;
                opening.call = Err(when);
                drop(state);
                self.tick_at(when);
                return;
            }
            state.slots[to as usize] = Slot::Idle;
        }
        self.changed.notify_all();
        let cause = match why {
            Why::Failed(Failure::Stranger) => "what listens there is not Antiphon".to_owned(),
            Why::Failed(Failure::Version(saw)) => format!("it speaks protocol version {saw}"),
            Why::Failed(Failure::Secret(_)) => "what listens there is of another job".to_owned(),
            Why::Failed(Failure::Crossed | Failure::Unexpected) => {
                "it does not take the connection".to_owned()
            }
            Why::Closed => "it closes the connection".to_owned(),
            Why::Slow => "it does not answer".to_owned(),
            Why::Os(errno) => errno.to_string(),
        };
        if let Some(mesh) = self.mesh.upgrade() {
            mesh.lose(to, format!("it cannot be reached at {address}: {cause}"), true);
        }
    }

    /// A connection has been proven from both ends: it becomes the link. On the control thread.
    fn install(&self, peer: u32, socket: OwnedFd) {
        let Some(mesh) = self.mesh.upgrade() else { return };
        let made = stand::keep_alive(&socket, self.terms.silence)
            .map_err(|errno| errno.to_string())
            .and_then(|()| {
                let link = Link::new(Pipe::known(socket, 0), peer, &self.mesh);
                let link = link.map_err(|error| error.to_string())?;
                link.start(None).map_err(|error| error.to_string())?;
                Ok(link)
            });
        match made {
            Ok(link) => {
                let mut state = lock(&self.state);
                if state.closed {
                    drop(state);
                    return link.end();
                }
                let slot =
                    std::mem::replace(&mut state.slots[peer as usize], Slot::Linked(link.clone()));
                self.brief(&state, &link);
                if let Slot::Opening(opening) = slot {
                    opening.queue.into_iter().for_each(|frame| link.send(frame));
                }
            }
            Err(error) => {
                lock(&self.state).slots[peer as usize] = Slot::Idle;
                mesh.lose(peer, format!("its connection could not be used: {error}"), true);
            }
        }
        self.changed.notify_all();
    }

    /// Forgets a link that was being opened to a peer that is gone.
    fn give_up(&self, state: &mut State, peer: u32) -> Slot {
        let slot = &mut state.slots[peer as usize];
        match slot {
            Slot::Opening(opening) => {
                if let Ok(Some(call)) = &opening.call {
                    call.end();
                }
                std::mem::take(slot)
            }
            _ => Slot::Idle,
        }
    }

    /// What is due by the clock. On the control thread.
    fn tick(&self) {
        let now = Instant::now();
        let mut calls = Vec::new();
        let door = {
            let mut state = lock(&self.state);
            for (rank, slot) in (0..).zip(&mut state.slots) {
                if let Slot::Opening(opening) = slot
                    && opening.call.as_ref().is_err_and(|&when| when <= now)
                {
                    opening.call = Ok(None);
                    calls.push(rank);
                }
            }
            std::mem::take(&mut state.door_rests)
        };
        calls.into_iter().for_each(|rank| self.call(rank));
        if door && self.open_door().is_err() {
            lock(&self.state).door_rests = true;
            self.tick_at(now + REST);
        }
        self.resolve_doubts(now);
        self.watch(now);
    }
}

/// Links whose mesh could not be made are never closed.
impl Drop for TcpLinks {
    fn drop(&mut self) {
        self.close_door();
    }
}

impl Dispatch for TcpLinks {
    fn dispatch(&self) {
        self.tick();
    }
}

/// Where links of other nodes come in.
struct Door {
    links: Weak<TcpLinks>,
}

impl Source for Door {
    fn ready(&self) {
        let Some(links) = self.links.upgrade() else { return };
        for _ in 0..TURNS {
            match accept(&links.door) {
                Ok(Some(socket)) => Knock::answer(&links, socket),
                Ok(None) => return,
                Err(_) => {
                    // For want of descriptors, mostly. It would be ready again at once.
                    links.close_door();
                    lock(&links.state).door_rests = true;
                    links.tick_at(Instant::now() + REST);
                    return;
                }
            }
        }
    }
}

impl Carrier for Arc<TcpLinks> {
    fn send(&self, to: u32, frame: Frame) {
        let link = {
            let mut state = lock(&self.state);
            if state.closed || state.gone.contains_key(&to) {
                return;
            }
            match &mut state.slots[to as usize] {
                Slot::Linked(link) => Some((link.clone(), frame)),
                Slot::Opening(opening) => {
                    opening.queue.push(frame);
                    return;
                }
                Slot::Idle => {
                    self.open(to, vec![frame], &mut state);
                    None
                }
            }
        };
        match link {
            Some((link, frame)) => link.send(frame),
            None => self.call(to),
        }
    }

    fn close(&self, last: &[Frame]) {
        let deadline = Instant::now() + LINGER;
        let told = match on_control_thread() {
            true => Vec::new(),
            false => self.take_leave(last, deadline),
        };
        let (farewell, links, strangers) = {
            let mut state = lock(&self.state);
            state.closed = true;
            let farewell = state.farewell(last);
            let mut links = Vec::new();
            let mut calls: Vec<Arc<Knock>> = state.strangers.drain(..).collect();
            for (rank, slot) in (0..).zip(state.slots.iter_mut().map(std::mem::take)) {
                match slot {
                    Slot::Linked(link) if !link.is_over() => links.push((rank, link)),
                    Slot::Opening(Opening { call: Ok(Some(call)), .. }) => calls.push(call),
                    _ => {}
                }
            }
            (farewell, links, calls)
        };
        self.close_door();
        strangers.iter().for_each(|knock| knock.end());
        for (rank, link) in links.iter().filter(|(rank, _)| !told.contains(rank)) {
            let due = farewell.iter().filter(|frame| frame.is_for(*rank));
            due.for_each(|frame| link.send(frame.share()));
        }
        for (_, link) in &links {
            if !on_control_thread() {
                link.linger(deadline);
            }
            link.end();
        }
    }

    fn passes_descriptors(&self, peer: u32) -> bool {
        self.is_near(peer)
    }

    fn is_linked(&self, peer: u32) -> bool {
        lock(&self.state).is_linked(peer)
    }

    fn tell_abort(&self, me: u32, members: &[u32], abort: &Frame) {
        let (linked, others, watcher) = {
            let state = lock(&self.state);
            let others = members.iter().copied().filter(|&to| to != me);
            let (linked, others): (Vec<u32>, Vec<u32>) =
                others.partition(|&to| state.is_linked(to));
            (linked, others, state.watcher(me).filter(|&watcher| state.is_linked(watcher)))
        };
        for to in linked {
            self.send(to, abort.share());
        }
        match watcher {
            _ if others.is_empty() => {}
            Some(watcher) => {
                self.send(watcher, Frame { kind: Kind::AbortBy, tag: me, ..abort.share() })
            }
            None => others.into_iter().for_each(|to| self.send(to, abort.share())),
        }
    }

    fn heard_abort(&self, from: u32, by: u32, abort: &Frame) {
        let to: Vec<u32> = {
            let mut state = lock(&self.state);
            if !state.is_watcher(self.terms.rank) || state.passed.contains(&abort.group) {
                return;
            }
            state.passed.push_back(abort.group);
            if state.passed.len() > MOST_PASSED {
                state.passed.pop_front();
            }
            let all = 0..self.terms.nodes.len() as u32;
            let due = |to: &u32| *to != from && *to != by && abort.is_for(*to);
            all.filter(|to| due(to) && state.is_linked(*to)).collect()
        };
        for to in to {
            self.send(to, Frame { kind: Kind::AbortBy, tag: by, ..abort.share() });
        }
    }

    fn saw_go(&self, peer: u32, how: &Gone) {
        self.note_gone(peer, how);
    }

    fn hear_news(&self, _from: u32, news: &[u8]) -> std::result::Result<Vec<(u32, Gone)>, String> {
        self.take_news(news)
    }
}
