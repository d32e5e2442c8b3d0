//! What serves ranks that nobody has measured: with a core for each of more than two ranks. Written by hand; what was measured for the
//! same ranks goes before it.
//!
//! Packets save a handshake (two signals for each pair) but double the traffic, and are copied once more at the receiver: up
//! to a few cache lines for each peer, the handshake is taken to cost more. One shot saves a step over two shots, but sends and
//! reduces `ranks / 2` times as much. Over nodes, packets need no handshake and no flush, which cost a crossing each.

use super::{Place, Rule, Step};
use crate::algorithms::Algorithm::*;
use crate::algorithms::Rooted;
use crate::model::Collective::{self, *};

/// Ranks with a core each: those that share cores were measured.
const fn own<A>(
    nodes: usize,
    per_node: usize,
    collective: Collective,
    steps: &'static [Step<A>],
) -> Rule<A> {
    Rule { place: Place { crowded: false, nodes, per_node }, collective, steps }
}

/// A step.
const fn to<A: Copy>(up_to: u64, algorithm: A) -> Step<A> {
    Step { up_to, algorithm }
}

/// For all messages that are left.
const ALL: u64 = u64::MAX;

/// By nodes, ranks of a node, and collective.
#[rustfmt::skip]
pub(super) const RULES: &[Rule] = &[
    own(1, 4, AllReduce, &[to(256, AllReduceOneShotPackets), to(1024, AllReduceTwoShotPackets),
        to(ALL, AllReduceZeroCopy)]),
    own(1, 4, AllGather, &[to(1024, AllGatherPackets), to(ALL, AllGatherZeroCopy)]),
    own(1, 4, ReduceScatter, &[to(1024, ReduceScatterPackets), to(ALL, ReduceScatterZeroCopy)]),
    own(1, 4, AllToAll, &[to(1024, AllToAllPackets), to(ALL, AllToAllZeroCopy)]),
    own(1, 4, Broadcast, &[to(256, BroadcastPackets), to(ALL, BroadcastZeroCopy)]),
    own(1, 4, Reduce, &[to(256, ReducePackets), to(ALL, ReduceZeroCopy)]),
    own(1, 4, SendRecv, &[to(256, SendRecvPackets), to(ALL, SendRecvZeroCopy)]),
    own(1, 8, AllReduce, &[to(256, AllReduceOneShotPackets), to(2048, AllReduceTwoShotPackets),
        to(ALL, AllReduceZeroCopy)]),
    own(1, 8, AllGather, &[to(2048, AllGatherPackets), to(ALL, AllGatherZeroCopy)]),
    own(1, 8, ReduceScatter, &[to(2048, ReduceScatterPackets), to(ALL, ReduceScatterZeroCopy)]),
    own(1, 8, AllToAll, &[to(2048, AllToAllPackets), to(ALL, AllToAllZeroCopy)]),
    own(1, 8, Broadcast, &[to(256, BroadcastPackets), to(ALL, BroadcastZeroCopy)]),
    own(1, 8, Reduce, &[to(256, ReducePackets), to(ALL, ReduceZeroCopy)]),
    own(1, 8, SendRecv, &[to(256, SendRecvPackets), to(ALL, SendRecvZeroCopy)]),
    own(2, 4, AllReduce, &[to(4096, AllReduceHierarchicalPackets), to(65536, AllReduceHierarchicalTwoShotPackets),
        to(ALL, AllReduceHierarchicalZeroCopy)]),
    own(2, 4, AllGather, &[to(65536, AllGatherHierarchicalPackets), to(ALL, AllGatherHierarchicalZeroCopy)]),
    own(2, 4, ReduceScatter, &[to(65536, ReduceScatterHierarchicalPackets),
        to(ALL, ReduceScatterHierarchicalZeroCopy)]),
    own(2, 4, AllToAll, &[to(65536, AllToAllHierarchicalPackets), to(ALL, AllToAllHierarchicalZeroCopy)]),
    own(2, 4, Broadcast, &[to(8192, BroadcastHierarchicalPackets), to(ALL, BroadcastHierarchicalZeroCopy)]),
    own(2, 4, Reduce, &[to(8192, ReduceHierarchicalPackets), to(ALL, ReduceHierarchicalZeroCopy)]),
    own(2, 4, SendRecv, &[to(8192, SendRecvHierarchicalPackets), to(ALL, SendRecvHierarchicalZeroCopy)]),
];

/// Likewise of gather and scatter over nodes: as the allgather whose blocks take the same way.
#[rustfmt::skip]
pub(super) const ROOTED: &[Rule<Option<Rooted>>] = &[
    own(2, 4, Gather, &[to(65536, Some(Rooted::GatherHierarchicalPackets)),
        to(ALL, Some(Rooted::GatherHierarchicalZeroCopy))]),
    own(2, 4, Scatter, &[to(65536, Some(Rooted::ScatterHierarchicalPackets)),
        to(ALL, Some(Rooted::ScatterHierarchicalZeroCopy))]),
];
