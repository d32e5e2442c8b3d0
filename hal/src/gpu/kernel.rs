//! Kernels of GPUs: functions of loaded modules.

use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::calls::{RawFunction, RawModule, RawStream};
use crate::gpu::code::{self, Code};
use crate::gpu::core::Core;
use crate::gpu::recording::Unrecorded;
use crate::gpu::stream::GpuStream;
use crate::gpu::vendor::{Context, Vendor, unsupported};
use crate::kernel::{Kernel, KernelAttributes, KernelCode, KernelSource, LaunchShape};
use crate::stream::Stream;
use std::ffi::{CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

/// A function of a module of its own.
#[derive(Debug)]
pub(crate) struct GpuKernel<V: Vendor> {
    function: RawFunction,
    /// The most shared memory that was asked for so far, where it is more than blocks have without asking.
    shared_bytes: AtomicU32,
    module: Module<V>,
}

/// A module, unloaded when dropped.
#[derive(Debug)]
struct Module<V: Vendor> {
    raw: RawModule,
    core: Arc<Core<V>>,
}

// SAFETY: the driver synchronises access to its modules and functions; the handles never change.
unsafe impl<V: Vendor> Send for Module<V> {}
// SAFETY: as above.
unsafe impl<V: Vendor> Sync for Module<V> {}
// SAFETY: as above.
unsafe impl<V: Vendor> Send for GpuKernel<V> {}
// SAFETY: as above.
unsafe impl<V: Vendor> Sync for GpuKernel<V> {}

impl<V: Vendor> GpuKernel<V> {
    /// Compiles a source, or finds it compiled, and loads it.
    pub(crate) fn load(core: &Arc<Core<V>>, source: KernelSource<'_>) -> Result<Self, HalError> {
        let what = format!("find the kernel {} in its module", source.entry);
        let Ok(entry) = CString::new(source.entry) else {
            return Err(HalError::Invalid {
                what: "load a kernel",
                saw: format!("the name {:?}", source.entry),
                allowed: "one without a zero byte".to_owned(),
                cure: "name the kernel's function",
            });
        };
        let api = core.context.api();
        let module = match source.code {
            KernelCode::Source(text) => {
                let code =
                    V::compile(Some(api.version), text, &core.traits.architecture, source.options)?;
                Module::load(core, &code)?
            }
            KernelCode::Binary(code) => Module::load(core, code)?,
        };
        let _entered = core.context.enter()?;
        let _unrecorded = Unrecorded::new(api);
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, `entry` ends with a zero byte, `function` is a place for the answer.
        let code = unsafe { (api.module_function)(&raw mut function, module.raw, entry.as_ptr()) };
        api.check(&what, code)?;
        let shared_bytes = AtomicU32::new(core.traits.shared_bytes);
        let kernel = GpuKernel { function, shared_bytes, module };
        // Drivers that load code when it is first needed may wait for running kernels to do so: better now than at a launch.
        kernel.attribute(code::REGISTERS)?;
        kernel.make_room(core)?;
        Ok(kernel)
    }

    /// Gives threads as much memory of their own as the kernel needs. The driver would do so at a launch, behind all kernels
    /// that run. The context must be current.
    fn make_room(&self, core: &Core<V>) -> Result<(), HalError> {
        let api = core.context.api();
        let (Some(get), Some(set)) = (api.limit_get, api.limit_set) else { return Ok(()) };
        let needed = self.attribute(code::LOCAL_BYTES)? as usize;
        let suffices = || {
            let mut bytes = 0;
            // SAFETY: `bytes` is a valid place for the answer.
            let code = unsafe { get(&raw mut bytes, code::STACK) };
            code != Code::SUCCESS || bytes >= needed
        };
        if suffices() {
            return Ok(());
        }
        // Setting the limit may wait for kernels; threads that need no more do not come here. Asked again, since the thread that
        // had the lock before may have set a larger limit, which must not shrink.
        let _held = core.stacks.lock().unwrap_or_else(PoisonError::into_inner);
        if suffices() {
            return Ok(());
        }
        // SAFETY: takes no pointers.
        let code = unsafe { set(code::STACK, needed) };
        api.check("give a kernel's threads memory of their own", code)
    }

    fn attribute(&self, attribute: c_uint) -> Result<u32, HalError> {
        let api = self.module.core.context.api();
        let mut value = 0;
        // SAFETY: the function lives as long as its module; `value` is a valid place for the answer.
        let code = unsafe { (api.function_attribute)(&raw mut value, attribute, self.function) };
        api.check("ask for an attribute of a kernel", code)?;
        Ok(code::count(value))
    }

    /// Asks for as much shared memory as `shape` wants, where blocks have less without asking.
    fn reserve(&self, shape: LaunchShape) -> Result<(), HalError> {
        if shape.shared_bytes <= self.shared_bytes.load(Ordering::Relaxed) {
            return Ok(());
        }
        let api = self.module.core.context.api();
        let bytes = shape.shared_bytes;
        let code = V::allow_shared(api, self.function, bytes);
        api.check(&format!("give a kernel {bytes} bytes of shared memory"), code)?;
        self.shared_bytes.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the context current, and the kernel ready, for `launch` to add a launch to `stream`.
    fn add(
        &self,
        what: &'static str,
        stream: &dyn Stream,
        shape: LaunchShape,
        launch: impl FnOnce(RawStream) -> Code,
    ) -> Result<(), HalError> {
        let context = &self.module.core.context;
        let stream = GpuStream::<V>::of(stream, what)?;
        let stream = stream.raw()?;
        let _entered = context.enter()?;
        self.reserve(shape)?;
        context.api().check(what, launch(stream))
    }
}

impl<V: Vendor> Kernel for GpuKernel<V> {
    fn backend(&self) -> Backend {
        V::BACKEND
    }

    fn attributes(&self) -> Result<KernelAttributes, HalError> {
        let _entered = self.module.core.context.enter()?;
        Ok(KernelAttributes {
            registers: self.attribute(code::REGISTERS)?,
            local_bytes: self.attribute(code::LOCAL_BYTES)?,
            shared_bytes: self.attribute(code::SHARED_BYTES)?,
            threads: self.attribute(code::THREADS)?,
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
        Ok(u64::from(code::count(blocks)) * u64::from(core.traits.caps.cores))
    }

    unsafe fn launch(
        &self,
        stream: &dyn Stream,
        shape: LaunchShape,
        arguments: &[*const c_void],
    ) -> Result<(), HalError> {
        let launch = self.module.core.context.api().launch;
        let LaunchShape { blocks, threads, shared_bytes } = shape;
        let arguments = arguments.as_ptr().cast_mut().cast();
        self.add("launch a kernel", stream, shape, |stream| {
            let none = ptr::null_mut();
            // SAFETY: the caller vouches for the arguments (`Kernel::launch`), which the driver only reads, though its
            // declaration lacks the `const`; there is no launch with more parameters than the list has.
            unsafe {
                launch(
                    self.function,
                    blocks,
                    1,
                    1,
                    threads,
                    1,
                    1,
                    shared_bytes,
                    stream,
                    arguments,
                    none,
                )
            }
        })
    }

    unsafe fn launch_cooperative(
        &self,
        stream: &dyn Stream,
        shape: LaunchShape,
        arguments: &[*const c_void],
    ) -> Result<(), HalError> {
        let core = &self.module.core;
        let what = "launch a kernel cooperatively";
        let Some(launch) =
            core.context.api().launch_cooperative.filter(|_| core.traits.caps.cooperative)
        else {
            return unsupported::<V, _>(what);
        };
        let LaunchShape { blocks, threads, shared_bytes } = shape;
        let arguments = arguments.as_ptr().cast_mut().cast();
        let mut crowded = false;
        let launched = self.add(what, stream, shape, |stream| {
            // SAFETY: as in `launch`.
            let code = unsafe {
                launch(self.function, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, arguments)
            };
            crowded = code == Code::TOO_MANY_BLOCKS;
            code
        });
        if !crowded {
            return launched;
        }
        let room = self.resident_blocks(shape);
        Err(HalError::Invalid {
            what,
            saw: format!("{blocks} thread blocks of {threads} threads"),
            allowed: match room {
                Ok(room) => format!("{room}, as many as {} runs at the same time", core.name),
                Err(_) => format!("as many as {} runs at the same time", core.name),
            },
            cure: "launch fewer blocks",
        })
    }
}

impl<V: Vendor> Module<V> {
    /// Loads what the vendor's driver takes: machine code, or a bundle.
    fn load(core: &Arc<Core<V>>, image: &[u8]) -> Result<Self, HalError> {
        let _entered = core.context.enter()?;
        let api = core.context.api();
        let _unrecorded = Unrecorded::new(api);
        Ok(Module { raw: V::load_module(api, image)?, core: Arc::clone(core) })
    }
}

impl<V: Vendor> Drop for Module<V> {
    fn drop(&mut self) {
        if let Ok(_entered) = self.core.context.enter() {
            let _unrecorded = Unrecorded::new(self.core.context.api());
            // SAFETY: loaded by `load` and unloaded here alone. Callers keep a kernel until its launches are done.
            let _ = unsafe { (self.core.context.api().module_unload)(self.raw) };
        }
    }
}
