//! Reductions over a switch whose result goes back through it.
//!
//! `glres` leaves out what its `glre` wrote on the way. That is the same only if nobody misses that chunk, which no
//! one sees before the whole program is known: so this pair is fused when the program is finished.

use super::super::{Refusal, Report, Step};
use super::hazards::overlap;
use crate::model::{ChunkRef, OpKind};

/// Fuses every load-reduce with the store that follows it, in pipelines too.
///
/// `spare` says of a local chunk and the chunks of every member that its value is stored to whether it may keep what
/// it had before.
pub fn fuse_switches(
    steps: &mut Vec<Step>,
    spare: &dyn Fn(&ChunkRef, &ChunkRef) -> bool,
    report: &mut Report,
) {
    let mut fused: Vec<Step> = Vec::with_capacity(steps.len());
    for mut step in steps.drain(..) {
        if !step.body.is_empty() {
            fuse_switches(&mut step.body, spare, report);
        }
        if let Some(load) = fused.last_mut()
            && let Some(verdict) = judge(load, &step)
        {
            let verdict = verdict.and_then(|()| match (&load.op.dst[..], &step.op.dst[..]) {
                ([between], [to]) if !spare(between, to) => Err(Refusal::Kept),
                _ => Ok(()),
            });
            match verdict {
                Ok(()) => {
                    load.op.kind = OpKind::GroupLoadReduceStore;
                    load.op.dst = step.op.dst;
                    continue;
                }
                Err(why) => report.refuse(load.kind(), step.kind(), why),
            }
        }
        fused.push(step);
    }
    *steps = fused;
}

/// Whether a store takes from memory just what the load-reduce right before it left there.
pub fn passes_on(load: &Step, store: &Step) -> bool {
    let (load, store) = (&load.op, &store.op);
    load.kind == OpKind::GroupLoadReduce
        && store.kind == OpKind::GroupStore
        && load.group == store.group
        && load.dst == store.src
}

/// Whether the steps are a load-reduce and a store, and if so, whether they may be one as far as the two tell.
fn judge(load: &Step, store: &Step) -> Option<Result<(), Refusal>> {
    if load.kind() != OpKind::GroupLoadReduce || store.kind() != OpKind::GroupStore {
        return None;
    }
    let ([from], [to]) = (&load.op.src[..], &store.op.dst[..]) else { return None };
    Some(if load.op.channel_type != store.op.channel_type {
        Err(Refusal::ChannelType)
    } else if from.base != to.base {
        Err(Refusal::OtherChannel)
    } else if from.size != to.size {
        Err(Refusal::Size)
    } else if load.op.group != store.op.group {
        Err(Refusal::Slice)
    } else if !passes_on(load, store) {
        Err(Refusal::OtherChunk)
    } else if overlap(from, to) && from != to {
        Err(Refusal::Hazard)
    } else {
        Ok(())
    })
}
