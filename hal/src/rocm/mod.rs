//! The ROCm backend: AMD GPUs, by HIP.
//!
//! | noun | here |
//! |---|---|
//! | driver | `libamdhip64`, loaded when it is first asked for; one that the process has already loaded is adopted |
//! | device | a GPU, as the run-time library uses it |
//! | memory | from ROCm 7.2 on, physical memory without caches between devices, mapped; before, uncached or fine-grained memory of the run-time library; or a range of the application's own |
//! | handle | a file descriptor, or an IPC handle |
//! | stream | a driver stream, its own or the application's |
//! | event | a driver event without timing |
//! | kernel | a function of a loaded module; sources are compiled by hipRTC, found as the driver is, and cached on disk |
//!
//! It lacks [`crate::Task`]s and multicast groups, which these GPUs do not have. To build it takes ROCm or Debian's
//! `libamdhip64-dev`, for the crate of the declarations; what was built needs neither, and where there is no driver,
//! that is [`crate::HalError::Unavailable`] with the places looked at. Variables of the environment:
//!
//! | name | what it says |
//! |---|---|
//! | `ANTIPHON_HIP_LIB` | the driver library to load, and no other |
//! | `ANTIPHON_HIPRTC_LIB` | the run-time compiler to load, and no other |
//! | `ANTIPHON_CACHE_DIR` | the [cache folder](crate::cache_folder): compiled kernels are kept in `kernels` there |

mod caps;
mod context;
mod conv;
mod driver;
mod export;
mod hiprtc;
mod image;
mod library;
mod memory;
mod places;

pub use crate::gpu::compiler::RuntimeCompiler as Compiler;
pub use driver::RocmDriver;
pub use hiprtc::compiler;
pub use library::symbol_names;
