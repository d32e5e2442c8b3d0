//! Order on the simulated driver: streams, events, captures.

#[macro_use]
mod support;

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use support::Driver;

const NOT_READY: i32 = 600;

fn event(driver: &Driver) -> u64 {
    let mut event = 0;
    ok!(driver, cuEventCreate(*mut u64, u32), &mut event, 0);
    event
}

/// Holds a stream until the sender is used.
fn hold(driver: &Driver, stream: u64) -> Sender<()> {
    extern "C" fn wait(gate: *mut c_void) {
        // SAFETY: the box that `hold` gave away, once.
        let gate = unsafe { Box::from_raw(gate.cast::<Mutex<Receiver<()>>>()) };
        // A dropped sender opens the gate as well, so that a failed test ends.
        let _ = gate.lock().expect("nobody else locks").recv();
    }
    let (open, gate) = channel();
    let gate = Box::into_raw(Box::new(Mutex::new(gate)));
    ok!(
        driver,
        cuLaunchHostFunc(u64, extern "C" fn(*mut c_void), *mut c_void),
        stream,
        wait,
        gate.cast()
    );
    open
}

#[test]
fn streams_wait_for_events_and_not_for_each_other() {
    let driver = Driver::start();
    let (first, second) = (driver.stream(), driver.stream());
    let (value, copy) = (driver.allocate(4), driver.allocate(4));
    driver.write(value, &[0_u32]);
    let gate = hold(&driver, first);
    ok!(driver, cuMemsetD8Async(u64, u8, usize, u64), value, 1, 4, first);
    let done = event(&driver);
    ok!(driver, cuEventRecord(u64, u64), done, first);
    assert_eq!(call!(driver, cuEventQuery(u64), done), NOT_READY);
    assert_eq!(call!(driver, cuStreamQuery(u64), first), NOT_READY);
    // Nothing of the second stream waits yet.
    ok!(driver, cuMemcpyDtoDAsync_v2(u64, u64, usize, u64), copy, value, 4, second);
    driver.finish(second);
    assert_eq!(driver.read::<u32>(copy, 1), [0]);
    ok!(driver, cuStreamWaitEvent(u64, u64, u32), second, done, 0);
    ok!(driver, cuMemcpyDtoDAsync_v2(u64, u64, usize, u64), copy, value, 4, second);
    assert_eq!(call!(driver, cuStreamQuery(u64), second), NOT_READY);
    gate.send(()).expect("the stream waits");
    driver.finish(second);
    assert_eq!(driver.read::<u32>(copy, 1), [0x0101_0101]);
    ok!(driver, cuEventSynchronize(u64), done);
    let after = event(&driver);
    ok!(driver, cuEventRecord(u64, u64), after, second);
    ok!(driver, cuEventSynchronize(u64), after);
    let mut milliseconds = -1.0_f32;
    ok!(driver, cuEventElapsedTime(*mut f32, u64, u64), &mut milliseconds, done, after);
    assert!(milliseconds >= 0.0);
    for stream in [first, second] {
        ok!(driver, cuStreamDestroy_v2(u64), stream);
        assert_eq!(call!(driver, cuStreamQuery(u64), stream), 400, "a handle that is gone");
    }
}

#[test]
fn the_legacy_stream_waits_for_blocking_ones() {
    let driver = Driver::start();
    // A context of its own: the primary one's legacy stream serves the other tests meanwhile.
    let mut context = 0_u64;
    ok!(driver, cuCtxCreate_v2(*mut u64, u32, i32), &mut context, 0, 1);
    let mut blocking = 0_u64;
    ok!(driver, cuStreamCreate(*mut u64, u32), &mut blocking, 0);
    let free = driver.stream();
    let value = driver.allocate(4);
    let gates = [hold(&driver, blocking), hold(&driver, free)];
    ok!(driver, cuMemsetD8Async(u64, u8, usize, u64), value, 2, 4, 0);
    assert_eq!(call!(driver, cuStreamQuery(u64), 0), NOT_READY);
    gates[0].send(()).expect("the stream waits");
    driver.finish(0);
    assert_eq!(call!(driver, cuStreamQuery(u64), free), NOT_READY);
    gates[1].send(()).expect("the stream waits");
    driver.finish(free);
    assert_eq!(driver.read::<u32>(value, 1), [0x0202_0202]);
}

