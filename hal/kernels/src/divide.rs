//! The last step of an average: every element divided by the number of ranks.

use super::element::{Element, Number};

/// Divides `count` elements by `n` in place.
///
/// # Safety
/// `dst` is readable and writable for `count` elements; `n` is not 0.
#[inline(always)]
pub(super) unsafe fn divide<E: Element>(dst: *mut u8, count: usize, n: u32) {
    let dst = dst.cast::<E::Stored>();
    for i in 0..count {
        // SAFETY: the caller vouches for `count` elements; reads and writes assume no alignment.
        unsafe {
            let x = dst.add(i).read_unaligned();
            dst.add(i).write_unaligned(E::narrow(E::widen(x).over(n)));
        }
    }
}
