//! Premultiplied sums where a call goes to the real library: it makes one of its own for the call, which is gone when that is made.

use crate::communicator::usable;
use crate::counterpart::functions;
use crate::numbers::MADE;
use crate::types::{Comm, result};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// NCCL's word for a scalar that is read at once.
const HOST: c_int = 1;
/// Bytes of an element at most.
const ELEMENT: usize = 8;

/// The factor of a sum, as the program said it.
#[derive(Clone, Copy)]
enum Scalar {
    Value([u8; ELEMENT]),
    /// Read when a call runs.
    At(*const c_void),
}

/// A premultiplied sum, by which the real library makes one like it.
#[derive(Clone, Copy)]
pub struct Sum {
    scalar: Scalar,
    /// NCCL's number.
    dtype: c_int,
    residence: c_int,
}

// SAFETY: where the scalar lies is the program's to keep, whichever thread calls, and nothing here reads it.
unsafe impl Send for Sum {}

impl Sum {
    /// Makes a call of the real library with a sum that it makes for that, and that goes when the call has returned, as NCCL
    /// allows.
    pub fn with(&self, comm: Comm, call: impl FnOnce(c_int) -> c_int) -> c_int {
        let Some(Ok(functions)) = functions() else { return result::INTERNAL };
        let at = match &self.scalar {
            Scalar::Value(value) => value.as_ptr().cast(),
            Scalar::At(at) => *at,
        };
        let mut op = 0;
        // SAFETY: the communicator lives, the scalar is where the program has said or here, and the place is writable.
        let made = unsafe {
            (functions.create_sum)(&mut op, at.cast_mut(), self.dtype, self.residence, comm)
        };
        match made {
            result::SUCCESS => {}
            // The call was not made, and nobody goes on with it.
            result::IN_PROGRESS => return result::INTERNAL,
            other => return other,
        }
        let code = call(op);
        // SAFETY: it was made above, and the call that had it has returned.
        let gone = unsafe { (functions.destroy_op)(op, comm) };
        if code == result::SUCCESS { gone } else { code }
    }
}

/// The premultiplied sums of a communicator, if there is a library that may need them.
#[derive(Default)]
pub struct Sums(Mutex<BTreeMap<c_int, Sum>>);

impl Sums {
    fn all(&self) -> MutexGuard<'_, BTreeMap<c_int, Sum>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what a sum was made of.
    ///
    /// # Safety
    /// The scalar has `bytes`, and is readable now if its residence is the host's.
    pub unsafe fn keep(
        &self,
        op: c_int,
        scalar: *const c_void,
        (dtype, bytes): (c_int, usize),
        residence: c_int,
    ) {
        if functions().is_none() {
            return;
        }
        let scalar = if residence == HOST {
            let mut value = [0; ELEMENT];
            // SAFETY: as this function's; no type has more bytes.
            unsafe {
                let to = value.as_mut_ptr();
                scalar.cast::<u8>().copy_to_nonoverlapping(to, bytes.min(ELEMENT));
            }
            Scalar::Value(value)
        } else {
            Scalar::At(scalar)
        };
        self.all().insert(op, Sum { scalar, dtype, residence });
    }

    /// Forgets a sum. Calls that were gathered with it have it still.
    pub fn forget(&self, op: c_int) {
        self.all().remove(&op);
    }
}

/// What the reduction of a call is made of, if it is a premultiplied sum of the communicator.
///
/// # Safety
/// The handle is null or was issued here.
#[inline]
pub unsafe fn sum(comm: Comm, op: c_int) -> Option<Sum> {
    if op < MADE || functions().is_none() {
        return None;
    }
    // SAFETY: as this function's.
    let communicator = unsafe { usable(comm) }.ok()?;
    communicator.sums.all().get(&op).copied()
}
