//! How fast this machine runs plans: what a prediction for it is made of, and what it is compared with.
//!
//! - [`time`] runs a plan over ranks that are threads of this process, and says how long that takes;
//! - [`host`] does so with small plans that each show one cost, and makes a topology of them.

mod group;
mod host;
mod probes;

pub use group::{Times, time};
pub use host::host;

use crate::executor::ExecutorError;
use crate::plan::builder::BuildError;
use thiserror::Error;

/// Why something could not be measured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// A launch failed.
    #[error("cannot measure plan `{plan}`: {source}")]
    Run {
        /// The plan's name.
        plan: String,
        /// Why.
        #[source]
        source: Box<ExecutorError>,
    },
    /// A plan could not be written.
    #[error("cannot write a plan to measure: {0}")]
    Build(#[from] BuildError),
    /// The system gives no threads.
    #[error("cannot measure: no threads for the ranks: {0}; raise the limit on threads")]
    Threads(#[from] std::io::Error),
    /// A thread ended by a panic.
    #[error("cannot measure plan `{plan}`: the thread of rank {rank} panicked")]
    Panicked {
        /// The plan's name.
        plan: String,
        /// The rank.
        rank: usize,
    },
}
