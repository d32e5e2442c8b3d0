//! Calls that nothing here serves, on the host: they go to the real library, if one is named beside Antiphon.
//!
//! Each communicator has a counterpart there, of the same ranks, which is made with it and never later: all ranks say whether
//! theirs came to be, and if one's did not, nobody's is used. So a call finds its way without asking peers, by what all ranks
//! know alike: the function, the type, the reduction, the nodes.

use crate::communicator::usable;
use crate::failure::{Failure, Result};
use crate::group::{self, Deferred};
use crate::library::{Handle, library};
use crate::types::{Comm, UniqueId};
use crate::way::{Entry, Real, beside};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Numbers of `antiphon.h`: bytes, numbers of 32 bits, the greatest of all.
const U8: i32 = 5;
const I32: i32 = 6;
const MAX: i32 = 3;

macro_rules! functions {
    ($($field:ident = $name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// What of the real library is called for itself.
        struct Functions {
            path: String,
            $($field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            fn of(real: &Real) -> Result<Self> {
                Ok(Functions {
                    path: real.path.to_string_lossy().into_owned(),
                    $($field: {
                        let at = ptr::with_exposed_provenance(real.find(stringify!($name))?);
                        // SAFETY: NCCL's header declares it so.
                        unsafe {
                            std::mem::transmute::<
                                *const c_void,
                                unsafe extern "C" fn($($argument),*) -> $result,
                            >(at)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    unique_id = ncclGetUniqueId(*mut UniqueId) -> c_int;
    init_rank = ncclCommInitRank(*mut Comm, c_int, UniqueId, c_int) -> c_int;
    init_all = ncclCommInitAll(*mut Comm, c_int, *const c_int) -> c_int;
    destroy = ncclCommDestroy(Comm) -> c_int;
    abort = ncclCommAbort(Comm) -> c_int;
    start = ncclGroupStart() -> c_int;
    end = ncclGroupEnd() -> c_int;
    last_error = ncclGetLastError(Comm) -> *const c_char;
}

/// They, if a library is named beside Antiphon; or why they cannot be called.
fn functions() -> Option<&'static Result<Functions>> {
    static FUNCTIONS: OnceLock<Result<Functions>> = OnceLock::new();
    let real = beside()?;
    Some(FUNCTIONS.get_or_init(|| match real {
        Ok(real) => Functions::of(real),
        Err(why) => Err(Failure::usage(why.clone())),
    }))
}

impl Functions {
    /// A result of the real library.
    fn outcome(&self, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the text, if there is one, stays until the next failure.
        let text = unsafe {
            let text = (self.last_error)(ptr::null_mut());
            if text.is_null() { c"" } else { CStr::from_ptr(text) }
        };
        let text = format!("{}: result {code}: {}", self.path, text.to_string_lossy());
        Err(Failure { code, text, unserved: false })
    }
}

/// The communicator of the real library that goes with one of Antiphon.
pub struct Counterpart {
    /// Null from when it is aborted on.
    comm: AtomicPtr<c_void>,
    /// Why there is none.
    none: Option<Failure>,
}

impl Counterpart {
    fn new(made: Result<Comm>) -> Self {
        let (comm, none) = match made {
            Ok(comm) => (comm, None),
            Err(why) => (ptr::null_mut(), Some(why)),
        };
        Counterpart { comm: AtomicPtr::new(comm), none }
    }

    /// The handle.
    fn comm(&self) -> Result<Comm> {
        let comm = self.comm.load(Ordering::Acquire);
        match &self.none {
            Some(why) => Err(why.clone()),
            None if comm.is_null() => Err(Failure::usage("its communicator is aborted")),
            None => Ok(comm),
        }
    }

    /// Aborts it; calls that it has begun come back.
    pub fn abort(&self) {
        let comm = self.comm.swap(ptr::null_mut(), Ordering::AcqRel);
        if let (false, Some(Ok(functions))) = (comm.is_null(), functions()) {
            // SAFETY: it was made, and nobody else has taken it.
            unsafe { (functions.abort)(comm) };
        }
    }
}

impl Drop for Counterpart {
    fn drop(&mut self) {
        let comm = *self.comm.get_mut();
        if let (false, Some(Ok(functions))) = (comm.is_null(), functions()) {
            // SAFETY: it was made, and nobody uses it any more.
            unsafe { (functions.destroy)(comm) };
        }
    }
}

/// Makes the counterpart of a communicator, with all its ranks; none if no library is named.
pub fn meet(end: Handle, rank: u32, world: u32) -> Option<Counterpart> {
    functions().map(|functions| {
        let made = Counterpart::new(join(functions, end, rank, world));
        let failed = i32::from(made.none.is_some());
        match most(end, failed) {
            Ok(0) => made,
            Ok(_) if made.none.is_some() => made,
            Ok(_) => {
                made.abort();
                let why = "its communicator did not come to be on another rank";
                Counterpart::new(Err(Failure::usage(why)))
            }
            Err(why) => {
                made.abort();
                Counterpart::new(Err(why))
            }
        }
    })
}

/// Joins the ranks in the real library, by an id that rank 0 has from there.
fn join(functions: &Result<Functions>, end: Handle, rank: u32, world: u32) -> Result<Comm> {
    // Whether there is an id, and the id.
    let mut told = [0u8; 1 + size_of::<UniqueId>()];
    let mut own = Ok(());
    if rank == 0 {
        own = functions.as_ref().map_err(Clone::clone).and_then(|functions| {
            let mut id = UniqueId { internal: [0; 128] };
            // SAFETY: the place is writable.
            functions.outcome(unsafe { (functions.unique_id)(&mut id) })?;
            told[0] = 1;
            told[1..].copy_from_slice(&id.internal.map(c_char::cast_unsigned));
            Ok(())
        });
    }
    let (at, library) = (told.as_mut_ptr().cast::<c_void>(), library()?);
    // SAFETY: the handle lives, and the buffer is as long as said.
    library.outcome(unsafe {
        let count = told.len() as u64;
        (library.antiphon_broadcast)(end, at, at, count, U8, 0, ptr::null_mut())
    })?;
    // Whoever comes waits there for all, so that all must be able to.
    let ready = functions.is_ok() && told[0] == 1;
    let lacking = most(end, i32::from(!ready))?;
    let functions = functions.as_ref().map_err(Clone::clone)?;
    own?;
    if told[0] == 0 {
        return Err(Failure::usage("rank 0 has no id of it"));
    }
    if lacking != 0 {
        return Err(Failure::usage("another rank cannot call it"));
    }
    let mut id = UniqueId { internal: [0; 128] };
    for (to, &from) in id.internal.iter_mut().zip(&told[1..]) {
        *to = from.cast_signed();
    }
    let mut comm = ptr::null_mut();
    // SAFETY: the place is writable.
    functions.outcome(unsafe {
        (functions.init_rank)(&mut comm, world.cast_signed(), id, rank.cast_signed())
    })?;
    Ok(comm)
}

/// The greatest of all ranks' numbers.
fn most(end: Handle, mut number: i32) -> Result<i32> {
    let (at, library) = ((&raw mut number).cast::<c_void>(), library()?);
    // SAFETY: the handle lives, and the buffer is as long as said.
    library.outcome(unsafe {
        (library.antiphon_all_reduce)(end, at, at, 1, I32, MAX, ptr::null_mut())
    })?;
    Ok(number)
}

/// Makes the counterparts of all ranks of a process, by one call; nothing if no library is named.
pub fn meet_in_process(count: c_int, devices: *const c_int) -> impl Iterator<Item = Counterpart> {
    let made = functions().map(|functions| {
        let mut comms = vec![ptr::null_mut(); count.cast_unsigned() as usize];
        let outcome = functions.as_ref().map_err(Clone::clone).and_then(|functions| {
            // SAFETY: there is room for as many; the list is as long, or null.
            functions.outcome(unsafe { (functions.init_all)(comms.as_mut_ptr(), count, devices) })
        });
        let one = move |comm| Counterpart::new(outcome.clone().map(|()| comm));
        comms.into_iter().map(one).collect::<Vec<_>>()
    });
    made.into_iter().flatten()
}

/// Runs the body of a function on a communicator. If nothing here serves it, the real library makes the call: now, or when the
/// group of this thread ends, which goes there whole. `lasting` says that what the call points to may be read then.
///
/// # Safety
/// The handle is null or was issued here; `call` is given the function's address in the real library.
pub unsafe fn or(
    entry: &'static Entry,
    comm: Comm,
    lasting: bool,
    body: impl FnOnce() -> Result<()>,
    call: impl FnOnce(usize, Comm) -> c_int + 'static,
) -> Result<()> {
    let outcome = body();
    let Some(functions) = functions() else { return outcome };
    let unserved = match outcome {
        Err(why) if !why.unserved => return Err(why),
        Ok(()) if !group::is_open() => return Ok(()),
        outcome => outcome.err(),
    };
    let prepare = || -> Deferred {
        let functions = functions.as_ref().map_err(Clone::clone)?;
        let real = match beside() {
            Some(Ok(real)) => real,
            _ => return Err(Failure::usage("no real library is named")),
        };
        let at = real.find(entry.name)?;
        // SAFETY: as this function's.
        let communicator = unsafe { usable(comm)? };
        match &communicator.real {
            Some(counterpart) => counterpart.comm()?,
            None => return Err(Failure::usage("its communicator has no counterpart there")),
        };
        // It stays until the call is made, though its handle may be gone before a group ends.
        Ok(Box::new(move || match &communicator.real {
            Some(counterpart) => functions.outcome(call(at, counterpart.comm()?)),
            None => Err(Failure::usage("its communicator has no counterpart there")),
        }))
    };
    if !group::is_open() {
        let why = unserved.unwrap_or_else(|| Failure::usage("nothing here serves the call"));
        return prepare().and_then(|call| call()).map_err(|failure| both(&why, failure));
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

/// Why nothing here serves a call, and why the real library does not make it either.
fn both(why: &Failure, real: Failure) -> Failure {
    let text = format!("{}; and the real library does not serve it: {}", why.text, real.text);
    Failure { text, ..real }
}

/// Makes the calls of a group in the real library, or none of them; `why` says what nothing here serves.
pub fn together(calls: Vec<Deferred>, why: &Failure) -> Result<()> {
    let calls: Vec<_> =
        calls.into_iter().collect::<Result<_>>().map_err(|failure| both(why, failure))?;
    let Some(Ok(functions)) = functions() else {
        return Err(why.clone());
    };
    // SAFETY: any thread may call it at any time.
    functions.outcome(unsafe { (functions.start)() })?;
    // Also after a failure the group has to end.
    let made = calls.into_iter().try_for_each(|call| call());
    // SAFETY: this thread has begun it.
    let ended = functions.outcome(unsafe { (functions.end)() });
    made.and(ended).map_err(|failure| both(why, failure))
}
