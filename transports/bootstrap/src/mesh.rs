//! One rank's state: who is there, what has arrived, what is waited for. How bytes travel is the [`Carrier`]'s affair.
//!
//! Lock order: a mesh's lock is never held while its carrier is called, so that meshes of one process may call each other.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::absent::{Absent, Gone};
use crate::collective::{Out, Rounds};
use crate::control::{Control, Dispatch};
use crate::error::Lost;
use crate::frame::{Frame, Kind};
use crate::inbox::Inbox;
use crate::sync::lock;
use crate::{PeerInfo, Result};

/// How many groups are remembered that were let go of, and how many more for each rank, since a communicator that goes lets go of
/// some with each rank. Peers are never that many groups behind.
const MOST_LEFT: usize = 1024;
const MOST_LEFT_FOR_EACH: usize = 16;
/// How long a closing mesh waits for threads that are sending.
const CLOSING: Duration = Duration::from_secs(2);

/// Carries frames to the other ranks.
pub(crate) trait Carrier: Send + Sync {
    /// Queues a frame; never blocks. A failure shows as the loss of the peer.
    fn send(&self, to: u32, frame: Frame);
    /// Gives all linked peers these aborts, as far as they are for them, and says goodbye, and lets go of the links after what is queued has left (within
    /// bounds).
    fn close(&self, last: &[Frame]);
    /// Whether there is a link to the peer, or a frame would have one made.
    fn is_linked(&self, _peer: u32) -> bool {
        true
    }
    /// Whether descriptors reach the peer.
    fn passes_descriptors(&self, _peer: u32) -> bool {
        true
    }
    /// Tells `members` of an abort by this rank, if possible with fewer messages than there are members.
    fn tell_abort(&self, me: u32, members: &[u32], abort: &Frame) {
        for &to in members.iter().filter(|&&to| to != me) {
            self.send(to, abort.share());
        }
    }
    /// Takes note of an abort that another rank told this one of.
    fn heard_abort(&self, _from: u32, _by: u32, _abort: &Frame) {}
    /// Takes note of a peer that is gone by the word of its own link.
    fn saw_go(&self, _peer: u32, _how: &Gone) {}
    /// Takes another rank's word on ranks that are gone; returns those that no link of this rank will tell of.
    fn hear_news(&self, _from: u32, _news: &[u8]) -> std::result::Result<Vec<(u32, Gone)>, String> {
        Err("news, which nobody here passes on".to_owned())
    }
}

/// An abort: the mesh rank that called it, and why.
#[derive(Clone, Debug)]
pub(crate) struct Abort {
    pub by: u32,
    pub reason: String,
    /// Who is to hear of it, as in its frame.
    pub only: u64,
}

pub(crate) struct State {
    pub closed: bool,
    /// Threads that are sending what they found due.
    pub unsent: usize,
    /// Groups that were let go of while threads were sending, with the members to tell of it once those are done.
    departures: Vec<(u64, Vec<u32>)>,
    pub rounds: Rounds,
    pub inbox: Inbox,
    pub absent: Absent,
    /// By wire id of the group.
    pub aborted: HashMap<u64, Abort>,
    /// How many ends of a group there are, by wire id.
    held: HashMap<u64, usize>,
    /// Groups that this rank has let go of, or never came to, by wire id, in that order.
    left: VecDeque<u64>,
    most_left: usize,
}

impl State {
    /// Notes that this rank has no part in a group any more. Groups that were left long ago are forgotten, since nothing more is
    /// to come of them; the caller drops the returned value without the lock.
    pub fn leave(&mut self, group: u64) -> impl Sized + use<> {
        self.left.push_back(group);
        let over = self.left.len().saturating_sub(self.most_left);
        let due = self.left.drain(..over).collect::<Vec<_>>().into_iter();
        let is_used = |group: &u64| self.is_held(*group) || self.inbox.is_heard(*group);
        let (used, long_ago): (Vec<_>, Vec<_>) = due.partition(is_used);
        // Some other time.
        self.left.extend(used);
        let forget = |group| {
            self.rounds.forget(group);
            self.aborted.remove(&group);
            self.inbox.forget(group)
        };
        long_ago.into_iter().map(forget).collect::<Vec<_>>()
    }

