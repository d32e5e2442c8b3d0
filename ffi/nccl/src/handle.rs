//! Handles of communicators: each user keeps the communicator alive, and the last one lets go of it.

use crate::communicator::Communicator;
use crate::failure::{Failure, Result};
use crate::types::Comm;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Says that an address is a slot's.
const MARK: u64 = u64::from_le_bytes(*b"antiNCCL");
/// A flag beside the number of users: the handle is destroyed, and no use of it begins any more.
const GONE: usize = 1 << (usize::BITS - 1);

/// A flag beside the number of users: there is no communicator yet, and no use of it begins.
const AWAITED: usize = GONE >> 1;

/// A communicator that is being made.
enum Awaited {
    UnderWay,
    /// It did not come to be.
    Failed(Failure),
    /// Its handle is destroyed.
    GivenUp,
}

/// How many slots are free before one of them is used again.
const RESTING: usize = 1024;

/// The place of a communicator. Slots are reused but never given back to the allocator, so that a destroyed handle can be told
/// from a live one. (A destroyed handle whose slot has a new communicator is taken for the new one's; therefore the slot that has
/// been free longest is reused first, and none before [`RESTING`] others are free.)
#[repr(C)]
struct Slot {
    mark: u64,
    /// How many use it, and [`GONE`] or [`AWAITED`].
    users: AtomicUsize,
    value: UnsafeCell<Option<Arc<Communicator>>>,
    /// The state of a communicator that is being made, or whose making failed; `None` for others.
    awaited: Mutex<Option<Awaited>>,
}

