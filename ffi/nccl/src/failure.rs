//! Why a function fails: a result of NCCL's, and a text for `ncclGetLastError`.

use crate::library::Library;
use crate::said::say;
use crate::types::result;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A failure.
#[derive(Clone, Debug)]
pub struct Failure {
    pub code: c_int,
    pub text: String,
    /// Antiphon does not serve this call and has begun nothing: the real library may make it, if one is named.
    pub unserved: bool,
}

pub type Result<T> = std::result::Result<T, Failure>;

/// How far a request has come when the function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Done,
    /// `ncclCommGetAsyncError` says when it is over, and what has come of it.
    UnderWay,
}

impl Progress {
    /// How far both together have come.
    pub fn and(self, other: Progress) -> Progress {
        if self == Progress::Done { other } else { self }
    }
}

/// A value that a result of NCCL's stands for.
pub trait Outcome {
    fn code(self) -> c_int;
}

impl Outcome for () {
    fn code(self) -> c_int {
        result::SUCCESS
    }
}

impl Outcome for Progress {
    fn code(self) -> c_int {
        match self {
            Progress::Done => result::SUCCESS,
            Progress::UnderWay => result::IN_PROGRESS,
        }
    }
}

impl Failure {
    pub fn argument(text: impl Into<String>) -> Self {
        Failure { code: result::INVALID_ARGUMENT, text: text.into(), unserved: false }
    }

    pub fn usage(text: impl Into<String>) -> Self {
        Failure { code: result::INVALID_USAGE, text: text.into(), unserved: false }
    }

    /// As the failure of a call that nothing here serves.
    pub fn unserved(self) -> Self {
        Failure { unserved: true, ..self }
    }

    pub fn system(text: impl Into<String>) -> Self {
        Failure { code: result::SYSTEM, text: text.into(), unserved: false }
    }

    /// The system gives no thread.
    pub fn no_thread(error: &io::Error) -> Self {
        let cure = "raise the limit on threads (`ulimit -u`)";
        Failure::system(format!("cannot start a thread: {error}; {cure}"))
    }
}

/// The result of `libantiphon.so` that says that nothing there does it.
const UNSUPPORTED: i32 = 5;

/// What a result of `libantiphon.so` means in NCCL's terms.
fn translated(code: i32) -> c_int {
    match code {
        0 => result::SUCCESS,
        // An argument, a handle.
        1 | 2 => result::INVALID_ARGUMENT,
        // A plan; nothing does it; ranks called different things.
        3 | 4 | UNSUPPORTED | 10 => result::INVALID_USAGE,
        // A file, the system, a rendezvous.
        6..=8 => result::SYSTEM,
        9 => result::TIMEOUT,
        // A peer is lost, or a rank has aborted.
        11 | 12 => result::REMOTE,
        _ => result::INTERNAL,
    }
}