    /// There is one more end of a group.
    pub fn hold(&mut self, group: u64) {
        *self.held.entry(group).or_default() += 1;
    }

    /// There is one end of a group less.
    pub fn release(&mut self, group: u64) {
        let held = self.held.get_mut(&group).map(|held| {
            *held -= 1;
            *held
        });
        if held == Some(0) {
            self.held.remove(&group);
            self.absent.forget(group);
        }
    }

    /// Whether there is an end of a group.
    pub fn is_held(&self, group: u64) -> bool {
        self.held.contains_key(&group)
    }

    /// Whether this rank has let go of a group.
    fn has_left(&self, group: u64) -> bool {
        !self.is_held(group) && self.left.contains(&group) && !self.aborted.contains_key(&group)
    }

    /// Whether this rank has, or had, a part in a group.
    fn has_joined(&self, group: u64) -> bool {
        self.is_held(group) || self.inbox.is_heard(group) || self.rounds.has_joined(group)
    }

    /// Of how many groups what is remembered: that they were let go of, aborts, channels and calls.
    #[cfg(test)]
    fn remembered(&self) -> [usize; 4] {
        let [channels, calls] = [self.inbox.remembered(), self.rounds.remembered()];
        [self.left.len(), self.aborted.len(), channels, calls]
    }
}

/// One rank's end. Ranks are mesh ranks here; groups renumber on top.
pub(crate) struct Mesh {
    pub rank: u32,
    pub peers: Arc<[PeerInfo]>,
    pub limit: Duration,
    /// What only the ranks of this job know.
    pub secret: [u8; 32],
    pub state: Mutex<State>,
    /// Signalled when a wait may have ended.
    pub changed: Condvar,
    carrier: Box<dyn Carrier>,
    control: Arc<Control>,
    me: Weak<Mesh>,
}

