//! Premultiplied sums where a call goes to the real library: it makes one of its own for the call, before any call of a group, and it
//! is gone when they are made.

use crate::communicator::usable;
use crate::counterpart::{Functions, functions};
use crate::failure::{self, Result};
use crate::numbers::MADE;
use crate::types::Comm;
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
    /// Has the real library make one like it, for calls on this communicator of it.
    pub fn made(&self, functions: &'static Functions, comm: Comm) -> Result<MadeSum> {
        let at = match &self.scalar {
            Scalar::Value(value) => value.as_ptr().cast(),
            Scalar::At(at) => *at,
        };
        let mut op = 0;
        // SAFETY: the communicator lives, the scalar is where the program has said or here, and the place is writable.
        let code = unsafe {
            (functions.create_sum)(&mut op, at.cast_mut(), self.dtype, self.residence, comm)
        };
        functions.outcome(code).map(|()| MadeSum { functions, comm, op })
    }
}

/// A premultiplied sum of the real library. It goes when the calls that have it have returned, as NCCL allows.
pub struct MadeSum {
    functions: &'static Functions,
    comm: Comm,
    pub op: c_int,
}

impl Drop for MadeSum {
    fn drop(&mut self) {
        // SAFETY: it was made on this communicator, which whoever makes calls keeps.
        let gone = unsafe { (self.functions.destroy_op)(self.op, self.comm) };
        // The calls went well or not without that.
        if let Err(failure) = self.functions.outcome(gone) {
            failure::remember(&failure.text);
        }
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
