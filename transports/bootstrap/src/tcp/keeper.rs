//! Answers at the address of a unique id until the job has formed. The process that made the id does that, whichever
//! rank runs in it, if any does.
//!
//! The control thread lets in whoever proves to know the secret. Ranks that come before rank 0 wait. If rank 0 is in another
//! process, it says where it listens, and all ranks are sent there until its connection closes: then the job has formed, or
//! has failed, and the address is given back. If rank 0 is in this process, it takes the listener over, and the ranks that
//! wait come again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use super::DEFAULT_SILENCE;
use super::card::Card;
use super::contact::{Contact, HINTS, Progress};
use super::handshake::{Purpose, Verdict};
use super::stand;
use crate::control::{Control, Dispatch, Source};
use crate::error::{BootstrapError, Result};
use crate::frame::{Frame, Kind};
use crate::hello::Introduction;
use crate::meeting::{REST, STRANGERS};
use crate::pipe::Pipe;
use crate::socket::accept;
use crate::sync::lock;

/// The most connections that have not proven themselves; the oldest goes first. Nobody knows here how many ranks there will be.
const MOST_STRANGERS: usize = 4 * STRANGERS;
/// Connections accepted before the control thread looks at the others.
const TURNS: usize = 64;

/// Keepers of ids whose rank 0 has not joined here, by address. Locked after a keeper's state, never before it.
static KEPT: Mutex<Option<HashMap<SocketAddr, Arc<Keeper>>>> = Mutex::new(None);

/// Answers at one address, until rank 0 takes its listener or the job is over.
struct Keeper {
    /// What handshakes are made with.
    key: [u8; 32],
    /// The process that made the id: a child that it forks inherits what is here, and not the thread that answers.
    pid: u32,
    control: Arc<Control>,
    me: Weak<Keeper>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listener: Option<OwnedFd>,
    /// The listener's token; `None` while it rests, since accepting failed.
    token: Option<u64>,
    next: u64,
    /// By number, and so in the order of their coming.
    visits: BTreeMap<u64, Visit>,
    root: Option<Root>,
    /// What was turned away.
    hints: BTreeSet<String>,
}

/// A rank 0 of another process.
struct Root {
    visit: u64,
    pid: u32,
    desk: SocketAddr,
}

struct Visit {
    token: u64,
    stage: Stage,
}

enum Stage {
    Stranger(Contact),
    /// Has proven to be this rank.
    Guest(u32, Pipe),
}

impl Visit {
    fn socket(&self) -> BorrowedFd<'_> {
        match &self.stage {
            Stage::Stranger(contact) => contact.socket.as_fd(),
            Stage::Guest(_, pipe) => pipe.socket.as_fd(),
        }
    }
}

/// The control thread calls this when something has come: a connection to the listener, or data on a visit's connection.
struct Ear {
    keeper: Weak<Keeper>,
    visit: Option<u64>,
}

impl Source for Ear {
    fn ready(&self) {
        let Some(keeper) = self.keeper.upgrade() else { return };
        let mut state = lock(&keeper.state);
        match self.visit {
            None => keeper.admit(&mut state),
            Some(number) => keeper.hear(&mut state, number),
        }
    }
}

/// Begins to answer at an address, with handshakes made with `key`.
pub(super) fn keep(address: SocketAddr, listener: OwnedFd, key: [u8; 32]) -> Result<()> {
    let (control, pid) = (Control::get()?, std::process::id());
    let state = Mutex::new(State { listener: Some(listener), ..State::default() });
    let keeper = Arc::new_cyclic(|me| Keeper { key, pid, control, me: me.clone(), state });
    keeper.open(&mut lock(&keeper.state))?;
    lock(&KEPT).get_or_insert_default().insert(address, keeper);
    Ok(())
}

/// Gives the listener at an address to rank 0 of this process, if it is kept here, with what was turned away there.
///
/// # Errors
/// `DuplicateRank` where a rank 0 has come there from another process, which hears of it as well.
pub(super) fn take(address: SocketAddr) -> Result<Option<(OwnedFd, BTreeSet<String>)>> {
    let Some(keeper) = find(address) else { return Ok(None) };
    let mut state = lock(&keeper.state);
    if let Some(first) = state.root_pid() {
        return Err(state.claimed_twice(first, keeper.pid));
    }
    let hints = std::mem::take(&mut state.hints);
    Ok(keeper.end(&mut state).map(|listener| (listener, hints)))
}

/// Gives an address back.
pub(super) fn retire(address: SocketAddr) {
    if let Some(keeper) = find(address) {
        drop(keeper.end(&mut lock(&keeper.state)));
    }
}

fn find(address: SocketAddr) -> Option<Arc<Keeper>> {
    forget_inherited();
    lock(&KEPT).as_ref()?.get(&address).cloned()
}

