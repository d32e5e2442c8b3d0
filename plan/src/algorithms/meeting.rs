//! Who has channels with whom, and how ranks agree that buffers may be touched.

use super::Handshake;
use super::common::teams;
use crate::builder::{Block, Channel, ProgramBuilder};

/// How a block and its counterparts on the other ranks meet before and after they touch each other's buffers.
pub(super) enum Meeting {
    /// Everyone tells everyone.
    Everyone(Mesh),
    /// Everyone tells rank 0, which tells everyone.
    Hub(Vec<Channel>),
}

impl Meeting {
    pub fn new(p: &ProgramBuilder, handshake: Handshake) -> Self {
        match handshake {
            Handshake::Everyone => Meeting::Everyone(Mesh::new(p)),
            Handshake::Hub => Meeting::Hub(star(p, 0)),
        }
    }

    /// All ranks' buffers may be touched.
    #[track_caller]
    pub fn ready(&self, tb: &Block<'_>, me: usize) {
        match self {
            Meeting::Everyone(mesh) => ready(tb, &mesh.of(me)),
            Meeting::Hub(spokes) if me == 0 => {
                tb.wait_relaxed(spokes);
                tb.signal_relaxed(spokes);
            }
            Meeting::Hub(spokes) => ready(tb, &spokes[me - 1..me]),
        }
    }

    /// As [`ready`](Self::ready), for memory that earlier launches used too.
    #[track_caller]
    pub fn ready_to_receive(&self, tb: &Block<'_>, me: usize) {
        match self {
            Meeting::Everyone(mesh) => ready_to_receive(tb, &mesh.of(me), &mesh.of(me)),
            Meeting::Hub(_) => self.done(tb, me),
        }
    }

    /// All ranks are through with each other's buffers.
    #[track_caller]
    pub fn done(&self, tb: &Block<'_>, me: usize) {
        match self {
            Meeting::Everyone(mesh) => done(tb, &mesh.of(me)),
            Meeting::Hub(spokes) if me == 0 => {
                tb.wait(spokes);
                tb.signal(spokes);
            }
            Meeting::Hub(spokes) => done(tb, &spokes[me - 1..me]),
        }
    }
}

/// What each thread block of every rank does while all ranks' buffers may be touched; `blocks` (at least 1) of each rank
/// share the work.
pub(super) fn met<'p>(
    p: &'p ProgramBuilder,
    blocks: usize,
    handshake: Handshake,
    transfer: impl Fn(&Block<'p>, usize),
) {
    for team in teams(p, blocks) {
        let meeting = Meeting::new(p, handshake);
        for tb in &team {
            let me = tb.rank();
            meeting.ready(tb, me);
            transfer(tb, me);
            meeting.done(tb, me);
        }
    }
}

/// A channel between every two ranks.
pub(super) struct Mesh {
    ranks: usize,
    /// By lower rank, then higher rank.
    channels: Vec<Vec<Channel>>,
}

impl Mesh {
    pub fn new(p: &ProgramBuilder) -> Self {
        let ranks = p.ranks();
        let above = |a| (a + 1..ranks).map(|b| p.channel(a, b)).collect();
        Mesh { ranks, channels: (0..ranks).map(above).collect() }
    }

    /// The channels of a rank, by ascending peer.
    pub fn of(&self, me: usize) -> Vec<Channel> {
        let peers = (0..self.ranks).filter(|&peer| peer != me);
        peers
            .map(|peer| {
                let (low, high) = (me.min(peer), me.max(peer));
                self.channels[low][high - low - 1]
            })
            .collect()
    }
}

/// The channels between `root` and every other rank, by ascending other rank.
pub(super) fn star(p: &ProgramBuilder, root: usize) -> Vec<Channel> {
    p.peers(root).map(|peer| p.channel(root, peer)).collect()
}

/// Signal on every channel, if there are any.
#[track_caller]
pub(super) fn signal(tb: &Block<'_>, channels: &[Channel]) {
    if !channels.is_empty() {
        tb.signal(channels);
    }
}

/// Wait on every channel, if there are any.
#[track_caller]
pub(super) fn wait(tb: &Block<'_>, channels: &[Channel]) {
    if !channels.is_empty() {
        tb.wait(channels);
    }
}

/// Tell the peers that this rank's buffers may be touched, and wait until theirs may.
pub(super) fn ready(tb: &Block<'_>, channels: &[Channel]) {
    tb.signal_relaxed(channels);
    tb.wait_relaxed(channels);
}

/// Tell the senders that this rank's memory may be written, and wait until the receivers' memory may be.
///
/// In contrast to [`ready`] this orders what earlier launches did: scratch, unlike a caller's buffer, is not
/// handed over at the start of a launch.
pub(super) fn ready_to_receive(tb: &Block<'_>, senders: &[Channel], receivers: &[Channel]) {
    tb.signal(senders);
    tb.wait(receivers);
}

/// Tell the peers that this rank is through with their buffers, and wait until they are with this rank's.
pub(super) fn done(tb: &Block<'_>, channels: &[Channel]) {
    tb.signal(channels);
    tb.wait(channels);
}
