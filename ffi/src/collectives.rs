//! Collectives by name for C.

use crate::communicator::antiphon_communicator;
use crate::entry::{entry, list};
use crate::group::{alone, grouped};
use crate::handle::borrow;
use crate::ops::{ANY, operation};
use crate::result::{Failure, antiphon_result};
use crate::stream::{antiphon_stream, queue};
use crate::types::data_type;
use antiphon_executor::{Collectives, Counts, Extent, Request, What};
use std::ffi::c_void;

/// The arguments of one call, as C gives them.
struct Said {
    communicator: *const antiphon_communicator,
    what: What,
    send_buffer: *const c_void,
    receive_buffer: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
    stream: *const antiphon_stream,
}

/// # Safety
/// As the functions of this file.
unsafe fn call(said: &Said) -> antiphon_result {
    grouped(|group| {
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(said.communicator)? };
        // SAFETY: as this function's.
        let queue = unsafe { queue(said.stream)? };
        let dtype = data_type(said.dtype)?;
        let (op, factor) = operation(said.communicator, dtype, said.op)?;
        let request = Request {
            what: said.what,
            input: said.send_buffer.cast(),
            output: said.receive_buffer.cast(),
            count: said.count,
            dtype,
            op,
            factor,
        };
        match group {
            // SAFETY: as this function's.
            Some(group) => unsafe { group.call(collectives, &request, queue)? },
            // SAFETY: as this function's.
            None => unsafe { collectives.call(&request, queue)? },
        }
        Ok(())
    })
}

/// Returns once all ranks have called it. Calls on streams may still be under way. It is refused inside a group
/// (ANTIPHON_RESULT_UNSUPPORTED).
///
/// Any thread may call it, in the same order on all ranks.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_barrier(
    communicator: *const antiphon_communicator,
) -> antiphon_result {
    entry(|| {
        alone("wait at a barrier")?;
        // SAFETY: as this function's.
        Ok(unsafe { borrow::<Collectives>(communicator)? }.communicator().barrier()?)
    })
}

/// Gives every rank the reduction of all ranks' `count` elements. Each rank may call in place, with the same buffer for both.
///
/// `dtype` is an antiphon_dtype, `op` an antiphon_op or made for the communicator. With a stream the call runs in stream order,
/// and may still be under way on return; with null for the stream it is complete on return. Any thread may call it, in the same
/// order on all ranks.
///
/// # Safety
/// Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
/// the call's alone, until it is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_all_reduce(
    communicator: *const antiphon_communicator,
    send_buffer: *const c_void,
    receive_buffer: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
    stream: *const antiphon_stream,
) -> antiphon_result {
    // SAFETY: as this function's.
    unsafe {
        call(&Said {
            communicator,
            what: What::AllReduce,
            send_buffer,
            receive_buffer,
            count,
            dtype,
            op,
            stream,
        })
    }
}

/// Gives every rank the `count` elements of all, in rank order: the receive buffer has `count` for each rank. Each rank may
/// call in place: then the send buffer is the rank's block of the receive buffer.
///
/// `dtype` is an antiphon_dtype, `stream` as in antiphon_all_reduce. Any thread may call it, in one order on all ranks.
///
/// # Safety
/// Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
/// the call's alone, until it is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_all_gather(
    communicator: *const antiphon_communicator,
    send_buffer: *const c_void,
    receive_buffer: *mut c_void,
    count: u64,
    dtype: i32,
    stream: *const antiphon_stream,
) -> antiphon_result {
    // SAFETY: as this function's.
    unsafe {
        call(&Said {
            communicator,
            what: What::AllGather,
            send_buffer,
            receive_buffer,
            count,
            dtype,
            op: ANY,
            stream,
        })
    }
}

