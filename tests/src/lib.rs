//! Tests that cross crates: one conformance suite per trait, as generic functions that each backend instantiates,
//! and the harness of the tests that run whole plans.

pub mod application;
mod folder;
pub mod hal;
pub mod harness;
pub mod methods;
mod name;
pub mod net;
pub mod recorder;
pub mod simulated;
pub mod vm;
mod wait;
pub mod wire;

pub use folder::Folder;
pub use name::name_of;
pub use wait::{until, until_within};
