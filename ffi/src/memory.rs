//! Memory that peers map, for C.

use crate::communicator::antiphon_communicator;
use crate::device::named;
use crate::entry::{Out, entry, text};
use crate::handle::{borrow, issue, object, take};
use crate::result::antiphon_result;
use antiphon_executor::hal::{Backend, Memory, driver};
use antiphon_executor::{Collectives, ExecutorError, release};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// Memory that the ranks of this machine map: calls use it without a copy.
pub struct antiphon_memory {
    _private: [u8; 0],
}

pub(crate) struct Allocation(Arc<dyn Memory>);

object!(Allocation, antiphon_memory, b"antiMemo", "memory");

/// Allocates zeroed memory on a communicator's device. Calls of all communicators on that device may use any part of it; it
/// belongs to no communicator.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_memory` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_memory_allocate(
    communicator: *const antiphon_communicator,
    bytes: u64,
    out_memory: *mut *mut antiphon_memory,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_memory, "out_memory")?;
        // SAFETY: as this function's.
        let collectives = unsafe { borrow::<Collectives>(communicator)? };
        // Memory of no length would have no address.
        let memory = collectives.communicator().allocate(bytes.max(1))?;
        // SAFETY: as this function's.
        unsafe { out.set(issue(Allocation(memory))) };
        Ok(())
    })
}

/// Allocates zeroed memory of the host, without a communicator: calls of all communicators on the host may use any
/// part of it.
///
/// Any thread may call it at any time.
///
/// # Safety
/// `out_memory` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_memory_allocate_host(
    bytes: u64,
    out_memory: *mut *mut antiphon_memory,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_memory, "out_memory")?;
        let host = driver(Backend::Host).and_then(|driver| driver.open(0));
        let memory = host.and_then(|host| host.allocate(bytes.max(1)));
        let memory = memory.map_err(ExecutorError::from)?;
        // SAFETY: as this function's.
        unsafe { out.set(issue(Allocation(memory))) };
        Ok(())
    })
}

/// Allocates zeroed memory on a device, without a communicator: calls of all communicators on that device may use any part
/// of it, and so may kernels and copies on every other device of this process that can reach that device's memory. `device` is
/// a text as in antiphon_config.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The text is null or ends with a zero; `out_memory` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_memory_allocate_on(
    device: *const c_char,
    bytes: u64,
    out_memory: *mut *mut antiphon_memory,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_memory, "out_memory")?;
        // SAFETY: as this function's.
        let device = named(unsafe { text(device, "device")? })?;
        let memory = device.allocate_for_all(bytes.max(1)).map_err(ExecutorError::from)?;
        // SAFETY: as this function's.
        unsafe { out.set(issue(Allocation(memory))) };
        Ok(())
    })
}

/// Writes the address of memory.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_address` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_memory_address(
    memory: *const antiphon_memory,
    out_address: *mut *mut c_void,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_address, "out_address")?;
        // SAFETY: as this function's.
        let address = unsafe { borrow::<Allocation>(memory)? }.0.address();
        // SAFETY: as this function's.
        unsafe { out.set(address.cast()) };
        Ok(())
    })
}

/// Frees memory: at once, or, if launches of this process are under way on a GPU, when they are over. The call itself waits for
/// no kernel. Null is refused with ANTIPHON_RESULT_INVALID_HANDLE.
///
/// Any thread may call it, once, when no call of this rank uses the memory any more.
///
/// # Safety
/// The handle is null, or one that this library returned and that is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_memory_free(memory: *mut antiphon_memory) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        release(unsafe { take::<Allocation>(memory)? }.0);
        Ok(())
    })
}
