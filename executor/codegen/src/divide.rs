//! The kernel that ends an average: every element divided by the number of ranks.

use crate::target::{Target, element};
use antiphon_plan::DataType;

/// The kernel's name. Its parameters, by value: the output's address and its elements (`u64`), and the number of ranks
/// (`u32`). Any number of blocks of up to [`THREADS`](crate::THREADS) threads does it.
pub const ENTRY: &str = "antiphon_divide";

/// The whole text.
pub fn text(target: Target, dtype: DataType) -> String {
    let mut text = target.prelude();
    text.push_str(&element(dtype));
    text.push_str(include_str!("device/floats.h"));
    text.push_str(include_str!("device/element.h"));
    text.push_str(include_str!("device/divide.h"));
    text
}
