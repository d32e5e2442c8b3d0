//! Which built-in algorithm to use for a call, by message size.

use super::{Algorithm, Handshake, Shape};
use crate::builder::BuildError;
use crate::model::{Collective, Plan};

/// Largest message to each peer, in bytes, that is worth sending as packets.
///
/// Packets save a handshake (two signals per pair) but double the traffic and copy once more at the receiver.
/// Up to a few cache lines the handshake costs more.
pub const PACKET_BYTES_PER_PEER: u64 = 256;

/// Largest allreduce, in bytes, that everyone sends whole to everyone.
///
/// One shot saves a step over two shots but sends and reduces `ranks / 2` times as much; below this the message
/// is a few cache lines and the step costs more.
pub const ONE_SHOT_BYTES: u64 = 256;

/// The same between two ranks, for which the receiver's copy is all that packets cost (measured).
pub const PACKET_BYTES_PER_PAIR: u64 = 2048;

/// Largest allreduce, in bytes, that one rank does for all where ranks share cores.
pub const HUB_BYTES: u64 = 16 << 10;

/// Largest allreduce, in bytes, that every rank sends whole to its counterparts on other nodes.
///
/// One shot saves a step inside the node over two shots, but every rank of a node sends the same sum over the wire. Not
/// measured on hosts with a core for each rank; a message of a few packets costs the wire little more than an empty one.
pub const NODES_ONE_SHOT_BYTES: u64 = 4 << 10;

/// Largest allreduce, in bytes, that one rank of each node does for its node where ranks share cores (measured over TCP,
/// two nodes of two ranks with one core each).
pub const NODES_HUB_BYTES: u64 = 64 << 10;

/// Largest allreduce, in bytes, that goes over several nodes as packets. Not measured on hosts with a core for each rank.
///
/// Packets double what crosses the wire and are copied at both ends, but need no handshake and no flush.
pub const NODES_PACKET_BYTES: u64 = 64 << 10;

/// Largest block of a rank, in bytes, that an allgather, reducescatter or alltoall over several nodes sends as packets; of
/// broadcast, reduce and sendrecv, the largest message. Not measured.
pub const NODES_PACKET_BYTES_PER_RANK: u64 = 8 << 10;

/// The algorithm for a call, and what its plan is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The arguments of its plan.
    pub shape: Shape,
}

impl Choice {
    /// The plan chosen.
    pub fn plan(&self) -> Result<Plan, BuildError> {
        self.algorithm.plan(self.shape)
    }
}

/// Choose an algorithm for a message of `bytes` bytes, in the given shape.
///
/// `bytes` is the larger of the call's two buffers: the output of an allgather, the input of a reducescatter.
/// Where ranks share cores ([`Handshake::Hub`]) only the number of operations counts on one node, and nothing goes as
/// packets there. Over several nodes the crossings count as well: one rank of each node does a small allreduce for it,
/// without packets inside the node, and the other collectives go as if no cores were shared (not measured). All ranks of a
/// call must give the same arguments. `None` for collectives without built-in algorithms, or, with several nodes, without
/// hierarchical ones.
pub fn select(collective: &Collective, bytes: u64, shape: Shape) -> Option<Choice> {
    use Algorithm::*;
    if shape.nodes > 1 {
        return over_nodes(collective, bytes, shape);
    }
    let per_rank = bytes.div_ceil(shape.ranks.max(1) as u64);
    let crowded = shape.handshake == Handshake::Hub;
    let pair = shape.ranks <= 2;
    let packet_bytes = if pair { PACKET_BYTES_PER_PAIR } else { PACKET_BYTES_PER_PEER };
    let one_shot_bytes = if pair { PACKET_BYTES_PER_PAIR } else { ONE_SHOT_BYTES };
    let by_size = |bytes_per_peer: u64, packets: Algorithm, zero_copy: Algorithm| {
        if !crowded && bytes_per_peer <= packet_bytes { packets } else { zero_copy }
    };
    let algorithm = match collective {
        Collective::AllReduce if crowded && bytes <= HUB_BYTES => AllReduceHub,
        Collective::AllReduce if pair && bytes > one_shot_bytes => AllReduceZeroCopy,
        Collective::AllReduce if !crowded && bytes <= one_shot_bytes => AllReduceOneShotPackets,
        Collective::AllReduce => by_size(per_rank, AllReduceTwoShotPackets, AllReduceZeroCopy),
        Collective::AllGather => by_size(per_rank, AllGatherPackets, AllGatherZeroCopy),
        Collective::ReduceScatter => by_size(per_rank, ReduceScatterPackets, ReduceScatterZeroCopy),
        Collective::AllToAll => by_size(per_rank, AllToAllPackets, AllToAllZeroCopy),
        Collective::Broadcast => by_size(bytes, BroadcastPackets, BroadcastZeroCopy),
        Collective::Reduce => by_size(bytes, ReducePackets, ReduceZeroCopy),
        Collective::SendRecv => by_size(bytes, SendRecvPackets, SendRecvZeroCopy),
        // What the message to each peer is, nobody knows beforehand.
        Collective::AllToAllV | Collective::AllGatherV => return None,
        Collective::Gather | Collective::Scatter | Collective::Test | Collective::Other(_) => {
            return None;
        }
    };
    Some(Choice { algorithm, shape })
}

