//! Communicators for C.

use crate::config::{antiphon_config, asked, interface_asked, options, with_interface};
use crate::entry::{Out, entry, text, words, write_text};
use crate::handle::{borrow, drop_own, issue, object, take};
use crate::ops;
use crate::result::{Failure, antiphon_result, code, remember};
use antiphon_executor::{Collectives, Communicator, ExecutorError, UniqueId};
use std::borrow::Cow;
use std::ffi::{c_char, c_void};

/// One rank's end of a group of ranks that make calls together.
pub struct antiphon_communicator {
    _private: [u8; 0],
}

object!(Collectives, antiphon_communicator, b"antiComm", "a communicator");

/// The most bytes that [`antiphon_communicator_exchange`] takes from a rank; the ranks' control messages can carry far more.
const MOST_EXCHANGED: u64 = 1 << 16;

/// Bytes of an antiphon_unique_id.
pub const ANTIPHON_UNIQUE_ID_BYTES: usize = 128;

/// What the ranks of a group agree on before they meet: one process makes it, and the program carries its bytes to the others
/// by any means of its own. It holds a secret: whoever has it can join.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct antiphon_unique_id {
    /// A text that ends with a zero.
    pub bytes: [c_char; ANTIPHON_UNIQUE_ID_BYTES],
}

impl antiphon_unique_id {
    fn of(id: &UniqueId) -> Result<Self, Failure> {
        let text = id.to_string();
        let mut bytes = [0; ANTIPHON_UNIQUE_ID_BYTES];
        if text.len() >= bytes.len() {
            let length = text.len();
            return Err(Failure::new(
                antiphon_result::Internal,
                format!("an id has {length} bytes"),
            ));
        }
        for (byte, &from) in bytes.iter_mut().zip(text.as_bytes()) {
            *byte = from as c_char;
        }
        Ok(antiphon_unique_id { bytes })
    }

    fn id(&self) -> Result<UniqueId, Failure> {
        let bytes = self.bytes.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0);
        let text = String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned();
        text.parse().map_err(|error| Failure::argument(format!("{error}")))
    }
}

/// The id that a caller means.
///
/// # Safety
/// It is null or valid.
unsafe fn id_at(id: *const antiphon_unique_id) -> Result<UniqueId, Failure> {
    // SAFETY: as this function's.
    let id = unsafe { id.as_ref() };
    id.ok_or_else(|| Failure::argument("cannot read `id`: saw null, allowed an id"))?.id()
}

pub(crate) fn handle(communicator: &Communicator) -> Result<*mut antiphon_communicator, Failure> {
    Ok(issue(Collectives::new(communicator)?))
}

/// Makes the id of a group. From now on, and until all ranks have joined, this process listens for them on a thread of the
/// library. It may be the process of any rank, or of none, and must run until then. It listens at the interface that
/// ANTIPHON_INTERFACE names, or else MSCCLPP_SOCKET_IFNAME, or else NCCL_SOCKET_IFNAME in NCCL's grammar; if none is set, it
/// chooses an interface by which others are likely to reach the host.
///
/// Any thread may call it at any time.
///
/// # Safety
/// `out_id` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_unique_id_create(
    out_id: *mut antiphon_unique_id,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_id, "out_id")?;
        let id = UniqueId::create(interface_asked()?.as_deref())
            .map_err(|error| Failure::new(antiphon_result::Rendezvous, error.to_string()))?;
        let id = antiphon_unique_id::of(&id)?;
        // SAFETY: as this function's.
        unsafe { out.set(id) };
        Ok(())
    })
}

/// Makes this process stop listening for the ranks of an id that it has made. Call it if no rank will join by the id. It does
/// nothing for other ids, and for those by which rank 0 has joined in this process.
///
/// Any thread may call it at any time.
///
/// # Safety
/// `id` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_unique_id_retire(
    id: *const antiphon_unique_id,
) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        unsafe { id_at(id)? }.retire();
        Ok(())
    })
}

/// Joins a group as `rank` of `world`: returns when all ranks, which pass the same id, are there. `config` may be null.
///
/// Ranks wait for each other as long as a call may make no progress (`timeout_ms`), but at least two minutes; then it fails
/// with ANTIPHON_RESULT_TIMEOUT, or with ANTIPHON_RESULT_RENDEZVOUS where more is known, and names the missing ranks. If nobody
/// answers at the id's address, because the process that made the id has ended, it fails with ANTIPHON_RESULT_RENDEZVOUS after
/// a minute, or after `timeout_ms` if that is longer; if there is no time limit, also after a minute.
///
/// Any thread may call it; ranks that live in one process must each call it from a thread of their own.
///
/// # Safety
/// The pointers are null or valid; the configuration is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_create(
    id: *const antiphon_unique_id,
    rank: u32,
    world: u32,
    config: *const antiphon_config,
    out_communicator: *mut *mut antiphon_communicator,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_communicator, "out_communicator")?;
        // SAFETY: as this function's.
        let (id, options) = unsafe { (id_at(id)?, options(config)?) };
        let options = with_interface(options)?;
        let handle = handle(&Communicator::from_id(&id, rank, world, &options)?)?;
        // SAFETY: as this function's.
        unsafe { out.set(handle) };
        Ok(())
    })
}

