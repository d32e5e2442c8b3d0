//! The CUDA backend: NVIDIA GPUs, by the driver API.
//!
//! | noun | here |
//! |---|---|
//! | driver | `libcuda.so.1`, loaded when it is first asked for; one that the process has already loaded is adopted |
//! | device | a GPU and a context on it: the application's where it has one on that GPU, otherwise the primary one |
//! | memory | physical memory of the driver's virtual memory management, mapped; or a range of the application's own |
//! | handle | a file descriptor, a fabric handle, or (memory of the application) a classic IPC handle; one for each piece of memory that an allocator put together |
//! | stream | a driver stream, its own or the application's |
//! | event | a driver event without timing |
//! | kernel | a function of a loaded module; sources are compiled by NVRTC, found as the driver is, and cached on disk |
//! | multicast | a multicast object (NVLS) |
//!
//! It lacks [`crate::Task`]s. Nothing of NVIDIA's is needed to build it, and where there is no driver, that is
//! [`crate::HalError::Unavailable`] with the places looked at. Variables of the environment:
//!
//! | name | what it says |
//! |---|---|
//! | `ANTIPHON_CUDA_LIB` | the driver library to load, and no other |
//! | `ANTIPHON_NVRTC_LIB` | the run-time compiler to load, and no other |
//! | `ANTIPHON_CACHE_DIR` | the [cache folder](crate::cache_folder): compiled kernels are kept in `kernels` there |
//!
//! The bindings' own loader is not used: it panics where a library or a symbol is missing.

mod caps;
mod context;
mod conv;
mod driver;
mod export;
mod image;
mod library;
mod multicast;
mod nvrtc;
mod places;

pub use crate::gpu::compiler::RuntimeCompiler as Compiler;
pub use driver::CudaDriver;
pub use library::symbol_names;
pub use nvrtc::compiler;
