//! Plans and their executors for C.

use crate::communicator::{antiphon_communicator, reason_of};
use crate::entry::{Out, entry, list, text, write_text};
use crate::group::alone;
use crate::handle::{borrow, drop_own, issue, object, take};
use crate::result::{Failure, antiphon_result};
use crate::stream::{antiphon_stream, queue};
use crate::types::{antiphon_op, data_type, reduce_op};
use ::antiphon_executor::plan::algorithms::{Algorithm, Shape};
use ::antiphon_executor::plan::model::Plan;
use ::antiphon_executor::plan::{read, verify};
use ::antiphon_executor::{Call, Collectives, Executor, LoadedPlan, Verdict};
use std::ffi::{c_char, c_void};
use std::sync::{Arc, OnceLock};

/// What loads plans and runs them on a communicator.
pub struct antiphon_executor {
    _private: [u8; 0],
}

object!(Executor, antiphon_executor, b"antiExec", "an executor");

/// A plan that is checked, verified, and ready to run.
pub struct antiphon_plan {
    _private: [u8; 0],
}

pub(crate) struct Ready {
    pub plan: Plan,
    loaded: Arc<LoadedPlan>,
    /// The verifier's report, once somebody has asked for it.
    report: OnceLock<String>,
}

object!(Ready, antiphon_plan, b"antiPlan", "a plan");

/// What is known of a loaded plan. (A plan that is shown to go wrong is not loaded.)
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum antiphon_verdict {
    /// No order of its blocks deadlocks, races or computes something else, at any size.
    Proven = 0,
    /// Neither shown right nor wrong; the report has the reasons.
    NotProven = 1,
    /// It was not checked: verification is off.
    NotVerified = 2,
}

/// Makes an executor for a communicator. One executor per communicator is enough.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_executor` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_executor_create(
    communicator: *const antiphon_communicator,
    out_executor: *mut *mut antiphon_executor,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_executor, "out_executor")?;
        // SAFETY: as this function's.
        let executor = unsafe { borrow::<Collectives>(communicator)? }.executor().clone();
        // SAFETY: as this function's.
        unsafe { out.set(issue(executor)) };
        Ok(())
    })
}

/// Ends every wait of every rank of an executor's communicator, as antiphon_communicator_abort does. Code that serves calls can
/// use it: if it fails while other threads run plans by the executor of its call, it ends those runs so, and returns only once
/// they have ended, since the library then takes the executor back.
///
/// Any thread may call it at any time, also while others are in calls on the executor.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; the reason, if there is one, ends
/// with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_executor_abort(
    executor: *const antiphon_executor,
    reason: *const c_char,
) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        let communicator = unsafe { borrow::<Executor>(executor)? }.communicator();
        // SAFETY: as this function's.
        communicator.abort(&unsafe { reason_of(communicator, reason)? });
        Ok(())
    })
}

/// Destroys an executor. Null is refused with ANTIPHON_RESULT_INVALID_HANDLE.
///
/// Any thread may call it, once, while no other call on the executor is under way.
///
/// # Safety
/// The handle is null, or one that this library returned and that is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_executor_destroy(
    executor: *mut antiphon_executor,
) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        drop_own(unsafe { take::<Executor>(executor)? }, |executor| executor.communicator());
        Ok(())
    })
}

/// # Safety
/// The handle is one, or null; the place is writable.
unsafe fn load(
    executor: *const antiphon_executor,
    plan: Plan,
    out: Out<*mut antiphon_plan>,
) -> Result<(), Failure> {
    // SAFETY: as this function's.
    let loaded = unsafe { borrow::<Executor>(executor)? }.load(&plan)?;
    // SAFETY: as this function's.
    unsafe { out.set(issue(Ready { plan, loaded, report: OnceLock::new() })) };
    Ok(())
}

pub(crate) fn parse(bytes: &[u8], origin: &str) -> Result<Plan, Failure> {
    let read = read(bytes).map_err(|error| {
        let text = format!("cannot read a plan from {origin}: {error}");
        Failure::new(antiphon_result::InvalidPlan, text)
    });
    Ok(read?.plan)
}

