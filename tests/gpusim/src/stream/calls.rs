//! The driver's calls on streams.

use super::{STREAMS, Stream, Work, capture, find};
use crate::abi::Out;
use crate::context;
use crate::event;
use crate::graph;
use crate::memory::{Rights, allowed, covered};
use crate::status::Status;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A function of the application's, to be called in a stream's order.
type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;

/// The application's data for a function, which it says may be used from another thread.
#[derive(Clone, Copy)]
struct Data(*mut c_void);

// SAFETY: a host function runs on a thread of the driver's by contract, and the data is for it.
unsafe impl Send for Data {}
// SAFETY: as above.
unsafe impl Sync for Data {}

impl Data {
    fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// The stream of an operation on a word. Refuses an address that is not known, not a multiple of `size`, or that the stream's
/// device has no `right` to.
fn place(stream: u64, address: u64, size: usize, right: u8) -> Result<Arc<Stream>, Status> {
    if !address.is_multiple_of(size as u64) {
        return Err(Status::INVALID_VALUE);
    }
    covered(address, size)?;
    let stream = find(stream)?;
    allowed(stream.context.device, address, size, right)?;
    Ok(stream)
}

/// A comparison of `cuStreamWaitValue`.
fn holds(flags: u32, seen: u64, wanted: u64, bits: u32) -> bool {
    match flags & 3 {
        0 => (seen.wrapping_sub(wanted) << (64 - bits)) as i64 >= 0,
        1 => seen == wanted,
        2 => seen & wanted != 0,
        _ => !(seen | wanted) != 0,
    }
}

fn poll(done: impl Fn() -> bool) {
    let mut rounds = 0_u32;
    while !done() {
        rounds = rounds.saturating_add(1);
        if rounds > 1000 {
            std::thread::sleep(std::time::Duration::from_micros(20));
        } else {
            std::thread::yield_now();
        }
    }
}

driver_calls! {
    fn cuStreamCreate(out: Out<u64>, flags: u32) {
        if flags > 1 {
            return Err(Status::INVALID_VALUE);
        }
        out.set(Stream::open(&context::current()?, flags).handle)
    }

    fn cuStreamCreateWithPriority(out: Out<u64>, flags: u32, _priority: i32) {
        if flags > 1 {
            return Err(Status::INVALID_VALUE);
        }
        out.set(Stream::open(&context::current()?, flags).handle)
    }

    fn cuStreamDestroy_v2(stream: u64) {
        let stream = STREAMS.take(stream)?;
        if let Some(capture) = stream.capture() {
            capture.invalidate();
        }
        stream.close();
        Ok(())
    }

    fn cuStreamSynchronize(stream: u64) {
        find(stream)?.synchronize()
    }

    fn cuStreamQuery(stream: u64) {
        capture::refuse()?;
        find(stream)?.query()
    }

    fn cuStreamGetCtx(stream: u64, out: Out<u64>) {
        out.set(find(stream)?.context.handle)
    }

    fn cuStreamGetId(stream: u64, out: Out<u64>) {
        out.set(find(stream)?.handle)
    }

    fn cuStreamWaitEvent(stream: u64, event: u64, _flags: u32) {
        event::wait(&find(stream)?, event)
    }

    fn cuStreamIsCapturing(stream: u64, out: Out<u32>) {
        out.set(find(stream)?.capture_state()?.0)
    }

    fn cuStreamGetCaptureInfo_v2(
        stream: u64,
        status: Out<u32>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<u64>,
        count: Out<usize>,
    ) {
        let (state, capture) = find(stream)?.capture_state()?;
        status.set(state)?;
        if let Some(capture) = capture {
            id.offer(capture.id);
            graph.offer(capture.id);
            dependencies.offer(0);
            count.offer(0);
        }
        Ok(())
    }

    fn cuStreamBeginCapture_v2(stream: u64, mode: u32) {
        capture::begin(&find(stream)?, mode)
    }

    fn cuStreamEndCapture(stream: u64, out: Out<u64>) {
        out.offer(0);
        let (handle, content) = capture::end(&find(stream)?)?;
        out.set(graph::add(handle, content))
    }

    fn cuLaunchHostFunc(stream: u64, function: HostFunction, data: *mut c_void) {
        let function = function.ok_or(Status::INVALID_VALUE)?;
        let data = Data(data);
        let work: Work = Arc::new(move || {
            // SAFETY: the application gave the function and its data for a call in the stream's order.
            unsafe { function(data.pointer()) };
            Ok(())
        });
        find(stream)?.submit(work)
    }

    fn cuStreamWriteValue32_v2(stream: u64, address: u64, value: u32, _flags: u32) {
        place(stream, address, 4, Rights::WRITE)?.submit(Arc::new(move || {
            fence(Ordering::SeqCst);
            // SAFETY: aligned and known to the driver when submitted; the application keeps it until then.
            unsafe { AtomicU32::from_ptr(address as *mut u32) }.store(value, Ordering::SeqCst);
            Ok(())
        }))
    }

    fn cuStreamWriteValue64_v2(stream: u64, address: u64, value: u64, _flags: u32) {
        place(stream, address, 8, Rights::WRITE)?.submit(Arc::new(move || {
            fence(Ordering::SeqCst);
            // SAFETY: as for 32 bits.
            unsafe { AtomicU64::from_ptr(address as *mut u64) }.store(value, Ordering::SeqCst);
            Ok(())
        }))
    }

    fn cuStreamWaitValue32_v2(stream: u64, address: u64, value: u32, flags: u32) {
        place(stream, address, 4, Rights::READ)?.submit(Arc::new(move || {
            // SAFETY: as for writes.
            let seen =
                || unsafe { AtomicU32::from_ptr(address as *mut u32) }.load(Ordering::SeqCst);
            poll(|| holds(flags, seen().into(), value.into(), 32));
            Ok(())
        }))
    }
}

calls_without_context! {
    fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) {
        let wanted = mode.get()?;
        mode.set(capture::exchange_mode(wanted)?)
    }
}