impl Mesh {
    /// A mesh over the carrier that `carrier` makes; the carrier delivers by [`Mesh::receive`] through the weak reference.
    pub fn new(
        rank: u32,
        peers: impl Into<Arc<[PeerInfo]>>,
        limit: Duration,
        secret: [u8; 32],
        carrier: impl FnOnce(&Weak<Mesh>) -> Result<Box<dyn Carrier>>,
    ) -> Result<Arc<Mesh>> {
        let control = Control::get()?;
        let peers = peers.into();
        let state = State {
            closed: false,
            unsent: 0,
            departures: Vec::new(),
            rounds: Rounds::default(),
            inbox: Inbox::default(),
            absent: Absent::default(),
            aborted: HashMap::new(),
            held: HashMap::new(),
            left: VecDeque::new(),
            most_left: MOST_LEFT + MOST_LEFT_FOR_EACH * peers.len(),
        };
        let mut failed = None;
        let mesh = Arc::new_cyclic(|me| {
            let carrier = carrier(me).unwrap_or_else(|error| {
                failed = Some(error);
                Box::new(NoCarrier)
            });
            let (state, changed, me) = (Mutex::new(state), Condvar::new(), me.clone());
            Mesh { rank, peers, limit, secret, state, changed, carrier, control, me }
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(mesh),
        }
    }

    /// Sends to a rank, which may be this one.
    pub fn send(&self, to: u32, frame: Frame) {
        if to == self.rank {
            // What this rank makes is well formed.
            let _ = self.receive(self.rank, frame);
        } else {
            self.carrier.send(to, frame);
        }
    }

    /// Sends, without holding the lock, what was found due under it. Until that is done the mesh does not close, and no group
    /// is left: a result that a waiter sees here must reach the others before this rank's goodbye.
    pub fn send_out(&self, mut state: MutexGuard<'_, State>, out: Out) {
        if out.is_empty() && state.departures.is_empty() {
            return;
        }
        state.unsent += 1;
        drop(state);
        for (to, frame) in out {
            self.send(to, frame);
        }
        let mut state = lock(&self.state);
        state.unsent -= 1;
        if state.unsent == 0 {
            self.changed.notify_all();
            let departures = std::mem::take(&mut state.departures);
            drop(state);
            departures.iter().for_each(|(group, members)| self.tell_departure(*group, members));
        }
    }

    /// Tells a group's members of an abort by this rank.
    pub fn tell_abort(&self, members: &[u32], abort: &Frame) {
        self.carrier.tell_abort(self.rank, members, abort);
    }

    /// Whether descriptors reach a peer.
    pub fn passes_descriptors(&self, to: u32) -> bool {
        to == self.rank || self.carrier.passes_descriptors(to)
    }

    /// Takes in a frame from a peer. An error means that the peer does not keep to the protocol.
    pub fn receive(&self, from: u32, frame: Frame) -> std::result::Result<(), String> {
        let mut out = Out::new();
        match frame.kind {
            Kind::Abort => {
                self.take_abort(from, &frame);
                return Ok(());
            }
            Kind::AbortBy if (frame.tag as usize) < self.peers.len() => {
                self.take_abort(frame.tag, &frame);
                self.carrier.heard_abort(from, frame.tag, &frame);
                return Ok(());
            }
            Kind::Bye => {
                self.go(from, Gone::Left);
                self.carrier.saw_go(from, &Gone::Left);
                return Ok(());
            }
            Kind::Leave => {
                let member = frame.tag.checked_sub(1).unwrap_or(from);
                self.depart(member, frame.group);
                return Ok(());
            }
            Kind::News => {
                for (peer, how) in self.carrier.hear_news(from, &frame.payload)? {
                    self.go(peer, how);
                }
                return Ok(());
            }
            _ => {}
        }
        let mut state = lock(&self.state);
        if state.closed {
            return Ok(());
        }
        if state.has_left(frame.group) {
            // The sender does not know of this, or else it would not wait for an answer.
            state.departures.push((frame.group, vec![from]));
        }
        let State { rounds, absent, inbox, .. } = &mut *state;
        if frame.kind == Kind::Part {
            // Not all members have links to each other.
            out.extend(absent.departed(frame.group).map(|gone| (from, left(frame.group, gone))));
        }
        let wake = match frame.kind {
            Kind::Message => {
                inbox.push_message(from, frame);
                self.schedule(&mut state);
                false
            }
            Kind::Part => rounds.take_part(self.rank, from, frame, &mut out),
            Kind::Result => rounds.take_result(from, &frame)?,
            Kind::Mismatch => rounds.take_mismatch(from, &frame)?,
            Kind::Answer => rounds.take_answer(from, &frame)?,
            Kind::Ask => {
                let is_gone = |member| absent.from(frame.group, member).is_some();
                rounds.take_question(from, &frame, is_gone, &mut out);
                false
            }
            kind => return Err(format!("a {kind:?} frame after the job had formed")),
        };
        if wake {
            self.changed.notify_all();
        }
        self.send_out(state, out);
        Ok(())
    }

    /// Notes an abort; false if the group was aborted before.
    fn take_abort(&self, by: u32, abort: &Frame) -> bool {
        // One that the watcher passes on need not be for it.
        if !abort.is_for(self.rank) {
            return false;
        }
        let mut state = lock(&self.state);
        if state.closed || state.aborted.contains_key(&abort.group) {
            return false;
        }
        let reason = String::from_utf8_lossy(&abort.payload).into_owned();
        let group = abort.group;
        state.aborted.insert(group, Abort { by, reason, only: abort.stream });
        // If this rank comes to the group later, it hears of the abort first, and does not ask for what was sent to the
        // group before.
        let ended = (!state.has_joined(group)).then(|| {
            state.rounds.forget(group);
            (state.inbox.forget(group), state.leave(group))
        });
        state.inbox.push_recheck();
        self.schedule(&mut state);
        self.changed.notify_all();
        drop(state);
        drop(ended);
        true
    }

    /// Notes that a peer is gone.
    fn go(&self, peer: u32, how: Gone) {
        let mut out = Out::new();
        let mut state = lock(&self.state);
        if state.closed || state.absent.gone.contains_key(&peer) {
            return;
        }
        if let Gone::Lost(_) = how {
            state.inbox.push_recheck();
            self.schedule(&mut state);
        }
        state.absent.gone.insert(peer, how);
        state.rounds.settle(peer, |_| true, &mut out);
        self.changed.notify_all();
        self.send_out(state, out);
    }

    /// Notes that a member has let go of a group.
    fn depart(&self, member: u32, group: u64) {
        let mut out = Out::new();
        let mut state = lock(&self.state);
        if state.closed || !state.is_held(group) {
            return;
        }
        state.absent.depart(group, member);
        let waiting = state.rounds.waiting(group).filter(|&to| to != self.rank && to != member);
        out.extend(waiting.map(|to| (to, left(group, member))));
        state.rounds.settle(member, |of| of == group, &mut out);
        self.changed.notify_all();
        self.send_out(state, out);
    }

    /// Tells the members of a group, as far as there are links to them, that this rank has let go of it: others hear it when they write.
    pub fn tell_departure(&self, group: u64, members: &[u32]) {
        let mut state = lock(&self.state);
        if state.unsent > 0 {
            return state.departures.push((group, members.to_vec()));
        }
        drop(state);
        let linked = |&&to: &&u32| to != self.rank && self.carrier.is_linked(to);
        for &to in members.iter().filter(linked) {
            self.send(to, Frame { group, ..Frame::plain(Kind::Leave, Vec::new()) });
        }
    }

    /// Records that a peer is lost by the word of its own link, or given up by this rank `alone`; unless it had left before.
    pub fn lose(&self, peer: u32, reason: String, alone: bool) {
        let how = Gone::Lost(Lost { pid: self.peers[peer as usize].pid, reason, alone });
        // Also of a mesh that closes, which may be saying goodbye to this very peer; and first: callers of this rank may leave for it.
        self.carrier.saw_go(peer, &how);
        self.go(peer, how);
    }

    /// Makes the control thread look at the inbox, at most once at a time.
    pub fn schedule(&self, state: &mut State) {
        if !std::mem::replace(&mut state.inbox.posted, true)
            && let Some(me) = self.me.upgrade()
        {
            self.control.post(me);
        }
    }

    /// Says goodbye, once.
    pub fn close(&self) {
        let (inbox, last) = {
            let state = lock(&self.state);
            if state.closed {
                return;
            }
            let unsent = |state: &mut State| state.unsent > 0;
            let waited = self.changed.wait_timeout_while(state, CLOSING, unsent);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.closed = true;
            // A peer must not hear of this leaving before it hears what it is due to: the abort may be on its way yet.
            let abort = |(&group, abort): (&u64, &Abort)| {
                let frame = Frame::plain(Kind::AbortBy, abort.reason.clone().into_bytes());
                Frame { tag: abort.by, group, stream: abort.only, ..frame }
            };
            let last: Vec<Frame> = state.aborted.iter().map(abort).collect();
            (std::mem::take(&mut state.inbox), last)
        };
        self.carrier.close(&last);
        // Handlers may own anything, so their last references go without the lock.
        drop(inbox);
    }
}

/// The gatherer's word that a member has let go of a group.
fn left(group: u64, member: u32) -> Frame {
    Frame { group, tag: member + 1, ..Frame::plain(Kind::Leave, Vec::new()) }
}

impl Dispatch for Mesh {
    fn dispatch(&self) {
        while let Some(call) = crate::inbox::next_call(self) {
            call.run(self);
        }
    }
}

/// Stands in for the carrier of a mesh that could not be made.
struct NoCarrier;

impl Carrier for NoCarrier {
    fn send(&self, _: u32, _: Frame) {}
    fn close(&self, _: &[Frame]) {}
}

/// What users own: as the last one goes, on its own thread, the mesh says goodbye. (The control thread holds the mesh
/// itself for moments, and must not be the one to close it while the process is already ending.)
pub(crate) struct Session(pub Arc<Mesh>);

impl Drop for Session {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::{Group, Member};
    use crate::{BootstrapError, Handler};
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    /// Keeps what was given with the goodbye.
    #[derive(Clone, Default)]
    struct Last(Arc<Mutex<Vec<Frame>>>);

