//! Collectives and transfers. Where buffers are on the host, streams are not looked at.

use crate::communicator::{Communicator, check_header, known, place, usable};
use crate::failure::{Failure, Result};
use crate::group::{gathered, part};
use crate::library::{Library, library};
use crate::numbers::{data_type, element, operation, rank};
use crate::place::CallStream;
use crate::types::{CollConfig, Comm, Header, Stream};
use crate::way;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;

/// Checks the configuration of a call: what tunes it may be ignored, but not what must be obeyed.
///
/// # Safety
/// There is none, or it is as long as it says.
pub unsafe fn check_config(config: *const CollConfig) -> Result<()> {
    // SAFETY: as this function's.
    let Some(header) = (unsafe { config.cast::<Header>().as_ref() }) else {
        return Ok(());
    };
    check_header(header, offset_of!(CollConfig, policy))?;
    // SAFETY: as long as it says, and a text that ends with a zero, if there is one.
    let (chosen, extensions) = unsafe {
        let algorithms = (*config).algorithms;
        let named = !algorithms.is_null() && *algorithms != 0;
        (named && (*config).force != 0, (*config).extensions)
    };
    if chosen {
        return Err(Failure::usage(
            "cannot choose among NCCL's algorithms: there are none here; leave algSelection empty",
        )
        .unserved());
    }
    if !extensions.is_null() {
        return Err(Failure::usage(
            "cannot obey options of vendors: none is known here; leave ext empty",
        )
        .unserved());
    }
    // SAFETY: only where it is so long.
    let told =
        header.size >= size_of::<CollConfig>() && unsafe { !(*config).launch_completion.is_null() };
    if told {
        return Err(Failure::usage(
            "cannot record an event when a kernel is launched: nothing here does; leave launchCompletionEvent empty, and record one behind the call",
        )
        .unserved());
    }
    Ok(())
}

/// What a call's stream is to `libantiphon.so`.
///
/// # Safety
/// The stream is one of the communicator's device, where that is a device.
unsafe fn stream_of(
    library: &'static Library,
    communicator: &Communicator,
    stream: Stream,
) -> Result<CallStream> {
    if !way::place().is_device() {
        return Ok(CallStream::none(library));
    }
    // SAFETY: as this function's.
    unsafe { CallStream::adopt(library, communicator.end, stream) }
}

macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $type:ty),*)
            = $function:ident($($passed:expr),*) with ($($converted:ident = $conversion:expr),*);
    )*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As NCCL's.
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($argument: $type,)* comm: Comm, stream: Stream) -> Result<()> {
            part(|| {
                // SAFETY: as this function's.
                let communicator = unsafe { usable(comm)? };
                let library = library()?;
                $(let $converted = $conversion?;)*
                // SAFETY: as this function's.
                let stream = unsafe { stream_of(library, &communicator, stream)? };
                // SAFETY: the handles live; the rest is as this function's contract says.
                library.outcome(unsafe {
                    (library.$function)(communicator.end, $($passed,)* stream.handle)
                })?;
                gathered(&communicator);
                Ok(())
            })
        }
    )*};
}

