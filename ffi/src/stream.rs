//! Streams for C: queues of calls that may still be under way when the function that makes them returns.

use crate::communicator::antiphon_communicator;
use crate::entry::{Out, entry};
use crate::handle::{borrow, drop_own, issue, object, take};
use crate::result::{Failure, antiphon_result};
use antiphon_executor::hal::Stream as Queue;
use antiphon_executor::{Collectives, Executor, ExecutorError};
use std::ffi::c_void;
use std::sync::Arc;

/// A queue of calls: they run in order, and independently of other streams; but on the host a call begins when all ranks have
/// completed the one that came 64 calls before it, on whatever stream.
pub struct antiphon_stream {
    _private: [u8; 0],
}

pub(crate) struct Stream {
    pub queue: Arc<dyn Queue>,
    pub executor: Executor,
}

object!(Stream, antiphon_stream, b"antiStrm", "a stream");

/// The queue that a caller means; `None` for null, with which a call is complete on return.
///
/// # Safety
/// As [`borrow`].
#[inline]
pub(crate) unsafe fn queue<'a>(
    stream: *const antiphon_stream,
) -> Result<Option<&'a Arc<dyn Queue>>, Failure> {
    if stream.is_null() {
        return Ok(None);
    }
    // SAFETY: as this function's.
    Ok(Some(&unsafe { borrow::<Stream>(stream)? }.queue))
}

/// Makes a stream on a communicator's device. Calls of several communicators of that device may share it. On a GPU,
/// antiphon_stream_synchronize and antiphon_stream_query then tell only of this communicator's failures. Of another's,
/// antiphon_communicator_async_error tells, and antiphon_communicator_query whether the buffers of its failed calls may be used
/// again.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_stream` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_stream_create(
    communicator: *const antiphon_communicator,
    out_stream: *mut *mut antiphon_stream,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_stream, "out_stream")?;
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(communicator)? };
        let queue = collectives.communicator().stream()?;
        let stream = Stream { queue, executor: collectives.executor().clone() };
        // SAFETY: as this function's.
        unsafe { out.set(issue(stream)) };
        Ok(())
    })
}

/// Makes a stream from one of the application's on a communicator's device (a cudaStream_t, CUstream or hipStream_t; null is
/// the default stream): calls on it come in order with all else that the application puts there, and become part of a graph
/// while it is recorded into one. Destroying the result leaves the application's stream as it is. The same stream may be
/// adopted again at any time.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `native` is a stream of the device's
/// context, and lives as long as the result and the calls on it; `out_stream` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_stream_adopt(
    communicator: *const antiphon_communicator,
    native: *mut c_void,
    out_stream: *mut *mut antiphon_stream,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_stream, "out_stream")?;
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(communicator)? };
        let device = collectives.communicator().device();
        // SAFETY: as this function's.
        let queue = unsafe { device.adopt_stream(native) }.map_err(ExecutorError::from)?;
        let stream = Stream { queue, executor: collectives.executor().clone() };
        // SAFETY: as this function's.
        unsafe { out.set(issue(stream)) };
        Ok(())
    })
}

/// Waits until all calls on a stream are complete, and returns the first error among the calls since it was last called.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_stream_synchronize(
    stream: *const antiphon_stream,
) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        let Stream { queue, executor } = unsafe { borrow::<Stream>(stream)? };
        Ok(executor.synchronize(queue)?)
    })
}

/// Writes 1 if all calls on a stream are complete, even if they have failed, else 0. Does not wait. After a 1 the buffers may
/// be used again; antiphon_stream_synchronize tells whether the calls succeeded.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_done` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_stream_query(
    stream: *const antiphon_stream,
    out_done: *mut i32,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_done, "out_done")?;
        // SAFETY: as this function's.
        let Stream { queue, executor } = unsafe { borrow::<Stream>(stream)? };
        let done = executor.query(queue)?;
        // SAFETY: as this function's.
        unsafe { out.set(i32::from(done)) };
        Ok(())
    })
}

/// Destroys a stream. Calls on it that are under way go on; synchronize it first to learn whether they succeed. Null is refused
/// with ANTIPHON_RESULT_INVALID_HANDLE.
///
/// Any thread may call it, once, while no other call on the stream is under way.
///
/// # Safety
/// The handle is null, or one that this library returned and that is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_stream_destroy(stream: *mut antiphon_stream) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        drop_own(unsafe { take::<Stream>(stream)? }, |stream| stream.executor.communicator());
        Ok(())
    })
}
