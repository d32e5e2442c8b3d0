//! The driver's virtual memory management: physical memory, and the addresses at which it is mapped.

use crate::cuda::context::Context;
use crate::cuda::conv::{self, Sharing};
use crate::cuda::library::Code;
use crate::error::HalError;
use crate::gpu::spans::Spans;
use cudarc::driver::sys;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

/// The addresses that this backend uses, on all devices, so that its memory is never taken for the application's: from
/// before memory is mapped there until after it is unmapped.
pub(super) static OWN: Spans = Spans::new();

/// A count on physical memory, or on a multicast object, given back when dropped.
#[derive(Debug)]
pub(super) struct Physical {
    raw: sys::CUmemGenericAllocationHandle,
    context: Arc<Context>,
}

impl Physical {
    /// Takes over the count that comes with `raw`.
    pub(super) fn own(context: &Arc<Context>, raw: sys::CUmemGenericAllocationHandle) -> Self {
        Physical { raw, context: Arc::clone(context) }
    }

    /// `bytes` bytes (a multiple of the granularity) of the context's device. The code tells what went wrong.
    pub(super) fn create(
        context: &Arc<Context>,
        bytes: usize,
        sharing: Sharing,
    ) -> Result<Self, Code> {
        let properties = conv::allocation(context.device(), sharing);
        let mut raw = 0;
        // SAFETY: both pointers are valid for the call.
        let code =
            unsafe { (context.api().memory_create)(&raw mut raw, bytes, &raw const properties, 0) };
        if code == Code::SUCCESS { Ok(Physical::own(context, raw)) } else { Err(code) }
    }

    /// The memory mapped at `address`, if it comes from this management.
    pub(super) fn at(context: &Arc<Context>, address: u64) -> Result<Self, Code> {
        let mut raw = 0;
        let pointer = ptr::without_provenance_mut::<c_void>(address as usize);
        // SAFETY: `raw` is a valid place for the answer; any address may be asked for.
        let code = unsafe { (context.api().memory_retain)(&raw mut raw, pointer) };
        if code == Code::SUCCESS { Ok(Physical::own(context, raw)) } else { Err(code) }
    }

    /// The driver's handle.
    pub(super) fn raw(&self) -> sys::CUmemGenericAllocationHandle {
        self.raw
    }

    /// What the driver says of it; `None` where it does not tell.
    pub(super) fn properties(&self) -> Option<sys::CUmemAllocationProp> {
        let ask = self.context.api().memory_properties?;
        let mut properties = conv::no_properties();
        // SAFETY: `properties` is a valid place for the answer, and this object has a count on the handle.
        let code = unsafe { ask(&raw mut properties, self.raw) };
        (code == Code::SUCCESS).then_some(properties)
    }

    /// A file descriptor for it.
    pub(super) fn export_descriptor(&self) -> Result<OwnedFd, HalError> {
        let what = "export CUDA memory as a file descriptor";
        let mut descriptor: c_int = -1;
        // SAFETY: for this type of handle the driver writes an int, for which there is a valid place.
        let code = unsafe {
            (self.context.api().memory_export)(
                (&raw mut descriptor).cast(),
                self.raw,
                conv::DESCRIPTOR,
                0,
            )
        };
        self.context.api().check(what, code)?;
        // SAFETY: the driver made the descriptor for us alone.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| HalError::system(what, error))?;
        Ok(descriptor)
    }

    /// A fabric handle for it.
    pub(super) fn export_fabric(&self) -> Result<[u8; 64], HalError> {
        let mut handle = sys::CUmemFabricHandle { data: [0; 64] };
        // SAFETY: for this type of handle the driver writes this structure, for which there is a valid place.
        let code = unsafe {
            (self.context.api().memory_export)((&raw mut handle).cast(), self.raw, conv::FABRIC, 0)
        };
        self.context.api().check("export CUDA memory as a fabric handle", code)?;
        Ok(handle.data)
    }

