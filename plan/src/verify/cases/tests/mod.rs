//! Tests of the sizes that proofs look at.

mod clip;
mod doubts;
mod grids;
