//! Multicast objects (NVLS): one address whose stores the switch sends to every member's memory.

use crate::cuda::context::Context;
use crate::cuda::{CudaDriver, conv};
use crate::driver::Backend;
use crate::error::HalError;
use crate::gpu::code::Code;
use crate::gpu::core::Core;
use crate::gpu::memory::{self, GpuMemory, Kind};
use crate::gpu::recording::Unrecorded;
use crate::gpu::vendor::Context as _;
use crate::gpu::vmm::{self, Mapped, Mapping, Physical};
use crate::memory::{Memory, MemoryHandle};
use crate::multicast::Multicast;
use cudarc::driver::sys;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A multicast object that this process's device takes part in.
#[derive(Debug)]
pub(super) struct CudaMulticast {
    members: u32,
    bytes: u64,
    length: usize,
    group: Arc<Physical<CudaDriver>>,
    core: Arc<Core<CudaDriver>>,
}

/// The mapping of a multicast group. Unmapped before this member's memory is unbound.
#[derive(Debug)]
pub(crate) struct Member {
    _mapped: Mapped<CudaDriver>,
    _binding: Binding,
}

/// A member's memory, bound to a group until it is dropped.
#[derive(Debug)]
struct Binding {
    group: Arc<Physical<CudaDriver>>,
    length: usize,
    context: Arc<Context>,
    /// Kept while it is bound.
    _memory: Arc<GpuMemory<CudaDriver>>,
}

/// The functions, which `Caps::multicast` promises.
fn missing() -> HalError {
    HalError::Unsupported { op: "use multicast", backend: Backend::Cuda }
}

/// Makes a call on a group. Like calls that map memory it names its device and needs no context, since threads that serve kernels
/// make it.
fn call(context: &Context, what: &str, made: impl FnMut() -> Code) -> Result<(), HalError> {
    vmm::call::<CudaDriver>(context, made).map_err(|code| context.api().error(what, code))
}

impl CudaMulticast {
    /// Makes a group, this device its first member.
    pub(super) fn new(
        core: &Arc<Core<CudaDriver>>,
        members: u32,
        bytes: u64,
    ) -> Result<Self, HalError> {
        let invalid = |saw: String, allowed: &str, cure| HalError::Invalid {
            what: "make a multicast group",
            saw,
            allowed: allowed.to_owned(),
            cure,
        };
        if members == 0 || bytes == 0 {
            return Err(invalid(
                format!("{members} members of {bytes} bytes"),
                "1 or more of 1 byte or more",
                "make no group where none is needed",
            ));
        }
        let _unrecorded = Unrecorded::new(core.context.api());
        let length = length(core, members, bytes)?
            .ok_or_else(|| invalid(format!("{bytes} bytes"), "an address range", "ask for less"))?;
        let api = core.context.api();
        let properties = conv::multicast(members, length);
        let mut raw = 0;
        let create = api.multicast_create.ok_or_else(missing)?;
        // SAFETY: both pointers are valid for the call.
        call(&core.context, "make a multicast group", || unsafe {
            create(&raw mut raw, &raw const properties)
        })?;
        Self::join(core, Physical::own(&core.context, core.mapping()?, raw), members, bytes, length)
    }

    /// Joins the group that `handle` stands for.
    pub(super) fn import(
        core: &Arc<Core<CudaDriver>>,
        handle: &MemoryHandle,
    ) -> Result<Self, HalError> {
        let what = "join a multicast group";
        let invalid = |saw: String| HalError::Invalid {
            what,
            saw,
            allowed: "the handle of a CUDA multicast group".to_owned(),
            cure: "run the same version of Antiphon on every rank, and pass blob and descriptor together",
        };
        let MemoryHandle::Multicast { backend: Backend::Cuda, descriptor, members, bytes } = handle
        else {
            return Err(invalid(format!("a handle of {}", handle.kind_name())));
        };
        let _unrecorded = Unrecorded::new(core.context.api());
        let length = length(core, *members, *bytes)?.filter(|_| *members > 0 && *bytes > 0);
        let length =
            length.ok_or_else(|| invalid(format!("{members} members of {bytes} bytes")))?;
        let group = Physical::import_descriptor(&core.context, core.mapping()?, descriptor.as_fd());
        let group = group.map_err(|code| core.context.api().error(what, code))?;
        Self::join(core, group, *members, *bytes, length)
    }

