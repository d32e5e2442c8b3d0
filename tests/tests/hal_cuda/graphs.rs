//! Streams that the application records into graphs: what becomes part of them, what does not, and what lives as long.

use super::{on_simulator, open};
use antiphon_hal::{Device, HalError, Kernel, KernelCode, KernelSource, LaunchShape, Stream};
use antiphon_tests::application::{Application, CHUNK};
use antiphon_tests::hal::support::Access;
use antiphon_tests::{name_of, until};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const SOURCE: &str = r#"
extern "C" __global__ void scale(unsigned long long *data, unsigned long long by) {
    data[(unsigned long long)blockIdx.x * blockDim.x + threadIdx.x] *= by;
}
"#;
const SHAPE: LaunchShape = LaunchShape { blocks: 4, threads: 64, shared_bytes: 0 };
const COUNT: usize = 256;
const BYTES: u64 = COUNT as u64 * 8;

fn scale(device: &Arc<dyn Device>) -> Arc<dyn Kernel> {
    let source = KernelSource { entry: "scale", code: KernelCode::Source(SOURCE), options: &[] };
    device.load(source).unwrap()
}

/// The application's stream, as the device's.
fn adopted(device: &Arc<dyn Device>, raw: u64) -> Arc<dyn Stream> {
    // SAFETY: the application made the stream just now, and keeps it for the rest of the process.
    unsafe { device.adopt_stream(std::ptr::without_provenance_mut(raw as usize)) }.unwrap()
}

