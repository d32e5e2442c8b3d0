//! Antiphon runs execution plans of collective communication: who copies, reduces, signals and waits, thread
//! block by thread block, over N ranks.
//!
//! ```
//! use antiphon::{Communicator, Op};
//!
//! std::thread::scope(|scope| {
//!     for rank in Communicator::in_process(2)? {
//!         scope.spawn(move || {
//!             let mut sums = vec![1.5f32; 1 << 20];
//!             rank.all_reduce(&mut sums, Op::Sum).unwrap();
//!             assert!(sums.iter().all(|&sum| sum == 3.0));
//!         });
//!     }
//!     Ok::<(), antiphon::ExecutorError>(())
//! })?;
//! # Ok::<(), antiphon::ExecutorError>(())
//! ```
//!
//! This crate is the facade: a [`Communicator`] with collectives on slices and on buffers of devices, an [`Executor`] for
//! [`Plan`]s of your own, the layers below under one name, and the reference that results are checked with. The `antiphon`
//! command is built from the same package.
//!
//! - [`Communicator`]: collectives over threads of this process, or processes of one host or many;
//! - [`Group`]: calls that are made together, e.g. sends and receives between neighbours;
//! - [`DeviceBuffer`]: the buffers that the collectives take on GPUs, and also on the host;
//! - [`Executor`]: loads and launches plans, e.g. those that [`plan::read`] reads;
//! - [`Registry`]: plans, and algorithms that are code, which serve calls by name beside the built-in algorithms;
//! - [`plan`]: the plan model, its JSON formats, checks, lowering, builder and built-in algorithms;
//! - [`executor`]: communicators and the engines that run a lowered plan;
//! - [`calibrate`]: measures how fast this machine runs plans, for the simulator's predictions;
//! - [`oracle`]: reproducible inputs and expected results in higher precision.
//!
//! # Features
//! None is on by default, and none changes what the others do.
//!
//! | feature | adds | takes |
//! |---|---|---|
//! | `cuda` | NVIDIA's GPUs as devices ([`hal::Backend::Cuda`]) | nothing to build; at run time the driver, which is looked for |
//! | `rocm` | AMD's GPUs as devices ([`hal::Backend::Rocm`]) | ROCm, or Debian's `libamdhip64-dev` |
//! | `rdma` | the RDMA wire between hosts, built in; without it the wire is a plugin | libibverbs and librdmacm, with headers and libclang to build |
//! | `half` | `half::f16` and `half::bf16` as [`Element`]s | nothing |

pub use antiphon_executor as executor;
pub use antiphon_executor::hal;
pub use antiphon_executor::{
    Call, Code, CodeCall, Executor, ExecutorError, LoadedPlan, Options, Registry, Rendezvous,
    Terms, UniqueId,
};
pub use antiphon_plan as plan;
pub use antiphon_plan::model::Plan;
pub use antiphon_types::ReduceOp as Op;
pub use antiphon_types::{DataType, ReduceOp, UnknownName};
pub use buffer::{Buffer, BufferMut};
pub use communicator::{Communicator, Result};
pub use device_buffer::DeviceBuffer;
pub use element::{Element, F8E4m3, F8E5m2};
pub use group::Group;

mod buffer;
pub mod calibrate;
mod checked;
mod communicator;
mod device_buffer;
mod element;
mod group;
pub mod oracle;

/// Pages whose examples in Rust are tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/gpu.md")]
    mod gpu {}
    #[doc = include_str!("../docs/selection.md")]
    mod selection {}
    #[doc = include_str!("../docs/dsl/quick-start.md")]
    mod quick_start {}
    #[doc = include_str!("../docs/dsl/concepts.md")]
    mod concepts {}
    #[doc = include_str!("../docs/dsl/integration.md")]
    mod integration {}
    #[doc = include_str!("../docs/dsl/reference-python.md")]
    mod reference_python {}
    #[doc = include_str!("../docs/dsl/reference-rust.md")]
    mod reference_rust {}
}
