//! Tests of both steps of lowering.

mod errors;
mod even;
mod ranges;
mod structure;
