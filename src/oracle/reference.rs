//! What every rank's output should be, element by element, for the collectives with a post-condition.

use super::compare::{Tolerance, Verdict};
use super::exact::Exact;
use super::inputs::{Inputs, Stream};
use super::number::{Value, decode, load, wrap};
use antiphon_plan::model::Collective;
use antiphon_types::{DataType, ReduceOp};

/// One launch of a collective: enough to say what each output element should be.
#[derive(Clone, Debug)]
pub struct Problem {
    rule: Rule,
    op: ReduceOp,
    dtype: DataType,
    root: u32,
    streams: Vec<Stream>,
}

/// Where an output element comes from. Blocks are in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// The reduction of all ranks' element of the same position.
    Reduce,
    /// The same, defined on the root only.
    ReduceToRoot,
    /// The reduction of the element in the rank's own block.
    ReduceBlock { block: u64 },
    /// Blocks of the ranks one after the other.
    Gather { block: u64 },
    /// Block r of every rank, one after the other.
    Exchange { block: u64 },
    /// The same, defined on the root only.
    GatherToRoot { block: u64 },
    /// The root's element.
    FromRoot,
    /// The root's element in the rank's own block.
    BlockFromRoot { block: u64 },
    /// Blocks of different lengths, one after the other: for each rank its output's.
    Packed(Vec<Vec<Piece>>),
}

/// A block of an output. It ends where the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Its first element.
    start: u64,
    /// The rank it comes from.
    source: u32,
    /// Its first element there.
    from: u64,
}

impl Problem {
    /// The reference for a launch, or `None` where the collective has no post-condition of its own.
    ///
    /// `output_elements` is the number of elements of one rank's output. The root is rank 0, unless
    /// [another](Self::with_root) is.
    pub fn new(
        collective: &Collective,
        inputs: &Inputs,
        launch: u64,
        output_elements: u64,
    ) -> Option<Self> {
        let ranks = u64::from(inputs.ranks.max(1));
        let rule = match collective {
            Collective::AllReduce => Rule::Reduce,
            Collective::Reduce => Rule::ReduceToRoot,
            Collective::ReduceScatter => Rule::ReduceBlock { block: output_elements },
            Collective::AllGather => Rule::Gather { block: output_elements / ranks },
            Collective::Gather => Rule::GatherToRoot { block: output_elements / ranks },
            Collective::Scatter => Rule::BlockFromRoot { block: output_elements },
            Collective::AllToAll => Rule::Exchange { block: output_elements / ranks },
            Collective::Broadcast => Rule::FromRoot,
            Collective::AllToAllV
            | Collective::AllGatherV
            | Collective::SendRecv
            | Collective::Test
            | Collective::Other(_) => return None,
        };
        Some(Problem {
            rule,
            op: inputs.op.unwrap_or(ReduceOp::Sum),
            dtype: inputs.dtype,
            root: 0,
            streams: (0..inputs.ranks).map(|rank| inputs.stream(rank, launch)).collect(),
        })
    }

    /// The reference for a launch of a collective whose blocks have lengths of their own, and lie one after the other in
    /// every buffer; `None` where the collective has no post-condition of its own.
    ///
    /// `send` are the elements of each block of each rank's input.
    pub fn packed(
        collective: &Collective,
        inputs: &Inputs,
        launch: u64,
        send: &[Vec<u64>],
    ) -> Option<Self> {
        // Which block of a rank's input goes to a rank.
        let block = |to: usize| match collective {
            Collective::AllToAllV => Some(to),
            Collective::AllGatherV => Some(0),
            _ => None,
        };
        block(0)?;
        let output = |to: usize| {
            let mut start = 0;
            let piece = |(source, counts): (u32, &Vec<u64>)| {
                let block = block(to)?;
                let from = counts.iter().take(block).sum();
                let piece = Piece { start, source, from };
                start += counts.get(block)?;
                Some(piece)
            };
            (0..).zip(send).map(piece).collect::<Option<Vec<_>>>()
        };
        Some(Problem {
            rule: Rule::Packed((0..send.len()).map(output).collect::<Option<_>>()?),
            op: ReduceOp::Sum,
            dtype: inputs.dtype,
            root: 0,
            streams: (0..inputs.ranks).map(|rank| inputs.stream(rank, launch)).collect(),
        })
    }

