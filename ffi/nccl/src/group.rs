//! Groups: calls are gathered by `libantiphon.so`, and communicators that are made inside are made together at the end. Where one
//! of the calls is for the real library, all of them are.

use crate::communicator::{Communicator, known, place};
use crate::failure::{Failure, Progress, Result};
use crate::finalize;
use crate::forward::{self, Forwarded};
use crate::library::{Library, library};
use crate::making::{Ask, Lines};
use crate::types::{Comm, SimInfo};
use crate::way::beside;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// A call of a group, as the real library would make it; or why it cannot.
pub type Deferred = Result<Forwarded>;

/// The group that a thread has begun.
struct Open {
    depth: u32,
    /// Communicators that are to be made.
    joins: Lines,
    /// The first call that was refused.
    failure: Option<Failure>,
    /// All calls, where there is a real library that may have to make them.
    calls: Vec<Deferred>,
    /// The first call that nothing here serves.
    unserved: Option<Failure>,
    /// Communicators that are finalized.
    last: Vec<Arc<Communicator>>,
    /// The communicators of the calls that `libantiphon.so` has gathered. The group keeps them, so that an abort sees that the
    /// group's end will wait in them, and a destroy leaves them to the group.
    gathered: Vec<Arc<Communicator>>,
}

impl Open {
    const NONE: Open = Open {
        depth: 0,
        joins: Lines::NONE,
        failure: None,
        calls: Vec::new(),
        unserved: None,
        last: Vec::new(),
        gathered: Vec::new(),
    };
}

thread_local! {
    /// It is never destroyed, so that a thread can use groups to its very end: destructors of statics and of thread-locals may
    /// end communicators, too.
    static OPEN: RefCell<ManuallyDrop<Open>> = const { RefCell::new(ManuallyDrop::new(Open::NONE)) };
    /// Gives up, at the end of a thread, the group that it has begun and not ended.
    static LEFT: Left = const { Left };
}

struct Left;

impl Drop for Left {
    fn drop(&mut self) {
        let left = take();
        finalize::take_back(&left.last);
    }
}

/// Takes what this thread has begun.
fn take() -> Open {
    OPEN.with_borrow_mut(|open| std::mem::replace(&mut **open, Open::NONE))
}

/// Runs the body of a function that may be part of a group: if it is refused, so is the group, unless the real library may make
/// the call.
#[inline(always)]
pub fn part<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
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

/// Has the open group of this thread, if there is one, keep the communicator of a call that `libantiphon.so` has gathered.
#[inline]
pub fn gathered(communicator: &Arc<Communicator>) {
    OPEN.with_borrow_mut(|open| {
        let is_same = |last: &Arc<Communicator>| Arc::ptr_eq(last, communicator);
        if open.depth > 0 && !open.gathered.last().is_some_and(is_same) {
            open.gathered.push(Arc::clone(communicator));
        }
    });
}

/// Keeps a call of the open group for the real library, which has to make all of them if nothing here serves this one.
pub fn keep(call: Deferred, unserved: Option<Failure>) {
    OPEN.with_borrow_mut(|open| {
        open.calls.push(call);
        open.unserved = open.unserved.take().or(unserved);
    });
}

/// Takes the parent of communicators that are asked for next: one that makes calls, or that the group of this thread divides.
///
/// # Safety
/// The handle is null or was issued here.
pub unsafe fn parent(comm: Comm) -> Result<Arc<Communicator>> {
    // SAFETY: as this function's.
    let used = unsafe { known(comm)? };
    if !OPEN.with_borrow(|open| open.joins.divide(&used)) {
        used.is_open()?;
    }
    Ok(Arc::clone(&used))
}

