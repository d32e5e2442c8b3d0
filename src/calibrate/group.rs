//! Ranks as threads of this process that run a plan again and again, on the clock.

use super::CalibrateError;
use crate::DataType;
use crate::executor::{Call, Communicator, Executor, ExecutorError, Options};
use crate::plan::model::Plan;
use crate::plan::program::CallSizes;
use std::thread;
use std::time::Instant;

/// Times of launches in seconds, ascending; of each launch that of its slowest rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Times(Vec<f64>);

impl Times {
    /// Half of the launches were at least as fast.
    pub fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or(0.0)
    }

    /// A twentieth of the launches were at least as fast: nobody disturbed them, and luck alone did not make them so.
    pub fn twentieth(&self) -> f64 {
        self.0.get(self.0.len() / 20).copied().unwrap_or(0.0)
    }

    /// The fastest launch: what it takes when nobody disturbs.
    pub fn least(&self) -> f64 {
        self.0.first().copied().unwrap_or(0.0)
    }
}

/// Runs a plan over ranks that are threads of this process: a fifth of `launches` to warm up, then that many on the
/// clock. Elements are of type f32. Before each launch every rank writes its input and its output, as a program would that has
/// just computed the one and used the other, and then meets the others at a barrier.
///
/// # Errors
/// The plan is refused, a launch fails, or there are no threads.
pub fn time(plan: &Plan, sizes: CallSizes, launches: usize) -> Result<Times, CalibrateError> {
    let failed = |error: ExecutorError| CalibrateError::Run {
        plan: plan.name.clone(),
        source: Box::new(error),
    };
    let ranks =
        Communicator::in_process(plan.gpus.len() as u32, &Options::default()).map_err(failed)?;
    let of_ranks = thread::scope(|scope| {
        let mut threads = Vec::with_capacity(ranks.len());
        for rank in &ranks {
            let body = move || {
                let times = time_rank(rank, plan, sizes, launches);
                if let Err(error) = &times {
                    rank.abort(&error.to_string());
                }
                times
            };
            match thread::Builder::new().spawn_scoped(scope, body) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    // Those that run already would wait for the others.
                    rank.abort("no thread for every rank");
                    return Err(CalibrateError::Threads(error));
                }
            }
        }
        let mut of_ranks = Vec::with_capacity(threads.len());
        for (rank, thread) in threads.into_iter().enumerate() {
            let panicked = |_| CalibrateError::Panicked { plan: plan.name.clone(), rank };
            of_ranks.push(thread.join().map_err(panicked)?.map_err(failed)?);
        }
        Ok(of_ranks)
    })?;
    let slowest = |launch: usize| of_ranks.iter().map(|times| times[launch]).fold(0.0, f64::max);
    let mut times: Vec<f64> = (0..launches).map(slowest).collect();
    times.sort_by(f64::total_cmp);
    Ok(Times(times))
}

fn time_rank(
    rank: &Communicator,
    plan: &Plan,
    sizes: CallSizes,
    launches: usize,
) -> Result<Vec<f64>, ExecutorError> {
    let executor = Executor::new(rank);
    let plan = executor.load(plan)?;
    let input = rank.allocate(sizes.input.max(1))?;
    let output = rank.allocate(sizes.output.max(1))?;
    let call = Call {
        plan: &plan,
        input: input.address(),
        output: output.address(),
        input_bytes: sizes.input,
        output_bytes: sizes.output,
        dtype: DataType::F32,
        op: None,
        counts: None,
    };
    let mut times = Vec::with_capacity(launches);
    for launch in 0..launches + launches / 5 + 1 {
        for (memory, bytes) in [(&input, sizes.input), (&output, sizes.output)] {
            // SAFETY: the allocation is at least this long; no launch is under way that could touch it, since the
            // launch before ended on all ranks before any could pass the barrier behind it.
            unsafe { memory.address().write_bytes(0, bytes as usize) };
        }
        rank.barrier()?;
        let start = Instant::now();
        // SAFETY: both pointers lie in allocations of these lengths, which outlive this blocking call; this thread made
        // them and hands them to nobody else.
        unsafe { executor.run(&call) }?;
        if launch > launches / 5 {
            times.push(start.elapsed().as_secs_f64());
        }
        // Nobody may still be reading the buffers when they are written again, or go with this function.
        rank.barrier()?;
    }
    Ok(times)
}
