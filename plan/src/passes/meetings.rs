//! Meetings of a block's threads where they are needed, and nowhere else.
//!
//! All threads of a block share a data operation, but single threads signal and wait. So the threads must meet
//!
//! - between data and a signal, release or flush whose author asked for a meeting before it;
//! - between an operation whose author asked for a meeting after it and what comes next: not at once, but before the
//!   next data operation, or the next operation that lets others go on. What only waits may come in between, and a
//!   block's end needs no meeting. For an operation that only waits, a meeting before it serves to part the data
//!   before from the data after, so it is made up for in the same way;
//! - between two data operations of which one writes raw memory of the rank that the other touches, if dependencies
//!   are to be resolved. Packets carry their own flags, but for packets that a port sends as they are.
//!
//! A meeting serves everything before it at once: every meeting is put as late as the first need for it allows, which
//! makes them as few as they can be. What the author wrote (`nop`, `barrier`) counts.
//!
//! A pipeline's body begins where it was entered or where its last iteration ended, so it meets whatever either
//! needs. Iterations of one operation touch windows that are apart. A meeting that only the first iteration would
//! need is held before the pipeline instead. A pipeline over no bytes has no iteration, so what was open before one
//! stays open after it.

use super::touched::{Access, Touched, accesses};
use super::{Step, Surroundings};
use crate::model::OpKind;

/// Inserts the meetings that are missing, and drops a `nop` of the author's that follows another meeting.
pub fn insert(steps: Vec<Step>, around: &Surroundings<'_>) -> Vec<Step> {
    let decisions = Walk { around, in_pipeline: false }.steps(&steps, &mut Open::default());
    apply(steps, decisions)
}

/// What becomes of a step.
#[derive(Default)]
struct Decision {
    /// The threads meet first.
    meet: bool,
    /// The step is left out.
    drop: bool,
    /// What becomes of a pipeline's body.
    body: Vec<Decision>,
}

fn apply(steps: Vec<Step>, decisions: Vec<Decision>) -> Vec<Step> {
    let mut out = Vec::with_capacity(steps.len());
    for (mut step, decision) in steps.into_iter().zip(decisions) {
        if decision.meet {
            out.push(Step::nop());
        }
        if !decision.drop {
            step.body = apply(std::mem::take(&mut step.body), decision.body);
            out.push(step);
        }
    }
    out
}

/// Number of meetings that are inserted.
fn inserted(decisions: &[Decision]) -> usize {
    decisions.iter().map(|d| usize::from(d.meet) + inserted(&d.body)).sum()
}

/// What a block has done since its threads last met.
#[derive(Clone, Debug, Default)]
struct Open {
    /// Data was moved.
    moved: bool,
    /// An author's wish for a meeting is still open.
    owed: bool,
    /// Something was waited for, by single threads.
    waited: bool,
    /// Memory touched in this iteration, or outside of pipelines.
    here: Touched,
    /// Memory touched in earlier iterations of the pipeline.
    earlier: Touched,
}

impl Open {
    fn met(&mut self) {
        self.moved = false;
        self.owed = false;
        self.waited = false;
        self.here.clear();
        self.earlier.clear();
    }

    fn is_clean(&self) -> bool {
        !self.moved && !self.owed && !self.waited && self.here.is_empty() && self.earlier.is_empty()
    }

    fn join(&mut self, other: &Open) {
        self.moved |= other.moved;
        self.owed |= other.owed;
        self.waited |= other.waited;
        self.here.join(&other.here);
        self.earlier.join(&other.earlier);
    }

    fn covers(&self, other: &Open) -> bool {
        self.moved >= other.moved
            && self.owed >= other.owed
            && self.waited >= other.waited
            && self.here.covers(&other.here)
            && self.earlier.covers(&other.earlier)
    }

    /// The same, seen from the next iteration.
    fn next_iteration(mut self) -> Open {
        self.earlier.join(&self.here);
        self.here.clear();
        self
    }

