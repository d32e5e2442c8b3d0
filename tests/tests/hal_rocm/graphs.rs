//! Streams that the application records into graphs: what becomes part of them, what does not, and what lives as long.

use super::application::{Application, CHUNK};
use super::{on_simulator, open};
use antiphon_hal::{Device, HalError, KernelCode, KernelSource, LaunchShape, Stream};
use antiphon_tests::hal::support::Access;
use antiphon_tests::{name_of, until};
use std::ffi::c_void;
use std::sync::Arc;

const SOURCE: &str = r#"
extern "C" __global__ void scale(unsigned long long *data, unsigned long long by) {
    data[(unsigned long long)blockIdx.x * blockDim.x + threadIdx.x] *= by;
}
"#;
const SHAPE: LaunchShape = LaunchShape { blocks: 4, threads: 64, shared_bytes: 0 };
const COUNT: usize = 256;
const BYTES: u64 = COUNT as u64 * 8;

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
    let source = KernelSource { entry: "scale", code: KernelCode::Source(SOURCE), options: &[] };
    let (access, kernel) = (Access::new(&device), device.load(source).unwrap());
    let [a, b] = [(); 2].map(|()| device.allocate(BYTES).unwrap());
    let raw = application.stream();
    let stream = adopted(&device, raw);
    let [inside, outside] = [(); 2].map(|()| device.event().unwrap());
    device.stream().unwrap().record(&*outside).unwrap();
    let kept = Arc::new(());
    refused(stream.keep(Arc::clone(&kept) as _));

    application.begin(raw);
    assert!(stream.is_capturing().unwrap());
    // SAFETY: the memories are distinct, and live until all replays are done; so do address and factor, which are copied.
    unsafe {
        let _ = stream.copy(b.address(), a.address(), BYTES).unwrap();
        let (data, by) = (b.address(), 3u64);
        let arguments = [(&raw const data).cast::<c_void>(), (&raw const by).cast()];
        kernel.launch_cooperative(&*stream, SHAPE, &arguments).unwrap();
    }
    stream.record(&*inside).unwrap();
    stream.keep(Arc::clone(&kept) as _).unwrap();
    // None of these may end the recording, which the calls of the driver below them would.
    assert!(!stream.query().unwrap() && !inside.query().unwrap());
    refused(stream.synchronize());
    refused(stream.wait(&*outside));
    refused(inside.synchronize());
    let during = device.allocate(CHUNK as u64).unwrap();
    let mapped = device.import(&during.export().unwrap()).unwrap();
    assert_eq!(access.load(&mapped, 5), 0);
    drop((during, mapped, device.pinned(64).unwrap(), device.event().unwrap()));
    let graph = application.end(raw);
    assert!(!stream.is_capturing().unwrap());

    let executable = application.instantiate(graph);
    for round in 1..=3u64 {
        let values: Vec<u64> = (0..COUNT as u64).map(|at| at + round).collect();
        access.write(&a, &values);
        application.replay(executable, raw);
        stream.synchronize().unwrap();
        let expected: Vec<u64> = values.iter().map(|value| value * 3).collect();
        assert_eq!(access.read(&b, COUNT), expected, "round {round}");
    }
    assert_eq!(Arc::strong_count(&kept), 2);
    application.destroy(graph, executable);
    until("the graph's object", || {
        drop(device.take_abandoned());
        Arc::strong_count(&kept) == 1
    });
}

/// HIP looks at the stream of an event that it is asked about, and ends a recording that has begun there.
#[test]
fn events_from_before_a_recording_do_not_end_it() {
    let test = name_of(events_from_before_a_recording_do_not_end_it);
    let Some(simulated) = on_simulator(test, &[]) else { return };
    let application = Application::new(&simulated);
    let device = open(0);
    let raw = application.stream();
    let (stream, event) = (adopted(&device, raw), device.event().unwrap());
    stream.record(&*event).unwrap();
    event.synchronize().unwrap();
    assert!(event.query().unwrap());
    application.begin(raw);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(!event.query().unwrap(), "nothing is known of it");
            refused(event.synchronize());
        });
    });
    application.end(raw);
    assert!(event.query().unwrap());
    event.synchronize().unwrap();
}

#[test]
fn streams_of_other_devices_are_not_adopted() {
    let test = name_of(streams_of_other_devices_are_not_adopted);
    let Some(simulated) = on_simulator(test, &[]) else { return };
    let application = Application::new(&simulated);
    application.set_device(1);
    let raw = std::ptr::without_provenance_mut(application.stream() as usize);
    // SAFETY: the application made the stream just now, and keeps it for the rest of the process.
    let (other, own) = unsafe { (open(0).adopt_stream(raw), open(1).adopt_stream(raw)) };
    let error = other.unwrap_err().to_string();
    assert!(error.contains("device 1"), "{error}");
    own.unwrap().synchronize().unwrap();
}