/// Closes what a forked process has inherited for ids that its parent made: once the parent has gone, nobody would serve the
/// connections that wait there.
pub(super) fn forget_inherited() {
    let pid = std::process::id();
    if let Some(kept) = lock(&KEPT).as_mut() {
        kept.retain(|_, keeper| keeper.pid == pid);
    }
}

impl State {
    /// The process of the rank 0 that has come, unless it has gone.
    fn root_pid(&mut self) -> Option<u32> {
        let root = self.root.as_ref()?;
        let there = match self.visits.get_mut(&root.visit).map(|visit| &mut visit.stage) {
            Some(Stage::Guest(_, pipe)) => pipe.next().is_ok(),
            _ => false,
        };
        there.then_some(root.pid)
    }

    /// Tells the rank 0 that has come that there is a second one.
    fn claimed_twice(&mut self, first: u32, second: u32) -> BootstrapError {
        let error = BootstrapError::DuplicateRank { rank: 0, first, second };
        let number = self.root.as_ref().map_or(u64::MAX, |root| root.visit);
        if let Some(Visit { stage: Stage::Guest(_, pipe), .. }) = self.visits.get_mut(&number) {
            pipe.send_bytes(Kind::Reject, error.told().into_bytes());
        }
        error
    }

    /// Where rank 0 listens, as guests are told; empty as long as it has not come.
    fn way(&self) -> Vec<u8> {
        self.root.as_ref().map_or_else(Vec::new, |root| root.desk.to_string().into_bytes())
    }
}

impl Keeper {
    fn ear(&self, visit: Option<u64>) -> Arc<Ear> {
        Arc::new(Ear { keeper: self.me.clone(), visit })
    }

    fn wake_at(&self, when: Instant) {
        let me: Weak<dyn Dispatch> = self.me.clone();
        self.control.post_at(when, me);
    }

    /// Watches the listener.
    fn open(&self, state: &mut State) -> Result<()> {
        if let (Some(listener), None) = (&state.listener, state.token) {
            state.token = Some(self.control.add(listener.as_fd(), self.ear(None))?);
        }
        Ok(())
    }

    /// Lets go of all; the listener is the caller's.
    fn end(&self, state: &mut State) -> Option<OwnedFd> {
        if let Some(kept) = lock(&KEPT).as_mut() {
            kept.retain(|_, keeper| !std::ptr::eq(Arc::as_ptr(keeper), self));
        }
        for visit in std::mem::take(&mut state.visits).into_values() {
            self.control.remove(visit.socket(), visit.token);
        }
        state.root = None;
        let listener = state.listener.take()?;
        if let Some(token) = state.token.take() {
            self.control.remove(listener.as_fd(), token);
        }
        Some(listener)
    }

    /// Accepts what waits at the listener.
    fn admit(&self, state: &mut State) {
        for _ in 0..TURNS {
            let Some(listener) = &state.listener else { return };
            match accept(listener) {
                Ok(Some(socket)) => self.let_in(state, socket),
                Ok(None) => return,
                Err(_) => {
                    // It stays ready: the control thread would come here again and again.
                    if let Some(token) = state.token.take() {
                        self.control.remove(listener.as_fd(), token);
                    }
                    return self.wake_at(Instant::now() + REST);
                }
            }
        }
    }

    fn let_in(&self, state: &mut State, socket: OwnedFd) {
        // Without random bits nobody can be let in.
        let Ok(Some(contact)) = Contact::answer(socket, self.key, 0) else { return };
        let number = state.next;
        state.next += 1;
        let Ok(token) = self.control.add(contact.socket.as_fd(), self.ear(Some(number))) else {
            return;
        };
        self.wake_at(contact.until);
        state.visits.insert(number, Visit { token, stage: Stage::Stranger(contact) });
        let strangers = |(&number, visit): (&u64, &Visit)| {
            matches!(visit.stage, Stage::Stranger(_)).then_some(number)
        };
        let strangers: Vec<u64> = state.visits.iter().filter_map(strangers).collect();
        for oldest in &strangers[..strangers.len().saturating_sub(MOST_STRANGERS)] {
            self.show_out(state, *oldest);
        }
    }

    fn show_out(&self, state: &mut State, number: u64) {
        if let Some(visit) = state.visits.remove(&number) {
            self.control.remove(visit.socket(), visit.token);
        }
    }

