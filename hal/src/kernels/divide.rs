//! The last step of an average: every element divided by the number of ranks.

use super::element::{Element, Number};
use super::isa::Lanes;

/// Divides `count` elements by `n` in place.
///
/// # Safety
/// `dst` is readable and writable for `count` elements; `n` is not 0; the CPU has the instructions of `I`.
#[inline(always)]
pub(super) unsafe fn divide<E: Element, I: Lanes, const L: usize>(
    dst: *mut u8,
    count: usize,
    n: u32,
) {
    let dst = dst.cast::<E::Stored>();
    let mut at = 0;
    // SAFETY: `at` plus the block length stays within `count`; reads and writes assume no alignment.
    unsafe {
        while count - at >= L {
            let block = dst.add(at).cast::<[E::Stored; L]>();
            let mut x = E::widen_all::<I, L>(&block.read_unaligned());
            for lane in &mut x {
                *lane = lane.over(n);
            }
            block.write_unaligned(E::narrow_all::<I, L>(&x));
            at += L;
        }
        while at < count {
            let one = dst.add(at);
            one.write_unaligned(E::narrow(E::widen(one.read_unaligned()).over(n)));
            at += 1;
        }
    }
}
