//! Which reference a rank's output is held against, and the comparison.

use super::CliError;
use super::job::{Item, Job};
use super::ranks::{Buffers, Rank};
use antiphon::executor::Counts;
use antiphon::oracle::interpreted::{Call, bytes_per_byte};
use antiphon::oracle::{Inputs, Interpretation, Problem, Verdict};

/// Bytes of all ranks' interpretations above which they take turns, so that they do not need them all at once.
const TOGETHER: u64 = 1 << 30;

/// What receive buffers hold before a checked launch: beyond the range of the inputs in every float type, and
/// finite.
pub const POISON: u8 = 0x5a;

/// The inputs of a job.
pub fn inputs(job: &Job) -> Inputs {
    let settings = &job.settings;
    Inputs {
        seed: settings.seed,
        ranks: settings.world,
        dtype: settings.dtype,
        op: settings.reduces,
    }
}

/// Compares what one launch left in this rank's buffers with what it should have.
///
/// Collectives with a post-condition are held against it as soon as this rank is through; other plans, and those
/// that mix reductions, against a sequential interpretation of the plan once all ranks are.
pub fn check(
    rank: &Rank,
    job: &Job,
    item: &Item,
    launch: u64,
    buffers: &Buffers,
) -> Result<Verdict, CliError> {
    let plan = &job.plans[item.plan];
    let settings = &job.settings;
    let (inputs, element) = (inputs(job), settings.dtype.size() as u64);
    let mixed = settings.reduces.is_none() && plan.reduces();
    let problem = match &item.blocks {
        Some(blocks) => Problem::packed(&plan.collective, &inputs, launch, &blocks.send),
        None => Problem::new(&plan.collective, &inputs, launch, item.shape.output / element),
    };
    if let Some(problem) = problem.filter(|_| !mixed) {
        let mut verdict = Verdict::default();
        buffers.read_output(|offset, piece| {
            verdict.merge(problem.check(rank.number(), offset / element, piece));
        })?;
        return Ok(verdict);
    }
    // Such plans may end on one rank while others still write to its buffers.
    rank.barrier()?;
    let extents: Vec<_> = match &item.blocks {
        Some(blocks) => (0..settings.world).map(|rank| blocks.extents(rank)).collect(),
        None => Vec::new(),
    };
    let counts: Vec<_> = extents.iter().map(|[send, receive]| Counts { send, receive }).collect();
    let interpret = || {
        let call = Call {
            inputs: &inputs,
            launch,
            input_bytes: item.shape.input,
            output_bytes: item.shape.output,
            in_place: settings.in_place,
            poison: POISON,
            op: settings.op,
            counts: &counts,
        };
        let expected =
            Interpretation::new(plan, &call, rank.number()).map_err(CliError::Executor)?;
        let mut verdict = Verdict::default();
        buffers.read_output(|offset, piece| {
            verdict.merge(expected.check_output(offset / element, piece));
        })?;
        buffers.read_input(|offset, piece| {
            verdict.merge(expected.check_input(offset / element, piece));
        })?;
        Ok(verdict)
    };
    let buffer_bytes = item.shape.input.saturating_add(item.shape.output);
    let ranks = u64::from(settings.world);
    let needed = buffer_bytes.saturating_mul(bytes_per_byte(settings.dtype) * ranks * ranks);
    if needed <= TOGETHER {
        return interpret();
    }
    let mut verdict = Verdict::default();
    for turn in 0..settings.world {
        if turn == rank.number() {
            verdict = interpret()?;
        }
        rank.barrier()?;
    }
    Ok(verdict)
}
