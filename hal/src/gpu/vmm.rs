//! The driver's virtual memory management: physical memory, and the addresses at which it is mapped.

use crate::error::HalError;
use crate::gpu::calls::{
    AccessDescription, Address, AllocationProperties, Device, RawPhysical, Virtual,
};
use crate::gpu::code::{Code, DESCRIPTOR};
use crate::gpu::recording::Unrecorded;
use crate::gpu::spans::Spans;
use crate::gpu::vendor::{Context, Vendor};
use crate::home::mapping_number;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

/// The addresses that the GPU backends use, on all devices, so that their memory is never taken for the application's:
/// from before memory is mapped there until it is about to go.
pub(crate) static OWN: Spans = Spans::new();

/// Enters the context to map memory or to let go of it; nothing, if the driver needs no current context for that.
pub(crate) fn enter<V: Vendor>(
    context: &V::Context,
) -> Result<Option<<V::Context as Context<V>>::Entered<'_>>, HalError> {
    (!V::MAPS_WITHOUT_CONTEXT).then(|| context.enter()).transpose()
}

/// Makes a call that names its device itself; once more with the context current, should a driver want one all the same.
pub(crate) fn call<V: Vendor>(
    context: &V::Context,
    mut call: impl FnMut() -> Code,
) -> Result<(), Code> {
    match call() {
        Code::INVALID_CONTEXT => match context.enter() {
            Ok(_entered) => call().ok(),
            Err(_) => Err(Code::INVALID_CONTEXT),
        },
        code => code.ok(),
    }
}

/// A count on physical memory, or on a multicast object, given back when dropped.
#[derive(Debug)]
pub(crate) struct Physical<V: Vendor> {
    pub(crate) raw: RawPhysical,
    /// Whether a count on it is given back when this is dropped.
    counted: bool,
    pub(crate) calls: Virtual,
    pub(crate) context: Arc<V::Context>,
}

impl<V: Vendor> Physical<V> {
    /// Takes over the count that comes with `raw`.
    pub(crate) fn own(context: &Arc<V::Context>, calls: Virtual, raw: RawPhysical) -> Self {
        Physical { raw, counted: true, calls, context: Arc::clone(context) }
    }

    /// `bytes` bytes (a multiple of the granularity). The code tells what went wrong.
    pub(crate) fn create(
        context: &Arc<V::Context>,
        calls: Virtual,
        bytes: usize,
        properties: &AllocationProperties,
    ) -> Result<Self, Code> {
        let mut raw = 0;
        // SAFETY: both pointers are valid for the call.
        unsafe { (calls.create)(&raw mut raw, bytes, properties, 0) }.ok()?;
        Ok(Physical::own(context, calls, raw))
    }

    /// The memory mapped at `address`, if it comes from this management. The context must be current.
    pub(crate) fn at(
        context: &Arc<V::Context>,
        calls: Virtual,
        address: Address,
    ) -> Result<Self, Code> {
        if !V::may_hold(context, address) {
            return Err(Code::INVALID_VALUE);
        }
        let mut raw = 0;
        let pointer = ptr::without_provenance_mut::<c_void>(address as usize);
        // SAFETY: `raw` is a valid place for the answer; the address may be asked for.
        unsafe { (calls.of)(&raw mut raw, pointer) }.ok()?;
        let mut physical = Physical::own(context, calls, raw);
        physical.counted = V::COUNTS_RETAINED;
        Ok(physical)
    }

    /// A file descriptor for it.
    pub(crate) fn export_descriptor(&self) -> Result<OwnedFd, HalError> {
        let what = "export memory as a file descriptor";
        let mut descriptor: c_int = -1;
        // SAFETY: for this type of handle the driver writes an int, for which there is a valid place.
        let exported = call::<V>(&self.context, || unsafe {
            (self.calls.export)((&raw mut descriptor).cast(), self.raw, DESCRIPTOR, 0)
        });
        exported.map_err(|code| self.context.api().error(what, code))?;
        // SAFETY: the driver made the descriptor for us alone.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| HalError::system(what, error))?;
        Ok(descriptor)
    }

    /// What `descriptor` stands for.
    pub(crate) fn import_descriptor(
        context: &Arc<V::Context>,
        calls: Virtual,
        descriptor: BorrowedFd<'_>,
    ) -> Result<Self, Code> {
        let (mut raw, mut number) = (0, descriptor.as_raw_fd());
        let handle = V::descriptor(context.api(), &mut number);
        // SAFETY: `raw` is a valid place for the answer; the descriptor, which is open for the call, comes as this
        // release wants it; the driver answers an error where it is of something else.
        call::<V>(context, || unsafe { (calls.import)(&raw mut raw, handle, DESCRIPTOR) })?;
        Ok(Physical::own(context, calls, raw))
    }
}

