//! Execution plans: what they are, how they are read and written, when they are valid, and how they become a
//! [`Program`](program::Program) of byte ranges that an engine can run.
//!
//! A plan passes through here in one direction:
//!
//! ```text
//! bytes --read--> Plan --check--> Checked plan --Layout::new--> Layout --Layout::program--> Program
//! ```
//!
//! This crate knows no devices, does no I/O but files and contains no `unsafe`.
#![forbid(unsafe_code)]

pub mod algorithms;
pub mod builder;
pub mod check;
pub mod counts;
pub mod dsl;
pub mod interpret;
pub mod json;
pub mod legacy;
mod lower;
pub mod model;
pub mod passes;
pub mod picture;
pub mod place;
pub mod postcondition;
pub mod program;
#[cfg(test)]
mod real_samples;
pub mod recut;
#[cfg(test)]
mod samples;
pub mod schedule;
pub mod simulate;
pub mod verify;

pub use antiphon_types::{DataType, ReduceOp};
pub use check::{Fault, Faults, check, pairing};
pub use json::{Dialect, Read, ReadError, Style, read, write};
pub use lower::{LowerError, Site};
pub use place::Place;
