//! The lock-free protocols, modelled compactly and run through every interleaving that matters:
//! `RUSTFLAGS="--cfg loom" cargo test -p antiphon-protocols --release`.
//!
//! Each model uses the orderings of the code it stands for, named in its comment; a change there is a change here.
#![cfg(all(loom, test))]

mod port;
mod shared;