    /// The launch with another root; collectives without one ignore it.
    #[must_use]
    pub fn with_root(self, root: u32) -> Self {
        Problem { root, ..self }
    }

    /// Compares a piece of a rank's output, which starts at element `first`.
    pub fn check(&self, rank: u32, first: u64, output: &[u8]) -> Verdict {
        let mut verdict = Verdict::default();
        if matches!(self.rule, Rule::ReduceToRoot | Rule::GatherToRoot { .. }) && rank != self.root
        {
            return verdict;
        }
        for (element, found) in (first..).zip(output.chunks_exact(self.dtype.size())) {
            let (expected, tolerance) = self.expected(rank, element);
            let bits = load(self.dtype, found);
            verdict.element(self.dtype, (rank, element), expected, tolerance, bits);
        }
        verdict
    }

    /// The expected value of an element of a rank's output, and how far from it a right result may be.
    pub fn expected(&self, rank: u32, element: u64) -> (Value, Tolerance) {
        let copy = |source: u64, element: u64| {
            let bits = self.streams[source as usize % self.streams.len()].bits(element);
            (decode(self.dtype, bits), Tolerance::Exact)
        };
        match self.rule {
            Rule::Packed(ref outputs) => {
                let pieces = outputs.get(rank as usize).map_or(&[][..], Vec::as_slice);
                // Of blocks that start together all but the last are empty.
                let next = pieces.partition_point(|piece| piece.start <= element);
                let none = Piece { start: element, source: 0, from: 0 };
                let piece = pieces.get(next.wrapping_sub(1)).unwrap_or(&none);
                copy(u64::from(piece.source), piece.from + (element - piece.start))
            }
            Rule::Reduce | Rule::ReduceToRoot => self.reduced(element),
            Rule::ReduceBlock { block } => self.reduced(u64::from(rank) * block + element),
            Rule::Gather { block } | Rule::GatherToRoot { block } => {
                copy(element / block.max(1), element % block.max(1))
            }
            Rule::Exchange { block } => {
                let block = block.max(1);
                copy(element / block, u64::from(rank) * block + element % block)
            }
            Rule::FromRoot => copy(self.root.into(), element),
            Rule::BlockFromRoot { block } => {
                copy(self.root.into(), u64::from(rank) * block + element)
            }
        }
    }

    fn reduced(&self, element: u64) -> (Value, Tolerance) {
        if self.dtype.is_float() {
            self.reduced_float(element)
        } else {
            (Value::Integer(self.reduced_integer(element)), Tolerance::Exact)
        }
    }

    fn reduced_float(&self, element: u64) -> (Value, Tolerance) {
        let ranks = self.streams.len() as u32;
        let values =
            self.streams.iter().map(|stream| match decode(self.dtype, stream.bits(element)) {
                Value::Float(value) => value,
                Value::Integer(value) => value as f64,
            });
        let bounded = |value: f64, roundings, magnitude, subnormal| {
            (Value::Float(value), Tolerance::Roundings { roundings, magnitude, subnormal })
        };
        match self.op {
            ReduceOp::Sum | ReduceOp::Avg => {
                let (mut sum, mut magnitude) = (Exact::new(0.0), 0.0);
                for value in values {
                    sum = sum.plus(value);
                    magnitude += value.abs();
                }
                if self.op == ReduceOp::Sum {
                    return bounded(sum.value(), ranks, magnitude, false);
                }
                let n = f64::from(ranks);
                bounded(sum.value() / n, ranks + 1, magnitude / n, true)
            }
            ReduceOp::Prod => {
                let product = values.fold(Exact::new(1.0), Exact::times).value();
                bounded(product, ranks, product.abs(), true)
            }
            ReduceOp::Min => (Value::Float(values.fold(f64::INFINITY, f64::min)), Tolerance::Exact),
            ReduceOp::Max => {
                (Value::Float(values.fold(f64::NEG_INFINITY, f64::max)), Tolerance::Exact)
            }
        }
    }

