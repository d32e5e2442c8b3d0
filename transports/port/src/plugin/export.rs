//! The other side of the interface: a plugin written in Rust, from any [`WireDriver`].
//!
//! A plugin is a `cdylib` that says, once:
//!
//! ```
//! use antiphon_port::{WireDriver, WireError, export_wire};
//! use std::sync::Arc;
//!
//! /// Called when the plugin is loaded and for every end: cheap, and [`WireError::Unavailable`] where the wire cannot be used.
//! fn driver() -> Result<Arc<dyn WireDriver>, WireError> {
//!     Err(WireError::Unavailable {
//!         wire: "example".to_owned(),
//!         reason: "there is no such network".to_owned(),
//!         cure: "invent it".to_owned(),
//!     })
//! }
//!
//! export_wire!(c"example", driver);
//! ```
//!
//! No panic leaves a plugin: it becomes an error. Memory comes as a [`Memory`] of its own kind: with the number, address
//! and length that it has in the program, given back to it when the last reference is dropped, and not exportable, but for
//! memory of GPUs, which gives network cards the buffer that the program has exported.

use super::abi;
use crate::WireError;
use crate::wire::WireDriver;
use antiphon_hal::{Backend, DmaBuf, HalError, Memory, MemoryHandle};
use std::ffi::{CStr, c_char};
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

mod ends;
mod handles;
mod links;

/// What a plugin exports; [`export_wire!`](crate::export_wire) makes one.
pub trait Exported {
    /// The wire's name: 1 to 32 of a-z, 0-9, '-' and '_'.
    const NAME: &'static CStr;

    /// Makes the driver, or says why the wire cannot be used.
    ///
    /// # Errors
    /// [`WireError::Unavailable`].
    fn driver() -> Result<Arc<dyn WireDriver>, WireError>;
}

/// Exports a wire from a `cdylib`: its name (`c"tcp"`), and a function that makes its driver; see [`export`](self).
#[macro_export]
macro_rules! export_wire {
    ($name:expr, $driver:expr) => {
        const _: () = {
            struct Exported;
            impl $crate::plugin::export::Exported for Exported {
                const NAME: &'static ::core::ffi::CStr = $name;
                fn driver() -> ::core::result::Result<
                    ::std::sync::Arc<dyn $crate::WireDriver>,
                    $crate::WireError,
                > {
                    ($driver)()
                }
            }
            static TABLE: $crate::plugin::abi::Plugin = $crate::plugin::export::table::<Exported>();
            #[unsafe(no_mangle)]
            extern "C" fn antiphon_wire_plugin_v1() -> *const $crate::plugin::abi::Plugin {
                &raw const TABLE
            }
        };
    };
}

/// The table of a wire.
pub const fn table<E: Exported>() -> abi::Plugin {
    abi::Plugin {
        magic: abi::MAGIC,
        abi: abi::ABI,
        struct_bytes: size_of::<abi::Plugin>() as u32,
        name: E::NAME.as_ptr(),
        functions: abi::Functions {
            init: ends::init::<E>,
            wire_open: ends::wire_open::<E>,
            wire_close: ends::wire_close,
            wire_describe: ends::wire_describe,
            wire_reach: ends::wire_reach,
            memory_register: ends::memory_register,
            memory_deregister: ends::memory_deregister,
            opening_open: links::opening_open,
            opening_address: links::opening_address,
            opening_connect: links::opening_connect,
            opening_close: links::opening_close,
            link_accept: links::link_accept,
            link_retire: links::link_retire,
            link_write: links::link_write,
            link_signal: links::link_signal,
            link_posted: links::link_posted,
            link_completed: links::link_completed,
            link_progress: links::link_progress,
            link_descriptor: links::link_descriptor,
            link_arm: links::link_arm,
            link_stop: links::link_stop,
            link_describe: links::link_describe,
            link_close: links::link_close,
        },
        more: abi::More { memory_register_dma_buf: Some(ends::memory_register_dma_buf) },
    }
}

