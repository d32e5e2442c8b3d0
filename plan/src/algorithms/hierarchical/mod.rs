//! Algorithms over several nodes: memory channels inside a node, port channels across.
//!
//! The ranks of a node are consecutive: rank r is number `r % per_node` of node `r / per_node`. Across nodes a rank
//! talks to its *counterparts*, the ranks of the same number on the other nodes, so that every rank of a node carries its
//! share of the traffic and nothing crosses twice. (In small broadcasts, reductions, gathers and scatters the root's number
//! carries all, and [`sendrecv`] goes from a node's last rank to the next node's first.)
//!
//! ```text
//!            node 0                      node 1
//!   0 ═══ 1 ═══ 2 ═══ 3         4 ═══ 5 ═══ 6 ═══ 7      ═══ memory: everyone with everyone
//!   │     │     │     └── port ──────────────────┘
//!   │     │     └──────── port ────────────┘
//!   │     └────────────── port ──────┘
//!   └──────────────────── port ┘
//! ```
//!
//! Reductions add in rank order inside each node, and then the nodes' sums in node order, on every rank alike: all
//! ranks get the same bits, but (over several nodes) not those of rank order. On one node these are ordinary plans
//! without ports.
//!
//! Memory that a proxy has yet to read may not change. A rank may overwrite its own packets once its counterparts have
//! answered in the next launch, and two halves of scratch keep them that long, so small messages need no flush. If
//! others write the source, or it is a caller's buffer, the launch ends with a flush.

pub mod allgather;
pub mod allreduce;
pub mod alltoall;
pub mod broadcast;
pub mod gather;
pub mod reduce;
pub mod reducescatter;
pub mod scatter;
pub mod sendrecv;

use super::Shape;
use super::common::{among, keep, raw_scratch, teams, unpack};
use super::meeting::{signal, wait};
use super::star::rooted;
use crate::builder::{
    Block, BuildError, Channel, Chunks, Problem, ProblemKind, ProgramBuilder, Region,
};
use crate::model::{Collective, Protocol};
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::Location;

/// How ranks are spread over nodes.
#[derive(Clone, Copy, Debug)]
struct Places {
    nodes: usize,
    per_node: usize,
}

impl Places {
    fn ranks(self) -> usize {
        self.nodes * self.per_node
    }

    fn node(self, rank: usize) -> usize {
        rank / self.per_node
    }

    /// The rank's number on its node.
    fn number(self, rank: usize) -> usize {
        rank % self.per_node
    }

    fn rank(self, node: usize, number: usize) -> usize {
        node * self.per_node + number
    }

    /// The ranks of a rank's node, itself included, ascending.
    fn of_node(self, rank: usize) -> impl Iterator<Item = usize> + Clone {
        self.range_of(rank)
    }

    /// The chunks for all ranks of a rank's node, in a buffer with one for each rank.
    fn range_of(self, rank: usize) -> Range<usize> {
        let first = self.rank(self.node(rank), 0);
        first..first + self.per_node
    }

    /// The other ranks of a rank's node, ascending.
    fn neighbours(self, rank: usize) -> impl Iterator<Item = usize> + Clone {
        self.of_node(rank).filter(move |&other| other != rank)
    }

    /// The peers of `rank` in a star inside its node: all other ranks of the node if it has this number itself, else
    /// only the rank that has.
    fn spokes(self, rank: usize, number: usize) -> impl Iterator<Item = usize> + Clone {
        let hub = self.rank(self.node(rank), number);
        self.neighbours(rank).filter(move |&other| rank == hub || other == hub)
    }

    /// The ranks of the same number on the other nodes, beginning with the next node, so that not all ranks send to
    /// one node first.
    fn counterparts(self, rank: usize) -> impl Iterator<Item = usize> + Clone {
        (1..self.nodes).map(move |step| self.counterpart(rank, step))
    }

    /// The counterpart on the node `step` nodes further.
    fn counterpart(self, rank: usize, step: usize) -> usize {
        (rank + step * self.per_node) % self.ranks()
    }

    /// What every rank of the node has, or has sent, in rank order: `own` for `me`, `of(number)` for the others.
    fn in_node_order(
        self,
        me: usize,
        own: Chunks,
        of: impl Fn(usize) -> Chunks,
    ) -> impl Iterator<Item = Chunks> {
        let node = self.node(me);
        (0..self.nodes).map(move |other| if other == node { own } else { of(other) })
    }
}

/// An empty program whose ranks exchange packets, and where its ranks are.
fn packet_program(
    name: &str,
    collective: Collective,
    (ranks, nodes): (usize, usize),
) -> Result<(ProgramBuilder, Places), BuildError> {
    // Two halves of scratch, so that the next launch's packets may arrive while this one's are read.
    let (p, places) = zero_copy_program(name, collective, (ranks, nodes))?;
    Ok((p.protocol(Protocol::LL).double_scratch(true), places))
}

