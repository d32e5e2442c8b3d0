//! Kernels: device code, from its source to a launch.

use crate::driver::Backend;
use crate::error::HalError;
use crate::stream::Stream;
use std::ffi::c_void;
use std::fmt;

/// Device code to load.
#[derive(Clone, Copy, Debug)]
pub struct KernelSource<'a> {
    /// The name of the kernel function.
    pub entry: &'a str,
    /// The code.
    pub code: KernelCode<'a>,
    /// Options for the backend's compiler, in its own spelling.
    pub options: &'a [&'a str],
}

/// The form in which device code comes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum KernelCode<'a> {
    /// Text for the run-time compiler.
    Source(&'a str),
    /// What an earlier compilation for this device made.
    Binary(&'a [u8]),
}

/// How many thread blocks of how many threads a launch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaunchShape {
    /// Thread blocks.
    pub blocks: u32,
    /// Threads of each block.
    pub threads: u32,
    /// Bytes of shared memory that each block gets in addition to what the code declares.
    pub shared_bytes: u32,
}

/// What a loaded kernel needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct KernelAttributes {
    /// Registers of each thread.
    pub registers: u32,
    /// Bytes of local memory of each thread; registers that did not fit are among them.
    pub local_bytes: u32,
    /// Bytes of shared memory that the code declares, per block.
    pub shared_bytes: u32,
    /// The most threads that a block can have.
    pub threads: u32,
}

/// Device code that has been loaded.
pub trait Kernel: Send + Sync + fmt::Debug {
    /// The backend of the device that loaded it.
    fn backend(&self) -> Backend;

    /// What it needs.
    fn attributes(&self) -> Result<KernelAttributes, HalError>;

    /// The most thread blocks of this shape that the whole device runs at the same time.
    fn resident_blocks(&self, shape: LaunchShape) -> Result<u64, HalError>;

    /// Adds a launch to `stream`. `arguments` point at the kernel's parameters, which are copied before the call
    /// returns.
    ///
    /// # Safety
    ///
    /// There must be one argument per parameter, each pointing at a value of its type, and every address that
    /// the kernel follows must stay mapped until the launch is done.
    unsafe fn launch(
        &self,
        stream: &dyn Stream,
        shape: LaunchShape,
        arguments: &[*const c_void],
    ) -> Result<(), HalError>;

    /// As [`launch`](Self::launch), with the promise that all blocks run at the same time, on devices with
    /// [`crate::Caps::cooperative`]. It can be recorded into a graph, whose replays promise the same.
    ///
    /// Such launches of one device may be run one after the other, whatever their streams; ROCm does so. One that waits for
    /// what another launch does must not be cooperative.
    ///
    /// # Errors
    ///
    /// [`HalError::Invalid`] for more blocks than [`resident_blocks`](Self::resident_blocks).
    ///
    /// # Safety
    ///
    /// As for [`launch`](Self::launch).
    unsafe fn launch_cooperative(
        &self,
        stream: &dyn Stream,
        shape: LaunchShape,
        arguments: &[*const c_void],
    ) -> Result<(), HalError>;
}