impl<V: Vendor> Drop for Physical<V> {
    fn drop(&mut self) {
        if self.counted
            && let Ok(_entered) = enter::<V>(&self.context)
        {
            // To let go of memory is no part of a graph that is being recorded.
            let _unrecorded = Unrecorded::new(self.context.api());
            // SAFETY: gives back the count that this object owns; mappings keep the memory itself.
            let _ = call::<V>(&self.context, || unsafe { (self.calls.release)(self.raw) });
        }
    }
}

/// A range of addresses with memory mapped to it, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapped<V: Vendor> {
    address: Address,
    bytes: usize,
    /// Bytes of each piece of memory that is mapped, one behind the other; beyond them, addresses are only reserved.
    filled: Vec<usize>,
    calls: Virtual,
    context: Arc<V::Context>,
}

impl<V: Vendor> Mapped<V> {
    /// Maps the first bytes (a multiple of the granularity) of each memory of `parts`, one behind the other, for the
    /// context's device to read and write.
    pub(crate) fn new(
        context: &Arc<V::Context>,
        calls: Virtual,
        parts: &[(&Physical<V>, usize)],
    ) -> Result<Self, Code> {
        let total = |sum: usize, (_, bytes): &(&Physical<V>, usize)| sum.checked_add(*bytes);
        let bytes = parts.iter().try_fold(0, total).ok_or(Code::INVALID_VALUE)?;
        let mut address = 0;
        // SAFETY: `address` is a valid place for the answer; no address is wished for.
        call::<V>(context, || unsafe { (calls.reserve)(&raw mut address, bytes, 0, 0, 0) })?;
        OWN.enter(address, bytes as u64);
        let kept = Arc::clone(context);
        let mut mapped = Mapped { address, bytes, filled: Vec::new(), calls, context: kept };
        let mut next = address;
        for (physical, bytes) in parts {
            // SAFETY: the addresses were reserved just now and hold nothing; the driver checks the length.
            call::<V>(context, || unsafe { (calls.map)(next, *bytes, 0, physical.raw, 0) })?;
            mapped.filled.push(*bytes);
            next += *bytes as u64;
        }
        mapped.allow(context.device())?;
        Ok(mapped)
    }

    /// Lets a device read and write it.
    pub(crate) fn allow(&self, device: Device) -> Result<(), Code> {
        let access = AccessDescription::of(device);
        // SAFETY: the range is mapped; `access` is valid for the call.
        call::<V>(&self.context, || unsafe {
            (self.calls.allow)(self.address, self.bytes, &raw const access, 1)
        })
    }

    /// The device that it was mapped for.
    pub(crate) fn device(&self) -> Device {
        self.context.device()
    }

    /// Where it is mapped.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Bytes of each piece of memory that is mapped.
    pub(crate) fn parts(&self) -> &[usize] {
        &self.filled
    }
}

impl<V: Vendor> Drop for Mapped<V> {
    fn drop(&mut self) {
        let Ok(_entered) = enter::<V>(&self.context) else { return };
        // As for physical memory.
        let _unrecorded = Unrecorded::new(self.context.api());
        let mut next = self.address;
        for &bytes in &self.filled {
            // SAFETY: mapped by `new` and unmapped here alone; whoever uses the addresses keeps this object.
            let _ = call::<V>(&self.context, || unsafe { (self.calls.unmap)(next, bytes) });
            next += bytes as u64;
        }
        // While the addresses are still reserved: the next to get them may be another.
        OWN.remove(self.address);
        // SAFETY: reserved by `new` and given back here alone, when nothing is mapped any more.
        let _ = call::<V>(&self.context, || unsafe { (self.calls.free)(self.address, self.bytes) });
    }
}

/// Physical memory, and where it is mapped. The ranks of one process share the mapping: if the same bytes had two addresses, what
/// is written by one need not be seen by the other while kernels run.
#[derive(Debug)]
pub(crate) struct Mapping<V: Vendor> {
    /// Its [number](mapping_number) in this process.
    pub(crate) number: u64,
    /// Where it is mapped. Unmapped before the count of the memory is given back.
    pub(crate) mapped: Mapped<V>,
    /// The memory: one piece, or the parts of a peer's, in the order in which they are mapped.
    pub(crate) physicals: Vec<Physical<V>>,
}

impl<V: Vendor> Mapping<V> {
    /// The mapping of this physical memory.
    pub(crate) fn new(mapped: Mapped<V>, physicals: Vec<Physical<V>>) -> Arc<Self> {
        Arc::new(Mapping { number: mapping_number(), mapped, physicals })
    }
}
