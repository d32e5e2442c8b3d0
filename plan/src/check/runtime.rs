//! Rules for plans with runtime sizes: nothing in them may rely on chunks of equal size.

use super::operation::At;
use super::report::{Report, count};
use crate::model::{Collective, Op, Plan};
use crate::place::Place;

/// Most runtime blocks of a buffer.
const MOST_BLOCKS: u64 = u32::MAX as u64;

/// Checks what a plan says of itself and of its ranks' buffers.
pub(super) fn check(plan: &Plan, report: &mut Report) {
    if !plan.runtime_sizes {
        return;
    }
    let top = |key| move || Place::top().key(key);
    if matches!(
        plan.collective,
        Collective::AllReduce
            | Collective::AllGather
            | Collective::ReduceScatter
            | Collective::AllToAll
            | Collective::Broadcast
            | Collective::Reduce
    ) {
        report.fault(
            top("collective"),
            format_args!("{} with runtime sizes", plan.collective),
            "alltoallv, allgatherv, sendrecv, test, or a name of your own",
        );
    }
    // Ranks differ in what they send, and must agree on whether a call is refused.
    if plan.min_message_size != 0 {
        report.fault(top("min_message_size"), plan.min_message_size, "0, with runtime sizes");
    }
    if plan.max_message_size != u64::MAX {
        let most = format_args!("{}, with runtime sizes", u64::MAX);
        report.fault(top("max_message_size"), plan.max_message_size, most);
    }
    for (rank, gpu) in plan.gpus.iter().enumerate() {
        let place = |key| move || Place::top().at("gpus", rank).key(key);
        if gpu.scratch_chunks != 0 {
            let found = count(gpu.scratch_chunks, "chunk", "chunks");
            report.fault(place("scratch_chunks"), found, "none, with runtime sizes");
        }
        let sides = [("input_chunks", gpu.input_chunks), ("output_chunks", gpu.output_chunks)];
        for (key, blocks) in sides.into_iter().filter(|&(_, blocks)| blocks > MOST_BLOCKS) {
            let most = format_args!("at most {MOST_BLOCKS} runtime blocks");
            report.fault(place(key), blocks, most);
        }
    }
}

/// Checks that an operation belongs in the plan.
pub(super) fn operation(plan: &Plan, op: &Op, at: At, report: &mut Report) {
    if plan.runtime_sizes {
        // Of a pipeline, the pipeline itself is the fault.
        if !op.kind.moves_blocks() && !op.kind.synchronises() {
            report.fault(
                || at.place(),
                format_args!("{} in a plan with runtime sizes", op.kind),
                "vput, vget and vcopy, and operations that synchronise",
            );
        }
    } else if op.kind.moves_blocks() {
        report.fault(
            || at.place(),
            format_args!("{} in a plan without runtime sizes", op.kind),
            "in plans that say `\"extensions\": {\"runtime_sizes\": 1}`",
        );
    }
}
