//! What a plan without a post-condition should leave behind: a sequential interpretation of the plan over values
//! that carry their own error bound.

use super::compare::{Tolerance, Verdict};
use super::inputs::Inputs;
use super::number::{FloatFormat, Value, decode, load, wrap};
use antiphon_plan::counts::{Counts, Extent};
use antiphon_plan::interpret::{Interpreter, Memory, Turns};
use antiphon_plan::model::{OpKind, Plan};
use antiphon_plan::program::{CallSizes, Layout};
use antiphon_types::{DataType, ReduceOp};

/// A value on its way through a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Traced {
    /// A float.
    Float {
        /// What it would be without roundings, but for those of `f64`.
        value: f64,
        /// The sum of the magnitudes of what was added, or the magnitude of a product.
        magnitude: f32,
        /// How often it was rounded.
        roundings: u16,
    },
    /// An integer of this type.
    Integer {
        /// The value as its two's complement, sign-extended.
        bits: u64,
        /// Its type; none for the zeros of fresh scratch.
        dtype: Option<DataType>,
    },
}

impl Traced {
    fn new(dtype: DataType, bits: u64) -> Self {
        match decode(dtype, bits) {
            Value::Float(value) => {
                Traced::Float { value, magnitude: value.abs() as f32, roundings: 0 }
            }
            Value::Integer(value) => Traced::Integer { bits: value as u64, dtype: Some(dtype) },
        }
    }

    /// Whether two interpretations mean the same value: sums in another order round otherwise.
    fn close(&self, other: &Traced, dtype: DataType) -> bool {
        if self == other {
            return true;
        }
        let ((a, tolerance), (b, _)) = (self.expected(dtype), other.expected(dtype));
        match (a, b, FloatFormat::of(dtype)) {
            (Value::Float(a), Value::Float(b), Some(format)) => {
                a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance.bound(format)
            }
            _ => a == b,
        }
    }

    /// The expected value, and how far from it a right one may be.
    fn expected(self, dtype: DataType) -> (Value, Tolerance) {
        match self {
            Traced::Float { value, roundings: 0, .. } => (Value::Float(value), Tolerance::Exact),
            Traced::Float { value, magnitude, roundings } => {
                // The interpretation of f64 rounds as often itself.
                let factor = if dtype == DataType::F64 { 2 } else { 1 };
                let roundings = u32::from(roundings) * factor;
                // The magnitude may itself have been rounded down, by far less than one rounding in a thousand.
                let magnitude = f64::from(magnitude) * (1.0 + 1e-3);
                (
                    Value::Float(value),
                    Tolerance::Roundings { roundings, magnitude, subnormal: true },
                )
            }
            // Zeros of fresh scratch that met no float on their way.
            Traced::Integer { .. } if dtype.is_float() => (Value::Float(0.0), Tolerance::Exact),
            Traced::Integer { bits, .. } => {
                (Value::Integer(wrap(dtype, i128::from(bits))), Tolerance::Exact)
            }
        }
    }
}

impl antiphon_plan::interpret::Value for Traced {
    fn zero() -> Self {
        // Of no type yet: combining with a float makes it one.
        Traced::Integer { bits: 0, dtype: None }
    }

