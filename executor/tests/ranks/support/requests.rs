//! Calls by name on slices.

use antiphon_executor::{DataType, ReduceOp, Request, What};

/// What the elements of a slice are to a call.
pub trait Element {
    const TYPE: DataType;
}

impl Element for u32 {
    const TYPE: DataType = DataType::U32;
}

impl Element for f32 {
    const TYPE: DataType = DataType::F32;
}

/// A call with these buffers, in elements of which it counts so many. If it reduces, it adds.
pub fn request<T: Element>(what: What, input: &[T], output: &mut [T], count: usize) -> Request {
    let (input, output) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
    let (count, dtype, op) = (count as u64, T::TYPE, ReduceOp::Sum);
    Request { what, input, output, count, dtype, op, factor: None }
}

/// An allreduce that adds.
pub fn sum_in_place<T: Element>(buffer: &mut [T]) -> Request {
    let at = buffer.as_mut_ptr();
    Request { input: at.cast_const().cast(), output: at.cast(), ..sum(buffer, &mut []) }
}

/// An allreduce that adds.
pub fn sum<T: Element>(input: &[T], output: &mut [T]) -> Request {
    request(What::AllReduce, input, output, input.len())
}