/// Chooses among the algorithms that reach over several nodes.
fn over_nodes(collective: &Collective, bytes: u64, shape: Shape) -> Option<Choice> {
    use Algorithm::*;
    let per_rank = bytes.div_ceil(shape.ranks.max(1) as u64);
    let by_size = |packets: Algorithm, zero_copy: Algorithm| {
        if per_rank <= NODES_PACKET_BYTES_PER_RANK { packets } else { zero_copy }
    };
    // What a rank sends to a counterpart is the message.
    let whole = |packets: Algorithm, zero_copy: Algorithm| {
        if bytes <= NODES_PACKET_BYTES_PER_RANK { packets } else { zero_copy }
    };
    // A rank that is alone on its node has nobody to share the second step with.
    let alone = shape.nodes == shape.ranks;
    let crowded = shape.handshake == Handshake::Hub && !alone;
    let algorithm = match collective {
        Collective::AllReduce if crowded && bytes <= NODES_HUB_BYTES => AllReduceHierarchicalHub,
        Collective::AllReduce if bytes <= NODES_ONE_SHOT_BYTES => AllReduceHierarchicalPackets,
        Collective::AllReduce if bytes > NODES_PACKET_BYTES => AllReduceHierarchicalZeroCopy,
        Collective::AllReduce if alone => AllReduceHierarchicalPackets,
        Collective::AllReduce => AllReduceHierarchicalTwoShotPackets,
        Collective::AllGather => {
            by_size(AllGatherHierarchicalPackets, AllGatherHierarchicalZeroCopy)
        }
        Collective::ReduceScatter => {
            by_size(ReduceScatterHierarchicalPackets, ReduceScatterHierarchicalZeroCopy)
        }
        Collective::AllToAll => by_size(AllToAllHierarchicalPackets, AllToAllHierarchicalZeroCopy),
        Collective::Broadcast => whole(BroadcastHierarchicalPackets, BroadcastHierarchicalZeroCopy),
        Collective::Reduce => whole(ReduceHierarchicalPackets, ReduceHierarchicalZeroCopy),
        Collective::SendRecv => whole(SendRecvHierarchicalPackets, SendRecvHierarchicalZeroCopy),
        _ => return None,
    };
    Some(Choice { algorithm, shape })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_go_as_packets_and_large_ones_do_not() {
        let shape = Shape::new(8);
        for algorithm in Algorithm::ALL {
            let collective = algorithm.collective();
            let small = select(&collective, 0, shape).expect("a built-in collective");
            let large = select(&collective, 1 << 20, shape).expect("a built-in collective");
            assert!(small.algorithm.name().contains("packets"), "{}", small.algorithm);
            assert!(large.algorithm.name().contains("zero_copy"), "{}", large.algorithm);
            assert_eq!(small.algorithm.collective(), collective);
            assert_eq!(large.algorithm.collective(), collective);
            assert_eq!(small.plan().expect("a plan").gpus.len(), 8);
        }
    }

    #[test]
    fn what_counts_is_the_message_to_each_peer() {
        let at = |collective, bytes| select(&collective, bytes, Shape::new(8)).map(|c| c.algorithm);
        let cases = [
            (Collective::AllReduce, 256, Algorithm::AllReduceOneShotPackets),
            (Collective::AllReduce, 257, Algorithm::AllReduceTwoShotPackets),
            (Collective::AllReduce, 2048, Algorithm::AllReduceTwoShotPackets),
            (Collective::AllReduce, 2049, Algorithm::AllReduceZeroCopy),
            (Collective::AllGather, 2048, Algorithm::AllGatherPackets),
            (Collective::AllGather, 2049, Algorithm::AllGatherZeroCopy),
            (Collective::Broadcast, 256, Algorithm::BroadcastPackets),
            (Collective::Broadcast, 257, Algorithm::BroadcastZeroCopy),
        ];
        for (collective, bytes, expected) in cases {
            assert_eq!(at(collective.clone(), bytes), Some(expected), "{collective} {bytes}");
        }
        assert_eq!(at(Collective::Test, 1), None);
    }

    #[test]
    fn ranks_of_one_node_that_share_cores_never_use_packets() {
        let shape = Shape { handshake: Handshake::Hub, ..Shape::new(8) };
        for algorithm in Algorithm::ALL {
            for bytes in [0, 4, 4096, 1 << 20] {
                let choice = select(&algorithm.collective(), bytes, shape).expect("a choice");
                assert!(!choice.algorithm.name().contains("packets"), "{}", choice.algorithm);
            }
        }
    }

    #[test]
    fn over_several_nodes_shared_cores_count_for_allreduce_alone() {
        for bytes in [0, 4, 4096, 1 << 16, 1 << 20] {
            let at = |collective: &Collective, handshake| {
                let shape = Shape { nodes: 2, handshake, ..Shape::new(8) };
                select(collective, bytes, shape).map(|choice| choice.algorithm)
            };
            for algorithm in Algorithm::ALL {
                let collective = algorithm.collective();
                let (shared, own) =
                    (at(&collective, Handshake::Hub), at(&collective, Handshake::Everyone));
                if collective == Collective::AllReduce {
                    let name = shared.expect("a choice").name();
                    assert!(!name.contains("packets"), "{bytes}: {name}");
                } else {
                    assert_eq!(shared, own, "{collective} {bytes}");
                }
            }
        }
    }

    #[test]
    fn several_nodes_take_hierarchical_algorithms_only() {
        let at = |collective: &Collective, bytes, (nodes, per_node)| {
            let shape = Shape { nodes, ..Shape::new(nodes * per_node) };
            select(collective, bytes, shape).map(|choice| choice.algorithm)
        };
        let (two, lone) = ((2, 4), (4, 1));
        let cases = [
            (Collective::AllReduce, 4096, two, Algorithm::AllReduceHierarchicalPackets),
            (Collective::AllReduce, 4097, two, Algorithm::AllReduceHierarchicalTwoShotPackets),
            (Collective::AllReduce, 4097, lone, Algorithm::AllReduceHierarchicalPackets),
            (Collective::AllReduce, 65536, two, Algorithm::AllReduceHierarchicalTwoShotPackets),
            (Collective::AllReduce, 65537, two, Algorithm::AllReduceHierarchicalZeroCopy),
            (Collective::AllReduce, 65537, lone, Algorithm::AllReduceHierarchicalZeroCopy),
            (Collective::AllGather, 65536, two, Algorithm::AllGatherHierarchicalPackets),
            (Collective::AllGather, 65537, two, Algorithm::AllGatherHierarchicalZeroCopy),
            (Collective::ReduceScatter, 0, two, Algorithm::ReduceScatterHierarchicalPackets),
            (Collective::AllToAll, 1 << 20, two, Algorithm::AllToAllHierarchicalZeroCopy),
            (Collective::Broadcast, 8192, two, Algorithm::BroadcastHierarchicalPackets),
            (Collective::Broadcast, 8193, two, Algorithm::BroadcastHierarchicalZeroCopy),
            (Collective::Reduce, 8192, lone, Algorithm::ReduceHierarchicalPackets),
            (Collective::Reduce, 8193, lone, Algorithm::ReduceHierarchicalZeroCopy),
            (Collective::SendRecv, 8192, two, Algorithm::SendRecvHierarchicalPackets),
            (Collective::SendRecv, 8193, two, Algorithm::SendRecvHierarchicalZeroCopy),
        ];
        for (collective, bytes, places, expected) in cases {
            assert_eq!(
                at(&collective, bytes, places),
                Some(expected),
                "{collective} {bytes} {places:?}"
            );
        }
        for algorithm in Algorithm::ALL {
            let collective = algorithm.collective();
            for bytes in [0, 1 << 14, 1 << 30] {
                let chosen = at(&collective, bytes, two);
                assert!(chosen.is_none_or(Algorithm::is_hierarchical), "{collective} {bytes}");
            }
        }
        assert_eq!(at(&Collective::AllToAllV, 4, two), None);
    }

    #[test]
    fn one_rank_of_each_node_works_for_its_node_where_ranks_share_cores() {
        let at = |bytes, (nodes, per_node)| {
            let shape = Shape { nodes, handshake: Handshake::Hub, ..Shape::new(nodes * per_node) };
            select(&Collective::AllReduce, bytes, shape).map(|choice| choice.algorithm)
        };
        let cases = [
            (65536, (2, 4), Algorithm::AllReduceHierarchicalHub),
            (65537, (2, 4), Algorithm::AllReduceHierarchicalZeroCopy),
            // One that is alone on its node has nobody to share cores with.
            (4096, (4, 1), Algorithm::AllReduceHierarchicalPackets),
        ];
        for (bytes, places, expected) in cases {
            assert_eq!(at(bytes, places), Some(expected), "{bytes} {places:?}");
        }
    }
}
