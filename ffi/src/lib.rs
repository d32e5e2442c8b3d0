//! The C ABI of Antiphon.
//!
//! Nothing is exported yet: the C library, the NCCL drop-in and the Python runtime come as clients of one shared
//! library built from this crate.
