//! One plan, run a number of times as one rank, and every launch compared with the oracle.

use super::buffers::{Area, Source};
use super::plans::Buffers;
use super::random::{Random, seed};
use antiphon::executor::{Call, Communicator, Executor, ExecutorError};
use antiphon::oracle::interpreted::{self, Interpretation};
use antiphon::oracle::{Inputs, Problem, Verdict};
use antiphon::plan::model::{Collective, Plan};
use antiphon::{DataType, ReduceOp};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What to run and how.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// What to call the plan in failures.
    pub name: &'a str,
    /// The plan.
    pub plan: &'a Plan,
    /// Bytes of the buffers.
    pub buffers: Buffers,
    /// Type of the elements.
    pub dtype: DataType,
    /// The caller's reduction.
    pub op: Option<ReduceOp>,
    /// The root, of collectives that have one.
    pub root: u32,
    /// Whether one buffer serves as both, where the collective has a rule for it.
    pub in_place: bool,
    /// Launches, back to back.
    pub launches: u32,
    /// The rank that passes new memory at a random element in every launch.
    pub mover: Option<u32>,
    /// Memory of the other ranks, and of the mover's every other launch.
    pub source: Source,
    /// Whether the mover's other launches have memory of the other kind.
    pub mixed: bool,
    /// Whether the others pass the same pointers in all launches, and every result is checked before the next
    /// launch. Otherwise every launch has buffers of its own, and all results are checked at the end.
    pub reuse: bool,
    /// Of the random choices.
    pub seed: u64,
}

/// What a rank found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The first wrong result, in words.
    pub wrong: Option<String>,
    /// A hash of each launch's output.
    pub digests: Vec<u64>,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Buffers { input, output } = self.buffers;
        let op = self.op.map_or("plan's op", ReduceOp::name);
        let place = if self.in_place { "in place" } else { "out of place" };
        let reuse = if self.reuse { "same buffers" } else { "buffers of its own per launch" };
        write!(
            f,
            "{} on {} ranks, {input} bytes in, {output} out, {} {op}, {place}, {} launches, {reuse}, {:?} memory{}, mover {:?}, seed {}",
            self.name,
            self.plan.gpus.len(),
            self.dtype,
            self.launches,
            self.source,
            if self.mixed { " and the other kind" } else { "" },
            self.mover,
            self.seed
        )
    }
}

/// Where the buffers of a call in place lie in one allocation: its bytes, and the offsets of input and output.
pub fn in_place(collective: &Collective, buffers: Buffers, rank: u32) -> Option<(u64, u64, u64)> {
    let Buffers { input, output } = buffers;
    let own = u64::from(rank) * input.min(output);
    match collective {
        Collective::AllGather => Some((output, own, 0)),
        Collective::ReduceScatter => Some((input, 0, own)),
        Collective::AllReduce
        | Collective::AllToAll
        | Collective::Broadcast
        | Collective::Reduce => Some((input.max(output), 0, 0)),
        Collective::SendRecv if input == output => Some((input, 0, 0)),
        _ => None,
    }
}

/// Bytes of the receive buffer before a launch: a finite value in every type, that no right result has everywhere.
const POISON: u8 = 0x5A;

/// The buffers of one launch.
struct Slot {
    area: Vec<Area>,
    input: usize,
    output: usize,
}

/// Runs a case as one rank of `communicator`.
///
/// # Errors
/// The first error of loading or of a launch.
pub fn run_case(communicator: &Communicator, case: &Case<'_>) -> Result<Outcome, ExecutorError> {
    // SAFETY: the buffers of calls have the calls' lengths and live until they are complete.
    run_case_by(communicator, case, &|executor, call| unsafe { executor.run(call) })
}