/// Loads a plan from a JSON file, in the current format or either of the older ones. Verifying it may take a while.
///
/// Any thread may call it at any time. Ranks may load at different times, or different plans.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; the path, if there is one, ends with
/// a zero; `out_plan` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_plan_load_file(
    executor: *const antiphon_executor,
    path: *const c_char,
    out_plan: *mut *mut antiphon_plan,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_plan, "out_plan")?;
        // SAFETY: as this function's.
        unsafe { borrow::<Executor>(executor)? };
        // SAFETY: as this function's.
        let path = unsafe { text(path, "path")? };
        let bytes = std::fs::read(path).map_err(|error| {
            Failure::new(antiphon_result::File, format!("cannot read {path}: {error}"))
        })?;
        // SAFETY: as this function's.
        unsafe { load(executor, parse(&bytes, path)?, out) }
    })
}

/// Loads a plan from the bytes of a JSON file, as antiphon_plan_load_file does.
///
/// Any thread may call it at any time. Ranks may load at different times, or different plans.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `bytes` is null or has `size` bytes;
/// `out_plan` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_plan_load_bytes(
    executor: *const antiphon_executor,
    bytes: *const c_void,
    size: u64,
    out_plan: *mut *mut antiphon_plan,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_plan, "out_plan")?;
        // SAFETY: as this function's.
        unsafe { borrow::<Executor>(executor)? };
        // SAFETY: as this function's.
        let bytes = unsafe { list(bytes.cast::<u8>(), size, "bytes")? };
        // SAFETY: as this function's.
        unsafe { load(executor, parse(bytes, "memory")?, out) }
    })
}

/// Loads the plan of a built-in algorithm, e.g. "allreduce_ring", for all ranks of one node. `in_place` is 1 if send and
/// receive buffer are the same memory, 0 if not; `root` is for collectives that have one. Algorithms of gather, scatter,
/// alltoallv and allgatherv are refused: when they run they need each rank's blocks, for which antiphon_execute has no
/// argument.
///
/// Any thread may call it at any time. Ranks may load at different times, or different plans.
///
/// # Safety
/// The handle is one, or null; the name, if there is one, ends with a zero; `out_plan` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_plan_load_name(
    executor: *const antiphon_executor,
    name: *const c_char,
    in_place: i32,
    root: u32,
    out_plan: *mut *mut antiphon_plan,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_plan, "out_plan")?;
        // SAFETY: as this function's.
        let ranks = unsafe { borrow::<Executor>(executor)? }.communicator().world() as usize;
        // SAFETY: as this function's.
        let name = unsafe { text(name, "name")? };
        let algorithm: Algorithm =
            name.parse().map_err(|error| Failure::argument(format!("{error}")))?;
        let in_place = match in_place {
            0 => false,
            1 => true,
            saw => {
                let text = format!("cannot use `in_place`: saw {saw}, allowed 0 and 1");
                return Err(Failure::argument(text));
            }
        };
        let shape = Shape { in_place, root: root as usize, ..Shape::new(ranks) };
        let plan = algorithm.plan(shape).map_err(|error| Failure::argument(error.to_string()))?;
        // SAFETY: as this function's.
        unsafe { load(executor, plan, out) }
    })
}

/// Writes what is known of a plan: an antiphon_verdict.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_verdict` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_plan_verdict(
    plan: *const antiphon_plan,
    out_verdict: *mut antiphon_verdict,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_verdict, "out_verdict")?;
        // SAFETY: as this function's.
        let verdict = match unsafe { borrow::<Ready>(plan)? }.loaded.verdict() {
            Verdict::Proven => antiphon_verdict::Proven,
            Verdict::NotProven(_) => antiphon_verdict::NotProven,
            Verdict::NotVerified => antiphon_verdict::NotVerified,
        };
        // SAFETY: as this function's.
        unsafe { out.set(verdict) };
        Ok(())
    })
}

