//! The C interface of Antiphon: `libantiphon.so` and `libantiphon.a`, whose header `antiphon.h` is made from this crate.
//!
//! Every function of C is a few lines here: it looks at its arguments, calls the executor inside the one wrapper that no
//! panic leaves ([`entry`]), and hands out opaque handles ([`handle`]). What the functions promise to C is in their
//! comments, which the header carries.
//!
//! Conventions, once for all functions:
//! - a function that can fail returns an `antiphon_result`; outputs come last, and are written on success only;
//! - what an object was made from may be destroyed before it;
//! - null, unknown numbers and handles that are none are errors, and never undefined, as far as that can be told.

// The names are those that C sees.
#![allow(non_camel_case_types)]

mod collectives;
mod communicator;
mod config;
mod device;
mod entry;
mod group;
mod handle;
mod logging;
mod memory;
mod ops;
mod plan;
mod registry;
mod result;
mod stream;
mod types;
mod version;
