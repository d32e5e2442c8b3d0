//! Antiphon runs execution plans of collective communication: who copies, reduces, signals and waits, thread
//! block by thread block, over N ranks.
//!
//! This crate is the facade: it re-exports the layers under one name and adds the reference that results are
//! checked with. The `antiphon` command is built from the same package.
//!
//! - [`plan`]: the plan model, its JSON formats, checks, lowering, builder and built-in algorithms;
//! - [`executor`]: communicators and the engines that run a lowered plan;
//! - [`calibrate`]: how fast this machine runs plans, for predictions;
//! - [`oracle`]: reproducible inputs and expected results in higher precision.

pub use antiphon_executor as executor;
pub use antiphon_plan as plan;
pub use antiphon_types::{DataType, ReduceOp, UnknownName};

pub mod calibrate;
pub mod oracle;

/// The pages about the language of programs: their examples in Rust are tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/dsl/quick-start.md")]
    mod quick_start {}
    #[doc = include_str!("../docs/dsl/concepts.md")]
    mod concepts {}
    #[doc = include_str!("../docs/dsl/integration.md")]
    mod integration {}
    #[doc = include_str!("../docs/dsl/reference-python.md")]
    mod reference_python {}
    #[doc = include_str!("../docs/dsl/reference-rust.md")]
    mod reference_rust {}
}
