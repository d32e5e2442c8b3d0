//! Communicators and the engines that run lowered plans.
//!
//! ```text
//! Plan --Executor::load--> LoadedPlan --Executor::execute--> Launch (a task of a stream) --> host engine
//! ```
//!
//! A [`Communicator`] is one rank's end of a group of ranks. On it an [`Executor`] launches plans, and [`Collectives`] makes
//! calls by name (an allreduce, say), for which [`selection`] chooses among the built-in algorithms and what is in the
//! [`registry`]. Launches are numbered, and every rank publishes a descriptor of each: so ranks may pass different pointers
//! at every launch, and ranks that call different things get an error that names both calls. No wait is for ever: a time
//! limit, an abort and the death of a peer each end it with an error that says who waited for whom.

pub mod ahead;
mod allocation;
mod collectives;
mod communicator;
mod context;
pub mod controlled;
mod diagnose;
mod error;
mod executor;
mod fingerprint;
mod freed;
mod gpu;
mod host;
mod launch;
mod local_device;
mod placement;
mod plan_cache;
mod ports;
mod reach;
mod regions;
pub mod registry;
pub mod selection;
mod shared;
mod sync;
mod tags;
mod touches;
mod uses;
mod verification;
mod waiting;
mod worker;

pub use allocation::{Allocation, release};
pub use collectives::{Collectives, Factor, Group, Request, What};
pub use communicator::{CallSeries, Communicator, HOST_VARIABLE, KernelForm, Options, Rendezvous};
pub use error::{Doing, ExecutorError, Wait, Waits};
pub use executor::{Call, Executor, RankCall};
pub use local_device::{dealt_device, local_device, local_rank};
pub use plan_cache::LoadedPlan;
pub use ports::{PortLink, wires};
pub use registry::{
    Code, CodeCall, InstallError, Installed, Misfit, RegisteredCode, RegisteredPlan, Registry,
    Terms, Whose,
};
pub use verification::Verdict;

#[doc(hidden)]
pub use antiphon_bootstrap::say_after;
pub use antiphon_bootstrap::tcp::UniqueId;
pub use antiphon_bootstrap::{BootstrapError, launcher};
pub use antiphon_hal as hal;
pub use antiphon_plan as plan;
pub use antiphon_plan::counts::{Counts, CountsError, Extent};
pub use antiphon_port::WireError;
pub use antiphon_transport::topology;
pub use antiphon_types::{DataType, ReduceOp};