    fn combine(&self, other: &Self, reduce: ReduceOp) -> Self {
        match (*self, *other) {
            (Traced::Float { .. }, Traced::Integer { .. }) => {
                let zero = Traced::Float { value: 0.0, magnitude: 0.0, roundings: 0 };
                self.combine(&zero, reduce)
            }
            (Traced::Integer { .. }, Traced::Float { .. }) => {
                let zero = Traced::Float { value: 0.0, magnitude: 0.0, roundings: 0 };
                zero.combine(other, reduce)
            }
            (
                Traced::Float { value: a, magnitude: m, roundings: j },
                Traced::Float { value: b, magnitude: n, roundings: k },
            ) => {
                let roundings = j.saturating_add(k).saturating_add(1);
                match reduce {
                    ReduceOp::Sum | ReduceOp::Avg => {
                        Traced::Float { value: a + b, magnitude: m + n, roundings }
                    }
                    ReduceOp::Prod => Traced::Float { value: a * b, magnitude: m * n, roundings },
                    // Nothing is rounded, but either operand may have been.
                    ReduceOp::Min => {
                        Traced::Float { value: a.min(b), magnitude: m.max(n), roundings: j.max(k) }
                    }
                    ReduceOp::Max => {
                        Traced::Float { value: a.max(b), magnitude: m.max(n), roundings: j.max(k) }
                    }
                }
            }
            (Traced::Integer { bits: a, dtype }, Traced::Integer { bits: b, dtype: other }) => {
                let dtype = dtype.or(other);
                let value = |bits| dtype.map_or(i128::from(bits), |d| wrap(d, i128::from(bits)));
                let (a, b) = (value(a), value(b));
                let result = match reduce {
                    ReduceOp::Sum | ReduceOp::Avg => a.wrapping_add(b),
                    ReduceOp::Prod => a.wrapping_mul(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                };
                Traced::Integer { bits: result as u64, dtype }
            }
        }
    }
}

/// A call to interpret.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The inputs of all ranks.
    pub inputs: &'a Inputs,
    /// Which launch's inputs.
    pub launch: u64,
    /// Bytes of each rank's input.
    pub input_bytes: u64,
    /// Bytes of each rank's output.
    pub output_bytes: u64,
    /// Whether input and output are one buffer.
    pub in_place: bool,
    /// What every byte of an output of its own holds before.
    pub poison: u8,
    /// The reduction to use instead of the plan's.
    pub op: Option<ReduceOp>,
    /// The blocks of each rank, in plans with runtime sizes; they say how large buffers are. Else none.
    pub counts: &'a [Counts<'a>],
}

/// What one rank's buffers should hold after a launch.
#[derive(Clone, Debug)]
pub struct Interpretation {
    rank: u32,
    dtype: DataType,
    memory: Memory<Traced>,
    /// The same, with other turns of the ranks.
    others: [Memory<Traced>; 2],
}

/// Bytes that interpreting a call needs for each byte of the ranks' buffers, scratch included if it is no larger
/// than they are.
pub const fn bytes_per_byte(dtype: DataType) -> u64 {
    (5 * size_of::<Traced>() / dtype.size()) as u64
}

impl Interpretation {
    /// Interprets one launch of the whole plan on fresh state, and keeps the buffers of `rank`.
    ///
    /// # Errors
    /// In words: the plan cannot be lowered for these sizes, deadlocks, or has no such rank.
    pub fn new(plan: &Plan, call: &Call<'_>, rank: u32) -> Result<Self, String> {
        let dtype = call.inputs.dtype;
        let layout = match call.op {
            None => Layout::new(plan),
            Some(op) => Layout::new(&with_reduction(plan, op)),
        };
        let layout = layout.map_err(|error| error.to_string())?;
        let size = dtype.size() as u64;
        let sizes = CallSizes {
            input: call.input_bytes,
            output: call.output_bytes,
            element: size,
            strict: false,
        };
        let poison = Traced::new(dtype, u64::from_le_bytes([call.poison; 8]));
        let end = |blocks: &[Extent]| blocks.iter().filter_map(Extent::end).max().unwrap_or(0);
        let memories = (0..call.inputs.ranks).map(|rank| {
            let stream = call.inputs.stream(rank, call.launch);
            let (inputs, outputs) = match call.counts.get(rank as usize) {
                Some(counts) => (end(counts.send), end(counts.receive)),
                None => (call.input_bytes / size, call.output_bytes / size),
            };
            let input: Vec<_> =
                (0..inputs).map(|element| Traced::new(dtype, stream.bits(element))).collect();
            let outputs = outputs as usize;
            if call.in_place {
                let inputs = input.len();
                Memory::in_place(input, 0..inputs, 0..outputs).ok_or_else(|| {
                    "cannot interpret in place: the output is larger than the input".to_owned()
                })
            } else {
                Ok(Memory::separate(input, vec![poison; outputs]))
            }
        });
        let memories = memories.collect::<Result<Vec<_>, String>>()?;
        if rank as usize >= memories.len() {
            return Err(format!("cannot interpret rank {rank}: the plan has {}", memories.len()));
        }
        let after = |turns| {
            let mut memories = memories.clone();
            let mut interpreter = Interpreter::new(&layout).with_turns(turns);
            let outcome = match call.counts {
                [] => interpreter.launch(sizes, &mut memories),
                counts => interpreter.launch_blocks(counts, &mut memories),
            };
            outcome
                .map_err(|error| format!("cannot interpret the plan for comparison: {error}"))?;
            Ok::<_, String>(memories.swap_remove(rank as usize))
        };
        let others = [after(Turns::FirstFirst)?, after(Turns::LastFirst)?];
        Ok(Interpretation { rank, dtype, memory: after(Turns::Alternate)?, others })
    }

