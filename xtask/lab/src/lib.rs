//! Developer tasks that have the library, called as `cargo xtask <task>`.
//!
//! [`mutate`] measures the verifier with plans broken on purpose, [`gpu_compile`] compiles generated kernels, [`gpu_prebuilt`] the
//! interpreting one for the repository, [`gpu_bench`] measures plans on a GPU, [`gpu_pack`] packs what checks and measures a machine
//! with one, [`simulator`] holds predictions against the clock, [`defaults`] writes the tables of built-in choices, [`mod@bench`]
//! measures collectives beside other libraries, [`bench_calls`] what a call costs by each way in.
//! Nothing that users run depends on this crate.

pub mod bench;
pub mod bench_calls;
pub mod defaults;
pub mod gpu_bench;
pub mod gpu_compile;
pub mod gpu_pack;
pub mod gpu_prebuilt;
pub mod mutate;
pub mod simulator;

pub use xtask::{Error, Result, repo, section};