/// An empty program whose ranks touch each other's buffers, and where its ranks are.
#[track_caller]
fn zero_copy_program(
    name: &str,
    collective: Collective,
    (ranks, nodes): (usize, usize),
) -> Result<(ProgramBuilder, Places), BuildError> {
    let per_node = ranks.checked_div(nodes).unwrap_or(0);
    let name = format!("{collective}_hierarchical_{name}_{nodes}x{per_node}");
    let kind = match ranks {
        0 => ProblemKind::NoRanks,
        _ if nodes * per_node == ranks => {
            return Ok((ProgramBuilder::new(name, collective, ranks), Places { nodes, per_node }));
        }
        _ => ProblemKind::Nodes { ranks, nodes },
    };
    let location = Location::caller();
    Err(BuildError { program: name, problems: vec![Problem { kind, location }] })
}

/// The channels of one thread block and its counterparts.
struct Links {
    channels: BTreeMap<(usize, usize), Channel>,
}

impl Links {
    /// Memory channels between the ranks of each node.
    fn inside(p: &ProgramBuilder, places: Places) -> Self {
        let peers = |rank| places.neighbours(rank);
        Links::new(places, peers, |a, b| p.channel(a, b))
    }

    /// Memory channels between the rank of this number on each node and the other ranks of that node.
    fn spokes(p: &ProgramBuilder, places: Places, number: usize) -> Self {
        let peers = |rank| places.spokes(rank, number);
        Links::new(places, peers, |a, b| p.channel(a, b))
    }

    /// Memory channels between a root and its neighbours.
    fn spokes_of(p: &ProgramBuilder, places: Places, root: usize) -> Self {
        let there = move |rank| places.node(rank) == places.node(root);
        let number = places.number(root);
        let peers = |rank| places.spokes(rank, number).filter(move |_| there(rank));
        Links::new(places, peers, |a, b| p.channel(a, b))
    }

    /// Port channels between counterparts.
    fn across(p: &ProgramBuilder, places: Places) -> Self {
        Links::across_among(p, places, 0..places.per_node)
    }

    /// Port channels between counterparts of these numbers.
    fn across_among(p: &ProgramBuilder, places: Places, numbers: Range<usize>) -> Self {
        let part = |rank| numbers.contains(&places.number(rank));
        let peers = |rank| places.counterparts(rank).filter(move |_| part(rank));
        Links::new(places, peers, |a, b| p.port(a, b))
    }

    /// Port channels between a root and its counterparts.
    fn root_across(p: &ProgramBuilder, places: Places, root: usize) -> Self {
        let peers =
            |rank| places.counterparts(rank).filter(move |&peer| rank == root || peer == root);
        Links::new(places, peers, |a, b| p.port(a, b))
    }

    /// Port channels between the ranks of a root's node and their counterparts.
    fn node_across(p: &ProgramBuilder, places: Places, root: usize) -> Self {
        let there = move |rank| places.node(rank) == places.node(root);
        let peers =
            |rank| places.counterparts(rank).filter(move |&peer| there(rank) || there(peer));
        Links::new(places, peers, |a, b| p.port(a, b))
    }

    fn new<I: Iterator<Item = usize>>(
        places: Places,
        peers: impl Fn(usize) -> I,
        connect: impl Fn(usize, usize) -> Channel,
    ) -> Self {
        let above = |a| peers(a).filter(move |&b| b > a).map(move |b| (a, b));
        let pairs = (0..places.ranks()).flat_map(above);
        Links { channels: pairs.map(|(a, b)| ((a, b), connect(a, b))).collect() }
    }

    fn between(&self, a: usize, b: usize) -> Channel {
        self.channels[&(a.min(b), a.max(b))]
    }

    fn to(&self, me: usize, peers: impl Iterator<Item = usize>) -> Vec<Channel> {
        peers.map(|peer| self.between(me, peer)).collect()
    }

    /// Those of a rank to such peers as it has one with.
    fn among(&self, me: usize, peers: impl Iterator<Item = usize>) -> Vec<Channel> {
        let link = |peer: usize| self.channels.get(&(me.min(peer), me.max(peer))).copied();
        peers.filter_map(link).collect()
    }
}

/// One thread block of a rank, and its channels.
struct Seat<'p> {
    tb: Block<'p>,
    me: usize,
    /// To the neighbours, in their order.
    near: Vec<Channel>,
    /// To the counterparts, in their order.
    far: Vec<Channel>,
}

/// The seats of all [`teams`], each with channels of its own to all neighbours and counterparts.
fn seats(p: &ProgramBuilder, places: Places, blocks: usize) -> impl Iterator<Item = Seat<'_>> {
    teams(p, blocks).flat_map(move |team| {
        let (memory, ports) = (Links::inside(p, places), Links::across(p, places));
        team.into_iter().map(move |tb| {
            let me = tb.rank();
            let near = memory.to(me, places.neighbours(me));
            Seat { tb, me, near, far: ports.to(me, places.counterparts(me)) }
        })
    })
}

/// Tell the peers that this rank's buffers may be touched, if there are any.
#[track_caller]
fn signal_relaxed(tb: &Block<'_>, channels: &[Channel]) {
    if !channels.is_empty() {
        tb.signal_relaxed(channels);
    }
}

