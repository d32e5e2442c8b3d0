//! Which reference a rank's output is held against, and the comparison.

use super::CliError;
use super::job::{Item, Job};
use super::plans;
use super::ranks::{Buffers, Rank};
use antiphon::oracle::compare::compare_outputs;
use antiphon::oracle::{Inputs, Problem, Verdict};
use antiphon::{DataType, ReduceOp};

/// Bytes of interpretation above which ranks take turns, so that they do not all need the memory at once.
const SHARED_INTERPRETATION: u64 = 256 << 20;

/// What receive buffers hold before a checked launch: NaN in every float type, -1 in signed integers.
pub const POISON: u8 = 0xff;

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

/// Compares this rank's output of one launch with what it should be.
///
/// Collectives with a post-condition are held against it; other plans, and those that mix reductions, against a
/// sequential interpretation of the plan.
pub fn check(
    rank: &Rank,
    job: &Job,
    item: &Item,
    launch: u64,
    buffers: &Buffers,
) -> Result<Verdict, CliError> {
    let plan = &job.plans[item.plan];
    let dtype = job.settings.dtype;
    let element = dtype.size() as u64;
    let mixed = job.settings.reduces.is_none() && plans::reduces(plan);
    let problem = Problem::new(&plan.collective, &inputs(job), launch, item.shape.output / element);
    if let Some(problem) = problem.filter(|_| !mixed) {
        let mut verdict = Verdict::default();
        buffers.read_output(|offset, piece| {
            verdict.merge(problem.check(rank.number(), offset / element, piece));
        });
        return Ok(verdict);
    }
    let world = job.settings.world;
    let needed = u64::from(world) * (item.shape.input + item.shape.output);
    if needed <= SHARED_INTERPRETATION {
        return interpreted(rank.number(), job, item, launch, buffers);
    }
    let mut verdict = Verdict::default();
    for turn in 0..world {
        if turn == rank.number() {
            verdict = interpreted(turn, job, item, launch, buffers)?;
        }
        rank.barrier()?;
    }
    Ok(verdict)
}

/// Compares with a sequential interpretation of the whole plan.
///
/// Where the plan reduces, a second interpretation over the inputs' magnitudes gives what the roundings are
/// relative to; their number is that of the operands all reductions of the plan have, at most four for each rank.
fn interpreted(
    rank: u32,
    job: &Job,
    item: &Item,
    launch: u64,
    buffers: &Buffers,
) -> Result<Verdict, CliError> {
    let plan = &job.plans[item.plan];
    let settings = &job.settings;
    let make = |magnitudes: bool| -> Vec<Vec<u8>> {
        let inputs = inputs(job);
        (0..settings.world)
            .map(|rank| {
                let mut bytes = vec![0; item.shape.input as usize];
                inputs.stream(rank, launch).fill(settings.dtype, 0, &mut bytes);
                if magnitudes {
                    clear_signs(settings.dtype, &mut bytes);
                }
                bytes
            })
            .collect()
    };
    let interpret = |inputs| {
        plans::interpret(plan, rank, inputs, item.shape.output, settings.dtype, settings.op, POISON)
    };
    let expected = interpret(make(false))?;
    let exact = matches!(settings.reduces, Some(ReduceOp::Min | ReduceOp::Max));
    let magnitudes = if settings.dtype.is_float() && plans::reduces(plan) && !exact {
        Some(interpret(make(true))?)
    } else {
        None
    };
    let roundings = plans::reduced_operands(plan).min(4 * settings.world);
    let mut found = Vec::with_capacity(item.shape.output as usize);
    buffers.read_output(|_, piece| found.extend_from_slice(piece));
    let relative = magnitudes.as_deref().map(|magnitudes| (magnitudes, roundings));
    Ok(compare_outputs(settings.dtype, rank, &found, &expected, relative))
}

/// Clears the sign bit, which is the top one in every float type, of every element.
fn clear_signs(dtype: DataType, bytes: &mut [u8]) {
    for element in bytes.chunks_exact_mut(dtype.size()) {
        if let Some(top) = element.last_mut() {
            *top &= 0x7f;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magnitudes_have_no_sign() {
        let mut bytes: Vec<u8> =
            [-1.5f32, 2.0, -0.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        clear_signs(DataType::F32, &mut bytes);
        let expected: Vec<u8> =
            [1.5f32, 2.0, 0.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(bytes, expected);
    }
}
