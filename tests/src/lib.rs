//! Tests that cross crates: one conformance suite per trait, as generic functions that each backend instantiates.

pub mod hal;