impl Library {
    /// A result of this library's function that was called last on this thread.
    #[inline(always)]
    pub fn outcome(&self, code: i32) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.failure(code)) }
    }

    #[cold]
    fn failure(&self, code: i32) -> Failure {
        // SAFETY: the text stays until the next failure on this thread.
        let text = unsafe { CStr::from_ptr((self.antiphon_last_error)()) };
        let (text, unserved) = (text.to_string_lossy().into_owned(), code == UNSUPPORTED);
        Failure { code: translated(code), text, unserved }
    }
}

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Keeps the text of this thread's last failure.
pub fn remember(text: &str) {
    let bytes: Vec<u8> = text.bytes().filter(|&byte| byte != 0).collect();
    let text = CString::new(bytes).ok();
    // Late in the life of a thread there is nobody left to ask.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// Whether this is the text of this thread's last failure.
fn is_last(text: &str) -> bool {
    let is = |last: &RefCell<Option<CString>>| {
        last.borrow().as_ref().is_some_and(|last| last.as_bytes() == text.as_bytes())
    };
    LAST.try_with(is).unwrap_or(false)
}

/// The text of this thread's last failure, if it was one of this library; it stays until the next.
pub fn last() -> Option<*const c_char> {
    let kept = LAST.try_with(|last| last.borrow().as_ref().map(|text| text.as_ptr()));
    kept.ok().flatten()
}

/// Passes on the real library's result of a call. If the call failed, that is now this thread's last failure, and the
/// one kept here is dropped.
pub fn theirs(code: c_int) -> c_int {
    if code != result::SUCCESS && code != result::IN_PROGRESS {
        let _ = LAST.try_with(RefCell::take);
    }
    code
}

/// Runs the body of a function that cannot fail; if it panics nevertheless, gives `otherwise`.
pub fn run_or<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

/// The return value of a function that has no result of NCCL's to return: after a failure, whose text is kept, `otherwise`.
pub fn or_say<T>(function: &str, otherwise: T, outcome: Result<T>) -> T {
    outcome.unwrap_or_else(|failure| {
        failed(function, &failure);
        otherwise
    })
}

/// Runs the body of a function of this name: no panic gets out, and a failure leaves its text.
#[inline(always)]
pub fn run<T: Outcome>(function: &str, body: impl FnOnce() -> Result<T>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(outcome)) => outcome.code(),
        Ok(Err(failure)) => failed(function, &failure),
        Err(_) => {
            let text = "internal error of Antiphon; please report it".to_owned();
            failed(function, &Failure { code: result::INTERNAL, text, unserved: false })
        }
    }
}

/// Keeps the text of this function's failure, says it if the environment asks for that, and gives its result.
#[cold]
pub fn failed(function: &str, failure: &Failure) -> c_int {
    say(function, &failure.text);
    remember(&failure.text);
    failure.code
}

/// As [`failed`], for a function that programs poll: a failure that it reports each time is said only once.
pub fn still_failed(function: &str, failure: &Failure) -> c_int {
    if !is_last(&failure.text) {
        say(function, &failure.text);
    }
    remember(&failure.text);
    failure.code
}

/// What a result means, in a few words.
pub fn text(code: c_int) -> &'static CStr {
    match code {
        0 => c"no error",
        1 => c"unhandled cuda error",
        2 => c"unhandled system error (ncclGetLastError has the details)",
        3 => c"internal error",
        4 => c"invalid argument (ncclGetLastError has the details)",
        5 => c"invalid usage (ncclGetLastError has the details)",
        6 => c"remote process exited, or a rank aborted",
        7 => c"operation in progress",
        8 => c"timeout",
        _ => c"unknown result code",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_text() -> Option<String> {
        // SAFETY: the text stays until the next failure on this thread.
        last().map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    #[test]
    fn the_last_failure_is_of_whoever_failed_last() {
        assert_eq!(last_text(), None);
        assert_eq!(run("try", || Err::<(), _>(Failure::usage("mine"))), result::INVALID_USAGE);
        assert_eq!(run("try", || Ok(Progress::UnderWay)), result::IN_PROGRESS);
        assert_eq!(last_text().as_deref(), Some("mine"));
        assert_eq!(theirs(result::SUCCESS), result::SUCCESS);
        assert_eq!(last_text().as_deref(), Some("mine"));
        assert_eq!(theirs(result::SYSTEM), result::SYSTEM);
        assert_eq!(last_text(), None);
    }

    #[test]
    fn every_result_has_a_text_of_its_own_that_says_which_it_is() {
        let words = [
            (result::SUCCESS, "no error"),
            (result::SYSTEM, "system"),
            (result::INTERNAL, "internal"),
            (result::INVALID_USAGE, "invalid usage"),
            (result::IN_PROGRESS, "in progress"),
        ];
        for (code, word) in words {
            assert!(text(code).to_string_lossy().contains(word), "{code}: {:?}", text(code));
        }
        let texts: std::collections::BTreeSet<_> = (0..=9).map(text).collect();
        assert_eq!(texts.len(), 10);
        assert_eq!(text(-1), text(9), "what is no result");
    }

    #[test]
    fn no_panic_gets_out() {
        assert_eq!(run::<()>("try", || panic!("oh")), result::INTERNAL);
        assert!(last_text().is_some_and(|text| text.contains("please report it")));
        assert_eq!(run_or(7, || panic!("oh")), 7);
    }
}