/// As [`run_case`], with `run` making each call, and returning when it is complete.
///
/// # Errors
/// As [`run_case`].
pub fn run_case_by(
    communicator: &Communicator,
    case: &Case<'_>,
    run: &dyn Fn(&Executor, &Call<'_>) -> Result<(), ExecutorError>,
) -> Result<Outcome, ExecutorError> {
    let rank = communicator.rank();
    let executor = Executor::new(communicator);
    let loaded = executor.load(case.plan)?;
    let moves = case.mover == Some(rank);
    let mut random = Random::new(case.seed, u64::from(rank) << 32 | case.buffers.output);
    let mut outcome = Outcome::default();
    let mut slots: Vec<Slot> = Vec::new();
    let call = |slot: &Slot| Call {
        plan: &loaded,
        input: slot.area[0].address().wrapping_add(slot.input),
        output: slot.area[slot.area.len() - 1].address().wrapping_add(slot.output),
        input_bytes: case.buffers.input,
        output_bytes: case.buffers.output,
        dtype: case.dtype,
        op: case.op,
        counts: None,
    };
    if !case.reuse {
        for launch in 0..case.launches {
            let mut slot = case.slot(communicator, moves, launch, &mut random)?;
            case.fill(&mut slot, rank, launch);
            slots.push(slot);
        }
        communicator.barrier()?;
        for slot in &slots {
            run(&executor, &call(slot))?;
        }
        // Plans without a post-condition may end on one rank while others still write to its buffers.
        communicator.barrier()?;
        for (launch, slot) in (0..).zip(&slots) {
            case.check(slot, rank, launch, &mut outcome);
        }
        communicator.barrier()?;
        return Ok(outcome);
    }
    communicator.barrier()?;
    for launch in 0..case.launches {
        if moves || slots.is_empty() {
            slots.push(case.slot(communicator, moves, launch, &mut random)?);
        }
        let last = slots.len() - 1;
        case.fill(&mut slots[last], rank, launch);
        run(&executor, &call(&slots[last]))?;
        case.check(&slots[last], rank, launch, &mut outcome);
    }
    communicator.barrier()?;
    Ok(outcome)
}

impl<'a> Case<'a> {
    /// Three launches of float32 by the plan's own reduction, in place if the plan is, in memory of Antiphon, with buffers of
    /// its own for each launch; rank 0 is the root, and no rank moves. The seed is the run's.
    pub fn new(name: &'a str, plan: &'a Plan, buffers: Buffers) -> Self {
        Case {
            name,
            plan,
            buffers,
            dtype: DataType::F32,
            op: None,
            root: 0,
            in_place: plan.in_place,
            launches: 3,
            mover: None,
            source: Source::Own,
            mixed: false,
            reuse: false,
            seed: seed(),
        }
    }
}

impl Case<'_> {
    fn inputs(&self) -> Inputs {
        let op = self.plan.reduces().then(|| self.op.unwrap_or(ReduceOp::Sum));
        Inputs { seed: self.seed, ranks: self.plan.gpus.len() as u32, dtype: self.dtype, op }
    }

    fn slot(
        &self,
        communicator: &Communicator,
        moves: bool,
        launch: u32,
        random: &mut Random,
    ) -> Result<Slot, ExecutorError> {
        let other = match self.source {
            Source::Own => Source::Plain,
            Source::Plain => Source::Own,
        };
        let source = if moves && self.mixed && launch % 2 == 1 { other } else { self.source };
        let element = self.dtype.size() as u64;
        let mut area = |bytes| match moves {
            true => Area::anywhere(communicator, source, bytes, element, random),
            false => Area::new(communicator, source, bytes),
        };
        let placed = in_place(&self.plan.collective, self.buffers, communicator.rank());
        Ok(match placed.filter(|_| self.in_place) {
            Some((bytes, input, output)) => {
                Slot { area: vec![area(bytes)?], input: input as usize, output: output as usize }
            }
            None => {
                let area = vec![area(self.buffers.input)?, area(self.buffers.output)?];
                Slot { area, input: 0, output: 0 }
            }
        })
    }

    /// Writes a launch's input, and poison around it and into the output.
    fn fill(&self, slot: &mut Slot, rank: u32, launch: u32) {
        let (from, bytes) = (slot.input, self.buffers.input as usize);
        for (number, area) in slot.area.iter_mut().enumerate() {
            area.edit(|all| {
                all.fill(POISON);
                if number == 0 {
                    let input = &mut all[from..from + bytes];
                    self.inputs().stream(rank, launch.into()).fill(self.dtype, 0, input);
                }
            });
        }
    }

    fn check(&self, slot: &Slot, rank: u32, launch: u32, outcome: &mut Outcome) {
        let last = slot.area.len() - 1;
        let (from, bytes) = (slot.output, self.buffers.output as usize);
        let all = slot.area[last].bytes();
        let output = &all[from..from + bytes];
        let mut hasher = DefaultHasher::new();
        output.hash(&mut hasher);
        outcome.digests.push(hasher.finish());
        if outcome.wrong.is_some() {
            return;
        }
        let wrong = match self.verdict(slot, output, rank, launch) {
            Err(why) => Some(why),
            Ok(Verdict { wrong: 0, .. }) => None,
            Ok(Verdict { wrong, first, .. }) => {
                let first = first.map_or_else(String::new, |first| first.to_string());
                Some(format!("{wrong} wrong elements, the first: {first}"))
            }
        };
        outcome.wrong = wrong.map(|what| format!("rank {rank} launch {launch}: {what}; {self}"));
    }

    fn verdict(
        &self,
        slot: &Slot,
        output: &[u8],
        rank: u32,
        launch: u32,
    ) -> Result<Verdict, String> {
        let inputs = self.inputs();
        let elements = self.buffers.output / self.dtype.size() as u64;
        let problem = Problem::new(&self.plan.collective, &inputs, launch.into(), elements);
        if let Some(problem) = problem {
            return Ok(problem.with_root(self.root).check(rank, 0, output));
        }
        let shared = slot.area.len() == 1;
        let call = interpreted::Call {
            counts: &[],
            inputs: &inputs,
            launch: launch.into(),
            input_bytes: self.buffers.input,
            output_bytes: self.buffers.output,
            in_place: shared,
            poison: POISON,
            op: self.op,
        };
        let expected = Interpretation::new(self.plan, &call, rank)?;
        let mut verdict = expected.check_output(0, output);
        verdict.merge(expected.check_input(0, &slot.area[0].bytes()));
        Ok(verdict)
    }
}