/// A capture on `stream` that another stream joins; the caller says whether it comes back.
fn fork(driver: &Driver, join: bool, values: [u64; 2]) -> (i32, u64) {
    let (stream, other) = (driver.stream(), driver.stream());
    let (there, back) = (event(driver), event(driver));
    ok!(driver, cuStreamBeginCapture_v2(u64, u32), stream, 2);
    ok!(driver, cuMemsetD8Async(u64, u8, usize, u64), values[0], 5, 4, stream);
    ok!(driver, cuEventRecord(u64, u64), there, stream);
    ok!(driver, cuStreamWaitEvent(u64, u64, u32), other, there, 0);
    ok!(driver, cuMemcpyDtoDAsync_v2(u64, u64, usize, u64), values[1], values[0], 4, other);
    let mut state = 9_u32;
    ok!(driver, cuStreamIsCapturing(u64, *mut u32), other, &mut state);
    assert_eq!(state, 1);
    if join {
        ok!(driver, cuEventRecord(u64, u64), back, other);
        ok!(driver, cuStreamWaitEvent(u64, u64, u32), stream, back, 0);
    }
    let mut graph = 0_u64;
    let code = call!(driver, cuStreamEndCapture(u64, *mut u64), stream, &mut graph);
    ok!(driver, cuStreamIsCapturing(u64, *mut u32), other, &mut state);
    assert_eq!(state, 0);
    (code, graph)
}

#[test]
fn a_capture_takes_in_streams_that_join() {
    let driver = Driver::start();
    let values = [driver.allocate(4), driver.allocate(4)];
    for value in values {
        driver.write(value, &[0_u32]);
    }
    let (code, graph) = fork(&driver, true, values);
    assert_eq!(code, 0);
    assert_eq!(driver.read::<u32>(values[1], 1), [0]);
    let (mut executable, mut nodes) = (0_u64, 0_usize);
    ok!(
        driver,
        cuGraphGetNodes(u64, *mut u64, *mut usize),
        graph,
        std::ptr::null_mut(),
        &mut nodes
    );
    assert_eq!(nodes, 2);
    ok!(driver, cuGraphInstantiateWithFlags(*mut u64, u64, u64), &mut executable, graph, 0);
    let stream = driver.stream();
    ok!(driver, cuGraphLaunch(u64, u64), executable, stream);
    driver.finish(stream);
    assert_eq!(driver.read::<u32>(values[1], 1), [0x0505_0505]);
    assert_eq!(fork(&driver, false, values).0, 904);
}

/// As CUDA's guide has it: references of an executable graph that is destroyed are kept until its execution is over.
#[test]
fn what_a_graph_keeps_stays_while_a_replay_is_under_way() {
    extern "C" fn gone(told: *mut c_void) {
        // SAFETY: the box that was given away below, once.
        let told = unsafe { Box::from_raw(told.cast::<Sender<()>>()) };
        told.send(()).expect("somebody listens");
    }
    let driver = Driver::start();
    let stream = driver.stream();
    let (tell, told) = channel::<()>();
    let (mut object, mut graph, mut executable) = (0, 0, 0);
    let value = driver.allocate(4);
    ok!(
        driver,
        cuUserObjectCreate(*mut u64, *mut c_void, extern "C" fn(*mut c_void), u32, u32),
        &mut object,
        Box::into_raw(Box::new(tell)).cast(),
        gone,
        1,
        1
    );
    ok!(driver, cuStreamBeginCapture_v2(u64, u32), stream, 2);
    ok!(driver, cuMemsetD8Async(u64, u8, usize, u64), value, 1, 4, stream);
    ok!(driver, cuStreamEndCapture(u64, *mut u64), stream, &mut graph);
    ok!(driver, cuGraphRetainUserObject(u64, u64, u32, u32), graph, object, 1, 1);
    ok!(driver, cuGraphInstantiateWithFlags(*mut u64, u64, u64), &mut executable, graph, 0);
    ok!(driver, cuGraphDestroy(u64), graph);
    let gate = hold(&driver, stream);
    ok!(driver, cuGraphLaunch(u64, u64), executable, stream);
    ok!(driver, cuGraphExecDestroy(u64), executable);
    assert_eq!(told.try_recv(), Err(TryRecvError::Empty));
    gate.send(()).expect("the stream waits");
    told.recv().expect("the replay lets go");
}

#[test]
fn a_capture_forbids_waiting_for_what_it_holds() {
    let driver = Driver::start();
    let stream = driver.stream();
    ok!(driver, cuStreamBeginCapture_v2(u64, u32), stream, 1);
    assert_eq!(call!(driver, cuStreamSynchronize(u64), stream), 900);
    let mut graph = 0_u64;
    assert_eq!(call!(driver, cuStreamEndCapture(u64, *mut u64), stream, &mut graph), 901);
    ok!(driver, cuStreamBeginCapture_v2(u64, u32), stream, 1);
    let mut address = 0_u64;
    assert_eq!(call!(driver, cuMemAlloc_v2(*mut u64, usize), &mut address, 4), 900);
    assert_eq!(call!(driver, cuStreamEndCapture(u64, *mut u64), stream, &mut graph), 901);
    ok!(driver, cuStreamBeginCapture_v2(u64, u32), stream, 1);
    let mut page = vec![0_u8; 4096];
    let code =
        call!(driver, cuMemHostRegister_v2(*mut u8, usize, u32), page.as_mut_ptr(), page.len(), 3);
    assert_eq!(code, 900);
    assert_eq!(call!(driver, cuStreamEndCapture(u64, *mut u64), stream, &mut graph), 901);
    // A thread that says it knows what it does may.
    ok!(driver, cuStreamBeginCapture_v2(u64, u32), stream, 1);
    let mut mode = 2_u32;
    ok!(driver, cuThreadExchangeStreamCaptureMode(*mut u32), &mut mode);
    assert_eq!(mode, 0);
    driver.allocate(4);
    ok!(driver, cuStreamEndCapture(u64, *mut u64), stream, &mut graph);
}

