//! The calls that mutants are run with: a few sizes of each kind that chunk arithmetic tells apart.
//!
//! They come from the plan that is changed, not from the verifier: what the verifier overlooks, the judge must not.

use super::edit::operations;
use antiphon::plan::model::{Collective, Gpu, Plan};
use antiphon::plan::program::{CallSizes, Layout};
use antiphon::plan::schedule::Case;

/// Bytes of an element in all calls.
pub const ELEMENT: u64 = 4;

/// One call of a plan, made several times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call(pub Case);

impl Call {
    /// Whether every rank can make the call.
    pub fn fits(&self, layout: &Layout) -> bool {
        (0u32..).zip(&layout.ranks).all(|(rank, _)| layout.program(rank, self.0.sizes).is_ok())
    }
}

/// The calls of a plan: chunks of one unit; of several, so that slices and windows are uneven; chunks that do not end on
/// a unit. Every second has a launch more, so that both halves of scratch are used again.
pub fn calls(plan: &Plan) -> Vec<Call> {
    let unit = plan.buffer_alignment.max(1);
    let window = operations(plan).into_iter().filter_map(|(_, op)| op.pipeline.as_ref());
    let window = window.map(|pipeline| pipeline.unit_size).max();
    let least = least(plan, unit);
    let mut sizes = vec![(least, 0), (least + 4 * unit, 0), (least + 2 * unit, ELEMENT)];
    if let Some(window) = window {
        // Three iterations, the last of which is short; and exactly two.
        sizes.push((2 * window + unit, 0));
        sizes.push((2 * window, 0));
    }
    let mut calls = Vec::new();
    for (chunk, short) in sizes {
        let Some(sizes) = call_sizes(plan, chunk, short) else { continue };
        let launches = 3 + calls.len() as u32 % 2;
        let call = Call(Case { sizes, in_place: plan.in_place, launches });
        let fits = Layout::new(plan).is_ok_and(|layout| call.fits(&layout));
        if fits && calls.iter().all(|known: &Call| known.0.sizes != sizes) {
            calls.push(call);
        }
    }
    calls
}

/// Bytes of the shortest chunk, in whole units, that makes a message the plan accepts.
fn least(plan: &Plan, unit: u64) -> u64 {
    let gathers = matches!(plan.collective, Collective::AllGather | Collective::Gather);
    let of = |gpu: &Gpu| if gathers { gpu.output_chunks } else { gpu.input_chunks };
    let chunks = plan.gpus.iter().map(of).max().unwrap_or(0).max(1);
    plan.min_message_size.div_ceil(chunks).next_multiple_of(unit).max(unit)
}

/// Buffers of chunks of this many bytes, of which the last of every block is `short` bytes shorter.
fn call_sizes(plan: &Plan, chunk: u64, short: u64) -> Option<CallSizes> {
    let ranks = plan.gpus.len() as u64;
    let counts = |of: fn(&Gpu) -> u64| plan.gpus.iter().map(of).max();
    let (input, output) = (counts(|gpu| gpu.input_chunks)?, counts(|gpu| gpu.output_chunks)?);
    // Without a constraint, as long as the other.
    let (input, output) =
        (if input > 0 { input } else { output }, if output > 0 { output } else { input });
    let (input_blocks, output_blocks) = match plan.collective {
        Collective::AllGather | Collective::Gather => (1, ranks),
        Collective::ReduceScatter | Collective::Scatter => (ranks, 1),
        Collective::AllToAll => (ranks, ranks),
        _ => (1, 1),
    };
    let bytes = |chunks: u64, blocks: u64| chunks.checked_mul(chunk)?.checked_sub(blocks * short);
    Some(CallSizes {
        input: bytes(input, input_blocks)?,
        output: bytes(output, output_blocks)?,
        element: ELEMENT,
        strict: false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::plans;
    use super::*;

    #[test]
    fn every_plan_has_calls_of_several_sizes() {
        for base in plans::all(&[], &mut |_| {}).unwrap() {
            let calls = calls(&base.plan);
            let chunks = |gpu: &Gpu| gpu.input_chunks.max(gpu.output_chunks);
            let least = match base.plan.collective {
                // Blocks that only wait for each other do so in the same way at every size.
                Collective::Test if base.plan.gpus.iter().all(|gpu| chunks(gpu) == 0) => 1,
                // Chunks that are combined with each other must be equally long.
                Collective::Test => 2,
                _ => 3,
            };
            assert!(calls.len() >= least, "{}: {calls:?}", base.name);
            assert!(least == 1 || calls.iter().any(|call| call.0.launches > 3), "{}", base.name);
        }
    }
}
