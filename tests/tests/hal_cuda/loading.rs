//! Memory that is mapped while a thread of the application loads code: CUDA's driver lets that wait for kernels, and keeps everybody
//! from the context meanwhile; such a kernel may wait for the very memory.

use super::{on_simulator, open};
use antiphon_hal::{Device, Kernel, KernelCode, KernelSource, LaunchShape, Memory, Stream};
use antiphon_tests::application::{Application, CHUNK};
use antiphon_tests::hal::support::Access;
use antiphon_tests::{name_of, until};
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

/// A thread that loads code, and so waits for a kernel, which waits until it may end; nobody else gets at the context meanwhile.
struct Loading {
    gate: Arc<dyn Memory>,
    /// To unload it takes the context.
    _kernel: Arc<dyn Kernel>,
    stream: Arc<dyn Stream>,
    loaded: Receiver<Arc<dyn Kernel>>,
}

impl Loading {
    fn begin(application: &Application, device: &Arc<dyn Device>) -> Self {
        let code = device.compile(SOURCE, &[]).unwrap();
        let (spin, stream) = (load(device, &code, "spin"), device.stream().unwrap());
        let gate = device.pinned(8).unwrap();
        let address = gate.address();
        let arguments = [(&raw const address).cast::<c_void>()];
        // SAFETY: the argument is copied, and the word is mapped until the kernel, which `end` waits for, is over.
        unsafe { spin.launch(&*stream, SHAPE, &arguments) }.unwrap();
        let device = Arc::clone(device);
        let loaded = aside(move || load(&device, &code, "late"));
        until("the load waits for the kernel", || application.waiting() == 1);
        Loading { gate, _kernel: spin, stream, loaded }
    }

    fn let_go(&self) {
        Access::pinned(&self.gate, 1)[0].store(1, Ordering::Release);
    }

    /// Lets the kernel end, and the load with it, which waited until now.
    fn end(self, application: &Application) {
        let waits = application.waiting();
        self.let_go();
        self.loaded.recv_timeout(PATIENCE).expect("the load ends");
        self.stream.synchronize().unwrap();
        assert_eq!(waits, 1, "the load still waited");
    }
}

impl Drop for Loading {
    /// A test that fails ends, too.
    fn drop(&mut self) {
        self.let_go();
    }
}

/// The environment of a driver that keeps everybody from the context while code is loaded.
const LOADS: [(&str, &str); 1] = [("ANTIPHON_GPUSIM_WAITS", "load")];

#[test]
fn memory_is_mapped_while_another_thread_loads_code() {
    let test = name_of(memory_is_mapped_while_another_thread_loads_code);
    let Some(simulated) = on_simulator(test, &LOADS) else { return };
    let application = Application::new(&simulated);
    let (device, other) = (open(0), open(1));
    let access = Access::new(&device);
    let segment = application.segment(0, 2, true);
    application.write(segment, &[7]);
    let place = std::ptr::with_exposed_provenance(segment as usize);
    let chunks = device.locate(place, 2 * CHUNK as u64).unwrap().0.export_parts().unwrap();
    let own = device.allocate(CHUNK as u64).unwrap();
    let group = other.multicast(2, CHUNK as u64).unwrap().export().unwrap();

    let loading = Loading::begin(&application, &device);
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
    loading.end(&application);
    let (chunks, shared, _bound) = mapped.expect("memory is mapped");
    event.recv_timeout(PATIENCE).expect("the context is free");
    assert_eq!(access.load(&chunks, 0), 7);
    assert_eq!(shared.address(), own.address());
}

#[test]
fn memory_of_cudamalloc_is_mapped_in_its_process_while_another_thread_loads_code() {
    let test =
        name_of(memory_of_cudamalloc_is_mapped_in_its_process_while_another_thread_loads_code);
    let Some(simulated) = on_simulator(test, &LOADS) else { return };
    let application = Application::new(&simulated);
    let (device, other) = (open(0), open(1));
    // As ranks do when they meet.
    other.enable_peer(0).unwrap();
    let base = application.allocate(CHUNK);
    application.write(base, &[7]);
    let place = std::ptr::with_exposed_provenance(base as usize);
    let memory = device.locate(place, CHUNK as u64).unwrap().0;
    let handle = memory.export().unwrap();

    let loading = Loading::begin(&application, &device);
    let mapped = aside({
        let (device, other) = (Arc::clone(&device), Arc::clone(&other));
        move || [&device, &other].map(|device| device.import(&handle).unwrap())
    });
    let mapped = mapped.recv_timeout(PATIENCE);
    loading.end(&application);
    let [here, there] = mapped.expect("memory is mapped");
    assert_eq!(here.id(), memory.id());
    assert_eq!((there.address(), there.len()), (memory.address(), CHUNK as u64));
    assert_eq!(Access::new(&other).load(&there, 0), 7);
}

/// The one that asks has found that its context is current, and waits inside of the driver.
#[test]
fn memory_is_mapped_while_another_thread_asks_what_is_at_an_address() {
    let test = name_of(memory_is_mapped_while_another_thread_asks_what_is_at_an_address);
    let Some(simulated) = on_simulator(test, &LOADS) else { return };
    let application = Application::new(&simulated);
    let device = open(0);
    let base = application.allocate(CHUNK);
    let segment = application.segment(0, 2, true);
    let find = |device: &Arc<dyn Device>, address: u64, bytes: usize| {
        let place = std::ptr::with_exposed_provenance(address as usize);
        device.locate(place, bytes as u64).unwrap().0
    };
    let chunks = find(&device, segment, 2 * CHUNK).export_parts().unwrap();
    let (go, may) = channel::<()>();
    let (sender, ready) = channel();
    let asked = aside({
        let device = Arc::clone(&device);
        move || {
            device.make_current().unwrap();
            sender.send(()).unwrap();
            may.recv().unwrap();
            find(&device, base, CHUNK).address().addr() as u64
        }
    });
    ready.recv().unwrap();

    let loading = Loading::begin(&application, &device);
    go.send(()).unwrap();
    assert!(asked.recv_timeout(MOMENT).is_err(), "the driver answers nobody");
    let mapped = aside(move || device.import_parts(&chunks).unwrap());
    let mapped = mapped.recv_timeout(PATIENCE);
    loading.end(&application);
    mapped.expect("memory is mapped");
    assert_eq!(asked.recv_timeout(PATIENCE), Ok(base));
}

/// No driver is known to want a context for these calls, and none says that it does not.
#[test]
fn a_driver_that_wants_a_context_for_mapping_gets_it() {
    let test = name_of(a_driver_that_wants_a_context_for_mapping_gets_it);
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
