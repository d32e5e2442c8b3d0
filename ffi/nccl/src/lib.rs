//! NCCL's binary interface over Antiphon: `libantiphon_nccl.so`, for `LD_PRELOAD` or in the place of `libnccl.so.2`.
//!
//! A thin client of `libantiphon.so`, which has all state of a process: this library finds it ([`library`]), translates
//! NCCL's numbers and rules, and keeps what NCCL's handles stand for. Where the buffers of a program are on GPUs, all of it
//! goes to the real library, if it is named ([`way`]); where they are on the host, what nothing here serves ([`forward`], [`counterpart`]).
//!
//! Conventions, once for all functions:
//! - a function succeeds only if it did what it says; else it returns an error of NCCL's, and `ncclGetLastError` has the reason;
//! - no panic gets out, and nothing ends the process;
//! - calls are complete on return, those of a group when the group ends: streams are not looked at.

// The names are NCCL's.
#![allow(non_snake_case)]

mod collectives;
mod communicator;
mod counterpart;
mod exports;
mod failure;
mod forward;
mod group;
mod library;
mod memory;
mod numbers;
mod refused;
mod types;
mod way;