    impl Carrier for Last {
        fn send(&self, _: u32, _: Frame) {}

        fn close(&self, last: &[Frame]) {
            lock(&self.0).extend(last.iter().map(Frame::share));
        }
    }

    /// Hears nothing.
    struct Silent;

    impl Handler for Silent {
        fn message(&self, _: u32, _: u32, _: &[u8], _: Vec<OwnedFd>) {}
        fn peer_lost(&self, _: u32, _: &Lost) {}
        fn aborted(&self, _: u32, _: &str) {}
    }

    #[test]
    fn of_groups_that_were_let_go_of_the_latest_are_remembered() {
        let peer = PeerInfo { pid: 1, same_process: true, node: 0, address: None };
        let carrier = Box::new(Last::default());
        let mesh = Mesh::new(1, vec![peer; 3], CLOSING, [0; 32], |_| Ok(carrier)).unwrap();
        let whole = Member::whole(Arc::clone(&mesh));
        let abort = || Frame::plain(Kind::Abort, b"enough".to_vec());
        let kept = whole.group(u64::MAX, &[1, 2]).unwrap();
        kept.subscribe(7, Arc::new(Silent)).unwrap();
        let most = lock(&mesh.state).most_left + 2;
        let groups = 3 * most as u64;
        let given_up = whole.group(u64::MAX - 1, &[1, 2]).unwrap();
        let group = Group::of(0, u64::MAX - 1, vec![1, 2], CLOSING).id;
        mesh.receive(2, Frame { group, ..abort() }).unwrap();
        // Too early, since there are ends of both.
        kept.let_go();
        given_up.let_go();
        for number in 0..groups {
            let group = whole.group(number, &[0, 1]).unwrap();
            group.subscribe(7, Arc::new(Silent)).unwrap();
            drop(group.exchange_begin(b"part").unwrap());
            group.unsubscribe(7);
            group.let_go();
            // One that others have given up, and this rank has never come to.
            mesh.receive(2, Frame { group: number + 5, ..abort() }).unwrap();
            let remembered = lock(&mesh.state).remembered();
            assert!(remembered.iter().all(|&count| count <= most), "{number}: {remembered:?}");
        }
        // A group of which somebody has an end stays, whatever comes and goes.
        assert!(matches!(given_up.check(), Err(BootstrapError::Aborted { .. })));
        assert!(matches!(
            kept.subscribe(7, Arc::new(Silent)),
            Err(BootstrapError::Subscribed { .. })
        ));
        let late = Frame { group: groups + 4, ..Frame::plain(Kind::Message, Vec::new()) };
        mesh.receive(2, late).unwrap();
        while crate::inbox::next_call(&mesh).is_some() {}
        let remembered = lock(&mesh.state).remembered();
        assert!(remembered.iter().all(|&count| count <= most), "{remembered:?}");
        drop((kept, given_up, whole));
    }

