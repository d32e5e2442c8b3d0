//! A plain, sequential interpretation of all ranks' programs: the reference that engines are compared with.
//!
//! It shares no code with any engine and knows no time, threads or devices: one instruction of one block at a
//! time, block after block, until all are done or none can go on. Memory is elements of any [`Value`]; packets
//! are elements that carry the number of the launch that wrote them.
//!
//! ```
//! # use antiphon_plan::{interpret::{Interpreter, Memory}, program::{CallSizes, Layout}};
//! # fn demo(layout: &Layout) -> Result<(), Box<dyn std::error::Error>> {
//! let sizes = CallSizes { input: 16, output: 16, element: 4, strict: false };
//! let ranks = layout.ranks.len();
//! let mut memories: Vec<_> =
//!     (0..ranks).map(|rank| Memory::separate(vec![rank as f64; 4], vec![0.0; 4])).collect();
//! Interpreter::new(layout).launch(sizes, &mut memories)?;
//! println!("{:?}", memories[0].output());
//! # Ok(())
//! # }
//! ```

mod machine;
mod stuck;
#[cfg(test)]
mod tests;

pub use machine::{Interpreter, Turns};
pub use stuck::{Blocked, BlockedOn, InterpretError, Stuck};

use crate::program::{CallSizes, Layout};
use antiphon_types::ReduceOp;
use std::ops::Range;

/// An element: a number, or whatever a test wants to trace through a plan.
pub trait Value: Clone {
    /// What fresh scratch and the padding of packets hold.
    fn zero() -> Self;

    /// `self` and then `other`, combined. An average combines as a sum: dividing is for whoever knows where the
    /// reduction ends.
    fn combine(&self, other: &Self, reduce: ReduceOp) -> Self;
}

impl Value for f64 {
    fn zero() -> Self {
        0.0
    }

    fn combine(&self, other: &Self, reduce: ReduceOp) -> Self {
        match reduce {
            ReduceOp::Sum | ReduceOp::Avg => self + other,
            ReduceOp::Prod => self * other,
            ReduceOp::Min | ReduceOp::Max if self.is_nan() || other.is_nan() => f64::NAN,
            ReduceOp::Min => self.min(*other),
            ReduceOp::Max => self.max(*other),
        }
    }
}

/// Sums and products wrap.
impl Value for i128 {
    fn zero() -> Self {
        0
    }

    fn combine(&self, other: &Self, reduce: ReduceOp) -> Self {
        match reduce {
            ReduceOp::Sum | ReduceOp::Avg => self.wrapping_add(*other),
            ReduceOp::Prod => self.wrapping_mul(*other),
            ReduceOp::Min => *self.min(other),
            ReduceOp::Max => *self.max(other),
        }
    }
}

/// The memory of one rank that holds its input and its output, which overlap in a call in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory<V> {
    values: Vec<V>,
    input: Range<usize>,
    output: Range<usize>,
}

impl<V> Memory<V> {
    /// An input and an output that do not overlap.
    pub fn separate(input: Vec<V>, output: Vec<V>) -> Self {
        let inputs = input.len();
        let mut values = input;
        values.extend(output);
        Memory { input: 0..inputs, output: inputs..values.len(), values }
    }

    /// One memory with the input and the output at these elements of it.
    ///
    /// Returns `None` if either range ends beyond the memory or before it starts.
    pub fn in_place(values: Vec<V>, input: Range<usize>, output: Range<usize>) -> Option<Self> {
        let fits = |range: &Range<usize>| range.start <= range.end && range.end <= values.len();
        (fits(&input) && fits(&output)).then_some(Memory { values, input, output })
    }

    /// The elements of the input.
    pub fn input(&self) -> &[V] {
        &self.values[self.input.clone()]
    }

    /// The elements of the output.
    pub fn output(&self) -> &[V] {
        &self.values[self.output.clone()]
    }

    fn input_mut(&mut self) -> &mut [V] {
        &mut self.values[self.input.clone()]
    }

    fn output_mut(&mut self) -> &mut [V] {
        &mut self.values[self.output.clone()]
    }
}

/// Runs one launch on fresh state; `memories` holds one entry per rank.
///
/// # Errors
/// As [`Interpreter::launch`].
pub fn interpret<V: Value>(
    layout: &Layout,
    sizes: CallSizes,
    mut memories: Vec<Memory<V>>,
) -> Result<Vec<Memory<V>>, InterpretError> {
    Interpreter::new(layout).launch(sizes, &mut memories)?;
    Ok(memories)
}