/// Writes what the verifier says of a plan, as a text that ends with a zero, and to `out_bytes` its size, that zero included.
/// With a null buffer and a capacity of 0 it writes only how many bytes are needed. The first call verifies, whatever the
/// communicator's configuration says, and may take a while.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `buffer` is null or has `capacity`
/// bytes; `out_bytes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_plan_report(
    plan: *const antiphon_plan,
    buffer: *mut c_char,
    capacity: u64,
    out_bytes: *mut u64,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_bytes, "out_bytes")?;
        // SAFETY: as this function's.
        let Ready { plan, loaded, report } = unsafe { borrow::<Ready>(plan)? };
        let report = report.get_or_init(|| {
            verify::verify(plan, loaded.layout(), verify::Options::default()).to_string()
        });
        // SAFETY: as this function's.
        unsafe { write_text(report, "the report", buffer, capacity, out) }
    })
}

/// Destroys a plan. Runs of it that are under way go on. Null is refused with ANTIPHON_RESULT_INVALID_HANDLE.
///
/// Any thread may call it, once, while no other function is busy with the plan.
///
/// # Safety
/// The handle is null, or one that this library returned and that is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_plan_destroy(plan: *mut antiphon_plan) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        drop(unsafe { take::<Ready>(plan)? });
        Ok(())
    })
}

/// Runs a plan. All ranks call it with plans of the same content, equal sizes, type and reduction. Sizes are in bytes
/// and multiples of the element's; `dtype` is an antiphon_dtype, `op` an antiphon_op. With a stream the run takes its place in
/// the stream's order, and may still be under way on return; with null for the stream it is complete on return. It is refused
/// inside a group (ANTIPHON_RESULT_UNSUPPORTED).
///
/// The buffers begin at multiples of the element's size. Either they share no byte, or they are in place: both are the same
/// memory, or the smaller is the rank's own block of the larger. Other buffers are refused, unless the communicator does not
/// verify plans. A plan may write the send buffer, if its author wrote it so.
///
/// Any thread may call it, in the same order among a communicator's calls on all ranks.
///
/// # Safety
/// Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers have the given sizes
/// until the call is complete, and nobody else writes the send buffer or touches the receive buffer meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_execute(
    executor: *const antiphon_executor,
    plan: *const antiphon_plan,
    send_buffer: *const c_void,
    send_bytes: u64,
    receive_buffer: *mut c_void,
    receive_bytes: u64,
    dtype: i32,
    op: i32,
    stream: *const antiphon_stream,
) -> antiphon_result {
    entry(|| {
        alone("execute a plan")?;
        // SAFETY: as this function's.
        let executor = unsafe { borrow::<Executor>(executor)? };
        // SAFETY: as this function's.
        let plan = &unsafe { borrow::<Ready>(plan)? }.loaded;
        // SAFETY: as this function's.
        let queue = unsafe { queue(stream)? };
        let dtype = data_type(dtype)?;
        let op = if op == antiphon_op::OfPlan as i32 { None } else { Some(reduce_op(op)?) };
        for (name, at, bytes) in [
            ("send_buffer", send_buffer, send_bytes),
            ("receive_buffer", receive_buffer.cast_const(), receive_bytes),
        ] {
            if (at.is_null() && bytes > 0) || bytes > isize::MAX as u64 {
                let text =
                    format!("cannot use `{name}`: saw {at:p} of {bytes} bytes, allowed a buffer");
                return Err(Failure::argument(text));
            }
        }
        // Engines must not be given null, even for a buffer of no bytes.
        let nowhere = std::ptr::without_provenance_mut::<u8>(64);
        let input = if send_bytes == 0 { nowhere.cast_const() } else { send_buffer.cast() };
        let output = if receive_bytes == 0 { nowhere } else { receive_buffer.cast() };
        let mut call = Call::new(plan, dtype, (input, send_bytes), (output, receive_bytes));
        call.op = op;
        // SAFETY: as this function's.
        unsafe {
            match queue {
                Some(queue) => executor.execute(&call, queue)?,
                None => executor.run(&call)?,
            }
        }
        Ok(())
    })
}
