//! Meetings between data operations of a block that depend on each other, as the format's own DSL inserts them.
//!
//! Part of [`Mode::Compatible`](super::Mode::Compatible), and faithful to what that DSL overlooks, so that plans can be
//! compared with its. [`meetings`](super::meetings) is the sound pass. What is overlooked:
//!
//! - operations of switch channels, altogether;
//! - the raw source of packet reductions, whose packet sources are tracked instead;
//! - that an operation overwrites what others have read, if it reads that itself;
//! - that input and output are one memory in place;
//! - iterations of a pipeline that depend on each other;
//! - what an operation touched before one of its operands turned out to need a meeting: later operations are only
//!   compared with that operand and those after it.

use super::Step;
use crate::model::{Buffer, ChunkRef, Op, OpKind, RefBase};
use std::collections::BTreeMap;

/// Inserts a meeting before every operation that depends on an earlier one, unless they have met in between.
pub fn insert(steps: Vec<Step>) -> Vec<Step> {
    let mut seen = Seen::default();
    let mut out = Vec::with_capacity(steps.len());
    let mut accesses = Vec::new();
    for (number, mut step) in (0..).zip(steps) {
        if matches!(step.kind(), OpKind::Nop | OpKind::Barrier) {
            seen.clear();
        } else {
            step.body = insert(std::mem::take(&mut step.body));
            accesses.clear();
            track(&step, &mut accesses);
            let mut met = false;
            for access in &accesses {
                met |= seen.touch(number, access);
            }
            if met {
                out.push(Step::nop());
            }
        }
        out.push(step);
    }
    out
}

/// A use of chunks of an own buffer.
struct Access {
    buffer: Buffer,
    start: u64,
    end: u64,
    write: bool,
}

/// The uses that count, sources first; of a pipeline, those of its body.
fn track(step: &Step, accesses: &mut Vec<Access>) {
    for inner in &step.body {
        track(inner, accesses);
    }
    let (reads, writes) = tracked(&step.op);
    let sides =
        reads.iter().map(|chunk| (chunk, false)).chain(writes.iter().map(|chunk| (chunk, true)));
    accesses.extend(sides.filter_map(|(chunk, write)| match chunk.base {
        RefBase::Local(buffer) => {
            let (start, end) = (chunk.index, chunk.index.saturating_add(chunk.size));
            Some(Access { buffer, start, end, write })
        }
        _ => None,
    }));
}

/// The operands that count as read and as written.
fn tracked(op: &Op) -> (&[ChunkRef], &[ChunkRef]) {
    use OpKind::*;
    let Op { src, dst, .. } = op;
    let first = |list: &'_ [ChunkRef]| list.len().min(1);
    match op.kind {
        Put | PutBlocks | PutWithSignal | PutWithSignalAndFlush | PutPackets => (src, &[]),
        Get | GetBlocks => (&[], dst),
        Copy | CopyBlocks | Reduce => (src, dst),
        ReduceSend => (src, &dst[..first(dst)]),
        ReadReduce | ReadReduceSend => (&src[..first(src)], &dst[..first(dst)]),
        CopyPackets => (src, &[]),
        UnpackPackets => (&[], dst),
        ReducePackets | ReduceSendPackets | ReduceCopyPackets | ReduceCopySendPackets => {
            (&src[first(src)..], &dst[..first(dst)])
        }
        ReadPutPackets | GroupLoadReduce | GroupLoadReduceStore | GroupStore
        | GroupStorePackets => (&[], &[]),
        Nop | Barrier | Signal | RelaxedSignal | Wait | RelaxedWait | Flush | SemaphoreAcquire
        | SemaphoreRelease | Pipeline => (&[], &[]),
    }
}

/// What has been touched since the last meeting: runs of chunks that do not overlap, by buffer, start and end.
#[derive(Default)]
struct Seen {
    runs: [BTreeMap<(u64, u64), Use>; 3],
}

/// The latest use of a run.
#[derive(Clone, Copy)]
struct Use {
    step: usize,
    write: bool,
}

impl Seen {
    fn clear(&mut self) {
        self.runs.iter_mut().for_each(BTreeMap::clear);
    }

    /// Enters a use by the step with this number, and says whether it needed a meeting.
    fn touch(&mut self, step: usize, access: &Access) -> bool {
        let &Access { buffer, start, end, write } = access;
        let mut met = false;
        while let Some((run, old)) = self.first_overlap(access) {
            if old.step != step && (write || old.write) {
                self.clear();
                met = true;
                break;
            }
            let runs = &mut self.runs[buffer as usize];
            runs.remove(&run);
            if run.1 > end {
                runs.insert((end, run.1), old);
            }
            if run.0 < start {
                runs.insert((run.0, start), old);
            }
        }
        // An empty run may be there already, and then it stays the older step's.
        self.runs[buffer as usize].entry((start, end)).or_insert(Use { step, write });
        met
    }

    fn first_overlap(&self, access: &Access) -> Option<((u64, u64), Use)> {
        let &Access { buffer, start, end, .. } = access;
        let runs = &self.runs[buffer as usize];
        let here = (start, u64::MAX);
        let around = runs.range(..=here).next_back().filter(|(run, _)| run.1 > start);
        let after = || runs.range(here..).next();
        let (&run, &old) = around.or_else(after)?;
        (run.0 < end && start < run.1).then_some((run, old))
    }
}

#[cfg(test)]
mod tests;
