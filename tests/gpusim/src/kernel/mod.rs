//! Kernels: modules, launches, and the blocks of a launch as sets of fibers.
//!
//! - [`module`]: shared objects as machine code.
//! - [`known`]: images of other compilers whose source is known.
//! - [`launch`]: the driver's calls, and what a launch is.
//! - [`pool`]: threads of the system that step the blocks that are resident.
//! - [`block`]: a thread block: fibers, barriers, shared memory.
//! - [`late`]: stores that others see late.
//! - [`runtime`]: what compiled kernels call.
//! - [`switch`]: from one fiber to another.

mod block;
mod known;
mod late;
pub mod launch;
pub mod module;
mod pool;
mod runtime;
mod switch;

pub use block::STACK;
