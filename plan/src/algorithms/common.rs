//! What the algorithms share: the frame of a plan, the thread blocks that share its work, where packets of peers land.

use crate::builder::{Block, BuildError, Chunks, ProgramBuilder, Region};
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

/// Builds the plan of a program. `write` adds what the ranks do if there are several; a lone rank's output is its
/// input, whatever the collective.
///
/// # Errors
/// As [`ProgramBuilder::build`].
pub(super) fn among(
    p: ProgramBuilder,
    in_place: bool,
    write: impl FnOnce(&ProgramBuilder),
) -> Result<Plan, BuildError> {
    if p.ranks() == 1 {
        let tb = p.block(0);
        keep(&tb, p.input(0).all(), p.output(0).all(), in_place);
        if in_place {
            tb.nop();
        }
    } else {
        write(&p);
    }
    p.in_place(in_place).build()
}

/// The thread blocks that do the work of all ranks: `blocks` (at least 1) of each rank share what it has to do. A team is
/// one of every rank, by rank, which share the same slice and so the channels.
pub(super) fn teams(p: &ProgramBuilder, blocks: usize) -> impl Iterator<Item = Vec<Block<'_>>> {
    let blocks = blocks.max(1);
    let slice = move |index| (0..p.ranks()).map(move |rank| p.block(rank).slice(index, blocks));
    (0..blocks).map(move |index| slice(index).collect())
}

/// Copy what stays on its rank. In place it is where it belongs.
#[track_caller]
pub(super) fn keep(tb: &Block<'_>, from: Chunks, to: Chunks, in_place: bool) {
    if !in_place {
        tb.copy(from, to);
    }
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

/// Everyone sends everyone, as packets, the part of its input that is `part(sender, receiver)`; that of each sender is a chunk
/// of the output. `blocks` thread blocks (at least 1) of each rank share the work.
pub(super) fn exchange_packets(
    p: &ProgramBuilder,
    blocks: usize,
    in_place: bool,
    part: impl Fn(usize, usize) -> Chunks,
) {
    let inboxes = Inboxes::new(p);
    for team in teams(p, blocks) {
        for tb in &team {
            let me = tb.rank();
            for peer in p.peers(me) {
                tb.put_packets(part(me, peer), inboxes.slot(peer, me));
            }
            keep(tb, part(me, me), p.output(me).chunk(me), in_place);
            for peer in p.peers(me) {
                tb.unpack_packets(inboxes.slot(me, peer), p.output(me).chunk(peer));
            }
        }
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

    /// Reduce `own` and the packets in the inbox into `to`, in rank order.
    pub fn reduce(&self, tb: &Block<'_>, own: Chunks, to: Chunks) {
        let Reduction { me, ranks, inbox, unpacked } = *self;
        let Some(unpacked) = unpacked else {
            // A sum of two is the same either way round (but for which of two NaNs it is).
            return tb.reduce_packets(own, &[inbox.chunk(0)], to);
        };
        // The packet reduction of the format adds the raw operand last, which is not rank order. So unpack, then
        // reduce raw chunks.
        unpack(tb, inbox, unpacked);
        let of = |peer| unpacked.chunk(position(me, peer));
        tb.reduce(&in_rank_order(me, ranks, own, of), to);
    }
}

/// Unpack chunks into as many.
pub(super) fn unpack(tb: &Block<'_>, from: Region<'_>, to: Region<'_>) {
    if !tb.is_slice() {
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
