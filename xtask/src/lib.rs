//! Developer tasks of the workspace, called as `cargo xtask <task>`.
//!
//! [`ci`] runs what a change must pass, [`tidy`] holds the rules of the repository that no compiler checks (they
//! are also tests of this crate), [`mod@fuzz`] feeds parsers what they do not expect, [`install`] installs the C library,
//! NCCL's interface and the command, [`first_steps`] measures how long the README's ways in take. None of these needs the
//! library, so that they begin at once, and who installs builds what is installed and little else. Tasks that have it are
//! those of the package `antiphon-lab`, to which [`lab`] hands them on. Nothing that users run depends on either.

pub mod ci;
pub mod error;
pub mod first_steps;
pub mod fuzz;
pub mod install;
pub mod lab;
pub mod repo;
pub mod section;
pub mod tidy;

pub use error::{Error, Result};