#[test]
fn a_capture_bars_the_legacy_stream_that_would_wait_for_it() {
    let driver = Driver::start();
    // A context of its own: the primary one's legacy stream serves the other tests meanwhile.
    let mut context = 0_u64;
    ok!(driver, cuCtxCreate_v2(*mut u64, u32, i32), &mut context, 0, 1);
    let (mut blocking, mut graph, mut state) = (0_u64, 0_u64, 9_u32);
    ok!(driver, cuStreamCreate(*mut u64, u32), &mut blocking, 0);
    let (free, value) = (driver.stream(), driver.allocate(4));
    // Whatever calls the capture allows otherwise, and not where no stream of the capture is a blocking one.
    ok!(driver, cuStreamBeginCapture_v2(u64, u32), free, 2);
    ok!(driver, cuMemsetD8Async(u64, u8, usize, u64), value, 1, 4, 0);
    ok!(driver, cuStreamIsCapturing(u64, *mut u32), 0, &mut state);
    assert_eq!(state, 0);
    ok!(driver, cuStreamEndCapture(u64, *mut u64), free, &mut graph);
    for (used, end) in [(false, 0), (true, 901)] {
        ok!(driver, cuStreamBeginCapture_v2(u64, u32), blocking, 2);
        for legacy in 0..=1_u64 {
            assert_eq!(call!(driver, cuStreamIsCapturing(u64, *mut u32), legacy, &mut state), 906);
        }
        ok!(driver, cuStreamIsCapturing(u64, *mut u32), blocking, &mut state);
        assert_eq!(state, 1, "the question leaves it");
        if used {
            let code = call!(driver, cuMemsetD8Async(u64, u8, usize, u64), value, 2, 4, 0);
            assert_eq!(code, 906);
        }
        let code = call!(driver, cuStreamEndCapture(u64, *mut u64), blocking, &mut graph);
        assert_eq!(code, end);
    }
    driver.finish(0);
    assert_eq!(driver.read::<u32>(value, 1), [0x0101_0101]);
}

#[test]
fn memory_is_registered_when_the_device_is_done() {
    let driver = Driver::start();
    // A device that no other test uses.
    driver.enter(5);
    let gate = hold(&driver, driver.stream());
    // SAFETY: the type is that of the fixture's function, which takes nothing.
    let waiting = unsafe { driver.get::<unsafe extern "C" fn() -> u64>("antiphon_gpusim_waiting") };
    std::thread::scope(|scope| {
        let register = scope.spawn(|| {
            driver.enter(5);
            let mut page = vec![0_u8; 4096];
            let (start, bytes) = (page.as_mut_ptr(), page.len());
            ok!(driver, cuMemHostRegister_v2(*mut u8, usize, u32), start, bytes, 3);
            ok!(driver, cuMemHostUnregister(*mut u8), start);
        });
        // SAFETY: as above.
        while unsafe { waiting() } == 0 {
            assert!(!register.is_finished(), "it waits for the stream");
            std::thread::yield_now();
        }
        gate.send(()).expect("the stream waits");
    });
}

#[test]
fn events_are_recorded_on_streams_of_their_context() {
    let driver = Driver::start();
    let (here, stream) = (event(&driver), driver.stream());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            driver.enter(1);
            let elsewhere = driver.stream();
            assert_eq!(call!(driver, cuEventRecord(u64, u64), here, elsewhere), 400);
            // To wait for one is allowed.
            ok!(driver, cuEventRecord(u64, u64), here, stream);
            ok!(driver, cuStreamWaitEvent(u64, u64, u32), elsewhere, here, 0);
            driver.finish(elsewhere);
        });
    });
}

#[test]
fn calls_without_a_context_are_refused() {
    let driver = Driver::start();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut address = 0_u64;
            assert_eq!(call!(driver, cuMemAlloc_v2(*mut u64, usize), &mut address, 4), 201);
            assert_eq!(call!(driver, cuCtxSetCurrent(u64), 77), 201);
        });
    });
    let mut text = std::ptr::null::<std::ffi::c_char>();
    ok!(driver, cuGetErrorName(i32, *mut *const std::ffi::c_char), 201, &mut text);
    // SAFETY: a text of the driver's, which ends with a zero.
    let name = unsafe { std::ffi::CStr::from_ptr(text) };
    assert_eq!(name, c"CUDA_ERROR_INVALID_CONTEXT");
}
