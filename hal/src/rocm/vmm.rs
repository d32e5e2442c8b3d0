//! The driver's virtual memory management: physical memory, and the addresses at which it is mapped.

use crate::error::HalError;
use crate::gpu::spans::Spans;
use crate::rocm::context::Context;
use crate::rocm::conv::{self, AccessDescription, AllocationProperties};
use crate::rocm::library::{Api, Code};
use hip_sys::hiprt as sys;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

/// The addresses that this backend uses, on all devices: from before memory is mapped there until it is about to go.
pub(super) static OWN: Spans = Spans::new();

/// The driver's calls for it, which older releases lack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calls {
    pub(super) granularity:
        unsafe extern "C" fn(*mut usize, *const AllocationProperties, c_uint) -> Code,
    create: unsafe extern "C" fn(
        *mut sys::hipMemGenericAllocationHandle_t,
        usize,
        *const AllocationProperties,
        c_ulonglong,
    ) -> Code,
    release: unsafe extern "C" fn(sys::hipMemGenericAllocationHandle_t) -> Code,
    of: unsafe extern "C" fn(*mut sys::hipMemGenericAllocationHandle_t, *mut c_void) -> Code,
    export: unsafe extern "C" fn(
        *mut c_void,
        sys::hipMemGenericAllocationHandle_t,
        c_uint,
        c_ulonglong,
    ) -> Code,
    import: unsafe extern "C" fn(
        *mut sys::hipMemGenericAllocationHandle_t,
        *mut c_void,
        c_uint,
    ) -> Code,
    reserve: unsafe extern "C" fn(*mut *mut c_void, usize, usize, *mut c_void, c_ulonglong) -> Code,
    free: unsafe extern "C" fn(*mut c_void, usize) -> Code,
    map: unsafe extern "C" fn(
        *mut c_void,
        usize,
        usize,
        sys::hipMemGenericAllocationHandle_t,
        c_ulonglong,
    ) -> Code,
    unmap: unsafe extern "C" fn(*mut c_void, usize) -> Code,
    allow: unsafe extern "C" fn(*mut c_void, usize, *const AccessDescription, usize) -> Code,
    access: unsafe extern "C" fn(*mut c_ulonglong, *const conv::Location, *mut c_void) -> Code,
}

impl Calls {
    /// Those of `api`, if it has all of them, with the structures used here.
    pub(super) fn of(api: &Api) -> Option<Self> {
        if api.version < conv::VIRTUAL_MEMORY {
            return None;
        }
        Some(Calls {
            granularity: api.physical_granularity?,
            create: api.physical_create?,
            release: api.physical_release?,
            of: api.physical_of?,
            export: api.physical_export?,
            import: api.physical_import?,
            reserve: api.range_reserve?,
            free: api.range_free?,
            map: api.range_map?,
            unmap: api.range_unmap?,
            allow: api.range_allow?,
            access: api.range_access?,
        })
    }
}

/// Physical memory.
#[derive(Debug)]
pub(super) struct Physical {
    raw: sys::hipMemGenericAllocationHandle_t,
    /// Whether a count on it is given back when this is dropped.
    counted: bool,
    calls: Calls,
    context: Arc<Context>,
}

// SAFETY: the driver synchronises access to its handles, which never change.
unsafe impl Send for Physical {}
// SAFETY: as above.
unsafe impl Sync for Physical {}

impl Physical {
    /// `bytes` bytes (a multiple of the granularity) of the context's device. The code tells what went wrong.
    pub(super) fn create(context: &Arc<Context>, calls: Calls, bytes: usize) -> Result<Self, Code> {
        let properties = conv::allocation(context.device());
        let mut raw = ptr::null_mut();
        // SAFETY: both pointers are valid for the call.
        let code = unsafe { (calls.create)(&raw mut raw, bytes, &raw const properties, 0) };
        Physical::own(context, calls, raw, code)
    }

    /// Takes over the count that comes with `raw`, if `code` is a success.
    fn own(
        context: &Arc<Context>,
        calls: Calls,
        raw: sys::hipMemGenericAllocationHandle_t,
        code: Code,
    ) -> Result<Self, Code> {
        if code != Code::SUCCESS {
            return Err(code);
        }
        Ok(Physical { raw, counted: true, calls, context: Arc::clone(context) })
    }

