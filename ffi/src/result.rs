//! The results that functions return, and the text of a thread's last failure.

use crate::entry::{entry, entry_or, text as text_of};
use antiphon_executor::hal::HalError;
use antiphon_executor::launcher::LauncherError;
use antiphon_executor::selection::SelectionError;
use antiphon_executor::{BootstrapError, ExecutorError};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

/// The results that functions return. A number never changes its meaning.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum antiphon_result {
    /// The function did what it says.
    Success = 0,
    /// An argument is wrong; nothing was done.
    InvalidArgument = 1,
    /// A handle is null, of another kind, or destroyed; nothing was done.
    InvalidHandle = 2,
    /// A plan cannot be read, is not valid, or is for another number of ranks.
    InvalidPlan = 3,
    /// A plan is shown to go wrong.
    PlanRefuted = 4,
    /// The library cannot do what was asked for.
    Unsupported = 5,
    /// A file cannot be read.
    File = 6,
    /// Memory is exhausted, or the device or the system refused something. antiphon_communicator_async_error tells whether the
    /// communicator is of no more use, as when a buffer was freed too early.
    System = 7,
    /// The ranks could not meet, or could not talk to each other.
    Rendezvous = 8,
    /// A wait took longer than the time limit. The communicator is of no more use.
    Timeout = 9,
    /// Ranks called different things. The communicator is of no more use.
    Mismatch = 10,
    /// A peer died, or has left, or cannot be reached any more. The communicator is of no more use for what needs that peer; the
    /// other ranks may go on with one that antiphon_communicator_subset makes.
    PeerLost = 11,
    /// A rank aborted the communicator. It is of no more use.
    Aborted = 12,
    /// A buffer is too small for the answer.
    BufferTooSmall = 13,
    /// A fault of the library itself; please report it.
    Internal = 14,
}

/// Why a function fails.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub code: antiphon_result,
    pub text: String,
    /// The other rank that it speaks of.
    pub peer: Option<u32>,
}

impl Failure {
    pub fn new(code: antiphon_result, text: impl Into<String>) -> Self {
        Failure { code, text: text.into(), peer: None }
    }

    pub fn argument(text: impl Into<String>) -> Self {
        Failure::new(antiphon_result::InvalidArgument, text)
    }
}

impl From<ExecutorError> for Failure {
    fn from(error: ExecutorError) -> Self {
        Failure { code: code(&error), text: error.to_string(), peer: error.peer() }
    }
}

/// The number of an error.
pub(crate) fn code(error: &ExecutorError) -> antiphon_result {
    use ExecutorError as E;
    use antiphon_result as R;
    match error.cause() {
        E::Plan { .. } | E::World { .. } => R::InvalidPlan,
        E::Refuted { .. } => R::PlanRefuted,
        E::Lower { .. } | E::Argument { .. } | E::Counts { .. } => R::InvalidArgument,
        E::Selection(
            SelectionError::Unfit { .. }
            | SelectionError::Unknown { .. }
            | SelectionError::Selector(_),
        ) => R::InvalidArgument,
        E::Generate(_) | E::Selection(_) | E::Apart { .. } => R::Unsupported,
        E::Hal(error) if matches!(**error, HalError::Unsupported { .. }) => R::Unsupported,
        E::Hal(error) if matches!(**error, HalError::Invalid { .. }) => R::InvalidArgument,
        E::Unequal { .. } | E::Mismatch { .. } | E::Diverged { .. } => R::Mismatch,
        E::Bootstrap(BootstrapError::Mismatch { .. }) => R::Mismatch,
        E::Stalled { .. } => R::Timeout,
        E::PeerLost { .. } | E::Link { .. } => R::PeerLost,
        E::Bootstrap(BootstrapError::PeerLost { .. } | BootstrapError::PeerLeft { .. }) => {
            R::PeerLost
        }
        // These are wrong arguments of the caller, not failures of the ranks' meeting.
        E::Bootstrap(
            BootstrapError::NoSuchRank { .. }
            | BootstrapError::BadShape { .. }
            | BootstrapError::TooManyRanks { .. },
        ) => R::InvalidArgument,
        // So is a variable that nobody could read.
        E::Launcher(error) if matches!(**error, LauncherError::Bad { .. }) => R::InvalidArgument,
        E::Aborted { .. } | E::Code { .. } => R::Aborted,
        E::Bootstrap(BootstrapError::Timeout { .. }) => R::Timeout,
        E::Bootstrap(_) | E::Launcher(_) | E::Layout { .. } | E::Build { .. } => R::Rendezvous,
        E::Freed { .. } | E::Reach { .. } | E::Wire { .. } => R::System,
        E::Hal(_) | E::Transport(_) => R::System,
        _ => R::Internal,
    }
}

