//! The view that users hold: some ranks of a mesh, renumbered.

use std::collections::HashSet;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::absent::Gone;
use crate::collective::{Operation, Ticket};
use crate::error::{BootstrapError, PeerName, Result};
use crate::frame::{Frame, Kind, MAX_DESCRIPTORS, MAX_PAYLOAD};
use crate::mesh::{Abort, Mesh, Session, State};
use crate::sync::lock;
use crate::{Bootstrap, Handler, Message, PeerInfo};

/// Longest reason of an abort, in bytes; the rest is cut.
const MAX_REASON: usize = 4096;

/// Some ranks of a mesh.
pub(crate) struct Group {
    /// Names the group on the wire: all ranks compute the same from its ancestry and members.
    pub id: u64,
    /// Mesh ranks in the order of the group's ranks.
    pub members: Vec<u32>,
    /// How long this rank waits for the others.
    pub limit: Duration,
    /// What the log calls it.
    pub called: Option<Arc<str>>,
}

impl Group {
    /// The group of all ranks.
    fn whole(world: usize, limit: Duration) -> Group {
        Group { id: 0, members: (0..world as u32).collect(), limit, called: None }
    }

    pub(crate) fn of(parent: u64, id: u64, members: Vec<u32>, limit: Duration) -> Group {
        // splitmix64 over the whole description: 64 well-mixed bits, so that groups of one job do not meet by chance.
        let words = [parent, id].into_iter().chain(members.iter().map(|&rank| u64::from(rank)));
        let mixed = words.fold(members.len() as u64, |hash, word| {
            let mut mixed = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        });
        // 0 is the group of all ranks.
        Group { id: mixed.max(1), members, limit, called: None }
    }

    /// The mesh rank that gathers the group's collectives.
    pub fn gatherer(&self) -> u32 {
        // A group has its maker as a member, at least.
        self.members.first().copied().unwrap_or(0)
    }

    /// The group's number of a mesh rank.
    pub fn rank_of(&self, member: u32) -> Option<u32> {
        if self.id == 0 {
            return Some(member).filter(|&member| (member as usize) < self.members.len());
        }
        self.members.iter().position(|&rank| rank == member).map(|at| at as u32)
    }

    /// The mesh rank of a rank of the group.
    fn member(&self, rank: u32) -> Result<u32> {
        let world = self.members.len() as u32;
        let member = self.members.get(rank as usize).copied();
        member.ok_or(BootstrapError::NoSuchRank { rank, world })
    }

    /// Fails if a rank of the group is gone, which is this one of the mesh.
    fn check_peer(
        &self,
        mesh: &Mesh,
        state: &State,
        (rank, member): (u32, u32),
        doing: &'static str,
    ) -> Result<()> {
        let peer = PeerName { rank, pid: mesh.peers[member as usize].pid };
        match state.absent.from(self.id, member) {
            None => Ok(()),
            Some(Gone::Left) => Err(BootstrapError::PeerLeft { doing, peer }),
            Some(Gone::Lost(lost)) => {
                Err(BootstrapError::PeerLost { doing, peer, reason: lost.reason.clone() })
            }
        }
    }

    /// Fails if the group is aborted.
    pub fn check_abort(&self, mesh: &Mesh, state: &State, doing: &'static str) -> Result<()> {
        let Some(Abort { by, reason, .. }) = state.aborted.get(&self.id) else { return Ok(()) };
        let pid = mesh.peers[*by as usize].pid;
        let by = PeerName { rank: self.rank_of(*by).unwrap_or(*by), pid };
        Err(BootstrapError::Aborted { doing, by, reason: reason.clone() })
    }
}

/// Queues a message of this rank to another of the group, unless it has said goodbye.
fn send(mesh: &Mesh, group: &Group, peer: u32, message: Message) -> Result<()> {
    let doing = "sending a message";
    let to = group.member(peer)?;
    let Message { channel, tag, payload, descriptors } = message;
    bounded("a message (bytes)", payload.len(), MAX_PAYLOAD)?;
    bounded("a message (descriptors)", descriptors.len(), MAX_DESCRIPTORS)?;
    {
        let state = lock(&mesh.state);
        if state.closed {
            return Ok(());
        }
        group.check_abort(mesh, &state, doing)?;
        group.check_peer(mesh, &state, (peer, to), doing)?;
        if !descriptors.is_empty() && !mesh.passes_descriptors(to) {
            let peer = PeerName { rank: peer, pid: mesh.peers[to as usize].pid };
            return Err(BootstrapError::NoDescriptors { peer });
        }
    }
    let payload = Arc::new(payload);
    let (kind, group, stream) = (Kind::Message, group.id, channel);
    mesh.send(to, Frame { kind, tag, group, stream, payload, descriptors });
    Ok(())
}

