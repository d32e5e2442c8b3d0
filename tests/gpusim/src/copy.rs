//! Copies and fills, in the order of a stream or at once.

use crate::abi::Answer;
use crate::memory::{Rights, allowed, covered, is_known};
use crate::status::Status;
use crate::stream::{self, Work};
use std::sync::Arc;

/// Moves bytes between any two addresses.
fn bytes(to: u64, from: u64, count: usize) -> Work {
    Arc::new(move || {
        // SAFETY: device addresses were checked against the registry when the copy was submitted, host addresses
        // are the application's word, and it keeps both until the copy is done.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, count) };
        Ok(())
    })
}

/// The copy's work. Pageable host memory is read before the call returns, as the driver does for small copies, so an
/// application that changes it too early is not told so here.
fn work(to: u64, from: u64, count: usize, capturing: bool) -> Work {
    if is_known(from) || capturing {
        return bytes(to, from, count);
    }
    // SAFETY: host memory that the application gives for the length of the call.
    let kept = unsafe { std::slice::from_raw_parts(from as *const u8, count) }.to_vec();
    Arc::new(move || {
        // SAFETY: as in `bytes`.
        unsafe { std::ptr::copy(kept.as_ptr(), to as *mut u8, count) };
        Ok(())
    })
}

fn later(to: u64, from: u64, count: usize, stream: u64) -> Answer {
    let stream = stream::find(stream)?;
    if count == 0 {
        return Ok(());
    }
    if to == 0 || from == 0 {
        return Err(Status::INVALID_VALUE);
    }
    allowed(stream.context.device, from, count, Rights::READ)?;
    allowed(stream.context.device, to, count, Rights::WRITE)?;
    stream.submit(work(to, from, count, stream.capture().is_some()))
}

fn now(to: u64, from: u64, count: usize) -> Answer {
    later(to, from, count, 0)?;
    stream::find(0)?.synchronize()
}

fn fill<T: Copy + Send + Sync + 'static>(to: u64, value: T, count: usize, stream: u64) -> Answer {
    let bytes = count.checked_mul(size_of::<T>()).ok_or(Status::INVALID_VALUE)?;
    covered(to, bytes)?;
    if !to.is_multiple_of(align_of::<T>() as u64) {
        return Err(Status::INVALID_VALUE);
    }
    let stream = stream::find(stream)?;
    if count == 0 {
        return Ok(());
    }
    allowed(stream.context.device, to, bytes, Rights::WRITE)?;
    stream.submit(Arc::new(move || {
        // SAFETY: aligned, and in the registry when submitted; the application keeps it until the fill is done.
        unsafe { std::slice::from_raw_parts_mut(to as *mut T, count) }.fill(value);
        Ok(())
    }))
}

driver_calls! {
    fn cuMemcpy(to: u64, from: u64, count: usize) {
        now(to, from, count)
    }

    fn cuMemcpyAsync(to: u64, from: u64, count: usize, stream: u64) {
        later(to, from, count, stream)
    }

    fn cuMemcpyHtoD_v2(to: u64, from: u64, count: usize) {
        covered(to, count)?;
        now(to, from, count)
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, count: usize, stream: u64) {
        covered(to, count)?;
        later(to, from, count, stream)
    }

    fn cuMemcpyDtoH_v2(to: u64, from: u64, count: usize) {
        covered(from, count)?;
        now(to, from, count)
    }

    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, count: usize, stream: u64) {
        covered(from, count)?;
        later(to, from, count, stream)
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, count: usize, stream: u64) {
        covered(to, count).and_then(|()| covered(from, count))?;
        later(to, from, count, stream)
    }

    fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: u64) {
        fill(to, value, count, stream)
    }
}