/// Gives rank r the reduction of all ranks' block r of `count` elements: the send buffer has `count` for each rank. Each rank
/// may call in place: then the receive buffer is the rank's block of the send buffer.
///
/// `dtype` is an antiphon_dtype, `op` an antiphon_op or made for the communicator, `stream` as for antiphon_all_reduce.
/// Any thread may call it, in the same order on all ranks.
///
/// # Safety
/// Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
/// the call's alone, until it is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_reduce_scatter(
    communicator: *const antiphon_communicator,
    send_buffer: *const c_void,
    receive_buffer: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
    stream: *const antiphon_stream,
) -> antiphon_result {
    // SAFETY: as this function's.
    unsafe {
        call(&Said {
            communicator,
            what: What::ReduceScatter,
            send_buffer,
            receive_buffer,
            count,
            dtype,
            op,
            stream,
        })
    }
}

/// Exchanges blocks: block r of rank s becomes block s of rank r. Both buffers have `count` elements for each rank. Either all
/// ranks call in place, with the same buffer for both, or none does.
///
/// `dtype` is an antiphon_dtype, `stream` as in antiphon_all_reduce. Any thread may call it, in one order on all ranks.
///
/// # Safety
/// Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
/// the call's alone, until it is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_all_to_all(
    communicator: *const antiphon_communicator,
    send_buffer: *const c_void,
    receive_buffer: *mut c_void,
    count: u64,
    dtype: i32,
    stream: *const antiphon_stream,
) -> antiphon_result {
    // SAFETY: as this function's.
    unsafe {
        call(&Said {
            communicator,
            what: What::AllToAll,
            send_buffer,
            receive_buffer,
            count,
            dtype,
            op: ANY,
            stream,
        })
    }
}

/// Gives every rank the `count` elements of the root. Only the root's send buffer is used; other ranks may pass null for it. The
/// root's send buffer may be its receive buffer.
///
/// `dtype` is an antiphon_dtype, `stream` as in antiphon_all_reduce. Any thread may call it, in one order on all ranks.
///
/// # Safety
/// Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
/// the call's alone, until it is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_broadcast(
    communicator: *const antiphon_communicator,
    send_buffer: *const c_void,
    receive_buffer: *mut c_void,
    count: u64,
    dtype: i32,
    root: u32,
    stream: *const antiphon_stream,
) -> antiphon_result {
    // SAFETY: as this function's.
    unsafe {
        call(&Said {
            communicator,
            what: What::Broadcast { root },
            send_buffer,
            receive_buffer,
            count,
            dtype,
            op: ANY,
            stream,
        })
    }
}

/// Gives the root the reduction of all ranks' `count` elements. Only the root's receive buffer is used; other ranks may pass null
/// for it. The root's receive buffer may be its send buffer.
///
/// `dtype` is an antiphon_dtype, `op` an antiphon_op or made for the communicator, `stream` as for antiphon_all_reduce.
/// Any thread may call it, in the same order on all ranks.
///
/// # Safety
/// Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
/// the call's alone, until it is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_reduce(
    communicator: *const antiphon_communicator,
    send_buffer: *const c_void,
    receive_buffer: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
    root: u32,
    stream: *const antiphon_stream,
) -> antiphon_result {
    // SAFETY: as this function's.
    unsafe {
        call(&Said {
            communicator,
            what: What::Reduce { root },
            send_buffer,
            receive_buffer,
            count,
            dtype,
            op,
            stream,
        })
    }
}

/// Gives the root the `count` elements of all, in rank order. Only the root's receive buffer is used; it holds `count` elements for
/// each rank. Other ranks may pass null for it. The root's send buffer may be its own block of its receive buffer.
///
/// `dtype` is an antiphon_dtype, `stream` as in antiphon_all_reduce. Any thread may call it, in one order on all ranks.
///
/// # Safety
/// Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
/// the call's alone, until it is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_gather(
    communicator: *const antiphon_communicator,
    send_buffer: *const c_void,
    receive_buffer: *mut c_void,
    count: u64,
    dtype: i32,
    root: u32,
    stream: *const antiphon_stream,
) -> antiphon_result {
    // SAFETY: as this function's.
    unsafe {
        call(&Said {
            communicator,
            what: What::Gather { root },
            send_buffer,
            receive_buffer,
            count,
            dtype,
            op: ANY,
            stream,
        })
    }
}

