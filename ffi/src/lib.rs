//! The C interface of Antiphon: `libantiphon.so` and `libantiphon.a`, whose header `antiphon.h` is made from this crate.
//!
//! Every function of C is a few lines here: it checks its arguments, calls the executor inside the one wrapper that lets no
//! panic out ([`entry`]), and hands out opaque handles ([`handle`]). The functions' comments, which the header carries, say
//! what they promise to C.
//!
//! Conventions of all functions:
//! - a function that can fail returns an `antiphon_result`; outputs come last, and are written on success only;
//! - an object may outlive the object that it was made from;
//! - null, unknown numbers and invalid handles are errors, not undefined behaviour, as far as they can be recognised.

// The names are those that C sees.
#![allow(non_camel_case_types)]

mod collectives;
mod communicator;
mod config;
mod device;
mod dividing;
mod entry;
mod group;
mod handle;
mod log_queue;
mod logging;
mod memory;
mod ops;
mod plan;
mod registry;
mod result;
mod stream;
mod types;
mod version;
