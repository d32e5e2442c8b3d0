//! Which built-in algorithm to use for a call, by message size.

use super::{Algorithm, Rooted, Shape, hosts};
use crate::builder::BuildError;
use crate::model::{Collective, Plan};

/// The algorithm for a call, and what its plan is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choice<A = Algorithm> {
    /// The algorithm.
    pub algorithm: A,
    /// The arguments of its plan.
    pub shape: Shape,
}

impl Choice {
    /// The plan chosen.
    pub fn plan(&self) -> Result<Plan, BuildError> {
        self.algorithm.plan(self.shape)
    }
}

impl Choice<Rooted> {
    /// The plan chosen.
    pub fn plan(&self) -> Result<Plan, BuildError> {
        self.algorithm.plan(self.shape)
    }
}

/// Choose an algorithm for a message of `bytes` bytes on hosts, in the given shape; [`devices`](super::devices) has the choice
/// on GPUs.
///
/// `bytes` is the larger of the call's two buffers: the output of an allgather, the input of a reducescatter. What is chosen
/// was measured for some ranks, with cores of their own and with shared ones ([`Handshake::Hub`](super::Handshake::Hub)), and
/// is predicted for others ([`hosts`]). A number of ranks without a rule is served like the one that is nearest by ratio, or
/// the larger of two equally near; several nodes are served like two. Where the larger buffer has a block for each rank, the
/// size of the block counts. All ranks of a call must give the same arguments. `None` for collectives without built-in
/// algorithms, or, with several nodes, without hierarchical ones.
pub fn select(collective: &Collective, bytes: u64, shape: Shape) -> Option<Choice> {
    hosts::select(collective, bytes, shape)
}

/// The number of `known` that is nearest to `ranks` by ratio, the larger of two that are equally near.
pub(super) fn nearest(ranks: usize, known: impl Iterator<Item = usize>) -> Option<usize> {
    let ranks = ranks.max(1);
    // a / b < c / d, without division.
    let further = |&one: &usize, &other: &usize| {
        let (of, to) = ((one.max(ranks), one.min(ranks)), (other.max(ranks), other.min(ranks)));
        (of.0 * to.1).cmp(&(to.0 * of.1)).then(other.cmp(&one))
    };
    known.min_by(further)
}

/// The size that a message of `asked` ranks counts as where `known` ranks were looked at: if the larger buffer has a block for
/// each rank, the size at which those ranks have equally large blocks, or hardly larger ones.
pub(super) fn counted(collective: &Collective, bytes: u64, (known, asked): (usize, usize)) -> u64 {
    match collective {
        Collective::AllGather
        | Collective::ReduceScatter
        | Collective::AllToAll
        | Collective::Gather
        | Collective::Scatter => {
            let scaled = (u128::from(bytes) * known as u128).div_ceil(asked.max(1) as u128);
            u64::try_from(scaled).unwrap_or(u64::MAX)
        }
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::Handshake;

    #[test]
    fn other_ranks_are_served_as_the_nearest_by_ratio() {
        let cases =
            [(0, 2), (1, 2), (2, 2), (3, 4), (4, 4), (5, 4), (6, 8), (7, 8), (8, 8), (72, 8)];
        for (ranks, expected) in cases {
            for known in [[2, 4, 8], [8, 2, 4]] {
                assert_eq!(nearest(ranks, known.into_iter()), Some(expected), "{ranks}");
            }
        }
        assert_eq!((nearest(3, [].into_iter()), nearest(4, [2, 8].into_iter())), (None, Some(8)));
    }

    #[test]
    fn where_each_rank_has_a_block_messages_count_by_it() {
        let (gather, reduce) = (&Collective::AllGather, &Collective::AllReduce);
        assert_eq!(counted(gather, 600, (8, 6)), 800);
        assert_eq!(counted(&Collective::Scatter, 600, (8, 6)), 800);
        assert_eq!(counted(gather, 600, (8, 0)), 4800);
        assert_eq!(counted(gather, 4097, (4, 8)), 2049);
        assert_eq!(counted(gather, u64::MAX, (4, 3)), u64::MAX);
        assert_eq!(counted(reduce, 600, (8, 6)), 600);
    }

    #[test]
    fn small_messages_go_as_packets_and_large_ones_do_not_where_ranks_have_cores() {
        let shape = Shape::new(4);
        for algorithm in Algorithm::ALL {
            let collective = algorithm.collective();
            let small = select(&collective, 0, shape).expect("a built-in collective");
            let large = select(&collective, 1 << 20, shape).expect("a built-in collective");
            assert!(small.algorithm.name().contains("packets"), "{}", small.algorithm);
            assert!(large.algorithm.name().contains("zero_copy"), "{}", large.algorithm);
            assert_eq!(small.algorithm.collective(), collective);
            assert_eq!(large.algorithm.collective(), collective);
            assert_eq!(small.plan().expect("a plan").gpus.len(), 4);
        }
    }

    #[test]
    fn what_is_chosen_may_be_built_for_all_kinds_of_ranks() {
        for algorithm in Algorithm::ALL {
            for (ranks, nodes) in [(1, 1), (2, 1), (5, 1), (4, 4), (6, 2)] {
                for handshake in [Handshake::Everyone, Handshake::Hub] {
                    for bytes in [0, 1 << 10, 1 << 16, 1 << 30] {
                        let shape = Shape { nodes, handshake, ..Shape::new(ranks) };
                        let choice = select(&algorithm.collective(), bytes, shape).unwrap();
                        let plan = choice.plan().expect("a plan");
                        assert_eq!(plan.gpus.len(), ranks, "{choice:?}");
                    }
                }
            }
        }
    }
}
