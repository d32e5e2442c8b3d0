//! Calls that nothing here serves: they go to the real library, if one is named beside Antiphon.
//!
//! A call finds its way without asking peers, by what all ranks know alike: the function, the type, the reduction,
//! and whether all ranks have their counterparts.

use crate::communicator::{Communicator, usable};
use crate::counterpart::{Counterpart, RealCall, functions};
use crate::failure::{Failure, Result};
use crate::group::{self, Deferred};
use crate::scaled::Sum;
use crate::types::Comm;
use crate::way::{Entry, beside};
use std::ffi::c_int;
use std::sync::Arc;

/// A call as the real library makes it, on the counterpart of a communicator.
pub struct Forwarded {
    /// It stays until the call is made, though its handle may be gone before a group ends.
    communicator: Arc<Communicator>,
    call: RealCall,
}

fn counterpart(communicator: &Communicator) -> Result<&Counterpart> {
    let none = || Failure::usage("its communicator has no counterpart there");
    communicator.real.as_ref().ok_or_else(none)
}

/// Runs the body of a function on a communicator. If nothing here serves it, the real library makes the call: now, or when the
/// group of this thread ends, which goes there whole. `lasting` says that what the call points to may be read then.
///
/// # Safety
/// The handle is null or was issued here; `call` is given the function's address in the real library, a communicator of that, and
/// what it has made of the premultiplied sum, if the call reduces by one.
#[inline(always)]
pub unsafe fn or(
    entry: &'static Entry,
    comm: Comm,
    lasting: bool,
    sum: Option<Sum>,
    body: impl FnOnce() -> Result<()>,
    call: impl FnOnce(usize, Comm, Option<c_int>) -> c_int + 'static,
) -> Result<()> {
    let outcome = body();
    let Some(functions) = functions() else { return outcome };
    let unserved = match outcome {
        Err(why) if !why.unserved => return Err(why),
        Ok(()) if !group::is_open() => return Ok(()),
        outcome => outcome.err(),
    };
    let prepare = || -> Deferred {
        functions.as_ref().map_err(Clone::clone)?;
        let real = match beside() {
            Some(Ok(real)) => real,
            _ => return Err(Failure::usage("no real library is named")),
        };
        let at = real.find(entry.name)?;
        // SAFETY: as this function's.
        let communicator = Arc::clone(&*unsafe { usable(comm)? });
        counterpart(&communicator)?.used()?;
        let call = RealCall { sum, make: Box::new(move |comm, op| call(at, comm, op)) };
        Ok(Forwarded { communicator, call })
    };
    if !group::is_open() {
        // Who destroys it meanwhile waits for the call.
        // SAFETY: as this function's.
        let _used = unsafe { usable(comm)? };
        let why = unserved.unwrap_or_else(|| Failure::usage("nothing here serves the call"));
        let made = prepare().and_then(|Forwarded { communicator, call }| {
            counterpart(&communicator)?.used()?.call(call)
        });
        return made.map_err(|failure| both(&why, failure));
    }
    let call = if lasting {
        prepare()
    } else {
        let text = format!("what {} is given may be gone when the group ends", entry.name);
        Err(Failure::usage(text))
    };
    if let (Err(failure), Some(why)) = (&call, &unserved) {
        let failure = both(why, failure.clone());
        return group::part(|| Err(failure));
    }
    group::keep(call, unserved);
    Ok(())
}

/// Why nothing here serves a call, and why the real library does not make it either: so nobody does.
fn both(why: &Failure, real: Failure) -> Failure {
    let text = format!("{}; and the real library does not serve it: {}", why.text, real.text);
    Failure { text, unserved: false, ..real }
}

/// Makes the calls of a group in the real library, or none of them; `why` says what nothing here serves.
pub fn together(calls: Vec<Deferred>, why: &Failure) -> Result<()> {
    let Some(functions) = functions() else { return Err(why.clone()) };
    let made = || {
        let functions = functions.as_ref().map_err(Clone::clone)?;
        let calls = calls.into_iter().collect::<Result<Vec<_>>>()?;
        let (communicators, calls): (Vec<_>, Vec<_>) =
            calls.into_iter().map(|Forwarded { communicator, call }| (communicator, call)).unzip();
        // All of them, before the first call.
        let uses = communicators.iter().map(|communicator| counterpart(communicator)?.used());
        let uses = uses.collect::<Result<Vec<_>>>()?;
        functions.grouped(uses.into_iter().zip(calls))
    };
    made().map_err(|failure| both(why, failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_neither_serves_is_refused_and_goes_nowhere_else() {
        let here = Failure::usage("no such type").unserved();
        let there = Failure::usage("no counterpart").unserved();
        let refused = both(&here, there);
        assert!(!refused.unserved);
        assert!(refused.text.contains("no such type") && refused.text.contains("no counterpart"));
    }
}