    /// Counts what it hears.
    #[derive(Default)]
    struct Counting([AtomicUsize; 2]);

    impl Handler for Counting {
        fn message(&self, _: u32, _: u32, _: &[u8], _: Vec<OwnedFd>) {
            self.0[0].fetch_add(1, Ordering::Relaxed);
        }

        fn peer_lost(&self, _: u32, _: &Lost) {}

        fn aborted(&self, _: u32, _: &str) {
            self.0[1].fetch_add(1, Ordering::Release);
        }
    }

    #[test]
    fn what_comes_before_an_abort_reaches_who_subscribes_later() {
        let peer = PeerInfo { pid: 1, same_process: true, node: 0, address: None };
        let carrier = Box::new(Last::default());
        let mesh = Mesh::new(1, vec![peer; 3], CLOSING, [0; 32], |_| Ok(carrier)).unwrap();
        let whole = Member::whole(Arc::clone(&mesh));
        let part = Group::of(0, 5, vec![1, 2], CLOSING).id;
        for (end, group) in [(Arc::clone(&whole), 0), (whole.group(5, &[1, 2]).unwrap(), part)] {
            for (kind, stream) in [(Kind::Message, 7), (Kind::Abort, 0)] {
                let frame = Frame { group, stream, ..Frame::plain(kind, Vec::new()) };
                mesh.receive(2, frame).unwrap();
            }
            // The control thread may have seen both, or not yet.
            while crate::inbox::next_call(&mesh).is_some() {}
            let heard = Arc::new(Counting::default());
            end.subscribe(7, Arc::clone(&heard) as Arc<dyn Handler>).unwrap();
            let began = Instant::now();
            while heard.0[1].load(Ordering::Acquire) == 0 {
                assert!(began.elapsed() < Duration::from_secs(60), "nobody hears of the abort");
                std::thread::yield_now();
            }
            assert_eq!(heard.0[0].load(Ordering::Relaxed), 1, "the message");
        }
    }