/// Joins a group as `rank` of `world` at a place, a text as in ANTIPHON_COMM_ID: "host:port", "interface:ip:port",
/// "file:/path". Returns when all ranks, which pass the same place, are there. Over TCP ranks prove that they know a secret,
/// which ANTIPHON_SECRET or ANTIPHON_SECRET_FILE gives. `config` may be null.
///
/// It waits for the other ranks as long as ANTIPHON_TIMEOUT says; if that is not set, as long as a call may make no progress
/// (`timeout_ms`), but at least two minutes. Then it fails with ANTIPHON_RESULT_TIMEOUT or ANTIPHON_RESULT_RENDEZVOUS, and
/// antiphon_last_error names the missing ranks as far as they are known.
///
/// Any thread may call it; only one group at a time may meet at a place.
///
/// # Safety
/// The pointers are null or valid; the place ends with a zero; the configuration is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_create_at(
    place: *const c_char,
    rank: u32,
    world: u32,
    config: *const antiphon_config,
    out_communicator: *mut *mut antiphon_communicator,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_communicator, "out_communicator")?;
        // SAFETY: as this function's.
        let place = unsafe { text(place, "place")? };
        // SAFETY: as this function's.
        let options = unsafe { options(config)? };
        let handle = handle(&Communicator::from_place(place, rank, world, &options)?)?;
        // SAFETY: as this function's.
        unsafe { out.set(handle) };
        Ok(())
    })
}

/// Joins the group whose ranks a launcher started (torchrun, mpirun, srun), or that the variables ANTIPHON_RANK,
/// ANTIPHON_WORLD and ANTIPHON_COMM_ID describe; ANTIPHON_WORLD=1 alone is a group of one rank. `config` may be null.
///
/// It waits for the other ranks as long as ANTIPHON_TIMEOUT says; if that is not set, two minutes. Then it fails with
/// ANTIPHON_RESULT_TIMEOUT or ANTIPHON_RESULT_RENDEZVOUS, and antiphon_last_error names the missing ranks as far as they are known. If
/// the environment describes no group, it fails with ANTIPHON_RESULT_INVALID_ARGUMENT.
///
/// Call it once per process, from any thread.
///
/// # Safety
/// As antiphon_communicator_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_create_from_environment(
    config: *const antiphon_config,
    out_communicator: *mut *mut antiphon_communicator,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_communicator, "out_communicator")?;
        // SAFETY: as this function's.
        let options = unsafe { options(config)? };
        let handle = handle(&Communicator::from_environment(&options)?)?;
        // SAFETY: as this function's.
        unsafe { out.set(handle) };
        Ok(())
    })
}

/// Makes a group of `world` ranks that all live in this process, and writes their communicators, in rank order, to an
/// array of that many. Each may be used by a thread of its own, or one thread may drive them all by calls on streams. `config`
/// may be null.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The configuration is as long as it says; `out_communicators` is null or has room for `world`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_create_in_process(
    world: u32,
    config: *const antiphon_config,
    out_communicators: *mut *mut antiphon_communicator,
) -> antiphon_result {
    entry(|| {
        Out::new(out_communicators, "out_communicators")?;
        // SAFETY: as this function's.
        let (options, devices) = unsafe { asked(config)? };
        Communicator::check_in_process(world)?;
        let ends = match devices.each(world)? {
            None => Communicator::in_process(world, &options)?,
            Some(devices) => Communicator::in_process_over(&devices, &options)?,
        };
        let ends = ends.iter().map(Collectives::new).collect::<Result<Vec<_>, _>>()?;
        for (rank, end) in ends.into_iter().enumerate() {
            // SAFETY: there is room for as many as there are ranks.
            unsafe { out_communicators.wrapping_add(rank).write(issue(end)) };
        }
        Ok(())
    })
}

/// Writes the rank of a communicator.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_rank` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_rank(
    communicator: *const antiphon_communicator,
    out_rank: *mut u32,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_rank, "out_rank")?;
        // SAFETY: as this function's.
        let rank = unsafe { borrow::<Collectives>(communicator)? }.communicator().rank();
        // SAFETY: as this function's.
        unsafe { out.set(rank) };
        Ok(())
    })
}