/// Aborts a group on behalf of this rank, unless it has said goodbye.
pub(crate) fn abort(mesh: &Mesh, group: &Group, reason: &str) {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let reason = &reason[..end];
    // There may be many pairs, and an abort that all have to pass on each.
    let only = match group.members[..] {
        [one, other] => u64::from(if one == mesh.rank { other } else { one }) + 1,
        _ => 0,
    };
    {
        let mut state = lock(&mesh.state);
        if state.closed || state.aborted.contains_key(&group.id) {
            return;
        }
        let abort = Abort { by: mesh.rank, reason: reason.to_owned(), only };
        state.aborted.insert(group.id, abort);
        mesh.changed.notify_all();
    }
    let frame = Frame::plain(Kind::Abort, reason.as_bytes().to_vec());
    mesh.tell_abort(&group.members, &Frame { group: group.id, stream: only, ..frame });
}

/// Speaks for a rank in a group without being an end of it, for code that the control thread calls: dropping the last end says
/// goodbye, which takes time, while the process may be ending already. Once the rank has said goodbye, a voice says nothing.
#[derive(Clone)]
pub struct Voice {
    mesh: Weak<Mesh>,
    group: Arc<Group>,
}

impl Voice {
    /// As [`Bootstrap::send`].
    ///
    /// # Errors
    /// As `Bootstrap::send`.
    pub fn send(&self, peer: u32, message: Message) -> Result<()> {
        self.mesh.upgrade().map_or(Ok(()), |mesh| send(&mesh, &self.group, peer, message))
    }

    /// As [`Bootstrap::abort`].
    pub fn abort(&self, reason: &str) {
        if let Some(mesh) = self.mesh.upgrade() {
            abort(&mesh, &self.group, reason);
        }
    }

    /// Whether both speak in the name of one end.
    pub fn is(&self, other: &Voice) -> bool {
        Arc::ptr_eq(&self.group, &other.group)
    }
}

impl Debug for Voice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Voice").field("members", &self.group.members).finish_non_exhaustive()
    }
}

/// One rank's end of a group.
pub(crate) struct Member {
    session: Arc<Session>,
    group: Arc<Group>,
    rank: u32,
}

impl Member {
    /// The end of the whole mesh.
    pub fn whole(mesh: Arc<Mesh>) -> Arc<dyn Bootstrap> {
        let (rank, group) = (mesh.rank, Group::whole(mesh.peers.len(), mesh.limit));
        Member::end_of(Arc::new(Session(mesh)), group, rank)
    }

    fn end_of(session: Arc<Session>, group: Group, rank: u32) -> Arc<dyn Bootstrap> {
        lock(&session.0.state).hold(group.id);
        Arc::new(Member { session, group: Arc::new(group), rank })
    }

    fn mesh(&self) -> &Mesh {
        &self.session.0
    }
}

fn bounded(what: &'static str, saw: usize, limit: usize) -> Result<()> {
    if saw <= limit { Ok(()) } else { Err(BootstrapError::TooLarge { what, saw, limit }) }
}

impl Drop for Member {
    fn drop(&mut self) {
        lock(&self.mesh().state).release(self.group.id);
    }
}

impl Bootstrap for Member {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn world(&self) -> u32 {
        self.group.members.len() as u32
    }

    fn begin(&self, operation: Operation, bytes: &[u8]) -> Result<Ticket> {
        bounded("a part of an exchange (bytes)", bytes.len(), MAX_PAYLOAD)?;
        Ticket::begin(&self.session, &self.group, operation, bytes)
    }

    fn send(&self, peer: u32, message: Message) -> Result<()> {
        send(self.mesh(), &self.group, peer, message)
    }

    fn subscribe(&self, channel: u64, handler: Arc<dyn Handler>) -> Result<()> {
        let mut state = lock(&self.mesh().state);
        if !state.inbox.subscribe(&self.group, channel, handler) {
            return Err(BootstrapError::Subscribed { channel });
        }
        self.mesh().schedule(&mut state);
        Ok(())
    }