/// Makes a communicator: now, or when the group of this thread ends; or begins to, if it need not block.
///
/// # Safety
/// The place stays writable until the group ends.
pub unsafe fn join(
    ask: Ask,
    make: impl FnOnce() -> Result<Option<Arc<Communicator>>> + Send + 'static,
) -> Result<Progress> {
    let blocking = ask.blocking;
    if is_open() {
        // SAFETY: as this function's.
        OPEN.with_borrow_mut(|open| unsafe { open.joins.add(ask, make) })?;
        return Ok(if blocking { Progress::Done } else { Progress::UnderWay });
    }
    let mut line = Lines::NONE;
    // SAFETY: as this function's.
    unsafe { line.add(ask, make)? };
    if blocking { line.run().map(|()| Progress::Done) } else { Ok(line.start()) }
}

/// Completes the calls of a communicator that is finalized: now, or when the group of this thread has ended.
pub fn finally(communicator: Arc<Communicator>) -> Result<Progress> {
    if !is_open() {
        return finalize::complete(&[communicator]);
    }
    OPEN.with_borrow_mut(|open| open.last.push(communicator));
    Ok(Progress::Done)
}

pub fn start() -> Result<()> {
    let library = library()?;
    if !is_open() {
        // This fails late in the life of a thread; then nothing gives up the group that it leaves open.
        let _ = LEFT.try_with(|_| ());
        // SAFETY: any thread may call it at any time.
        library.outcome(unsafe { (library.antiphon_group_begin)() })?;
    }
    OPEN.with_borrow_mut(|open| open.depth += 1);
    Ok(())
}

/// What this thread has gathered in `libantiphon.so`, which is given up with this: where a group is refused, or a panic goes by.
struct Gathered(&'static Library);

impl Gathered {
    /// Launches it.
    fn end(self) -> Result<()> {
        let library = self.0;
        std::mem::forget(self);
        // SAFETY: this thread has begun it.
        library.outcome(unsafe { (library.antiphon_group_end)() })
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        // SAFETY: any thread may call it at any time.
        unsafe { (self.0.antiphon_group_cancel)() };
    }
}

pub fn end() -> Result<Progress> {
    let library = library()?;
    let ended = OPEN.with_borrow_mut(|open| match open.depth {
        0 => Err(Failure::usage("cannot end a group: saw none, allowed after ncclGroupStart")),
        1 => Ok(Some(std::mem::replace(&mut **open, Open::NONE))),
        _ => {
            open.depth -= 1;
            Ok(None)
        }
    })?;
    let Some(Open { joins, failure, calls, unserved, last, gathered: kept, .. }) = ended else {
        return Ok(Progress::Done);
    };
    let gathered = Gathered(library);
    let (waited, [first, behind]) = joins.parted();
    let begun = match failure {
        Some(failure) => {
            [waited, first].into_iter().for_each(|lines| lines.refuse(&failure));
            Err(failure)
        }
        None => {
            // Before those that are waited for, which may be of the same communicator.
            let progress = first.start();
            waited.run().map(|()| progress)
        }
    };
    let progress = match begun {
        Ok(progress) => progress,
        Err(failure) => {
            drop(gathered);
            behind.refuse(&failure);
            finalize::take_back(&last);
            return Err(failure);
        }
    };
    // Also where they fail: those of other ranks may not have.
    let launched = launch(gathered, calls, unserved);
    drop(kept);
    // After the calls of their parents, as on the other ranks.
    let progress = progress.and(behind.start());
    let completed = finalize::complete(&last);
    launched.and(completed).map(|last| progress.and(last))
}

/// Launches the calls of a group: here, or all of them in the real library.
fn launch(gathered: Gathered, calls: Vec<Deferred>, unserved: Option<Failure>) -> Result<()> {
    if let Some(why) = unserved {
        drop(gathered);
        return forward::together(calls, &why);
    }
    match gathered.end() {
        // Groups are refused whole.
        Err(why) if why.unserved && !calls.is_empty() => forward::together(calls, &why),
        outcome => outcome,
    }
}

/// Gives up the groups of this thread.
pub fn cancel() -> Result<()> {
    let Open { joins, last, .. } = take();
    joins.refuse(&Failure::usage("cannot make a communicator: its group was given up"));
    finalize::take_back(&last);
    let library = library()?;
    // SAFETY: any thread may call it at any time.
    library.outcome(unsafe { (library.antiphon_group_cancel)() })
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