    /// What `descriptor` stands for.
    pub(super) fn import_descriptor(
        context: &Arc<Context>,
        descriptor: BorrowedFd<'_>,
    ) -> Result<Self, Code> {
        let mut raw = 0;
        let number = usize::try_from(descriptor.as_raw_fd()).unwrap_or(usize::MAX);
        let handle = ptr::without_provenance_mut::<c_void>(number);
        // SAFETY: for this type of handle the "pointer" is the descriptor's number, which is open for the call;
        // the driver answers an error where it is of something else.
        let code = unsafe { (context.api().memory_import)(&raw mut raw, handle, conv::DESCRIPTOR) };
        if code == Code::SUCCESS { Ok(Physical::own(context, raw)) } else { Err(code) }
    }

    /// What a fabric handle stands for.
    pub(super) fn import_fabric(context: &Arc<Context>, handle: &[u8; 64]) -> Result<Self, Code> {
        let mut raw = 0;
        let mut handle = sys::CUmemFabricHandle { data: *handle };
        // SAFETY: both pointers are valid for the call; the driver checks the handle.
        let code = unsafe {
            (context.api().memory_import)(
                &raw mut raw,
                (&raw mut handle).cast::<c_void>(),
                conv::FABRIC,
            )
        };
        if code == Code::SUCCESS { Ok(Physical::own(context, raw)) } else { Err(code) }
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: gives back the count that this object owns; mappings keep the memory itself.
            let _ = unsafe { (self.context.api().memory_release)(self.raw) };
        }
    }
}

/// A range of addresses with memory mapped to it, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapped {
    address: sys::CUdeviceptr,
    bytes: usize,
    /// Bytes of each piece of memory that is mapped, one behind the other; beyond them, addresses are only reserved.
    filled: Vec<usize>,
    context: Arc<Context>,
}

impl Mapped {
    /// Maps the first `bytes` bytes (a multiple of the granularity) of `physical`, for the context's device to
    /// read and write.
    pub(super) fn new(
        context: &Arc<Context>,
        physical: &Physical,
        bytes: usize,
    ) -> Result<Self, Code> {
        Mapped::all(context, &[(physical, bytes)])
    }

    /// Maps the first bytes of each memory of `parts`, one behind the other, otherwise as [`new`](Self::new).
    pub(super) fn all(context: &Arc<Context>, parts: &[(&Physical, usize)]) -> Result<Self, Code> {
        let api = context.api();
        let total = |sum: usize, (_, bytes): &(&Physical, usize)| sum.checked_add(*bytes);
        let bytes = parts.iter().try_fold(0, total).ok_or(Code::INVALID_VALUE)?;
        let done = |code| if code == Code::SUCCESS { Ok(()) } else { Err(code) };
        let mut address = 0;
        // SAFETY: `address` is a valid place for the answer; no address is wished for.
        done(unsafe { (api.memory_reserve)(&raw mut address, bytes, 0, 0, 0) })?;
        OWN.enter(address, bytes as u64);
        let context_kept = Arc::clone(context);
        let mut mapped = Mapped { address, bytes, filled: Vec::new(), context: context_kept };
        let mut next = address;
        for (physical, bytes) in parts {
            // SAFETY: the addresses were reserved just now and hold nothing; the driver checks the length.
            done(unsafe { (api.memory_map)(next, *bytes, 0, physical.raw(), 0) })?;
            mapped.filled.push(*bytes);
            next += *bytes as u64;
        }
        let access = conv::access(context.device());
        // SAFETY: the range is mapped; `access` is valid for the call.
        done(unsafe { (api.memory_access)(address, bytes, &raw const access, 1) })?;
        Ok(mapped)
    }

    /// Where it is mapped.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Bytes that are mapped.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of each piece of memory that is mapped.
    pub(super) fn parts(&self) -> &[usize] {
        &self.filled
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let Ok(_entered) = self.context.enter() else { return };
        let api = self.context.api();
        let mut next = self.address;
        for &bytes in &self.filled {
            // SAFETY: mapped by `all` and unmapped here alone; whoever uses the addresses keeps this object.
            let _ = unsafe { (api.memory_unmap)(next, bytes) };
            next += bytes as u64;
        }
        // While the addresses are still reserved: the next to get them may be another.
        OWN.remove(self.address);
        // SAFETY: reserved by `all` and given back here alone, when nothing is mapped any more.
        let _ = unsafe { (api.memory_unreserve)(self.address, self.bytes) };
    }
}