impl Slot {
    fn awaited(&self) -> MutexGuard<'_, Option<Awaited>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: only a slot's sole owner writes the value: whoever made the slot or took it from `FREE` (also later, through the slot's
// only promise), and the last user of a slot that is gone. All others only read it, and are counted.
unsafe impl Sync for Slot {}

/// The free slots; the one that has been free longest comes first.
static FREE: Mutex<VecDeque<&'static Slot>> = Mutex::new(VecDeque::new());

/// Held by a thread that waits for the users of a destroyed handle, from its look at their number until it waits.
static LEAVING: Mutex<()> = Mutex::new(());
/// Tells that a user of a destroyed handle has let go who was not the last.
static LEFT: Condvar = Condvar::new();

fn leaving() -> MutexGuard<'static, ()> {
    LEAVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A free slot, which is [`GONE`].
fn vacant() -> &'static Slot {
    let mut slots = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let free = if slots.len() > RESTING { slots.pop_front() } else { None };
    drop(slots);
    free.unwrap_or_else(|| {
        let (users, value) = (AtomicUsize::new(GONE), UnsafeCell::new(None));
        Box::leak(Box::new(Slot { mark: MARK, users, value, awaited: Mutex::new(None) }))
    })
}

/// Takes back a slot that has no users and is [`GONE`].
fn take_back(slot: &'static Slot) {
    FREE.lock().unwrap_or_else(PoisonError::into_inner).push_back(slot);
}

fn handle(slot: &'static Slot) -> Comm {
    ptr::from_ref(slot).cast_mut().cast()
}

/// Lets a communicator be used by the handle of a slot.
///
/// # Safety
/// The slot is the caller's alone, and is [`GONE`] or [`AWAITED`].
unsafe fn fill(slot: &'static Slot, communicator: Arc<Communicator>) {
    // SAFETY: as this function's: no use of a slot in such a state begins.
    unsafe { *slot.value.get() = Some(communicator) };
    slot.users.store(0, Ordering::Release);
}

/// Makes a handle.
pub fn issue(communicator: Arc<Communicator>) -> Comm {
    let slot = vacant();
    // SAFETY: it is nobody's.
    unsafe { fill(slot, communicator) };
    handle(slot)
}

/// Makes a handle of a communicator that is being made, and the promise to say what comes of that.
pub fn promise() -> (Comm, Promise) {
    let slot = vacant();
    *slot.awaited() = Some(Awaited::UnderWay);
    slot.users.store(AWAITED, Ordering::Release);
    (handle(slot), Promise(slot))
}

/// Its holder says what became of a communicator that is being made. A promise that is dropped says that the making failed.
pub struct Promise(&'static Slot);

impl Promise {
    /// Says what became of it. If its handle was destroyed meanwhile, the communicator belongs to nobody and is returned.
    pub fn keep(self, outcome: Result<Arc<Communicator>>) -> Option<Arc<Communicator>> {
        let slot = self.0;
        std::mem::forget(self);
        let mut awaited = slot.awaited();
        match (awaited.take(), outcome) {
            (Some(Awaited::GivenUp), outcome) => {
                drop(awaited);
                take_back(slot);
                outcome.ok()
            }
            (_, Ok(communicator)) => {
                // SAFETY: until the promise is kept the slot is nobody else's.
                unsafe { fill(slot, communicator) };
                None
            }
            (_, Err(failure)) => {
                // A call that uses it later cannot go to the real library either.
                *awaited = Some(Awaited::Failed(Failure { unserved: false, ..failure }));
                None
            }
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let failure = Failure::system("cannot make a communicator: no thread could, or it crashed");
        Promise(self.0).keep(Err(failure));
    }
}

/// The slot of a handle.
///
/// # Safety
/// The handle is null or came from [`issue`] or [`promise`].
#[inline]
unsafe fn slot(comm: Comm) -> Result<&'static Slot> {
    let slot = comm.cast::<Slot>();
    if slot.is_null() || !slot.is_aligned() {
        return Err(none("null, or an address that is none"));
    }
    // SAFETY: slots stay for ever.
    let slot: &'static Slot = unsafe { &*slot };
    if slot.mark == MARK { Ok(slot) } else { Err(none("an address that is none")) }
}

/// `Some(Ok)` while a communicator is being made, or why its making failed; `None` for all others.
///
/// # Safety
/// As [`Used::of`].
pub unsafe fn awaited(comm: Comm) -> Option<Result<()>> {
    // SAFETY: as this function's.
    let slot = unsafe { slot(comm) }.ok()?;
    match &*slot.awaited() {
        Some(Awaited::UnderWay) => Some(Ok(())),
        Some(Awaited::Failed(failure)) => Some(Err(failure.clone())),
        Some(Awaited::GivenUp) | None => None,
    }
}

/// Has nobody say what comes of a communicator that is being made, as long as this is kept.
#[cfg(test)]
pub fn hold(comm: Comm) -> impl Sized {
    // SAFETY: tests hold what was promised.
    unsafe { slot(comm) }.map(Slot::awaited)
}

/// Destroys the handle of a communicator that is being made, or whose making failed, and leaves all others alone. Returns whether
/// it destroyed the handle.
///
/// # Safety
/// As [`Used::of`].
pub unsafe fn give_up(comm: Comm) -> bool {
    // SAFETY: as this function's.
    let Ok(slot) = (unsafe { slot(comm) }) else { return false };
    let mut awaited = slot.awaited();
    match &*awaited {
        Some(Awaited::UnderWay) => {
            *awaited = Some(Awaited::GivenUp);
            slot.users.store(GONE, Ordering::Release);
            true
        }
        Some(Awaited::Failed(_)) => {
            *awaited = None;
            slot.users.store(GONE, Ordering::Release);
            drop(awaited);
            take_back(slot);
            true
        }
        Some(Awaited::GivenUp) | None => false,
    }
}

/// Somebody who uses a communicator. It stays until they are done, though its handle may be destroyed meanwhile.
pub struct Used {
    slot: &'static Slot,
    communicator: &'static Arc<Communicator>,
}

impl Used {
    /// Begins to use the communicator of a handle.
    ///
    /// # Errors
    /// If there is none, or it is destroyed.
    ///
    /// # Safety
    /// The handle is null or came from [`issue`] or [`promise`].
    #[inline]
    pub unsafe fn of(comm: Comm) -> Result<Used> {
        // SAFETY: as this function's.
        unsafe { Used::of_users(comm, |users| users & (GONE | AWAITED) == 0) }
    }

    /// As [`Used::of`], and also for a destroyed handle whose communicator somebody still uses.
    ///
    /// # Errors
    /// If there is no communicator, or the handle is destroyed and nobody uses it.
    ///
    /// # Safety
    /// As [`Used::of`].
    pub unsafe fn also_leaving(comm: Comm) -> Result<Used> {
        // SAFETY: as this function's.
        unsafe { Used::of_users(comm, |users| users != GONE && users & AWAITED == 0) }
    }

    /// As [`Used::of`], where the slot's users are `allowed`.
    ///
    /// # Safety
    /// As [`Used::of`], and `allowed` refuses every state in which there is no communicator.
    #[inline(always)]
    unsafe fn of_users(comm: Comm, allowed: impl Fn(usize) -> bool) -> Result<Used> {
        // SAFETY: as this function's.
        let slot = unsafe { slot(comm)? };
        let more = |users: usize| allowed(users).then_some(users + 1);
        if slot.users.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_err() {
            return Err(unusable(slot));
        }
        // SAFETY: it is used from now on, so that nobody writes the value until this user is done.
        match unsafe { &*slot.value.get() } {
            Some(communicator) => Ok(Used { slot, communicator }),
            None => unreachable!("a handle that is not destroyed has a communicator"),
        }
    }

    /// Destroys the handle: nobody begins to use the communicator any more, and it goes when the last user is done.
    ///
    /// # Errors
    /// If somebody else was first.
    pub fn destroy(&self) -> Result<()> {
        if self.slot.users.fetch_or(GONE, Ordering::AcqRel) & GONE == 0 {
            return Ok(());
        }
        Err(Failure::argument("cannot destroy a communicator twice"))
    }

    /// Waits until nobody else uses the communicator of a destroyed handle, so that it goes when this user lets go.
    pub fn wait_for_others(&self) {
        let mut guard = leaving();
        while !self.is_last() {
            guard = LEFT.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether nobody else uses the communicator of a handle that is destroyed.
    pub fn is_last(&self) -> bool {
        self.slot.users.load(Ordering::Acquire) == GONE | 1
    }
}

impl Deref for Used {
    type Target = Arc<Communicator>;

    #[inline]
    fn deref(&self) -> &Arc<Communicator> {
        self.communicator
    }
}

impl Drop for Used {
    #[inline]
    fn drop(&mut self) {
        // What users did happens before the last of them lets go.
        let users = self.slot.users.fetch_sub(1, Ordering::AcqRel);
        if users == GONE | 1 {
            free(self.slot);
        } else if users & GONE != 0 {
            tell();
        }
    }
}

/// Wakes the threads that wait for the users of a destroyed handle.
#[cold]
fn tell() {
    // With the lock taken once, a thread that looked before this user let go is waiting by now.
    drop(leaving());
    LEFT.notify_all();
}

#[cold]
fn free(slot: &'static Slot) {
    // SAFETY: nobody uses it any more, and nobody begins to.
    let communicator = unsafe { (*slot.value.get()).take() };
    take_back(slot);
    drop(communicator);
}

/// Why the communicator of a handle cannot be used.
#[cold]
fn unusable(slot: &Slot) -> Failure {
    let destroyed = slot.users.load(Ordering::Acquire) & GONE != 0;
    match &*slot.awaited() {
        Some(Awaited::Failed(failure)) => failure.clone(),
        // Made just now, perhaps.
        Some(Awaited::UnderWay) | None if !destroyed => Failure::argument(
            "cannot use a communicator: it is being made; ncclCommGetAsyncError says when it is, and ncclCommAbort gives it up",
        ),
        _ => none("one that is destroyed"),
    }
}

#[cold]
fn none(saw: &str) -> Failure {
    Failure::argument(format!(
        "cannot use a communicator: saw {saw}, allowed one that was made and not destroyed"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Held by each test: slots that one has given back are another's.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(outcome: Result<Used>) -> String {
        outcome.err().map(|failure| failure.text).unwrap_or_default()
    }

    #[test]
    fn who_uses_a_communicator_keeps_it_and_the_last_lets_go() {
        let _alone = alone();
        let communicator = Arc::new(Communicator::nobodys());
        let comm = issue(Arc::clone(&communicator));
        // SAFETY: null, or issued just now.
        let of = |comm| unsafe { Used::of(comm) };
        let (one, other) = (of(comm).unwrap(), of(comm).unwrap());
        one.destroy().unwrap();
        assert!(one.destroy().is_err() && other.destroy().is_err());
        assert!(text(of(comm)).contains("destroyed"));
        drop(one);
        assert_eq!(Arc::strong_count(&communicator), 2);
        assert!(Arc::ptr_eq(&other, &communicator));
        drop(other);
        assert_eq!(Arc::strong_count(&communicator), 1);
        assert!(text(of(comm)).contains("destroyed"));
        for wrong in [ptr::null_mut(), comm.wrapping_byte_add(1)] {
            assert!(text(of(wrong)).contains("null, or an address"));
        }
    }

    #[test]
    fn a_promise_is_kept_broken_or_given_up() {
        let _alone = alone();
        // SAFETY: issued just now, all of them.
        let of = |comm| unsafe { Used::of(comm) };
        // SAFETY: as above.
        let (state, give_up) = (|comm| unsafe { awaited(comm) }, |comm| unsafe { give_up(comm) });
        let communicator = Arc::new(Communicator::nobodys());

        let (comm, promise_of_one) = promise();
        assert!(matches!(state(comm), Some(Ok(()))));
        assert!(text(of(comm)).contains("is being made"));
        assert!(promise_of_one.keep(Ok(Arc::clone(&communicator))).is_none());
        assert!(state(comm).is_none() && !give_up(comm));
        of(comm).unwrap().destroy().unwrap();
        assert_eq!(Arc::strong_count(&communicator), 1);

        for failure in [Some(Failure::usage("none")), None] {
            let (comm, promise) = promise();
            let expected = if failure.is_some() { "none" } else { "crashed" };
            match failure {
                Some(failure) => assert!(promise.keep(Err(failure)).is_none()),
                None => drop(promise),
            }
            assert!(state(comm).is_some_and(|state| state.unwrap_err().text.contains(expected)));
            assert!(text(of(comm)).contains(expected));
            assert!(give_up(comm) && !give_up(comm));
            assert!(text(of(comm)).contains("destroyed") && state(comm).is_none());
        }

        let (comm, late) = promise();
        assert!(give_up(comm) && !give_up(comm));
        assert!(text(of(comm)).contains("destroyed") && state(comm).is_none());
        let nobodys = late.keep(Ok(Arc::clone(&communicator))).unwrap();
        assert!(Arc::ptr_eq(&nobodys, &communicator));
        assert!(text(of(comm)).contains("destroyed"));
    }

    #[test]
    fn a_destroyed_handle_is_another_communicators_only_after_many() {
        let _alone = alone();
        let issued = || issue(Arc::new(Communicator::nobodys()));
        // SAFETY: issued just now.
        let end = |comm| unsafe { Used::of(comm) }.and_then(|used| used.destroy()).unwrap();
        let comm = issued();
        end(comm);
        for _ in 0..RESTING {
            let other = issued();
            assert_ne!(other, comm);
            end(other);
        }
        // SAFETY: as above.
        assert!(text(unsafe { Used::of(comm) }).contains("destroyed"));
        // Other tests may have left some that were free before.
        let mut again = (0..=RESTING).map(|_| issued()).inspect(|&other| end(other));
        assert!(again.any(|other| other == comm));
    }

    #[test]
    fn who_aborts_reaches_a_communicator_until_nobody_uses_it() {
        let _alone = alone();
        let comm = issue(Arc::new(Communicator::nobodys()));
        // SAFETY: issued just now.
        let (of, leaving) = (|| unsafe { Used::of(comm) }, || unsafe { Used::also_leaving(comm) });
        let user = of().unwrap();
        user.destroy().unwrap();
        assert!(of().is_err());
        assert!(leaving().unwrap().destroy().is_err());
        drop(user);
        assert!(text(leaving()).contains("destroyed"));
    }

    #[test]
    fn who_waits_for_the_others_is_the_last() {
        let _alone = alone();
        for _ in 0..100 {
            let communicator = Arc::new(Communicator::nobodys());
            let comm = issue(Arc::clone(&communicator));
            // SAFETY: issued just now.
            let of = |comm| unsafe { Used::of(comm) };
            let one = of(comm).unwrap();
            let others: Vec<_> = (0..3).map(|_| of(comm).unwrap()).collect();
            one.destroy().unwrap();
            std::thread::scope(|scope| {
                others.into_iter().for_each(|other| drop(scope.spawn(move || drop(other))));
                one.wait_for_others();
                assert!(one.is_last());
                // It goes here, and not with another.
                assert_eq!(Arc::strong_count(&communicator), 2);
                drop(one);
                assert_eq!(Arc::strong_count(&communicator), 1);
            });
        }
    }

    #[test]
    fn of_many_who_come_and_go_exactly_one_lets_go() {
        let _alone = alone();
        for _ in 0..100 {
            let communicator = Arc::new(Communicator::nobodys());
            let comm = issue(Arc::clone(&communicator)).expose_provenance();
            let destroyed = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        // SAFETY: it was issued above, and no other handle is while the threads run.
                        let of = || unsafe { Used::of(ptr::with_exposed_provenance_mut(comm)) };
                        for turn in 0.. {
                            let Ok(used) = of() else { return };
                            assert_eq!(used.world, 0);
                            if turn == 9 && used.destroy().is_ok() {
                                destroyed.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    });
                }
            });
            assert_eq!(destroyed.into_inner(), 1);
            assert_eq!(Arc::strong_count(&communicator), 1);
        }
    }
}
