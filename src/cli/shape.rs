//! From a message size to buffers: how large each is, and where it lies when a rank uses one for both.

use antiphon::plan::model::{Collective, Plan};
use serde::{Deserialize, Serialize};

/// The buffers of one call, alike on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Bytes of the send buffer.
    pub input: u64,
    /// Bytes of the receive buffer.
    pub output: u64,
    /// Elements as NCCL counts them: per rank where the collective has a block per rank, else all.
    pub count: u64,
}

/// Where a rank's buffers lie in one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Bytes of the allocation.
    pub bytes: u64,
    /// Offset of the send buffer.
    pub input: u64,
    /// Offset of the receive buffer.
    pub output: u64,
}

impl Shape {
    /// The buffers for a message of at most `size` bytes: the largest number of whole elements (of `element`
    /// bytes), or of whole elements for each rank where the collective has a block per rank; but at least one.
    ///
    /// A plan without such a post-condition has its chunk counts: the smallest number of whole elements per chunk that
    /// reaches `size` in the larger buffer, so that all chunks are alike whatever the size. Buffers without chunk
    /// counts, and those of a sendrecv with equal ones, have `size` bytes each.
    pub fn new(plan: &Plan, size: u64, element: u64) -> Self {
        let ranks = plan.gpus.len() as u32;
        if let Some(shape) = Shape::of_call(&plan.collective, ranks, size, element) {
            return shape;
        }
        let most = |chunks: fn(&antiphon::plan::model::Gpu) -> u64| {
            plan.gpus.iter().map(chunks).max().unwrap_or(0)
        };
        let elements = whole_elements(size, element);
        let input_chunks = most(|gpu| gpu.input_chunks);
        let output_chunks = most(|gpu| gpu.output_chunks);
        let whole = input_chunks == output_chunks
            && (input_chunks == 0 || plan.collective == Collective::SendRecv);
        if whole {
            let bytes = elements * element;
            return Shape { input: bytes, output: bytes, count: elements };
        }
        let chunks = input_chunks.max(output_chunks);
        let per_chunk = elements.div_ceil(chunks);
        // Saturating, so that absurd chunk counts end in the allocator's refusal.
        let bytes = |chunks: u64| chunks.saturating_mul(per_chunk * element);
        Shape {
            input: bytes(input_chunks),
            output: bytes(output_chunks),
            count: chunks.saturating_mul(per_chunk),
        }
    }

    /// The buffers of a call of such a collective, as [`new`](Self::new) has them; none where the collective does not say.
    fn of_call(collective: &Collective, ranks: u32, size: u64, element: u64) -> Option<Self> {
        let ranks = u64::from(ranks.max(1));
        let elements = whole_elements(size, element);
        // At least one, unless there is nothing at all.
        let per_rank = (size / element / ranks).max(elements.min(1));
        let (block, whole) = (per_rank * element, per_rank * element * ranks);
        match collective {
            Collective::AllReduce | Collective::Broadcast | Collective::Reduce => Some(Shape {
                input: elements * element,
                output: elements * element,
                count: elements,
            }),
            Collective::AllGather | Collective::Gather => {
                Some(Shape { input: block, output: whole, count: per_rank })
            }
            Collective::ReduceScatter | Collective::Scatter => {
                Some(Shape { input: whole, output: block, count: per_rank })
            }
            Collective::AllToAll => Some(Shape { input: whole, output: whole, count: per_rank }),
            Collective::AllToAllV
            | Collective::AllGatherV
            | Collective::SendRecv
            | Collective::Test
            | Collective::Other(_) => None,
        }
    }

    /// Bytes of the message that a call has which is asked for with `size`: no call has a part of an element, nor blocks that
    /// differ. As it is where the collective does not say.
    pub fn message_of_call(collective: &Collective, ranks: u32, size: u64, element: u64) -> u64 {
        let shape = Shape::of_call(collective, ranks, size, element);
        shape.map_or(size, |shape| shape.message())
    }

    /// Bytes of the message: the larger buffer, which is what NCCL calls the size of any collective.
    pub fn message(&self) -> u64 {
        self.input.max(self.output)
    }

    /// Where the buffers of `rank` lie when the call is in place, or `None` where no rule says (test and custom
    /// plans, and a sendrecv with buffers of unequal size).
    pub fn in_place(&self, collective: &Collective, rank: u32) -> Option<Placement> {
        let bytes = self.message();
        let own_block = u64::from(rank) * self.input.min(self.output);
        match collective {
            Collective::AllGather | Collective::Gather => {
                Some(Placement { bytes, input: own_block, output: 0 })
            }
            Collective::ReduceScatter | Collective::Scatter => {
                Some(Placement { bytes, input: 0, output: own_block })
            }
            Collective::AllReduce
            | Collective::AllToAll
            | Collective::Broadcast
            | Collective::Reduce => Some(Placement { bytes, input: 0, output: 0 }),
            Collective::SendRecv => {
                (self.input == self.output).then_some(Placement { bytes, input: 0, output: 0 })
            }
            Collective::AllToAllV
            | Collective::AllGatherV
            | Collective::Test
            | Collective::Other(_) => None,
        }
    }
}