    /// The same, seen from behind the pipeline.
    fn behind_pipeline(mut self) -> Open {
        self.here.join(&self.earlier);
        self.earlier.clear();
        self
    }
}

struct Walk<'a> {
    around: &'a Surroundings<'a>,
    in_pipeline: bool,
}

impl Walk<'_> {
    /// Decides where a list of steps meets. `open` says what is open at the list's beginning, and then what is open at its end.
    fn steps(&self, steps: &[Step], open: &mut Open) -> Vec<Decision> {
        let mut used = Vec::new();
        let mut after_meeting = false;
        let mut decisions = Vec::with_capacity(steps.len());
        for step in steps {
            let decision = match step.kind() {
                OpKind::Nop | OpKind::Barrier => {
                    open.met();
                    Decision {
                        drop: after_meeting && step.kind() == OpKind::Nop,
                        ..Decision::default()
                    }
                }
                OpKind::Pipeline => self.pipeline(&step.body, open),
                _ if step.carries_data_sync() => synchronising(step, open),
                _ => self.data(step, open, &mut used),
            };
            after_meeting = matches!(step.kind(), OpKind::Nop | OpKind::Barrier);
            decisions.push(decision);
        }
        decisions
    }

    fn data(&self, step: &Step, open: &mut Open, used: &mut Vec<Access>) -> Decision {
        used.clear();
        if self.around.auto_sync {
            accesses(&step.op, self.around, self.in_pipeline, used);
        }
        let conflicts = |access: &Access| {
            open.here.conflicts(access) || open.earlier.conflicts_across_iterations(access)
        };
        let meet = open.owed || used.iter().any(conflicts);
        if meet {
            open.met();
        }
        used.iter().for_each(|access| open.here.touch(access));
        open.moved = true;
        Decision { meet, ..Decision::default() }
    }

    fn pipeline(&self, body: &[Step], open: &mut Open) -> Decision {
        let (alone, end) = self.iterations(body, &Open::default());
        if !open.is_clean() {
            let (joint, end) = self.iterations(body, open);
            if inserted(&joint) <= inserted(&alone) {
                open.join(&end.behind_pipeline());
                return Decision { body: joint, ..Decision::default() };
            }
        }
        let meet = !open.is_clean();
        *open = end.behind_pipeline();
        Decision { meet, drop: false, body: alone }
    }

    /// Decides where a pipeline's body meets, if `before` is open at its first iteration, and says what is open at its
    /// end. What is open at the beginning of an iteration only grows, and consists of what the body touches, so a few
    /// rounds find it.
    fn iterations(&self, body: &[Step], before: &Open) -> (Vec<Decision>, Open) {
        let walk = Walk { in_pipeline: true, ..*self };
        let mut begin = before.clone();
        loop {
            let mut end = begin.clone();
            let decisions = walk.steps(body, &mut end);
            let next = end.clone().next_iteration();
            if begin.covers(&next) {
                return (decisions, end);
            }
            begin.join(&next);
        }
    }
}

fn synchronising(step: &Step, open: &mut Open) -> Decision {
    use OpKind::*;
    let sync = step.sync;
    let meet = match step.kind() {
        Wait | RelaxedWait | SemaphoreAcquire => {
            // Fusion leaves out the wish after a wait where a wish before what follows serves for it.
            open.owed |= sync.after() || (sync.before() && (open.moved || open.waited));
            open.waited = true;
            return Decision::default();
        }
        Flush => sync.before() && open.moved,
        _ => open.owed || (sync.before() && (open.moved || open.waited)),
    };
    if meet {
        open.met();
    }
    if step.kind() == Flush {
        open.owed |= sync.after() || (sync.before() && open.waited);
        open.waited = true;
    } else {
        // Nobody has to wait for a signal, but the author may rely on the meeting between data before and after.
        open.owed |= sync.after() && open.moved;
    }
    Decision { meet, ..Decision::default() }
}

#[cfg(test)]
mod tests;
