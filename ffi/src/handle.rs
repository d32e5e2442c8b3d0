//! Opaque handles, which C holds in place of objects.
//!
//! A handle is the address of a slot, which begins with a word that says what is in it. Slots are used again, for objects of
//! the same kind, but never given back to the allocator: so a destroyed handle can be told from a valid one. (Once its slot has
//! a new object, a destroyed handle is taken for that object's. To make this rare, the slot that was free longest is used
//! first, and only when more than [`RESTING`] are free.)

use crate::result::{Failure, antiphon_result};
use antiphon_executor::Communicator;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What handles stand for.
pub(crate) trait Object: Sized + Send + Sync + 'static {
    /// The type that C sees.
    type Opaque;
    /// The word that marks a slot as holding one; each kind has another.
    const MARK: u64;
    /// What it is called in messages.
    const NAME: &'static str;

    /// The slots of this kind that are free.
    fn free() -> &'static Pool<Self>;
}

/// Where an object is.
#[repr(C)]
pub(crate) struct Slot<T> {
    /// [`Object::MARK`], or 0.
    mark: AtomicU64,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: only the owner of a slot writes its value: `issue`, before it returns the handle, and `take`, in which only one
// caller gets so far. In between the value is only read, and `T` is `Sync`.
unsafe impl<T: Send + Sync> Sync for Slot<T> {}

/// A slot is used again only when more than this many of its kind are free.
const RESTING: usize = 1024;

/// The free slots of a kind of object, those that were free longest first.
pub(crate) struct Pool<T: 'static>(Mutex<VecDeque<&'static Slot<T>>>);

impl<T> Pool<T> {
    pub const fn new() -> Self {
        Pool(Mutex::new(VecDeque::new()))
    }

    fn slots(&self) -> MutexGuard<'_, VecDeque<&'static Slot<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot to be used again, if enough are free.
    fn take(&self) -> Option<&'static Slot<T>> {
        let mut slots = self.slots();
        if slots.len() > RESTING { slots.pop_front() } else { None }
    }
}

/// Makes a handle of an object.
pub(crate) fn issue<T: Object>(object: T) -> *mut T::Opaque {
    let slot = T::free().take().unwrap_or_else(|| {
        Box::leak(Box::new(Slot { mark: AtomicU64::new(0), value: UnsafeCell::new(None) }))
    });
    // SAFETY: a free slot is nobody's, and this one is not free any more.
    unsafe { *slot.value.get() = Some(object) };
    slot.mark.store(T::MARK, Ordering::Release);
    std::ptr::from_ref(slot).cast_mut().cast()
}

#[cold]
fn invalid<T: Object>(saw: &str) -> Failure {
    let name = T::NAME;
    let text = format!(
        "cannot use a handle: saw {saw}, allowed {name} that was created and not destroyed"
    );
    Failure::new(antiphon_result::InvalidHandle, text)
}

/// The slot that a handle means.
///
/// # Safety
/// As [`borrow`].
#[inline]
unsafe fn slot<T: Object>(handle: *const T::Opaque) -> Result<&'static Slot<T>, Failure> {
    let slot = handle.cast::<Slot<T>>();
    if slot.is_null() {
        return Err(invalid::<T>("null"));
    }
    if !slot.is_aligned() {
        return Err(invalid::<T>("an address that is none"));
    }
    // SAFETY: slots of all kinds begin with the mark and stay for ever.
    let mark = unsafe { &*slot.cast::<AtomicU64>() };
    match mark.load(Ordering::Acquire) {
        // SAFETY: the mark says that it is one.
        known if known == T::MARK => Ok(unsafe { &*slot }),
        0 => Err(invalid::<T>("one that is destroyed")),
        _ => Err(invalid::<T>("one of another kind")),
    }
}

