//! The application's side: memory, streams and graphs made by HIP's own calls, as PyTorch makes them.

use antiphon_tests::simulated::Simulated;
use libloading::Library;
use std::ffi::c_void;

/// Bytes of a piece of physical memory: the driver's unit.
pub const CHUNK: usize = 2 << 20;

/// HIP, as an application calls it.
pub struct Application(Library);

#[repr(C)]
struct Location {
    kind: u32,
    id: i32,
}

/// `hipMemAllocationProp`.
#[repr(C)]
struct Properties {
    kind: u32,
    handle_types: u32,
    location: Location,
    rest: [u64; 2],
}

/// `hipMemAccessDesc`.
#[repr(C)]
struct Access {
    location: Location,
    flags: u32,
}

/// Calls a function of HIP; gives its status.
macro_rules! call {
    ($application:expr, $name:ident($($kind:ty),* $(,)?), $($argument:expr),* $(,)?) => {{
        // SAFETY: the types are those of HIP's interface, and pointers live for the call.
        unsafe { $application.get::<unsafe extern "C" fn($($kind),*) -> i32>(stringify!($name))($($argument),*) }
    }};
}

/// Calls a function of HIP and panics unless it succeeds.
macro_rules! ok {
    ($application:expr, $name:ident($($kind:ty),* $(,)?), $($argument:expr),* $(,)?) => {{
        let code = call!($application, $name($($kind),*), $($argument),*);
        assert_eq!(code, 0, "{} answers {code}", stringify!($name));
    }};
}

impl Application {
    /// In a process with the simulated driver.
    pub fn new(simulated: &Simulated) -> Self {
        // SAFETY: the library has no constructors, and is the one that the device layer loads.
        let library = unsafe { Library::new(&simulated.driver) }.expect("the driver loads");
        let application = Application(library);
        ok!(application, hipInit(u32), 0);
        application
    }

    /// Whether the driver exports `name`.
    pub fn has(&self, name: &str) -> bool {
        // SAFETY: nothing is called.
        unsafe { self.0.get::<*const c_void>(name.as_bytes()) }.is_ok()
    }

    /// # Safety
    ///
    /// `T` must be the type of the function.
    unsafe fn get<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the caller vouches for the type.
        *unsafe { self.0.get::<T>(name.as_bytes()) }.expect("the driver has the function")
    }

    pub fn set_device(&self, device: i32) {
        ok!(self, hipSetDevice(i32), device);
    }

    pub fn device(&self) -> i32 {
        let mut device = -1;
        ok!(self, hipGetDevice(*mut i32), &mut device);
        device
    }

    /// Makes a call that fails.
    pub fn fail(&self) {
        assert_ne!(call!(self, hipSetDevice(i32), 1000), 0);
    }

    /// The last error of the thread, which is forgotten.
    pub fn last_error(&self) -> i32 {
        call!(self, hipGetLastError(),)
    }

    /// Memory of the current device.
    pub fn allocate(&self, bytes: usize) -> u64 {
        let mut address = 0;
        ok!(self, hipMalloc(*mut u64, usize), &mut address, bytes);
        address
    }

    pub fn free(&self, address: u64) {
        ok!(self, hipFree(u64), address);
    }

    /// As PyTorch's expandable segments: a range of addresses with `chunks` pieces of physical memory of `device`, which
    /// can be exported as file descriptors where `shareable`.
    pub fn segment(&self, device: i32, chunks: usize, shareable: bool) -> u64 {
        let mut base = 0u64;
        let place = || Location { kind: 1, id: device };
        let properties = Properties {
            kind: 1,
            handle_types: u32::from(shareable),
            location: place(),
            rest: [0; 2],
        };
        let bytes = chunks * CHUNK;
        ok!(
            self,
            hipMemAddressReserve(*mut u64, usize, usize, u64, u64),
            &mut base,
            bytes,
            0,
            0,
            0
        );
        for chunk in 0..chunks {
            let mut handle = 0u64;
            ok!(
                self,
                hipMemCreate(*mut u64, usize, *const Properties, u64),
                &mut handle,
                CHUNK,
                &properties,
                0
            );
            let address = base + (chunk * CHUNK) as u64;
            ok!(self, hipMemMap(u64, usize, usize, u64, u64), address, CHUNK, 0, handle, 0);
            ok!(self, hipMemRelease(u64), handle);
        }
        let access = Access { location: place(), flags: 3 };
        ok!(self, hipMemSetAccess(u64, usize, *const Access, usize), base, bytes, &access, 1);
        base
    }

    /// Takes the piece of memory at the place `chunk` of a segment away.
    pub fn unmap_chunk(&self, base: u64, chunk: usize) {
        ok!(self, hipMemUnmap(u64, usize), base + (chunk * CHUNK) as u64, CHUNK);
    }

    pub fn write(&self, to: u64, values: &[u64]) {
        let bytes = size_of_val(values);
        ok!(self, hipMemcpy(u64, *const u64, usize, u32), to, values.as_ptr(), bytes, 4);
    }

    pub fn read(&self, from: u64, count: usize) -> Vec<u64> {
        let mut values = vec![0; count];
        ok!(self, hipMemcpy(*mut u64, u64, usize, u32), values.as_mut_ptr(), from, count * 8, 4);
        values
    }

    /// A stream of the current device that does not wait for the default one.
    pub fn stream(&self) -> u64 {
        let mut stream = 0;
        ok!(self, hipStreamCreateWithFlags(*mut u64, u32), &mut stream, 1);
        stream
    }

    /// Begins to record a stream, by the strictest rules.
    pub fn begin(&self, stream: u64) {
        ok!(self, hipStreamBeginCapture(u64, u32), stream, 0);
    }

    /// Ends the recording; the graph.
    pub fn end(&self, stream: u64) -> u64 {
        let mut graph = 0;
        ok!(self, hipStreamEndCapture(u64, *mut u64), stream, &mut graph);
        graph
    }

    /// An executable of a graph.
    pub fn instantiate(&self, graph: u64) -> u64 {
        let mut executable = 0;
        ok!(self, hipGraphInstantiateWithFlags(*mut u64, u64, u64), &mut executable, graph, 0);
        executable
    }

    pub fn replay(&self, executable: u64, stream: u64) {
        ok!(self, hipGraphLaunch(u64, u64), executable, stream);
    }

    pub fn destroy(&self, graph: u64, executable: u64) {
        ok!(self, hipGraphDestroy(u64), graph);
        ok!(self, hipGraphExecDestroy(u64), executable);
    }
}
