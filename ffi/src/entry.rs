//! The one way in: no panic gets out to C, and a failure leaves its text behind.

use crate::result::{Failure, antiphon_result, remember};
use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of a function that can fail.
#[inline(always)]
pub(crate) fn entry(body: impl FnOnce() -> Result<(), Failure>) -> antiphon_result {
    // A launch that panics is given up, so that its buffers are the caller's again. At worst a communicator falls silent for its
    // peers otherwise. No state of this library stays half done, since its locks are taken over from the thread that panicked.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => antiphon_result::Success,
        Ok(Err(failure)) => failed(&failure),
        Err(panic) => failed(&Failure::new(antiphon_result::Internal, panic_text(&*panic))),
    }
}

#[cold]
fn failed(failure: &Failure) -> antiphon_result {
    remember(&failure.text, failure.peer);
    failure.code
}

/// Runs the body of a function that cannot fail, and returns `otherwise` should it panic.
pub(crate) fn entry_or<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("internal error of Antiphon: {}; please report it", text.unwrap_or("of unknown cause"))
}

/// The place where an output is to be written.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// The place that a caller gave.
    ///
    /// # Errors
    /// If the caller gave none.
    pub fn new(place: *mut T, name: &str) -> Result<Self, Failure> {
        if place.is_null() || !place.is_aligned() {
            return Err(Failure::argument(format!(
                "cannot write `{name}`: saw {place:p}, allowed its address"
            )));
        }
        Ok(Out(place))
    }

    /// # Safety
    /// The place is writable, as the contract of the function says.
    pub unsafe fn set(self, value: T) {
        // SAFETY: as this function's; what the place held has no destructor, since C made it.
        unsafe { self.0.write(value) }
    }
}

/// A text of the caller.
///
/// # Errors
/// For null, and for a text that is not UTF-8.
///
/// # Safety
/// The text, if there is one, ends with a zero and lives for `'a`.
pub(crate) unsafe fn text<'a>(at: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if at.is_null() {
        return Err(Failure::argument(format!("cannot read `{name}`: saw null, allowed a text")));
    }
    // SAFETY: as this function's.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map_err(|_| Failure::argument(format!("cannot read `{name}`: it is not UTF-8")))
}

/// A text of the caller that is only for people to read: bytes in it that are not UTF-8 are replaced.
///
/// # Safety
/// It ends with a zero, and lives for `'a`.
pub(crate) unsafe fn words<'a>(at: *const c_char) -> Cow<'a, str> {
    // SAFETY: as this function's.
    unsafe { CStr::from_ptr(at) }.to_string_lossy()
}

/// A list of the caller.
///
/// # Errors
/// For a list with elements that is null, not aligned, or longer than memory can hold.
///
/// # Safety
/// The list is null or has `count` elements, and lives for `'a`.
pub(crate) unsafe fn list<'a, T>(at: *const T, count: u64, name: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    let most = isize::MAX as u64 / (size_of::<T>() as u64).max(1);
    if at.is_null() || !at.is_aligned() || count > most {
        return Err(Failure::argument(format!(
            "cannot read `{name}`: saw {count} elements at {at:p}, allowed their address"
        )));
    }
    // SAFETY: as this function's.
    Ok(unsafe { std::slice::from_raw_parts(at, count as usize) })
}

/// The texts that a list of the caller has.
///
/// # Errors
/// As [`list`] and [`text`].
///
/// # Safety
/// The list is null or has `count` elements; its texts end with a zero.
pub(crate) unsafe fn texts(
    at: *const *const c_char,
    count: u64,
    name: &str,
) -> Result<Vec<String>, Failure> {
    // SAFETY: as this function's.
    let listed = unsafe { list(at, count, name)? };
    // SAFETY: as this function's.
    listed.iter().map(|&one| unsafe { text(one, name) }.map(str::to_owned)).collect()
}

/// A structure of the caller, which begins with its size.
pub(crate) trait Structure: Copy {
    /// What it is called in messages.
    const NAME: &'static str;
    /// The macro that sets its size.
    const INIT: &'static str;
    /// Its size in the first version that had it; every program gives at least that.
    const FIRST: u64;
}