    /// Compares a piece of the rank's output, which starts at element `first`.
    pub fn check_output(&self, first: u64, found: &[u8]) -> Verdict {
        self.check(Memory::output, first, found)
    }

    /// Compares a piece of the rank's input, which plans may write to.
    pub fn check_input(&self, first: u64, found: &[u8]) -> Verdict {
        let mut verdict = self.check(Memory::input, first, found);
        if let Some(first) = &mut verdict.first {
            first.buffer = "input";
        }
        verdict
    }

    /// Compares a piece with what it should be; elements for which the ranks' turns matter are left to chance.
    fn check(
        &self,
        side: impl Fn(&Memory<Traced>) -> &[Traced],
        first: u64,
        found: &[u8],
    ) -> Verdict {
        let mut verdict = Verdict::default();
        let expected = side(&self.memory).iter().enumerate().skip(first as usize);
        let others = self.others.each_ref().map(side);
        let found = found.chunks_exact(self.dtype.size());
        for ((element, expected), found) in expected.zip(found) {
            let (value, tolerance) = expected.expected(self.dtype);
            if !others.iter().all(|other| expected.close(&other[element], self.dtype)) {
                verdict.chance += 1;
                continue;
            }
            let bits = load(self.dtype, found);
            verdict.element(self.dtype, (self.rank, element as u64), value, tolerance, bits);
        }
        verdict
    }
}