/// Memory of the program that loaded the plugin.
struct Lent {
    memory: abi::Memory,
    backend: Backend,
    /// Memory of a GPU as a buffer, whose descriptor the program keeps open as long as the memory.
    dma_buf: Option<abi::DmaBuf>,
    /// What to release in the end: one for every registration that succeeded.
    owed: Mutex<Vec<abi::Memory>>,
}

// SAFETY: a mapping, which any thread may use; `release` may be called on any thread.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    fn owe(&self, memory: abi::Memory) {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let abi::Memory { number, bytes, .. } = self.memory;
        f.debug_struct("Lent").field("number", &number).field("bytes", &bytes).finish()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let owed = self.owed.get_mut().unwrap_or_else(PoisonError::into_inner);
        for abi::Memory { keep, release, .. } in owed.drain(..) {
            if let Some(release) = release {
                // SAFETY: once for each registration, by the program's own function.
                unsafe { release(keep) }
            }
        }
    }
}

// SAFETY: the program that lends it vouches for it, until the registration is released.
unsafe impl Memory for Lent {
    fn backend(&self) -> Backend {
        self.backend
    }

    fn address(&self) -> *mut u8 {
        self.memory.address
    }

    fn len(&self) -> u64 {
        self.memory.bytes
    }

    fn id(&self) -> u64 {
        self.memory.number
    }

    fn export(&self) -> Result<MemoryHandle, HalError> {
        Err(HalError::Unsupported { op: "export memory from a wire plugin", backend: self.backend })
    }

    fn export_dma_buf(&self, offset: u64, bytes: u64) -> Result<DmaBuf, HalError> {
        let Some(whole) = self.dma_buf else {
            let op = "export memory for network cards from a wire plugin";
            return Err(HalError::Unsupported { op, backend: self.backend });
        };
        let what = "export memory for network cards";
        if bytes == 0 || offset.checked_add(bytes).is_none_or(|end| end > self.memory.bytes) {
            return Err(HalError::Invalid {
                what,
                saw: format!("{bytes} bytes at offset {offset}"),
                allowed: format!("1 or more, within {}", self.memory.bytes),
                cure: "pass a range of the memory",
            });
        }
        // SAFETY: the program keeps it open as long as the memory, which `self` owes it.
        let descriptor = unsafe { BorrowedFd::borrow_raw(whole.descriptor) };
        let descriptor = descriptor
            .try_clone_to_owned()
            .map_err(|source| HalError::System { what: what.to_owned(), source })?;
        Ok(DmaBuf::new(descriptor, whole.offset.saturating_add(offset)))
    }
}

/// Runs a function of the plugin's, and tells what went wrong.
///
/// # Safety
/// `error` is null or room for an error, as its `struct_bytes` says.
unsafe fn guarded(
    error: *mut abi::Error,
    function: impl FnOnce() -> Result<i32, WireError>,
) -> i32 {
    let (status, reason, cure) = match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(status)) => return status,
        Ok(Err(WireError::Unavailable { reason, cure, .. })) => (abi::UNAVAILABLE, reason, cure),
        Ok(Err(WireError::Unsupported { operation, .. })) => {
            (abi::UNSUPPORTED, operation.to_owned(), String::new())
        }
        Ok(Err(WireError::Invalid { saw, allowed, .. })) => (abi::INVALID, saw, allowed),
        Ok(Err(WireError::Lost { reason, .. })) => (abi::LOST, reason, String::new()),
        Ok(Err(WireError::System { operation, reason, .. })) => {
            (abi::SYSTEM, format!("{operation}: {reason}"), String::new())
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
            (abi::SYSTEM, format!("the plugin panicked: {text}"), String::new())
        }
    };
    // SAFETY: the caller's promise; the size comes first.
    unsafe {
        if !error.is_null() && (*error).struct_bytes as usize >= size_of::<abi::Error>() {
            fill(&mut (*error).reason, &reason);
            fill(&mut (*error).cure, &cure);
        }
    }
    status
}