/// An error that says what is being recorded.
fn refused(result: Result<impl std::fmt::Debug, HalError>) {
    match result {
        Err(error @ HalError::Invalid { .. }) => {
            assert!(error.to_string().contains("record"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn work_of_a_recorded_stream_is_done_by_replays() {
    let test = name_of(work_of_a_recorded_stream_is_done_by_replays);
    let Some(simulated) = on_simulator(test, &[]) else { return };
    let application = Application::new(&simulated);
    let device = open(0);
    let (access, kernel) = (Access::new(&device), scale(&device));
    let [a, b, c] = [(); 3].map(|()| device.allocate(BYTES).unwrap());
    let (raw, other) = (application.stream(), device.stream().unwrap());
    let stream = adopted(&device, raw);
    let [fork, join, outside] = [(); 3].map(|()| device.event().unwrap());
    other.record(&*outside).unwrap();
    assert!(!stream.is_capturing().unwrap());

    application.begin(raw);
    assert!(stream.is_capturing().unwrap() && !other.is_capturing().unwrap());
    // SAFETY: the memories are distinct, and live until all replays are done; so do address and factor, which are copied.
    unsafe {
        let _ = stream.copy(b.address(), a.address(), BYTES).unwrap();
        let (data, by) = (b.address(), 3u64);
        let arguments = [(&raw const data).cast::<c_void>(), (&raw const by).cast()];
        kernel.launch_cooperative(&*stream, SHAPE, &arguments).unwrap();
        stream.record(&*fork).unwrap();
        other.wait(&*fork).unwrap();
        assert!(other.is_capturing().unwrap(), "it takes part now");
        let _ = other.copy(c.address(), b.address(), BYTES).unwrap();
        other.record(&*join).unwrap();
        stream.wait(&*join).unwrap();
    }
    // None of these may end the recording, which the calls of the driver below them would.
    for stream in [&stream, &other] {
        assert!(!stream.query().unwrap());
        refused(stream.synchronize());
        refused(stream.wait(&*outside));
    }
    for event in [&fork, &join] {
        assert!(!event.query().unwrap());
        refused(event.synchronize());
    }
    let during = device.allocate(CHUNK as u64).unwrap();
    let mapped = device.import(&during.export().unwrap()).unwrap();
    let pinned = device.pinned(64).unwrap();
    assert_eq!(access.load(&mapped, 5), 0);
    drop((during, mapped, pinned, scale(&device), device.event().unwrap()));
    let graph = application.end(raw);
    assert!(!stream.is_capturing().unwrap() && !other.is_capturing().unwrap());

    let executable = application.instantiate(graph);
    for round in 1..=3u64 {
        let values: Vec<u64> = (0..COUNT as u64).map(|at| at + round).collect();
        access.write(&a, &values);
        application.replay(executable, raw);
        stream.synchronize().unwrap();
        let expected: Vec<u64> = values.iter().map(|value| value * 3).collect();
        assert_eq!(access.read(&b, COUNT), expected, "round {round}");
        assert_eq!(access.read(&c, COUNT), expected, "round {round}");
    }
    // The event stands for work of a stream again once it is recorded there.
    stream.record(&*fork).unwrap();
    fork.synchronize().unwrap();
    assert!(fork.query().unwrap());
    other.wait(&*fork).unwrap();
    application.destroy(graph, executable);
}

#[test]
fn a_default_stream_that_a_recording_covers_is_left_alone() {
    let test = name_of(a_default_stream_that_a_recording_covers_is_left_alone);
    let Some(simulated) = on_simulator(test, &[]) else { return };
    let application = Application::new(&simulated);
    let device = open(0);
    let (default, raw) = (adopted(&device, 0), application.blocking_stream());
    let before = device.event().unwrap();
    default.record(&*before).unwrap();
    application.begin(raw);
    // Whoever would launch there is told so first.
    let error = default.is_capturing().unwrap_err().to_string();
    assert!(error.contains("CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"), "{error}");
    assert!(!default.query().unwrap());
    refused(default.synchronize());
    refused(default.wait(&*before));
    let graph = application.end(raw);
    application.destroy(graph, application.instantiate(graph));
    assert!(!default.is_capturing().unwrap());
    default.synchronize().unwrap();
}

#[test]
fn recording_elsewhere_does_not_hinder_a_device() {
    let test = name_of(recording_elsewhere_does_not_hinder_a_device);
    let Some(simulated) = on_simulator(test, &[]) else { return };
    let application = Application::new(&simulated);
    let raw = application.stream();
    application.begin(raw);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let device = open(0);
            let memory = device.allocate(CHUNK as u64).unwrap();
            let mapped = device.import(&memory.export().unwrap()).unwrap();
            let access = Access::new(&device);
            access.store(&mapped, 1, 9);
            assert_eq!(access.load(&memory, 1), 9);
            device.pinned(64).unwrap();
            device.pinned(16 << 20).unwrap();
            let group = device.multicast(1, CHUNK as u64).unwrap();
            drop(group.bind(&memory).unwrap());
            group.export().unwrap();
            let (stream, event) = (device.stream().unwrap(), device.event().unwrap());
            stream.record(&*event).unwrap();
            event.synchronize().unwrap();
            // An event comes before its stream knows that nothing follows it.
            stream.synchronize().unwrap();
            assert!(stream.query().unwrap() && event.query().unwrap());
            // The device keeps no memory that nobody has.
            drop((memory, mapped, access, group));
        });
    });
    application.end(raw);
}

#[test]
fn graphs_keep_what_they_use() {
    struct Counted(Arc<AtomicU32>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }
    let Some(simulated) = on_simulator(name_of(graphs_keep_what_they_use), &[]) else { return };
    let application = Application::new(&simulated);
    let device = open(0);
    let (raw, gone) = (application.stream(), Arc::new(AtomicU32::new(0)));
    let stream = adopted(&device, raw);
    let counted = || Arc::new(Counted(Arc::clone(&gone)));
    refused(stream.keep(counted()));
    assert_eq!(gone.load(Ordering::Acquire), 1);

    application.begin(raw);
    stream.keep(counted()).unwrap();
    stream.keep(counted()).unwrap();
    // Memory among it: to let go of it calls the driver.
    stream.keep(Arc::new(device.allocate(CHUNK as u64).unwrap())).unwrap();
    let graph = application.end(raw);
    let executable = application.instantiate(graph);
    application.replay(executable, raw);
    application.finish(raw);
    drop(device.take_abandoned());
    assert_eq!(gone.load(Ordering::Acquire), 1, "the graph has both");
    application.destroy(graph, executable);
    until("both to be told of", || {
        drop(device.take_abandoned());
        gone.load(Ordering::Acquire) == 3
    });
}
