//! Reductions that a program makes: premultiplied sums.

use crate::communicator::antiphon_communicator;
use crate::entry::{Out, entry};
use crate::handle::borrow;
use crate::result::{Failure, antiphon_result};
use crate::types::{antiphon_op, data_type, reduce_op, switch};
use antiphon_executor::{Collectives, DataType, Factor, ReduceOp};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The first number of a reduction that a program made; those of antiphon_op are below.
const FIRST: i32 = 1 << 16;

/// A premultiplied sum.
struct Scaled {
    /// The address of the communicator's handle.
    communicator: usize,
    dtype: DataType,
    factor: Factor,
}

// SAFETY: only calls read from a factor's address, and whoever makes a call vouches for it.
unsafe impl Send for Scaled {}

/// A number is used again only when more than this many are free. So a destroyed one is recognised for a while, like a handle.
const RESTING: usize = 1024;

/// The reductions that were made and not destroyed.
struct Known {
    /// The least number that was never given out.
    next: i32,
    /// Numbers of destroyed reductions, those that were free longest first.
    free: VecDeque<i32>,
    scaled: BTreeMap<i32, Scaled>,
}

impl Known {
    const fn new() -> Self {
        Known { next: FIRST, free: VecDeque::new(), scaled: BTreeMap::new() }
    }

    /// A number that no reduction has; `None` if all are taken.
    fn number(&mut self) -> Option<i32> {
        if self.free.len() > RESTING || self.next == i32::MAX {
            return self.free.pop_front();
        }
        self.next += 1;
        Some(self.next - 1)
    }

    /// Forgets a communicator's reductions.
    fn forget(&mut self, communicator: usize) {
        let Known { free, scaled, .. } = self;
        scaled.retain(|&number, scaled| {
            let stays = scaled.communicator != communicator;
            if !stays {
                free.push_back(number);
            }
            stays
        });
    }
}

static KNOWN: Mutex<Known> = Mutex::new(Known::new());

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reduction that a caller means, and the factor that goes before it.
#[inline]
pub(crate) fn operation(
    communicator: *const antiphon_communicator,
    dtype: DataType,
    op: i32,
) -> Result<(ReduceOp, Option<Factor>), Failure> {
    if op < FIRST { Ok((reduce_op(op)?, None)) } else { made(communicator, dtype, op) }
}

/// A reduction that a program made.
#[cold]
fn made(
    communicator: *const antiphon_communicator,
    dtype: DataType,
    op: i32,
) -> Result<(ReduceOp, Option<Factor>), Failure> {
    let known = known();
    let of_this = |scaled: &&Scaled| scaled.communicator == communicator.addr();
    let scaled = known.scaled.get(&op).filter(of_this).ok_or_else(|| {
        Failure::argument(format!(
            "cannot use a reduction: saw {op}, allowed the numbers of antiphon_op, and those that were made for this \
             communicator and not destroyed"
        ))
    })?;
    if scaled.dtype != dtype {
        return Err(Failure::argument(format!(
            "cannot use reduction {op} on {}: it was made for {}",
            dtype.name(),
            scaled.dtype.name()
        )));
    }
    Ok((ReduceOp::Sum, Some(scaled.factor)))
}

/// Forgets the reductions of a communicator that is destroyed.
pub(crate) fn forget(communicator: *const antiphon_communicator) {
    known().forget(communicator.addr());
}

/// Makes a reduction for a communicator's allreduces, reducescatters and reduces of `dtype`, an antiphon_dtype: the sum
/// of each rank's elements times that rank's factor, which is an element of the type. Every rank of a call uses such a
/// reduction, which it made itself.
///
/// `deferred` is an antiphon_switch: if off, the default, the factor is read now; if on, it is read when a call runs, and must
/// stay where it is until then. For buffers on a device it must then lie where the device can read it, and it is read when the
/// call's stream comes to the call; each replay of a graph reads it anew. Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; the factor is null or readable, and
/// `out_op` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_op_create_scaled_sum(
    communicator: *const antiphon_communicator,
    factor: *const c_void,
    dtype: i32,
    deferred: i32,
    out_op: *mut i32,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_op, "out_op")?;
        // SAFETY: as this function's.
        unsafe { borrow::<Collectives>(communicator)? };
        let dtype = data_type(dtype)?;
        let deferred = switch(deferred)? == Some(true);
        // A call reads a deferred factor as an element, which must be aligned; a factor read now is copied by bytes.
        if factor.is_null() || (deferred && !factor.addr().is_multiple_of(dtype.size())) {
            let text = format!("cannot read `factor`: saw {factor:p}, allowed its address");
            return Err(Failure::argument(text));
        }
        let factor = if deferred {
            Factor::At(factor.cast())
        } else {
            let mut value = [0; 8];
            let size = dtype.size();
            // SAFETY: there is an element of the type, as this function's contract says.
            unsafe { factor.cast::<u8>().copy_to_nonoverlapping(value.as_mut_ptr(), size) };
            Factor::Value(value)
        };
        let mut known = known();
        let number = known.number().ok_or_else(|| {
            Failure::new(antiphon_result::System, "cannot make a reduction: all numbers are taken")
        })?;
        let communicator = communicator.addr();
        known.scaled.insert(number, Scaled { communicator, dtype, factor });
        // SAFETY: as this function's.
        unsafe { out.set(number) };
        Ok(())
    })
}

/// Destroys a reduction that was made for a communicator. Calls that were made with it go on. When a communicator is destroyed,
/// its reductions are destroyed with it. A null communicator is refused with ANTIPHON_RESULT_INVALID_HANDLE.
///
/// Any thread may call it, once, when no call uses the number any more.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_op_destroy(
    communicator: *const antiphon_communicator,
    op: i32,
) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        unsafe { borrow::<Collectives>(communicator)? };
        let mut known = known();
        match known.scaled.get(&op) {
            Some(scaled) if scaled.communicator == communicator.addr() => {
                known.scaled.remove(&op);
                known.free.push_back(op);
                Ok(())
            }
            _ => Err(Failure::argument(format!(
                "cannot destroy a reduction: saw {op}, allowed one that was made for this communicator and not destroyed"
            ))),
        }
    })
}

/// Stands for the reduction in calls of collectives that do not reduce.
pub(crate) const ANY: i32 = antiphon_op::Sum as i32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_after_many_others_the_oldest_first() {
        let mut known = Known::new();
        let numbers: Vec<_> = (0..=RESTING).map(|_| known.number().unwrap()).collect();
        assert!(numbers.is_sorted() && numbers[0] == FIRST);
        for &number in &numbers {
            let (dtype, factor) = (DataType::I32, Factor::Value([0; 8]));
            known.scaled.insert(number, Scaled { communicator: 8, dtype, factor });
        }
        known.forget(16);
        assert!(known.free.is_empty());
        known.forget(8);
        assert!(known.scaled.is_empty());
        assert_eq!(known.number(), Some(FIRST));
        // There are too few for more than one.
        assert_eq!(known.number(), Some(FIRST + 1 + RESTING as i32));
        known.next = i32::MAX;
        let rest = (0..RESTING).map(|_| known.number().unwrap());
        assert!(rest.eq(numbers[1..].iter().copied()));
        assert_eq!(known.number(), None);
    }
}
