//! CUDA kernels: functions of loaded modules.

use crate::cuda::context::Unrecorded;
use crate::cuda::device::Core;
use crate::cuda::library::Code;
use crate::cuda::nvrtc::Compiler;
use crate::cuda::stream::CudaStream;
use crate::cuda::{conv, graph, image};
use crate::driver::Backend;
use crate::error::HalError;
use crate::kernel::{Kernel, KernelAttributes, KernelCode, KernelSource, LaunchShape};
use crate::stream::Stream;
use cudarc::driver::sys;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of text that the driver may write about an image that it does not load.
const LOG_BYTES: usize = 8 << 10;

/// A function of a module of its own.
#[derive(Debug)]
pub(super) struct CudaKernel {
    function: sys::CUfunction,
    /// The most shared memory that was asked for so far, where it is more than blocks have without asking.
    shared_bytes: AtomicU32,
    module: Module,
}

/// A module, unloaded when dropped.
#[derive(Debug)]
struct Module {
    raw: sys::CUmodule,
    core: Arc<Core>,
}

// SAFETY: the driver synchronises access to its modules and functions; the handles never change.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}
// SAFETY: as above.
unsafe impl Send for CudaKernel {}
// SAFETY: as above.
unsafe impl Sync for CudaKernel {}

impl CudaKernel {
    /// Compiles a source, or finds it compiled, and loads it.
    pub(super) fn load(core: &Arc<Core>, source: KernelSource<'_>) -> Result<Self, HalError> {
        let Ok(entry) = CString::new(source.entry) else {
            return Err(HalError::Invalid {
                what: "load a kernel",
                saw: format!("the name {:?}", source.entry),
                allowed: "one without a zero byte".to_owned(),
                cure: "name the kernel's function",
            });
        };
        let module = match source.code {
            KernelCode::Source(text) => {
                let compiler = Compiler::find(Some(core.context.api().version))?;
                let code = compiler.compile(text, &core.traits.architecture, source.options)?;
                Module::load(core, &code)?
            }
            KernelCode::Binary(code) => Module::load(core, code)?,
        };
        let _entered = core.context.enter()?;
        let api = core.context.api();
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, `entry` ends with a zero byte, `function` is a place for the answer.
        let code = unsafe { (api.module_function)(&raw mut function, module.raw, entry.as_ptr()) };
        api.check(&format!("find the kernel {} in its module", source.entry), code)?;
        Ok(CudaKernel { function, shared_bytes: AtomicU32::new(core.traits.shared_bytes), module })
    }

    fn attribute(&self, attribute: sys::CUfunction_attribute) -> Result<u32, HalError> {
        let api = self.module.core.context.api();
        let mut value = 0;
        // SAFETY: the function lives as long as its module; `value` is a valid place for the answer.
        let code = unsafe { (api.function_attribute)(&raw mut value, attribute, self.function) };
        api.check("ask for an attribute of a kernel", code)?;
        Ok(conv::count(value))
    }

