//! Groups: calls are gathered by `libantiphon.so`, and communicators that are made inside are made together at the end. Where one
//! of the calls is for the real library, all of them are.

use crate::communicator::{Communicator, place};
use crate::failure::{Failure, Result};
use crate::finalize;
use crate::forward::{self, Forwarded};
use crate::handle::issue;
use crate::library::library;
use crate::types::{Comm, SimInfo};
use crate::way::beside;
use std::cell::RefCell;
use std::ptr;
use std::sync::Arc;

/// Makes a communicator, or none for a rank that joins none.
type Make = Box<dyn FnOnce() -> Result<Option<Arc<Communicator>>> + Send>;

/// A communicator that is to be made.
struct Join {
    out: *mut Comm,
    /// The address of the communicator whose ranks it is of, if there is one.
    parent: Option<usize>,
    make: Make,
}

/// A call of a group, as the real library would make it; or why it cannot.
pub type Deferred = Result<Forwarded>;

/// The group that a thread has begun.
#[derive(Default)]
struct Open {
    depth: u32,
    joins: Vec<Join>,
    /// The first call that was refused.
    failure: Option<Failure>,
    /// All calls, where there is a real library that may have to make them.
    calls: Vec<Deferred>,
    /// The first call that nothing here serves.
    unserved: Option<Failure>,
    /// Communicators that are finalized.
    last: Vec<Arc<Communicator>>,
}

thread_local! {
    static OPEN: RefCell<Open> = RefCell::default();
}

/// Runs the body of a function that may be part of a group: if it is refused, so is the group, unless the real library may make
/// the call.
#[inline(always)]
pub fn part(body: impl FnOnce() -> Result<()>) -> Result<()> {
    body().inspect_err(refuse)
}

#[cold]
fn refuse(failure: &Failure) {
    if failure.unserved && beside().is_some() {
        return;
    }
    OPEN.with_borrow_mut(|open| {
        if open.depth > 0 {
            open.failure.get_or_insert_with(|| failure.clone());
        }
    });
}

/// Whether this thread has begun a group.
pub fn is_open() -> bool {
    OPEN.with_borrow(|open| open.depth > 0)
}

/// Keeps a call of the open group for the real library, which has to make all of them if nothing here serves this one.
pub fn keep(call: Deferred, unserved: Option<Failure>) {
    OPEN.with_borrow_mut(|open| {
        open.calls.push(call);
        open.unserved = open.unserved.take().or(unserved);
    });
}

/// Makes a communicator, of ranks of `parent` if there is one: now, or when the group of this thread ends.
///
/// # Safety
/// The place stays writable until the group ends.
pub unsafe fn join(
    out: *mut Comm,
    parent: Option<Comm>,
    make: impl FnOnce() -> Result<Option<Arc<Communicator>>> + Send + 'static,
) -> Result<()> {
    if OPEN.with_borrow(|open| open.depth == 0) {
        let made = make()?.map_or(ptr::null_mut(), issue);
        // SAFETY: as this function's.
        unsafe { out.write(made) };
        return Ok(());
    }
    let (parent, make) = (parent.map(|parent| parent.addr()), Box::new(make));
    OPEN.with_borrow_mut(|open| open.joins.push(Join { out, parent, make }));
    Ok(())
}

/// Completes the calls of a communicator that is finalized: now, or when the group of this thread has ended.
pub fn finally(communicator: Arc<Communicator>) -> Result<()> {
    if !is_open() {
        return finalize::complete(&[communicator]);
    }
    OPEN.with_borrow_mut(|open| open.last.push(communicator));
    Ok(())
}

pub fn start() -> Result<()> {
    let library = library()?;
    if OPEN.with_borrow(|open| open.depth == 0) {
        // SAFETY: any thread may call it at any time.
        library.outcome(unsafe { (library.antiphon_group_begin)() })?;
    }
    OPEN.with_borrow_mut(|open| open.depth += 1);
    Ok(())
}

