//! A *simulated* CUDA driver and HIP run-time library, each with its run-time compiler: a test fixture. What runs on it
//! never counts as run on a GPU.
//!
//! The file this crate makes, put into a folder as `libcuda.so.1` and as `libnvrtc.so.12`, answers the calls of the
//! CUDA driver API and of NVRTC that Antiphon uses, under their exact C names; as `libamdhip64.so.7` and as
//! `libhiprtc.so.7`, those of HIP and of hipRTC. Memory is the host's, streams are
//! queues on threads, kernels are shared objects that g++ makes of the device source, and the threads of a block
//! are fibers. So everything above the driver can run from end to end, in one process or in many, where there is
//! no GPU. It says nothing about speed, and little about what a GPU's memory model allows: what plans' kernels store in their
//! areas others may see late, when a thread releases it, as they may on a GPU; loads are never early.
//!
//! Virtual memory may be touched by the devices that were given access to it: copies, fills, operations of streams on words,
//! and kernels' uses of multicast addresses of others are refused, with a line on stderr. What kernels load and store
//! themselves is checked less: all devices share the process's pages, so a kernel faults only where *no* device has access.
//!
//! - `abi`: how C calls come in and answers go out.
//! - `device`, `context`, `green`: what there is, and what is current.
//! - `memory`: allocations, pinned and registered memory, IPC, virtual memory management, multicast.
//! - `stream`, `event`, `copy`, `graph`, `object`: order, and what graphs keep.
//! - `kernel`: modules, launches, fibers.
//! - `compiler`: the simulated NVRTC.
//! - `hip`: the calls of HIP, over all of these.
//!
//! | variable | meaning |
//! |---|---|
//! | `ANTIPHON_GPUSIM_DEVICES` | devices there are, 1 to 8; 8 when unset |
//! | `ANTIPHON_GPUSIM_SLICE` | `0` to `7`: the process sees one slice, this one, of a GPU that was divided (MIG), and no other device |
//! | `ANTIPHON_GPUSIM_PEERS` | `0`: devices do not reach each other's memory, as cards behind PCIe may not |
//! | `ANTIPHON_GPUSIM_ATOMICS` | `0`: devices have no atomic operations on each other's memory, as over PCIe |
//! | `ANTIPHON_GPUSIM_UNORDERED` | devices, separated by commas, that do not order what network cards write to their memory |
//! | `ANTIPHON_GPUSIM_HIP` | the release of HIP whose ways are simulated; `7.2` when unset |
//! | `ANTIPHON_GPUSIM_WAITS` | which calls wait for all kernels of a device, as a driver may let them, separated by commas: `pin` memory of the host, `open` an IPC handle, let a device use the memory of a `peer`, `unload` code, make and `map` memory, `load` code, for which every other thread's calls wait as well, but those that name their device themselves, as those of virtual memory do, and the question which context is current; the first four when unset, `0` for none |
//! | `ANTIPHON_GPUSIM_WANTS` | `context`: calls that map memory are refused where no context is current, as no driver is known to |
//! | `ANTIPHON_GPUSIM_LATE` | whose stores others see late, at the next release: `1` those of all blocks, `0` of none; of half of them, now these and now those, when unset |
//! | `ANTIPHON_GPUSIM_UNKNOWN` | architectures that the run-time compilers do not know, separated by commas |
//! | `ANTIPHON_GPUSIM_IMAGES` | a folder of images of the vendors' compilers, each with the source that runs in its place |
//! | `ANTIPHON_GPUSIM_CACHE` | folder for compiled kernels; else `antiphon-gpusim-<user>` in the temporary folder |
//! | `ANTIPHON_GPUSIM_CXX` | the C++ compiler; `g++` when unset |
//! | `ANTIPHON_GPUSIM_TRACE` | `1` writes every failing call to stderr, `2` every call |

#[macro_use]
mod abi;
mod compiler;
mod context;
mod copy;
mod device;
mod event;
mod graph;
mod green;
mod hip;
mod kernel;
mod memory;
mod object;
mod status;
mod stream;
mod table;

pub use kernel::STACK;
