//! Neighbouring operations of a block become one.
//!
//! [`push`] folds a step into the last of a list, or appends it: a left fold over the block's steps, done while they
//! are recorded, so that a program takes no more memory than its fused form. What may become one, and under which
//! conditions, is [the table](#the-table); a pair whose kinds are in it and that stays two is counted in the [`Report`]
//! with its reason.
//!
//! # The table
//!
//! | first | second | together | if |
//! |---|---|---|---|
//! | `nop` | `nop` | `nop` | |
//! | `nop` | `barrier` | `barrier` | |
//! | `nop` | `pipeline` | `pipeline` | its iterations begin with a meeting |
//! | `barrier` | `nop` | `barrier` | |
//! | `pipeline` | `nop` | `pipeline` | its iterations end with a meeting |
//! | `signal`, `rlxsignal`, `wait`, `rlxwait` | the same | the same | same channel type, no channel in both |
//! | `flush` | `flush` | `flush` | same channel type |
//! | `sem_acquire`, `sem_release` | the same | the same | |
//! | `get`, `put`, `ppkt`, `pws`, `pwsf` | the same | the same | same size, channel type and slice |
//! | `rppkt` | `rppkt` | `rppkt` | same sources, channel type and slice |
//! | `re`, `repkt`, `rre` | the same | the same | same first source, destination, channel type, operator and slice, and the first accumulates: its destination is its first source |
//! | `re`, `res`, `rre`, `rres` | `put` over memory | `res`, `rres` | the put sends the result; same slice |
//! | `repkt`, `respkt` | `ppkt` over memory | `respkt` | the same |
//! | `repkt` | `cpkt` | `recpkt` | the same |
//! | `recpkt`, `recspkt` | `ppkt` over memory | `recspkt` | the same |
//! | `recpkt`, `recspkt` | `rppkt` over memory | `recspkt` | it forwards the local packets; same slice |
//! | `glre` | `gstore` | `glres` | see [`fuse_switches`] |
//!
//! A meeting that another follows or precedes at once is dropped: an operation that synchronises with others does not
//! meet after itself where the next step begins with a meeting, and not before itself where a `nop`, a `barrier` or a
//! pipeline that ends with a meeting comes before.
//!
//! # What stays two although the format's rules join it
//!
//! One operation reads and writes element by element, and moves its pairs in no order that its threads agree on. Two
//! operations have all of the first's effects before the second's. So there is no joining where that makes a
//! difference:
//!
//! - A second reduction of the same first source into another chunk overwrites what the first left there;
//!   one operation would add to it ([`Refusal::Overwrites`]).
//! - A second reduction that reads what the first wrote, other than as the sum so far ([`Refusal::Hazard`]).
//! - Pairs of copies of which one writes what another reads or writes, except that the same copy may be there twice
//!   ([`Refusal::Hazard`]).
//! - Results sent to chunks that overlap a source or another destination without being the same chunks: elements
//!   would be read too late, or the wrong write be the last ([`Refusal::Hazard`]). Where they are the same chunks, every
//!   element is read before it is written, and nothing is lost.
//! - Operations that different slices of a group do, for every pair that moves data ([`Refusal::Slice`]).
//! - A reduction over a switch whose result is used elsewhere too ([`Refusal::Kept`]).
//!
//! And other than by those rules, a pipeline whose iterations end with a `nop` or a `barrier` meets *after* itself, not
//! before; a pipeline's body is fused wherever the pipeline is; `glres` stores where its `gstore` did.
//!
//! Sources of one packet reduction are added packets first, so joining `repkt` changes the order of a sum, though not its
//! terms. Signals of joined `pws` on one channel come in the order of the pairs, as lowering arranges them.
//!
//! # Cost
//!
//! A step costs a few comparisons. A pair of chunks that joins others is compared with each of them while they are few, and
//! then with the runs of chunks that they make in the same buffer, found by bisection: in a program that goes through
//! its buffers in order, that is a comparison or two. Only a pair that does touch what others touch is compared with all of
//! them once more, before it is refused. A result that is sent to many chunks is compared with each.

mod cover;
mod hazards;
mod rules;
mod switches;
#[cfg(test)]
mod tests;

pub(super) use cover::Cover;
pub use hazards::{reads_packets, writes_packets};
pub use switches::{fuse_switches, passes_on};

use super::{DataSync, Refusal, Report, Step};
use crate::model::OpKind;
use rules::Verdict;

/// Appends a step to a list, fused with the list's last step where the rules allow. The body of a pipeline is taken
/// as fused.
pub fn push(list: &mut Vec<Step>, mut next: Step, report: &mut Report) {
    let Some(last) = list.last_mut() else { return list.push(next) };
    match rules::judge(last, &next) {
        Verdict::Fuse(how) => return rules::fuse(last, next, how),
        Verdict::Refuse(why) => report.refuse(last.kind(), next.kind(), why),
        Verdict::Unrelated => {}
    }
    last.seal();
    settle(last, &mut next);
    list.push(next);
}

/// As [`push`], where a rank's input and output are, or may be, one memory: what one operation writes under one name and
/// the other touches under the other name keeps them two.
pub fn push_aliased(list: &mut Vec<Step>, mut next: Step, report: &mut Report) {
    if let Some(last) = list.last_mut()
        && hazards::crossed(&last.op, &next.op)
        && matches!(rules::judge(last, &next), Verdict::Fuse(_))
    {
        report.refuse(last.kind(), next.kind(), Refusal::Hazard);
        last.seal();
        settle(last, &mut next);
        return list.push(next);
    }
    push(list, next, report);
}

/// Fuses steps, those of pipelines' bodies too. Switch operations stay as they are, see [`fuse_switches`].
pub fn fuse(steps: Vec<Step>, report: &mut Report) -> Vec<Step> {
    let mut fused = Vec::new();
    for mut step in steps {
        if !step.body.is_empty() {
            step.body = fuse(std::mem::take(&mut step.body), report);
        }
        push(&mut fused, step, report);
    }
    fused
}

/// Drops meetings that another meeting makes redundant, of two steps that stay two.
fn settle(last: &mut Step, next: &mut Step) {
    if next.carries_data_sync() && !last.carries_data_sync() && edges(last).after() {
        next.sync = next.sync.without_before();
    }
    if last.carries_data_sync() && edges(next).before() {
        last.sync = last.sync.without_after();
    }
}

/// Whether a step begins and ends with a meeting of the block's threads.
fn edges(step: &Step) -> DataSync {
    match step.op.kind {
        OpKind::Nop | OpKind::Barrier => DataSync::BOTH,
        OpKind::Pipeline => {
            // A pipeline over no chunks runs nothing, and so meets nowhere.
            let runs = step.op.pipeline.as_ref().is_some_and(|pipeline| pipeline.num_chunks > 0);
            let inner = |step: Option<&Step>| match step {
                Some(step) if runs => edges(step),
                _ => DataSync::NONE,
            };
            (inner(step.body.first()) & DataSync::BEFORE)
                | (inner(step.body.last()) & DataSync::AFTER)
        }
        _ => step.sync,
    }
}