/// Copies as much of a text as fits, with a zero at the end; how much that is without the zero.
fn fill(room: &mut [c_char], text: &str) -> usize {
    let Some(most) = room.len().checked_sub(1) else { return 0 };
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, byte) in room.iter_mut().zip(text.as_bytes()[..end].iter().chain(&[0])) {
        *to = *byte as c_char;
    }
    end
}

/// Gives a description as `snprintf` does.
///
/// # Safety
/// `text` is null or room for `capacity` bytes.
unsafe fn describe(text: *mut c_char, capacity: u64, description: &str) -> u64 {
    if !text.is_null() && capacity > 0 {
        // SAFETY: the caller's promise; cleared, as nothing says that it was ever written to.
        let room = unsafe {
            text.write_bytes(0, capacity as usize);
            std::slice::from_raw_parts_mut(text, capacity as usize)
        };
        fill(room, description);
    }
    description.len() as u64
}

/// Gives bytes.
///
/// # Safety
/// `bytes` is room for as many as it says.
unsafe fn give(
    bytes: *mut abi::Bytes,
    given: &[u8],
    operation: &'static str,
) -> Result<(), WireError> {
    // SAFETY: the caller's promise.
    let room = unsafe { &mut *bytes };
    if room.capacity < given.len() as u64 {
        let reason = format!("{} bytes do not fit into {}", given.len(), room.capacity);
        return Err(WireError::System { operation, wire: String::new(), reason });
    }
    // SAFETY: room for as many, by the caller's promise.
    unsafe { given.as_ptr().copy_to_nonoverlapping(room.data, given.len()) };
    room.length = given.len() as u64;
    Ok(())
}

/// A struct of the program's, if it is as long as this version's: all begin with their size.
///
/// # Safety
/// `pointer` is null or points to a struct of the interface, which is as long as its first field says, for `'a`.
unsafe fn read<'a, T>(pointer: *const T, operation: &'static str) -> Result<&'a T, WireError> {
    // SAFETY: the caller's promise.
    unsafe { bytes_of(pointer, size_of::<T>(), operation) }?;
    // SAFETY: as above, and long enough.
    Ok(unsafe { &*pointer })
}

/// A struct of the program's that has grown from version to version: `revisions` are its sizes in bytes, ascending. Fields
/// that the program does not know are zero, and so is a revision that it has only in part, since only whole revisions count.
///
/// # Safety
/// As [`read`]; and zeros are a value of each field of `T` behind the first revision.
unsafe fn read_grown<T: Copy>(
    pointer: *const T,
    revisions: &[usize],
    operation: &'static str,
) -> Result<T, WireError> {
    let least = revisions.first().copied().unwrap_or(size_of::<T>());
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes_of(pointer, least, operation) }?;
    let bytes = revisions.iter().copied().filter(|&known| known <= bytes).max().unwrap_or(least);
    let mut read = MaybeUninit::<T>::zeroed();
    // SAFETY: as many bytes as the program's struct has, and no more than there is room; the rest are zeros, which the
    // caller allows.
    unsafe {
        let room = read.as_mut_ptr().cast::<u8>();
        pointer.cast::<u8>().copy_to_nonoverlapping(room, bytes.min(size_of::<T>()));
        Ok(read.assume_init())
    }
}

/// How long a struct of the program's is, if that is at least `least` bytes.
///
/// # Safety
/// As [`read`].
unsafe fn bytes_of<T>(
    pointer: *const T,
    least: usize,
    operation: &'static str,
) -> Result<usize, WireError> {
    // SAFETY: the caller's promise.
    let bytes = if pointer.is_null() { 0 } else { unsafe { *pointer.cast::<u32>() } };
    let bytes = bytes as usize;
    if bytes < least {
        let saw = format!("an argument of {bytes} bytes");
        let allowed = format!("at least {least}");
        return Err(WireError::Invalid { operation, wire: String::new(), saw, allowed });
    }
    Ok(bytes)
}

/// Bytes that a caller gives.
///
/// # Safety
/// `data` is null, or points to as many bytes, for `'a`.
unsafe fn slice<'a>(data: *const u8, bytes: u64) -> &'a [u8] {
    if data.is_null() || bytes == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data, bytes as usize) }
}