    fn join(
        core: &Arc<Core<CudaDriver>>,
        group: Physical<CudaDriver>,
        members: u32,
        bytes: u64,
        length: usize,
    ) -> Result<Self, HalError> {
        let api = core.context.api();
        let add = api.multicast_add.ok_or_else(missing)?;
        // SAFETY: the group lives as long as `group`.
        call(&core.context, "add a device to a multicast group", || unsafe {
            add(group.raw, core.context.device())
        })?;
        Ok(CudaMulticast { members, bytes, length, group: Arc::new(group), core: Arc::clone(core) })
    }
}

/// `bytes` in units of the group and of memory, if a range can be that long.
fn length(core: &Core<CudaDriver>, members: u32, bytes: u64) -> Result<Option<usize>, HalError> {
    let Some(whole) = memory::rounded(core, bytes) else { return Ok(None) };
    let api = core.context.api();
    let granularity = api.multicast_granularity.ok_or_else(missing)?;
    let properties = conv::multicast(members, whole);
    let mut unit = 0;
    // SAFETY: both pointers are valid for the call.
    call(&core.context, "ask for the granularity of a multicast group", || unsafe {
        granularity(
            &raw mut unit,
            &raw const properties,
            sys::CUmulticastGranularity_flags::CU_MULTICAST_GRANULARITY_MINIMUM,
        )
    })?;
    let length = whole.checked_next_multiple_of(unit.max(1));
    Ok(length.filter(|&length| isize::try_from(length).is_ok()))
}

impl Multicast for CudaMulticast {
    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn export(&self) -> Result<MemoryHandle, HalError> {
        let _unrecorded = Unrecorded::new(self.core.context.api());
        Ok(MemoryHandle::Multicast {
            backend: Backend::Cuda,
            descriptor: Arc::new(self.group.export_descriptor()?),
            members: self.members,
            bytes: self.bytes,
        })
    }

    fn bind(&self, memory: &Arc<dyn Memory>) -> Result<Arc<dyn Memory>, HalError> {
        let core = &self.core;
        let refused = |saw: String| HalError::Invalid {
            what: "bind memory to a multicast group",
            saw,
            allowed: format!(
                "memory of at least {} bytes that the group's device allocated",
                self.length
            ),
            cure: "allocate the memory by the device that made or joined the group",
        };
        let found = core.ranges.find(memory.address().addr(), memory.len());
        let own = found.map(|(own, _)| own).filter(|own| own.id == memory.id());
        let Some(own) = own else {
            return Err(refused("memory of another device or allocator".to_owned()));
        };
        let Kind::Mapped(mapping) = &own.kind else {
            return Err(refused("memory that cannot be bound".to_owned()));
        };
        let Mapping { mapped, physicals, .. } = &**mapping;
        let [physical] = &physicals[..] else {
            return Err(refused(format!("memory of {} parts", physicals.len())));
        };
        let bytes: usize = mapped.parts().iter().sum();
        if bytes < self.length {
            return Err(refused(format!("{bytes} bytes")));
        }
        let api = core.context.api();
        let _unrecorded = Unrecorded::new(api);
        let bind = api.multicast_bind.ok_or_else(missing)?;
        // SAFETY: both live as long as the objects; the memory is long enough, and the driver checks the rest.
        call(&core.context, "bind memory to a multicast group", || unsafe {
            bind(self.group.raw, 0, physical.raw, 0, self.length, 0)
        })?;
        let binding = Binding {
            group: Arc::clone(&self.group),
            length: self.length,
            context: Arc::clone(&core.context),
            _memory: Arc::clone(&own),
        };
        let mapped = Mapped::new(&core.context, core.mapping()?, &[(&*self.group, self.length)]);
        let mapped = mapped.map_err(|code| api.error("map a multicast group", code))?;
        let address = mapped.address();
        let kind = Kind::Own(Member { _mapped: mapped, _binding: binding });
        Ok(memory::enter(core, address, self.bytes, kind))
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        let api = self.context.api();
        // To let go of memory is no part of a graph that is being recorded.
        let _unrecorded = Unrecorded::new(api);
        if let Some(unbind) = api.multicast_unbind {
            // SAFETY: bound by `bind`, for this length, and unbound here alone.
            let _ = call(&self.context, "unbind memory from a multicast group", || unsafe {
                unbind(self.group.raw, self.context.device(), 0, self.length)
            });
        }
    }
}