/// What busbw is algbw times: the share of the data that every correct algorithm moves per rank, as nccl-tests
/// defines it.
pub fn bus_factor(collective: &Collective, ranks: u32) -> f64 {
    let n = f64::from(ranks.max(1));
    match collective {
        Collective::AllReduce => 2.0 * (n - 1.0) / n,
        Collective::AllGather
        | Collective::Gather
        | Collective::ReduceScatter
        | Collective::Scatter
        | Collective::AllToAll => (n - 1.0) / n,
        _ => 1.0,
    }
}

/// The whole elements in so many bytes; one of fewer bytes than it has, none of no bytes.
fn whole_elements(bytes: u64, element: u64) -> u64 {
    if bytes == 0 { 0 } else { (bytes / element).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::plans::testing::plan;

    fn shape(collective: Collective, chunks: (u64, u64), size: u64, element: u64) -> Shape {
        Shape::new(&plan(collective, 3, chunks), size, element)
    }

    #[test]
    fn sizes_mean_what_they_mean_for_nccl() {
        let buffers = |input, output, count| Shape { input, output, count };
        use Collective::*;
        let cases = [
            (AllReduce, 100, 8, buffers(96, 96, 12)),
            (AllGather, 100, 4, buffers(32, 96, 8)),
            (ReduceScatter, 100, 4, buffers(96, 32, 8)),
            (AllToAll, 100, 4, buffers(96, 96, 8)),
            (Broadcast, 7, 1, buffers(7, 7, 7)),
            (Reduce, 7, 2, buffers(6, 6, 3)),
            // Never less than one element, or one for each rank.
            (AllReduce, 1, 4, buffers(4, 4, 1)),
            (AllGather, 4, 4, buffers(4, 12, 1)),
            (AllReduce, 0, 4, buffers(0, 0, 0)),
            (AllGather, 0, 4, buffers(0, 0, 0)),
        ];
        for (collective, size, element, expected) in cases {
            let found = shape(collective.clone(), (3, 3), size, element);
            assert_eq!(found, expected, "{collective} {size} bytes of {element}");
        }
    }

    #[test]
    fn a_call_has_whole_elements_and_equal_blocks() {
        use Collective::*;
        for (collective, size, bytes) in [
            (AllReduce, 1023, 1020),
            (AllGather, 1 << 20, 1_048_572),
            (Scatter, 1, 12),
            (AllToAll, 0, 0),
            (AllToAllV, 1023, 1023),
            (SendRecv, 1023, 1023),
        ] {
            let found = Shape::message_of_call(&collective, 3, size, 4);
            assert_eq!(found, bytes, "{collective} of {size} bytes");
        }
    }

    #[test]
    fn other_plans_follow_their_chunk_counts() {
        let buffers = |input, output, count| Shape { input, output, count };
        use Collective::*;
        assert_eq!(shape(SendRecv, (4, 4), 100, 4), buffers(100, 100, 25));
        assert_eq!(shape(Test, (2, 1), 100, 4), buffers(104, 52, 26));
        assert_eq!(shape(Test, (2, 0), 100, 4), buffers(104, 0, 26));
        // No counts: no constraint, and scratch chunks are as long as the buffers.
        assert_eq!(shape(Test, (0, 0), 100, 4), buffers(100, 100, 25));
        assert_eq!(shape(Test, (u64::MAX, 1), 100, 4).input, u64::MAX);
    }

    #[test]
    fn in_place_pointers_follow_nccl() {
        let gather = shape(Collective::AllGather, (1, 3), 96, 4);
        let place = |bytes, input, output| Some(Placement { bytes, input, output });
        assert_eq!(gather.in_place(&Collective::AllGather, 2), place(96, 64, 0));
        let scatter = shape(Collective::ReduceScatter, (3, 1), 96, 4);
        assert_eq!(scatter.in_place(&Collective::ReduceScatter, 1), place(96, 0, 32));
        let reduce = shape(Collective::AllReduce, (3, 3), 96, 4);
        assert_eq!(reduce.in_place(&Collective::AllReduce, 1), place(96, 0, 0));
        assert_eq!(reduce.in_place(&Collective::SendRecv, 1), place(96, 0, 0));
        assert_eq!(scatter.in_place(&Collective::SendRecv, 1), None);
        assert_eq!(reduce.in_place(&Collective::Test, 1), None);
    }

    #[test]
    fn bus_bandwidth_counts_what_must_move() {
        assert_eq!(bus_factor(&Collective::AllReduce, 4), 1.5);
        assert_eq!(bus_factor(&Collective::AllGather, 4), 0.75);
        assert_eq!(bus_factor(&Collective::Broadcast, 4), 1.0);
        assert_eq!(bus_factor(&Collective::AllReduce, 1), 0.0);
    }
}