    /// The memory mapped at `address`, if it comes from this management.
    pub(super) fn at(context: &Arc<Context>, calls: Calls, address: u64) -> Result<Self, Code> {
        let pointer = ptr::with_exposed_provenance_mut::<c_void>(address as usize);
        let location = conv::location(context.device());
        let mut flags = 0;
        // Asked first: for other memory some releases follow a null pointer in the next call.
        // SAFETY: `flags` is a valid place for the answer; any address may be asked for.
        let code = unsafe { (calls.access)(&raw mut flags, &raw const location, pointer) };
        if code != Code::SUCCESS {
            return Err(code);
        }
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a valid place for the answer; the address is one of this management.
        let code = unsafe { (calls.of)(&raw mut raw, pointer) };
        let mut physical = Physical::own(context, calls, raw, code)?;
        // Some releases count this call and some do not, and to give back a count that is not ours would take the
        // memory from the application. Where it was counted, the memory stays until the process ends.
        physical.counted = false;
        Ok(physical)
    }

    /// A file descriptor for it.
    pub(super) fn export_descriptor(&self) -> Result<OwnedFd, HalError> {
        let what = "export HIP memory as a file descriptor";
        let mut descriptor: c_int = -1;
        // SAFETY: for this type of handle the driver writes an int, for which there is a valid place.
        let code = unsafe {
            (self.calls.export)((&raw mut descriptor).cast(), self.raw, conv::DESCRIPTOR, 0)
        };
        self.context.api().check(what, code)?;
        // SAFETY: the driver made the descriptor for us alone.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| HalError::system(what, error))?;
        Ok(descriptor)
    }

    /// What `descriptor` stands for.
    pub(super) fn import_descriptor(
        context: &Arc<Context>,
        calls: Calls,
        descriptor: BorrowedFd<'_>,
    ) -> Result<Self, Code> {
        let mut number: c_int = descriptor.as_raw_fd();
        let handle = if conv::takes_descriptor_by_value(context.api().version) {
            ptr::without_provenance_mut(usize::try_from(number).unwrap_or(usize::MAX))
        } else {
            (&raw mut number).cast::<c_void>()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a valid place for the answer; the descriptor, which is open for the call, comes as this
        // release wants it; the driver answers an error where it is of something else.
        let code = unsafe { (calls.import)(&raw mut raw, handle, conv::DESCRIPTOR) };
        Physical::own(context, calls, raw, code)
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        if self.counted
            && let Ok(_entered) = self.context.enter()
        {
            // SAFETY: gives back the count that this object owns; mappings keep the memory itself.
            let _ = unsafe { (self.calls.release)(self.raw) };
        }
    }
}

/// A range of addresses with memory mapped to it, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapped {
    address: *mut c_void,
    bytes: usize,
    /// Whether memory is mapped, or the addresses are only reserved.
    filled: bool,
    calls: Calls,
    context: Arc<Context>,
}

// SAFETY: the address is a number here; what is behind it is not touched.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps the first `bytes` bytes (a multiple of the granularity) of `physical`, for the context's device to
    /// read and write.
    pub(super) fn new(
        context: &Arc<Context>,
        physical: &Physical,
        bytes: usize,
    ) -> Result<Self, Code> {
        let calls = physical.calls;
        let done = |code| if code == Code::SUCCESS { Ok(()) } else { Err(code) };
        let mut address = ptr::null_mut();
        // SAFETY: `address` is a valid place for the answer; no address is wished for.
        done(unsafe { (calls.reserve)(&raw mut address, bytes, 0, ptr::null_mut(), 0) })?;
        OWN.enter(address.expose_provenance() as u64, bytes as u64);
        let kept = Arc::clone(context);
        let mut mapped = Mapped { address, bytes, filled: false, calls, context: kept };
        // SAFETY: the addresses were reserved just now and hold nothing; the driver checks the length.
        done(unsafe { (calls.map)(address, bytes, 0, physical.raw, 0) })?;
        mapped.filled = true;
        let access = conv::access(context.device());
        // SAFETY: the range is mapped; `access` is valid for the call.
        done(unsafe { (calls.allow)(address, bytes, &raw const access, 1) })?;
        Ok(mapped)
    }

    /// Where it is mapped.
    pub(super) fn address(&self) -> u64 {
        self.address.addr() as u64
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let Ok(_entered) = self.context.enter() else { return };
        if self.filled {
            // SAFETY: mapped by `new` and unmapped here alone; whoever uses the addresses keeps this object.
            let _ = unsafe { (self.calls.unmap)(self.address, self.bytes) };
        }
        // While the addresses are still reserved: the next to get them may be another.
        OWN.remove(self.address());
        // SAFETY: reserved by `new` and given back here alone, when nothing is mapped any more.
        let _ = unsafe { (self.calls.free)(self.address, self.bytes) };
    }
}
