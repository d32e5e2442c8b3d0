//! A virtual machine with RDMA, on a machine that has neither such a card nor rights over its kernel: QEMU boots
//! Debian's own kernel, whose `rdma_rxe` makes an RDMA device of any network interface.
//!
//! The guest has one file system, made here ([`Image`]): programs with the libraries they need, kernel modules, and a
//! script that sets devices up and runs a list of [`Run`]s. Both ends of a virtual cable, `ve0` and `ve1`, carry the
//! devices `rxe0` and `rxe1`.
//!
//! What is needed and not there is a [`Missing`], which tests print and skip. The environment may say where things are:
//! `ANTIPHON_VM_KERNEL` (a folder with an unpacked `linux-image` package), `ANTIPHON_RDMA_PLUGIN` (the RDMA wire's plugin),
//! `ANTIPHON_NEEDS_VM` (nothing may be missing).

mod archive;
mod check;
mod elf;
mod host;
mod image;
mod machine;
mod modules;

pub use check::{check, rdma_plugin};
pub use host::{Host, Missing};
pub use image::{Image, Run};
pub use machine::{Ended, Machine, Report};