/// Gives rank r block r, of `count` elements, of the root. Only the root's send buffer is used; it holds `count` elements for each
/// rank. Other ranks may pass null for it. The root's receive buffer may be its own block of its send buffer.
///
/// `dtype` is an antiphon_dtype, `stream` as in antiphon_all_reduce. Any thread may call it, in one order on all ranks.
///
/// # Safety
/// Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
/// the call's alone, until it is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_scatter(
    communicator: *const antiphon_communicator,
    send_buffer: *const c_void,
    receive_buffer: *mut c_void,
    count: u64,
    dtype: i32,
    root: u32,
    stream: *const antiphon_stream,
) -> antiphon_result {
    // SAFETY: as this function's.
    unsafe {
        call(&Said {
            communicator,
            what: What::Scatter { root },
            send_buffer,
            receive_buffer,
            count,
            dtype,
            op: ANY,
            stream,
        })
    }
}

/// The names of the arrays that describe blocks.
const SEND: [&str; 2] = ["send_counts", "send_offsets"];
const RECEIVE: [&str; 2] = ["receive_counts", "receive_offsets"];

/// The blocks that C's arrays of `world` counts and `world` offsets describe, and how many elements the buffer must have.
///
/// # Safety
/// Each is null or has `world` elements.
unsafe fn extents(
    counts: *const u64,
    offsets: *const u64,
    world: u32,
    names: [&str; 2],
) -> Result<(Vec<Extent>, u64), Failure> {
    // SAFETY: as this function's.
    let (counts, offsets) =
        unsafe { (list(counts, world.into(), names[0])?, list(offsets, world.into(), names[1])?) };
    // The offset of an empty block does not count: the buffer need not reach there.
    let block =
        |(&offset, &count)| if count == 0 { Extent::default() } else { Extent { offset, count } };
    let blocks: Vec<Extent> = offsets.iter().zip(counts).map(block).collect();
    let ends = blocks.iter().map(Extent::end).collect::<Option<Vec<_>>>();
    let ends = ends.ok_or_else(|| {
        Failure::argument(format!("cannot use `{}`: they end beyond all memory", names[0]))
    })?;
    Ok((blocks, ends.into_iter().max().unwrap_or(0)))
}

/// Exchanges blocks whose lengths may differ: this rank sends rank r the `send_counts[r]` elements that begin at element
/// `send_offsets[r]`, and receives `receive_counts[r]` elements from rank r, which go to element `receive_offsets[r]` and on.
/// Sender and receiver must give the same count. The arrays have an element for each rank, and are read before the call
/// returns. The offset of an empty block does not count. The call is out of place.
///
/// `dtype` is an antiphon_dtype, `stream` as in antiphon_all_reduce. Any thread may call it, in one order on all ranks.
///
/// # Safety
/// Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
/// the call's alone, until it is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_all_to_all_v(
    communicator: *const antiphon_communicator,
    send_buffer: *const c_void,
    send_counts: *const u64,
    send_offsets: *const u64,
    receive_buffer: *mut c_void,
    receive_counts: *const u64,
    receive_offsets: *const u64,
    dtype: i32,
    stream: *const antiphon_stream,
) -> antiphon_result {
    grouped(|group| {
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(communicator)? };
        // SAFETY: as this function's.
        let queue = unsafe { queue(stream)? };
        let world = collectives.communicator().world();
        // SAFETY: the arrays have an element for each rank.
        let (send, sent) = unsafe { extents(send_counts, send_offsets, world, SEND)? };
        // SAFETY: as above.
        let (receive, received) =
            unsafe { extents(receive_counts, receive_offsets, world, RECEIVE)? };
        let counts = Counts { send: &send, receive: &receive };
        let at = (send_buffer.cast(), receive_buffer.cast());
        let (sizes, dtype) = ((sent, received), data_type(dtype)?);
        match group {
            // SAFETY: as this function's.
            Some(group) => unsafe {
                group.all_to_all_v(collectives, at, sizes, counts, dtype, queue)?;
            },
            // SAFETY: as this function's.
            None => unsafe { collectives.all_to_all_v(at, sizes, counts, dtype, queue)? },
        }
        Ok(())
    })
}

