//! Groups of calls for C: the calls that a thread makes between begin and end are launched together.

use crate::entry::entry;
use crate::result::{Failure, antiphon_result};
use antiphon_executor::Group;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many groups threads have begun and not ended. While there is none, a single call need not look at its thread's state.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// One of [`OPEN`].
struct Counted(());

impl Counted {
    fn new() -> Self {
        // Relaxed, since a thread relies only on what it counted itself.
        OPEN.fetch_add(1, Ordering::Relaxed);
        Counted(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The group that a thread has begun.
struct Open {
    _counted: Counted,
    /// How often it was begun and not ended.
    depth: u32,
    group: Group,
    /// The first call that was refused.
    failure: Option<Failure>,
}

/// What a thread has begun. Nobody's code runs while it is borrowed.
enum Begun {
    Nothing,
    Group(Open),
    /// A call is being put into the group: meanwhile a function of the program's may be called back.
    Call,
}

thread_local! {
    /// Nothing destroys it, so that a thread has its group to the last: destructors of statics and of thread-local values may
    /// make calls, too.
    static BEGUN: RefCell<ManuallyDrop<Begun>> =
        const { RefCell::new(ManuallyDrop::new(Begun::Nothing)) };
    /// Gives up what a thread has begun and not ended.
    static LEFT: Left = const { Left };
}

struct Left;

impl Drop for Left {
    fn drop(&mut self) {
        drop(replace(Begun::Nothing));
    }
}

/// Replaces what this thread has begun, and returns what it was.
fn replace(by: Begun) -> Begun {
    BEGUN.with_borrow_mut(|begun| std::mem::replace(&mut **begun, by))
}

/// The failure of something that cannot be done while a call is being put into a group.
fn called_back(what: &str) -> Failure {
    let text = format!(
        "cannot {what}: saw a call that is being put into a group of this thread, allowed before and after it; a selector and \
         what destroys a context make no calls"
    );
    Failure::new(antiphon_result::Unsupported, text)
}

/// Runs the body of a function that may be part of a group: with the group that is open on this thread, if one is.
#[inline(always)]
pub(crate) fn grouped(
    body: impl FnOnce(Option<&mut Group>) -> Result<(), Failure>,
) -> antiphon_result {
    entry(|| if OPEN.load(Ordering::Relaxed) == 0 { body(None) } else { in_group(body) })
}

/// The same where this thread, or another, has begun a group.
#[cold]
fn in_group(body: impl FnOnce(Option<&mut Group>) -> Result<(), Failure>) -> Result<(), Failure> {
    let begun = BEGUN.with_borrow_mut(|begun| match &mut **begun {
        Begun::Nothing => Begun::Nothing,
        begun => std::mem::replace(begun, Begun::Call),
    });
    let mut open = match begun {
        Begun::Nothing => return body(None),
        Begun::Call => return Err(called_back("make a call")),
        Begun::Group(open) => GiveBack(Some(open)),
    };
    let Some(open) = &mut open.0 else { return body(None) };
    let outcome = body(Some(&mut open.group));
    if let Err(failure) = &outcome {
        open.failure.get_or_insert_with(|| failure.clone());
    }
    outcome
}

/// Gives a group back to its thread when it is dropped, also by a panic.
struct GiveBack(Option<Open>);

impl Drop for GiveBack {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            drop(replace(Begun::Group(open)));
        }
    }
}

/// Refuses what cannot be part of a group while one is open on this thread.
///
/// # Errors
/// `UNSUPPORTED`, if one is.
pub(crate) fn alone(what: &str) -> Result<(), Failure> {
    if BEGUN.with_borrow(|begun| matches!(**begun, Begun::Nothing)) {
        return Ok(());
    }
    let text = format!("cannot {what} inside a group; call antiphon_group_end first");
    Err(Failure::new(antiphon_result::Unsupported, text))
}

/// Begins a group: the collectives and transfers that this thread calls until antiphon_group_end, on any communicators, are
/// gathered, and are launched by that call. Collectives of a communicator run in the order of their calls; sends and receives
/// may come in any order, and a rank may send to itself. Groups nest: only the outermost end launches. antiphon_barrier and
/// antiphon_execute are refused inside a group (ANTIPHON_RESULT_UNSUPPORTED), and the group goes on.
///
/// A gathered call itself reports what is wrong with it. On the host a rank may gather calls that others make one by one. On
/// devices, the peers must gather what one rank gathers: a device may run work of several streams one after the other. Any
/// thread may call it at any time.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_group_begin() -> antiphon_result {
    entry(|| {
        BEGUN.with_borrow_mut(|begun| {
            match &mut **begun {
                Begun::Nothing => {
                    // This may fail late in the life of a thread; then nothing gives up a group that the thread leaves open.
                    let _ = LEFT.try_with(|_| ());
                    let (_counted, group) = (Counted::new(), Group::new());
                    **begun = Begun::Group(Open { _counted, depth: 1, group, failure: None });
                }
                Begun::Group(open) => open.depth += 1,
                Begun::Call => return Err(called_back("begin a group")),
            }
            Ok(())
        })
    })
}