/// Writes the number of ranks of a communicator.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_world` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_world(
    communicator: *const antiphon_communicator,
    out_world: *mut u32,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_world, "out_world")?;
        // SAFETY: as this function's.
        let world = unsafe { borrow::<Collectives>(communicator)? }.communicator().world();
        // SAFETY: as this function's.
        unsafe { out.set(world) };
        Ok(())
    })
}

/// Writes the name of a communicator and a zero into a buffer of `capacity` bytes, and the number of bytes to `out_bytes`: that of
/// its configuration, or what it was split or made with, or has of its parent. Without a name the text is empty. With a null buffer
/// and a capacity of 0 it writes only the number of bytes, which is 129 at most. If the buffer is too small, it fails with
/// ANTIPHON_RESULT_BUFFER_TOO_SMALL.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; the buffer is null or has `capacity`
/// bytes, `out_bytes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_name(
    communicator: *const antiphon_communicator,
    buffer: *mut c_char,
    capacity: u64,
    out_bytes: *mut u64,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_bytes, "out_bytes")?;
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(communicator)? };
        let name = collectives.communicator().name().unwrap_or_default();
        // SAFETY: as this function's.
        unsafe { write_text(name, "a name", buffer, capacity, out) }
    })
}

/// Writes the number of the node that a rank is on: ranks with equal numbers map each other's memory.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_node` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_node(
    communicator: *const antiphon_communicator,
    rank: u32,
    out_node: *mut u32,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_node, "out_node")?;
        // SAFETY: as this function's.
        let node = unsafe { borrow::<Collectives>(communicator)? }.communicator().node_of(rank)?;
        // SAFETY: as this function's.
        unsafe { out.set(node) };
        Ok(())
    })
}

/// Gives every rank the bytes of all ranks, in rank order. Each rank gives `bytes` bytes at `own`, equally many on all ranks,
/// and `out_all` has room for those of all ranks; both are host memory. They take the way by which the ranks met, whatever
/// device their buffers are on. It is for what programs agree on, not for data: at most 64 KiB of each rank. Complete on
/// return.
///
/// It fails with ANTIPHON_RESULT_MISMATCH on all ranks if one gave another number of bytes, and with ANTIPHON_RESULT_PEER_LOST
/// if one has destroyed its communicator. Any other failure breaks the communicator: ANTIPHON_RESULT_TIMEOUT if a rank did not
/// come, and, between nodes, ANTIPHON_RESULT_MISMATCH if one is in a barrier.
///
/// Any thread may call it, in the same order among a communicator's exchanges, splits and barriers on all ranks.
///
/// # Safety
/// The handle is one, or null; `own` is null or readable for `bytes`, `out_all` null or writable for `bytes` of each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_exchange(
    communicator: *const antiphon_communicator,
    own: *const c_void,
    bytes: u64,
    out_all: *mut c_void,
) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(communicator)? };
        if bytes > MOST_EXCHANGED {
            return Err(Failure::argument(format!(
                "cannot exchange {bytes} bytes of each rank: allowed {MOST_EXCHANGED}; send data by a collective"
            )));
        }
        let length = bytes as usize;
        if length > 0 && (own.is_null() || out_all.is_null()) {
            return Err(Failure::argument(format!(
                "cannot exchange {bytes} bytes: saw {own:p} and {out_all:p}, allowed addresses of `own` and `out_all`"
            )));
        }
        let own = match length {
            0 => &[][..],
            // SAFETY: readable for that many bytes, as this function's contract says.
            _ => unsafe { std::slice::from_raw_parts(own.cast::<u8>(), length) },
        };
        let all = collectives.communicator().exchange(own)?;
        if let Some(other) = all.iter().position(|theirs| theirs.len() != length) {
            let theirs = all[other].len();
            return Err(Failure::new(
                antiphon_result::Mismatch,
                format!(
                    "cannot exchange {bytes} bytes: rank {other} gave {theirs}, allowed as many on all ranks"
                ),
            ));
        }
        for (rank, theirs) in all.iter().enumerate() {
            // SAFETY: there is room for that many bytes of each rank, as this function's contract says.
            unsafe {
                let to = out_all.cast::<u8>().wrapping_add(rank * length);
                theirs.as_ptr().copy_to_nonoverlapping(to, length);
            }
        }
        Ok(())
    })
}

/// Makes the device of a communicator's buffers current on the calling thread and leaves it so, as cudaSetDevice and hipSetDevice do;
/// on the host it does nothing. Calls of this library do not need it: it is for other code that the thread calls.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_make_current(
    communicator: *const antiphon_communicator,
) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(communicator)? };
        let made = collectives.communicator().device().make_current();
        made.map_err(|error| ExecutorError::from(error).into())
    })
}

