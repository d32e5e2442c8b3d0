//! What the simulator predicts for hosts. Written by `cargo xtask defaults --predict`; a test holds it against the simulator.

use super::{ALL, Rule, of, to};
use crate::algorithms::Algorithm::{self, *};
use crate::algorithms::Rooted;
use crate::model::Collective::*;

/// By whether cores are shared, nodes, ranks of a node, and collective.
#[rustfmt::skip]
pub(super) const RULES: &[Rule<Algorithm>] = &[
    of(false, 1, 4, AllReduce, &[to(128, AllReduceOneShotPackets), to(ALL, AllReduceZeroCopy)]),
    of(false, 1, 4, AllGather, &[to(1024, AllGatherPackets), to(ALL, AllGatherZeroCopy)]),
    of(false, 1, 4, ReduceScatter, &[to(512, ReduceScatterPackets), to(ALL, ReduceScatterZeroCopy)]),
    of(false, 1, 4, AllToAll, &[to(1024, AllToAllPackets), to(ALL, AllToAllZeroCopy)]),
    of(false, 1, 4, Broadcast, &[to(256, BroadcastPackets), to(ALL, BroadcastZeroCopy)]),
    of(false, 1, 4, Reduce, &[to(256, ReducePackets), to(ALL, ReduceZeroCopy)]),
    of(false, 1, 4, SendRecv, &[to(256, SendRecvPackets), to(ALL, SendRecvZeroCopy)]),
    of(false, 1, 8, AllReduce, &[to(ALL, AllReduceZeroCopy)]),
    of(false, 1, 8, AllGather, &[to(1024, AllGatherPackets), to(ALL, AllGatherZeroCopy)]),
    of(false, 1, 8, ReduceScatter, &[to(512, ReduceScatterPackets), to(ALL, ReduceScatterZeroCopy)]),
    of(false, 1, 8, AllToAll, &[to(1024, AllToAllPackets), to(ALL, AllToAllZeroCopy)]),
    of(false, 1, 8, Broadcast, &[to(ALL, BroadcastZeroCopy)]),
    of(false, 1, 8, Reduce, &[to(128, ReducePackets), to(ALL, ReduceZeroCopy)]),
    of(false, 1, 8, SendRecv, &[to(256, SendRecvPackets), to(ALL, SendRecvZeroCopy)]),
    of(false, 2, 4, AllReduce, &[to(32768, AllReduceHierarchicalTwoShotPackets),
        to(ALL, AllReduceHierarchicalZeroCopy)]),
    of(false, 2, 4, AllGather, &[to(131072, AllGatherHierarchicalPackets),
        to(ALL, AllGatherHierarchicalZeroCopy)]),
    of(false, 2, 4, ReduceScatter, &[to(65536, ReduceScatterHierarchicalPackets),
        to(ALL, ReduceScatterHierarchicalZeroCopy)]),
    of(false, 2, 4, AllToAll, &[to(16384, AllToAllHierarchicalPackets), to(ALL, AllToAllHierarchicalZeroCopy)]),
    of(false, 2, 4, Broadcast, &[to(16384, BroadcastHierarchicalPackets),
        to(ALL, BroadcastHierarchicalZeroCopy)]),
    of(false, 2, 4, Reduce, &[to(16384, ReduceHierarchicalPackets), to(ALL, ReduceHierarchicalZeroCopy)]),
    of(false, 2, 4, SendRecv, &[to(32768, SendRecvHierarchicalPackets), to(ALL, SendRecvHierarchicalZeroCopy)]),
];

/// Likewise of gather and scatter.
#[rustfmt::skip]
pub(super) const ROOTED: &[Rule<Option<Rooted>>] = &[
    of(false, 1, 4, Gather, &[to(512, Some(Rooted::GatherPackets)), to(ALL, Some(Rooted::GatherZeroCopy))]),
    of(false, 1, 4, Scatter, &[to(1024, Some(Rooted::ScatterPackets)), to(ALL, Some(Rooted::ScatterZeroCopy))]),
    of(false, 1, 8, Gather, &[to(ALL, Some(Rooted::GatherZeroCopy))]),
    of(false, 1, 8, Scatter, &[to(ALL, Some(Rooted::ScatterZeroCopy))]),
    of(false, 2, 4, Gather, &[to(65536, Some(Rooted::GatherHierarchicalPackets)),
        to(ALL, Some(Rooted::GatherHierarchicalZeroCopy))]),
    of(false, 2, 4, Scatter, &[to(65536, Some(Rooted::ScatterHierarchicalPackets)),
        to(ALL, Some(Rooted::ScatterHierarchicalZeroCopy))]),
];
