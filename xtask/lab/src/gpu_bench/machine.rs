//! The card that is measured, and what it does without plans: empty kernels, copies, recording.

use super::Options;
use super::times::Effort;
use crate::{Error, Result};
use antiphon::executor::hal::{
    Backend, Device, HalError, Kernel, KernelCode, KernelSource, LaunchShape, Memory, Stream,
    driver,
};
use antiphon_tests::recorder::Recorder;
use libloading::os::unix::Library;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// The kernel that does nothing.
const EMPTY: &str = "antiphon_bench_empty";

/// The same for drivers of CUDA, where there is no run-time compiler.
const PTX: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry antiphon_bench_empty()
{
	ret;
}
";

/// The card.
pub struct Machine {
    /// Its device.
    pub device: Arc<dyn Device>,
    /// Whether it is the simulated one.
    pub simulated: bool,
    /// Threads of each block.
    pub threads: u32,
    /// Whether it is only to be shown that everything runs.
    pub quick: bool,
    /// For what takes microseconds.
    pub often: Effort,
    /// For what takes milliseconds.
    pub seldom: Effort,
    /// For what takes seconds.
    pub rarely: Effort,
    /// A kernel that does nothing, or why there is none.
    empty: Result<Arc<dyn Kernel>, String>,
}

/// What a layer below says, as an error of this one.
pub fn error(error: impl Display) -> Error {
    Error::message(error.to_string())
}

impl Machine {
    /// Opens the card.
    pub fn open(options: &Options) -> Result<Self> {
        let backend = [Backend::Cuda, Backend::Rocm];
        let backend = backend.into_iter().find(|one| one.name() == options.backend);
        let backend = backend.ok_or_else(|| {
            error(format!("cannot find GPUs: saw kind `{}`, allowed cuda, rocm", options.backend))
        })?;
        let device = driver(backend).map_err(error)?.open(options.device).map_err(error)?;
        let text = format!("extern \"C\" __global__ void {EMPTY}() {{}}\n");
        let code = KernelCode::Source(&text);
        let load = |code| device.load(KernelSource { entry: EMPTY, code, options: &[] });
        let empty = match load(code) {
            // What the driver compiles itself.
            Err(HalError::Unavailable { .. }) if backend == Backend::Cuda => {
                load(KernelCode::Binary(PTX.as_bytes()))
            }
            loaded => loaded,
        };
        let effort = |rounds, warmup, seconds| match options.quick {
            true => Effort { rounds: 2, warmup: 1, budget: Duration::from_secs(5) },
            false => {
                let seconds = options.line_seconds.unwrap_or(seconds);
                Effort { rounds, warmup, budget: Duration::from_secs(seconds) }
            }
        };
        let rarely = match options.quick {
            true => Effort { rounds: 1, warmup: 0, budget: Duration::ZERO },
            false => effort(5, 0, 60),
        };
        Ok(Machine {
            simulated: device.name().contains("simulated"),
            threads: options.block_threads,
            quick: options.quick,
            often: effort(2000, 20, 3),
            seldom: effort(200, 20, 4),
            rarely,
            empty: empty.map_err(|error| error.to_string()),
            device,
        })
    }

    /// Some sizes, or the first alone of a quick run.
    pub fn some<T: Copy>(&self, all: &[T]) -> Vec<T> {
        all[..if self.quick { 1 } else { all.len() }].to_vec()
    }

    /// Launches the empty kernel with blocks like a plan's; cooperatively, if `whole` and the device can.
    pub fn launch_empty(&self, stream: &dyn Stream, blocks: u32, whole: bool) -> Result<()> {
        let kernel = self.empty.as_ref().map_err(error)?;
        let shape = LaunchShape { blocks, threads: self.threads, shared_bytes: 0 };
        // SAFETY: the kernel has no parameters and touches no memory.
        let launched = unsafe {
            match whole && self.device.caps().cooperative {
                true => kernel.launch_cooperative(stream, shape, &[]),
                false => kernel.launch(stream, shape, &[]),
            }
        };
        launched.map_err(error)
    }

    /// A stream of the device.
    pub fn stream(&self) -> Result<Arc<dyn Stream>> {
        self.device.stream().map_err(error)
    }

    /// Memory of the device.
    pub fn allocate(&self, bytes: u64) -> Result<Arc<dyn Memory>> {
        self.device.allocate(bytes).map_err(error)
    }

    /// An application that records graphs, and a stream of its. A call that the driver refuses ends the part that is measured.
    pub fn recorder(&self) -> Result<(Recorder, u64, Arc<dyn Stream>)> {
        let (variable, names): (_, &[&str]) = match self.device.backend() {
            Backend::Rocm => (
                "ANTIPHON_HIP_LIB",
                &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"],
            ),
            _ => ("ANTIPHON_CUDA_LIB", &["libcuda.so.1"]),
        };
        let named = std::env::var_os(variable)
            .filter(|path| !path.is_empty())
            .map(|path| vec![path.into()]);
        let paths = named.unwrap_or_else(|| names.iter().map(Into::into).collect());
        // The device layer has loaded it, from wherever it is; by its name it is found again.
        let is_there = |path: &std::path::PathBuf| {
            // SAFETY: nothing is loaded that is not there already.
            unsafe { Library::open(Some(path), libc::RTLD_NOLOAD | libc::RTLD_LAZY) }.is_ok()
        };
        let driver = paths.into_iter().find(is_there).ok_or_else(|| {
            error(format!("cannot record graphs: no {} was found", names.join(" or ")))
        })?;
        let recorder = Recorder::over(driver, self.device.backend());
        recorder.enter_device(self.device.index());
        let raw = recorder.stream();
        let place = std::ptr::without_provenance_mut(raw as usize);
        // SAFETY: the stream was made just now, and nobody destroys it.
        let stream = unsafe { self.device.adopt_stream(place) }.map_err(error)?;
        Ok((recorder, raw, stream))
    }
}