/// What a thread keeps of a failure.
struct Last {
    text: CString,
    peer: Option<u32>,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Keeps the text of this thread's last failure, and the other rank that it speaks of.
pub(crate) fn remember(text: &str, peer: Option<u32>) {
    let bytes: Vec<u8> = text.bytes().filter(|&byte| byte != 0).collect();
    let last = CString::new(bytes).ok().map(|text| Last { text, peer });
    // Late in the life of a thread this may fail; then nobody is left to ask for it.
    let _ = LAST.try_with(|kept| kept.replace(last));
}

/// Describes what went wrong in the last function of this library that failed on the calling thread: it names values and ranks,
/// and says what to do. The text is empty if none has failed. The text is UTF-8 and stays until the next failure on this
/// thread.
///
/// Any thread may call it at any time.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_last_error() -> *const c_char {
    let none = c"".as_ptr();
    entry_or(none, || {
        let kept =
            LAST.try_with(|last| last.borrow().as_ref().map_or(none, |last| last.text.as_ptr()));
        kept.unwrap_or(none)
    })
}

/// The rank that the failure of antiphon_last_error blames: the one that is lost, has aborted the communicator (this one, if it did),
/// has freed what a call needs, or called something else. It is the rank's number on the communicator of the call; -1 if the failure
/// blames none, or several.
///
/// Any thread may call it at any time.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_last_error_peer() -> i32 {
    const NONE: i32 = -1;
    entry_or(NONE, || {
        let peer = LAST.try_with(|last| last.borrow().as_ref().and_then(|last| last.peer));
        peer.ok().flatten().and_then(|peer| i32::try_from(peer).ok()).unwrap_or(NONE)
    })
}

/// Sets this thread's last failure to a text of the program. A selector, or code that serves calls, gives the reason of its
/// failure by it: the error of the call includes the text.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The text, if there is one, ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_set_last_error(failure: *const c_char) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        remember(unsafe { text_of(failure, "failure")? }, None);
        Ok(())
    })
}

/// Runs a function of the program. Returns its result, and the text that it left as this thread's last failure, if any. If it
/// left none, the earlier failure stays, which the program may still read.
pub(crate) fn overheard<T>(run: impl FnOnce() -> T) -> (T, Option<String>) {
    let before = LAST.try_with(|last| last.replace(None)).ok().flatten();
    let returned = run();
    let left = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        let left = last.as_ref().map(|last| last.text.to_string_lossy().into_owned());
        if last.is_none() {
            *last = before;
        }
        left
    });
    (returned, left.ok().flatten().filter(|text| !text.is_empty()))
}

/// What a result means in general, in a few words; for a number that stands for no result, the text says that it is unknown.
/// The text lives as long as the library.
///
/// Any thread may call it at any time.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_result_text(result: i32) -> *const c_char {
    entry_or(c"".as_ptr(), || text(result).as_ptr())
}

fn text(result: i32) -> &'static CStr {
    const TEXTS: [&CStr; 15] = [
        c"success",
        c"invalid argument",
        c"invalid handle",
        c"invalid plan",
        c"the plan is shown to go wrong",
        c"not supported",
        c"a file cannot be read",
        c"the system or the device refused",
        c"the ranks could not meet",
        c"a wait exceeded the time limit",
        c"ranks called different things",
        c"a peer is lost",
        c"aborted",
        c"the buffer is too small",
        c"internal error",
    ];
    usize::try_from(result).ok().and_then(|at| TEXTS.get(at)).copied().unwrap_or(c"unknown result")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_has_a_text() {
        let last = antiphon_result::Internal as i32;
        for result in 0..=last {
            assert_ne!(text(result), c"unknown result", "{result}");
        }
        assert_eq!((text(last + 1), text(-1)), (c"unknown result", c"unknown result"));
    }

    #[test]
    fn a_function_of_the_program_leaves_its_reason() {
        remember("of old", Some(3));
        let old = antiphon_last_error();
        assert_eq!(overheard(|| 3), (3, None));
        // Who holds the text may still read it: nothing has failed since.
        assert_eq!(antiphon_last_error(), old);
        // SAFETY: as just said.
        assert_eq!(unsafe { CStr::from_ptr(old) }, c"of old");
        // SAFETY: the text ends with a zero.
        let (set, why) = overheard(|| unsafe { antiphon_set_last_error(c"no such plan".as_ptr()) });
        assert_eq!((set, why.as_deref()), (antiphon_result::Success, Some("no such plan")));
        assert_eq!(antiphon_last_error_peer(), -1, "what a program says names no rank");
        // SAFETY: there is none.
        let set = unsafe { antiphon_set_last_error(std::ptr::null()) };
        assert_eq!(set, antiphon_result::InvalidArgument);
    }

    #[test]
    fn the_last_failure_is_kept_for_its_thread() {
        remember("one\0two", Some(5));
        // SAFETY: the text stays until the next failure on this thread.
        let kept = unsafe { CStr::from_ptr(antiphon_last_error()) };
        assert_eq!((kept, antiphon_last_error_peer()), (c"onetwo", 5));
        let other = std::thread::spawn(|| {
            // SAFETY: as above.
            let text = unsafe { CStr::from_ptr(antiphon_last_error()) };
            (text.to_bytes().len(), antiphon_last_error_peer())
        });
        assert_eq!(other.join().unwrap(), (0, -1));
    }
}
