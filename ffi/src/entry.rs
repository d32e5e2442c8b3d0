//! The one way in: no panic gets out to C, and a failure leaves its text behind.

use crate::result::{Failure, antiphon_result, remember};
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of a function that can fail.
pub(crate) fn entry(body: impl FnOnce() -> Result<(), Failure>) -> antiphon_result {
    // A panic leaves at worst a communicator that its peers will find silent; no state of this library is half done, for
    // its locks are taken over from whoever panicked.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return antiphon_result::Success,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(antiphon_result::Internal, panic_text(&*panic)),
    };
    remember(&failure.text);
    failure.code
}

/// Runs the body of a function that cannot fail, but for what nobody thought of.
pub(crate) fn entry_or<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("internal error of Antiphon: {}; please report it", text.unwrap_or("of unknown cause"))
}

/// A place for an output.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// The place that a caller gave.
    ///
    /// # Errors
    /// Where it gave none.
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
        // SAFETY: as this function's; what was there has no destructor, since C made it.
        unsafe { self.0.write(value) }
    }
}

/// A text of the caller.
///
/// # Errors
/// Null, and what is not UTF-8.
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
