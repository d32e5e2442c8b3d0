//! Whether a plan makes sense: every number in its range, every operation with the operands it needs.
//!
//! [`check()`] lists all faults of a plan, each with its place. What it accepts, lowering and engines may trust: no
//! reference leads out of a list or a buffer. It does not judge what a plan computes or whether it ends; of that,
//! [`pairing()`] gives a first hint by comparing signals with waits, and the verifier decides.
//!
//! The rules are those of the plan format, except where a wider rule is as well defined: the sources of the
//! reducing operations `re`, `res`, `rre` and `rres` may be local and remote in any order (they are combined in
//! list order), references may have size 0, and there is no limit on the length of any list.

mod groups;
mod operands;
mod operation;
mod pairing;
mod rank;
mod report;
mod runtime;
mod shape;
mod tables;

#[cfg(test)]
mod tests;

pub use pairing::pairing;
pub use report::{Fault, Faults};

use crate::model::Plan;
use crate::place::Place;
use report::Report;
use tables::Tables;

/// Most threads that a block has on any GPU.
const MAX_THREADS: u64 = 1024;

/// Checks a plan against all rules.
///
/// # Errors
///
/// [`Faults`] with every fault of the plan: those of the plan as a whole and of its switch groups, then rank by rank.
pub fn check(plan: &Plan) -> Result<(), Faults> {
    let mut report = Report::default();
    let top = |key| move || Place::top().key(key);
    if plan.gpus.is_empty() {
        report.fault(top("gpus"), "no rank", "at least one rank");
    }
    if plan.num_threads_per_block == 0 || plan.num_threads_per_block > MAX_THREADS {
        report.fault(
            top("num_threads_per_block"),
            plan.num_threads_per_block,
            format_args!("1 to {MAX_THREADS}"),
        );
    }
    // Boundaries must fall between elements too, and element sizes are powers of two: the larger of two powers of
    // two is a multiple of both.
    if !plan.buffer_alignment.is_power_of_two() {
        report.fault(top("buffer_alignment"), plan.buffer_alignment, "a power of two");
    }
    if plan.min_message_size > plan.max_message_size {
        report.fault(
            top("min_message_size"),
            plan.min_message_size,
            format_args!("at most max_message_size, {}", plan.max_message_size),
        );
    }
    runtime::check(plan, &mut report);
    let mut tables = Tables::new(plan);
    groups::check(&mut tables, &mut report);
    for rank in 0..plan.gpus.len() {
        rank::check(&tables, rank, &mut report);
    }
    report.finish()
}
