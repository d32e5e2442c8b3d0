//! Green contexts, as far as applications pass on their streams: beside the primary context, with a part of the device, which nothing
//! here tells from all of it.

use crate::abi::{Answer, Out};
use crate::context::{self, Context, cuDevicePrimaryCtxRetain};
use crate::device::cuDeviceGet;
use crate::status::Status;
use crate::stream::{Stream, find};
use crate::table::Table;

/// By handles of their own: calls that take a context take what `cuCtxFromGreenCtx` gives.
static GREEN: Table<Context> = Table::new();

/// The kind of resource that a green context has here: multiprocessors.
const MULTIPROCESSORS: u32 = 1;
/// What a green context must be made with: a default stream.
const DEFAULT_STREAM: u32 = 1;
/// What their streams must be made with: that they do not wait for the default one.
const NON_BLOCKING: u32 = 1;

/// What a call of this crate comes to.
fn cu(code: i32) -> Answer {
    if code == 0 { Ok(()) } else { Err(Status(code)) }
}

driver_calls! {
    fn cuDeviceGetDevResource(device: i32, out: Out<u32>, kind: u32) {
        cu(cuDeviceGet(Out::to(&mut 0), device))?;
        if kind != MULTIPROCESSORS {
            return Err(Status::INVALID_VALUE);
        }
        out.set(kind)
    }

    fn cuDevResourceGenerateDesc(out: Out<u64>, resources: *const u32, count: u32) {
        // SAFETY: the application passes a resource that it was given, whose first word is its kind.
        if count != 1 || resources.is_null() || unsafe { *resources } != MULTIPROCESSORS {
            return Err(Status::INVALID_VALUE);
        }
        out.set(u64::from(count))
    }

    fn cuGreenCtxCreate(out: Out<u64>, resources: u64, device: i32, flags: u32) {
        if flags != DEFAULT_STREAM || resources == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let mut primary = 0;
        cu(cuDevicePrimaryCtxRetain(Out::to(&mut primary), device))?;
        let context = Context::green(&context::find(primary)?);
        let handle = context.green.as_ref().map_or(0, |(handle, _)| *handle);
        GREEN.put(handle, context);
        out.set(handle)
    }

    fn cuCtxFromGreenCtx(out: Out<u64>, green: u64) {
        out.set(GREEN.get(green).map_err(|_| Status::INVALID_CONTEXT)?.handle)
    }

    fn cuGreenCtxStreamCreate(out: Out<u64>, green: u64, flags: u32, _priority: i32) {
        if flags != NON_BLOCKING {
            return Err(Status::INVALID_VALUE);
        }
        let context = GREEN.get(green).map_err(|_| Status::INVALID_CONTEXT)?;
        out.set(Stream::open(&context, flags).handle)
    }

    fn cuStreamGetCtx_v2(stream: u64, context: Out<u64>, green: Out<u64>) {
        let stream = find(stream)?;
        context.set(stream.context.home())?;
        green.set(stream.context.green.as_ref().map_or(0, |(handle, _)| *handle))
    }
}