/// The object of a handle.
///
/// # Errors
/// `INVALID_HANDLE` for null, a destroyed handle and one of another kind.
///
/// # Safety
/// The handle is null or came from [`issue`], of any kind; nobody destroys it for `'a`.
#[inline]
pub(crate) unsafe fn borrow<'a, T: Object>(handle: *const T::Opaque) -> Result<&'a T, Failure> {
    // SAFETY: as this function's; nobody takes the value meanwhile.
    let value = unsafe { &*slot::<T>(handle)?.value.get() };
    value.as_ref().ok_or_else(|| invalid::<T>("one that is destroyed"))
}

/// Takes the object of a handle, which is destroyed by this.
///
/// # Errors
/// As [`borrow`].
///
/// # Safety
/// The handle is null or came from [`issue`], of any kind; nobody uses its object meanwhile.
pub(crate) unsafe fn take<T: Object>(handle: *mut T::Opaque) -> Result<T, Failure> {
    // SAFETY: as this function's.
    let slot = unsafe { slot::<T>(handle)? };
    let destroyed = || invalid::<T>("one that is destroyed");
    // If two threads destroy the handle at once, only one gets past this.
    let mine = slot.mark.compare_exchange(T::MARK, 0, Ordering::AcqRel, Ordering::Acquire);
    mine.map_err(|_| destroyed())?;
    // SAFETY: nobody else passes the exchange, and nobody uses the object.
    let object = unsafe { (*slot.value.get()).take() };
    T::free().slots().push_back(slot);
    object.ok_or_else(destroyed)
}

/// Drops what a handle held. If it holds a communicator that was made before a fork of this process, it is leaked instead:
/// dropping it would end the communicator of the parent.
pub(crate) fn drop_own<T>(taken: T, on: impl Fn(&T) -> &Communicator) {
    if on(&taken).is_inherited() {
        std::mem::forget(taken);
    }
}

/// Declares what C sees of a kind of object, and its pool.
macro_rules! object {
    ($object:ty, $opaque:ty, $mark:literal, $name:literal) => {
        impl $crate::handle::Object for $object {
            type Opaque = $opaque;
            const MARK: u64 = u64::from_le_bytes(*$mark);
            const NAME: &'static str = $name;

            fn free() -> &'static $crate::handle::Pool<Self> {
                static FREE: $crate::handle::Pool<$object> = $crate::handle::Pool::new();
                &FREE
            }
        }
    };
}

pub(crate) use object;

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    struct One(u32);
    struct Other;
    struct OpaqueOne;
    struct OpaqueOther;
    object!(One, OpaqueOne, b"test-one", "a one");
    object!(Other, OpaqueOther, b"test-two", "another");

    #[test]
    fn a_handle_is_what_it_was_made_from_until_it_is_destroyed() {
        let handle = issue(One(7));
        let other = issue(Other);
        let text = |failure: Failure| {
            assert_eq!(failure.code, antiphon_result::InvalidHandle);
            failure.text
        };
        // SAFETY: all of these are null or handles, and nobody else has them.
        unsafe {
            assert_eq!(borrow::<One>(handle).unwrap().0, 7);
            let null = borrow::<One>(ptr::null()).err().map(text).unwrap();
            assert!(null.contains("null") && null.contains("a one"), "{null}");
            let kind = borrow::<One>(other.cast()).err().map(text).unwrap();
            assert!(kind.contains("another kind"), "{kind}");
            let odd = handle.wrapping_byte_add(1);
            assert!(borrow::<One>(odd).err().map(text).unwrap().contains("address"));
            assert_eq!(take::<One>(handle).unwrap().0, 7);
            for gone in [borrow::<One>(handle).err(), take::<One>(handle).err()] {
                assert!(gone.map(text).unwrap().contains("destroyed"));
            }
            // It says so for a while, and then its slot is used again.
            for _ in 0..RESTING {
                let later = issue(One(8));
                assert_ne!(later, handle);
                take::<One>(later).unwrap();
            }
            assert!(borrow::<One>(handle).err().map(text).unwrap().contains("destroyed"));
            let again = issue(One(9));
            assert_eq!(again, handle);
            assert_eq!(take::<One>(again).unwrap().0, 9);
            take::<Other>(other).unwrap();
        }
    }
}
