//! Developer tasks of the workspace, called as `cargo xtask <task>`.
//!
//! [`ci`] runs what a change must pass, [`tidy`] holds the rules of the repository that no compiler checks (they
//! are also tests of this crate), [`mod@fuzz`] feeds parsers what they do not expect, [`mutate`] measures the verifier with
//! plans broken on purpose, [`gpu_compile`] compiles generated kernels, [`gpu_prebuilt`] the interpreting one for the repository,
//! [`gpu_bench`] measures plans on a GPU, [`gpu_pack`] packs what checks and measures a machine with one, [`install`] installs the C library, [`simulator`] holds
//! predictions against the clock, [`mod@bench`] measures collectives beside other libraries, [`bench_calls`] what a call costs by each way in.
//! Nothing that users run depends on this crate.

pub mod bench;
pub mod bench_calls;
pub mod ci;
pub mod defaults;
pub mod error;
pub mod fuzz;
pub mod gpu_bench;
pub mod gpu_compile;
pub mod gpu_pack;
pub mod gpu_prebuilt;
pub mod install;
pub mod mutate;
pub mod repo;
pub mod section;
pub mod simulator;
pub mod tidy;

pub use error::{Error, Result};
