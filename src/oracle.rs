//! The reference that results are compared with: inputs anyone can recompute, expected results in higher
//! precision, and a stated bound on the difference.
//!
//! Nothing here shares code with the engines or their kernels. Number formats are decoded from their definition
//! ([`number`]), inputs are a pure function of (seed, rank, launch, element) ([`inputs`]), so a rank can check its
//! own output without any data from its peers, and sums are formed in double-double ([`exact`]). Plans without a
//! post-condition of their own are interpreted sequentially ([`interpreted`]), each value counting its roundings.
//!
//! What is compared how:
//!
//! | values | operator | allowed difference |
//! |---|---|---|
//! | integers | any | none; sums and products wrap, an average divides the wrapped sum towards zero |
//! | floats | none (data only moves), `min`, `max` | none |
//! | floats | `sum` | `((1+u)^n - 1) * Σ\|x\|` over n ranks |
//! | floats | `avg` | `((1+u)^(n+1) - 1) * Σ\|x\| / n`, and n+1 steps of the smallest subnormal |
//! | floats | `prod` | `((1+u)^n - 1) * \|Π x\|`, and n steps of the smallest subnormal |
//!
//! u is the unit roundoff of the type (half the distance from 1 to the next number); `(1+u)^k - 1` is k·u to
//! first order and stays a bound where k·u is not small, as it is for 8-bit floats. An expected value beyond the
//! largest finite one is held against that one, where an infinity of the same sign counts as equal to it. A NaN
//! is always wrong: no input is one.

pub mod compare;
pub mod exact;
pub mod inputs;
pub mod interpreted;
pub mod number;
pub mod reference;

pub use compare::{Mismatch, Tolerance, Verdict};
pub use inputs::Inputs;
pub use interpreted::Interpretation;
pub use number::Value;
pub use reference::Problem;
