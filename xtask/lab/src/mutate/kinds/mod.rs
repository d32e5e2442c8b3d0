//! The kinds of mutation: each finds every place of a plan where it applies.
//!
//! - `order`: what threads, blocks and ranks wait for each other by;
//! - `data`: what is moved and combined, and from where to where;
//! - `shape`: how work is shared, windowed and laid out.

mod data;
mod order;
mod shape;

use super::edit::Edit;
use antiphon::plan::model::Plan;

/// A kind of mutation.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Its name on the command line and in the report.
    pub name: &'static str,
    /// What it does, for the report.
    pub what: &'static str,
    /// Every change of this kind to a plan, in the plan's order. Some may make plans that nothing accepts.
    pub edits: fn(&Plan) -> Vec<Edit>,
}

macro_rules! kinds {
    ($($name:literal, $edits:path, $what:literal;)*) => {
        /// Every kind, in the order of the report.
        pub const KINDS: &[Kind] = &[$(Kind { name: $name, what: $what, edits: $edits },)*];
    };
}

kinds! {
    "drop-signal", order::drop_signal, "a signal is missing";
    "duplicate-signal", order::duplicate_signal, "a signal is sent twice";
    "relax-signal", order::relax_signal, "a signal orders nothing";
    "drop-wait", order::drop_wait, "a wait is missing";
    "duplicate-wait", order::duplicate_wait, "a wait is done twice";
    "relax-wait", order::relax_wait, "a wait orders nothing";
    "retarget-channel", order::retarget_channel, "a signal or wait goes to another channel";
    "drop-nop", order::drop_nop, "the threads of a block do not meet";
    "duplicate-nop", order::duplicate_nop, "the threads of a block meet twice";
    "move-nop", order::move_nop, "the threads of a block meet earlier or later";
    "drop-barrier", order::drop_barrier, "one block skips a barrier";
    "drop-whole-barrier", order::drop_whole_barrier, "all blocks skip a barrier";
    "duplicate-barrier", order::duplicate_barrier, "one block comes to a barrier twice";
    "drop-release", order::drop_release, "a semaphore is not released";
    "duplicate-release", order::duplicate_release, "a semaphore is released twice";
    "drop-acquire", order::drop_acquire, "a semaphore is not acquired";
    "semaphore-start", order::semaphore_start, "a semaphore starts with another value";
    "drop-flush", order::drop_flush, "a transfer is not waited for";
    "swap-operations", order::swap_operations, "two neighbouring operations change places";
    "drop-data", data::drop_data, "a data operation is missing";
    "duplicate-data", data::duplicate_data, "a data operation is done twice";
    "swap-chunks", data::swap_chunks, "two chunk references change places";
    "shift-index", data::shift_index, "a reference begins one chunk earlier or later";
    "shrink-size", data::shrink_size, "an operation covers one chunk less";
    "grow-size", data::grow_size, "an operation covers one chunk more";
    "retarget-buffer", data::retarget_buffer, "a reference means another rank's or buffer's chunk";
    "drop-source", data::drop_source, "a reduction leaves a source out";
    "change-operator", data::change_operator, "a reduction combines by another operator";
    "change-group", shape::change_group, "a block does another slice of the work";
    "change-pipeline", shape::change_pipeline, "a pipeline has other windows";
    "single-scratch", shape::single_scratch, "launches do not alternate between halves of scratch";
}

/// The kind with this name.
pub fn kind(name: &str) -> Option<usize> {
    KINDS.iter().position(|kind| kind.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_distinct_and_found() {
        let names: BTreeSet<_> = KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), KINDS.len());
        assert!((0..KINDS.len()).all(|at| kind(KINDS[at].name) == Some(at)));
    }
}
