//! Tests that cross crates: one conformance suite per trait, as generic functions that each backend instantiates,
//! and the harness of the tests that run whole plans.

pub mod application;
pub mod hal;
pub mod harness;
pub mod net;
pub mod simulated;
pub mod vm;
pub mod wire;