/// Gives every rank the elements of all, where ranks may send different numbers of elements: all `count` elements of this
/// rank's send buffer go to every rank, and the `receive_counts[r]` elements of rank r go to element `receive_offsets[r]` and
/// on. The arrays have an element for each rank, and are read before the call returns; the element of `receive_counts` for this
/// rank is `count`. The offset of an empty block does not count. On each rank the send buffer may be the rank's block of the
/// receive buffer.
///
/// `dtype` is an antiphon_dtype, `stream` as in antiphon_all_reduce. Any thread may call it, in one order on all ranks.
///
/// # Safety
/// Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
/// the call's alone, until it is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_all_gather_v(
    communicator: *const antiphon_communicator,
    send_buffer: *const c_void,
    count: u64,
    receive_buffer: *mut c_void,
    receive_counts: *const u64,
    receive_offsets: *const u64,
    dtype: i32,
    stream: *const antiphon_stream,
) -> antiphon_result {
    grouped(|group| {
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(communicator)? };
        // SAFETY: as this function's.
        let queue = unsafe { queue(stream)? };
        let world = collectives.communicator().world();
        // SAFETY: the arrays have an element for each rank.
        let (receive, received) =
            unsafe { extents(receive_counts, receive_offsets, world, RECEIVE)? };
        let at = (send_buffer.cast(), receive_buffer.cast());
        let (sizes, dtype) = ((count, received), data_type(dtype)?);
        match group {
            // SAFETY: as this function's.
            Some(group) => unsafe {
                group.all_gather_v(collectives, at, sizes, &receive, dtype, queue)?;
            },
            // SAFETY: as this function's.
            None => unsafe { collectives.all_gather_v(at, sizes, &receive, dtype, queue)? },
        }
        Ok(())
    })
}

/// Sends `count` elements to a peer, which calls antiphon_receive with the same count and type; the other ranks take no part.
/// Without a stream it returns when the peer has received, so ranks that send to each other must do it in a group
/// (antiphon_group_begin), or on streams. Transfers from one rank to another arrive in order. On a device the first one waits,
/// also on a stream, until the two ranks have formed a queue of their own; that needs the peer's process, but not its call. A
/// rank may send to itself only inside a group.
///
/// `dtype` is an antiphon_dtype, `stream` as for antiphon_all_reduce. Any thread may call it, in the same order among
/// the transfers from one rank to the other.
///
/// # Safety
/// Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
/// the call's alone, until it is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_send(
    communicator: *const antiphon_communicator,
    send_buffer: *const c_void,
    count: u64,
    dtype: i32,
    peer: u32,
    stream: *const antiphon_stream,
) -> antiphon_result {
    grouped(|group| {
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(communicator)? };
        // SAFETY: as this function's.
        let queue = unsafe { queue(stream)? };
        let dtype = data_type(dtype)?;
        let at = send_buffer.cast();
        match group {
            // SAFETY: as this function's.
            Some(group) => unsafe { group.send(collectives, at, count, dtype, peer, queue)? },
            // SAFETY: as this function's.
            None => unsafe { collectives.send(at, count, dtype, peer, queue)? },
        }
        Ok(())
    })
}

/// Receives `count` elements from a peer, which calls antiphon_send.
///
/// `dtype` is an antiphon_dtype, `stream` as for antiphon_all_reduce. Any thread may call it, in the same order among
/// the transfers from one rank to the other.
///
/// # Safety
/// Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
/// the call's alone, until it is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_receive(
    communicator: *const antiphon_communicator,
    receive_buffer: *mut c_void,
    count: u64,
    dtype: i32,
    peer: u32,
    stream: *const antiphon_stream,
) -> antiphon_result {
    grouped(|group| {
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(communicator)? };
        // SAFETY: as this function's.
        let queue = unsafe { queue(stream)? };
        let dtype = data_type(dtype)?;
        let at = receive_buffer.cast();
        match group {
            // SAFETY: as this function's.
            Some(group) => unsafe { group.receive(collectives, at, count, dtype, peer, queue)? },
            // SAFETY: as this function's.
            None => unsafe { collectives.receive(at, count, dtype, peer, queue)? },
        }
        Ok(())
    })
}