/// Ends a group: launches what this thread has called since antiphon_group_begin. Calls without a stream are complete on
/// return; those on streams go on by themselves. If one of the calls was refused, nothing is launched, and its result is
/// returned again.
///
/// On a device, the first transfer from one rank to another waits for the other rank's process, but not for its call. Any
/// thread may call it after it has begun a group.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_group_end() -> antiphon_result {
    entry(|| {
        let ended = BEGUN.with_borrow_mut(|begun| match &mut **begun {
            Begun::Nothing => Err(Failure::argument(
                "cannot end a group: saw none on this thread, allowed after antiphon_group_begin",
            )),
            Begun::Call => Err(called_back("end a group")),
            Begun::Group(open) if open.depth > 1 => {
                open.depth -= 1;
                Ok(Begun::Nothing)
            }
            begun => Ok(std::mem::replace(begun, Begun::Nothing)),
        })?;
        // Launching may take long, so it happens while the thread's state is not borrowed.
        match ended {
            Begun::Group(Open { failure: Some(failure), .. }) => Err(failure),
            Begun::Group(Open { group, .. }) => Ok(group.end()?),
            _ => Ok(()),
        }
    })
}

/// Gives up the groups that this thread has begun: nothing that was gathered is launched.
///
/// Any thread may call it at any time.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_group_cancel() -> antiphon_result {
    entry(|| {
        let begun = BEGUN.with_borrow_mut(|begun| match &mut **begun {
            Begun::Call => Err(called_back("give up a group")),
            begun => Ok(std::mem::replace(begun, Begun::Nothing)),
        });
        begun.map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_result::{InvalidArgument, Success, Unsupported};

    #[test]
    fn who_is_called_back_in_a_call_of_a_group_makes_none() {
        assert_eq!(antiphon_group_begin(), Success);
        let outcome = grouped(|_| {
            let nested = [
                grouped(|_| Ok(())),
                antiphon_group_begin(),
                antiphon_group_end(),
                antiphon_group_cancel(),
            ];
            assert_eq!(nested, [Unsupported; 4]);
            assert!(alone("wait").is_err());
            Ok(())
        });
        assert_eq!(outcome, Success);
        // The group is there as it was, after a panic as well.
        assert_eq!(grouped(|_| panic!("oh")), antiphon_result::Internal);
        assert_eq!((antiphon_group_end(), antiphon_group_end()), (Success, InvalidArgument));
    }

    #[test]
    fn the_outermost_end_tells_what_was_refused() {
        assert_eq!(antiphon_group_end(), InvalidArgument);
        for refused in [true, false] {
            assert_eq!((antiphon_group_begin(), antiphon_group_begin()), (Success, Success));
            let outcome = grouped(|group| {
                assert!(group.is_some());
                if refused { Err(Failure::new(Unsupported, "not here")) } else { Ok(()) }
            });
            assert_eq!(outcome, if refused { Unsupported } else { Success });
            assert!(alone("wait").is_err());
            assert_eq!(antiphon_group_end(), Success);
            assert_eq!(antiphon_group_end(), outcome);
        }
        assert_eq!((antiphon_group_begin(), antiphon_group_begin()), (Success, Success));
        assert_eq!((antiphon_group_cancel(), antiphon_group_end()), (Success, InvalidArgument));
        assert!(alone("wait").is_ok());
        let outside = grouped(|group| {
            assert!(group.is_none());
            Ok(())
        });
        assert_eq!(outside, Success);
    }
}