    /// Goes on with a visit, as far as it can without waiting.
    fn hear(&self, state: &mut State, number: u64) {
        let Some(visit) = state.visits.remove(&number) else { return };
        let token = visit.token;
        let guest = match visit.stage {
            Stage::Guest(rank, pipe) => Some((rank, pipe)),
            Stage::Stranger(mut contact) => {
                contact.due = true;
                match contact.advance() {
                    Progress::Waiting => {
                        let stage = Stage::Stranger(contact);
                        state.visits.insert(number, Visit { token, stage });
                        return;
                    }
                    Progress::Proven { purpose, rank } => {
                        self.welcome(state, token, contact, purpose, rank)
                    }
                    Progress::Over(why) => {
                        self.control.remove(contact.socket.as_fd(), token);
                        let hint = contact.hint(why).filter(|_| state.hints.len() < HINTS);
                        state.hints.extend(hint);
                        None
                    }
                }
            }
        };
        let Some((rank, mut pipe)) = guest else { return };
        loop {
            match pipe.next() {
                Ok(None) => break,
                Ok(Some(frame)) if rank == 0 && frame.kind == Kind::Join => {
                    if !self.receive_root(state, number, &mut pipe, &frame) {
                        self.control.remove(pipe.socket.as_fd(), token);
                        return;
                    }
                }
                // The card of a guest: rank 0 will want it anew.
                Ok(Some(_)) => {}
                Err(_) => {
                    self.control.remove(pipe.socket.as_fd(), token);
                    if state.root.as_ref().is_some_and(|root| root.visit == number) {
                        // Its job has formed, or it has told who had come to it why not.
                        drop(self.end(state));
                    }
                    return;
                }
            }
        }
        state.visits.insert(number, Visit { token, stage: Stage::Guest(rank, pipe) });
    }

    /// The last word to who has proven itself; a rank of the job stays.
    fn welcome(
        &self,
        state: &State,
        token: u64,
        contact: Contact,
        purpose: Purpose,
        rank: u32,
    ) -> Option<(u32, Pipe)> {
        let joins = purpose == Purpose::Join;
        let verdict = if joins { Verdict::Welcome } else { Verdict::Unexpected };
        let kept = stand::keep_alive(&contact.socket, DEFAULT_SILENCE).is_ok();
        if !(contact.verdict(verdict) && kept && joins) {
            self.control.remove(contact.socket.as_fd(), token);
            return None;
        }
        let mut pipe = Pipe::known(contact.socket, 0);
        if rank != 0 {
            pipe.send_bytes(Kind::Way, state.way());
        }
        Some((rank, pipe))
    }

    /// Rank 0 presents itself: whether it may stay.
    fn receive_root(&self, state: &mut State, number: u64, pipe: &mut Pipe, frame: &Frame) -> bool {
        let Some(card) = Card::decode(&frame.payload).filter(|card| card.rank == 0) else {
            return false;
        };
        if let Some(first) = state.root_pid() {
            let error = state.claimed_twice(first, card.pid);
            pipe.send_bytes(Kind::Reject, error.told().into_bytes());
            return true;
        }
        if state.root.is_some() {
            // That one's job is over, and the address has been given back as far as this one knows.
            drop(self.end(state));
            return false;
        }
        state.root = Some(Root { visit: number, pid: card.pid, desk: card.address });
        let way = state.way();
        for visit in state.visits.values_mut() {
            if let Stage::Guest(1.., pipe) = &mut visit.stage {
                pipe.send_bytes(Kind::Way, way.clone());
            }
        }
        true
    }
}

