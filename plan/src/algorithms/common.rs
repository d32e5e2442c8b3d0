//! What the algorithms share: who has channels with whom, where packets of peers land, how ranks agree that
//! buffers may be touched.

use super::Handshake;
use crate::builder::{Block, BuildError, Channel, Chunks, ProgramBuilder, Region};
use crate::model::{Collective, Plan, Protocol};

/// A program whose ranks exchange packets.
pub(super) fn packet_program(name: &str, collective: Collective, ranks: usize) -> ProgramBuilder {
    // Two halves of scratch, so that the next launch's packets may arrive while this one's are read.
    zero_copy_program(name, collective, ranks).protocol(Protocol::LL).double_scratch(true)
}

/// A program whose ranks touch each other's buffers.
pub(super) fn zero_copy_program(
    name: &str,
    collective: Collective,
    ranks: usize,
) -> ProgramBuilder {
    ProgramBuilder::new(format!("{collective}_{name}_{ranks}"), collective, ranks)
}

/// The plan of a lone rank, whatever the collective: its output is its input.
pub(super) fn alone(p: ProgramBuilder, in_place: bool) -> Result<Plan, BuildError> {
    let tb = p.block(0);
    keep(&tb, p.input(0).all(), p.output(0).all(), in_place);
    if in_place {
        tb.nop();
    }
    p.in_place(in_place).build()
}

/// Copy what stays on its rank. In place it is where it belongs.
#[track_caller]
pub(super) fn keep(tb: &Block<'_>, from: Chunks, to: Chunks, in_place: bool) {
    if !in_place {
        tb.copy(from, to);
    }
}

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

/// Tell those who write to this rank that its memory may be written, and wait until that of its receivers may.
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

/// Scratch of every rank in which each other rank has one chunk.
pub(super) struct Inboxes<'p> {
    regions: Vec<Region<'p>>,
}

impl<'p> Inboxes<'p> {
    pub fn new(p: &'p ProgramBuilder) -> Self {
        let senders = p.ranks().saturating_sub(1);
        Inboxes { regions: (0..p.ranks()).map(|rank| p.scratch(rank, senders)).collect() }
    }

    /// Where `owner` receives from `sender`.
    #[track_caller]
    pub fn slot(&self, owner: usize, sender: usize) -> Chunks {
        self.regions[owner].chunk(position(owner, sender))
    }
}

/// Position of `peer` among the ranks other than `rank`.
pub(super) fn position(rank: usize, peer: usize) -> usize {
    peer - usize::from(peer > rank)
}

/// Every rank's contribution in rank order: `own` for `me`, `of(peer)` for the others.
pub(super) fn in_rank_order(
    me: usize,
    ranks: usize,
    own: Chunks,
    of: impl Fn(usize) -> Chunks,
) -> Vec<Chunks> {
    (0..ranks).map(|rank| if rank == me { own } else { of(rank) }).collect()
}

/// Where a rank reduces the packets of its inbox.
pub(super) struct Reduction<'p> {
    me: usize,
    ranks: usize,
    inbox: Region<'p>,
    /// Raw scratch for the packets; none between two ranks.
    unpacked: Option<Region<'p>>,
}

impl<'p> Reduction<'p> {
    /// That of `me`, behind all packet scratch that the rank has so far.
    pub fn new(p: &'p ProgramBuilder, inboxes: &Inboxes<'p>, me: usize) -> Self {
        let ranks = p.ranks();
        let unpacked = (ranks > 2).then(|| raw_scratch(p, me, ranks - 1));
        Reduction { me, ranks, inbox: inboxes.regions[me], unpacked }
    }

    /// Those of all ranks.
    pub fn of_all(p: &'p ProgramBuilder, inboxes: &Inboxes<'p>) -> Vec<Self> {
        (0..p.ranks()).map(|me| Reduction::new(p, inboxes, me)).collect()
    }

    /// Reduce `own` and the packets in the inbox into `to`, in rank order, as one of `blocks` blocks.
    pub fn reduce(&self, tb: &Block<'_>, blocks: usize, own: Chunks, to: Chunks) {
        let Reduction { me, ranks, inbox, unpacked } = *self;
        let Some(unpacked) = unpacked else {
            // A sum of two is the same either way round (but for which of two NaNs it is).
            return tb.reduce_packets(own, &[inbox.chunk(0)], to);
        };
        // The packet reduction of the format adds the raw operand last, which is not rank order. So unpack, then
        // reduce raw chunks.
        unpack(tb, blocks, inbox, unpacked);
        let of = |peer| unpacked.chunk(position(me, peer));
        tb.reduce(&in_rank_order(me, ranks, own, of), to);
    }
}

/// Unpack chunks into as many, as one of `blocks` blocks.
pub(super) fn unpack(tb: &Block<'_>, blocks: usize, from: Region<'_>, to: Region<'_>) {
    if blocks == 1 {
        return tb.unpack_packets(from.all(), to.all());
    }
    // A block's part of the whole is another than its part of each chunk, which it uses.
    for chunk in 0..from.len() {
        tb.unpack_packets(from.chunk(chunk), to.chunk(chunk));
    }
}

/// Raw scratch behind all packet scratch allocated so far.
///
/// Packets take twice the room of their payload. Executors that put raw and packet chunks in one address range
/// find raw chunk `2k` where packet chunk `k` begins; leaving out as many chunks as there are keeps them apart.
pub(super) fn raw_scratch(p: &ProgramBuilder, rank: usize, chunks: usize) -> Region<'_> {
    let allocated = p.scratch_len(rank);
    p.scratch(rank, allocated);
    p.scratch(rank, chunks)
}