    #[test]
    fn who_leaves_says_first_that_the_group_was_aborted() {
        let last = Last::default();
        let peer = PeerInfo { pid: 1, same_process: true, node: 0, address: None };
        let carrier = Box::new(last.clone());
        let mesh = Mesh::new(1, vec![peer; 3], CLOSING, [0; 32], |_| Ok(carrier)).unwrap();
        let abort = Frame::plain(Kind::Abort, b"the model diverged".to_vec());
        mesh.receive(0, Frame { group: 5, ..abort }).unwrap();
        drop(Session(mesh));
        let last = lock(&last.0);
        let [frame] = &last[..] else { panic!("{} frames", last.len()) };
        assert_eq!((frame.kind, frame.tag, frame.group), (Kind::AbortBy, 0, 5));
        assert_eq!(**frame.payload, *b"the model diverged");
    }

    #[test]
    fn an_abort_of_two_ranks_is_for_the_other_one_alone() {
        let last = Last::default();
        let peer = PeerInfo { pid: 1, same_process: true, node: 0, address: None };
        let carrier = Box::new(last.clone());
        let mesh = Mesh::new(1, vec![peer; 3], CLOSING, [0; 32], |_| Ok(carrier)).unwrap();
        let whole = Member::whole(mesh.clone());
        whole.group(7, &[2, 1]).unwrap().abort("enough");
        let heard = |kind, group, only: u32| Frame {
            group,
            stream: u64::from(only) + 1,
            ..Frame::plain(kind, b"enough".to_vec())
        };
        // Who aborted knows, and of others' this rank hears to pass it on.
        mesh.receive(0, heard(Kind::Abort, 5, 1)).unwrap();
        mesh.receive(0, heard(Kind::AbortBy, 6, 2)).unwrap();
        drop(whole);
        let last = lock(&last.0);
        let told = |rank| last.iter().filter(|frame| frame.is_for(rank)).count();
        assert_eq!([told(0), told(1), told(2)], [0, 1, 1]);
    }
}
