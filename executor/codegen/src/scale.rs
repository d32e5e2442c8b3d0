//! The kernel before a premultiplied sum: every element times the rank's factor.

use crate::target::{Target, element};
use antiphon_plan::DataType;

/// The kernel's name. Its parameters, all `u64` by value: the addresses of the products and of the elements, which may be the
/// same, how many there are, the address of the factor, and the factor itself where that is 0: an element in the first bytes.
/// Any number of blocks of up to [`THREADS`](crate::THREADS) threads does it.
pub const ENTRY: &str = "antiphon_scale";

/// The whole text.
pub fn text(target: Target, dtype: DataType) -> String {
    let mut text = target.prelude();
    text.push_str(&element(dtype));
    text.push_str(include_str!("device/floats.h"));
    text.push_str(include_str!("device/element.h"));
    text.push_str(include_str!("device/scale.h"));
    text
}
