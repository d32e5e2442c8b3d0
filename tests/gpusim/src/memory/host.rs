//! Host memory that devices reach: pinned by the driver, or registered by the application.

use super::registry::{self, Kind, Range};
use super::shared::{self, Physical};
use crate::abi::Out;
use crate::context;
use crate::status::Status;
use crate::stream::capture;

driver_calls! {
    fn cuMemHostAlloc(out: Out<u64>, bytes: usize, flags: u32) {
        let context = context::current()?;
        capture::refuse()?;
        crate::stream::may_finish_device(context.device, "pin");
        if bytes == 0 || flags > 7 {
            return Err(Status::INVALID_VALUE);
        }
        let mapped = bytes.checked_next_multiple_of(4096).ok_or(Status::OUT_OF_MEMORY)?;
        // The mapping keeps the memory without its file.
        let base = Physical::new(mapped, context.device, 0)?.map()?;
        let kind = Kind::Pinned;
        registry::add(Range::new(&context, base, bytes, mapped, kind));
        out.set(base)
    }

    fn cuMemFreeHost(address: u64) {
        let context = context::current()?;
        capture::refuse()?;
        let range = registry::take(address, |range| matches!(range.kind, Kind::Pinned));
        let range = range.ok_or(Status::INVALID_VALUE)?;
        crate::stream::finish_device(context.device);
        shared::unmap(range.base, range.mapped)
    }

    fn cuMemHostGetDevicePointer_v2(out: Out<u64>, address: u64, flags: u32) {
        context::current()?;
        let known = registry::find(address).is_some_and(|range| range.is_host());
        if flags != 0 || !known {
            return Err(Status::INVALID_VALUE);
        }
        out.set(address)
    }

    fn cuMemHostRegister_v2(address: u64, bytes: usize, _flags: u32) {
        let context = context::current()?;
        capture::refuse()?;
        crate::stream::may_finish_device(context.device, "pin");
        if address == 0 || bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        if registry::overlaps(address, bytes) {
            return Err(Status::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let kind = Kind::Registered;
        registry::add(Range::new(&context, address, bytes, 0, kind));
        Ok(())
    }

    fn cuMemHostUnregister(address: u64) {
        let context = context::current()?;
        capture::refuse()?;
        let range = registry::take(address, |range| matches!(range.kind, Kind::Registered));
        range.ok_or(Status::HOST_MEMORY_NOT_REGISTERED)?;
        crate::stream::finish_device(context.device);
        Ok(())
    }
}
