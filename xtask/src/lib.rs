//! Developer tasks of the workspace, called as `cargo xtask <task>`.
//!
//! [`ci`] runs what a change must pass, [`tidy`] holds the rules of the repository that no compiler checks (they
//! are also tests of this crate), [`mod@bench`] measures collectives beside other libraries. Nothing that users
//! run depends on this crate.

pub mod bench;
pub mod ci;
pub mod error;
pub mod repo;
pub mod tidy;

pub use error::{Error, Result};
