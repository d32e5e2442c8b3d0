//! Tests of both steps of lowering.

mod errors;
mod ranges;
mod structure;
