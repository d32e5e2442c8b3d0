//! The first step of a premultiplied sum: every element times one factor.

use super::Kernels;
use antiphon_types::{DataType, ReduceOp};

/// Bytes of the block that repeats the factor: a multiple of every element, small enough to stay in the nearest cache.
const REPEATED: usize = 1024;

/// A block of memory that is aligned for every element.
#[repr(align(64))]
struct Repeated([u8; REPEATED]);

/// Multiplies every element by the one in the first bytes of `factor`.
///
/// # Safety
/// As [`super::scale`].
pub(super) unsafe fn scale(
    kernels: &Kernels,
    dtype: DataType,
    dst: *mut u8,
    src: *const u8,
    bytes: usize,
    factor: [u8; 8],
) {
    let mut repeated = Repeated([0; REPEATED]);
    let element = &factor[..dtype.size()];
    repeated.0.chunks_exact_mut(dtype.size()).for_each(|place| place.copy_from_slice(element));
    let factors = repeated.0.as_ptr();
    let mut at = 0;
    while at < bytes {
        let some = (bytes - at).min(REPEATED);
        // SAFETY: the caller vouches for `bytes` at both ends, and the block has as many as are taken at once.
        unsafe {
            let sources = [src.add(at), factors];
            kernels.reduce(dtype, ReduceOp::Prod, &[dst.add(at)], &sources, some);
        }
        at += some;
    }
}
