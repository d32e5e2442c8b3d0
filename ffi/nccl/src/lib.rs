//! NCCL's binary interface over Antiphon: `libantiphon_nccl.so`, for `LD_PRELOAD` or in the place of `libnccl.so.2`.
//!
//! A thin client of `libantiphon.so`, which has all state of a process: this library finds it ([`library`]), translates
//! NCCL's numbers and rules, and keeps what NCCL's handles stand for. Buffers are on the host or on devices ([`place`]). Where a
//! real library is named, it makes the calls that nothing here serves ([`forward`], [`counterpart`]), or all, where the program's
//! buffers are where nothing here serves them ([`way`]).
//!
//! Conventions, once for all functions:
//! - a function succeeds only if it did what it says; else it returns an error of NCCL's, and `ncclGetLastError` has the reason,
//!   which is also [said](said) on standard error if the environment asks for it;
//! - no panic gets out, and nothing ends the process;
//! - on the host, calls are complete on return, those of a group when the group ends: streams are not looked at; on devices
//!   they are put into the program's streams, behind the communicator's calls before them.

// The names are NCCL's.
#![allow(non_snake_case)]

mod collectives;
mod communicator;
mod counterpart;
mod dividing;
mod ending;
mod exports;
mod failure;
mod finalize;
mod forward;
mod group;
mod handle;
mod id;
mod library;
mod limit;
mod making;
mod memory;
mod naming;
mod numbers;
mod place;
mod refused;
mod said;
mod scaled;
mod team;
mod types;
mod way;
