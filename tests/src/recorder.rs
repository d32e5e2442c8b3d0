//! An application that records streams into graphs by the driver's own calls, CUDA's or HIP's: both have the same ones under
//! names of their own.

use crate::simulated::Simulated;
use antiphon_hal::{Backend, Device, Stream};
use libloading::Library;
use std::ffi::OsStr;
use std::fmt;
use std::sync::Arc;

/// Rules of recording, by the drivers' numbers.
const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;

/// The names of the calls.
struct Names {
    init: &'static str,
    enter: fn(&Recorder, u32),
    stream: &'static str,
    finish: &'static str,
    begin: &'static str,
    end: &'static str,
    instantiate: &'static str,
    nodes: Option<&'static str>,
    replay: &'static str,
    destroy: [&'static str; 2],
}

const CUDA: Names = Names {
    init: "cuInit",
    enter: |recorder, device| {
        let mut context = 0u64;
        recorder.call("cuDevicePrimaryCtxRetain", (&raw mut context, device));
        recorder.call("cuCtxSetCurrent", (context,));
    },
    stream: "cuStreamCreate",
    finish: "cuStreamSynchronize",
    begin: "cuStreamBeginCapture_v2",
    end: "cuStreamEndCapture",
    instantiate: "cuGraphInstantiateWithFlags",
    nodes: Some("cuGraphGetNodes"),
    replay: "cuGraphLaunch",
    destroy: ["cuGraphExecDestroy", "cuGraphDestroy"],
};

const HIP: Names = Names {
    init: "hipInit",
    enter: |recorder, device| recorder.call("hipSetDevice", (device,)),
    stream: "hipStreamCreateWithFlags",
    finish: "hipStreamSynchronize",
    begin: "hipStreamBeginCapture",
    end: "hipStreamEndCapture",
    instantiate: "hipGraphInstantiateWithFlags",
    nodes: None,
    replay: "hipGraphLaunch",
    destroy: ["hipGraphExecDestroy", "hipGraphDestroy"],
};

/// The application. As with tests, a call that the driver refuses is a panic.
pub struct Recorder {
    driver: Library,
    names: &'static Names,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("driver", &self.driver).finish_non_exhaustive()
    }
}

/// A graph that was recorded, and its executable.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    graph: u64,
    executable: u64,
}

/// What a call takes.
trait Arguments {
    /// Calls `name` with them.
    fn pass(self, driver: &Library, name: &str) -> i32;
}

macro_rules! arguments {
    ($($value:ident: $kind:ident),+) => {
        impl<$($kind: Copy),+> Arguments for ($($kind,)+) {
            fn pass(self, driver: &Library, name: &str) -> i32 {
                let ($($value,)+) = self;
                // SAFETY: callers, all in this file, give arguments of the driver's types, and pointers that live for the
                // call.
                unsafe {
                    let call = driver.get::<unsafe extern "C" fn($($kind),+) -> i32>(name.as_bytes());
                    call.expect("the driver has the function")($($value),+)
                }
            }
        }
    };
}

arguments!(a: A);
arguments!(a: A, b: B);
arguments!(a: A, b: B, c: C);

impl Recorder {
    /// In a process with the simulated driver.
    pub fn new(simulated: &Simulated, backend: Backend) -> Self {
        Recorder::over(&simulated.driver, backend)
    }

    /// Over the driver of this name, which the device layer has loaded.
    pub fn over(driver: impl AsRef<OsStr>, backend: Backend) -> Self {
        // SAFETY: the library is there already, so that no constructor runs.
        let driver = unsafe { Library::new(driver.as_ref()) }.expect("the driver loads");
        let names = if backend == Backend::Rocm { &HIP } else { &CUDA };
        let recorder = Recorder { driver, names };
        recorder.call(names.init, (0u32,));
        recorder
    }

    /// Makes device 0 current for the calling thread, as the run-time library does.
    pub fn enter(&self) {
        self.enter_device(0);
    }

    /// Makes a device current likewise.
    pub fn enter_device(&self, device: u32) {
        (self.names.enter)(self, device);
    }

    /// A stream that does not wait for the default one.
    pub fn stream(&self) -> u64 {
        let mut stream = 0u64;
        self.call(self.names.stream, (&raw mut stream, 1u32));
        stream
    }

    /// A stream that was made on this device, for calls of the driver and as what the device layer takes. The device is the
    /// calling thread's current one afterwards.
    ///
    /// # Panics
    /// If the device does not take it.
    pub fn adopt(&self, device: &Arc<dyn Device>) -> (u64, Arc<dyn Stream>) {
        self.enter_device(device.index());
        let raw = self.stream();
        let place = std::ptr::without_provenance_mut(raw as usize);
        // SAFETY: the stream was made just now, and nobody destroys it.
        let stream = unsafe { device.adopt_stream(place) }.expect("a stream of the device's");
        assert_eq!(stream.native().map(|at| at.addr() as u64), Some(raw));
        (raw, stream)
    }

    /// Waits for a stream.
    pub fn finish(&self, stream: u64) {
        self.call(self.names.finish, (stream,));
    }

    /// Records what `work` gives to a stream, by the strictest rules: no thread of the process, but for those that have lifted
    /// them for themselves, does anything meanwhile that a recording forbids, such as making another graph of a recording.
    pub fn record(&self, stream: u64, work: impl FnOnce()) -> Recorded {
        self.record_by(GLOBAL, stream, work)
    }

    /// The same by rules for the calling thread alone, as programs do of which several threads record.
    pub fn record_on_thread(&self, stream: u64, work: impl FnOnce()) -> Recorded {
        self.record_by(THREAD_LOCAL, stream, work)
    }

    fn record_by(&self, mode: u32, stream: u64, work: impl FnOnce()) -> Recorded {
        self.call(self.names.begin, (stream, mode));
        work();
        let (mut graph, mut executable) = (0u64, 0u64);
        self.call(self.names.end, (stream, &raw mut graph));
        self.call(self.names.instantiate, (&raw mut executable, graph, 0u64));
        Recorded { graph, executable }
    }

    /// Nodes of what was recorded; `None` of HIP, whose simulated driver does not tell.
    pub fn nodes(&self, recorded: Recorded) -> Option<usize> {
        let mut count = 0usize;
        let name = self.names.nodes?;
        self.call(name, (recorded.graph, std::ptr::null_mut::<u64>(), &raw mut count));
        Some(count)
    }

    /// Launches what was recorded on a stream.
    pub fn replay(&self, recorded: Recorded, stream: u64) {
        self.call(self.names.replay, (recorded.executable, stream));
    }

    /// Destroys what was recorded.
    pub fn destroy(&self, recorded: Recorded) {
        self.call(self.names.destroy[0], (recorded.executable,));
        self.call(self.names.destroy[1], (recorded.graph,));
    }

    fn call(&self, name: &str, arguments: impl Arguments) {
        let code = arguments.pass(&self.driver, name);
        assert_eq!(code, 0, "{name} answers {code}");
    }
}