/// A visitor's time is up, or the listener has rested.
impl Dispatch for Keeper {
    fn dispatch(&self) {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let late = |(&number, visit): (&u64, &Visit)| match &visit.stage {
            Stage::Stranger(contact) if contact.until <= now => Some(number),
            _ => None,
        };
        let late: Vec<u64> = state.visits.iter().filter_map(late).collect();
        late.into_iter().for_each(|number| self.show_out(&mut state, number));
        if self.open(&mut state).is_err() {
            self.wake_at(now + REST);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::TcpStream;
    use std::time::Duration;

    use rustix::event::{Timespec, poll};

    use super::*;
    use crate::sync::hex;

    /// Longer than anything takes that works.
    const PATIENCE: Duration = Duration::from_secs(20);
    const KEY: [u8; 32] = [7; 32];

    /// An address that is kept.
    fn kept() -> SocketAddr {
        let (listener, address) = stand::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        keep(address, listener, KEY).unwrap();
        address
    }

    fn wait(interest: rustix::event::PollFd<'_>) {
        let limit = Timespec::try_from(PATIENCE).unwrap();
        assert_eq!(poll(&mut [interest], Some(&limit)), Ok(1), "nothing comes");
    }

    /// A rank that has proven itself.
    fn visitor(address: SocketAddr, rank: u32) -> Pipe {
        let mut contact = Contact::call(address, KEY, Purpose::Join, rank, 0).unwrap().unwrap();
        loop {
            match contact.advance() {
                Progress::Waiting => wait(contact.interest()),
                Progress::Proven { .. } => return Pipe::known(contact.socket, 0),
                Progress::Over(why) => panic!("turned away: {why:?}"),
            }
            contact.due = true;
        }
    }

    /// Rank 0, which listens there.
    fn root(address: SocketAddr, pid: u32, desk: SocketAddr) -> Pipe {
        let (process, door, host) = ([0; 16], hex(&[1]), String::new());
        let card = Card { rank: 0, world: 9, pid, process, door, host, address: desk };
        let mut pipe = visitor(address, 0);
        pipe.send_bytes(Kind::Join, card.encode());
        pipe
    }

    /// What comes next; `None` where the other end closes.
    fn hear(pipe: &mut Pipe) -> Option<(Kind, String)> {
        loop {
            match pipe.next() {
                Ok(None) => wait(pipe.interest()),
                Ok(Some(frame)) => {
                    let text = String::from_utf8_lossy(&frame.payload).into_owned();
                    return Some((frame.kind, text));
                }
                Err(_) => return None,
            }
        }
    }

    fn way(text: &str) -> Option<(Kind, String)> {
        Some((Kind::Way, text.to_owned()))
    }

    #[test]
    fn guests_wait_for_rank_0_and_are_sent_where_it_listens_until_it_goes() {
        let address = kept();
        let mut early = visitor(address, 1);
        assert_eq!(hear(&mut early), way(""));
        let desk = "[fd00::1]:5";
        let root = root(address, 5, desk.parse().unwrap());
        assert_eq!(hear(&mut early), way(desk));
        let mut late = visitor(address, 2);
        assert_eq!(hear(&mut late), way(desk));
        drop(root);
        assert_eq!([hear(&mut early), hear(&mut late)], [None, None]);
        assert!(find(address).is_none());
    }

    #[test]
    fn guests_come_again_where_rank_0_takes_the_listener_over() {
        let address = kept();
        let mut guest = visitor(address, 1);
        assert_eq!(hear(&mut guest), way(""));
        let (listener, _) = take(address).unwrap().unwrap();
        assert_eq!(hear(&mut guest), None);
        let _again = TcpStream::connect(address).unwrap();
        wait(rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN));
        assert!(accept(&listener).unwrap().is_some());
        assert!(take(address).unwrap().is_none(), "it is taken");
    }

    #[test]
    fn both_that_claim_to_be_rank_0_hear_of_it() {
        let (address, desk) = (kept(), SocketAddr::from(([10, 0, 0, 1], 5)));
        let claimed = |heard: Option<(Kind, String)>, second| {
            let (kind, text) = heard.unwrap();
            let claim = format!("rank 0 is claimed by pid 5 and by pid {second};");
            assert!(kind == Kind::Reject && text.contains(&claim), "{kind:?} {text}");
        };
        let mut guest = visitor(address, 1);
        assert_eq!(hear(&mut guest), way(""));
        let mut first = root(address, 5, desk);
        assert_eq!(hear(&mut guest), way(&desk.to_string()));
        let mut second = root(address, 6, desk);
        claimed(hear(&mut second), 6);
        claimed(hear(&mut first), 6);
        let own = take(address).map(drop).unwrap_err();
        assert!(matches!(own, BootstrapError::DuplicateRank { first: 5, .. }), "{own}");
        claimed(hear(&mut first), std::process::id());
        drop(first);
        assert_eq!(hear(&mut guest), None);
    }

    #[test]
    fn of_many_strangers_the_oldest_go_and_guests_stay() {
        let address = kept();
        let mut guest = visitor(address, 1);
        assert_eq!(hear(&mut guest), way(""));
        let call = || TcpStream::connect(address).unwrap();
        let strangers: Vec<TcpStream> = (0..MOST_STRANGERS + 2).map(|_| call()).collect();
        for mut stranger in strangers.iter().take(2) {
            stranger.set_read_timeout(Some(PATIENCE)).unwrap();
            match stranger.read(&mut [0]) {
                Ok(0) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
                other => panic!("{other:?}"),
            }
        }
        let root = root(address, 5, address);
        assert_eq!(hear(&mut guest), way(&address.to_string()));
        drop(root);
    }

    #[test]
    fn a_listener_that_fails_rests_and_is_asked_again() {
        let address = kept();
        let keeper = find(address).unwrap();
        let (deaf, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut state = lock(&keeper.state);
        let listener = state.listener.take().unwrap();
        keeper.control.remove(listener.as_fd(), state.token.take().unwrap());
        state.listener = Some(deaf.into());
        keeper.open(&mut state).unwrap();
        keeper.admit(&mut state);
        assert_eq!(state.token, None);
        state.listener = Some(listener);
        drop(state);
        assert_eq!(hear(&mut visitor(address, 1)), way(""));
        retire(address);
    }
}
