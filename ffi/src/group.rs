//! Groups of calls for C: what a thread calls between begin and end is launched together.

use crate::entry::entry;
use crate::result::{Failure, antiphon_result};
use antiphon_executor::Group;
use std::cell::RefCell;

/// The group that a thread has begun.
struct Open {
    /// How often it was begun and not ended.
    depth: u32,
    group: Group,
    /// The first call that was refused.
    failure: Option<Failure>,
}

thread_local! {
    static OPEN: RefCell<Option<Open>> = const { RefCell::new(None) };
}

fn is_open() -> bool {
    OPEN.try_with(|open| open.borrow().is_some()).unwrap_or(false)
}

/// Runs the body of a function that may be part of a group: with the group that is open on this thread, if one is.
pub(crate) fn grouped(
    body: impl FnOnce(Option<&mut Group>) -> Result<(), Failure>,
) -> antiphon_result {
    if !is_open() {
        return entry(|| body(None));
    }
    entry(|| {
        OPEN.with_borrow_mut(|open| {
            let Some(open) = open else { return body(None) };
            let outcome = body(Some(&mut open.group));
            if let Err(failure) = &outcome {
                open.failure.get_or_insert_with(|| failure.clone());
            }
            outcome
        })
    })
}

/// Refuses what cannot be part of a group while one is open on this thread.
///
/// # Errors
/// `UNSUPPORTED`, if one is.
pub(crate) fn alone(what: &str) -> Result<(), Failure> {
    if !is_open() {
        return Ok(());
    }
    let text = format!("cannot {what} inside a group; call antiphon_group_end first");
    Err(Failure::new(antiphon_result::Unsupported, text))
}

/// Begins a group: the collectives and transfers that this thread calls until antiphon_group_end are gathered, on any
/// communicators, and launched there. Collectives of a communicator run in the order of their calls; sends and receives
/// may come in any order, and a rank may send to itself. Begun again inside a group, it counts: the outermost end
/// launches.
///
/// What is wrong with a call that is gathered is told by the call. Whether a rank gathers its calls or makes them one
/// by one is no concern of the others. Any thread may call it at any time.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_group_begin() -> antiphon_result {
    entry(|| {
        OPEN.with_borrow_mut(|open| {
            let new = || Open { depth: 0, group: Group::new(), failure: None };
            open.get_or_insert_with(new).depth += 1;
        });
        Ok(())
    })
}

/// Ends a group: launches what this thread has called since antiphon_group_begin. Calls without a stream are complete on
/// return; those on streams go on by themselves. If one of the calls was refused, nothing is launched, and its result is
/// returned again.
///
/// The first transfer from one rank to another waits until both have come. Any thread may call it after it has begun a
/// group.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_group_end() -> antiphon_result {
    entry(|| {
        let ended = OPEN.with_borrow_mut(|open| match open {
            None => Err(Failure::argument(
                "cannot end a group: saw none on this thread, allowed after antiphon_group_begin",
            )),
            Some(inner) if inner.depth > 1 => {
                inner.depth -= 1;
                Ok(None)
            }
            Some(_) => Ok(open.take()),
        })?;
        // Not while the thread's group is borrowed: launching takes as long as it takes.
        match ended {
            None => Ok(()),
            Some(Open { failure: Some(failure), .. }) => Err(failure),
            Some(Open { group, .. }) => Ok(group.end()?),
        }
    })
}

/// Gives up the groups that this thread has begun: nothing that was gathered is launched.
///
/// Any thread may call it at any time.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_group_cancel() -> antiphon_result {
    entry(|| {
        drop(OPEN.take());
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_result::{InvalidArgument, Success, Unsupported};

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
