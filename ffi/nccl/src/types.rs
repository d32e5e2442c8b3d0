//! What crosses the interface, as NCCL's header lays it out.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A communicator's handle.
pub type Comm = *mut c_void;
/// A stream of CUDA.
pub type Stream = *mut c_void;
/// A window's handle.
pub type Window = *mut c_void;
/// An address by which kernels reach several devices at once.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Multimem {
    pub base: *mut c_void,
}

/// What kernels need of a communicator, and what is asked for them; not looked at.
pub type ForKernels = c_void;
/// A parameter's handle.
pub type Param = *mut c_void;

/// What the ranks of a communicator agree on before they meet: the id of `libantiphon.so`, byte for byte.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    pub internal: [c_char; 128],
}

/// What configurations of all kinds begin with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Bytes of the structure, as the program was compiled.
    pub size: usize,
    pub magic: c_uint,
    pub version: c_uint,
}

/// The beginning of a communicator's configuration; what follows tunes GPUs and networks, but for a name.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub header: Header,
    pub blocking: c_int,
}

/// The beginning of a configuration that has a name, as those of NCCL 2.27 and later have.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NamedConfig {
    pub header: Header,
    /// Whether it blocks, and how many blocks it may have.
    pub counts: [c_int; 4],
    pub network: *const c_char,
    pub more: [c_int; 2],
    /// What the communicator is called; null for nobody's name.
    pub name: *const c_char,
}

/// A call's configuration, which may end behind `force` and before the event, as its header says.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CollConfig {
    pub header: Header,
    /// Options of vendors.
    pub extensions: *const c_void,
    pub least_blocks: c_int,
    pub most_blocks: c_int,
    pub multicast_blocks: c_int,
    pub cluster: c_int,
    /// Which algorithms may be used; null or empty for any.
    pub algorithms: *const c_char,
    /// Whether it is an error if none of them can.
    pub force: c_int,
    pub policy: c_int,
    pub profiler_tag: u64,
    /// An event of CUDA that is recorded when the call's kernel is launched; null for none.
    pub launch_completion: *const c_void,
}

/// Results: `ncclResult_t`.
pub mod result {
    use std::ffi::c_int;

    pub const SUCCESS: c_int = 0;
    pub const SYSTEM: c_int = 2;
    pub const INTERNAL: c_int = 3;
    pub const INVALID_ARGUMENT: c_int = 4;
    pub const INVALID_USAGE: c_int = 5;
    pub const REMOTE: c_int = 6;
    pub const IN_PROGRESS: c_int = 7;
    pub const TIMEOUT: c_int = 8;
}

/// The version of NCCL whose interface this is, as `ncclGetVersion` counts.
pub const VERSION: c_int = 23203;
/// The magic number of every configuration.
pub const MAGIC: c_uint = 0xcafe_beef;
/// The value of a field that asks for nothing.
pub const UNDEFINED: c_int = c_int::MIN;

/// What a simulated group tells.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimInfo {
    pub header: Header,
    pub estimated_time: f32,
}

/// How connections are encrypted; not looked at.
pub type EncryptionConfig = c_void;
/// Which signals to wait for; not looked at.
pub type WaitSignal = c_void;