/// Wait until the peers' buffers may be touched, if there are any peers.
#[track_caller]
fn wait_relaxed(tb: &Block<'_>, channels: &[Channel]) {
    if !channels.is_empty() {
        tb.wait_relaxed(channels);
    }
}

/// Wait until the sources of all that was posted may change, if there are any ports.
#[track_caller]
fn flush(tb: &Block<'_>, ports: &[Channel]) {
    if !ports.is_empty() {
        tb.flush(ports);
    }
}

/// Scratch of every rank with a slot for each other member of its group: for its neighbours, or its counterparts.
struct Inboxes<'p> {
    regions: Vec<Region<'p>>,
    places: Places,
    /// Position of a rank in its group.
    position: fn(Places, usize) -> usize,
    /// Chunks of a slot.
    size: usize,
}

impl<'p> Inboxes<'p> {
    /// Slots of `size` chunks for the neighbours.
    fn near(p: &'p ProgramBuilder, places: Places, size: usize) -> Self {
        Inboxes::new(p, places, (places.per_node, size), Places::number, |_| true)
    }

    /// Slots of `size` chunks for the counterparts.
    fn far(p: &'p ProgramBuilder, places: Places, size: usize) -> Self {
        Inboxes::new(p, places, (places.nodes, size), Places::node, |_| true)
    }

    /// Slots of one chunk for the counterparts, of ranks that take part.
    fn far_among(p: &'p ProgramBuilder, places: Places, part: impl Fn(usize) -> bool) -> Self {
        Inboxes::new(p, places, (places.nodes, 1), Places::node, part)
    }

    fn new(
        p: &'p ProgramBuilder,
        places: Places,
        (group, size): (usize, usize),
        position: fn(Places, usize) -> usize,
        part: impl Fn(usize) -> bool,
    ) -> Self {
        let slots = |rank| if part(rank) { group - 1 } else { 0 };
        let regions = (0..p.ranks()).map(|rank| p.scratch(rank, slots(rank) * size));
        Inboxes { regions: regions.collect(), places, position, size }
    }

    /// The slot of `owner` for `sender`.
    #[track_caller]
    fn slot(&self, owner: usize, sender: usize) -> Chunks {
        self.slots(owner, sender).all()
    }

    /// As [`slot`](Self::slot), chunk by chunk.
    #[track_caller]
    fn slots(&self, owner: usize, sender: usize) -> Region<'p> {
        let first = self.first(owner, sender);
        self.regions[owner].part(first..first + self.size)
    }

    /// All slots of `owner`.
    fn all(&self, owner: usize) -> Region<'p> {
        self.regions[owner]
    }

    /// One chunk of the slot of `owner` for `sender`.
    #[track_caller]
    fn chunk(&self, owner: usize, sender: usize, chunk: usize) -> Chunks {
        self.regions[owner].chunk(self.first(owner, sender) + chunk)
    }

    fn first(&self, owner: usize, sender: usize) -> usize {
        let [own, other] = [owner, sender].map(|rank| (self.position)(self.places, rank));
        (other - usize::from(other > own)) * self.size
    }
}

/// The moves by which a thread block copies one region to another of the same size: all at once or, if blocks share the work,
/// its part of each chunk, which is not its part of the whole.
fn pieces(tb: &Block<'_>, from: Region<'_>, to: Region<'_>) -> Vec<(Chunks, Chunks)> {
    match tb.is_slice() {
        true => (0..from.len()).map(|at| (from.chunk(at), to.chunk(at))).collect(),
        false => vec![(from.all(), to.all())],
    }
}

/// Room for the unpacked chunks of a rank's largest packet reduction, of `near` or `far` chunks, behind all its packets.
fn raw_for<'p>(p: &'p ProgramBuilder, rank: usize, near: usize, far: usize) -> Region<'p> {
    let needed = |chunks: usize| if chunks > 1 { chunks } else { 0 };
    raw(p, rank, needed(near).max(needed(far)))
}

/// Raw scratch behind all packet scratch, if any is needed.
fn raw(p: &ProgramBuilder, rank: usize, chunks: usize) -> Region<'_> {
    if chunks == 0 { p.scratch(rank, 0) } else { raw_scratch(p, rank, chunks) }
}

/// Reduce `own` and the packets that each other member of a group has sent, one chunk each, in the order of the members.
///
/// `position` is that of `own`; `raw` has room for all if there are more than one.
#[track_caller]
fn reduce_packets(
    tb: &Block<'_>,
    packets: Region<'_>,
    position: usize,
    own: Chunks,
    raw: Region<'_>,
    to: Chunks,
) {
    let others = packets.len();
    if others == 1 {
        // A sum of two is the same either way round (but for which of two NaNs it is).
        return tb.reduce_packets(own, &[packets.all()], to);
    }
    // The packet reduction of the format adds the raw operand last, so unpack first.
    unpack(tb, packets, raw.part(0..others));
    let mut sources: Vec<_> = (0..others).map(|other| raw.chunk(other)).collect();
    sources.insert(position, own);
    tb.reduce(&sources, to);
}