    fn unsubscribe(&self, channel: u64) {
        let ended = lock(&self.mesh().state).inbox.unsubscribe(self.group.id, channel);
        drop(ended);
    }

    fn let_go(&self) {
        let forgotten = lock(&self.mesh().state).leave(self.group.id);
        drop(forgotten);
        self.mesh().tell_departure(self.group.id, &self.group.members);
    }

    fn farewell(&self) {
        self.mesh().close();
    }

    fn group(&self, id: u64, members: &[u32]) -> Result<Arc<dyn Bootstrap>> {
        let bad = |problem| BootstrapError::BadGroup {
            members: members.to_vec(),
            problem,
            world: self.world(),
            rank: self.rank,
        };
        let mut seen = HashSet::new();
        if !members.iter().all(|rank| seen.insert(rank)) {
            return Err(bad("a rank is listed twice"));
        }
        let Some(rank) = members.iter().position(|&rank| rank == self.rank) else {
            return Err(bad("the calling rank is not listed"));
        };
        let ranks: Result<Vec<u32>> = members.iter().map(|&rank| self.group.member(rank)).collect();
        let ranks = ranks.map_err(|_| bad("a rank is out of range"))?;
        let group = Group::of(self.group.id, id, ranks, self.group.limit);
        Ok(Member::end_of(self.session.clone(), group, rank as u32))
    }

    fn within(&self, limit: Duration, called: Option<Arc<str>>) -> Arc<dyn Bootstrap> {
        let Group { id, ref members, .. } = *self.group;
        let group = Group { id, members: members.clone(), limit, called };
        Member::end_of(self.session.clone(), group, self.rank)
    }

    fn abort(&self, reason: &str) {
        abort(self.mesh(), &self.group, reason);
    }

    fn voice(&self) -> Voice {
        Voice { mesh: Arc::downgrade(&self.session.0), group: Arc::clone(&self.group) }
    }

    fn check(&self) -> Result<()> {
        let doing = "checking the group";
        let state = lock(&self.mesh().state);
        self.group.check_abort(self.mesh(), &state, doing)?;
        for (rank, &member) in (0..).zip(&self.group.members) {
            if matches!(state.absent.gone.get(&member), Some(Gone::Lost(_))) {
                self.group.check_peer(self.mesh(), &state, (rank, member), doing)?;
            }
        }
        Ok(())
    }

    fn has_left(&self, peer: u32) -> Result<bool> {
        let member = self.group.member(peer)?;
        let state = lock(&self.mesh().state);
        Ok(matches!(state.absent.from(self.group.id, member), Some(Gone::Left)))
    }

    fn gone(&self) -> Vec<u32> {
        let state = lock(&self.mesh().state);
        let is_gone = |member: u32| state.absent.from(self.group.id, member).is_some();
        let ranks = (0..).zip(&self.group.members);
        ranks.filter(|&(_, &member)| is_gone(member)).map(|(rank, _)| rank).collect()
    }

    fn key(&self, purpose: &str) -> [u8; 32] {
        let group = self.group.id.to_le_bytes();
        crate::key::keyed(&self.mesh().secret, &[b"antiphon group", &group, purpose.as_bytes()])
    }

    fn peer(&self, rank: u32) -> Result<PeerInfo> {
        self.group.member(rank).map(|member| self.mesh().peers[member as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lost;
    use std::os::fd::OwnedFd;
    use std::sync::mpsc::{Sender, channel};

    /// Tells who sends.
    struct Senders(Sender<u32>);

    impl Handler for Senders {
        fn message(&self, from: u32, _: u32, _: &[u8], _: Vec<OwnedFd>) {
            self.0.send(from).unwrap();
        }

        fn peer_lost(&self, _: u32, _: &Lost) {}
        fn aborted(&self, _: u32, _: &str) {}
    }

    #[test]
    fn a_voice_is_silent_once_its_rank_has_said_goodbye_though_the_mesh_is_there() {
        let ends = crate::in_process(2).unwrap();
        let (tell, told) = channel();
        ends[0].subscribe(0, Arc::new(Senders(tell))).unwrap();
        let voice = ends[1].voice();
        ends[1].farewell();
        voice.send(0, Message::default()).unwrap();
        voice.abort("late");
        ends[0].check().unwrap();
        ends[0].send(0, Message::default()).unwrap();
        assert_eq!(told.recv(), Ok(0));
    }
}
