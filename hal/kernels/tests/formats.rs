//! Runs the tests that lie beside the scalar conversions. These two files are taken as they are, without the loops that are made of
//! them: as unit tests of the crate they would have all of those compiled a second time.

#[path = "../src/float8.rs"]
mod float8;
#[path = "../src/half.rs"]
mod half;