pub fn end() -> Result<()> {
    library()?;
    let ended = OPEN.with_borrow_mut(|open| match open.depth {
        0 => Err(Failure::usage("cannot end a group: saw none, allowed after ncclGroupStart")),
        1 => Ok(Some(std::mem::take(open))),
        _ => {
            open.depth -= 1;
            Ok(None)
        }
    })?;
    let Some(Open { joins, failure, calls, unserved, last, .. }) = ended else {
        return Ok(());
    };
    launch(joins, failure, calls, unserved)?;
    finalize::complete(&last)
}

/// Makes the communicators that a group has asked for, and launches its calls: here, or all of them in the real library.
fn launch(
    joins: Vec<Join>,
    failure: Option<Failure>,
    calls: Vec<Deferred>,
    unserved: Option<Failure>,
) -> Result<()> {
    let library = library()?;
    let made = failure.map_or_else(|| make_all(joins), Err);
    if let Err(failure) = made {
        // SAFETY: any thread may call it at any time.
        unsafe { (library.antiphon_group_cancel)() };
        return Err(failure);
    }
    if let Some(why) = unserved {
        // SAFETY: any thread may call it at any time.
        unsafe { (library.antiphon_group_cancel)() };
        return forward::together(calls, &why);
    }
    // SAFETY: this thread has begun it.
    match library.outcome(unsafe { (library.antiphon_group_end)() }) {
        // Groups are refused whole.
        Err(why) if why.unserved && !calls.is_empty() => forward::together(calls, &why),
        outcome => outcome,
    }
}

/// Gives up the groups of this thread.
pub fn cancel() -> Result<()> {
    OPEN.take();
    let library = library()?;
    // SAFETY: any thread may call it at any time.
    library.outcome(unsafe { (library.antiphon_group_cancel)() })
}

/// Makes communicators together: each waits for its peers, which may be others of them. Those of one parent are made one
/// after the other, as asked for, since its ranks tell them apart by that.
fn make_all(joins: Vec<Join>) -> Result<()> {
    type Line = (Option<usize>, Vec<(*mut Comm, Make)>);
    let mut lines: Vec<Line> = Vec::new();
    for Join { out, parent, make } in joins {
        match lines.iter_mut().find(|(known, _)| parent.is_some() && *known == parent) {
            Some((_, line)) => line.push((out, make)),
            None => lines.push((parent, vec![(out, make)])),
        }
    }
    let lines = lines.into_iter().map(|(_, line)| line.into_iter().unzip());
    let (places, makes): (Vec<Vec<*mut Comm>>, Vec<Vec<Make>>) = lines.unzip();
    let made: Vec<_> = std::thread::scope(|scope| {
        let start = |line: Vec<Make>| {
            let work = || line.into_iter().map(|make| make()).collect::<Vec<_>>();
            std::thread::Builder::new().spawn_scoped(scope, work)
        };
        let started: Vec<_> = makes.into_iter().map(start).collect();
        let crashed = |_| Failure::system("cannot make a communicator: its thread crashed");
        let outcome = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| match thread {
            Ok(thread) => thread.join().map_err(crashed),
            Err(error) => Err(Failure::system(format!("cannot start a thread: {error}"))),
        };
        started.into_iter().map(outcome).collect()
    });
    let mut first = Ok(());
    for (places, made) in places.into_iter().zip(made) {
        let made = made.unwrap_or_else(|failure| vec![Err(failure)]);
        for (out, made) in places.into_iter().zip(made) {
            match made {
                // SAFETY: the place is writable until the group ends, says who asked for it.
                Ok(made) => unsafe { out.write(made.map_or(ptr::null_mut(), issue)) },
                Err(failure) => first = first.and(Err(failure)),
            }
        }
    }
    first
}

/// Refuses to say how long a group would take, and gives the group up, as NCCL ends it.
///
/// # Safety
/// As NCCL's.
pub unsafe fn simulate_end(out: *mut SimInfo) -> Result<()> {
    cancel()?;
    place(out, "simInfo")?;
    Err(Failure::usage(
        "cannot simulate a group: nothing here predicts one; it is given up, and nothing was launched",
    ))
}