    fn reduced_integer(&self, element: u64) -> i128 {
        let values =
            self.streams.iter().map(|stream| match decode(self.dtype, stream.bits(element)) {
                Value::Integer(value) => value,
                Value::Float(value) => value as i128,
            });
        let sum = |values: &mut dyn Iterator<Item = i128>| {
            wrap(self.dtype, values.fold(0i128, i128::wrapping_add))
        };
        match self.op {
            ReduceOp::Sum => sum(&mut { values }),
            ReduceOp::Avg => sum(&mut { values }) / self.streams.len().max(1) as i128,
            ReduceOp::Prod => values.fold(1, |a, b| wrap(self.dtype, a.wrapping_mul(b))),
            ReduceOp::Min => values.min().unwrap_or(0),
            ReduceOp::Max => values.max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The inputs of three ranks with four elements each, as values, and the problem over them.
    fn problem(
        collective: Collective,
        dtype: DataType,
        op: ReduceOp,
        output_elements: u64,
    ) -> (Vec<Vec<Value>>, Problem) {
        let inputs = Inputs { seed: 1, ranks: 3, dtype, op: Some(op) };
        let values = (0..3)
            .map(|rank| {
                (0..12).map(|e| decode(dtype, inputs.stream(rank, 5).bits(e))).collect::<Vec<_>>()
            })
            .collect();
        (values, Problem::new(&collective, &inputs, 5, output_elements).unwrap())
    }

    fn integer(value: Value) -> i128 {
        match value {
            Value::Integer(value) => value,
            Value::Float(value) => panic!("{value} is not an integer"),
        }
    }

    fn float(value: Value) -> f64 {
        match value {
            Value::Float(value) => value,
            Value::Integer(value) => panic!("{value} is not a float"),
        }
    }

    #[test]
    fn moving_collectives_name_the_right_source() {
        let dtype = DataType::I64;
        let (x, gather) = problem(Collective::AllGather, dtype, ReduceOp::Sum, 12);
        // Output element 9 of an all-gather of four-element inputs is element 1 of rank 2.
        assert_eq!(gather.expected(0, 9), (x[2][1], Tolerance::Exact));
        let (x, exchange) = problem(Collective::AllToAll, dtype, ReduceOp::Sum, 12);
        // Rank 1 receives block 1 of rank 2 as its block 2: element 2*4+3 is rank 2's element 1*4+3.
        assert_eq!(exchange.expected(1, 11), (x[2][7], Tolerance::Exact));
        let (x, broadcast) = problem(Collective::Broadcast, dtype, ReduceOp::Sum, 12);
        assert_eq!(broadcast.expected(2, 6), (x[0][6], Tolerance::Exact));
    }

    #[test]
    fn blocks_of_any_length_come_from_where_they_were_sent() {
        let inputs = Inputs { seed: 1, ranks: 3, dtype: DataType::I64, op: None };
        let sent = |rank: u32, element| {
            (decode(DataType::I64, inputs.stream(rank, 5).bits(element)), Tolerance::Exact)
        };
        let send = [vec![0, 2, 1], vec![4, 0, 0], vec![3, 3, 5]];
        let all_to_all = Problem::packed(&Collective::AllToAllV, &inputs, 5, &send).unwrap();
        // Rank 0 gets nothing of itself, four elements of rank 1 and three of rank 2.
        assert_eq!(all_to_all.expected(0, 0), sent(1, 0));
        assert_eq!(all_to_all.expected(0, 3), sent(1, 3));
        assert_eq!(all_to_all.expected(0, 4), sent(2, 0));
        // Rank 1 gets two elements of rank 0 and three of rank 2, which come after those for rank 0.
        assert_eq!(all_to_all.expected(1, 1), sent(0, 1));
        assert_eq!(all_to_all.expected(1, 2), sent(2, 3));
        assert_eq!(all_to_all.expected(2, 0), sent(0, 2));
        let gathered = [vec![2], vec![0], vec![3]];
        let gather = Problem::packed(&Collective::AllGatherV, &inputs, 5, &gathered).unwrap();
        for rank in 0..3 {
            assert_eq!(gather.expected(rank, 1), sent(0, 1));
            assert_eq!(gather.expected(rank, 4), sent(2, 2));
        }
        assert!(Problem::packed(&Collective::SendRecv, &inputs, 5, &gathered).is_none());
    }

    #[test]
    fn integer_reductions_are_those_of_the_type() {
        for dtype in [DataType::I8, DataType::U8, DataType::I32, DataType::U64] {
            for op in ReduceOp::ALL {
                let (x, allreduce) = problem(Collective::AllReduce, dtype, op, 12);
                let (_, scatter) = problem(Collective::ReduceScatter, dtype, op, 4);
                let v = [x[0][6], x[1][6], x[2][6]].map(integer);
                let expected = match op {
                    ReduceOp::Sum => wrap(dtype, v[0] + v[1] + v[2]),
                    ReduceOp::Prod => wrap(dtype, wrap(dtype, v[0] * v[1]) * v[2]),
                    ReduceOp::Min => v[0].min(v[1]).min(v[2]),
                    ReduceOp::Max => v[0].max(v[1]).max(v[2]),
                    ReduceOp::Avg => (v[0] + v[1] + v[2]) / 3,
                };
                assert_eq!(integer(allreduce.expected(2, 6).0), expected, "{dtype} {op}");
                // Rank 1's block starts at element 4.
                assert_eq!(integer(scatter.expected(1, 2).0), expected, "{dtype} {op}");
            }
        }
    }

    #[test]
    fn float_reductions_are_right_and_bounded() {
        for op in ReduceOp::ALL {
            let (x, allreduce) = problem(Collective::AllReduce, DataType::F32, op, 12);
            let v = [x[0][3], x[1][3], x[2][3]].map(float);
            let (expected, tolerance) = allreduce.expected(0, 3);
            let by_hand = match op {
                ReduceOp::Sum => v[0] + v[1] + v[2],
                ReduceOp::Prod => v[0] * v[1] * v[2],
                ReduceOp::Min => v[0].min(v[1]).min(v[2]),
                ReduceOp::Max => v[0].max(v[1]).max(v[2]),
                ReduceOp::Avg => (v[0] + v[1] + v[2]) / 3.0,
            };
            assert!((float(expected) - by_hand).abs() <= 1e-14, "{op}");
            let exact = matches!(op, ReduceOp::Min | ReduceOp::Max);
            assert_eq!(tolerance == Tolerance::Exact, exact, "{op}");
        }
    }

    #[test]
    fn one_missing_rank_or_one_shifted_element_is_seen_in_every_type() {
        for dtype in DataType::ALL {
            let inputs = Inputs { seed: 3, ranks: 4, dtype, op: Some(ReduceOp::Sum) };
            let problem = Problem::new(&Collective::AllReduce, &inputs, 0, 1000).unwrap();
            let mut own = vec![0; 1000 * dtype.size()];
            inputs.stream(0, 0).fill(dtype, 0, &mut own);
            let verdict = problem.check(0, 0, &own);
            assert!(verdict.wrong > 300, "{dtype}: only {} of 1000 wrong", verdict.wrong);
            let gather = Problem::new(&Collective::AllGather, &inputs, 0, 4000).unwrap();
            assert_eq!(gather.check(1, 0, &own), Verdict::default(), "{dtype}");
            let shifted = gather.check(1, 1, &own);
            assert!(shifted.wrong > 500, "{dtype}: only {} of 1000 wrong", shifted.wrong);
        }
    }

    #[test]
    fn a_sequential_sum_in_the_type_is_accepted() {
        let inputs = Inputs { seed: 9, ranks: 8, dtype: DataType::F32, op: Some(ReduceOp::Sum) };
        let problem = Problem::new(&Collective::AllReduce, &inputs, 1, 4096).unwrap();
        let sums: Vec<u8> = (0..4096u64)
            .flat_map(|element| {
                let terms = (0..8).map(|rank| inputs.stream(rank, 1).bits(element) as u32);
                terms.map(f32::from_bits).fold(0.0, |a, b| a + b).to_le_bytes()
            })
            .collect();
        assert_eq!(problem.check(7, 0, &sums), Verdict::default());
    }

    #[test]
    fn only_the_root_of_a_reduce_is_checked() {
        let (_, reduce) = problem(Collective::Reduce, DataType::U8, ReduceOp::Sum, 12);
        assert_eq!(reduce.check(1, 0, &[9; 12]).wrong, 0);
        assert!(reduce.check(0, 0, &[9; 12]).wrong > 0);
    }

    #[test]
    fn plans_without_a_post_condition_have_no_problem() {
        let inputs = Inputs { seed: 0, ranks: 2, dtype: DataType::F32, op: None };
        for collective in
            [Collective::Test, Collective::SendRecv, Collective::Other("custom".into())]
        {
            assert!(Problem::new(&collective, &inputs, 0, 1).is_none(), "{collective}");
        }
    }
}
