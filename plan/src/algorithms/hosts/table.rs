//! What was measured on hosts. Written by `cargo xtask defaults --from`; a test holds it against the measurements.

use super::{ALL, Rule, of, to};
use crate::algorithms::Algorithm::{self, *};
use crate::algorithms::Rooted;
use crate::model::Collective::*;

/// The machines.
#[rustfmt::skip]
pub(super) const MEASURED_ON: &[&str] = &["AMD EPYC with 2 usable cores"];

/// By whether cores are shared, nodes, ranks of a node, and collective.
#[rustfmt::skip]
pub(super) const RULES: &[Rule<Algorithm>] = &[
    of(false, 1, 2, AllReduce, &[to(512, AllReduceOneShotPackets), to(ALL, AllReduceZeroCopy)]),
    of(false, 1, 2, AllGather, &[to(1792, AllGatherPackets), to(ALL, AllGatherZeroCopy)]),
    of(false, 1, 2, ReduceScatter, &[to(1536, ReduceScatterPackets), to(ALL, ReduceScatterZeroCopy)]),
    of(false, 1, 2, AllToAll, &[to(1792, AllToAllPackets), to(ALL, AllToAllZeroCopy)]),
    of(false, 1, 2, Broadcast, &[to(1280, BroadcastPackets), to(ALL, BroadcastZeroCopy)]),
    of(false, 1, 2, Reduce, &[to(1280, ReducePackets), to(ALL, ReduceZeroCopy)]),
    of(false, 1, 2, SendRecv, &[to(1280, SendRecvPackets), to(ALL, SendRecvZeroCopy)]),
    of(false, 2, 1, AllReduce, &[to(28672, AllReduceHierarchicalHub), to(ALL, AllReduceHierarchicalZeroCopy)]),
    of(false, 2, 1, AllGather, &[to(163840, AllGatherHierarchicalPackets),
        to(ALL, AllGatherHierarchicalZeroCopy)]),
    of(false, 2, 1, ReduceScatter, &[to(163840, ReduceScatterHierarchicalPackets),
        to(ALL, ReduceScatterHierarchicalZeroCopy)]),
    of(false, 2, 1, AllToAll, &[to(57344, AllToAllHierarchicalPackets), to(ALL, AllToAllHierarchicalZeroCopy)]),
    of(false, 2, 1, Broadcast, &[to(196608, BroadcastHierarchicalPackets),
        to(ALL, BroadcastHierarchicalZeroCopy)]),
    of(false, 2, 1, Reduce, &[to(81920, ReduceHierarchicalPackets), to(ALL, ReduceHierarchicalZeroCopy)]),
    of(false, 2, 1, SendRecv, &[to(81920, SendRecvHierarchicalPackets), to(ALL, SendRecvHierarchicalZeroCopy)]),
    of(true, 1, 4, AllReduce, &[to(8192, AllReduceHub), to(ALL, AllReduceZeroCopy)]),
    of(true, 1, 4, AllGather, &[to(3072, AllGatherPackets), to(ALL, AllGatherZeroCopy)]),
    of(true, 1, 4, ReduceScatter, &[to(2560, ReduceScatterPackets), to(ALL, ReduceScatterZeroCopy)]),
    of(true, 1, 4, AllToAll, &[to(1024, AllToAllPackets), to(ALL, AllToAllZeroCopy)]),
    of(true, 1, 4, Broadcast, &[to(ALL, BroadcastZeroCopy)]),
    of(true, 1, 4, Reduce, &[to(2560, ReducePackets), to(ALL, ReduceZeroCopy)]),
    of(true, 1, 4, SendRecv, &[to(2048, SendRecvPackets), to(ALL, SendRecvZeroCopy)]),
    of(true, 1, 8, AllReduce, &[to(2048, AllReduceHub), to(ALL, AllReduceZeroCopy)]),
    of(true, 1, 8, AllGather, &[to(4096, AllGatherPackets), to(ALL, AllGatherZeroCopy)]),
    of(true, 1, 8, ReduceScatter, &[to(ALL, ReduceScatterZeroCopy)]),
    of(true, 1, 8, AllToAll, &[to(4096, AllToAllPackets), to(ALL, AllToAllZeroCopy)]),
    of(true, 1, 8, Broadcast, &[to(ALL, BroadcastZeroCopy)]),
    of(true, 1, 8, Reduce, &[to(1536, ReducePackets), to(ALL, ReduceZeroCopy)]),
    of(true, 1, 8, SendRecv, &[to(4096, SendRecvPackets), to(ALL, SendRecvZeroCopy)]),
    of(true, 2, 2, AllReduce, &[to(57344, AllReduceHierarchicalHub), to(ALL, AllReduceHierarchicalZeroCopy)]),
    of(true, 2, 2, AllGather, &[to(131072, AllGatherHierarchicalPackets),
        to(ALL, AllGatherHierarchicalZeroCopy)]),
    of(true, 2, 2, ReduceScatter, &[to(114688, ReduceScatterHierarchicalPackets),
        to(ALL, ReduceScatterHierarchicalZeroCopy)]),
    of(true, 2, 2, AllToAll, &[to(40960, AllToAllHierarchicalPackets), to(ALL, AllToAllHierarchicalZeroCopy)]),
    of(true, 2, 2, Broadcast, &[to(65536, BroadcastHierarchicalPackets), to(ALL, BroadcastHierarchicalZeroCopy)]),
    of(true, 2, 2, Reduce, &[to(81920, ReduceHierarchicalPackets), to(ALL, ReduceHierarchicalZeroCopy)]),
    of(true, 2, 2, SendRecv, &[to(20480, SendRecvHierarchicalPackets), to(ALL, SendRecvHierarchicalZeroCopy)]),
];

/// Likewise of gather and scatter.
#[rustfmt::skip]
pub(super) const ROOTED: &[Rule<Option<Rooted>>] = &[
    of(false, 1, 2, Gather, &[to(2560, Some(Rooted::GatherPackets)), to(ALL, Some(Rooted::GatherZeroCopy))]),
    of(false, 1, 2, Scatter, &[to(3584, Some(Rooted::ScatterPackets)), to(ALL, Some(Rooted::ScatterZeroCopy))]),
    of(false, 2, 1, Gather, &[to(57344, Some(Rooted::GatherHierarchicalPackets)),
        to(ALL, Some(Rooted::GatherHierarchicalZeroCopy))]),
    of(false, 2, 1, Scatter, &[to(262144, Some(Rooted::ScatterHierarchicalPackets)),
        to(ALL, Some(Rooted::ScatterHierarchicalZeroCopy))]),
    of(true, 1, 4, Gather, &[to(ALL, Some(Rooted::GatherZeroCopy))]),
    of(true, 1, 4, Scatter, &[to(ALL, Some(Rooted::ScatterZeroCopy))]),
    of(true, 1, 8, Gather, &[to(ALL, Some(Rooted::GatherZeroCopy))]),
    of(true, 1, 8, Scatter, &[to(ALL, Some(Rooted::ScatterZeroCopy))]),
    of(true, 2, 2, Gather, &[to(229376, Some(Rooted::GatherHierarchicalPackets)),
        to(ALL, Some(Rooted::GatherHierarchicalZeroCopy))]),
    of(true, 2, 2, Scatter, &[to(262144, Some(Rooted::ScatterHierarchicalPackets)),
        to(ALL, Some(Rooted::ScatterHierarchicalZeroCopy))]),
];