/// The plan with every reduction replaced.
fn with_reduction(plan: &Plan, op: ReduceOp) -> Plan {
    let mut plan = plan.clone();
    for block in plan.gpus.iter_mut().flat_map(|gpu| &mut gpu.threadblocks) {
        for outer in &mut block.ops {
            outer.reduce_op = Some(op).filter(|_| outer.kind != OpKind::Pipeline);
            for inner in outer.pipeline.iter_mut().flat_map(|pipeline| &mut pipeline.ops) {
                inner.reduce_op = Some(op);
            }
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_plan::algorithms::{Algorithm, Shape};

    const SIZE: u64 = 4096;

    fn interpretation(
        algorithm: Algorithm,
        inputs: &Inputs,
        op: Option<ReduceOp>,
    ) -> Interpretation {
        let plan = algorithm.plan(Shape::new(inputs.ranks as usize)).unwrap();
        let call = Call {
            inputs,
            launch: 3,
            input_bytes: SIZE,
            output_bytes: SIZE,
            in_place: false,
            poison: 0x5a,
            op,
            counts: &[],
        };
        Interpretation::new(&plan, &call, 1).unwrap()
    }

    /// Two references that share nothing but the inputs agree.
    #[test]
    fn an_interpreted_allreduce_is_the_allreduce() {
        for dtype in DataType::ALL {
            for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max] {
                let inputs = Inputs { seed: 5, ranks: 4, dtype, op: Some(op) };
                let interpreted = interpretation(Algorithm::AllReduceZeroCopy, &inputs, Some(op));
                let elements = SIZE / dtype.size() as u64;
                let problem = super::super::Problem::new(
                    &antiphon_plan::model::Collective::AllReduce,
                    &inputs,
                    3,
                    elements,
                )
                .unwrap();
                for (element, traced) in (0..elements).zip(interpreted.memory.output()) {
                    let (value, tolerance) = traced.expected(dtype);
                    let (reference, _) = problem.expected(1, element);
                    match (value, reference) {
                        (Value::Float(a), Value::Float(b)) => {
                            assert!(
                                (a - b).abs() <= 1e-14 * b.abs().max(1.0),
                                "{dtype} {op}: {a} {b}"
                            )
                        }
                        _ => assert_eq!(value, reference, "{dtype} {op}"),
                    }
                    let exact = !dtype.is_float() || matches!(op, ReduceOp::Min | ReduceOp::Max);
                    assert_eq!(tolerance == Tolerance::Exact, exact, "{dtype} {op}");
                }
            }
        }
    }

    #[test]
    fn what_a_plan_moves_is_exact_and_what_it_leaves_alone_stays() {
        let inputs = Inputs { seed: 5, ranks: 3, dtype: DataType::Bf16, op: None };
        let interpreted = interpretation(Algorithm::SendRecvZeroCopy, &inputs, None);
        let mut from_previous = vec![0; SIZE as usize];
        inputs.stream(0, 3).fill(DataType::Bf16, 0, &mut from_previous);
        assert_eq!(interpreted.check_output(0, &from_previous), Verdict::default());
        let mut own = vec![0; SIZE as usize];
        inputs.stream(1, 3).fill(DataType::Bf16, 0, &mut own);
        assert_eq!(interpreted.check_input(0, &own), Verdict::default());
        assert_eq!(interpreted.check_input(512, &own[1024..]), Verdict::default());
        assert!(interpreted.check_output(0, &own).wrong > 1000);
        let first = interpreted.check_input(0, &from_previous).first.unwrap().to_string();
        assert!(first.starts_with("rank 1, input element "), "{first}");
    }

    #[test]
    fn fresh_scratch_is_zeros_of_every_type() {
        for dtype in DataType::ALL {
            let (value, tolerance) =
                <Traced as antiphon_plan::interpret::Value>::zero().expected(dtype);
            let zero = decode(dtype, 0);
            assert_eq!((value, tolerance), (zero, Tolerance::Exact), "{dtype}");
        }
    }

    #[test]
    fn a_traced_value_is_two_words() {
        assert_eq!(size_of::<Traced>(), 16);
        assert_eq!(bytes_per_byte(DataType::F32), 20);
    }

    #[test]
    fn what_depends_on_the_order_of_ranks_is_left_to_chance() {
        use antiphon_plan::builder::ProgramBuilder;
        use antiphon_plan::model::Collective;
        // Each rank puts the first half of its input into the other's, with nothing between.
        let program = ProgramBuilder::new("swap", Collective::Test, 2).chunk_counts(2, 0);
        for rank in 0..2 {
            let (own, far) = (program.input(rank).chunk(0), program.input(1 - rank).chunk(0));
            program.block(rank).put(own, far);
        }
        let plan = program.build().unwrap();
        let inputs = Inputs { seed: 1, ranks: 2, dtype: DataType::F32, op: None };
        let call = Call {
            inputs: &inputs,
            launch: 1,
            input_bytes: 64,
            output_bytes: 0,
            in_place: false,
            poison: 0,
            op: None,
            counts: &[],
        };
        let interpretation = Interpretation::new(&plan, &call, 0).unwrap();
        let mut own = vec![0; 64];
        inputs.stream(0, 1).fill(DataType::F32, 0, &mut own);
        let verdict = interpretation.check_input(0, &own);
        assert_eq!(verdict, Verdict { wrong: 0, first: None, chance: 8 });
        own[63] ^= 0x40;
        assert_eq!(interpretation.check_input(0, &own).wrong, 1, "nobody writes the second half");
    }
}