    /// Asks for as much shared memory as `shape` wants, where blocks have less without asking.
    fn reserve(&self, shape: LaunchShape) -> Result<(), HalError> {
        if shape.shared_bytes <= self.shared_bytes.load(Ordering::Relaxed) {
            return Ok(());
        }
        let api = self.module.core.context.api();
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = c_int::try_from(shape.shared_bytes).unwrap_or(c_int::MAX);
        // SAFETY: the function lives as long as its module.
        let code = unsafe { (api.function_set)(self.function, attribute, bytes) };
        api.check(&format!("give a kernel {bytes} bytes of shared memory"), code)?;
        self.shared_bytes.fetch_max(shape.shared_bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Kernel for CudaKernel {
    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn attributes(&self) -> Result<KernelAttributes, HalError> {
        use sys::CUfunction_attribute_enum as Attribute;
        let _entered = self.module.core.context.enter()?;
        Ok(KernelAttributes {
            registers: self.attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: self.attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared_bytes: self.attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            threads: self.attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        })
    }

    fn resident_blocks(&self, shape: LaunchShape) -> Result<u64, HalError> {
        let core = &self.module.core;
        let _entered = core.context.enter()?;
        self.reserve(shape)?;
        let threads = c_int::try_from(shape.threads).unwrap_or(c_int::MAX);
        let mut blocks = 0;
        // SAFETY: the function lives as long as its module; `blocks` is a valid place for the answer.
        let code = unsafe {
            (core.context.api().function_occupancy)(
                &raw mut blocks,
                self.function,
                threads,
                shape.shared_bytes as usize,
            )
        };
        core.context.api().check("count the blocks of a kernel that run at once", code)?;
        Ok(u64::from(conv::count(blocks)) * u64::from(core.traits.caps.cores))
    }

    unsafe fn launch(
        &self,
        stream: &dyn Stream,
        shape: LaunchShape,
        arguments: &[*const c_void],
    ) -> Result<(), HalError> {
        let core = &self.module.core;
        let stream = CudaStream::of(stream, "launch a kernel")?;
        let _entered = core.context.enter()?;
        self.reserve(shape)?;
        // SAFETY: the caller vouches for the arguments (`Kernel::launch`), which the driver only reads, though its
        // declaration lacks the `const`; there is no launch with more parameters than the list has.
        let code = unsafe {
            (core.context.api().launch)(
                self.function,
                shape.blocks,
                1,
                1,
                shape.threads,
                1,
                1,
                shape.shared_bytes,
                stream.raw(),
                arguments.as_ptr().cast_mut().cast(),
                ptr::null_mut(),
            )
        };
        core.context.api().check("launch a kernel", code)
    }

    unsafe fn launch_cooperative(
        &self,
        stream: &dyn Stream,
        shape: LaunchShape,
        arguments: &[*const c_void],
    ) -> Result<(), HalError> {
        let core = &self.module.core;
        if !core.traits.cooperative {
            let op = "launch a kernel cooperatively";
            return Err(HalError::Unsupported { op, backend: Backend::Cuda });
        }
        let stream = CudaStream::of(stream, "launch a kernel cooperatively")?;
        let _entered = core.context.enter()?;
        self.reserve(shape)?;
        // SAFETY: as in `launch`.
        let code = unsafe {
            (core.context.api().launch_cooperative)(
                self.function,
                shape.blocks,
                1,
                1,
                shape.threads,
                1,
                1,
                shape.shared_bytes,
                stream.raw(),
                arguments.as_ptr().cast_mut().cast(),
            )
        };
        core.context.api().check("launch a kernel cooperatively", code)
    }
}

impl Module {
    /// Loads machine code, PTX, or a bundle of both.
    fn load(core: &Arc<Core>, image: &[u8]) -> Result<Self, HalError> {
        let image = image::checked(image).map_err(|saw| HalError::Invalid {
            what: "load a kernel",
            saw,
            allowed: "machine code, a bundle or PTX, whole".to_owned(),
            cure: "compile the kernel again",
        })?;
        graph::let_go();
        let _entered = core.context.enter()?;
        let api = core.context.api();
        let _unrecorded = Unrecorded::new(api);
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values =
            [log.as_mut_ptr().cast(), ptr::without_provenance_mut::<c_void>(LOG_BYTES)];
        let mut raw = ptr::null_mut();
        // SAFETY: what the image says of its own length was checked; the log is as long as the second option says; as
        // many options as values.
        let code: Code = unsafe {
            (api.module_load)(
                &raw mut raw,
                image.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if code != Code::SUCCESS {
            let mut error = api.error("load a kernel's module", code);
            if let HalError::Vendor { text, .. } = &mut error
                && let Ok(log) = CStr::from_bytes_until_nul(&log)
                && !log.is_empty()
            {
                *text = format!("{text}: {}", log.to_string_lossy().trim_end());
            }
            return Err(error);
        }
        Ok(Module { raw, core: Arc::clone(core) })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Ok(_entered) = self.core.context.enter() {
            let _unrecorded = Unrecorded::new(self.core.context.api());
            // SAFETY: loaded by `load` and unloaded here alone. Callers keep a kernel until its launches are done.
            let _ = unsafe { (self.core.context.api().module_unload)(self.raw) };
        }
    }
}