calls! {
    /// `ncclAllReduce`.
    all_reduce(send: *const c_void, receive: *mut c_void, count: usize, dtype: c_int, op: c_int)
        = antiphon_all_reduce(send, receive, count as u64, dtype, op)
        with (dtype = data_type(dtype), op = operation(op));
    /// `ncclReduceScatter`.
    reduce_scatter(send: *const c_void, receive: *mut c_void, count: usize, dtype: c_int, op: c_int)
        = antiphon_reduce_scatter(send, receive, count as u64, dtype, op)
        with (dtype = data_type(dtype), op = operation(op));
    /// `ncclReduce`.
    reduce(send: *const c_void, receive: *mut c_void, count: usize, dtype: c_int, op: c_int, root: c_int)
        = antiphon_reduce(send, receive, count as u64, dtype, op, root)
        with (dtype = data_type(dtype), op = operation(op), root = rank(root, "a root"));
    /// `ncclAllGather`.
    all_gather(send: *const c_void, receive: *mut c_void, count: usize, dtype: c_int)
        = antiphon_all_gather(send, receive, count as u64, dtype)
        with (dtype = data_type(dtype));
    /// `ncclAlltoAll`.
    all_to_all(send: *const c_void, receive: *mut c_void, count: usize, dtype: c_int)
        = antiphon_all_to_all(send, receive, count as u64, dtype)
        with (dtype = data_type(dtype));
    /// `ncclBroadcast`.
    broadcast(send: *const c_void, receive: *mut c_void, count: usize, dtype: c_int, root: c_int)
        = antiphon_broadcast(send, receive, count as u64, dtype, root)
        with (dtype = data_type(dtype), root = rank(root, "a root"));
    /// `ncclGather`.
    gather(send: *const c_void, receive: *mut c_void, count: usize, dtype: c_int, root: c_int)
        = antiphon_gather(send, receive, count as u64, dtype, root)
        with (dtype = data_type(dtype), root = rank(root, "a root"));
    /// `ncclScatter`.
    scatter(send: *const c_void, receive: *mut c_void, count: usize, dtype: c_int, root: c_int)
        = antiphon_scatter(send, receive, count as u64, dtype, root)
        with (dtype = data_type(dtype), root = rank(root, "a root"));
    /// `ncclSend`.
    send(buffer: *const c_void, count: usize, dtype: c_int, peer: c_int)
        = antiphon_send(buffer, count as u64, dtype, peer)
        with (dtype = data_type(dtype), peer = rank(peer, "a peer"));
    /// `ncclRecv`.
    receive(buffer: *mut c_void, count: usize, dtype: c_int, peer: c_int)
        = antiphon_receive(buffer, count as u64, dtype, peer)
        with (dtype = data_type(dtype), peer = rank(peer, "a peer"));
}

/// RCCL's `ncclAllToAllv`: counts and displacements are in elements, an array element for each rank.
///
/// # Safety
/// As RCCL's.
#[allow(clippy::too_many_arguments)]
pub unsafe fn all_to_all_v(
    send: *const c_void,
    send_counts: *const usize,
    send_offsets: *const usize,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_offsets: *const usize,
    dtype: c_int,
    comm: Comm,
    stream: Stream,
) -> Result<()> {
    const { assert!(size_of::<usize>() == size_of::<u64>()) }
    part(|| {
        // SAFETY: as this function's.
        let communicator = unsafe { usable(comm)? };
        let (library, dtype) = (library()?, data_type(dtype)?);
        // SAFETY: as this function's.
        let stream = unsafe { stream_of(library, &communicator, stream)? };
        // SAFETY: as this function's.
        library.outcome(unsafe {
            (library.antiphon_all_to_all_v)(
                communicator.end,
                send,
                send_counts.cast(),
                send_offsets.cast(),
                receive,
                receive_counts.cast(),
                receive_offsets.cast(),
                dtype,
                stream.handle,
            )
        })?;
        gathered(&communicator);
        Ok(())
    })
}

/// Makes a premultiplied sum.
///
/// # Safety
/// As NCCL's.
pub unsafe fn premultiplied_sum(
    out: *mut c_int,
    scalar: *const c_void,
    dtype: c_int,
    residence: c_int,
    comm: Comm,
) -> Result<()> {
    let (out, library) = (place(out, "op")?, library()?);
    // SAFETY: as this function's.
    let communicator = unsafe { usable(comm)? };
    // As antiphon_switch: a scalar on the device is read when a call runs, one on the host at once.
    let deferred = match residence {
        0 => 1,
        1 => 2,
        _ => {
            let text = format!("cannot read a scalar: saw residence {residence}, allowed 0 and 1");
            return Err(Failure::argument(text));
        }
    };
    let own = data_type(dtype)?;
    // SAFETY: the handle lives; the rest is as this function's contract says.
    library.outcome(unsafe {
        (library.antiphon_op_create_scaled_sum)(communicator.end, scalar, own, deferred, out)
    })?;
    // SAFETY: it was written above, and the scalar has an element of the type.
    unsafe { communicator.sums.keep(*out, scalar, (dtype, element(dtype)), residence) };
    Ok(())
}

/// Destroys a premultiplied sum, also of a communicator that makes no calls.
///
/// # Safety
/// As NCCL's.
pub unsafe fn destroy_op(op: c_int, comm: Comm) -> Result<()> {
    let library = library()?;
    // SAFETY: as this function's.
    let communicator = unsafe { known(comm)? };
    // SAFETY: the handle lives.
    library.outcome(unsafe { (library.antiphon_op_destroy)(communicator.end, op) })?;
    communicator.sums.forget(op);
    Ok(())
}
