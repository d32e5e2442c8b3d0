//! Handles of communicators: whoever uses one keeps it, and the last who does lets go of it.

use crate::communicator::Communicator;
use crate::failure::{Failure, Result};
use crate::types::Comm;
use std::cell::UnsafeCell;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Says that an address is a slot's.
const MARK: u64 = u64::from_le_bytes(*b"antiNCCL");
/// Beside the number of users: the handle is destroyed, and nobody begins to use it.
const GONE: usize = 1 << (usize::BITS - 1);

/// Where a communicator is. Slots are used again, but never given back to the allocator: so a handle that is destroyed can be
/// told from one that is not.
#[repr(C)]
struct Slot {
    mark: u64,
    /// How many use it, and [`GONE`].
    users: AtomicUsize,
    value: UnsafeCell<Option<Arc<Communicator>>>,
}

// SAFETY: the value is written by who made the slot or took it from `FREE`, and by the last user of one that is gone: nobody else
// has it then. All others read it, and are counted.
unsafe impl Sync for Slot {}

static FREE: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());

/// Held by who waits for the users of a handle that is destroyed, between looking and waiting.
static LEAVING: Mutex<()> = Mutex::new(());
/// One of them has let go, who was not the last.
static LEFT: Condvar = Condvar::new();

fn leaving() -> MutexGuard<'static, ()> {
    LEAVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a handle.
pub fn issue(communicator: Arc<Communicator>) -> Comm {
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let slot: &'static Slot = free.unwrap_or_else(|| {
        let (users, value) = (AtomicUsize::new(GONE), UnsafeCell::new(None));
        Box::leak(Box::new(Slot { mark: MARK, users, value }))
    });
    // SAFETY: the slot is nobody else's, and nobody begins to use one that is gone.
    unsafe { *slot.value.get() = Some(communicator) };
    slot.users.store(0, Ordering::Release);
    ptr::from_ref(slot).cast_mut().cast()
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
    /// The handle is null or came from [`issue`].
    #[inline]
    pub unsafe fn of(comm: Comm) -> Result<Used> {
        let slot = comm.cast::<Slot>();
        if slot.is_null() || !slot.is_aligned() {
            return Err(none("null, or an address that is none"));
        }
        // SAFETY: slots stay for ever.
        let slot: &'static Slot = unsafe { &*slot };
        if slot.mark != MARK {
            return Err(none("an address that is none"));
        }
        let more = |users: usize| (users & GONE == 0).then_some(users + 1);
        if slot.users.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_err() {
            return Err(none("one that is destroyed"));
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

    /// Waits until nobody else uses the communicator of a handle that is destroyed: so that it goes with this user.
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

/// Tells who waits for the users of a handle.
#[cold]
fn tell() {
    // Who has looked before this user let go waits by now.
    drop(leaving());
    LEFT.notify_all();
}

#[cold]
fn free(slot: &'static Slot) {
    // SAFETY: nobody uses it any more, and nobody begins to.
    let communicator = unsafe { (*slot.value.get()).take() };
    FREE.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    drop(communicator);
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

    fn text(outcome: Result<Used>) -> String {
        outcome.err().map(|failure| failure.text).unwrap_or_default()
    }

    #[test]
    fn who_uses_a_communicator_keeps_it_and_the_last_lets_go() {
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
    fn who_waits_for_the_others_is_the_last() {
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
