//! Why a plan, or a call of it, cannot be lowered.

use crate::model::{Collective, OpKind};
use std::fmt;

/// Where in a plan an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// The rank.
    pub rank: u32,
    /// The thread block.
    pub tb: u32,
    /// Position in the block's operations.
    pub op: u32,
    /// Position in the pipeline's operations, for inner ones.
    pub inner: Option<u32>,
    /// The operation.
    pub kind: OpKind,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} tb {} op {}", self.rank, self.tb, self.op)?;
        if let Some(inner) = self.inner {
            write!(f, ".{inner}")?;
        }
        write!(f, " ({})", self.kind)
    }
}

/// A plan or call that cannot be lowered.
///
/// The first two variants come from [`Layout::new`](crate::program::Layout::new), and not of a plan that passed
/// `check`. The others come from [`Layout::program`](crate::program::Layout::program) and mean the sizes of one call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LowerError {
    /// An operation contradicts the plan's tables or its own definition.
    #[error("cannot lower {site}: {problem}; run the plan through `check`")]
    Malformed {
        /// The operation.
        site: Site,
        /// What was seen and what is allowed.
        problem: String,
    },
    /// A table of the plan, not an operation, is wrong.
    #[error("cannot lower the plan's tables: {problem}; run the plan through `check`")]
    Tables {
        /// What was seen and what is allowed.
        problem: String,
    },
    /// There is no such rank.
    #[error("cannot lower for rank {rank}: the plan has {ranks} ranks")]
    Rank {
        /// The rank asked for.
        rank: u32,
        /// The plan's number of ranks.
        ranks: u32,
    },
    /// The message is outside the plan's range.
    #[error(
        "cannot run this {collective} plan with a message of {saw} bytes: allowed {min} to {max}; choose another plan"
    )]
    Size {
        /// The plan's collective.
        collective: Collective,
        /// Bytes of the message (the output for allgather, else the input).
        saw: u64,
        /// Smallest size, inclusive.
        min: u64,
        /// Largest size, inclusive.
        max: u64,
    },
    /// A buffer does not hold whole elements.
    #[error(
        "cannot use {buffer} of {bytes} bytes: it is not a whole number of elements of {element} bytes"
    )]
    Element {
        /// `an input` or `an output`.
        buffer: &'static str,
        /// Its size.
        bytes: u64,
        /// Bytes of one element.
        element: u64,
    },
    /// The buffers' sizes do not fit the collective, or each other.
    #[error(
        "cannot run {collective} with an input of {input} and an output of {output} bytes: {rule}"
    )]
    Shape {
        /// The plan's collective.
        collective: Collective,
        /// Bytes of the input.
        input: u64,
        /// Bytes of the output.
        output: u64,
        /// What is required.
        rule: String,
    },
    /// The format's own rule refuses the sizes.
    #[error(
        "cannot use {buffer} of {bytes} bytes under the format's rule: {rule}; do not ask for strict sizes"
    )]
    Strict {
        /// `an input` or `an output`.
        buffer: &'static str,
        /// Its size.
        bytes: u64,
        /// What is required.
        rule: String,
    },
    /// References of one operation have different lengths at these sizes.
    #[error(
        "cannot run {site} at this size: {first} is {first_len} bytes and {second} is {second_len}; use sizes that divide evenly"
    )]
    Lengths {
        /// The operation.
        site: Site,
        /// A reference, as buffer, rank and chunks.
        first: String,
        /// Its bytes.
        first_len: u64,
        /// Another reference.
        second: String,
        /// Its bytes.
        second_len: u64,
    },
    /// A pipeline's window would cut an element or a packet.
    #[error(
        "cannot run the pipeline at {site} in windows of {unit} bytes: they must be multiples of {multiple}"
    )]
    Window {
        /// The pipeline.
        site: Site,
        /// Bytes of one window.
        unit: u64,
        /// What the window must be a multiple of.
        multiple: u64,
    },
    /// A number does not fit in 64 bits.
    #[error(
        "cannot run this plan at this size: {what} does not fit in 64 bits; use a smaller message"
    )]
    Overflow {
        /// What overflowed.
        what: &'static str,
    },
}