/// Ends every wait of every rank of a communicator; later calls fail with ANTIPHON_RESULT_ABORTED and this reason. The reason
/// may be null; bytes in it that are not UTF-8 are replaced. If the communicator was already broken, the earlier reason stays.
///
/// Any thread may call it at any time, also while others wait in calls on the communicator.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; the reason, if there is one, ends
/// with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_abort(
    communicator: *const antiphon_communicator,
    reason: *const c_char,
) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(communicator)? };
        // SAFETY: as this function's.
        let reason = unsafe { reason_of(collectives.communicator(), reason)? };
        collectives.abort(&reason);
        Ok(())
    })
}

/// The reason for which a communicator is aborted. Fails in a process that was forked from the one that made it.
///
/// # Safety
/// The reason is null, or ends with a zero.
pub(crate) unsafe fn reason_of<'a>(
    communicator: &Communicator,
    reason: *const c_char,
) -> Result<Cow<'a, str>, Failure> {
    if communicator.is_inherited() {
        return Err(Failure::argument(
            "cannot abort a communicator: saw one that was made before a fork, allowed in the process that made it",
        ));
    }
    Ok(match reason.is_null() {
        true => Cow::Borrowed("no reason given"),
        // SAFETY: as this function's.
        false => unsafe { words(reason) },
    })
}

/// Writes what broke a communicator, an antiphon_result, or ANTIPHON_RESULT_SUCCESS while it is whole. If it is broken,
/// antiphon_last_error and antiphon_last_error_peer have the details afterwards. Does not wait.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_result` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_async_error(
    communicator: *const antiphon_communicator,
    out_result: *mut antiphon_result,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_result, "out_result")?;
        // SAFETY: as this function's.
        let failure = unsafe { borrow::<Collectives>(communicator)? }.failure();
        if let Some(error) = &failure {
            remember(&error.to_string(), error.peer());
        }
        let result = failure.as_ref().map_or(antiphon_result::Success, code);
        // SAFETY: as this function's.
        unsafe { out.set(result) };
        Ok(())
    })
}

/// Tells the peers about a buffer now, so that they have mapped it before a launch first uses it; otherwise the first launch
/// that uses it tells them and waits, in its stream, until they have mapped it. This is a hint: calls can use any buffer.
/// Writes 1, or 0 if nothing is gained because the buffer is in memory that peers cannot map. On a GPU, memory of the
/// application stays mapped while it is among the 64 pieces that were used or registered last; memory of
/// antiphon_memory_allocate, there and on the host, stays mapped until it is freed.
///
/// Any thread may call it at any time; the peers need not call anything.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_mapped` is null or writable.
/// The buffer is not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_register(
    communicator: *const antiphon_communicator,
    buffer: *const c_void,
    bytes: u64,
    out_mapped: *mut i32,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_mapped, "out_mapped")?;
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(communicator)? };
        let mapped = collectives.communicator().register(buffer.cast(), bytes)?;
        // SAFETY: as this function's.
        unsafe { out.set(i32::from(mapped)) };
        Ok(())
    })
}

/// Writes 1 if all calls on a communicator are complete, on whatever streams, else 0. Replays of a graph count once they have
/// begun, and calls gathered in a group once the group has ended. antiphon_communicator_async_error tells whether one has
/// failed. It may still write 0 a moment after the last call is complete. Does not wait.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_done` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_query(
    communicator: *const antiphon_communicator,
    out_done: *mut i32,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_done, "out_done")?;
        // SAFETY: as this function's.
        let done = unsafe { borrow::<Collectives>(communicator)? }.is_complete();
        // SAFETY: as this function's.
        unsafe { out.set(i32::from(done)) };
        Ok(())
    })
}

/// Destroys a communicator. The rank leaves its group once the communicator's executors, plans and streams are destroyed too,
/// and the work that they were given is done. In a process that was forked from the one that made it, this destroys only the
/// handle: the communicator stays the parent's. Null is refused with ANTIPHON_RESULT_INVALID_HANDLE.
///
/// Any thread may call it, once, while no other call on the communicator is under way.
///
/// # Safety
/// The handle is null, or one that this library returned and that is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_communicator_destroy(
    communicator: *mut antiphon_communicator,
) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        unsafe { borrow::<Collectives>(communicator)? };
        // This must come before another communicator can get the same handle.
        ops::forget(communicator);
        // SAFETY: as this function's.
        let taken = unsafe { take::<Collectives>(communicator)? };
        drop_own(taken, |collectives| collectives.communicator());
        Ok(())
    })
}
