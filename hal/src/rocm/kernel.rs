//! ROCm kernels: functions of loaded modules.

use crate::driver::Backend;
use crate::error::HalError;
use crate::kernel::{Kernel, KernelAttributes, KernelCode, KernelSource, LaunchShape};
use crate::rocm::context::Unrecorded;
use crate::rocm::device::Core;
use crate::rocm::hiprtc::Compiler;
use crate::rocm::stream::RocmStream;
use crate::rocm::{conv, graph, image};
use crate::stream::Stream;
use hip_sys::hiprt as sys;
use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::Arc;

/// A function of a module of its own.
#[derive(Debug)]
pub(super) struct RocmKernel {
    function: sys::hipFunction_t,
    module: Module,
}

/// A module, unloaded when dropped.
#[derive(Debug)]
struct Module {
    raw: sys::hipModule_t,
    core: Arc<Core>,
}

// SAFETY: the driver synchronises access to its modules and functions; the handles never change.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}
// SAFETY: as above.
unsafe impl Send for RocmKernel {}
// SAFETY: as above.
unsafe impl Sync for RocmKernel {}

impl RocmKernel {
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
        Ok(RocmKernel { function, module })
    }

    fn attribute(&self, attribute: sys::hipFunction_attribute) -> Result<u32, HalError> {
        let api = self.module.core.context.api();
        let mut value = 0;
        // SAFETY: the function lives as long as its module; `value` is a valid place for the answer.
        let code =
            unsafe { (api.function_attribute)(&raw mut value, attribute as u32, self.function) };
        api.check("ask for an attribute of a kernel", code)?;
        Ok(conv::count(value))
    }
}

impl Kernel for RocmKernel {
    fn backend(&self) -> Backend {
        Backend::Rocm
    }

    fn attributes(&self) -> Result<KernelAttributes, HalError> {
        use sys::hipFunction_attribute as Attribute;
        let _entered = self.module.core.context.enter()?;
        Ok(KernelAttributes {
            registers: self.attribute(Attribute::HIP_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: self.attribute(Attribute::HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared_bytes: self.attribute(Attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            threads: self.attribute(Attribute::HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        })
    }

    fn resident_blocks(&self, shape: LaunchShape) -> Result<u64, HalError> {
        let core = &self.module.core;
        let _entered = core.context.enter()?;
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
        let stream = RocmStream::of(stream, "launch a kernel")?;
        let _entered = core.context.enter()?;
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
        let launch = core.context.api().launch_cooperative.filter(|_| core.traits.cooperative);
        let Some(launch) = launch else {
            let op = "launch a kernel cooperatively";
            return Err(HalError::Unsupported { op, backend: Backend::Rocm });
        };
        let stream = RocmStream::of(stream, "launch a kernel cooperatively")?;
        let _entered = core.context.enter()?;
        // SAFETY: as in `launch`.
        let code = unsafe {
            launch(
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
    /// Loads machine code, or a bundle of it.
    fn load(core: &Arc<Core>, code: &[u8]) -> Result<Self, HalError> {
        image::check(code).map_err(|saw| HalError::Invalid {
            what: "load a kernel",
            saw,
            allowed: "machine code or a bundle, whole".to_owned(),
            cure: "compile the kernel again",
        })?;
        graph::let_go();
        let _entered = core.context.enter()?;
        let api = core.context.api();
        let _unrecorded = Unrecorded::new(api);
        let mut raw = ptr::null_mut();
        // SAFETY: what the image says of its own length was checked, and the driver copies what it keeps.
        let answer = unsafe { (api.module_load)(&raw mut raw, code.as_ptr().cast()) };
        api.check("load a kernel's module", answer)?;
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
