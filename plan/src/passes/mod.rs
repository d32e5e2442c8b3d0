//! From recorded programs to plans: the passes of the compiler, in their order.
//!
//! 1. [`pairing`]: every signal of a channel has its wait on the channel paired with it.
//! 2. [`fusion`]: neighbouring operations become one. It works on operations as they are recorded, so that a
//!    program needs no more memory than its fused form.
//! 3. Synchronisation of the block's threads, in one of two ways. [`Mode::Compatible`] inserts what the format's
//!    own DSL does: [`data_sync`], then [`dependencies`]. [`Mode::Minimal`] inserts a meeting only where none has
//!    happened since the threads last had to, also across iterations of a pipeline: [`meetings`].
//! 4. [`replication`]: every block runs as so many instances, each on its share of the chunks.
//!
//! Passes change nobody's meaning: what a rule would make of a program but must not is refused, and counted with
//! its reason in the [`Report`].

pub mod data_sync;
pub mod dependencies;
pub mod fusion;
pub mod meetings;
#[cfg(test)]
mod notation;
pub mod pairing;
pub mod replication;
pub mod report;
mod step;
#[cfg(test)]
mod text;
mod touched;

pub use report::{Refusal, Report};
pub use step::{DataSync, Step};

use crate::model::Collective;

/// How the threads of a block are made to meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Where it is needed, and nowhere else.
    #[default]
    Minimal,
    /// Where the format's own DSL does, so that plans can be compared with its.
    Compatible,
}

/// What the synchronising passes need to know of a block's surroundings.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// What the plan computes.
    pub collective: &'a Collective,
    /// Whether input and output are, or may be, the same memory.
    pub in_place: bool,
    /// The rank of the block.
    pub rank: u64,
    /// The rank's chunks of the input.
    pub input_chunks: u64,
    /// The rank's chunks of the output.
    pub output_chunks: u64,
    /// The buffer of each of the block's switch channels, by block-local id.
    pub switches: &'a [crate::model::Buffer],
    /// Whether to synchronise data operations that depend on each other.
    pub auto_sync: bool,
}

/// Makes a block's threads meet where `mode` says.
pub fn synchronise(steps: Vec<Step>, around: &Surroundings<'_>, mode: Mode) -> Vec<Step> {
    match mode {
        Mode::Minimal => meetings::insert(steps, around),
        Mode::Compatible => {
            let steps = data_sync::insert(steps);
            if around.auto_sync { dependencies::insert(steps) } else { steps }
        }
    }
}
