//! Memory that is mapped while a thread of the application loads code: CUDA's driver lets that wait for kernels, and keeps everybody
//! from the context meanwhile; such a kernel may wait for the very memory.

use super::{on_simulator, open};
use antiphon_hal::{Device, Kernel, KernelCode, KernelSource, LaunchShape};
use antiphon_tests::application::{Application, CHUNK};
use antiphon_tests::hal::support::{Access, until};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

const SOURCE: &str = r#"
extern "C" __global__ void spin(volatile unsigned long long *word) {
    while (*word == 0) { __nanosleep(1000); }
}
extern "C" __global__ void late() {}
"#;
const SHAPE: LaunchShape = LaunchShape { blocks: 1, threads: 1, shared_bytes: 0 };

/// How long a call may take that waits for nobody.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long one is looked at that is to wait.
const MOMENT: Duration = Duration::from_millis(100);

fn load(device: &Arc<dyn Device>, code: &[u8], entry: &str) -> Arc<dyn Kernel> {
    device.load(KernelSource { entry, code: KernelCode::Binary(code), options: &[] }).unwrap()
}

/// What another thread makes.
fn aside<T: Send + 'static>(make: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = channel();
    thread::spawn(move || sender.send(make()));
    receiver
}

#[test]
fn memory_is_mapped_while_another_thread_loads_code() {
    let test = "loading::memory_is_mapped_while_another_thread_loads_code";
    let Some(simulated) = on_simulator(test, &[("ANTIPHON_GPUSIM_WAITS", "load")]) else { return };
    let application = Application::new(&simulated);
    let (device, other) = (open(0), open(1));
    let access = Access::new(&device);
    let segment = application.segment(0, 2, true);
    application.write(segment, &[7]);
    let place = std::ptr::with_exposed_provenance(segment as usize);
    let chunks = device.locate(place, 2 * CHUNK as u64).unwrap().0.export_parts().unwrap();
    let own = device.allocate(CHUNK as u64).unwrap();
    let group = other.multicast(2, CHUNK as u64).unwrap().export().unwrap();

    let code = device.compile(SOURCE, &[]).unwrap();
    let (spin, stream) = (load(&device, &code, "spin"), device.stream().unwrap());
    let gate = device.pinned(8).unwrap();
    let word = &Access::pinned(&gate, 1)[0];
    let address = gate.address();
    // SAFETY: the argument is copied, and the word is mapped until the kernel, which the end of this function waits for, is over.
    unsafe { spin.launch(&*stream, SHAPE, &[(&raw const address).cast::<c_void>()]) }.unwrap();
    let loaded = aside({
        let device = Arc::clone(&device);
        move || load(&device, &code, "late")
    });
    until("the load waits for the kernel", || application.waiting() == 1);
    // Who needs the context waits as well,
    let event = aside({
        let device = Arc::clone(&device);
        move || device.event().unwrap()
    });
    assert!(event.recv_timeout(MOMENT).is_err());
    // but not who maps memory: a second time, for another device, and for a group.
    let mapped = aside({
        let (device, own) = (Arc::clone(&device), Arc::clone(&own));
        move || {
            let chunks = device.import_parts(&chunks).unwrap();
            let shared = other.import(&own.export().unwrap()).unwrap();
            let group = device.import_multicast(&group).unwrap();
            let bound = group.bind(&own).unwrap();
            (chunks, shared, bound)
        }
    });
    let mapped = mapped.recv_timeout(PATIENCE);
    let waits = application.waiting();
    word.store(1, Ordering::Release);
    let (chunks, shared, _bound) = mapped.expect("memory is mapped");
    assert_eq!(waits, 1, "the load still waits");
    loaded.recv_timeout(PATIENCE).expect("the load ends");
    event.recv_timeout(PATIENCE).expect("the context is free");
    stream.synchronize().unwrap();
    assert_eq!(access.load(&chunks, 0), 7);
    assert_eq!(shared.address(), own.address());
}

/// No driver is known to want a context for these calls, and none says that it does not.
#[test]
fn a_driver_that_wants_a_context_for_mapping_gets_it() {
    let test = "loading::a_driver_that_wants_a_context_for_mapping_gets_it";
    let wants = [("ANTIPHON_GPUSIM_WANTS", "context")];
    let Some(simulated) = on_simulator(test, &wants) else { return };
    let application = Application::new(&simulated);
    let device = open(0);
    let segment = application.segment(0, 2, true);
    application.write(segment, &[7]);
    let place = std::ptr::with_exposed_provenance(segment as usize);
    let chunks = device.locate(place, 2 * CHUNK as u64).unwrap().0.export_parts().unwrap();
    let used = application.used();
    // A thread that has no context.
    let mapped = aside(move || {
        let chunks = device.import_parts(&chunks).unwrap();
        assert_eq!(Access::new(&device).load(&chunks, 0), 7);
        let own = device.allocate_for_all(CHUNK as u64).unwrap();
        let shared = open(1).import(&own.export().unwrap()).unwrap();
        let bound = device.multicast(1, CHUNK as u64).unwrap().bind(&own).unwrap();
        let address = own.address();
        drop((chunks, own, shared, bound));
        assert!(device.find(address, 1).is_none());
    });
    mapped.recv_timeout(PATIENCE).expect("memory is mapped, and let go of");
    assert_eq!(application.used(), used, "all that was allocated is free again");
}