/// Reads a structure of the caller, of this version, an earlier or a later one.
///
/// # Errors
/// For null, for a size that no version had, and for fields that ask for something and that this version does not know.
///
/// # Safety
/// The structure is null or as long as it says.
pub(crate) unsafe fn structure<T: Structure>(at: *const T, none: T) -> Result<T, Failure> {
    const MOST: u64 = 4096;
    let (name, init, first) = (T::NAME, T::INIT, T::FIRST);
    if at.is_null() || !at.is_aligned() {
        return Err(Failure::argument(format!(
            "cannot read `{name}`: saw {at:p}, allowed its address"
        )));
    }
    // SAFETY: the structure begins with its size in every version.
    let size = unsafe { at.cast::<u64>().read() };
    // A structure ends with a whole pointer or number in every version.
    if !(first..=MOST).contains(&size) || !size.is_multiple_of(8) {
        return Err(Failure::argument(format!(
            "cannot read `{name}`: saw a struct_size of {size}, allowed multiples of 8 from {first} on; begin with {init}"
        )));
    }
    let known = size_of::<T>();
    let rest = (size as usize).saturating_sub(known);
    let beyond = at.cast::<u8>().wrapping_add(known);
    // SAFETY: the structure is as long as it says.
    if (0..rest).any(|byte| unsafe { *beyond.wrapping_add(byte) } != 0) {
        return Err(Failure::argument(format!(
            "cannot read `{name}`: it asks for something in bytes {known}..{size}, which version {} of the library does not \
             know; use a later one",
            env!("CARGO_PKG_VERSION")
        )));
    }
    let mut own = none;
    // SAFETY: both are that long; fields that an earlier version lacks keep the values of `none`.
    unsafe {
        let bytes = known.min(size as usize);
        at.cast::<u8>().copy_to_nonoverlapping((&raw mut own).cast::<u8>(), bytes);
    }
    Ok(own)
}

/// Writes a text and a zero into a caller's buffer, and writes to `out` how many bytes that takes. With a null buffer and a
/// capacity of 0 it writes only the number of bytes.
///
/// # Errors
/// For a null buffer with a capacity, and for a buffer that is too small.
///
/// # Safety
/// The buffer is null or has `capacity` bytes; the place is writable.
pub(crate) unsafe fn write_text(
    text: &str,
    what: &str,
    buffer: *mut c_char,
    capacity: u64,
    out: Out<u64>,
) -> Result<(), Failure> {
    let needed = text.len() as u64 + 1;
    if buffer.is_null() {
        if capacity > 0 {
            return Err(Failure::argument("cannot write `buffer`: saw null, allowed its address"));
        }
    } else if capacity < needed {
        return Err(Failure::new(
            antiphon_result::BufferTooSmall,
            format!("cannot write {what}: saw room for {capacity} bytes, needed {needed}"),
        ));
    } else {
        // SAFETY: the buffer has room for the text and a zero, and is the caller's own.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
            buffer.wrapping_add(text.len()).write(0);
        }
    }
    // SAFETY: as this function's.
    unsafe { out.set(needed) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_panic_gets_out() {
        assert_eq!(entry(|| panic!("oh")), antiphon_result::Internal);
        // SAFETY: the text stays until the next failure on this thread.
        let text = unsafe { CStr::from_ptr(crate::result::antiphon_last_error()) };
        assert!(text.to_str().unwrap().contains("oh; please report it"));
        assert_eq!(entry_or(7, || panic!("oh")), 7);
        assert_eq!(entry(|| Ok(())), antiphon_result::Success);
    }

    #[test]
    fn null_is_no_place_and_no_text() {
        assert!(Out::new(std::ptr::null_mut::<u64>(), "x").is_err());
        assert!(Out::new(std::ptr::without_provenance_mut::<u64>(9), "x").is_err());
        // SAFETY: there is no text, or one that lives as long as the program.
        unsafe {
            assert!(text(std::ptr::null(), "x").is_err());
            assert!(text(c"\xff".as_ptr(), "x").is_err());
            assert_eq!(text(c"\xc3\xa4".as_ptr(), "x").unwrap(), "\u{e4}");
        }
    }
}
